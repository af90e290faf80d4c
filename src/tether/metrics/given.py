"""What a metric is given, checked once for all of them: text where text is expected, for every
sample. The row in a message is the sample's place in what was given, from 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tether.config.errors import UserError
from tether.config.half_pairs import HALF_PAIR, half_pair

if TYPE_CHECKING:
    from tether.metrics.base import Samples


def texts_given(name: str, samples: Samples) -> Sequence[str]:
    """Raises UserError."""
    return _all_text(name, samples.texts, "texts")


def prompts_given(name: str, samples: Samples) -> Sequence[str]:
    """Raises UserError."""
    if samples.prompts is None:
        raise UserError(f"{name} reads the prompts, and none are given")
    if len(samples.prompts) != len(samples):
        raise UserError(f"{name}: {len(samples.prompts)} prompts for {len(samples)} texts")
    return _all_text(name, samples.prompts, "prompts")


def references_given(name: str, samples: Samples) -> list[tuple[str, ...]]:
    """One or several a sample; a text in the place of a list is one. Raises UserError."""
    if samples.references is None:
        raise UserError(f"{name} compares with references, and none are given")
    _no_text(name, samples.references, "references")
    if len(samples.references) != len(samples):
        raise UserError(f"{name}: {len(samples.references)} references for {len(samples)} texts")
    out = []
    for i, given in enumerate(samples.references):
        texts = _listed(given)
        if texts is None:
            raise UserError(
                f"{name}: row {i + 1} holds {given!r:.60} as references, expected a text or a list "
                "of texts"
            )
        if not texts or any(not isinstance(t, str) or not t.strip() for t in texts):
            raise UserError(
                f"{name}: row {i + 1} has an empty reference ({list(texts)!r:.60}); leave such "
                "rows out, or give them a text"
            )
        for t in texts:
            _whole(name, t, i, "references")
        out.append(texts)
    return out


def column_given(name: str, samples: Samples, column: str) -> Sequence[Any]:
    """Raises UserError."""
    if column not in samples.columns:
        raise UserError(f"{name} reads the column {column!r}; there are {sorted(samples.columns)}")
    values = samples.columns[column]
    if len(values) != len(samples):
        raise UserError(f"{name}: {len(values)} values of {column!r} for {len(samples)} texts")
    return values


def _listed(given: Any) -> tuple[Any, ...] | None:
    """One sample's references as a tuple; None where they are no texts."""
    if given is None:
        return ()
    if isinstance(given, str):
        return (given,)
    if hasattr(given, "tolist"):
        given = given.tolist()
    if isinstance(given, bytes) or not isinstance(given, Sequence):
        return None
    return tuple(given)


def _all_text(name: str, values: Sequence[Any], what: str) -> Sequence[str]:
    _no_text(name, values, what)
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise UserError(
                f"{name}: row {i + 1} of the {what} holds {value!r:.60}, expected text (an empty "
                "one is legal)"
            )
        _whole(name, value, i, what)
    return values


def _no_text(name: str, values: Any, what: str) -> None:
    """One text in the place of a list would be read as its characters."""
    if isinstance(values, str | bytes | Mapping):
        raise UserError(
            f"{name}: the {what} are {values!r:.60}, expected a list with one entry a sample"
        )


def _whole(name: str, text: str, i: int, what: str) -> None:
    if (at := half_pair(text)) is not None:
        raise UserError(
            f"{name}: row {i + 1} of the {what}: character {at} is {HALF_PAIR}; mend the text"
        )
