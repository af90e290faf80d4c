"""Rehearsal: its term is the mean NLL of its texts, whatever the model and the pieces."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.examples import MASK, scores
from tests.runs_for_tests import (
    REWARDS,
    agent_of,
    collected,
    gradients,
    make_world,
    metrics,
    numbers_of,
    run,
    settings,
)
from tests.unit.tethers.direct import assert_close, direct_gradient
from tether.config.errors import UserError
from tether.core.masking import local, token_weights
from tether.tethers.rehearsal import Rehearsal
from tether.train.run import resume, train
from tether.types import Clock, OwnText, Sequences

KINDS = ("gpt2", "llama", "t5")
LORA = {"model": {"lora": {"rank": 2}}}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = {}
    for kind in KINDS:
        out[kind] = world = make_world(tmp_path_factory.mktemp(kind), kind)
        with open(world / "texts.jsonl", "w", encoding="utf-8") as f:
            for i in range(12):
                row = {
                    "q": f"say {'x' * (i % 4)}",
                    "a": "yes " * (1 + i % 5),
                    "t": "abcdefgh" + "i" * i,
                }
                f.write(json.dumps(row) + "\n")
    return out


def rehearse(world: Path, **change: Any) -> dict[str, Any]:
    data = {"path": str(world / "texts.jsonl"), "prompt": "q", "reference": "a"}
    base = {"kind": "rehearsal", "rows": 6, "tokens": 9, "coef": 0.7, "data": data}
    low = {"kind": "function", "function": f"{REWARDS}:low"}  # without noise
    return {"tethers": {"rehearsal": {**base, **change}}, "rewards": {"reward": low}}


def test_the_loss_is_the_mean_over_tokens() -> None:
    fresh = scores(3, grad=True)
    s = Sequences(torch.ones(3, 2).long(), torch.ones(3, 2).bool(), MASK.long(), MASK)
    out = Rehearsal(coef=0.5).own_loss(OwnText(s), token_weights(MASK, "tokens", local), fresh)
    values = fresh.free_logprobs[MASK].detach()
    assert len(values) == 8
    assert float(out.metrics["nll"]) == pytest.approx(-float(values.sum()) / 8, rel=1e-6)
    assert float(out.loss.detach()) == pytest.approx(-0.5 * float(values.sum()) / 8, rel=1e-6)
    spoilt = replace(fresh, free_logprobs=torch.where(MASK, fresh.free_logprobs, float("nan")))
    again = Rehearsal(coef=0.5).own_loss(OwnText(s), token_weights(MASK, "tokens", local), spoilt)
    assert torch.equal(again.loss, out.loss)


def test_positions_go_on_without_a_gap() -> None:
    asked: list[int] = []

    def draw(position: int) -> Sequences:
        asked.append(position)
        empty = torch.zeros(1, 1)
        return Sequences(empty.long(), empty.bool(), empty.long(), empty.bool())

    tether = Rehearsal(every=3)
    given = [tether.own_text(Clock(minibatch=i), draw) is not None for i in range(7)]
    assert given == [True, False, False, True, False, False, True]
    assert asked == [0, 1, 2]


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_that_of_the_module_itself(
    worlds: dict[str, Path], kind: str, lora: bool
) -> None:
    change = LORA if lora else {}
    world = worlds[kind]
    agent = agent_of(settings(world, change, rehearse(world), {"batch": {"microbatch": 4}}))
    e = collected(agent)
    if lora:  # B = 0 at the start: A would have no gradient
        for n, w in agent.sets.sets["policy"].items():
            if "lora_B" in n:
                w.data.normal_(0, 0.05, generator=torch.Generator().manual_seed(0))
        agent.sets.publish("policy")
    both = gradients(agent, e)
    tether = agent.tethers.pop("rehearsal")
    alone = gradients(agent, e)
    s = agent.draws["rehearsal"](0)
    n = int(s.completion_mask.sum())
    assert len(s.prompt) == 6 and 6 < n < 54 and not bool(s.completion_mask.all())
    wanted = direct_gradient(agent, s, lambda i, logp: -tether.coef * logp.sum() / n)
    assert_close({k: both[k] - alone[k] for k in wanted}, wanted)


@pytest.mark.parametrize("microbatch", [1, 5])
def test_pieces_do_not_change_the_gradient(worlds: dict[str, Path], microbatch: int) -> None:
    world, found = worlds["gpt2"], []
    for size in (8, microbatch):
        agent = agent_of(settings(world, rehearse(world), {"batch": {"microbatch": size}}))
        found.append(gradients(agent, collected(agent)))
    assert_close(found[1], found[0])


def test_texts_are_learnt_and_recorded_apart(worlds: dict[str, Path]) -> None:
    """Two of them: one learns its texts, the other's NLL is its own and not a sum of both."""
    world = worlds["gpt2"]
    other = {**rehearse(world)["tethers"]["rehearsal"], "coef": 1e-9, "rows": 2}
    other["data"] = {"path": str(world / "prompts.jsonl"), "reference": "reference"}
    other["data"] |= {"limit": 2}
    both = rehearse(world, coef=5.0)["tethers"] | {"idle": other}
    m = metrics(
        run(settings(world, {"tethers": both}, {"optimizer": {"max_grad_norm": 0}}, name="learn"))
    )
    mine = [x["tether/rehearsal/nll"] for x in m]
    assert 4.0 < mine[0] < 8.0 and mine[-1] < 0.8 * mine[0]
    assert 4.0 < m[0]["tether/idle/nll"] < 8.0
    assert m[0]["tether/idle/nll"] != mine[0]
    assert "update/nll" not in m[0]


def test_whole_texts_train_but_for_the_first_token(worlds: dict[str, Path]) -> None:
    world = worlds["gpt2"]
    data = {"path": str(world / "texts.jsonl"), "text": "t", "prompt_tokens": 1}
    agent = agent_of(settings(world, rehearse(world, data=data, tokens=40)))
    s = agent.draws["rehearsal"](0)
    texts = [
        bytes(p[k].tolist() + c[m][:-1].tolist())  # an EOS ends it
        for p, k, c, m in zip(s.prompt, s.prompt_mask, s.completion, s.completion_mask, strict=True)
    ]
    tokenizer = agent.lm.tokenizer
    shown = [tokenizer.decode(list(t)) for t in texts]
    assert all(t.startswith("abcdefgh") and set(t[8:]) <= {"i"} for t in shown), shown
    assert bool((s.prompt_mask.sum(1) == 1).all())


def test_resume_is_bitwise(worlds: dict[str, Path]) -> None:
    class Cut(Exception):
        pass

    def cut(done: int, _all: int, _words: str) -> None:
        if done == 3:
            raise Cut

    world = worlds["t5"]
    change = [rehearse(world, every=2), {"checkpoint": {"every": 3}, "updates": 4}]
    whole = run(settings(world, *change, name="whole"))
    chosen = settings(world, *change, name="halves")
    with pytest.raises(Cut):
        train(chosen, say=lambda _: None, progress=cut)
    halves = resume(Path(chosen.root) / "halves", say=lambda _: None)
    assert numbers_of(halves) == numbers_of(whole)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": 0}, "rehearsal.rows must be at least 1, not 0"),
        ({"tokens": 0}, "rehearsal.tokens must be at least 1"),
        ({"every": 0}, "rehearsal.every must be at least 1"),
        ({"coef": 0.0}, "rehearsal.coef must be > 0, not 0; to rehearse nothing drop it"),
        ({"coef": -1.0}, "rehearsal.coef must be > 0"),
    ],
)
def test_settings_that_cannot_work(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as e:
        Rehearsal(**change)
    assert "\n" not in str(e.value)
