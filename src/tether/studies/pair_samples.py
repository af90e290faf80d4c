"""Completions of `tether reward-model pairs`, kept beside its result until that is written.

    PAIRS.jsonl.samples.json    {"of": what was asked for, "a": [[...]], "b": [[...]]}

A rater that fails, or a kill, loses nothing: the same command goes on with them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tether.config.errors import UserError
from tether.config.whole_file import write_whole
from tether.rewards.batch import Prompt

Say = Callable[[str], None]
Side = list[list[str]]


def samples_of(target: Path) -> Path:
    """Where the completions of a file of pairs, or of a form, are kept."""
    return target.with_name(target.name + ".samples.json")


def asked(
    settings: Mapping[str, Any], sources: Sequence[str], prompts: Sequence[Prompt]
) -> dict[str, Any]:
    """What decides the completions: settings, prompts, and the newest change of each source."""
    digest = hashlib.sha256(json.dumps(list(prompts), ensure_ascii=False).encode()).hexdigest()
    return {**settings, "prompts": digest, "changed": [_changed(s) for s in sources]}


class Kept:
    """The completions of both sides, written as they come."""

    def __init__(self, file: Path, of: Mapping[str, Any], say: Say) -> None:
        """Raises UserError, before any sampling, for a file that is damaged or that holds
        completions of something else, and where none can be written."""
        self.file, self.of = file, dict(of)
        self.sides: dict[str, Side] = {}
        if not file.is_file():
            self._write()
            return
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            of, sides = found["of"], {k: found[k] for k in ("a", "b") if k in found}
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise UserError(f"{file} cannot be read ({e!r}): remove it to sample anew") from e
        if sides and of != self.of:
            raise UserError(
                f"{file} holds completions of an earlier call with other settings, prompts or "
                "weights: remove it to sample anew, or choose another name"
            )
        self.sides = sides
        if sides:
            say(f"going on with the completions in {file} (of {' and '.join(sides)})")

    def side(self, name: str, sample: Callable[[], Side]) -> Side:
        """Those of `a` or `b`, sampled if they are not there yet."""
        if name not in self.sides:
            try:
                self.sides[name] = sample()
            finally:
                if not self.sides:
                    self.remove()
            self._write()
        return self.sides[name]

    @contextmanager
    def named(self) -> Iterator[None]:
        """What fails inside says where the completions are."""
        note = f"the completions are kept in {self.file}: the same command goes on with them"
        try:
            yield
        except UserError as e:
            raise UserError(f"{e}; {note}") from e
        except Exception as e:
            e.add_note(note)
            raise

    def remove(self) -> None:
        """Once they stand in the result."""
        self.file.unlink(missing_ok=True)

    def _write(self) -> None:
        text = json.dumps({"of": self.of, **self.sides}, ensure_ascii=False)
        try:
            write_whole(self.file, text + "\n")
        except OSError as e:
            raise UserError(f"cannot write {self.file}: {e.strerror or e}") from e


def _changed(source: str) -> int | None:
    """Of a run or a folder of a model; None for a hub id."""
    folder = Path(source)
    weights = folder / "policy" if (folder / "policy").is_dir() else folder
    files = [folder / "config.yaml", *weights.glob("*")]
    return max((p.stat().st_mtime_ns for p in files if p.is_file()), default=None)
