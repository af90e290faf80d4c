"""A sequence classifier as a reward: it reads text and tokenises it itself (B30).

score = probability (or raw logit) of the positive label on the prompt and completion, joined
        as text, or on the completion alone

A model with one label is a reward model: its raw score counts, which has no zero and no unit of its
own; `normalise` gives it the mean 0 and the standard deviation 1 of a set of completions.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from tether.config.errors import UserError
from tether.config.nearest import unknown
from tether.metrics.sentence_pairs import weights_version
from tether.models.classifier_loading import load_classifier
from tether.rewards.base import Reward
from tether.rewards.batch import RewardBatch
from tether.rewards.class_names import hint, position, shown

_NEGLIGIBLE = 1e-6
"""A standard deviation below this share of the mean (or of 1) is rounding."""


@dataclass
class ClassifierReward(Reward):
    """Probability of a label by a text classifier, or the score of a reward model. Called from
    several threads."""

    path: str = ""
    """Folder or hub id of a sequence-classification model, or the folder of a run that trained one
    (`tether reward-model train`)."""
    label: str | int | None = None
    """Positive label: a name (a number is one where a class is called so), else an index; default:
    the last one."""
    output: Literal["auto", "probability", "logit"] = "auto"
    """logit: the raw number. auto: the raw number of a reward model (one label), else the
    probability."""
    normalise: str | None = None
    """Set whose mean and standard deviation of raw scores are taken off: validation or test, as
    stored when the reward model was trained. Default: none."""
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
        self._version = ""
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
    def version(self) -> str:
        """Hash of the weights, the limit of tokens, and what `normalise` takes off; empty for a
        classifier without a module, given from outside."""
        model = self.classifier
        if getattr(model, "module", None) is not None and not self._version:
            # auto loads one checkpoint in bfloat16 on a GPU and in float32 on a CPU
            rounded = torch.bfloat16 if self.dtype == "auto" else None
            own = [weights_version(model.module, rounded), f"{model.max_tokens} tokens"]
            if self.normalise is not None:
                own.append("scale {!r} {!r}".format(*self.scale))
            self._version = ", ".join(own)
        return self._version

    @property
    def index(self) -> int:
        """Column of the positive label. Raises UserError naming the labels there are."""
        names = [str(x) for x in self.classifier.labels]
        if self.label is None:
            return len(names) - 1
        found = position(self.label, names)
        if found is None:
            raise UserError(
                f"classifier reward: {self.path} has no label {self.label!r}; "
                f"{hint(self.label, names)}"
            )
        return found

    @property
    def told(self) -> str:
        names = [str(x) for x in self.classifier.labels]
        if len(names) == 1:
            return ""
        return f"class {names[self.index]!r} counts, of {shown(names)} ({self.path})"

    @property
    def is_raw(self) -> bool:
        """True where the score is no probability."""
        alone = self.output == "auto" and len(self.classifier.labels) == 1
        return self.output == "logit" or alone

    @property
    def scale(self) -> tuple[float, float]:
        """(mean, standard deviation) that are taken off. Raises UserError where none are stored."""
        if self.normalise is None:
            return 0.0, 1.0
        if not self.is_raw:
            raise UserError("classifier reward: normalise is for raw scores; set output: logit")
        stored = self.classifier.notes.get("scores", {})
        if self.normalise not in stored:
            raise unknown("set", self.normalise, stored, f"normalise of {self.path}")
        found = stored[self.normalise]
        mean, std = float(found["mean"]), float(found["std"])
        if not std > _NEGLIGIBLE * max(1.0, abs(mean)):
            raise UserError(
                f"classifier reward: all scores of {self.normalise} are equal or nearly so (mean "
                f"{mean:g}, standard deviation {std:g}): {self.path} tells no text from another; "
                "leave normalise out, or train it longer"
            )
        return mean, std

    def prepare(self) -> None:
        self.index  # noqa: B018  loads the model and reads the label
        self.scale  # noqa: B018

    def __call__(self, batch: RewardBatch) -> Sequence[Any]:
        texts = batch.texts if self.reads == "completion" else batch.joined_texts
        model = self.classifier
        self._whole(batch)
        with torch.no_grad():  # gradient mode is per thread
            read = model.logits if self.is_raw else model.probabilities
            scores = read(texts, batch_size=self.batch_size)
        mean, std = self.scale
        return [(float(x) - mean) / std for x in scores[:, self.index]]

    def _whole(self, batch: RewardBatch) -> None:
        """A reward model of pairs never saw a completion without its beginning."""
        model = self.classifier
        cut = (
            model.beyond(batch.texts) if getattr(model, "notes", {}).get("kind") == "pairs" else []
        )
        if cut:
            raise UserError(
                f"classifier reward: a completion (of the prompt {batch.beginning(cut[0])}) has "
                f"more than the {model.room} tokens that {self.path} reads, and would lose its "
                "beginning; raise max_tokens of the reward, or lower sampling.max_new_tokens"
            )
