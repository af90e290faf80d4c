"""Workers forked from one process that has everything imported: importing torch and transformers
takes as long as a third of a short run, and a study on CPU cores starts many.

The parent of the forks trains nothing, has one thread and no CUDA context, so a fork of it is what
a new interpreter would be after its imports. Linux only, and never for GPUs.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PRELOADED = (
    "torch._dynamo",
    "torch.distributed.tensor",
    "tether.cli.train",
    "tether.train.run",
    "tether.train.loop",
    "tether.train.final",
    "tether.train.evaluate",
    "tether.train.checkpoint",
)
LOOK = 0.05
"""Seconds between looks at the forks that ended."""


@dataclass
class Fork:
    """One worker: as much of `subprocess.Popen` as a study needs."""

    warm: Warm
    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.warm.hear(0.0)
        return self.returncode

    def wait(self) -> int:
        while self.returncode is None:
            self.warm.hear(None)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


@dataclass
class Warm:
    """The process that forks. `command` starts `python -m tether.studies.warm PROGRAM...`."""

    process: subprocess.Popen[bytes]
    forks: dict[int, Fork] = field(default_factory=dict)
    said: bytes = b""
    started: deque[Fork] = field(default_factory=deque)
    """Forks that `start` has not handed out yet; one may have ended already."""

    @classmethod
    def begin(cls, command: Sequence[str], env: dict[str, str]) -> Warm:
        return cls(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=env,
                start_new_session=True,
            )
        )

    def start(self, words: Sequence[str], log: Path) -> Fork:
        """Fork a worker that runs `PROGRAM WORDS` with its output appended to `log`."""
        if self.process.stdin is None:  # begin() makes a pipe
            raise RuntimeError("this warm process has no standard input")
        order = {"words": list(words), "log": str(log.absolute())}
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        while not self.started:
            self.hear(None)
        return self.started.popleft()

    def hear(self, seconds: float | None) -> None:
        """Read what the process says: `started PID`, `ended PID STATUS`.

        Raises:
            RuntimeError: when it has died.
        """
        if self.process.stdout is None:
            raise RuntimeError("this warm process has no standard output")
        pipe = self.process.stdout.fileno()
        if not select.select([pipe], [], [], seconds)[0]:
            return
        data = os.read(pipe, 65536)
        if not data:
            raise RuntimeError(
                f"the process that starts workers ended, status {self.process.wait()}"
            )
        *lines, self.said = (self.said + data).split(b"\n")
        for line in lines:
            what, pid, *status = line.split()
            if what == b"started":
                self.forks[int(pid)] = Fork(self, int(pid))
                self.started.append(self.forks[int(pid)])
            else:
                self.forks.pop(int(pid)).returncode = int(status[0])

    def end(self) -> None:
        """After the last worker: the process ends with its standard input."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def architectures(paths: Sequence[str]) -> list[str]:
    """Class names of local model folders, so that their code is imported before the first fork."""
    names: list[str] = []
    for path in paths:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            found = json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))
            names += [n for n in found.get("architectures") or [] if n not in names]
    return names


def _import(classes: Sequence[str]) -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    import transformers

    for name in classes:
        getattr(transformers, name, None)  # a lazy module: the look-up imports


def _serve() -> list[str]:
    """Answer orders until standard input ends (SystemExit); returns, in each fork, its words."""
    orders = sys.stdin.fileno()
    buffer, children, open_ = b"", set[int](), True
    while open_ or children:
        if open_ and select.select([orders], [], [], LOOK)[0]:
            data = os.read(orders, 65536)
            open_ = bool(data)
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    _become_worker(order)
                    return list(order["words"])
                children.add(pid)
                _say(f"started {pid}")
        elif not open_:
            select.select([], [], [], LOOK)
        while children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            children.discard(pid)
            _say(f"ended {pid} {os.waitstatus_to_exitcode(status)}")
    raise SystemExit(0)


def _say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def _become_worker(order: dict[str, Any]) -> None:
    """A session of its own, the log as its output, and the kernel's promise to stop it with us."""
    parent = os.getppid()
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        raise SystemExit(128 + signal.SIGTERM)
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(null)


def main() -> None:
    """python -m tether.studies.warm FILE | -m MODULE [CLASS OF TRANSFORMERS...]"""
    program, *classes = sys.argv[1:]
    if program == "-m":
        program, *classes = classes
        _import(classes)
        gc.freeze()  # collections of a fork leave the shared pages alone
        sys.argv = [program, *_serve()]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [program, *_serve()]
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
