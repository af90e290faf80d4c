"""What needs no torch answers at once: within a second, in a process of its own. Seconds of the
processor, which on a core of one's own are those of the clock: neighbours do not count."""

import resource
import subprocess
import sys

import pytest

PROBE = """
import sys, atexit
def report():
    names = ("torch", "transformers", "datasets", "pandas", "scipy")
    heavy = [m for m in names if m in sys.modules]
    sys.stderr.write("HEAVY=" + ",".join(heavy))
atexit.register(report)
from tether.cli.main import entry
sys.argv = ["tether", *sys.argv[1:]]
entry()
"""


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def answer(*words: str) -> tuple[int, str, str, float]:
    start = _seconds()
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr, _seconds() - start


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--help", 0),
        ("list", 0),
        ("list --json", 0),
        ("train --help", 0),
        ("train elastic-reset --help", 0),
        ("train imdb-ppo-kl --dry-run", 0),
        ("train ppo --data.task imdb --dry-run", 0),
        ("recipes show ppo", 0),
        ("schema", 0),
        ("human-study prepare --help", 0),
        ("human-study analyse", 2),
        ("train ppo --updats 3", 2),
        ("train ppo --algorithm.lr fast", 2),
        ("train ppo --tethers.kl.coef x --data d --reward length", 2),
        ("train ppo", 2),
        ("resume nowhere", 2),
    ],
)
def test_startup_within_a_second_and_without_torch(words: str, code: int) -> None:
    found = min((answer(*words.split()) for _ in range(3)), key=lambda a: a[3])
    assert found[0] == code, found[2]
    assert "HEAVY=" in found[2] and found[2].endswith("HEAVY="), found[2]
    assert found[3] < 1.0


def test_startup_import_of_the_library_is_light() -> None:
    names = "'torch', 'pydantic', 'yaml'"
    code = f"import sys, tether; print([m for m in ({names}) if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
