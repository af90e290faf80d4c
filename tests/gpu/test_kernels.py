"""Kernels next to the same in torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tether.core.logprobs import log_softmax, pick
from tether.models import token_kernels, token_scores
from tether.rollout import draw
from tether.rollout.buffers import Inputs, Written
from tether.rollout.static_attention import Span, Spans

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
NEW, STEP, PAD, WARM = 7, 3, 2, 0.7


@pytest.mark.parametrize(
    ("n", "vocabulary", "wide"), [(5, 37, 64), (3, 5000, 5056), (4, 8192, 8192)]
)
def test_scores_of_tokens_and_their_gradient(n: int, vocabulary: int, wide: int) -> None:
    torch.manual_seed(0)
    z = (torch.randn(n, wide, device="cuda") * 4)[:, :vocabulary]
    ids = torch.randint(vocabulary, (n,), device="cuda")
    got = [torch.empty(n, device="cuda") for _ in range(3)]
    token_kernels.read(z, ids, *got)
    want = token_scores._forward(z.double(), ids)
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x.double(), y, atol=2e-5, rtol=1e-6)
    _, entropy, lse = got
    g = torch.randn(2, n, device="cuda")
    dz = token_kernels.gradient(z, ids, lse, entropy, g[0], g[1], wide, torch.float32)
    exact = token_scores._gradient(z.double(), ids, want[2], want[1], *g.double())
    torch.testing.assert_close(dz[:, :vocabulary].double(), exact, atol=1e-5, rtol=1e-5)
    assert not dz[:, vocabulary:].any()


def test_what_is_no_number_stays_none() -> None:
    z = torch.zeros(3, 50, device="cuda")
    z[0, 7], z[1, 7] = float("nan"), float("inf")
    got = [torch.empty(3, device="cuda") for _ in range(3)]
    token_kernels.read(z, torch.zeros(3, dtype=torch.long, device="cuda"), *got)
    for x in got:
        assert x.isfinite().tolist() == [False, False, True]


@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_weights_in_pieces(
    dtype: torch.dtype, entropy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other model reads along, so the kernels do all of it; autograd over whole logits is the
    other way."""
    monkeypatch.setattr(token_scores, "PIECE", 2048)
    torch.manual_seed(0)
    states = torch.randn(40, 32, device="cuda", dtype=dtype)
    weight = torch.randn(300, 32, device="cuda", dtype=dtype)
    ids = torch.randint(300, (40,), device="cuda")
    a = [t.clone().requires_grad_() for t in (states, weight)]
    got = token_scores.token_scores(a[0], a[1], ids)
    (got.logprobs.sum() + got.entropy.sum() * entropy).backward()
    b = [t.double().requires_grad_() for t in (states, weight)]
    logp = (b[0] @ b[1].t()).log_softmax(-1)
    loss = logp.gather(1, ids[:, None]).sum() - entropy * (logp.exp() * logp).sum()
    loss.backward()
    for x, y in zip(a, b, strict=True):
        assert x.grad is not None and y.grad is not None
        scale = float(y.grad.abs().max())
        error = float((x.grad.double() - y.grad).abs().max())
        assert error < (1e-5 if dtype == torch.float32 else 2e-2) * scale


def place(rows: int) -> tuple[Inputs, Written]:
    g = torch.Generator().manual_seed(0)

    def zeros(*size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.long, device="cuda")

    def some() -> Tensor:
        return torch.randint(9, (rows,), generator=g).cuda()

    i = Inputs(
        prompt=zeros(1, 1), prompt_mask=zeros(1, 1), expand=zeros(rows), token=zeros(rows),
        position=some(), spans=Spans(Span(zeros(rows), some())),
        clock=torch.tensor([5, STEP], device="cuda"),
        done=(torch.rand(rows, generator=g) < 0.3).cuda(),
        seen=zeros(1), encoder=zeros(1),
    )  # fmt: skip
    return i, Written(zeros(rows, NEW), torch.zeros(rows, NEW, device="cuda"), None)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("rows", "vocabulary"), [(6, 37), (6, 50257), (300, 5000), (2000, 700)])
def test_draws_are_written_as_torch_writes_them(
    rows: int, vocabulary: int, masked: bool, full: bool
) -> None:
    torch.manual_seed(1)
    logits = torch.randn(rows, vocabulary, device="cuda") * 3
    stops = torch.stack([logits[0].argmax(), logits[1].argmax(), logits[5].argmax()])
    allowed = None
    if masked:
        allowed = torch.rand(rows, vocabulary, device="cuda") < 0.5
        allowed[:, :5] = True
    seed = torch.tensor([7], device="cuda")
    (i, w), (j, x) = place(rows), place(rows)
    live = ~i.done
    assert live.any() and not live.all()
    draw.draw_and_write(
        logits, allowed, seed, i, w, stops, pad=PAD, temperature=WARM, greedy=True, full=full
    )
    draw.write(*draw.choose(logits, None, allowed, WARM, full), j, x, stops, pad=PAD)
    assert torch.equal(w.token, x.token)
    torch.testing.assert_close(w.logprob[live], x.logprob[live], atol=1e-5, rtol=1e-5)
    for a, b in (
        (i.token, j.token), (i.position, j.position), (i.done, j.done), (i.clock, j.clock),
        (i.spans.tokens.end, j.spans.tokens.end),
    ):  # fmt: skip
        assert torch.equal(a, b)

    i, w = place(rows)
    draw.draw_and_write(
        logits, allowed, seed, i, w, stops, pad=PAD, temperature=WARM, greedy=False, full=full
    )
    token = w.token[:, STEP]
    assert bool((token[~live] == PAD).all())
    assert allowed is None or bool(allowed[live, token[live]].all())
    free, warm = log_softmax(logits), log_softmax(logits, WARM, allowed)
    want = pick(free if full else warm, token)
    torch.testing.assert_close(w.logprob[live, STEP], want[live], atol=1e-5, rtol=1e-5)
    assert torch.equal(i.done, ~live | torch.isin(token, stops))


@pytest.mark.parametrize("at", [3, 49_000])
def test_a_logit_that_is_no_number_leaves_no_log_prob(at: int) -> None:
    logits = torch.zeros(6, 50_000, device="cuda")
    logits[2, at] = float("nan")
    i, w = place(6)
    i.done.zero_()
    seed, stops = torch.tensor([7], device="cuda"), torch.tensor([1], device="cuda")
    draw.draw_and_write(
        logits, None, seed, i, w, stops, pad=PAD, temperature=1.0, greedy=False, full=False
    )
    assert w.logprob[:, STEP].isfinite().tolist() == [True, True, False, True, True, True]
