"""On a GPU scores come from last hidden states, a piece of the tokens at a time."""

from __future__ import annotations

import pytest
import torch

from tests.models_for_tests import some_sequences, tiny
from tether.models import token_scores
from tether.models.language_model import LanguageModel
from tether.models.scoring import in_pieces, score, score_all
from tether.types import Scores

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def model(kind: str, dtype: torch.dtype, **kw: int) -> LanguageModel:
    lm = tiny(kind, sharp=2.0, **kw)
    lm.module.to("cuda", dtype)
    return lm


def numbers(lm: LanguageModel, other: LanguageModel) -> tuple[Scores, dict[str, torch.Tensor]]:
    s = some_sequences(lm).to("cuda")
    got = score(lm, s, entropy=True, against={"initial": other})
    (got.logprobs.sum() + got.entropy.sum() + got.exact_kl["initial"].sum()).backward()
    grads = {n: p.grad for n, p in lm.module.named_parameters() if p.grad is not None}
    return got, grads


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_next_to_whole_logits(
    kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_scores, "PIECE", 4096)
    found = []
    for pieces in (True, False):
        lm, other = model(kind, dtype), model(kind, dtype, seed=3)
        if not pieces:
            lm.scratch["in pieces"] = False
        assert in_pieces(lm) is pieces
        found.append(numbers(lm, other))
    (mine, d_mine), (plain, d_plain) = found
    close = {"atol": 1e-5, "rtol": 1e-4} if dtype == torch.float32 else {"atol": 2e-2, "rtol": 2e-2}
    for name in ("logprobs", "entropy"):
        torch.testing.assert_close(getattr(mine, name), getattr(plain, name), **close)
    torch.testing.assert_close(mine.exact_kl["initial"], plain.exact_kl["initial"], **close)
    for n, g in d_plain.items():
        scale = float(g.abs().max()) + 1e-6
        assert (
            float((d_mine[n] - g).abs().max()) < (1e-3 if dtype == torch.float32 else 0.1) * scale
        )


def test_with_and_without_gradients_the_bits_are_the_same() -> None:
    lm = model("llama", torch.bfloat16)
    s = some_sequences(lm).to("cuda")
    once = score_all(lm, s, microbatch=4).logprobs
    assert torch.equal(once, score(lm, s).logprobs.detach())


def test_memory_does_not_grow_with_tokens_times_vocabulary() -> None:
    lm = model("llama", torch.bfloat16, vocab=32000)
    n = 4096
    s = some_sequences(lm)
    s = s.rows(torch.arange(4).repeat(n // 24)).to("cuda")
    tokens = int(s.completion_mask.sum())
    score(lm, s).logprobs.sum().backward()  # what is compiled and chosen
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    score(lm, s).logprobs.sum().backward()
    whole = tokens * 32000 * 4
    assert torch.cuda.max_memory_allocated() - before < 6 * 4 * token_scores.PIECE + whole // 4
