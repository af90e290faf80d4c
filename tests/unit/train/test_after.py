"""Baselines as the last step of a run: their numbers, what stays untouched, kill and resume."""

from __future__ import annotations

import math
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.forked import start
from tests.runs_for_tests import REWARDS, agent_of, lines, make_world, numbers_of, run, settings
from tether.analysis.best_of_n import kl_bound
from tether.config.errors import UserError
from tether.config.text_values import write_yaml
from tether.core.weights import fingerprint
from tether.records import DRIFT, read_points
from tether.train.after import baselines, interpolation
from tether.train.after_samples import initial_samples
from tether.train.evaluate import evaluate
from tether.types import Move

LOW = {"rewards": {"reward": {"kind": "function", "function": f"{REWARDS}:low"}}}
"""A reward without noise: equal weights get equal rewards."""
JUDGE = {"judges": {"length": {"kind": "length"}}}
LORA = {"model": {"lora": {"rank": 2, "alpha": 8.0}}, "algorithm": {"lr": 0.05}}
SHORT = {"updates": 2, "evaluation": {"every": 1}}
ALL = {"after": {"best_of_n": True, "oracle": True, "interpolate": True, "samples": 16}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("after") / "gpt2", layers=1)


def points(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [x for x in lines(folder) if x["kind"] == "baseline" and x["baseline"] == kind]


@pytest.mark.parametrize("case", ["gpt2", "gpt2 with an adapter", "t5"])
def test_a_run_ends_with_its_baselines(case: str, tmp_path: Path) -> None:
    kind, adapted = case.split()[0], "adapter" in case
    hows = ["linear", "slerp", *(["product"] if adapted else ["slerp_global"])]
    here = make_world(tmp_path, kind)
    extra = LORA if adapted else {}
    chosen = settings(here, LOW, JUDGE, SHORT, ALL, {"after": {"how": hows}}, extra)
    folder = run(chosen)
    kinds = [x["kind"] for x in lines(folder)]
    assert kinds[-1] == "end" and kinds[-2] == "baseline" and kinds.count("end") == 1
    # The ends of an interpolation are the run's own first and last evaluation.
    first, *_, last = [p for p in read_points(folder / "record.jsonl") if p.split == "validation"]
    assert last.drift[DRIFT] > 1e-4
    found = {(x["how"], x["at"]): x for x in points(folder, "interpolation")}
    assert set(found) == {(h, s) for h in hows for s in (0, 0.25, 0.5, 0.75, 1)}
    for how in hows:
        start, end = found[how, 0.0], found[how, 1.0]
        close = {"rel": 1e-4, "abs": 1e-6}  # an adapter that is merged rounds
        assert start["drift"] == pytest.approx(0.0, abs=1e-5)
        assert start["reward"] == pytest.approx(first.reward, **close)
        assert end["drift"] == pytest.approx(last.drift[DRIFT], **close)
        assert end["reward"] == pytest.approx(last.reward, **close)
        assert end["judges"] == pytest.approx(last.judges, **close)
        human = "drift/kl_initial_on_human.exact_nats_per_token"
        assert end["metrics"][human] == pytest.approx(last.drift[human], rel=1e-3, abs=1e-7)
        assert (end["drift_is"], end["valid"], end["samples"]) == ("measured", True, 1)
        assert found[how, 0.25]["drift"] > 0
    best = points(folder, "best_of_n")
    assert [x["at"] for x in best] == [1, 2, 4, 8, 16]
    assert [x["drift"] for x in best] == [kl_bound(n) for n in (1, 2, 4, 8, 16)]
    assert {x["drift_is"] for x in best} == {"bound"} and set(best[0]["judges"]) == {"length"}
    curve = points(folder, "oracle")
    assert curve[0]["at"] is None and curve[0]["drift"] == 0
    assert curve[0]["reward"] == pytest.approx(best[0]["reward"])  # n = 1: the initial model
    for x in curve:
        assert x["valid"] == (x["drift"] <= math.log(16) - 1 + 1e-6)
    # No best-of-n is above the oracle at its own, measured drift.
    for x in best[:-1]:
        kl = x["metrics"]["baseline/kl_reweighted_nats_per_seq"]
        top = np.interp(kl, [c["drift"] for c in curve], [c["reward"] for c in curve])
        assert x["reward"] <= top + 0.01


def test_without_the_setting_there_is_nothing_and_the_rest_is_equal(world: Path) -> None:
    without = run(settings(world, LOW, SHORT, name="without"))
    both = run(settings(world, LOW, SHORT, ALL, name="with"))
    assert not points(without, "oracle") and points(both, "oracle")
    kept = [x for x in lines(both) if x["kind"] not in ("baseline", "start")]
    assert kept == [x for x in lines(without) if x["kind"] != "start"]
    assert numbers_of(both)["weights"] == numbers_of(without)["weights"]
    assert numbers_of(both)["samples"] == numbers_of(without)["samples"]


def nudged(agent: Any, by: float = 0.05) -> None:
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for t in agent.sets.sets["policy"].values():
            t.add_(by * torch.randn(t.shape, generator=rng))
    agent.sets.publish("policy")


def test_samples_are_the_initial_models_whatever_the_policy_is(world: Path) -> None:
    chosen = settings(world, LOW, JUDGE, name="samples", sampling={"chunk": 8})
    agent = agent_of(chosen)
    before = initial_samples(agent, "validation", 6, prompts=3)
    nudged(agent)
    weights = fingerprint(agent.sets.sets["policy"])
    after = initial_samples(agent, "validation", 6, prompts=3)
    assert fingerprint(agent.sets.sets["policy"]) == weights
    assert [len(s.rewards) for s in after] == [6, 6, 6]
    for a, b in zip(before, after, strict=True):
        assert np.array_equal(a.rewards, b.rewards)
        assert np.array_equal(a.judges["length"], b.judges["length"])
    assert len({float(r) for s in after for r in s.rewards}) > 3
    # Many samples: their mean is that of a plain evaluation of the initial model, within noise.
    many = initial_samples(agent, "validation", 400, prompts=2)
    mean = np.mean([s.rewards.mean() for s in many])
    other = agent_of(settings(world, LOW, evaluation={"seed": 9}))
    again = initial_samples(other, "validation", 400, prompts=2)
    assert mean == pytest.approx(np.mean([s.rewards.mean() for s in again]), abs=0.03)


def test_completions_without_a_score_are_left_out(world: Path, tmp_path: Path) -> None:
    file = tmp_path / "partly.py"
    file.write_text(
        "def partly(completion_ids, **_):\n"
        "    return [None if ids[0] % 2 else float(ids[0]) for ids in completion_ids]\n"
    )
    partly = {"kind": "function", "function": f"{file}:partly", "missing": "drop"}
    agent = agent_of(settings(world, rewards={"reward": partly}))
    samples = initial_samples(agent, "validation", 40)
    assert all(0 < len(s.rewards) < 40 for s in samples)
    assert all((s.rewards % 2 == 0).all() for s in samples)


def test_linear_is_the_move_of_the_house(world: Path) -> None:
    """A second way: the trainer's own move by a share, then a plain evaluation."""
    chosen = settings(world, LOW, after={"interpolate": True, "shares": [0.3]})
    agent = agent_of(chosen)
    nudged(agent)
    weights = fingerprint(agent.sets.sets["policy"])
    [found] = interpolation(agent, chosen.after, 1)
    assert fingerprint(agent.sets.sets["policy"]) == weights
    agent.sets.apply([Move("policy", toward="initial", by=0.7)])
    [(moved, _)] = evaluate(agent, 1, "validation")
    assert found.drift == pytest.approx(moved.drift[DRIFT], rel=1e-4)
    assert found.reward == moved.reward
    assert found.metrics["drift/weight_distance"] == pytest.approx(
        moved.drift["drift/weight_distance"], rel=1e-4
    )


def test_weights_come_back_when_an_evaluation_fails(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_of(chosen := settings(world, LOW))
    nudged(agent)
    weights = fingerprint(agent.sets.sets["policy"])

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no evaluation")

    monkeypatch.setattr("tether.train.after.evaluate", fails)
    with pytest.raises(RuntimeError, match="no evaluation"):
        list(interpolation(agent, chosen.after, 1))
    assert fingerprint(agent.sets.sets["policy"]) == weights


class PowerCut(BaseException):
    pass


def test_cut_between_the_points_and_resumed(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reward reads global generators: what is repeated must be repeated with their seeds."""
    from tether.train import after

    whole = run(settings(world, SHORT, ALL, name="whole"))
    real = after.write_point
    for left in (0, 7, 30):
        count = left

        def cut(*args: Any) -> None:
            nonlocal count
            if count == 0:
                raise PowerCut
            count -= 1
            real(*args)

        chosen = settings(world, SHORT, ALL, name=f"cut{left}")
        with monkeypatch.context() as m, pytest.raises(PowerCut):
            m.setattr(after, "write_point", cut)
            run(chosen)
        folder = Path(chosen.root) / chosen.name
        assert sum(x["kind"] == "baseline" for x in lines(folder)) == left
        run(chosen, resume=True)
        assert numbers_of(folder) == numbers_of(whole)


def test_killed_in_the_middle_and_resumed(world: Path, tmp_path: Path) -> None:
    """kill -9 of a real process once baselines stand in its record."""
    from tether.config.settings import dump

    many = {"after": {"shares": [i / 20 for i in range(21)]}}
    chosen = settings(world, SHORT, ALL, many, name="killed")
    write_yaml(tmp_path / "run.yaml", dump(chosen))
    folder = Path(chosen.root) / "killed"
    p = start("train", "--config", str(tmp_path / "run.yaml"), output=tmp_path / "log")
    record, deadline = folder / "record.jsonl", time.monotonic() + 200
    while time.monotonic() < deadline and p.poll() is None:
        if record.exists() and record.read_bytes().count(b'"interpolation"') >= 3:
            p.send_signal(signal.SIGKILL)
            break
        time.sleep(0.001)
    assert p.wait() == -signal.SIGKILL
    assert b'"kind": "end"' not in record.read_bytes()
    run(chosen, resume=True)
    assert numbers_of(folder) == numbers_of(run(settings(world, SHORT, ALL, many, name="alive")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"after": {"shares": [0.5, 1.5]}}, r"after.shares in a test is \[0.5, 1.5\], must be"),
        ({"after": {"shares": []}}, "after.shares"),
        ({"after": {"how": []}}, "after.how in a test is empty"),
        ({"after": {"how": ["cubic"]}}, "cubic"),
        ({"after": {"oracle": True, "samples": 15}}, "needs at least 16"),
        ({"after": {"samples": 64}}, "after.samples in a test has no effect: after.best_of_n and"),
        ({"after": {"oracle": True, "shares": [0.5]}}, "no effect: after.interpolate is off"),
        ({"after": {"samples": 1}}, "after.samples in a test is 1, must be at least 2"),
        ({"after": {"interpolate": True, "how": ["product"]}}, "product is for adapters"),
        ({"after": {"oracle": True, "split": "test"}}, "evaluation.test_prompts is 0"),
        (
            {"after": {"best_of_n": True}, "evaluation": {"sampling": {"greedy": True}}},
            "evaluation.sampling.greedy in a test: greedy completions of a prompt are all the same",
        ),
    ],
)
def test_what_cannot_work_is_refused(change: dict[str, Any], message: str, world: Path) -> None:
    with pytest.raises(UserError, match=message):
        settings(world, change)


def test_too_few_scores_for_the_oracle(world: Path) -> None:
    agent = agent_of(chosen := settings(world, LOW, after={"best_of_n": True, "samples": 4}))
    with pytest.raises(UserError, match="no prompt has 16 completions with a score"):
        baselines(agent, replace(chosen.after, best_of_n=False, oracle=True))


def test_rewards_that_say_nothing_lose_no_run(tmp_path: Path) -> None:
    """A baseline that cannot be had is a note; the export and the end line stand."""
    here = make_world(tmp_path)
    silent = {"reward": {"kind": "function", "function": f"{REWARDS}:silent", "missing": "drop"}}
    wanted = {"after": {"oracle": True, "samples": 16}}
    chosen = settings(here, SHORT, wanted, rewards=silent)
    folder = run(replace(chosen, checkpoint=replace(chosen.checkpoint, export=True)))
    end = lines(folder)[-1]
    assert end["kind"] == "end" and (folder / "policy" / "config.json").is_file()
    assert any("got a score: no baseline" in note for note in end["notes"]["agent"])
    assert not points(folder, "oracle")


def test_best_of_n_without_a_reward_is_refused(world: Path) -> None:
    none = {"algorithm": {"kind": "supervised", "lr": 1e-3}, "after": {"best_of_n": True}}
    from tests.runs_for_tests import mapping
    from tether.config.settings import parse

    whole = mapping(world, none, rewards={}, name="none")
    whole["algorithm"] = {"kind": "supervised", "lr": 1e-3}
    whole["rewards"] = {}
    chosen = parse(whole, "a test")
    with pytest.raises(UserError, match="choose completions by their reward, and there is none"):
        run(chosen)
