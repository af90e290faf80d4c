"""MAUVE: how close the distribution of the texts is to that of human texts.

Source: Pillutla et al. 2021, "MAUVE: Measuring the Gap Between Neural Text and Human Text". An
adapter over the package mauve-text, which is GPLv3 and therefore no dependency, not even an
optional one: whoever wants the metric installs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.config.errors import UserError
from tether.metrics.base import Metric, Row, Scored, missing


@dataclass
class Mauve(Metric):
    """MAUVE of the corpus of texts against the corpus of references (the first of each sample)."""

    model: str = ""
    """Folder or hub id of the featurizer (published values: gpt2-large)."""
    tokens: int = 256
    """Longer texts are cut."""
    buckets: int | None = None
    """Clusters; None: a tenth of the texts, as the package does."""
    seed: int = 25
    """Of the clustering; the package's own default."""
    device: int = -1
    """Number of the accelerator, -1 = cpu."""

    name: ClassVar[str] = "mauve"
    package: ClassVar[str] = "mauve-text"
    per_sample: ClassVar[bool] = False
    seconds_per_1000: ClassVar[float] = 600.0

    def check(self) -> None:
        self._library()
        if not self.model:
            raise UserError(
                "mauve needs `model`: the folder or hub id of its featurizer (gpt2-large)"
            )

    def _library(self) -> Any:
        try:
            import mauve
        except ImportError as e:
            raise missing(self.name, self.package, "pip install mauve-text (GPLv3)") from e
        return mauve

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        """Each row as a corpus of its own, which no caller asks for: `per_sample` is False."""
        return [self.corpus([r], ()) for r in rows]

    def corpus(self, rows: Sequence[Row], scores: Sequence[Scored]) -> Scored:
        self.check()
        texts = [r.text for r in rows if r.text.strip()]
        if not texts:
            return (0.0,)
        found = self._library().compute_mauve(
            p_text=[r.references[0] for r in rows], q_text=texts,
            featurize_model_name=self.model, max_text_length=self.tokens,
            num_buckets="auto" if self.buckets is None else self.buckets, seed=self.seed,
            device_id=self.device, verbose=False,
        )  # fmt: skip
        return (float(found.mauve),)
