"""The transformers engine: exactly the distribution that scoring sees, and ids as sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig

from tests.models_for_tests import EOS, VOCAB, some_prompts, tiny
from tether.config.errors import UserError
from tether.config.run import SamplingSettings
from tether.core.sampling import unpack_bits
from tether.models.language_model import LanguageModel
from tether.models.scoring import score_all, scored_as
from tether.rollout.engine import join
from tether.rollout.hf import HFEngine, real_tokens
from tether.types import Rollout, Sequences

KINDS = ("gpt2", "llama", "opt", "t5", "bart")


class Rule:
    """A constraint from a function of (logits by set, position)."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule

    def allow(self, logits: Mapping[str, Tensor], position: Tensor) -> Tensor:
        return self.rule(logits, position)  # type: ignore[no-any-return]


class Stops(Rule):
    decides_stops = True


def write(
    lm: LanguageModel,
    prompts: Sequences | None = None,
    *,
    key: tuple[Any, ...] = (0, "agent", 3),
    constraints: tuple[Any, ...] = (),
    companions: dict[str, LanguageModel] | None = None,
    **sampling: Any,
) -> Rollout:
    prompts = some_prompts(lm) if prompts is None else prompts
    settings = SamplingSettings(**({"max_new_tokens": 8} | sampling))
    row = torch.arange(len(prompts.prompt)) + 10
    chunks = HFEngine().generate(
        lm, prompts, row, row - 10, settings, key, list(constraints), companions, 5
    )
    return join(list(chunks), lm.pad)


def above_mean(name: str) -> Rule:
    return Rule(lambda logits, position: logits[name] > logits[name].mean(-1, keepdim=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sampling",
    (
        {},
        {"temperature": 0.5},
        {"top_k": 7},
        {"top_p": 0.6, "temperature": 1.4},
        {"min_new_tokens": 4, "top_k": 20, "top_p": 0.9},
        {"greedy": True},
        {"scored": "full", "top_k": 7, "temperature": 0.5},
    ),
    ids=str,
)
def test_the_engine_and_scoring_agree(kind: str, sampling: dict[str, Any]) -> None:
    lm = tiny(kind, sharp=4.0)
    r = write(lm, **sampling)
    settings = SamplingSettings(**({"max_new_tokens": 8} | sampling))
    scores = score_all(lm, r.sequences, **scored_as(settings, r))
    assert r.logprobs is not None and (r.logprobs < 0).any()
    torch.testing.assert_close(r.logprobs, scores.logprobs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_companions_read_what_a_whole_pass_would_read(kind: str) -> None:
    lm, other = tiny(kind, sharp=4.0), tiny(kind, sharp=4.0, seed=1)
    r = write(lm, constraints=(above_mean("mask"),), companions={"mask": other})
    with torch.no_grad():
        logits, _ = other.forward(r.sequences)
    want = logits > logits.mean(-1, keepdim=True)
    want[..., EOS] = True
    real = r.sequences.completion_mask
    assert r.allowed is not None
    assert torch.equal(unpack_bits(r.allowed, VOCAB)[real], want[real])
    scores = score_all(lm, r.sequences, allowed=r.allowed)
    torch.testing.assert_close(r.logprobs, scores.logprobs, atol=1e-5, rtol=0)


def test_bits_are_stored_only_where_something_narrows(tiny_gpt2: LanguageModel) -> None:
    assert write(tiny_gpt2).allowed is None
    for options in ({"top_k": 3}, {"top_p": 0.5}, {"min_new_tokens": 2}):
        r = write(tiny_gpt2, **options)
        assert r.allowed is not None and r.allowed.dtype == torch.uint8
        assert r.allowed.shape == (*r.sequences.completion.shape, 33)
        assert write(tiny_gpt2, scored="full", **options).allowed is None


def test_constraints_are_anded_and_eos_stays_legal(tiny_gpt2: LanguageModel) -> None:
    token = torch.arange(VOCAB)
    even, low = (
        Rule(lambda x, t, keep=keep: keep.expand(len(t), -1))
        for keep in (token % 2 == 0, token < 40)
    )
    r = write(tiny_gpt2, constraints=(even, low))
    legal = unpack_bits(r.allowed, VOCAB)[0, 0]
    assert legal.nonzero().flatten().tolist() == [*range(0, 40, 2), EOS]
    ids = r.sequences.completion[r.sequences.completion_mask]
    assert ((ids % 2 == 0) & (ids < 40) | (ids == EOS)).all()


def test_a_rule_that_decides_stops_may_forbid_them(tiny_gpt2: LanguageModel) -> None:
    only_eos_late = Stops(
        lambda x, t: (torch.arange(VOCAB) != EOS) | (t[:, None] >= 3)  # no EOS before position 3
    )
    nudge = Rule(lambda x, t: (torch.arange(VOCAB) == 5).expand(len(t), -1))
    r = write(tiny_gpt2, constraints=(nudge, only_eos_late), max_new_tokens=40)
    assert (r.sequences.completion[:, :3] == 5).all()
    assert (r.sequences.completion_mask.sum(1) > 3).all() and r.finished.any()


def test_min_new_tokens_forbids_every_stop() -> None:
    lm = tiny("gpt2", sharp=4.0)
    lm.stops = (EOS, *range(100))
    r = write(lm, min_new_tokens=6, max_new_tokens=12)
    assert (r.sequences.completion_mask.sum(1) > 6).all()
    assert (r.sequences.completion[:, :6] >= 100).all()
    short = write(lm, max_new_tokens=12)
    assert (short.sequences.completion_mask.sum(1) <= 6).any()


def test_top_k_and_top_p_are_the_textbook_sets(tiny_gpt2: LanguageModel) -> None:
    r = write(tiny_gpt2, top_k=5)
    assert (unpack_bits(r.allowed, VOCAB).sum(-1)[r.sequences.completion_mask] == 5).all()
    lm = tiny("gpt2", sharp=5.0)
    r = write(lm, top_p=0.7, temperature=0.8)
    with torch.no_grad():
        p = (lm.forward(r.sequences)[0] / 0.8).softmax(-1)[r.sequences.completion_mask]
    legal = unpack_bits(r.allowed, VOCAB)[r.sequences.completion_mask]
    mass = (p * legal).sum(-1)
    least = p.masked_fill(~legal, 2.0).amin(-1)
    assert (mass >= 0.7 - 1e-5).all() and (mass - least < 0.7 + 1e-5).all()


def test_samples_follow_the_distribution() -> None:
    """4,000 draws of one token from logits log(.5, .3, .2): each share within 4 standard errors."""
    lm = tiny("gpt2", vocab=5)
    want = torch.tensor([0.5, 0.3, 0.2])
    head = torch.nn.Linear(32, 5)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.cat([torch.full((2,), -1e4), want.log()]))
    lm.core.set_output_embeddings(head)
    one = torch.full((4000, 1), 2)
    empty = torch.zeros(4000, 0, dtype=torch.long)
    prompts = Sequences(one, one.bool(), empty, empty.bool())
    r = write(lm, prompts, max_new_tokens=1, chunk=4000)
    share = torch.stack([(r.sequences.completion == i).float().mean() for i in (2, 3, 4)])
    error = (want * (1 - want) / 4000).sqrt()
    assert ((share - want).abs() < 4 * error).all()
    torch.testing.assert_close(r.logprobs.exp(), want[r.sequences.completion - 2])


def test_seeds_are_the_key_and_nothing_else(tiny_gpt2: LanguageModel) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    a = write(tiny_gpt2)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    b, c = write(tiny_gpt2), write(tiny_gpt2, key=(0, "agent", 4))
    assert torch.equal(a.sequences.completion, b.sequences.completion)
    assert not torch.equal(a.sequences.completion, c.sequences.completion)


def test_greedy_is_the_likeliest_token(tiny_gpt2: LanguageModel) -> None:
    r = write(tiny_gpt2, greedy=True)
    with torch.no_grad():
        best = tiny_gpt2.forward(r.sequences)[0].argmax(-1)
    real = r.sequences.completion_mask
    assert torch.equal(r.sequences.completion[real], best[real])
    assert torch.equal(
        write(tiny_gpt2, greedy=True, key=(9,)).sequences.completion, r.sequences.completion
    )


def test_the_models_own_habits_do_not_leak_in() -> None:
    lm = tiny("bart", sharp=3.0)
    want = write(lm)
    lm.core.generation_config = habits = GenerationConfig(
        temperature=0.1,
        top_k=1,
        repetition_penalty=3.0,
        forced_bos_token_id=9,
        forced_eos_token_id=EOS,
        suppress_tokens=[1, 2],
        eos_token_id=[EOS, *range(100)],
        num_beams=4,
        no_repeat_ngram_size=1,
        max_length=3,
        min_length=7,
        do_sample=True,
    )
    assert torch.equal(write(lm).sequences.completion, want.sequences.completion)
    assert lm.core.generation_config is habits


def test_chunks_come_in_order_and_join(tiny_t5: LanguageModel) -> None:
    prompts = some_prompts(tiny_t5, (3, 1, 4, 1, 5))
    row = torch.tensor([7, 7, 8, 8, 9])
    sampling = SamplingSettings(max_new_tokens=6, chunk=2)
    chunks = list(HFEngine().generate(tiny_t5, prompts, row, row - 7, sampling, (1,)))
    assert [len(c.row) for c in chunks] == [2, 2, 1]
    whole = join(chunks, tiny_t5.pad)
    assert whole.row.tolist() == row.tolist() and whole.group.tolist() == [0, 0, 1, 1, 2]
    assert torch.equal(whole.sequences.prompt, prompts.prompt)
    assert whole.policy_version == 0 and whole.writer == "policy"
    assert torch.equal(whole.sampled, whole.sequences.completion_mask)


def test_join_pads_shorter_chunks(tiny_gpt2: LanguageModel) -> None:
    a, b = (write(tiny_gpt2, max_new_tokens=n, top_k=9) for n in (3, 6))
    both = join([a, b], 77)
    assert both.sequences.completion.shape == (8, 6) and both.allowed.shape == (8, 6, 33)
    assert (both.sequences.completion[:4, 3:] == 77).all()
    assert not both.sequences.completion_mask[:4, 3:].any()
    assert torch.equal(both.logprobs[4:], b.logprobs)


def test_the_mode_comes_back(tiny_gpt2: LanguageModel) -> None:
    tiny_gpt2.module.train()
    write(tiny_gpt2)
    assert tiny_gpt2.module.training


def test_bad_settings_are_one_line(tiny_gpt2: LanguageModel) -> None:
    short = Rule(lambda x, t: torch.ones(1, 3).bool())
    for options, message in (
        ({"temperature": 0.0}, r"temperature = 0 must be > 0"),
        ({"max_new_tokens": 60}, r"a prompt has 7 tokens; with 60 new tokens"),
        ({"min_new_tokens": 9}, r"need 0 <= min <= max"),
        ({"constraints": (short,)}, r"Rule.allow must return bool \[4, 259\], not bool \[1, 3\]"),
    ):
        with pytest.raises(UserError, match=message):
            write(tiny_gpt2, **options)
    empty = some_prompts(tiny_gpt2, (3, 0))
    with pytest.raises(UserError, match="every prompt needs at least one token"):
        write(tiny_gpt2, empty)


def test_real_tokens_end_with_the_first_stop() -> None:
    ids = torch.tensor([[7, 9, 1, 1, 1], [7, 9, 8, 7, 6], [13, 1, 0, 0, 0], [5, 13, 1, 0, 0]])
    mask, finished = real_tokens(ids, torch.tensor([1, 13]))
    assert mask.sum(1).tolist() == [3, 5, 1, 2] and finished.tolist() == [True, False, True, True]
