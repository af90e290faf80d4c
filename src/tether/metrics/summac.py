"""SummaC-ZS: is every sentence of a summary entailed by a sentence of the document?

    e(d, s)  P(entailment) - P(contradiction) of an NLI model, premise d, hypothesis s
    value    mean over summary sentences s of max over document sentences d of e(d, s)

Source: Laban et al. 2022, "SummaC: Re-Visiting NLI-based Models for Inconsistency Detection in
Summarization", section 4.1 (zero-shot; sentence level, max then mean). The document is the prompt.
No NLI model comes with this library; the paper's is tals/albert-xlarge-vitaminc-mnli. Sentences are
split by `tether.metrics.words.sentences`, not by the authors' splitter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.config.errors import UserError
from tether.metrics.base import Metric, Row, Scored
from tether.metrics.sentence_pairs import load_pair_model
from tether.metrics.words import sentences

_EXAMPLE = "an NLI classifier (the paper's: tals/albert-xlarge-vitaminc-mnli)"


@dataclass
class SummaC(Metric):
    """SummaC-ZS consistency of a summary with its prompt, the document; 0 where either is empty."""

    model: str = ""
    """Folder or hub id of an NLI classifier with labels named entailment and contradiction."""
    prefix: str = ""
    """Text before the document in the prompt, which is left out ("Summarize: ")."""
    contradiction: bool = True
    """Subtract P(contradiction); RL4LMs' configuration leaves it out."""
    most_sentences: int = 100
    """Of a document."""
    batch_size: int = 64
    """Pairs in one forward pass."""
    device: str = "auto"
    """auto is the first accelerator, else cpu."""

    name: ClassVar[str] = "summac"
    package: ClassVar[str] = "transformers"
    needs_references: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    seconds_per_1000: ClassVar[float] = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._model: Any = None

    @property
    def needs_prompts(self) -> bool:
        return True

    @property
    def version(self) -> str:
        self.prepare()
        return str(self._model.version)

    def check(self) -> None:
        if not self.model:
            raise UserError(f"summac needs `model`: the folder or hub id of {_EXAMPLE}")

    def prepare(self) -> None:
        if self._model is None:
            model = load_pair_model(self.name, self.model, self.device, _EXAMPLE)
            self._columns(model)
            self._model = model

    def _columns(self, model: Any) -> tuple[int, int]:
        """Columns of entailment and contradiction."""
        names = [x.lower() for x in model.labels]
        found = [
            next((i for i, n in enumerate(names) if n.startswith(word)), None)
            for word in ("entail", "contradict")
        ]
        if found[0] is None or found[1] is None:
            raise UserError(
                f"summac: {self.model} has the labels {model.labels}; it needs entailment and "
                "contradiction"
            )
        return found[0], found[1]

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        self.prepare()
        sides = [
            (
                sentences(r.prompt.removeprefix(self.prefix))[: self.most_sentences],
                sentences(r.text),
            )
            for r in rows
        ]
        pairs = [(d, s) for document, summary in sides for s in summary for d in document]
        values: list[float] = []
        if pairs:
            p = self._model.logits(pairs, self.batch_size).softmax(-1)
            yes, no = self._columns(self._model)
            values = (p[:, yes] - (p[:, no] if self.contradiction else 0.0)).tolist()
        each = iter(values)
        out: list[Scored] = []
        for document, summary in sides:
            best = [max(next(each) for _ in document) for _ in summary if document]
            out.append((sum(best) / len(best) if best else 0.0,))
        return out
