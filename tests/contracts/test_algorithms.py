"""One contract for every algorithm in the catalog."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.examples import MASK, experience, minibatch, scores, spoiled
from tether.algorithms.base import Algorithm
from tether.algorithms.ppo import PPO
from tether.config.catalog import CATALOG
from tether.config.catalog import load as load_kind
from tether.core.masking import local
from tether.types import Experience, LossOutput, Minibatch, Scores, Targets

FOLDER = Path(inspect.getfile(Algorithm)).parent
NAMES = sorted(CATALOG["algorithm"])
MAKE: dict[str, Any] = {name: load_kind("algorithm", name) for name in NAMES} | {
    "ppo, all on": lambda: PPO(
        gamma=0.9,
        clip_range_value=0.2,
        ent_coef=0.01,
        target_kl=0.1,
        truncated="bootstrap",
        average="sequences",
    ),
}
CASES = pytest.mark.parametrize("name", list(MAKE))
PIECES = ("logprobs", "free_logprobs", "entropy", "values")


def prepared(algorithm: Algorithm, e: Experience) -> Minibatch:
    targets = algorithm.advantages(e, local)
    return algorithm.prepare(minibatch(e, targets, algorithm.average), local)


def only_needed(algorithm: Algorithm, s: Scores) -> Scores:
    """What was not asked for raises when read."""
    values = s.values if algorithm.needs_values else None
    last = s.last_value if algorithm.needs_values else None
    entropy = s.entropy if algorithm.needs_entropy else None
    return replace(s, values=values, last_value=last, entropy=entropy)


def gradients(out: LossOutput, fresh: Scores, algorithm: Algorithm) -> list[torch.Tensor]:
    needed = ["logprobs", "free_logprobs"]
    needed += ["entropy"] if algorithm.needs_entropy else []
    needed += ["values"] if algorithm.needs_values else []
    inputs = [getattr(fresh, k) for k in needed]
    found = torch.autograd.grad(out.loss, inputs, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def test_every_algorithm_is_in_the_catalog() -> None:
    known = set(CATALOG["algorithm"].values())
    for file in FOLDER.glob("*.py"):
        module = importlib.import_module(f"tether.algorithms.{file.stem}")
        for name, thing in vars(module).items():
            own = inspect.isclass(thing) and thing.__module__ == module.__name__
            if own and issubclass(thing, Algorithm) and thing is not Algorithm:
                assert f"{module.__name__}:{name}" in known, f"{name} is not in the catalog"


@CASES
def test_source_and_settings_are_documented(name: str) -> None:
    cls = type(MAKE[name]())
    assert "Source:" in (cls.__doc__ or "")
    assert "Source:" in (sys.modules[cls.__module__].__doc__ or "")
    for part in (cls, Algorithm):
        tree = ast.parse(inspect.getsource(part)).body[0]
        assert isinstance(tree, ast.ClassDef)
        for setting, following in zip(tree.body, [*tree.body[1:], None], strict=True):
            if isinstance(setting, ast.AnnAssign) and "ClassVar" not in ast.unparse(setting):
                assert isinstance(following, ast.Expr), f"no doc under {ast.unparse(setting)}"


@CASES
def test_settings_cannot_be_assigned_twice(name: str) -> None:
    algorithm = MAKE[name]()
    for f in fields(algorithm):
        with pytest.raises(AttributeError, match="is a setting"):
            setattr(algorithm, f.name, getattr(algorithm, f.name))


@CASES
def test_state_round_trip(name: str) -> None:
    one, other, e = MAKE[name](), MAKE[name](), experience()
    for _ in range(3):
        one.advantages(e, local)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert one.state_dict() == other.state_dict()
    a, b = one.advantages(e, local), other.advantages(e, local)
    assert torch.equal(a.advantages, b.advantages)


@CASES
def test_prepare_loss_and_stop_are_pure_and_use_what_they_declare(name: str) -> None:
    algorithm, e = MAKE[name](), experience()
    e = replace(e, old=only_needed(algorithm, e.old))
    fresh = only_needed(algorithm, scores(9, grad=True))
    mb = prepared(algorithm, e)
    before = json.dumps(algorithm.state_dict())
    one, two = algorithm.loss(mb, fresh), algorithm.loss(mb, fresh)
    assert torch.equal(one.loss, two.loss) and one.loss.shape == ()
    assert set(one.metrics) and all(
        m.shape == () and not m.requires_grad and torch.isfinite(m) for m in one.metrics.values()
    )
    assert not algorithm.stop(dict.fromkeys(one.metrics, 0.0))
    assert json.dumps(algorithm.state_dict()) == before
    assert (mb.targets.mask <= e.mask).all(), "trains a token that is not real"


@CASES
def test_masked_values_change_nothing(name: str) -> None:
    """Loss, gradient, metrics and targets of real tokens (invariant 4)."""
    algorithm = MAKE[name]()
    seen = []
    for by in (0.0, 1e9, -1e9, float("nan")):
        e = spoiled(experience(), by)
        fresh = scores(9, grad=True)
        mb = prepared(algorithm, e)
        out = algorithm.loss(mb, fresh)
        values = [out.loss.detach(), *out.metrics.values(), *gradients(out, fresh, algorithm)]
        seen.append([*values, mb.targets.advantages[mb.targets.mask]])
    for other in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], other, strict=True))


@CASES
def test_microbatches_add(name: str) -> None:
    """Loss, metrics and gradient do not depend on the cut (invariant 5)."""
    algorithm, fresh = MAKE[name](), scores(9, grad=True)
    mb = prepared(algorithm, experience())
    whole = algorithm.loss(mb, fresh)
    parts = [algorithm.loss(mb.rows(i), fresh.rows(i)) for i in torch.arange(3).split(1)]
    total = LossOutput(sum(p.loss for p in parts))  # type: ignore[arg-type]
    assert torch.allclose(total.loss, whole.loss, atol=1e-6)
    for key, value in whole.metrics.items():
        assert float(sum(p.metrics[key] for p in parts)) == pytest.approx(float(value), abs=1e-6)
    at_once, in_parts = gradients(whole, fresh, algorithm), gradients(total, fresh, algorithm)
    for a, b in zip(at_once, in_parts, strict=True):
        assert torch.allclose(a, b, atol=1e-6)
    assert any(bool(g.any()) for g in at_once), "nothing trains"


@CASES
def test_nothing_to_train_is_a_zero_step(name: str) -> None:
    algorithm, fresh = MAKE[name](), scores(9, grad=True)
    e = experience()
    nothing = replace(e.rollout, sampled=torch.zeros_like(MASK))
    mb = prepared(algorithm, replace(e, rollout=nothing))
    out = algorithm.loss(mb, fresh)
    assert float(out.loss.detach()) == 0 and out.loss.requires_grad
    assert all(float(m) == 0 for m in out.metrics.values())
    assert not any(bool(g.any()) for g in gradients(out, fresh, algorithm))


class _Log:
    """A learner that writes down what an algorithm does."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.calls: list[str] = []
        self.stop_at = stop_at

    def minibatches(self, count: int, e: Experience, t: Targets, epoch: int) -> Any:
        return iter([None] * count)

    def accumulate(self, mb: Any) -> dict[str, float]:
        self.calls.append("accumulate")
        taken = self.calls.count("accumulate")
        return {"kl_old.k3_nats_per_token": 1e9 if taken == self.stop_at else 0.0}

    def step(self) -> None:
        self.calls.append("step")

    def discard(self) -> None:
        self.calls.append("discard")

    def epoch_done(self) -> None:
        self.calls.append("epoch")


@CASES
def test_update_is_epochs_times_minibatches(name: str) -> None:
    algorithm, log, e = MAKE[name](), _Log(), experience()
    algorithm.update(log, e, algorithm.advantages(e, local))
    assert log.calls.count("step") == algorithm.epochs * algorithm.minibatches
    assert log.calls.count("epoch") == algorithm.epochs
    assert log.calls.count("discard") == 0


def test_an_early_stop_takes_no_half_step() -> None:
    algorithm, log, e = PPO(epochs=3, minibatches=2, target_kl=0.1), _Log(stop_at=4), experience()
    algorithm.update(log, e, algorithm.advantages(e, local))  # type: ignore[arg-type]
    assert log.calls == [
        *["accumulate", "step"] * 2, "epoch", "accumulate", "step", "accumulate", "discard"
    ]  # fmt: skip
