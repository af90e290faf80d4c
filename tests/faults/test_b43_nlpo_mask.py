"""B43: a mask that is never refreshed. The allowed sets are those of the mask policy's weights as
they are now; sampling, scoring, ratio and entropy see one distribution."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.faults.test_b25_exact_resume import halves
from tests.models_for_tests import EOS, VOCAB
from tests.runs_for_tests import (
    agent_of,
    collected,
    lines,
    make_world,
    metrics,
    numbers_of,
    run,
    settings,
)  # fmt: skip
from tether.config.errors import UserError
from tether.core.logprobs import log_softmax
from tether.core.masking import local
from tether.core.sampling import top_p_set, unpack_bits
from tether.models.scoring import score_all
from tether.train.events import tick
from tether.train.run import load_finished
from tether.train.update import PolicyLearner
from tether.types import Clock

KINDS = ("gpt2", "t5", "bart")
VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"model": {"lora": {"rank": 4}}},
    "bf16": {"model": {"dtype": "bfloat16"}},
}
CASES = pytest.mark.parametrize(
    ("kind", "variant"),
    [(k, v) for k in KINDS for v in VARIANTS if v == "full" or k != "bart"],
)
P = 0.6


def nlpo(**options: Any) -> dict[str, Any]:
    part = {"kind": "nlpo_mask", "top_p": P, "refresh": {"kind": "every", "n": 2}}
    if options.get("mask", "copy") != "copy":
        del part["refresh"]
    return {"tethers": {"mask": part | options}}


AGAIN = {"sampling": {"allowed_bytes": 0}}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    sharp = {"gpt2": 4.0, "t5": 1.5, "bart": 4.0}
    return {k: make_world(tmp_path_factory.mktemp(k), k, sharp=sharp[k]) for k in KINDS}


@pytest.fixture(scope="module")
def shallow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For whole runs: what is asked of the record does not hang on the depth."""
    make = tmp_path_factory.mktemp
    return {k: make_world(make(k), k, sharp=4.0, layers=1) for k in ("gpt2", "t5")}


def test_the_smallest_set_with_the_mass() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2]).log()
    assert [int(top_p_set(logits, p).sum()) for p in (0.4, 0.6, 0.9)] == [1, 2, 3]


def move_away(agent: Any, seed: int = 1) -> None:
    """Other weights, as updates would leave them."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for t in agent.sets.sets["policy"].values():
            t.add_(torch.randn(t.shape, generator=rng), alpha=0.05 + 0.3 * float(t.std()))
    agent.sets.publish("policy")


def logits_of(lm: Any, e: Any) -> Tensor:
    with lm.quiet():
        found: Tensor = lm.forward(e.rollout.sequences)[0].float()
    return found


def expected(lm: Any, e: Any) -> Tensor:
    """[B,T,V]: top-p sets of a model in one whole pass, and EOS."""
    legal = top_p_set(logits_of(lm, e), P)
    legal[..., EOS] = True
    return legal


def bits(e: Any) -> Tensor:
    return unpack_bits(e.rollout.allowed, VOCAB)


def differing(e: Any, want: Tensor) -> float:
    real = e.mask
    return float((bits(e)[real] != want[real]).float().mean())


@CASES
def test_after_a_refresh_the_sets_are_the_new_policys(
    worlds: dict[str, Path], kind: str, variant: str
) -> None:
    agent = agent_of(settings(worlds[kind], nlpo(), VARIANTS[variant]))
    tolerance = 0.0 if variant != "bf16" else 0.01  # a bf16 cache rounds otherwise
    move_away(agent)
    agent.version = 1
    before = collected(agent, 1)
    with agent.sets.swapped_in("initial") as lm:
        old = expected(lm, before)
    assert differing(before, old) <= tolerance
    assert differing(before, expected(agent.lm, before)) > 0.02, "the policy is elsewhere"
    clock = Clock()
    for unit in ("minibatch", "epoch", "update", "minibatch", "epoch"):
        clock = clock.tick(unit)  # type: ignore[arg-type]
        tick(agent, unit, clock)  # type: ignore[arg-type]
    assert agent.sets.counts["mask<-policy"] == 0, "due after two updates"
    tick(agent, "update", clock.tick("update"))
    assert agent.sets.counts["mask<-policy"] == 1
    after = collected(agent, 2)
    assert differing(after, expected(agent.lm, after)) <= tolerance
    move_away(agent, 2)
    still = collected(agent, 3)
    assert differing(still, expected(agent.lm, still)) > 0.02, "the copy stays where it is"


@pytest.mark.parametrize("mask", ["copy", "initial", "policy", "ema"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sampled_token_is_never_outside_its_mask(
    worlds: dict[str, Path], kind: str, mask: str
) -> None:
    ema = {"tethers": {"reset": {"kind": "elastic_reset", "reset": {"kind": "every", "n": 3}}}}
    change = [nlpo(mask=mask), ema if mask == "ema" else {}]
    agent = agent_of(settings(worlds[kind], *change, sampling={"max_new_tokens": 12}))
    move_away(agent)
    agent.version = 1
    e = collected(agent, 1)
    inside = bits(e).gather(2, e.rollout.sequences.completion[..., None]).squeeze(2)
    assert inside[e.mask].all()
    # the check can fail: the policy itself would leave the set of another mask policy
    p = log_softmax(logits_of(agent.lm, e)).exp()
    assert float(((p * ~bits(e)).sum(2))[e.mask].mean()) > 0.1
    at_home = "policy" if mask == "policy" else "initial"
    with agent.sets.swapped_in(at_home) as lm:
        assert differing(e, expected(lm, e)) == 0


def first_minibatch(agent: Any, e: Any) -> dict[str, float]:
    learner = PolicyLearner(agent, agent.algorithm, lambda unit: [], Clock, 0)
    mb = next(iter(learner.minibatches(2, e, agent.algorithm.advantages(e, local), 0)))
    found: dict[str, float] = learner.accumulate(mb, gradient=False)
    return found


@pytest.mark.parametrize("budget", [{}, AGAIN], ids=["bits", "again"])
@CASES
def test_ratios_of_the_first_minibatch_are_one(
    worlds: dict[str, Path], kind: str, variant: str, budget: dict[str, Any]
) -> None:
    agent = agent_of(settings(worlds[kind], nlpo(), VARIANTS[variant], budget))
    move_away(agent)
    agent.version = 1
    e = collected(agent, 1)
    m = first_minibatch(agent, e)
    assert m["ratio_error"] <= 1e-6 and m["clip_fraction"] == 0
    assert abs(m["kl_old.k3_nats_per_token"]) <= 1e-6
    gap = (e.old.logprobs - e.old.free_logprobs)[e.mask]
    assert (gap >= -1e-5).all() and float(gap.mean()) > 0.1, "the mask acts in scoring"


@pytest.mark.parametrize("kind", KINDS)
def test_entropy_and_logprobs_are_of_the_renormalised_distribution(
    worlds: dict[str, Path], kind: str
) -> None:
    """A second way: probabilities outside are set to 0 and the rest is divided by its sum."""
    agent = agent_of(settings(worlds[kind], nlpo(), sampling={"temperature": 0.7}))
    move_away(agent)
    agent.version = 1
    e = collected(agent, 1)
    p = (logits_of(agent.lm, e).double() / 0.7).softmax(-1) * bits(e)
    p = p / p.sum(-1, keepdim=True)
    s = e.rollout.sequences
    picked = p.gather(2, s.completion[..., None]).squeeze(2).log()
    scores = score_all(agent.lm, s, temperature=0.7, allowed=e.rollout.allowed, entropy=True)
    entropy = -torch.special.xlogy(p, p).sum(-1)
    for have, want in ((e.old.logprobs, picked), (scores.entropy, entropy)):
        torch.testing.assert_close(have[e.mask].double(), want[e.mask], atol=1e-4, rtol=0)
    free = logits_of(agent.lm, e).log_softmax(-1).gather(2, s.completion[..., None]).squeeze(2)
    torch.testing.assert_close(e.old.free_logprobs[e.mask], free[e.mask], atol=1e-5, rtol=0)


def test_kl_is_zero_before_the_first_update_mask_or_no_mask(worlds: dict[str, Path]) -> None:
    for kind in KINDS:
        change = nlpo()
        change["tethers"]["kl"] = {"kind": "kl", "coef": 0.1}
        agent = agent_of(settings(worlds[kind], change))
        collected(agent)
        assert agent.measured["kl/initial.k1_nats_per_seq"][0] == 0.0
        assert agent.measured["tether/kl/reward.mean"][0] == 0.0
        assert "drift/kl_initial.k1_nats_per_seq" not in agent.measured, "not along plain samples"


def test_refreshes_of_a_run_are_in_its_record_and_in_its_weights(worlds: dict[str, Path]) -> None:
    world = worlds["gpt2"]
    folder = run(settings(world, nlpo(), name="refreshed", updates=4))
    found = [(m["tether/mask/refreshes"], m["tether/mask/mask_age"]) for m in metrics(folder)]
    assert found == [(0, 0), (0, 1), (1, 0), (1, 1)], "as of the rollout of that update"
    assert all(2 <= m["tether/mask/allowed_tokens"] < 200 for m in metrics(folder))
    end = lines(folder)[-1]
    assert end["kind"] == "end" and end["counts"]["agent"]["mask<-policy"] == 2
    _, agent = load_finished(folder)
    for name, t in agent.sets.sets["policy"].items():
        assert torch.equal(t, agent.sets.sets["mask"][name]), "refreshed after update 4"
    e = collected(agent, 4)
    assert differing(e, expected(agent.lm, e)) == 0
    with agent.sets.swapped_in("initial") as lm:
        assert differing(e, expected(lm, e)) > 0.001
    as_released = run(settings(world, nlpo(mask="initial"), name="released", updates=4))
    assert "tether/mask/refreshes" not in metrics(as_released)[0]
    assert metrics(as_released)[-1] != metrics(folder)[-1], "a working refresh changes the run"
    # up to the first refresh both are one method
    assert metrics(as_released)[1]["reward/score.mean"] == metrics(folder)[1]["reward/score.mean"]


RESUMED: dict[str, tuple[str, dict[str, Any], int]] = {
    "right after a refresh": ("gpt2", {}, 2),
    "an update lost": ("gpt2", {}, 3),
    "lora": ("gpt2", VARIANTS["lora"], 4),
    "bf16": ("gpt2", VARIANTS["bf16"], 4),
    "t5": ("t5", {}, 4),
    "sets found again": ("gpt2", AGAIN, 3),
}


@pytest.mark.parametrize("name", RESUMED)
def test_two_halves_are_the_whole(shallow: dict[str, Path], name: str) -> None:
    kind, change, after = RESUMED[name]
    slug = name.replace(" ", "-")
    one, two = (
        settings(shallow[kind], nlpo(), change, name=f"{slug}-{half}", updates=5)
        for half in ("whole", "parts")
    )
    want, have = numbers_of(run(one)), numbers_of(halves(two, after))
    assert [k for k in want if want[k] != have[k]] == []


def test_a_run_too_short_for_a_refresh_is_refused(worlds: dict[str, Path]) -> None:
    with pytest.raises(UserError, match=r"tethers.mask.refresh is due first after 2 updates"):
        run(settings(worlds["gpt2"], nlpo(), name="short", updates=1))
    run(settings(worlds["gpt2"], nlpo(mask="initial"), name="never", updates=1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": {"kind": "supervised", "lr": 1e-3}}, "does not look there"),
        ({"sampling": {"scored": "full"}}, "sampling.scored is full"),
    ],
    ids=["supervised", "scored full"],
)
def test_what_could_not_act_is_refused(
    worlds: dict[str, Path], change: dict[str, Any], message: str
) -> None:
    base = settings(worlds["gpt2"], nlpo(), name="refused")
    if "algorithm" in change:
        base = replace(base, algorithm=change["algorithm"])
    else:
        base = replace(base, sampling=replace(base.sampling, **change["sampling"]))
    with pytest.raises(UserError, match=message):
        agent_of(base)


def test_a_mask_that_nobody_keeps_is_refused(worlds: dict[str, Path]) -> None:
    with pytest.raises(UserError, match=r"nothing keeps a weight set 'ema'"):
        agent_of(settings(worlds["gpt2"], nlpo(mask="ema")))
