"""SummaC: is every sentence of a summary entailed by a sentence of the document?

    SummaC-ZS    e(d, s)  P(entailment) - P(contradiction) of an NLI model, premise d, hypothesis s
                 value    mean over summary sentences s of max over document sentences d of e(d, s)
    SummaC-Conv  h(s)     histogram of P(entailment) over d, 23 bins, for the first 10 sentences s
                 r        mean over s of w . h(s) + b
                 value    softmax(W (r, r, r) + c)[consistent]

Source: Laban et al. 2022, "SummaC: Re-Visiting NLI-based Models for Inconsistency Detection in
Summarization" (arXiv 2111.09525), section 4.1 (zero-shot; sentence level, max then mean) and 4.2
(the convolution over histograms); bins, rows and the mean of the second as in
tingofurro/summac@c1f3da9, whose weights it takes. The document is the prompt. No NLI model comes
with this library; the paper's is tals/albert-xlarge-vitaminc-mnli. Sentences are split by
`tether.metrics.words.sentences`, not by the authors' splitter, and an empty summary or document is
0, which their convolution gives the score of one sentence that nothing entails.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from tether.config.errors import UserError
from tether.core.weights import fingerprint
from tether.metrics.base import Metric, Row, Scored
from tether.metrics.sentence_pairs import PairModel, load_pair_model
from tether.metrics.words import sentences

_EXAMPLE = "an NLI classifier (the paper's: tals/albert-xlarge-vitaminc-mnli)"
_WEIGHTS = "summac_conv_vitc_sent_perc_e.bin of github.com/tingofurro/summac (2 kB)"
EDGES = (
    *(0.0, 0.01, 0.02, 0.03, 0.04, 0.07, 0.13, 0.37, 0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.955),
    *(0.96, 0.965, 0.97, 0.975, 0.98, 0.985, 0.99, 0.995, 1.0),
)
"""Of the histogram's bins; the last holds its right end too."""
ROWS = 10
"""Summary sentences that the convolution sees."""
_SHAPES = {"mlp.weight": (1, len(EDGES) - 1), "mlp.bias": (1,), "layer_final.weight": (2, 3),
           "layer_final.bias": (2,)}  # fmt: skip


@dataclass
class _OfSentences(Metric):
    """What both read: the NLI model on every pair of a document's and a summary's sentence."""

    model: str = ""
    """Folder or hub id of an NLI classifier with labels named entailment and contradiction."""
    prefix: str = ""
    """Text before the document in the prompt, which is left out ("Summarize: ")."""
    most_sentences: int = 100
    """Of a document."""
    batch_size: int = 64
    """Pairs in one forward pass."""
    device: str = "auto"
    """auto is the first accelerator, else cpu."""

    package: ClassVar[str] = "transformers"
    needs_references: ClassVar[bool] = False
    seconds_per_1000: ClassVar[float] = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._model: PairModel | None = None

    @property
    def needs_prompts(self) -> bool:
        return True

    @property
    def version(self) -> str:
        self.prepare()
        return str(self._model.version)

    def check(self) -> None:
        if not self.model:
            raise UserError(f"{self.name} needs `model`: the folder or hub id of {_EXAMPLE}")

    def prepare(self) -> None:
        if self._model is None:
            model = load_pair_model(self.name, self.model, self.device, _EXAMPLE)
            self._columns(model)
            self._model = model

    def _columns(self, model: PairModel) -> tuple[int, int]:
        """Columns of entailment and contradiction."""
        names = [x.lower() for x in model.labels]
        found = [
            next((i for i, n in enumerate(names) if n.startswith(word)), None)
            for word in ("entail", "contradict")
        ]
        if found[0] is None or found[1] is None:
            raise UserError(
                f"{self.name}: {self.model} has the labels {model.labels}; it needs entailment and "
                "contradiction"
            )
        return found[0], found[1]

    def images(self, rows: Sequence[Row]) -> list[Tensor]:
        """One a row: [2, document sentences, summary sentences], P(entailment) and
        P(contradiction)."""
        self.prepare()
        assert self._model is not None
        sides = [
            (
                sentences(r.prompt.removeprefix(self.prefix))[: self.most_sentences],
                sentences(r.text),
            )
            for r in rows
        ]
        pairs = [(d, s) for document, summary in sides for d in document for s in summary]
        if not pairs:
            return [torch.zeros(2, len(d), len(s)) for d, s in sides]
        p = self._model.logits(pairs, self.batch_size).softmax(-1)
        both = p[:, list(self._columns(self._model))].T
        sizes = [len(d) * len(s) for d, s in sides]
        blocks = both.split(sizes, 1)
        return [x.reshape(2, len(d), len(s)) for x, (d, s) in zip(blocks, sides, strict=True)]


@dataclass
class SummaC(_OfSentences):
    """SummaC-ZS consistency of a summary with its prompt, the document; 0 where either is empty."""

    contradiction: bool = True
    """Subtract P(contradiction); RL4LMs' configuration leaves it out."""

    name: ClassVar[str] = "summac"
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        out: list[Scored] = []
        for yes, no in self.images(rows):
            entailed = (yes - no if self.contradiction else yes).double()
            out.append((float(entailed.amax(0).mean()) if entailed.numel() else 0.0,))
        return out


@dataclass
class SummaCConv(_OfSentences):
    """SummaC-Conv consistency of a summary with its prompt, the document: the probability of
    `consistent`; 0 where either is empty."""

    weights: str = ""
    """The authors' file of the trained convolution; its NLI model is vitaminc-mnli."""

    name: ClassVar[str] = "summac_conv"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._weights: dict[str, Tensor] | None = None

    def check(self) -> None:
        super().check()
        if not self.weights:
            raise UserError(f"summac_conv needs `weights`: the file {_WEIGHTS}")
        if not os.path.isfile(os.path.expanduser(self.weights)):
            raise UserError(f"summac_conv: there is no file {self.weights}; take {_WEIGHTS}")

    def prepare(self) -> None:
        if self._weights is None:
            self._weights = _read(self.weights)
        super().prepare()

    @property
    def version(self) -> str:
        """Also the hash of the convolution: of a file's path it may change."""
        model = super().version
        assert self._weights is not None
        return f"{model}, convolution {fingerprint(self._weights)[:12]}"

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        images = self.images(rows)
        assert self._weights is not None
        w = self._weights
        out: list[Scored] = []
        for yes, _ in images:
            if not yes.numel():
                out.append((0.0,))
                continue
            counts = histograms(yes)[:ROWS]  # [summary sentences, bins]
            r = (counts @ w["mlp.weight"][0] + w["mlp.bias"]).mean()
            logits = w["layer_final.weight"] @ r.expand(3) + w["layer_final.bias"]
            out.append((float(logits.softmax(-1)[1]),))
        return out


def histograms(probabilities: Tensor) -> Tensor:
    """How many document sentences have P(entailment) in each of the bins between `EDGES`.

    Args:
        probabilities: [document sentences, summary sentences].
    Returns:
        [summary sentences, bins], fp32.
    """
    columns = probabilities.T.double().numpy()
    return torch.tensor(np.stack([np.histogram(c, bins=EDGES)[0] for c in columns])).float()


def _read(path: str) -> dict[str, Tensor]:
    try:
        found = torch.load(os.path.expanduser(path), map_location="cpu", weights_only=True)
    except Exception as e:
        said = f"summac_conv: {path} cannot be read ({type(e).__name__}: {e}); take {_WEIGHTS}"
        raise UserError(" ".join(said.split())) from e
    shapes = {k: tuple(v.shape) for k, v in found.items()} if isinstance(found, dict) else {}
    if shapes != _SHAPES:
        raise UserError(
            f"summac_conv: {path} is not the convolution over {len(EDGES) - 1} bins of "
            f"P(entailment): it holds {shapes or type(found).__name__}; take {_WEIGHTS}"
        )
    return {k: v.float() for k, v in found.items()}
