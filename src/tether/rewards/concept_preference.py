"""A learned preference, divided by what the completion leaves out, plus METEOR.

    score = meteor_coef * METEOR + preference / (1 + concept_penalty_coef * missing concepts)

Source: RL4LMs' reward `common_gen_preference_model` (there P(good) of a T5-11B; its configuration
sets both coefficients to 0, the paper's section 5.2 reports METEOR with the penalty). The
preference is any reward here: a classifier, or a function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tether.config.errors import UserError
from tether.metrics.base import Metric
from tether.metrics.coverage import missing_concepts
from tether.metrics.meteor import Meteor
from tether.rewards.base import Reward
from tether.rewards.batch import RewardBatch
from tether.rewards.classifier import ClassifierReward
from tether.rewards.metric import MetricReward


@dataclass
class ConceptPreference(Reward):
    """Preference of a learned reward / (1 + missing concepts), plus METEOR."""

    preference: Reward = field(default_factory=ClassifierReward)
    """Its values count as they are and must not be negative, since dividing would then reward what
    is missing: of a reward model take `output: probability`."""
    concepts: str = "concepts"
    """Column of lists of concepts."""
    concept_penalty_coef: float = 1.0
    """How much each missing concept divides by."""
    meteor_coef: float = 1.0
    """Weight of METEOR; 0 leaves it out, and references and WordNet with it."""
    metric: Metric = field(default_factory=Meteor)
    """In place of METEOR."""
    references: str = "references"
    """Column of human texts."""

    def __post_init__(self) -> None:
        self._overlap = MetricReward(
            metric=self.metric, references=self.references, missing=self.missing
        )

    @property
    def version(self) -> str:
        own = [self.preference.version, self._overlap.version if self.meteor_coef else ""]
        return ", ".join(v for v in own if v)

    @property
    def told(self) -> str:
        return self.preference.told

    @property
    def needs_prompts(self) -> bool:
        overlap = self.meteor_coef != 0 and self._overlap.needs_prompts
        return self.preference.needs_prompts or overlap

    def needs(self) -> tuple[str, ...]:
        others = self._overlap.needs() if self.meteor_coef else ()
        return (self.concepts, *self.preference.needs(), *others)

    def lacks(self, row: Mapping[str, Any]) -> str:
        given = row[self.concepts]
        if given is None and self.missing == "drop":
            return ""
        if not isinstance(given, list | tuple) or not all(isinstance(c, str) for c in given):
            mend = "; or leave such rows out with missing: drop" if given is None else ""
            return f"holds {given!r:.60} in {self.concepts!r}, expected a list of concepts{mend}"
        return self.preference.lacks(row) or (self._overlap.lacks(row) if self.meteor_coef else "")

    def check(self) -> None:
        if self.concept_penalty_coef < 0:
            raise UserError(
                f"concept_preference: concept_penalty_coef is {self.concept_penalty_coef}; "
                "it must be at least 0"
            )
        if self.preference.is_async:
            raise UserError("concept_preference: the preference must not be an async function")
        self.preference.check()
        if self.meteor_coef:
            self._overlap.check()

    def prepare(self) -> None:
        self.preference.prepare()
        if self.meteor_coef:
            self._overlap.prepare()

    def __call__(self, batch: RewardBatch) -> Sequence[Any]:
        if self.concepts not in batch.columns:
            raise UserError(f"concept_preference: there is no column {self.concepts!r}")
        liked = list(self.preference(batch))
        overlap = list(self._overlap(batch)) if self.meteor_coef else [0.0] * len(batch)
        out: list[float | None] = []
        for text, concepts, p, m in zip(
            batch.texts, batch.columns[self.concepts], liked, overlap, strict=True
        ):
            if p is None or m is None or (concepts is None and self.missing == "drop"):
                out.append(None)
                continue
            if float(p) < 0:
                raise UserError(
                    f"concept_preference: the preference gives {float(p):.3g} for {text[:40]!r};"
                    " divided by missing concepts a negative number would grow: set"
                    " preference.output to probability"
                )
            absent = missing_concepts(text, list(concepts))
            out.append(self.meteor_coef * m + float(p) / (1.0 + self.concept_penalty_coef * absent))
        return out
