"""Comparisons as `--primary` names them: `A:B,C:D` with the names of rows, which may hold colons
(`file.py:function`) and commas (`ppo (reward meteor, KL to raw)`) themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tether.config.errors import UserError
from tether.config.nearest import unknown

Pair = tuple[str, str]


def pairs_of(given: Sequence[Pair] | str, labels: Collection[str]) -> list[Pair]:
    """The comparisons, as they were given or read from the option's text.

    Raises UserError: a name that is no row's, a row against itself, or a text that is no list of
    comparisons, or more than one.
    """
    pairs = _read(given, labels) if isinstance(given, str) else [(a, b) for a, b in given]
    for a, b in pairs:
        for name in (a, b):
            if name not in labels:
                raise unknown("method", name, labels, "--primary")
        if a == b:
            raise UserError(f"--primary compares '{a}' with itself; write METHOD:AGAINST")
    return pairs


def _read(text: str, labels: Collection[str]) -> list[Pair]:
    found = list(_readings(text.strip(), labels)) if text.strip() else [[]]
    if len(found) > 1:
        said = "; ".join(", ".join(f"'{a}' against '{b}'" for a, b in r) for r in found[:2])
        raise UserError(f"--primary {text} can be read in several ways ({said}): rename a method")
    if found:
        return found[0]
    plain = [tuple(x.strip() for x in pair.split(":")) for pair in text.split(",")]
    for pair in plain:  # of names without colons and commas each mistake has a message of its own
        if len(pair) == 2 and all(pair):
            continue
        named = ", ".join(labels)
        raise UserError(
            f"--primary: '{':'.join(pair)}' is no comparison; write METHOD:AGAINST with two of the "
            f"rows {named}"
        )
    return [(a, b) for a, b in plain]


def _readings(text: str, labels: Collection[str]) -> Iterator[list[Pair]]:
    """All ways to read the text as comparisons of these names."""
    for a, behind in _begins(text, labels, ":"):
        for b, rest in _begins(behind, labels, ","):
            if not rest:
                yield [(a, b)]
            for more in _readings(rest, labels) if rest else ():
                yield [(a, b), *more]


def _begins(text: str, labels: Collection[str], separator: str) -> Iterator[tuple[str, str]]:
    """(name, what is behind the separator), for the names that the text begins with; a comma may
    be missing at the end."""
    for name in labels:
        rest = text.removeprefix(name).strip()
        if not text.startswith(name):
            continue
        if rest.startswith(separator) and rest[1:].strip():
            yield name, rest[1:].strip()
        elif not rest and separator == ",":
            yield name, ""
