"""Programs in processes of their own that start with everything imported, as a study's workers do
(`tether.studies.warm`): a new interpreter takes longer to import than most tests to run.

As a module it is the program that a fork runs: folder, environment (JSON), and `-m MODULE` or a
file with its words.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import sys
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


def launch(words: list[str], output: Path, *, folder: Path, env: dict[str, str]) -> Fork:
    """words: `-m MODULE ...` or `FILE ...`; output gets stdout and stderr."""
    return _warm().start([str(folder), json.dumps(env), *words], output)


def start(*words: str, output: Path) -> Fork:
    """`tether WORDS`."""
    return launch(["-m", "tether", *words], output, folder=Path.cwd(), env={})


def finish(*words: str, output: Path) -> None:
    """`tether WORDS` to its end. Raises RuntimeError with its output if it fails."""
    if start(*words, output=output).wait() != 0:
        raise RuntimeError(f"tether {' '.join(words)} failed:\n{output.read_text()}")


def main() -> None:
    folder, env, *words = sys.argv[1:]
    os.chdir(folder)
    os.environ.update(json.loads(env))
    if words[0] == "-m":
        sys.path.insert(0, folder)
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
