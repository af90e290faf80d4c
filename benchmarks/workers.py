"""Processes that get ready side by side and then work one at a time: a parent and its workers talk
in lines, JSON from the worker, words from the parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from benchmarks.measuring import ROOT, say


class Worker:
    """A process as its parent sees it. What it prints beside its messages goes to stderr."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ, **(environment or {})},
        )  # fmt: skip

    def hear(self) -> dict[str, Any] | None:
        """Its next message; None where it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def tell(self, word: str) -> bool:
        """False where it has ended."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def end(self) -> int:
        """Its exit code; closes what it waits for."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        return self.process.wait()


def one_after_the_other(
    workers: Sequence[Worker], add: Callable[[Worker, dict[str, Any]], object]
) -> list[str]:
    """All get ready at once; then each is told to go and heard to its end. Names of those that
    failed."""
    ready = [w for w in workers if w.hear()]
    say(f"{len(ready)} of {len(workers)} processes are ready")
    for w in ready:
        w.tell("go")
        while message := w.hear():
            add(w, message["row"])
    return [w.name for w in workers if w.end()]


class Parent:
    """The parent as a worker sees it. Takes standard output for messages: make it first."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def tell(self, **message: Any) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def ready(self) -> None:
        """Compiled and warm: say so, leave the card's spare memory to the others, and wait."""
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        self.tell(ready=True)
        self.hear()

    def hear(self) -> str:
        """The next word; ends the process where the parent is gone."""
        line = sys.stdin.readline()
        if not line:
            raise SystemExit("the parent has ended")
        return line.strip()
