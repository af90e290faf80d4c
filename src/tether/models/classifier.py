"""A sequence classifier on any backbone: a learned reward, or a judge.

What it reads is the last real token, by the mask (B05): rows are shifted to the right-padded form
before the pass, so left, right and no padding give the same numbers for every architecture.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad as pad_right

from tether.models.attention import extra_places
from tether.models.language_model import core_of
from tether.models.tokenizing import pad


class TextClassifier:
    """Texts -> class probabilities.

    module: a transformers `...ForSequenceClassification`, with or without a peft adapter. Causal
    backbones have a linear `score` head, read at the last real token; others (BERT...) pool in
    their own way, encoder-decoders (T5, BART) at their EOS. labels: names by index; a model with
    one label is a reward model, whose score has no scale of its own. max_tokens: longer texts keep
    their end. notes: what its folder says of it.
    """

    def __init__(
        self,
        module: nn.Module,
        tokenizer: Any,
        *,
        max_tokens: int = 512,
        labels: Sequence[str] | None = None,
        facts: dict[str, Any] | None = None,
        notes: dict[str, Any] | None = None,
    ) -> None:
        self.module = module.eval()
        self.tokenizer = tokenizer
        core = core_of(module)
        limit = getattr(core.config, "max_position_embeddings", None)
        self.max_tokens = min(max_tokens, limit) if limit else max_tokens
        self.num_labels = int(core.config.num_labels)
        names = core.config.id2label
        self.labels = list(labels or (names[i] for i in range(self.num_labels)))
        self.facts = facts or {}
        self.notes = notes or {}
        self._end = _end_of(core) if _pools_itself(core) else None
        self.causal = hasattr(core, "score") and not _pools_itself(core)
        self._frame: tuple[list[int], list[int]] = ([], [])
        if not self.causal and self._end is None:  # an encoder
            self._frame = _frame_of(tokenizer)
            self.max_tokens = min(self.max_tokens, int(tokenizer.model_max_length))
        self._accepts = frozenset(inspect.signature(core.base_model.forward).parameters)
        # fast tokenizers keep truncation as state: two threads inside one raise "Already borrowed"
        self._lock = threading.Lock()

    @property
    def core(self) -> Any:
        return core_of(self.module)

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    def encode(self, texts: Sequence[str], max_tokens: int | None = None) -> list[list[int]]:
        """Ids of whole texts with the tokenizer's special tokens; a longer text keeps its end.
        An empty text is one EOS, so that it has a last token (B31). Encoder-decoders read the state
        at EOS, so each of their rows has exactly one, at its end."""
        limit = max_tokens or self.max_tokens
        with self._lock:
            self.tokenizer.truncation_side = "left"
            rows = self.tokenizer(list(texts), truncation=True, max_length=limit)["input_ids"]
        return [self.closed(r, limit) for r in rows]

    def closed(self, ids: Sequence[int], limit: int | None = None) -> list[int]:
        """The end of a row as the head needs it: not empty, with one EOS, at its end, or between
        the special tokens of an encoder."""
        if any(self._frame):
            return _framed(list(ids), *self._frame, limit)
        if self._end is None:
            return list(ids) or [self._filler]
        inner = [i for i in ids if i != self._end]
        return [*(inner if limit is None else inner[max(0, len(inner) - limit + 1) :]), self._end]

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, without special tokens and without a limit."""
        with self._lock:
            rows = self.tokenizer(list(texts), add_special_tokens=False, truncation=False)
        return [len(r) for r in rows["input_ids"]]

    @property
    def room(self) -> int:
        """Tokens of text that a row holds beside the special ones."""
        with self._lock:
            own = int(self.tokenizer.num_special_tokens_to_add(pair=False))
        return self.max_tokens - max(own, int(self._end is not None))

    def beyond(self, texts: Sequence[str]) -> list[int]:
        """Indices of the texts that lose their beginning even when nothing stands before them."""
        # no token is shorter than a byte: most texts need not be tokenised again
        maybe = [i for i, t in enumerate(texts) if len(t.encode("utf-8")) > self.room]
        lengths = self.lengths([texts[i] for i in maybe]) if maybe else []
        return [i for i, n in zip(maybe, lengths, strict=True) if n > self.room]

    @property
    def _filler(self) -> int:
        for i in (self.tokenizer.eos_token_id, self.tokenizer.pad_token_id):
            if i is not None:
                return int(i)
        return 0

    @property
    def _pad(self) -> int:
        value = self.tokenizer.pad_token_id
        return self._filler if value is None else int(value)

    def batch(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Ids and mask of encoded rows, on the model's device."""
        ids, mask = pad(rows, "right", self._pad)
        return ids.to(self.device), mask.to(self.device)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """[B,L] ids and mask, padded on any side -> logits [B,labels] fp32, with gradients."""
        order = (~mask).long().argsort(dim=1, stable=True)
        ids, mask = ids.gather(1, order), mask.gather(1, order)
        room = getattr(self.core.config, "max_position_embeddings", None)
        n = extra_places(ids.shape[1], ids.device, self.core.config, room)
        n = 0 if self._pad == self._end else n  # it reads its last EOS, wherever that stands
        ids, mask = pad_right(ids, (0, n), value=self._pad), pad_right(mask, (0, n))
        if not self.causal:
            out: Tensor = self.module(input_ids=ids, attention_mask=mask.long()).logits.float()
            return out
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask.long()}
        if "use_cache" in self._accepts:
            inputs["use_cache"] = False
        states = self.core.base_model(**inputs).last_hidden_state
        last = (mask.sum(1) - 1).clamp(min=0)
        pooled = states[torch.arange(len(ids), device=ids.device), last]
        head = self.core.score
        logits: Tensor = head(pooled.to(_dtype(head))).float()
        return logits

    def logits(self, texts: Sequence[str], batch_size: int = 32) -> Tensor:
        """[B,labels] fp32 on the CPU, in the order of the texts. No gradients, in any thread."""
        rows = self.encode(texts)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))  # less padding
        out = torch.zeros(len(rows), self.num_labels)
        with torch.no_grad():  # gradient mode is per thread: say it here
            for start in range(0, len(order), batch_size):
                index = order[start : start + batch_size]
                ids, mask = self.batch([rows[i] for i in index])
                out[index] = self.forward(ids, mask).cpu()
        return out

    def probabilities(self, texts: Sequence[str], batch_size: int = 32) -> Tensor:
        """[B,labels]: softmax, or sigmoid for one label and for multi-label models."""
        logits = self.logits(texts, batch_size)
        multi = getattr(self.core.config, "problem_type", None) == "multi_label_classification"
        return logits.sigmoid() if multi or self.num_labels == 1 else logits.softmax(-1)


def _pools_itself(core: Any) -> bool:
    return bool(getattr(core.config, "is_encoder_decoder", False))


def _frame_of(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What a tokenizer puts before and after a text ([CLS] and [SEP])."""
    inner = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    for at in range(len(whole) - len(inner) + 1):
        if inner and whole[at : at + len(inner)] == inner:
            return whole[:at], whole[at + len(inner) :]
    return [], []


def _framed(ids: list[int], first: list[int], last: list[int], limit: int | None) -> list[int]:
    """The end of a row, or of a stretch of one, between these tokens."""
    if first and ids[: len(first)] == first:
        ids = ids[len(first) :]
    if last and ids[-len(last) :] == last:
        ids = ids[: -len(last)]
    if limit is not None:
        ids = ids[max(0, len(ids) - limit + len(first) + len(last)) :]
    return [*first, *ids, *last]


def _end_of(core: Any) -> int:
    end = core.config.eos_token_id
    return int(end[0] if isinstance(end, list) else end)


def _dtype(head: nn.Module) -> torch.dtype:
    return next(head.parameters()).dtype
