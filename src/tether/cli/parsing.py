"""Options of a command: argparse, with its errors as ours and its help through rich."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from tether.config.errors import UserError
from tether.config.nearest import unknown


class Parser(argparse.ArgumentParser):
    """One command. `words` of it that are overrides (`--a.b VALUE`) are left to the caller."""

    def __init__(self, command: str, summary: str, **options: Any) -> None:
        super().__init__(
            prog=f"tether {command}",
            description=summary,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **options,
        )

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog}: {message}; see {self.prog} --help")

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Like `parse_args`, options and words in any order. An option that is not there is
        answered with the nearest."""
        found, rest = self.parse_known_intermixed_args(list(words))
        if rest:
            raise unknown("option", rest[0], self.options(), self.prog)
        return found

    def options(self) -> list[str]:
        """Its long options."""
        return [o for a in self._actions for o in a.option_strings if o.startswith("--")]


@contextmanager
def as_typed(given: argparse.Namespace, options: Mapping[str, str]) -> Iterator[None]:
    """Errors name what was typed: a setting in their text becomes the option that gave it, or gets
    the option beside it that would.

    options: path of a setting -> the option that sets it.
    """
    try:
        yield
    except UserError as e:
        text = str(e)
        for path, option in options.items():
            used = getattr(given, option.removeprefix("--").replace("-", "_")) is not None
            there = re.compile(rf"(?<![\w.]){re.escape(path)}(?![\w.]*\w)")
            text = there.sub(option if used else f"{path} (option {option})", text, count=1)
        raise UserError(text) from e


def positive(text: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 1")
    return value
