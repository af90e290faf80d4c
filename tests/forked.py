"""Programs in processes of their own that start with everything imported, as a study's workers do
(`tether.studies.warm`): a new interpreter takes longer to import than most tests to run.

As a module it is the program that a fork runs: folder, file for stderr or nothing, environment
(JSON), and `-m MODULE`, `-f MODULE:FUNCTION`, or a file, with its words.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tether.studies.warm import Fork, Warm

ROOT = Path(__file__).resolve().parents[1]
CLASSES = ("GPT2LMHeadModel", "LlamaForCausalLM")


@cache
def _warm() -> Warm:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    env = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    run = [sys.executable, "-m", "tether.studies.warm", "-m", "tests.forked", *CLASSES]
    warm = Warm.begin(run, env)
    atexit.register(warm.end)
    return warm


def launch(
    words: list[str], output: Path, *, folder: Path, env: dict[str, str], errors: Path | None = None
) -> Fork:
    """words: `-m MODULE ...` or `FILE ...`; output gets stdout, and stderr if that has no file."""
    return _warm().start([str(folder), str(errors or ""), json.dumps(env), *words], output)


def start(*words: str, output: Path) -> Fork:
    """`tether WORDS`."""
    return launch(["-m", "tether", *words], output, folder=Path.cwd(), env={})


def finish(*words: str, output: Path) -> None:
    """`tether WORDS` to its end. Raises RuntimeError with its output if it fails."""
    if start(*words, output=output).wait() != 0:
        raise RuntimeError(f"tether {' '.join(words)} failed:\n{output.read_text()}")


def ranks(work: Callable[[int, str], None], folder: Path, count: int = 2) -> None:
    """`work(rank, folder)` in `count` processes at once, to their ends; `work` is a module's.

    Raises:
        RuntimeError: with the output of the first that fails; the others are stopped.
    """
    name = f"{work.__module__}:{work.__name__}"
    logs = [folder / f"rank{r}.log" for r in range(count)]
    left = {
        log: launch(["-f", name, str(rank), str(folder)], log, folder=ROOT, env={})
        for rank, log in enumerate(logs)
    }
    while left:
        for log, fork in list(left.items()):
            if fork.poll() is None:
                continue
            del left[log]
            if fork.returncode != 0:
                for other in left.values():
                    other.send_signal(signal.SIGKILL)
                raise RuntimeError(f"{name} failed on {log.stem}:\n{log.read_text()}")
        time.sleep(0.01)


def main() -> None:
    folder, errors, env, *words = sys.argv[1:]
    os.chdir(folder)
    os.environ.update(json.loads(env))
    if errors:
        with open(errors, "ab") as f:
            os.dup2(f.fileno(), 2)
    if words[0] == "-f":
        module, _, name = words[1].partition(":")
        rank, *rest = words[2:]
        getattr(importlib.import_module(module), name)(int(rank), *rest)
    elif words[0] == "-m":
        sys.path.insert(0, folder)
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
