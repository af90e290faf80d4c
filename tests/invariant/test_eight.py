"""The eight invariants that catch most silent faults (facts on known faults), on whole agents:
GPT-2 and Llama, T5 where it applies, fp32 and bf16 working weights."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runs_for_tests import (
    MAIN,
    agent_of,
    collected,
    gradients,
    lines,
    make_world,
    metrics,
    numbers_of,
    run,
    settings,
)  # fmt: skip
from tether.core.masking import local
from tether.models.scoring import score_all
from tether.models.tokenizing import pad
from tether.train.events import apply_event, tick
from tether.train.run import resume
from tether.train.update import PolicyLearner
from tether.types import Clock, Sequences

KINDS = ("gpt2", "llama", "t5")
LORA = {"model": {"lora": {"rank": 2}}}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {k: make_world(tmp_path_factory.mktemp(k), k) for k in KINDS}


def chosen(worlds: dict[str, Path], kind: str, *changes: dict[str, Any], **values: Any) -> Any:
    return settings(worlds[kind], MAIN, *changes, **values)


def first_minibatch(agent: Any, e: Any) -> dict[str, float]:
    learner = PolicyLearner(agent, agent.algorithm, lambda unit: [], Clock, 0)
    targets = agent.algorithm.advantages(e, local)
    mb = next(iter(learner.minibatches(2, e, targets, 0)))
    found: dict[str, float] = learner.accumulate(mb, gradient=False)
    return found


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("kind", KINDS)
def test_1_first_ratios_are_one(worlds: dict[str, Path], kind: str, lora: bool) -> None:
    agent = agent_of(chosen(worlds, kind, LORA if lora else {}))
    m = first_minibatch(agent, collected(agent))
    assert (
        m["ratio_error"] <= 1e-6
        and m["clip_fraction"] == 0
        and abs(m["kl_old.k3_nats_per_token"]) <= 1e-6
    )


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize(
    "sampling",
    [{"temperature": 0.7}, {"top_p": 0.8}, {"top_k": 9}, {"min_new_tokens": 3}],
    ids=str,
)
def test_1_also_where_sampling_is_narrowed(
    worlds: dict[str, Path], kind: str, sampling: dict[str, Any]
) -> None:
    agent = agent_of(chosen(worlds, kind, sampling=sampling))
    m = first_minibatch(agent, collected(agent))
    assert m["ratio_error"] <= 1e-6 and m["clip_fraction"] == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("kind", KINDS)
def test_2_policy_is_reference_before_any_update(
    worlds: dict[str, Path], kind: str, lora: bool, dtype: str
) -> None:
    agent = agent_of(chosen(worlds, kind, LORA if lora else {}, model={"dtype": dtype}))
    e = collected(agent)
    for name in ("initial", "ema"):
        assert torch.equal(e.references[name].free_logprobs, e.old.free_logprobs)
    assert agent.measured["kl/initial.k1_nats_per_seq"][0] == 0.0
    assert agent.measured["tether/kl/reward.mean"][0] == 0.0


def placed(s: Sequences, lm: Any, row: int, pads: int) -> Sequences:
    """One row alone, with `pads` more pads beside its prompt and after its completion."""
    prompt = s.prompt[row][s.prompt_mask[row]].tolist()
    ids, mask = pad([prompt, [5] * (len(prompt) + pads)], lm.padding_side, lm.pad)
    extra = torch.full((1, pads), lm.pad)
    completion = torch.cat([s.completion[row : row + 1], extra], 1)
    keep = torch.cat([s.completion_mask[row : row + 1], extra.bool() & False], 1)
    return Sequences(ids[:1], mask[:1], completion, keep)


@pytest.mark.parametrize("kind", KINDS)
def test_3_neighbours_and_padding_change_nothing(worlds: dict[str, Path], kind: str) -> None:
    agent = agent_of(chosen(worlds, kind, batch={"prompts": 12}))
    lm, s = agent.lm, collected(agent).rollout.sequences
    assert len(set(s.prompt_mask.sum(1).tolist())) > 1, "prompts of several lengths"
    together = score_all(lm, s, critic=agent.critic)
    t = s.completion.shape[1]
    for row in range(len(s.prompt)):
        real = s.completion_mask[row]
        for pads in (0, 4):
            alone = score_all(lm, placed(s, lm, row, pads), critic=agent.critic)
            for name in ("logprobs", "values"):
                one, many = getattr(alone, name)[0, :t], getattr(together, name)[row]
                torch.testing.assert_close(one[real], many[real], atol=2e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_4_masked_positions_change_nothing(worlds: dict[str, Path], kind: str) -> None:
    """Rubbish at every masked id, log-prob, value and reward: same gradients and metrics."""
    agent = agent_of(chosen(worlds, kind))
    e = collected(agent)
    e.rollout.sequences.completion_mask[1, 2:] = False  # so that something is masked for sure
    e = replace(e, rollout=replace(
        e.rollout, sampled=e.rollout.sampled & e.rollout.sequences.completion_mask))  # fmt: skip
    e = replace(e, rewards=torch.where(e.mask, e.rewards, 0.0))
    off = ~e.rollout.sequences.completion_mask
    assert off.any()

    def rubbish(x: torch.Tensor) -> torch.Tensor:
        return torch.where(off, torch.full_like(x, 1e4), x)

    old = replace(
        e.old,
        logprobs=rubbish(e.old.logprobs),
        free_logprobs=rubbish(e.old.free_logprobs),
        values=rubbish(e.old.values),
        entropy=e.old.logprobs,
    )
    s = e.rollout.sequences
    spoilt = replace(
        e,
        old=old,
        rewards=rubbish(e.rewards),
        rollout=replace(
            e.rollout, sequences=replace(s, completion=torch.where(off, 7, s.completion))
        ),
    )
    clean = replace(e, old=replace(e.old, entropy=e.old.logprobs))
    one, two = first_minibatch(agent, clean), first_minibatch(agent, spoilt)
    assert one.keys() == two.keys()
    for name in one:
        assert one[name] == pytest.approx(two[name], abs=1e-6), name
    want, have = gradients(agent, clean), gradients(agent, spoilt)
    for name in want:
        torch.testing.assert_close(have[name], want[name], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_5_the_cut_changes_no_gradient(worlds: dict[str, Path], kind: str) -> None:
    agent = agent_of(chosen(worlds, kind, batch={"prompts": 8}))
    e = collected(agent)
    found = []
    for size in (8, 4, 1):
        agent.microbatch = size
        found.append(gradients(agent, e))
    for other in found[1:]:
        for name, g in found[0].items():
            torch.testing.assert_close(other[name], g, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_6_resume_is_the_uninterrupted_run(worlds: dict[str, Path], kind: str) -> None:
    """GPT-2, LoRA, bf16 and the critics: tests/faults/test_b25. A new process: tests/crash.py."""

    def cut(done: int, _total: int, _words: str) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(chosen(worlds, kind, name="cut", checkpoint={"every": 3}), progress=cut)
    torch.manual_seed(77)
    parts = resume(worlds[kind] / "runs" / "cut", say=lambda _: None)
    whole = run(chosen(worlds, kind, name="whole", checkpoint={"every": 3}))
    assert numbers_of(parts) == numbers_of(whole)


@pytest.mark.parametrize("kind", KINDS)
def test_7_moves_are_counted(worlds: dict[str, Path], kind: str) -> None:
    rows = lines(run(chosen(worlds, kind, name="counted")))
    assert rows[-1]["counts"] == {
        "agent": {"ema<-initial": 2, "ema<-policy": 12, "policy<-ema": 2}
    }  # 6 updates of 2 epochs, a reset every 3 updates
    events = [x for x in rows if x["kind"] == "event"]
    assert [x["counts"]["policy<-ema"] for x in events] == [1, 2]
    assert [x["update"] for x in events] == [3, 6]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_8_every_number_is_finite(worlds: dict[str, Path], kind: str, dtype: str) -> None:
    folder = run(chosen(worlds, kind, name=f"finite-{dtype}", model={"dtype": dtype}))

    def walk(value: Any, where: str) -> None:
        assert value is not None or where.endswith("drift_nats"), where
        if isinstance(value, float):
            assert math.isfinite(value), where
        for k, v in value.items() if isinstance(value, dict) else ():
            walk(v, f"{where}/{k}")

    for row in lines(folder):
        walk(row, row["kind"])
    for text in (folder / "samples.jsonl").read_text().splitlines():
        walk(json.loads(text), "sample")
    assert len(metrics(folder)) == 6


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_reset_outlives_the_next_step(
    worlds: dict[str, Path], kind: str, lora: bool, dtype: str
) -> None:
    """After a reset the next step at lr 0 keeps it: masters and working weights both moved (B23).
    The moments are kept, so a stale master would show."""
    agent = agent_of(chosen(worlds, kind, LORA if lora else {}, model={"dtype": dtype}))
    clock = Clock()

    def count(unit: Any) -> list[Any]:
        nonlocal clock
        clock = clock.tick(unit)
        return tick(agent, unit, clock)

    def now() -> Clock:
        return clock

    for update in range(3):
        e = collected(agent, update)
        learner = PolicyLearner(agent, agent.algorithm, count, now, 0)
        agent.algorithm.update(learner, e, agent.algorithm.advantages(e, local))
        agent.version += 1
        events = count("update")
    assert len(events) == 1
    before = {n: t.detach().clone() for n, t in agent.sets.sets["policy"].items()}
    ema = {n: t.clone() for n, t in agent.sets.sets["ema"].items()}
    apply_event(agent, events[0], agent.optimizer, lambda a: {})
    e = collected(agent, 3)
    learner = PolicyLearner(agent, agent.algorithm, lambda unit: [], now, 0)
    learner.accumulate(learner.whole(e, agent.algorithm.advantages(e, local)))
    agent.optimizer.step({"policy": 0.0, "critic": 0.0}, 0)
    agent.sets.publish("policy")
    policy, initial = agent.sets.sets["policy"], agent.sets.sets["initial"]
    moved = False
    for name, t in policy.items():
        assert torch.equal(t, ema[name])
        assert torch.equal(agent.sets.sets["ema"][name], initial[name])
        work = agent.sets.working["policy"][name]
        assert torch.equal(work, t.to(work.dtype))
        moved = moved or not torch.equal(t, before[name])
    assert moved, "the reset did something"
