"""Scoring passes that nobody needs are left out, and change nothing that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.runs_for_tests import final_state, make_world, metrics, run, settings
from tether.config.errors import UserError
from tether.core.weights import lerp_
from tether.models import scoring, weight_sets
from tether.models.recorded import Recorded, _States
from tether.train import collect as collecting

NO_DRIFT = {"evaluation": {"drift_every": 0}}
SAMPLED = {"batch": {"old_logprobs": "sampled"}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("passes"))


@pytest.fixture
def rows_scored(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each scoring pass of a rollout reads."""
    seen: list[int] = []
    real = collecting.score_all

    def count(lm: Any, s: Any, **k: Any) -> Any:
        seen.append(len(s.prompt))
        return real(lm, s, **k)

    monkeypatch.setattr(collecting, "score_all", count)
    return seen


@pytest.mark.parametrize("kind", ["ppo", "grpo"])
def test_sampled_log_probs_spare_the_pass_and_train_alike(
    world: Path, rows_scored: list[int], kind: str
) -> None:
    change = {"algorithm": {"kind": kind, **({"group_size": 2} if kind == "grpo" else {})}}
    plain = metrics(run(settings(world, change, name=f"scored-{kind}", updates=3)))
    whole = rows_scored.pop()
    assert len(rows_scored) == 5 and set(rows_scored) == {whole}  # policy and initial, three times
    rows_scored.clear()
    spared = metrics(run(settings(world, change, NO_DRIFT, SAMPLED, name=kind, updates=3)))
    few = settings(world, change).batch.microbatch
    # the first update scores everything: the self-check that KL starts at 0
    assert rows_scored == [whole, whole, min(few, whole), min(few, whole)]
    for a, b in zip(plain, spared, strict=True):
        assert b["engine/logprob_error.max"] < 1e-4
        for name in ("reward/score.mean", "update/loss", "update/grad_norm_policy"):
            assert b[name] == pytest.approx(a[name], rel=1e-3, abs=1e-5), name
    assert "kl/initial.k1_nats_per_seq" in spared[0]
    assert "kl/initial.k1_nats_per_seq" not in spared[1]
    assert "drift/kl_initial.k1_nats_per_seq" not in spared[1]


def test_a_wrong_engine_is_still_found(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    real = collecting.join

    def wrong(parts: Any, pad: int) -> Any:
        out = real(parts, pad)
        late = out.policy_version > 0
        return replace(out, logprobs=out.logprobs - 0.01) if late else out

    monkeypatch.setattr(collecting, "join", wrong)
    with pytest.raises(RuntimeError, match="engine and scoring disagree"):
        run(settings(world, NO_DRIFT, SAMPLED, name="wrong", updates=2))


def test_who_needs_the_pass_has_it(world: Path, rows_scored: list[int]) -> None:
    """A KL penalty, a drift budget, a critic on the policy's trunk."""
    kl = {"tethers": {"kl": {"kind": "kl", "coef": 0.1}}}
    budget = {"kind": "drift_budget", "budget": 50.0, "metric": "drift/kl_initial.k1_nats_per_seq"}
    reset = {"tethers": {"er": {"kind": "elastic_reset", "reset": budget}}}
    shared = {"critic": {"kind": "shared"}}
    for name, change, passes in (("kl", kl, 4), ("budget", reset, 4), ("shared", shared, 3)):
        rows_scored.clear()
        run(settings(world, change, NO_DRIFT, SAMPLED, name=f"needs-{name}", updates=2))
        assert len(rows_scored) == passes and len(set(rows_scored)) == 1, name


def test_recording_where_nothing_can_be_recorded_is_refused(world: Path) -> None:
    with pytest.raises(
        UserError, match=r"model\.capture cannot have an effect here: it needs CUDA"
    ):
        run(settings(world, {"model": {"capture": True}}, name="recorded"))


@pytest.mark.parametrize("lora", [None, {"rank": 2}])
def test_a_run_of_recorded_passes(world: Path, lora: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain passes in the place of recordings, whose gradients lie where the next pass writes: the
    numbers of a run that records nothing. fp32 weights, four microbatches a step."""
    places: dict[Tensor, Tensor] = {}

    def record(self: Recorded, sample: Any, grad: bool) -> Any:
        passes = _States(self._core.get_decoder(), self._layers)
        for p in passes.parameters():
            if p.requires_grad and p not in places:
                places[p] = torch.zeros_like(p)
                p.register_hook(places[p].copy_)  # a replay, before autograd adds
                p.register_post_accumulate_grad_hook(take)
        return passes

    def take(p: Tensor) -> None:
        """Autograd takes the recording's memory for the gradient, where there was none."""
        if p.grad is not None and p.grad.data_ptr() != places[p].data_ptr():
            p.grad = places[p].detach()

    monkeypatch.setattr(Recorded, "_why_not", lambda self, accepts: None)
    monkeypatch.setattr(Recorded, "_record", record)
    monkeypatch.setattr(scoring, "in_pieces", scoring.plain_head)
    found = []
    for capture in (False, True):
        change = {
            "model": {"capture": capture, "lora": lora, "dtype": "float32"},
            "batch": {"microbatch": 2},
            "algorithm": {"kind": "ppo", "minibatches": 1},
        }
        name = f"recorded-{capture}-{bool(lora)}"
        found.append(metrics(run(settings(world, change, SAMPLED, name=name, updates=2))))
    assert places
    for plain, quick in zip(*found, strict=True):
        for key in ("update/grad_norm_policy", "update/grad_norm_critic", "update/loss"):
            assert quick[key] == pytest.approx(plain[key], rel=1e-3), key


def test_compiled_layers_that_would_be_run_again_plain_are_refused(world: Path) -> None:
    both = {"model": {"compile": True, "gradient_checkpointing": True}}
    with pytest.raises(UserError, match="cannot stand beside model"):
        settings(world, both)


def test_drift_every_counts_updates_whatever_resets_count(world: Path) -> None:
    """A reset makes a new version of the policy; the updates between measurements stay."""
    reset = {"tethers": {"er": {"kind": "reset_to_init", "reset": {"kind": "every", "n": 1}}}}
    every = {"evaluation": {"drift_every": 2}}
    rows = metrics(run(settings(world, reset, every, name="every-two", updates=5)))
    measured = ["kl/initial.k1_nats_per_seq" in m for m in rows]
    assert measured == [True, False, True, False, True]


class Late:
    """An average that is taken when somebody waits for it, from the weights as they are then."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def takes(self, target: Any, source: Any, by: float) -> bool:
        return 0 < by < 1

    def start(self, target: Any, source: Any, by: float) -> None:
        self.finish()
        self.waiting = [(target, source, by)]

    def finish(self) -> None:
        waiting, self.waiting = self.waiting, []
        for target, source, by in waiting:
            lerp_(target, source, by)


def test_an_average_on_its_way_is_waited_for_before_masters_are_written(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = {
        "algorithm": {"kind": "ppo", "epochs": 2, "minibatches": 2},
        "tethers": {
            "er": {
                "kind": "elastic_reset",
                "average": {"kind": "every", "n": 1, "unit": "minibatch"},
                "decay": 0.5,
                "reset": {"kind": "every", "n": 2},
            }
        },
    }
    plain = final_state(run(settings(world, change, name="at-once", updates=2)))
    monkeypatch.setattr(weight_sets, "Overlap", Late)
    assert final_state(run(settings(world, change, name="late", updates=2))) == plain
