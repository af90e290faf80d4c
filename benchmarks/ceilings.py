"""What a card can do at most, measured on it, and what a step must do at least, counted.

    seconds >= operations / (matrix product's operations a second)
             + bytes / (bytes a second that a device copy moves)

Operations are those of the products with weights, 2 a weight and token forward and 4 backward
(Kaplan et al. 2020, arXiv 2001.08361, section 2.1), the output embedding at completion tokens only;
attention's own (2 % at 96 tokens), norms and softmax are left out, so the bound is one. Bytes of a
decoding step are weights, the keys and values written so far, and the logits, once each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks.measuring import timed

REPEATS, TIMES = 5, 10


@dataclass(frozen=True)
class Ceilings:
    """Operations a second of a large matrix product; bytes a second of a copy, both directions."""

    matrix: float
    copy: float

    def seconds(self, operations: float, moved: float) -> float:
        return operations / self.matrix + moved / self.copy


@cache
def ceilings(tiny: bool = False) -> Ceilings:
    """Measured on this device: the best of a few runs. bf16 on a GPU, fp32 on a CPU."""
    import torch

    gpu = torch.cuda.is_available()
    device, dtype = ("cuda", torch.bfloat16) if gpu else ("cpu", torch.float32)
    n, size = (64, 1 << 16) if tiny else (8192, 1 << 31)

    def matrix() -> float:
        a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
        return 2 * n**3 / best(lambda: torch.mm(a, b))

    def copy() -> float:
        source = torch.zeros(size, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        return 2 * size / best(lambda: target.copy_(source))

    found = Ceilings(matrix(), copy())
    if gpu:
        torch.cuda.empty_cache()
    return found


def best(run: Callable[[], object]) -> float:
    """Seconds of one call: the best mean of TIMES in a row."""

    def several(_: int) -> None:
        for _ in range(TIMES):
            run()

    return min(timed(several, REPEATS)) / TIMES


@dataclass(frozen=True)
class Sizes:
    """Of a decoder: what the counts need."""

    body: int
    """Weights that every token is multiplied with."""
    head: int
    """Weights of the output embedding."""
    kept: int
    """Numbers that a token leaves in the cache."""
    vocabulary: int

    @property
    def all(self) -> int:
        return self.body + self.head


def sizes_of(lm: Any) -> Sizes:
    """Of a `tether.models.language_model.LanguageModel`. Embeddings are looked up, not multiplied
    with, so the body is without them."""
    c, core = lm.config, lm.core
    tables = {id(m.weight): m.weight.numel() for m in core.modules() if _looks_up(m)}
    head = core.get_output_embeddings().weight
    tables[id(head)] = head.numel()
    heads = getattr(c, "num_key_value_heads", None) or c.num_attention_heads
    kept = c.num_hidden_layers * 2 * heads * (c.hidden_size // c.num_attention_heads)
    body = sum(p.numel() for p in lm.module.parameters()) - sum(tables.values())
    return Sizes(body, head.numel(), kept, lm.vocab_size)


def _looks_up(module: Any) -> bool:
    from torch import nn

    return isinstance(module, nn.Embedding)


def forward(s: Sizes, rows: int, prompt: int, new: int, *, head: bool = True) -> float:
    """Operations of one forward pass; a forward and backward pass is three times as many."""
    return 2.0 * rows * (s.body * (prompt + new) + (s.head * new if head else 0))


def decode_bytes(s: Sizes, rows: int, prompt: int, new: int) -> float:
    """Bytes of all decoding steps of a rollout: bf16 weights and cache, fp32 logits."""
    each = 2.0 * s.all + rows * (2.0 * s.kept * (prompt + new / 2) + 4.0 * s.vocabulary)
    return new * each


def step_bytes(parameters: int) -> float:
    """Bytes of one AdamW step on fp32 masters: weight, gradient and both moments read, the first
    and the last two written, and bf16 working weights written: 7 x 4 + 2 a parameter."""
    return 30.0 * parameters
