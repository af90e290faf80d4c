"""Kill -9 at many moments, then resume: nothing may differ from the uninterrupted run.

    python -m tests.crash --kills 10 --seed 0

Trains a tiny random model (CPU, one thread) with PPO, KL to the average and Elastic Reset, kills
the process while a checkpoint is being written, right after a reset, before the first checkpoint,
between the last checkpoint and the end, and at random bytes of the record; then `tether resume`.
The runs that are killed, and the uninterrupted one, are forks of one interpreter (tests/forked.py);
another, with other hashes of strings, resumes: this one.
record.jsonl, samples.jsonl, the exported weights and the last checkpoint (weights of every set,
moments, critic) are compared bit for bit.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.forked import finish, start
from tests.runs_for_tests import MAIN, make_world, mapping, numbers_of
from tether.cli.main import main as tether
from tether.config.text_values import write_yaml

UPDATES, EVERY = 12, 2
PATIENCE = 120.0
"""Seconds after which a process that should have reached its moment is given up."""


@dataclass(frozen=True)
class Moment:
    """When to kill: `reached(folder)` turns true, is asked a few thousand times a second."""

    name: str
    reached: Callable[[Path], bool]


def writing(number: int) -> Moment:
    """While a checkpoint is being written, from checkpoint `number` (1, 2...) on."""

    def reached(folder: Path) -> bool:
        there = _names(folder / "checkpoints")
        done = [n for n in there if n.startswith("update_")]
        late = int(max(done)[-6:]) if done else 0
        return late >= (number - 1) * EVERY and any(n.endswith(".part") for n in there)

    return Moment(f"while a checkpoint is written (number {number} or later)", reached)


def after_reset(number: int) -> Moment:
    """As soon as the event line of reset `number` stands in the record."""
    return Moment(
        f"right after reset {number}",
        lambda folder: _read(folder / "record.jsonl").count(b'"kind": "event"') >= number,
    )


def at_byte(share: float, length: int, what: str = "") -> Moment:
    """When the record has grown to a share of its final length."""
    name = what or f"at {share:.0%} of the record"
    return Moment(name, lambda folder: _size(folder / "record.jsonl") >= share * length)


def moments(count: int, seed: int, record: bytes) -> list[Moment]:
    """The same for the same seed. The named moments come first, then random ones."""
    rng, length = random.Random(seed), len(record)
    first = record.index(b'"kind": "update"') / length  # the first of six checkpoints is later
    end = record.rindex(b'"split": "test"') / length
    out = [
        writing(rng.randint(1, 4)),
        after_reset(rng.randint(1, 3)),
        at_byte(first, length, "before the first checkpoint"),
        at_byte(end, length, "among the test prompts at the end"),
    ]
    while len(out) < count:
        kind = rng.choice(["writing", "reset", "byte", "byte"])
        if kind == "writing":
            out.append(writing(rng.randint(1, 5)))
        elif kind == "reset":
            out.append(after_reset(rng.randint(1, 3)))
        else:
            out.append(at_byte(rng.random(), length))
    return out[:count]


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def prepare(folder: Path) -> Path:
    """A model, prompts and run.yaml."""
    world = make_world(folder, width=64)
    test = {
        "updates": UPDATES,
        "data": {"test_rows": 4},
        "evaluation": {"test_prompts": 4, "budgets": [0.5, 2.0]},
        "checkpoint": {"every": EVERY, "export": True},
    }
    write_yaml(world / "run.yaml", mapping(world, MAIN, test))
    return world


def whole(world: Path) -> dict[str, bytes]:
    """The uninterrupted run's numbers."""
    config = str(world / "run.yaml")
    finish("train", "--config", config, "--name", "whole", output=world / "whole.log")
    return everything(world / "runs" / "whole")


def everything(folder: Path) -> dict[str, bytes]:
    exported = (folder / "policy" / "model.safetensors").read_bytes()
    return numbers_of(folder) | {"policy": exported}


def kill(world: Path, name: str, moment: Moment) -> str:
    """Start, wait for the moment, kill -9; what was left on disk. Raises RuntimeError if the run
    ended before."""
    folder, log = world / "runs" / name, world / f"{name}.log"
    config = str(world / "run.yaml")
    process = start("train", "--config", config, "--name", name, output=log)
    until = time.monotonic() + PATIENCE
    try:
        while not moment.reached(folder):
            if process.poll() is not None:
                raise RuntimeError(
                    f"the run ended before its moment ({moment.name}):\n{log.read_text()}"
                )
            if time.monotonic() > until:
                raise RuntimeError(f"the run never came to its moment ({moment.name})")
            time.sleep(0.0002)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    there = _names(folder / "checkpoints")
    part = ", a half-written checkpoint" if any(n.endswith(".part") for n in there) else ""
    done = max((int(n[-6:]) for n in there if n.startswith("update_")), default=0)
    lines = _read(folder / "record.jsonl").count(b"\n")
    return f"{lines} record lines, newest checkpoint {done}{part}"


def resume(folder: Path, output: Path) -> None:
    """`tether resume FOLDER` in this process. Raises RuntimeError with its output if it fails."""
    with (
        open(output, "a", encoding="utf-8") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        code = tether(["resume", str(folder)])
    if code != 0:
        raise RuntimeError(f"tether resume {folder} failed:\n{output.read_text()}")


def crash(world: Path, number: int, moment: Moment, want: dict[str, bytes]) -> list[str]:
    """Kill and resume once; the names of what differs."""
    name = f"kill{number}"
    left = kill(world, name, moment)
    folder = world / "runs" / name
    resume(folder, world / f"{name}.log")
    have = everything(folder)
    wrong = [k for k in want if have[k] != want[k]]
    result = f"DIFFERS in {', '.join(wrong)}" if wrong else "equal"
    print(f"{number}: killed {moment.name} ({left}): {result}", flush=True)
    return wrong


def main(words: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__.split("\n")[0])
    p.add_argument("--kills", type=int, default=10)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--keep", type=Path, help="work in this folder and leave it")
    given = p.parse_args(words)
    started = time.monotonic()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="tether-crash-"))
    try:
        world = prepare(folder)
        want = whole(world)
        plan = moments(given.kills, given.seed, want["record"])
        wrong = [bool(crash(world, i + 1, m, want)) for i, m in enumerate(plan)]
    finally:
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{wrong.count(False)} of {len(wrong)} equal ({time.monotonic() - started:.0f} s)")
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
