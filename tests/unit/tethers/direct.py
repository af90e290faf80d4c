"""A second way to a policy gradient: each row alone and without padding through the bare module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tether.types import Sequences


def row_logprobs(lm: Any, s: Sequences, i: int, temperature: float = 1.0) -> Tensor:
    """[real completion tokens of row i] log-probs by the transformers module itself."""
    prompt = s.prompt[i][s.prompt_mask[i]]
    completion = s.completion[i][s.completion_mask[i]]
    if lm.seq2seq:
        start = torch.tensor([lm.decoder_start])
        logits = lm.module(
            input_ids=prompt[None], decoder_input_ids=torch.cat([start, completion[:-1]])[None]
        ).logits[0]
    else:
        ids = torch.cat([prompt, completion])
        logits = lm.module(input_ids=ids[None]).logits[0, len(prompt) - 1 : -1]
    logp = torch.log_softmax(logits.float() / temperature, -1)
    return logp[torch.arange(len(completion)), completion]


def direct_gradient(
    agent: Any, s: Sequences, loss: Callable[[int, Tensor], Tensor], temperature: float = 1.0
) -> dict[str, Tensor]:
    """name -> gradient of the sum over rows of `loss(row, log-probs of its real tokens)`."""
    working = agent.sets.working["policy"]
    total: Any = 0.0
    for i in range(len(s.prompt)):
        total = total + loss(i, row_logprobs(agent.lm, s, i, temperature))
    found = torch.autograd.grad(total, list(working.values()), allow_unused=True)
    return {
        f"policy/{n}": torch.zeros_like(w) if g is None else g.float()
        for (n, w), g in zip(working.items(), found, strict=True)
    }


def assert_close(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Within fp32 noise of the largest entry, and not all zero."""
    scale = max(float(w.abs().max()) for w in wanted.values())
    assert scale > 1e-6, "a gradient of zero shows nothing"
    for name, w in wanted.items():
        torch.testing.assert_close(found[name], w, rtol=1e-4, atol=2e-5 * scale, msg=name)
