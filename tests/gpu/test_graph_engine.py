"""The captured engine samples the distribution that scoring sees: counted, and token by token.

Small vocabularies, so that a chi-square test against the exact probabilities has power; every
program is used twice, since the second call repeats what the first recorded.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from tests.models_for_tests import some_prompts, tiny
from tether.config.run import SamplingSettings
from tether.core.logprobs import log_softmax
from tether.core.sampling import legal_tokens, top_p_set, unpack_bits
from tether.models.fused import lay_together
from tether.models.language_model import LanguageModel
from tether.models.scoring import score_all, scored_as
from tether.rollout.engine import join
from tether.rollout.graph import GraphEngine, programs_of
from tether.rollout.hf import HFEngine
from tether.tethers.nlpo_mask import NLPOMask
from tether.types import Rollout, Sequences

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
MANY = 60_000
SURE = 1e-5
"""A p-value below it is a fault: some 60 tests are made."""


@pytest.fixture(autouse=True)
def no_fallback(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert "falling back" not in capfd.readouterr().err


def model(kind: str = "llama", dtype: torch.dtype = torch.float32, **kw: Any) -> LanguageModel:
    lm = tiny(kind, **kw)
    lm.module.to("cuda", dtype)
    lay_together(lm.module)
    return lm


def write(
    lm: LanguageModel, s: Sequences, sampling: SamplingSettings, seed: int = 0,
    group: Tensor | None = None, compile: bool = False, **kw: Any,
) -> Rollout:  # fmt: skip
    i = torch.arange(len(s.prompt))
    engine = GraphEngine(compile=compile)
    chunks = engine.generate(
        lm, s.to("cuda"), i, i if group is None else group, sampling, ("t", seed), **kw
    )
    return join(list(chunks), lm.pad)


def repeated(ids: list[int], n: int, pad: int = 0) -> Sequences:
    """One prompt n times, `pad` places padded left."""
    row = torch.tensor([[0] * pad + ids]).repeat(n, 1)
    mask = torch.arange(row.shape[1]).expand(n, -1) >= pad
    empty = torch.zeros((n, 0), dtype=torch.long)
    return Sequences(row, mask, empty, empty.bool())


@dataclass
class Exact:
    """Probabilities of the next token, by the plain forward pass."""

    lm: LanguageModel
    prompt: list[int]
    sampling: SamplingSettings
    constraint: Any = None
    mask_model: LanguageModel | None = None

    @torch.no_grad()
    def __call__(self, before: list[int]) -> Tensor:
        s = repeated(self.prompt, 1)
        ids = torch.tensor([[*before, 0]])
        one = Sequences(s.prompt, s.prompt_mask, ids, torch.ones_like(ids, dtype=torch.bool))
        logits = self.lm.forward(one.to("cuda"))[0][:, len(before)]
        views = {"policy": logits}
        if self.mask_model is not None:
            views["initial"] = self.mask_model.forward(one.to("cuda"))[0][:, len(before)]
        stops = torch.tensor(self.lm.stops, device="cuda")
        place = torch.tensor([len(before)], device="cuda")
        c = [] if self.constraint is None else [self.constraint]
        allowed, _ = legal_tokens(c, views, place, stops, self.sampling.min_new_tokens)
        if self.sampling.top_p < 1:
            x = logits.masked_fill(~allowed, -1e30) / self.sampling.temperature
            allowed &= top_p_set(x, self.sampling.top_p)
        return log_softmax(logits, self.sampling.temperature, allowed).exp()[0].double().cpu()


def agrees(counts: Tensor, p: Tensor) -> None:
    counts, never = counts.double().cpu(), p < 1e-9
    assert float(counts[never].sum()) == 0, "a token of probability 0 was drawn"
    few = ~never & (p * counts.sum() >= 5)  # the test's rule of five
    if few.sum() > 1:
        want = p[few] / p[few].sum() * counts[few].sum()
        assert chisquare(counts[few].numpy(), want.numpy()).pvalue > SURE


SETTINGS = {
    "plain": {},
    "temperature": {"temperature": 1.7},
    "top_p": {"top_p": 0.7},
    "min_new_tokens": {"min_new_tokens": 2},
    "top_k": {"top_k": 4},
}


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("name", [n for n in SETTINGS if n != "top_k"])
def test_chi_square_of_three_tokens(kind: str, name: str) -> None:
    lm = model(kind, vocab=11, sharp=3.0)
    sampling = SamplingSettings(max_new_tokens=3, chunk=MANY, **SETTINGS[name])  # type: ignore[arg-type]
    exact = Exact(lm, [2, 3, 4], sampling)
    for seed in (0, 1):
        ids = write(lm, repeated([2, 3, 4], MANY, pad=2), sampling, seed).sequences.completion
        agrees(ids[:, 0].bincount(minlength=11), exact([]))
        for a in range(11):
            rows = ids[ids[:, 0] == a]
            if a in lm.stops or len(rows) < 500:
                continue
            agrees(rows[:, 1].bincount(minlength=11), exact([a]))
            for b in range(11):
                third = rows[rows[:, 1] == b]
                if b not in lm.stops and len(third) >= 500:
                    agrees(third[:, 2].bincount(minlength=11), exact([a, b]))


def test_chi_square_under_a_mask_policy() -> None:
    lm, other = model(vocab=11, sharp=3.0), model(vocab=11, sharp=3.0, seed=5)
    mask = NLPOMask(mask="initial", refresh=None, top_p=0.6)
    sampling = SamplingSettings(max_new_tokens=2, chunk=MANY)
    exact = Exact(lm, [2, 3, 4], sampling, mask, other)
    r = write(
        lm, repeated([2, 3, 4], MANY), sampling, constraints=[mask], companions={"initial": other}
    )
    ids = r.sequences.completion
    agrees(ids[:, 0].bincount(minlength=11), exact([]))
    for a in range(11):
        rows = ids[ids[:, 0] == a]
        if a not in lm.stops and len(rows) >= 500:
            agrees(rows[:, 1].bincount(minlength=11), exact([a]))
    assert isinstance(r.allowed, Tensor)
    sets = unpack_bits(r.allowed, 11)
    inside = sets.gather(2, ids[..., None]).squeeze(-1)
    assert bool(inside[r.sequences.completion_mask].all())


def test_a_large_vocabulary_is_cut_into_pieces_and_still_uniform() -> None:
    """GPT-2's vocabulary is no multiple of a tile; its rows are cut into pieces."""
    lm = model("gpt2", vocab=50257, width=32)
    with torch.no_grad():
        lm.module.lm_head.weight.zero_()
    sampling = SamplingSettings(max_new_tokens=8, chunk=4096)
    for rows in (1, 3, 64, 2048):
        r = write(lm, repeated([2, 3, 4], rows), sampling, seed=rows)
        logp = r.logprobs[r.sequences.completion_mask]
        assert torch.allclose(logp, -torch.tensor(50257.0, device="cuda").log().expand_as(logp))
        if rows == 2048:
            ids = r.sequences.completion[r.sequences.completion_mask]
            assert int(ids.max()) < 50257
            agrees((ids // 1024).bincount(minlength=50)[:49], torch.full((49,), 1 / 49).double())


def test_draws_of_rows_and_steps_are_independent() -> None:
    lm = model(vocab=11)
    with torch.no_grad():
        lm.core.get_output_embeddings().weight.zero_()
    r = write(lm, repeated([2, 3], MANY), SamplingSettings(max_new_tokens=2, chunk=MANY))
    ids = r.sequences.completion
    go_on = ids[:, 0] != lm.stops[0]
    flat = Tensor([1 / 121]).double().expand(121)
    pairs = (ids[:, 0] * 11 + ids[:, 1])[go_on].bincount(minlength=121)
    keep = torch.arange(121) // 11 != lm.stops[0]
    agrees(pairs.cpu()[keep], (flat / flat[keep].sum())[keep])
    neighbours = (ids[:-1, 0] * 11 + ids[1:, 0]).bincount(minlength=121)
    agrees(neighbours, flat)


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "opt", "gpt_neox", "qwen2", "t5", "bart"])
def test_engine_and_scoring_agree(kind: str, dtype: torch.dtype, compile: bool) -> None:
    if compile and kind not in ("llama", "gpt2", "t5"):
        pytest.skip("compiled for three families: each takes half a minute")
    lm = model(kind, dtype, sharp=3.0)
    s, group = some_prompts(lm), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    s = s.rows(group)
    sampling = SamplingSettings(max_new_tokens=12, chunk=64)
    for seed in range(3):
        r = write(lm, s, sampling, seed, group, compile)
        fresh = score_all(lm, r.sequences, **scored_as(sampling, r))
        n = r.sequences.completion_mask.sum()
        apart = float((fresh.logprobs - r.logprobs).abs().sum() / n)
        if dtype == torch.float32:
            assert apart < 1e-5
            continue
        # bf16 rounds states, whoever writes: no further apart than scoring is from fp32
        exact = LanguageModel(copy.deepcopy(lm.module).float(), None, lm.stops, lm.pad)
        wrong = (score_all(exact, r.sequences).logprobs - fresh.logprobs).abs().sum() / n
        assert apart < max(2e-3, 1.2 * float(wrong)), (apart, wrong)


def test_greedy_equals_the_first_engine() -> None:
    lm = model(sharp=3.0)
    s, i = some_prompts(lm).to("cuda"), torch.arange(4)
    sampling = SamplingSettings(max_new_tokens=12, greedy=True)
    theirs = join(list(HFEngine().generate(lm, s, i, i, sampling, ("t", 0))), lm.pad)
    mine = write(lm, s, sampling)
    assert torch.equal(mine.sequences.completion, theirs.sequences.completion)
    assert torch.equal(mine.finished, theirs.finished)


def test_seeds_repeat_and_differ_and_padding_rows_change_nothing() -> None:
    lm = model(sharp=2.0)
    sampling = SamplingSettings(max_new_tokens=10)
    s = some_prompts(lm)
    one, two, three = (write(lm, s, sampling, seed).sequences.completion for seed in (0, 0, 1))
    assert torch.equal(one, two)
    assert one.shape != three.shape or not torch.equal(one, three)
    five = write(lm, s.rows(torch.tensor([0, 1, 2, 3, 0])), sampling, 0).sequences.completion
    width = min(one.shape[1], five.shape[1])
    assert torch.equal(five[:4, :width], one[:, :width])


def test_eos_at_the_first_step_and_a_batch_of_one() -> None:
    lm = model(vocab=11)
    with torch.no_grad():
        head = lm.core.get_output_embeddings().weight
        head.zero_()
    sampling = SamplingSettings(max_new_tokens=60)
    seen = set()
    for seed in range(40):
        r = write(lm, repeated([2, 3], 1), sampling, seed)
        length = int(r.sequences.completion_mask.sum())
        seen.add(length)
        assert bool(r.finished) == (int(r.sequences.completion[0, length - 1]) in lm.stops)
        assert r.sequences.completion.shape[1] == length
    assert 1 in seen and max(seen) > 8


def test_weights_written_in_place_are_seen() -> None:
    """A step of the optimizer, a reset, a swap: the next rollout reads the new weights."""
    lm = model(sharp=2.0)
    sampling = SamplingSettings(max_new_tokens=6)
    s = some_prompts(lm)
    write(lm, s, sampling)
    programs = len(programs_of(lm))
    with torch.no_grad():
        for p in lm.module.parameters():
            p.mul_(1.3)
    r = write(lm, s, sampling, 1)
    fresh = score_all(lm, r.sequences)
    assert float((fresh.logprobs - r.logprobs).abs().max()) < 1e-4
    assert len(programs_of(lm)) == programs  # nothing was recorded again


def test_many_shapes_are_all_compiled() -> None:
    """The compiler leaves a function alone after its eighth shape, unless each has its own code."""
    from torch._dynamo.utils import counters

    lm = model(width=16)
    counters.clear()
    for n in range(1, 12):
        write(lm, some_prompts(lm), SamplingSettings(max_new_tokens=n + 1), compile=True)
    assert counters["stats"]["unique_graphs"] >= 11


def test_laying_together_changes_no_number() -> None:
    plain, laid = tiny("llama"), tiny("llama")
    for lm in (plain, laid):
        lm.module.to("cuda")
    assert lay_together(laid.module) == 4
    s = some_prompts(plain).to("cuda")
    i = torch.arange(4)
    sampling = SamplingSettings(max_new_tokens=6)
    engine = GraphEngine(compile=False)
    a, b = (
        join(list(engine.generate(lm, s, i, i, sampling, ("t", 0))), lm.pad) for lm in (plain, laid)
    )
    assert torch.equal(a.sequences.completion, b.sequences.completion)


def test_a_model_that_overflows_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    from tether.config.errors import UserError

    lm = model()
    with torch.no_grad():
        next(lm.module.parameters()).fill_(float("nan"))
    with pytest.raises(UserError, match="NaN or infinite for prompt row 0"):
        write(lm, some_prompts(lm), SamplingSettings(max_new_tokens=4))


def test_shapes_work_in_one_memory_and_leave_each_other_alone() -> None:
    """Four shapes in any order give what a model of its own gives each; recording three more costs
    less memory than the first did."""
    sizes = [6, 11, 3, 20]

    def one(lm: LanguageModel, number: int, seed: int) -> Rollout:
        s = repeated(list(range(2, 32 + number)), 96, pad=number)
        return write(lm, s, SamplingSettings(max_new_tokens=sizes[number]), seed)

    alone = [one(model(width=256, sharp=2.0), n, n) for n in range(4)]
    lm = model(width=256, sharp=2.0)
    torch.cuda.empty_cache()
    reserved = [torch.cuda.memory_reserved()]
    for number in (0, 1, 2, 3, 1, 0, 3, 2, 0):
        r = one(lm, number, number)
        assert torch.equal(r.sequences.completion, alone[number].sequences.completion)
        torch.testing.assert_close(r.logprobs, alone[number].logprobs)
        torch.cuda.empty_cache()
        reserved.append(torch.cuda.memory_reserved())
    assert len(programs_of(lm)) == 4
    first = reserved[1] - reserved[0]
    assert reserved[-1] - reserved[1] < first
