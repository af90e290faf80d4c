"""A sequence classifier as a reward: it reads text and tokenises it itself (B30).

score = probability (or raw logit) of the positive label on the prompt and completion, joined
        as text, or on the completion alone
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from tether.config.errors import UserError
from tether.config.nearest import nearest
from tether.models.classifier_loading import load_classifier
from tether.rewards.base import Reward
from tether.rewards.batch import RewardBatch


@dataclass
class ClassifierReward(Reward):
    """Probability of a label by a text classifier. Called from several threads."""

    path: str = ""
    """Folder or hub id of a sequence-classification model, or a folder of `tether train` with a
    classifier recipe."""
    label: str | int | None = None
    """Positive label, by name or index; default: the last one."""
    output: Literal["probability", "logit"] = "probability"
    """logit: the raw number, as for reward models with one label."""
    reads: Literal["completion", "prompt_and_completion"] = "prompt_and_completion"
    """What is classified; the prompt's text and the completion's are joined without anything
    between (chat messages: one a line)."""
    batch_size: int = 64
    """Texts in one forward pass."""
    max_tokens: int | None = None
    """Longer texts keep their end. Default: the classifier's own limit."""
    backbone: str | None = None
    """Where the backbone of an adapter classifier lies now, if not where it was trained."""
    device: str = "auto"
    """auto is the first accelerator, else cpu."""
    dtype: Literal["auto", "bfloat16", "float32", "float16"] = "auto"
    """Of its weights; auto is bfloat16 where the device has it, else float32."""

    def __post_init__(self) -> None:
        self._loaded: Any = None
        self._lock = threading.Lock()

    def check(self) -> None:
        if not self.path:
            raise UserError("a classifier reward needs `path`: a folder or hub id")
        if self.batch_size < 1:
            raise UserError(f"classifier reward: batch_size is {self.batch_size}; use 1 or more")

    @classmethod
    def of(cls, classifier: Any, **settings: Any) -> ClassifierReward:
        """Around a classifier that is loaded already."""
        out = cls(path=settings.pop("path", "given"), **settings)
        out._loaded = classifier
        return out

    @property
    def classifier(self) -> Any:
        """The model, loaded once for all threads."""
        with self._lock:
            if self._loaded is None:
                self.check()
                self._loaded = load_classifier(
                    self.path,
                    backbone=self.backbone,
                    device=self.device,
                    dtype=self.dtype,
                    max_tokens=self.max_tokens,
                )
            return self._loaded

    @property
    def index(self) -> int:
        """Column of the positive label. Raises UserError naming the labels there are."""
        names = [str(x) for x in self.classifier.labels]
        if self.label is None:
            return len(names) - 1
        if isinstance(self.label, int):
            if 0 <= self.label < len(names):
                return self.label
        elif self.label in names:
            return names.index(self.label)
        elif self.label.isdigit() and int(self.label) < len(names):  # from the command line
            return int(self.label)
        close = nearest(str(self.label), names)
        hint = f"did you mean {close!r}?" if close else f"there are {names}"
        raise UserError(f"classifier reward: {self.path} has no label {self.label!r}; {hint}")

    def prepare(self) -> None:
        self.index  # noqa: B018  loads the model and reads the label

    def __call__(self, batch: RewardBatch) -> Sequence[Any]:
        texts = batch.texts if self.reads == "completion" else batch.joined_texts
        model = self.classifier
        with torch.no_grad():  # gradient mode is per thread
            read = model.logits if self.output == "logit" else model.probabilities
            scores = read(texts, batch_size=self.batch_size)
        return [float(x) for x in scores[:, self.index]]
