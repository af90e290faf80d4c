"""Allowed sets stored as bits, and found again beyond the memory budget."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models_for_tests import EOS, VOCAB, some_sequences, tiny
from tests.runs_for_tests import agent_of, collected, lines, make_world, metrics, run, settings
from tether.config.run import SamplingSettings
from tether.core.sampling import legal_tokens, top_p_set, unpack_bits
from tether.models.allowed import FoundAgain
from tether.models.scoring import log_distribution, score_all
from tether.rollout.engine import bits_fit
from tether.tethers.nlpo_mask import NLPOMask
from tether.train.evaluate import evaluate
from tether.train.self_checks import engine_agrees

KINDS = ("gpt2", "t5", "bart")
AGAIN = {"sampling": {"allowed_bytes": 0}}


def nlpo(**options: Any) -> dict[str, Any]:
    part = {"kind": "nlpo_mask", "top_p": 0.6}
    if options.get("mask", "copy") == "copy":
        part["refresh"] = {"kind": "every", "n": 1}
    return {"tethers": {"mask": part | options}}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {k: make_world(tmp_path_factory.mktemp(k), k, sharp=3.0) for k in KINDS}


def move_away(agent: Any) -> None:
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for t in agent.sets.sets["policy"].values():
            t.add_(torch.randn(t.shape, generator=rng), alpha=0.05 + 0.3 * float(t.std()))
    agent.sets.publish("policy")
    agent.version = 1


def test_the_budget_is_rows_times_tokens_times_bytes() -> None:
    for vocabulary, width in ((259, 33), (264, 33), (265, 34)):
        at = 6 * 5 * width
        for limit, fits in ((at, True), (at - 1, False)):
            s = SamplingSettings(max_new_tokens=5, allowed_bytes=limit)
            assert bits_fit(s, 6, vocabulary) == fits
    assert SamplingSettings().allowed_bytes == 4294967296


@pytest.mark.parametrize("kind", KINDS)
def test_found_again_is_what_was_stored(worlds: dict[str, Path], kind: str) -> None:
    """Same completions, same log-probs, same entropy, under the stored and the found sets."""
    found = {}
    for name, change in (("bits", {}), ("again", AGAIN)):
        agent = agent_of(settings(worlds[kind], nlpo(), change, sampling={"max_new_tokens": 9}))
        move_away(agent)
        found[name] = (agent, collected(agent, 1))
    (_, stored), (agent, again) = found["bits"], found["again"]
    assert isinstance(stored.rollout.allowed, Tensor)
    assert again.rollout.allowed is agent.found_again
    s = again.rollout.sequences
    assert torch.equal(s.completion, stored.rollout.sequences.completion)
    torch.testing.assert_close(again.old.logprobs, stored.old.logprobs, atol=1e-6, rtol=0)
    assert torch.equal(again.old.free_logprobs, stored.old.free_logprobs)
    home = (again.references["initial"].logprobs, stored.references["initial"].logprobs)
    torch.testing.assert_close(*home, atol=1e-6, rtol=0)
    one, two = (
        score_all(agent.lm, s, allowed=a, entropy=True, microbatch=2).entropy
        for a in (agent.found_again, stored.rollout.allowed)
    )
    torch.testing.assert_close(one, two, atol=1e-5, rtol=0)
    with torch.no_grad():
        have = agent.found_again.sets(s, agent.lm.forward(s)[0])
        p = log_distribution(agent.lm, s, 1.0, agent.found_again)
    want = unpack_bits(stored.rollout.allowed, VOCAB)
    assert torch.equal(have[again.mask], want[again.mask])
    assert (p.exp()[~have] == 0).all()


def test_what_was_added_is_counted(worlds: dict[str, Path]) -> None:
    """The mask policy moves behind the house's back: sampled tokens fall out of its set, come back
    in, and are counted, real tokens only."""
    agent = agent_of(settings(worlds["gpt2"], nlpo(), AGAIN, sampling={"max_new_tokens": 9}))
    e = collected(agent)
    n = int(e.mask.sum())
    assert agent.found_again is not None
    tokens, size, added = agent.found_again.counts().tolist()
    assert (tokens, added) == (2 * n, 0), "scored under the policy and under initial"
    report = agent.tethers["mask"].report(e, lambda x: x)
    assert report["allowed_tokens"] == pytest.approx(size / (2 * n))
    agent.found_again.begin()
    assert not agent.found_again.used
    with torch.no_grad():
        for t in agent.sets.sets["mask"].values():
            t.copy_(torch.randn(t.shape, generator=torch.Generator().manual_seed(3)))
    agent.sets.publish("mask")
    mask = e.mask.clone()
    mask[0, 4:] = mask[2, 2:] = False
    s = replace(e.rollout.sequences, completion_mask=mask)
    scores = score_all(agent.lm, s, allowed=agent.found_again)
    with agent.sets.beside("mask") as lm, torch.no_grad():
        legal = top_p_set(lm.forward(s)[0], 0.6)
    legal[..., EOS] = True
    outside = ~legal.gather(2, s.completion[..., None]).squeeze(2)
    assert outside[mask].any() and outside[~mask].any()
    assert agent.found_again.counts()[2] == (outside & mask).sum()
    legal.scatter_(2, s.completion[..., None], True)
    assert agent.found_again.counts()[1] == legal.sum(2)[mask].sum()
    with torch.no_grad():
        p = agent.lm.forward(s)[0].double().softmax(-1)
    want = (p.gather(2, s.completion[..., None]).squeeze(2) / (p * legal).sum(-1)).log()
    torch.testing.assert_close(scores.logprobs[mask].double(), want[mask], atol=1e-4, rtol=0)


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, other = tiny("gpt2", sharp=3.0), tiny("gpt2", sharp=3.0, seed=1)
    s = some_sequences(lm)
    again = FoundAgain([NLPOMask(top_p=0.7)], {"mask": other}, (EOS,))
    with torch.no_grad():
        logits = lm.forward(s)[0]
        whole = again.sets(s, logits)
        monkeypatch.setattr("tether.models.allowed.PIECE", VOCAB * 5)
        assert torch.equal(again.sets(s, logits), whole)


STORED: dict[str, dict[str, Any]] = {
    "the policy's own sets": nlpo(mask="policy"),
    "an average that moves": {
        "tethers": {
            **nlpo(mask="ema")["tethers"],
            "reset": {"kind": "elastic_reset", "reset": {"kind": "every", "n": 2}},
        }
    },
    "top-p after it": nlpo() | {"sampling": {"top_p": 0.9}},
    "top-k after it": nlpo() | {"sampling": {"top_k": 9}},
    "a memory of texts": {
        "tethers": {**nlpo()["tethers"], "replay": {"kind": "replay", "rows": 2}}
    },
}


@pytest.mark.parametrize("name", STORED)
def test_sets_that_cannot_be_found_again_are_stored(worlds: dict[str, Path], name: str) -> None:
    change = STORED[name]
    sampling = {"sampling": {**change.get("sampling", {}), "allowed_bytes": 0}}
    agent = agent_of(settings(worlds["gpt2"], change, sampling))
    assert agent.found_again is None
    assert isinstance(collected(agent).rollout.allowed, Tensor)


def test_a_minimum_length_beside_the_mask_is_found_again(worlds: dict[str, Path]) -> None:
    change = nlpo()
    change["tethers"]["least"] = {"kind": "min_length", "tokens": 3}
    agent = agent_of(settings(worlds["gpt2"], change, sampling={"allowed_bytes": 0}))
    e = collected(agent)
    assert e.rollout.allowed is agent.found_again and agent.found_again is not None
    with torch.no_grad():
        legal = agent.found_again.sets(
            e.rollout.sequences, agent.lm.forward(e.rollout.sequences)[0]
        )
    assert not legal[:, :3, EOS].any() and legal[:, 3:, EOS].all()


def test_the_one_rule_of_sampling_and_scoring() -> None:
    """EOS and only EOS comes back; a minimum length takes every stop out."""

    class Low:
        def allow(self, logits: Any, position: Tensor) -> Tensor:
            return (torch.arange(6) < 2).expand(len(position), 6)

    class Nothing(Low):
        def allow(self, logits: Any, position: Tensor) -> Tensor:
            return torch.zeros(len(position), 6, dtype=torch.bool)

    class Decides(Low):
        decides_stops = True

    views = {"policy": torch.zeros(2, 6)}
    at, stops = torch.tensor([0, 3]), torch.tensor([4, 1, 5])
    allowed, empty = legal_tokens([Low()], views, at, stops)
    assert allowed.tolist() == [[True, True, False, False, True, False]] * 2
    assert [x.tolist() for x in empty] == [[False, False]]
    allowed, empty = legal_tokens([Nothing()], views, at, stops)
    assert allowed.nonzero()[:, 1].tolist() == [4, 4] and empty[0].all()
    allowed, _ = legal_tokens([Low(), Decides()], views, at, stops, 3)
    assert allowed.tolist() == [[True] + [False] * 5, [True, True] + [False] * 4]


def test_a_run_beyond_its_budget_says_so_and_is_the_same_run(worlds: dict[str, Path]) -> None:
    change = nlpo() | {"updates": 2}
    stored = metrics(run(settings(worlds["gpt2"], change, name="stored")))
    again = metrics(run(settings(worlds["gpt2"], change, AGAIN, name="again")))
    for one, two in zip(stored, again, strict=True):
        assert two["tether/mask/tokens_added"] == 0
        assert two["tether/mask/tokens_found_again"] > 20
        assert "tether/mask/tokens_added" not in one
        for key in ("reward/score.mean", "update/policy_loss", "update/entropy"):
            assert two[key] == pytest.approx(one[key], abs=1e-4)


def test_evaluation_is_of_both_policies_and_keeps_no_sets(
    worlds: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import tether.train.evaluate as evaluating

    agent = agent_of(settings(worlds["gpt2"], nlpo()))
    move_away(agent)
    rollouts, real = [], evaluating.write

    def write(*args: Any, **options: Any) -> Any:
        for chunk in real(*args, **options):
            rollouts.append((options["constrained"], chunk.rollout))
            yield chunk

    monkeypatch.setattr(evaluating, "write", write)
    points = {p.policy: p for p, _ in evaluate(agent, 1, "validation")}
    assert list(points) == ["exported", "constrained"]
    assert all(r.allowed is None for _, r in rollouts)
    with agent.sets.beside("mask") as lm:
        for constrained, r in rollouts:
            with torch.no_grad():
                legal = top_p_set(lm.forward(r.sequences)[0], 0.6)
            legal[..., EOS] = True
            inside = legal.gather(2, r.sequences.completion[..., None]).squeeze(2)
            assert bool(inside[r.sequences.completion_mask].all()) == constrained
    # human text: the weights' own, unmasked, finite, and the same number for both
    for name in ("drift/kl_initial_on_human.exact_nats_per_token", "human/perplexity"):
        values = [(p.drift | p.metrics)[name] for p in points.values()]
        assert values[0] == values[1] < float("inf")
    # the masked policy's KL is of its own log-probs
    s = dict(rollouts)[True]
    with agent.sets.beside("initial") as lm:
        home = score_all(lm, s.sequences).free_logprobs
    k1 = ((s.logprobs - home) * s.sequences.completion_mask).sum(1).mean()
    have = points["constrained"].drift["drift/kl_initial.k1_nats_per_seq"]
    assert have == pytest.approx(float(k1), abs=1e-4)
    assert "drift/kl_initial.exact_nats_per_seq" in points["exported"].drift


@pytest.mark.parametrize("mask", ["copy", "initial", "policy"])
def test_candidates_of_earlier_are_not_judged_by_a_later_mask(
    worlds: dict[str, Path], mask: str
) -> None:
    """The mask of that time is gone where it is a copy that has moved on."""
    change = {"data": {"test_rows": 4}, "evaluation": {"test_prompts": 4, "budgets": [0.01]}}
    folder = run(settings(worlds["gpt2"], nlpo(mask=mask), change, name=f"test-{mask}", updates=2))
    found = {
        (x["weights"], x["policy"])
        for x in lines(folder)
        if x["kind"] == "eval" and x["split"] == "test"
    }
    exported = {("final", "exported"), ("initial", "exported"), ("budget:0.01", "exported")}
    both = exported | {(w, "constrained") for w, _ in exported}
    assert found == (exported | {("final", "constrained")} if mask == "copy" else both)


def test_a_token_at_the_edge_of_a_found_set_is_no_alarm(worlds: dict[str, Path]) -> None:
    """A cached pass and a whole one may differ by one token of the set: .02 nats on one token."""
    for change, alarm in ((AGAIN, False), ({}, True)):
        agent = agent_of(settings(worlds["gpt2"], nlpo(), change))
        e = collected(agent)
        off = torch.zeros_like(e.old.logprobs)
        off[0, 0] = 0.02
        near = replace(e.rollout, logprobs=e.rollout.logprobs + off)
        if alarm:
            with pytest.raises(RuntimeError, match="engine and scoring disagree"):
                engine_agrees(agent, near, e.old.logprobs)
        else:
            engine_agrees(agent, near, e.old.logprobs)
            worse = replace(e.rollout, logprobs=e.rollout.logprobs + 0.1)
            with pytest.raises(RuntimeError, match="engine and scoring disagree"):
                engine_agrees(agent, worse, e.old.logprobs)


def test_the_control_samples_from_its_own_top_p(worlds: dict[str, Path]) -> None:
    """PPO with `sampling.top_p`: ratios 1 under the kept sets, drift along plain samples, and a
    plain evaluation for the asking."""
    change = {"sampling": {"top_p": 0.6}}
    agent = agent_of(settings(worlds["gpt2"], change))
    move_away(agent)
    e = collected(agent, 1)
    legal = unpack_bits(e.rollout.allowed, VOCAB)
    with torch.no_grad():
        own = top_p_set(agent.lm.forward(e.rollout.sequences)[0], 0.6)
    assert torch.equal(legal[e.mask], own[e.mask])
    plain = agent_of(
        settings(worlds["gpt2"], change, evaluation={"sampling": {"max_new_tokens": 5}})
    )
    move_away(plain)
    for a, keys in ((agent, 1), (plain, 1)):
        points = [p for p, _ in evaluate(a, 1, "validation")]
        assert [p.policy for p in points] == ["exported"] and len(points) == keys
    first, second = (next(iter(evaluate(a, 1, "validation")))[0] for a in (agent, plain))
    assert first.drift == second.drift, "drift is along plain samples either way"
    assert first.reward != second.reward, "the reward is of truncated samples, or of plain ones"


def test_a_huge_budget_is_a_number() -> None:
    assert bits_fit(SamplingSettings(allowed_bytes=sys.maxsize), 10**6, 10**6)
