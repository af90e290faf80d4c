"""Words that templates are filled with."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

VOCABULARY: dict[str, Sequence[str]] = {
    "name": ["Anna", "Ben", "Clara", "David", "Ella", "Felix", "Grace", "Henry", "Ida", "Jack",
             "Kate", "Leo", "Maria", "Noah", "Olivia", "Paul", "Rosa", "Simon", "Tina", "Victor"],
    "surname": ["Baker", "Carter", "Dale", "Ellis", "Fisher", "Grant", "Hill", "Irving", "Jones",
                "Keller", "Lane", "Morris", "Nolan", "Parker", "Reed", "Stone", "Turner", "Walsh"],
    "town": ["Ashford", "Brookton", "Cedar Falls", "Dunmore", "Eastwick", "Fairhaven", "Granby",
             "Hollins", "Kingsport", "Lakewood", "Millbrook", "Norwood", "Oakham", "Redcliff"],
    "day": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    "month": ["January", "March", "April", "May", "June", "August", "September", "November"],
    "year": [str(y) for y in range(1998, 2020)],
    "small": ["two", "three", "four", "five", "six", "seven", "eight", "nine"],
    "hundred": [str(n) for n in range(110, 990, 35)],
    "points": [str(n) for n in range(3, 41)],
    "length": [str(n) for n in range(120, 980, 17)],
    "thousand": [f"{n},{m}00" for n in range(2, 90, 7) for m in (2, 5, 8)],
    "colour": ["red", "white", "black", "brown", "grey", "yellow", "green", "blue"],
    "genre": ["comedy", "thriller", "drama", "mystery", "western", "romance", "war film"],
    "film": ["The Long Road", "Winter Light", "A Quiet Harbour", "Glass Houses", "The Last Train",
             "Paper Boats", "Under the Bridge", "Northern Sky", "The Visitor", "Second Chance"],
}  # fmt: skip


class Words:
    """One choice for each slot of a row: `{name}` is the same wherever it stands. `{name2}` is
    another one of the same list."""

    def __init__(self, rng: random.Random, slots: Mapping[str, Sequence[str]] | None = None):
        self.rng, self.slots = rng, {**VOCABULARY, **(slots or {})}
        self.chosen: dict[str, str] = {}

    def filled(self, template: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda m: self._of(m.group(1)), template)

    def _of(self, slot: str) -> str:
        if slot not in self.chosen:
            kind = slot.rstrip("0123456789")
            taken = {v for k, v in self.chosen.items() if k.rstrip("0123456789") == kind}
            free = [v for v in self.slots[kind] if v not in taken]
            self.chosen[slot] = self.rng.choice(free)
        return self.chosen[slot]
