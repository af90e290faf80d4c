"""Which parameters a rule moves: patterns on their names, for selective resets.

A pattern is a shell glob that must fit the whole name: `*.h.11.*` is a layer of GPT-2, `*.mlp.*`
every feed-forward block, `*lora_B*` one side of all adapters. Names are those of the model's own
parameters (with LoRA: of the adapter).

Source: tether; resets of the last layers as in Nikishin et al. 2022, arXiv 2205.07802.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tether.config.errors import UserError


@dataclass(frozen=True)
class Matching:
    """A `Move.where`: the names that at least one pattern fits."""

    patterns: tuple[str, ...]

    def __call__(self, name: str) -> bool:
        return any(fnmatchcase(name, p) for p in self.patterns)


def where(patterns: tuple[str, ...]) -> Matching | None:
    """The `Move.where` of a `layers` setting: None = every parameter."""
    return Matching(patterns) if patterns else None


def check_patterns(patterns: tuple[str, ...], names: Collection[str], setting: str) -> None:
    """Raises UserError for a pattern that fits no parameter: it would do nothing."""
    for p in patterns:
        if not any(fnmatchcase(n, p) for n in names):
            some = ", ".join(list(names)[:: max(1, len(names) // 3)][:3])
            raise UserError(
                f"{setting} '{p}' fits none of the {len(names)} parameters that train; a pattern"
                f" fits the whole name (*.h.0.*), and names look like {some}"
            )
