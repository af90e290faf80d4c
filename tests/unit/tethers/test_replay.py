"""Replay: what is kept and for how long, what is drawn, and that the house trains on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.contracts.examples import experience, scores, spoiled
from tests.runs_for_tests import (
    REWARDS,
    agent_of,
    collected,
    lines,
    make_world,
    metrics,
    numbers_of,
    run,
    settings,
)
from tests.unit.tethers.direct import assert_close, direct_gradient
from tether.config.errors import UserError
from tether.core.masking import local, token_weights
from tether.core.sampling import pack_bits
from tether.tethers.replay import Replay
from tether.train import checkpoint
from tether.train.run import resume, train
from tether.train.update import PolicyLearner
from tether.types import Clock, Experience, Measured, OwnText

KINDS = ("gpt2", "t5")
LOW = {"rewards": {"reward": {"kind": "function", "function": f"{REWARDS}:low"}}}


def written(update: int, score: list[float], prompt: int = 2, width: int = 4) -> Experience:
    """An update's rollout of full completions whose ids are 10 * update + row."""
    n = len(score)
    e = experience(torch.ones(n, width, dtype=torch.bool), seed=update)
    ids = (10 * update + torch.arange(n))[:, None]
    s = replace(
        e.rollout.sequences,
        prompt=ids.repeat(1, prompt),
        prompt_mask=torch.ones(n, prompt, dtype=torch.bool),
        completion=ids.repeat(1, width),
    )
    rollout = replace(e.rollout, sequences=s, finished=torch.ones(n).bool(), policy_version=update)
    return replace(e, rollout=rollout, score=torch.tensor(score))


def lived(tether: Replay, *rollouts: Experience) -> Replay:
    """Each rollout in an update of its own; the next update is under way."""
    for u, e in enumerate(rollouts, start=tether.update):
        tether.seen(e)
        tether.after("update", Clock(update=u + 1), Measured())
    return tether


def ids(tether: Replay) -> list[int]:
    return sorted(tether.kept["completion"][:, 0].tolist()) if tether.kept else []


# ---- what is kept
def test_the_best_share_of_each_update_is_kept() -> None:
    tether = lived(Replay(share=0.5), written(1, [3.0, 9.0, 5.0, 1.0]), written(2, [0.0, 0.2, 0.1]))
    assert ids(tether) == [11, 12, 21, 22]  # 2 of 4, and 1.5 rounded up of 3
    assert ids(lived(Replay(share=0.5), written(1, [2.0, 2.0, 2.0, 2.0]))) == [10, 11]


def test_capacity_drops_the_lowest_scores() -> None:
    updates = [written(u, [float(u % 3), 0.5]) for u in range(1, 7)]
    tether = lived(Replay(share=1.0, capacity=3), *updates)
    assert tether.kept["score"].tolist() == [2.0, 1.0, 2.0]
    assert ids(tether) == [20, 40, 50]  # 10 has the score of 40 and is older
    assert all(len(v) == 3 for v in tether.kept.values())


def test_age_is_counted_in_updates() -> None:
    """age 2: written in update 0, used in updates 1 and 2, gone in 3."""
    tether = lived(Replay(share=1.0, age=2), written(0, [1.0, 2.0]))
    seen = [ids(tether)]
    for u in range(1, 4):
        tether.after("update", Clock(update=u + 1), Measured())
        seen.append(ids(tether))
    assert seen == [[0, 1], [0, 1], [], []]
    assert tether.kept == {} and tether.own_text(Clock(update=3), None) is None


def test_dropped_samples_are_not_kept_and_not_counted() -> None:
    """A dropped sample has the best score and an undefined log-prob; mean and spread ignore it."""
    e = written(1, [9.0, 4.0, 2.0])
    sampled = e.rollout.sampled.clone()
    sampled[0] = False
    dropped = replace(e, rollout=replace(e.rollout, sampled=sampled))
    tether = lived(Replay(share=1.0), dropped)
    assert ids(tether) == [11, 12]
    assert tether.kept["advantage"].tolist() == pytest.approx([1.0, -1.0])
    none = replace(e, rollout=replace(e.rollout, sampled=torch.zeros_like(sampled)))
    assert lived(Replay(), none).kept == {}


def test_texts_that_nobody_sampled_are_not_kept() -> None:
    e = written(1, [9.0, 4.0])
    assert lived(Replay(), replace(e, rollout=replace(e.rollout, writer="data"))).kept == {}


def test_behaviour_is_the_writers() -> None:
    """Of another writer the engine's log-probs count, not the policy's view of its text."""
    e = written(1, [1.0, 2.0])
    engine = torch.full_like(e.old.logprobs, -7.0)
    own = replace(e, rollout=replace(e.rollout, logprobs=engine))
    other = replace(e, rollout=replace(e.rollout, logprobs=engine, writer="ema"))
    assert torch.equal(lived(Replay(share=1.0), own).kept["logprobs"].flip(0), e.old.logprobs)
    assert bool((lived(Replay(share=1.0), other).kept["logprobs"] == -7.0).all())


def test_values_outside_the_mask_are_never_read() -> None:
    plain, nan = (
        lived(Replay(share=1.0), e) for e in (experience(), spoiled(experience(), float("nan")))
    )
    assert set(plain.kept) == set(nan.kept)
    for k, v in plain.kept.items():
        assert torch.equal(v, nan.kept[k]), k
    text = plain.own_text(Clock(update=1), None)
    assert text is not None and text.mask is not None
    weights, fresh = token_weights(text.mask, "tokens", local), scores(5, text.mask, grad=True)
    nan_fresh = replace(fresh, logprobs=torch.where(text.mask, fresh.logprobs, float("nan")))
    one, other = (plain.own_loss(text, weights, f) for f in (fresh, nan_fresh))
    assert torch.equal(one.loss, other.loss)
    other.loss.backward()
    assert fresh.logprobs.grad is not None and bool(torch.isfinite(fresh.logprobs.grad).all())


def test_an_environments_text_is_context_and_does_not_train() -> None:
    e = written(1, [1.0, 2.0])
    sampled = torch.tensor([[1, 0, 0, 1], [1, 1, 0, 0]]).bool()
    tether = lived(Replay(share=1.0), replace(e, rollout=replace(e.rollout, sampled=sampled)))
    text = tether.own_text(Clock(update=1), None)
    assert text is not None and text.mask is not None
    order = text.sequences.completion[:, 0] - 10
    assert torch.equal(text.mask, sampled[order])
    assert bool(text.sequences.completion_mask.all())


def test_widths_are_joined_and_trimmed() -> None:
    wide, narrow = written(1, [1.0, 2.0], prompt=5, width=6), written(2, [3.0, 4.0], 3, 2)
    tether = lived(Replay(share=1.0, rows=2), narrow, wide)
    assert tether.kept["prompt"].shape == (4, 5) and tether.kept["completion"].shape == (4, 6)
    assert tether.kept["prompt_mask"][:2].tolist() == [[False] * 2 + [True] * 3] * 2
    assert tether.kept["completion_mask"][:2].tolist() == [[True] * 2 + [False] * 4] * 2
    for step in range(20):
        text = tether.own_text(Clock(minibatch=step, update=2), None)
        assert text is not None
        s = text.sequences
        for i, first in enumerate(s.completion[:, 0].tolist()):
            prompt, completion = (5, 6) if first < 20 else (3, 2)
            assert s.prompt[i][s.prompt_mask[i]].tolist() == [first] * prompt
            assert s.completion[i][s.completion_mask[i]].tolist() == [first] * completion
        assert bool(s.prompt_mask.any(0).all()) and bool(s.completion_mask.any(0).all())


def test_allowed_sets_travel_with_their_tokens() -> None:
    """Bits where an update had some, the whole vocabulary where not; trimmed with the text."""
    e = written(1, [1.0, 2.0])
    bits = pack_bits(torch.rand(2, 4, 21, generator=torch.Generator().manual_seed(0)) > 0.5)
    with_bits = replace(e, rollout=replace(e.rollout, allowed=bits))
    tether = lived(Replay(share=1.0), written(0, [5.0], 2, 3), with_bits)
    assert torch.equal(tether.kept["allowed"][1:], bits.flip(0))
    assert tether.kept["allowed"][0, :3].eq(255).all()
    again = lived(Replay(share=1.0), with_bits, written(2, [5.0], 2, 3))
    assert torch.equal(again.kept["allowed"][:2], bits.flip(0))
    text = again.own_text(Clock(update=2), None)
    assert text is not None and isinstance(text.allowed, Tensor)
    assert text.allowed.shape == (3, 4, 3)

    class Again:
        pass

    lost = replace(e, rollout=replace(e.rollout, allowed=Again()))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"beyond sampling\.allowed_bytes: raise it"):
        Replay().seen(lost)
    Replay(mode="supervised").seen(lost)


def test_an_event_clears_the_memory_only_if_told() -> None:
    """The version counts updates and events: 2 updates and one event make version 3."""
    after_event = replace(
        written(2, [1.0]), rollout=replace(written(2, [1.0]).rollout, policy_version=3)
    )
    for at_event, wanted in (("keep", [0, 10, 20]), ("clear", [20])):
        tether = lived(Replay(share=1.0, at_event=at_event), written(0, [1.0]), written(1, [1.0]))  # type: ignore[arg-type]
        assert ids(tether) == [0, 10]
        tether.seen(after_event)
        assert ids(tether) == wanted


# ---- what is drawn
def test_the_rollout_of_the_update_itself_is_never_drawn() -> None:
    tether = Replay(share=1.0)
    tether.seen(written(0, [1.0, 2.0]))
    assert tether.own_text(Clock(), None) is None
    tether.after("minibatch", Clock(minibatch=1), Measured())
    assert tether.tokens == 0
    tether.after("update", Clock(minibatch=1, update=1), Measured())
    tether.seen(written(1, [1.0, 2.0]))
    text = tether.own_text(Clock(minibatch=1, update=1), None)
    assert text is not None and sorted(text.sequences.completion[:, 0].tolist()) == [0, 1]


def test_draws_are_a_function_of_the_step_and_reach_all() -> None:
    tether = lived(Replay(share=1.0, rows=2), written(1, [1.0] * 6))
    found = []
    for step in range(40):
        a, b = (tether.own_text(Clock(minibatch=step, update=1), None) for _ in range(2))
        assert a is not None and b is not None
        assert torch.equal(a.sequences.completion, b.sequences.completion)
        drawn = a.sequences.completion[:, 0].tolist()
        assert len(set(drawn)) == 2
        found += drawn
    assert {found.count(i) for i in range(10, 16)} <= set(range(5, 25))


def test_what_is_reported() -> None:
    tether = lived(Replay(share=1.0, rows=3), written(0, [1.0, 2.0]), written(1, [3.0], 2, 7))
    now = written(2, [4.0, 4.0])
    tether.seen(now)
    tether.after("minibatch", Clock(minibatch=1, update=2), Measured())
    tether.after("minibatch", Clock(minibatch=2, update=2), Measured())
    assert tether.report(now, local) == {
        "off_policy_tokens": 2.0 * (4 + 4 + 7),  # two steps, all three earlier ones each
        "sequences": 3.0,
        "age_updates.mean": pytest.approx((2 + 2 + 1) / 3),
    }
    tether.after("update", Clock(minibatch=2, update=3), Measured())
    assert tether.tokens == 0


def test_memory_goes_through_a_checkpoint(tmp_path: Path) -> None:
    e = written(1, [1.0, 2.0])
    bits = pack_bits(torch.ones(2, 4, 21, dtype=torch.bool))
    tether = lived(Replay(share=1.0), replace(e, rollout=replace(e.rollout, allowed=bits)), e)
    path = checkpoint.save(
        tmp_path, 1, {"tether": tether.state_dict(), "new": Replay().state_dict()}
    )
    state = checkpoint.load(path)
    again, fresh = Replay(share=1.0), Replay()
    again.load_state_dict(state["tether"])
    fresh.load_state_dict(state["new"])
    assert fresh.kept == {} and (again.update, again.events, again.tokens) == (2, 0, 0)
    assert set(again.kept) == set(tether.kept)
    for k, v in tether.kept.items():
        assert v.dtype == again.kept[k].dtype and torch.equal(v, again.kept[k]), k


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"share": 0.0}, r"replay.share must be in \(0, 1\], not 0"),
        ({"share": 1.5}, "replay.share must be in"),
        ({"age": 0}, "replay.age must be at least 1, not 0"),
        ({"capacity": 0}, "replay.capacity must be at least 1"),
        ({"rows": 0}, "replay.rows must be at least 1"),
        ({"coef": 0.0}, "replay.coef must be > 0, not 0"),
        ({"truncate": 0.0}, "replay.truncate must be > 0"),
        ({"mode": "both"}, "replay.mode is importance or supervised, not 'both'"),
        ({"weights": "word"}, "replay.weights is token or sequence, not 'word'"),
        ({"at_event": "halve"}, "replay.at_event is keep or clear"),
        ({"mode": "supervised", "truncate": 2.0}, "act on mode importance only"),
    ],
)
def test_settings_that_cannot_work(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as e:
        Replay(**change)
    assert "\n" not in str(e.value)


# ---- in the house
@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {k: make_world(tmp_path_factory.mktemp(k), k) for k in KINDS}


def replaying(**change: Any) -> dict[str, Any]:
    part = {"kind": "replay", "share": 1.0, "rows": 4, "coef": 2.0, **change}
    return {"tethers": {"replay": part}, **LOW}


def with_memory(agent: Any) -> tuple[Any, OwnText]:
    """Experience of update 1 with update 0 in memory, by a policy that has moved since."""
    tether = agent.tethers["replay"]
    collected(agent, 0)
    tether.after("update", Clock(update=1), Measured())
    agent.version = 1
    rng = torch.Generator().manual_seed(0)
    for w in agent.sets.sets["policy"].values():
        w.data.add_(0.02 * torch.randn(w.shape, generator=rng))
    agent.sets.publish("policy")
    e = collected(agent, 1)
    text = tether.own_text(Clock(update=1), None)
    assert text is not None
    return e, text


def learnt(agent: Any, e: Any) -> dict[str, Tensor]:
    """Policy gradient of one step in update 1."""
    tether = agent.tethers.get("replay")
    clock = Clock(update=1 if tether else 0)
    learner = PolicyLearner(agent, agent.algorithm, lambda unit: [], lambda: clock, 0)
    agent.optimizer.zero()
    learner.accumulate(learner.whole(e, agent.algorithm.advantages(e, local)))
    agent.optimizer.gather_gradients()
    out = {
        f"policy/{n}": torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for n, p in agent.sets.sets["policy"].items()
    }
    agent.optimizer.zero()
    return out


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "tokens": ("gpt2", {}, {}),
    "temperature": ("gpt2", {}, {"sampling": {"temperature": 0.7}}),
    "scored in full": ("gpt2", {}, {"sampling": {"temperature": 0.7, "scored": "full"}}),
    "sequences": ("gpt2", {"weights": "sequence"}, {}),
    "supervised": ("gpt2", {"mode": "supervised"}, {"sampling": {"temperature": 0.7}}),
    "lora": ("gpt2", {}, {"model": {"lora": {"rank": 2}}}),
    "encoder-decoder": ("t5", {}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_that_of_the_module_itself(worlds: dict[str, Path], name: str) -> None:
    kind, change, house = CASES[name]
    agent = agent_of(
        settings(worlds[kind], replaying(**change), house, {"batch": {"microbatch": 3}})
    )
    e, text = with_memory(agent)
    both = learnt(agent, e)
    tether = agent.tethers.pop("replay")
    alone = learnt(agent, e)
    s, n = text.sequences, int(text.sequences.completion_mask.sum())
    full = house.get("sampling", {}).get("scored") == "full" or change.get("mode") == "supervised"
    temperature = 1.0 if full else house.get("sampling", {}).get("temperature", 1.0)

    def loss(i: int, logp: Tensor) -> Tensor:
        if change.get("mode") == "supervised":
            return -tether.coef * logp.sum() / n
        ratio = logp.detach() - text.extra["logprobs"][i][s.completion_mask[i]]
        if change.get("weights") == "sequence":
            ratio = ratio.sum().expand(len(logp))
        weight = ratio.exp().clamp(max=1.0)
        return -tether.coef * (weight * text.extra["advantage"][i] * logp).sum() / n

    prompts = s.prompt_mask
    if agent.lm.seq2seq:  # the memory keeps them padded left whatever the model wants
        assert not bool(prompts[:, 0].all())
    wanted = direct_gradient(agent, s, loss, temperature)
    assert_close({k: both[k] - alone[k] for k in wanted}, wanted)


def test_context_inside_a_completion_has_no_share_of_the_loss(worlds: dict[str, Path]) -> None:
    """What an environment added: the mean is over the tokens that the policy sampled."""
    agent = agent_of(settings(worlds["gpt2"], replaying(mode="supervised")))
    e, text = with_memory(agent)
    tether = agent.tethers["replay"]
    tether.kept["mask"][:, :2] = False
    both = learnt(agent, e)
    agent.tethers.pop("replay")
    alone = learnt(agent, e)
    n = int(text.sequences.completion_mask[:, 2:].sum())
    wanted = direct_gradient(agent, text.sequences, lambda i, logp: -2.0 * logp[2:].sum() / n)
    assert_close({k: both[k] - alone[k] for k in wanted}, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_do_not_change_gradient_or_record(worlds: dict[str, Path], kind: str) -> None:
    found = []
    for size in (4, 1):
        agent = agent_of(settings(worlds[kind], replaying(), {"batch": {"microbatch": size}}))
        e, _ = with_memory(agent)
        learner = PolicyLearner(agent, agent.algorithm, lambda unit: [], lambda: Clock(update=1), 0)
        m = learner.accumulate(learner.whole(e, agent.algorithm.advantages(e, local)))
        found.append(({k: v for k, v in m.items() if "replay" in k}, learnt(agent, e)))
    (m4, g4), (m1, g1) = found
    assert m1 == pytest.approx(m4, rel=1e-4) and len(m4) == 5
    assert 0 < m4["tether/replay/effective_share"] < 1
    assert_close(g1, g4)


NARROWED: dict[str, dict[str, Any]] = {
    "minimum length, top-k": {"sampling": {"temperature": 0.6, "min_new_tokens": 3, "top_k": 40}},
    "mask": {
        "tethers": {
            "nlpo_mask": {"kind": "nlpo_mask", "top_p": 0.5, "refresh": {"kind": "every", "n": 2}}
        }
    },
}


@pytest.mark.parametrize("name", NARROWED)
def test_weights_are_one_while_the_policy_stands_still(worlds: dict[str, Path], name: str) -> None:
    """Allowed sets and temperature are those of sampling, so pi = mu."""
    agent = agent_of(settings(worlds["gpt2"], replaying(truncate=5.0), NARROWED[name]))
    collected(agent, 0)
    tether = agent.tethers["replay"]
    assert "allowed" in tether.kept
    tether.after("update", Clock(update=1), Measured())
    agent.version = 1
    e = collected(agent, 1)
    learner = PolicyLearner(agent, agent.algorithm, lambda unit: [], lambda: Clock(update=1), 0)
    m = learner.accumulate(learner.whole(e, agent.algorithm.advantages(e, local)))
    assert m["tether/replay/weight.mean"] == pytest.approx(1.0, abs=1e-4)
    assert m["tether/replay/effective_share"] == pytest.approx(1.0, abs=1e-4)


RESETS = {
    "elastic_reset": {"kind": "elastic_reset", "reset": {"kind": "every", "n": 2}, "decay": 0.5}
}


@pytest.mark.parametrize("at_event", ["keep", "clear"])
def test_a_run_across_resets(worlds: dict[str, Path], at_event: str) -> None:
    """Resets after updates 2 and 4 of 5: what is remembered in updates 1 to 5."""
    change = replaying(at_event=at_event, share=0.5)
    change["tethers"] |= RESETS
    folder = run(settings(worlds["gpt2"], change, updates=5, name=f"across-{at_event}"))
    assert [x["update"] for x in lines(folder) if x["kind"] == "event"] == [2, 4]
    m = metrics(folder)
    remembered = [x["tether/replay/sequences"] for x in m]
    tokens = [x["tether/replay/off_policy_tokens"] for x in m]
    if at_event == "keep":
        assert remembered == [0, 2, 4, 6, 8] and (tokens[0] == 0) and min(tokens[1:]) > 0
    else:
        assert remembered == [0, 2, 0, 2, 0] and [t > 0 for t in tokens] == [0, 1, 0, 1, 0]
    assert "tether/replay/effective_share" not in m[0]
    for x, r in zip(m, remembered, strict=True):
        assert ("tether/replay/effective_tokens" in x) == (r > 0)
        if r:
            steps = 4  # 2 epochs x 2 minibatches
            share = x["tether/replay/effective_share"]
            assert 0 < share <= 1
            assert (
                x["tether/replay/effective_tokens"]
                <= x["tether/replay/off_policy_tokens"] / steps + 1e-6
            )


@pytest.mark.parametrize("kind", KINDS)
def test_resume_is_bitwise(worlds: dict[str, Path], kind: str) -> None:
    class Cut(Exception):
        pass

    def cut(done: int, _all: int, _words: str) -> None:
        if done == 3:
            raise Cut

    change = replaying(share=0.5, age=2)
    change["tethers"] |= RESETS
    changes = [change, {"checkpoint": {"every": 3}, "sampling": {"min_new_tokens": 2}}]
    whole = run(settings(worlds[kind], *changes, updates=5, name="whole"))
    chosen = settings(worlds[kind], *changes, updates=5, name="halves")
    with pytest.raises(Cut):
        train(chosen, say=lambda _: None, progress=cut)
    halves = resume(Path(chosen.root) / "halves", say=lambda _: None)
    assert numbers_of(halves) == numbers_of(whole)
