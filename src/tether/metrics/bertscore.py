"""BERTScore by the library bert-score, on any encoder: greedy cosine matching of token vectors.

    P = mean over tokens of the text of max_j cos(x_i, r_j), R = the same from the reference,
    F = 2 P R / (P + R); of several references the best

Source: Zhang et al. 2020, "BERTScore: Evaluating Text Generation with BERT". Published values need
`model: roberta-large` and `layer: 17`; another encoder gives numbers of its own, which its name in
the signature keeps apart.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.config.errors import UserError
from tether.metrics.base import Metric, Row, Scored, installed, missing


@dataclass
class BertScore(Metric):
    """BERTScore F1 of the best reference; 0 for an empty text."""

    model: str = ""
    """Folder or hub id of an encoder (roberta-large for published values)."""
    layer: int | None = None
    """Which layer's vectors are compared; needed unless bert-score knows the model by its name."""
    rescale: bool = False
    """Rescale with bert-score's baseline of that model and language, where it has one."""
    language: str = "en"
    """Of the baseline."""
    batch_size: int = 64
    """Pairs in one forward pass."""
    device: str = "auto"
    """auto is the first accelerator, else cpu."""

    name: ClassVar[str] = "bert_score"
    package: ClassVar[str] = "bert-score"
    parts: ClassVar[tuple[str, ...]] = ("precision", "recall")
    bounds: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    """Of F: it has none where P and R have opposite signs. P and R themselves are cosines, in
    [-1, 1]; rescaled, (x - b) / (1 - b) of these, at least -(1 + b) / (1 - b)."""
    seconds_per_1000: ClassVar[float] = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._scorer: Any = None
        self._version = ""

    @property
    def version(self) -> str:
        """bert-score, what loads the encoder, and the hash of its weights."""
        self.prepare()
        if not self._version:
            from tether.metrics.sentence_pairs import weights_version

            libraries = f"{installed(self.package)}, {installed('transformers')}"
            self._version = f"{libraries}, {weights_version(self._scorer._model)}"
        return self._version

    @property
    def best(self) -> float:
        """Of a text that is its reference, rescaled or not."""
        return 1.0

    def check(self) -> None:
        library = self._library()
        if not self.model:
            raise UserError(
                "bert_score needs `model`: the folder or hub id of an encoder (published values: "
                "roberta-large, layer 17)"
            )
        if self.layer is None and self.model not in library.utils.model2layers:
            raise UserError(f"bert_score needs `layer` for {self.model}: bert-score knows none")

    def _library(self) -> Any:
        try:
            import bert_score
        except ImportError as e:
            raise missing(self.name, self.package, 'pip install "tether-rl[bertscore]"') from e
        return bert_score

    def prepare(self) -> None:
        if self._scorer is not None:
            return
        self.check()
        import torch

        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        folder = os.path.expanduser(self.model)
        try:
            self._scorer = self._library().BERTScorer(
                model_type=folder if os.path.isdir(folder) else self.model,
                num_layers=self.layer, batch_size=self.batch_size, device=device,
                lang=self.language, rescale_with_baseline=self.rescale, use_fast_tokenizer=True,
            )  # fmt: skip
        except Exception as e:
            raise UserError(
                f"bert_score: {self.model} cannot be read as an encoder with layer {self.layer} "
                f"({type(e).__name__}: {e})"
            ) from e

        tokenizer, config = self._scorer._tokenizer, self._scorer._model.config
        if tokenizer.model_max_length > 10**6:  # not set: bert-score hands it on to Rust as it is
            tokenizer.model_max_length = int(getattr(config, "max_position_embeddings", 512))

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        self.prepare()
        out: list[Scored] = [(0.0, 0.0, 0.0)] * len(rows)
        full = [i for i, r in enumerate(rows) if r.text.strip()]
        if full:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                p, r, f = self._scorer.score(
                    [rows[i].text for i in full], [list(rows[i].references) for i in full]
                )
            for i, *values in zip(full, f.tolist(), p.tolist(), r.tolist(), strict=True):
                out[i] = tuple(values)
        return out
