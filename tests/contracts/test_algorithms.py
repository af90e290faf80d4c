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
from tether.algorithms.a2c import A2C
from tether.algorithms.base import Algorithm
from tether.algorithms.filtered_supervised import FilteredSupervised
from tether.algorithms.grpo import GRPO
from tether.algorithms.ppo import PPO
from tether.algorithms.reinforce import Reinforce
from tether.algorithms.rloo import RLOO
from tether.config.catalog import CATALOG
from tether.config.catalog import load as load_kind
from tether.config.errors import UserError
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
    "a2c, all on": lambda: A2C(
        gae_lambda=0.9, ent_coef=0.1, normalize_advantages=True, truncated="bootstrap"
    ),
    "reinforce, learned": lambda: Reinforce(baseline="learned", ent_coef=0.1, gamma=0.9),
    "reinforce, decay": lambda: Reinforce(baseline_decay=0.5),
    "rloo, clipped": lambda: RLOO(clip_range=0.2, average="tokens"),
    "grpo, dr": lambda: GRPO(scale="none", constant_length=4),
    "grpo, dapo": lambda: GRPO(average="tokens", clip_range_high=0.28, drop_flat_groups=True),
    "grpo, gspo": lambda: GRPO(
        ratio="sequence", scale="batch", clip_range=0.003, truncated_importance=2.0
    ),
    "filtered, per prompt": lambda: FilteredSupervised(per_prompt=True, share=0.5),
}
CASES = pytest.mark.parametrize("name", list(MAKE))
PIECES = ("logprobs", "free_logprobs", "entropy", "values")


def made(algorithm: Algorithm) -> Experience:
    """Three completions of one prompt where the algorithm compares completions, else of three."""
    e = experience()
    if algorithm.group_size == 1:
        return e
    return replace(e, rollout=replace(e.rollout, group=torch.zeros(3, dtype=torch.long)))


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
    one, other = MAKE[name](), MAKE[name]()
    e = made(one)
    for _ in range(3):
        one.advantages(e, local)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert one.state_dict() == other.state_dict()
    a, b = one.advantages(e, local), other.advantages(e, local)
    assert torch.equal(a.advantages, b.advantages)


@CASES
def test_prepare_loss_and_stop_are_pure_and_use_what_they_declare(name: str) -> None:
    algorithm = MAKE[name]()
    e = made(algorithm)
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
    seen = []
    for by in (0.0, 1e9, -1e9, float("nan")):
        algorithm = MAKE[name]()
        e = spoiled(made(algorithm), by)
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
    mb = prepared(algorithm, made(algorithm))
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
    e = made(algorithm)
    nothing = replace(e.rollout, sampled=torch.zeros_like(MASK))
    mb = prepared(algorithm, replace(e, rollout=nothing))
    out = algorithm.loss(mb, fresh)
    assert float(out.loss.detach()) == 0 and out.loss.requires_grad
    assert all(float(m) == 0 for m in out.metrics.values())
    assert not any(bool(g.any()) for g in gradients(out, fresh, algorithm))


@CASES
def test_a_dropped_sample_is_as_if_it_had_not_been_drawn(name: str) -> None:
    """Its targets train nothing, and the others' are what they are without it (B15, B29)."""
    e = made(MAKE[name]())
    keep = torch.tensor([True, False, True])
    dropped = replace(e, rollout=replace(e.rollout, sampled=e.rollout.sampled & keep[:, None]))
    dropped = replace(dropped, rewards=torch.where(keep[:, None], e.rewards, 1e6))
    one, other = MAKE[name](), MAKE[name]()
    with_it = one.advantages(dropped, local)
    without = other.advantages(e.rows(keep.nonzero()[:, 0]), local)
    assert not with_it.mask[1].any()
    assert torch.equal(with_it.mask[keep], without.mask)
    a, b = with_it.advantages[keep], without.advantages
    assert torch.allclose(a[without.mask], b[without.mask])
    assert_close(one.state_dict(), other.state_dict())


def assert_close(a: Any, b: Any) -> None:
    """Equal but for the order of sums."""
    if isinstance(a, dict):
        assert set(a) == set(b)
        for k in a:
            assert_close(a[k], b[k])
    else:
        assert a == pytest.approx(b)


@CASES
def test_the_order_of_rows_is_of_no_account(name: str) -> None:
    e, order = made(MAKE[name]()), torch.tensor([2, 0, 1])
    straight = MAKE[name]().advantages(e, local)
    turned = MAKE[name]().advantages(e.rows(order), local)
    assert torch.equal(straight.mask[order], turned.mask)
    assert torch.allclose(straight.advantages[order], turned.advantages, atol=1e-6)


@CASES
def test_numbers_that_are_none_are_refused(name: str) -> None:
    made_one = MAKE[name]()
    for f in fields(made_one):
        if isinstance(getattr(made_one, f.name), float):
            for value in (float("nan"), float("inf")):
                with pytest.raises(UserError, match=rf"{f.name} must be a finite number"):
                    type(made_one)(**{f.name: value})


class _Log:
    """A learner that writes down what an algorithm does: vectors are one number, the Fisher matrix
    is 1, the loss falls at every look."""

    def __init__(self, stop_at: int | None = None, kl: float = 0.0) -> None:
        self.calls: list[str] = []
        self.log: dict[str, float] = {}
        self.stop_at, self.kl = stop_at, kl

    def whole(self, e: Experience, t: Targets) -> None:
        return None

    def minibatches(self, count: int, e: Experience, t: Targets, epoch: int) -> Any:
        return iter([None] * count)

    def accumulate(self, mb: Any, loss: Any = None, **_: Any) -> dict[str, float]:
        self.calls.append("accumulate")
        taken = self.calls.count("accumulate")
        return {
            "kl_old.k3_nats_per_token": 1e9 if taken == self.stop_at else 0.0,
            "loss": -float(taken),
        }

    def step(self, *, policy: bool = True) -> None:
        self.calls.append("step" if policy else "critic step")

    def stepped(self) -> None:
        self.calls.append("step")

    def discard(self) -> None:
        self.calls.append("discard")

    def epoch_done(self) -> None:
        self.calls.append("epoch")

    def note(self, metrics: dict[str, float]) -> None:
        self.log.update(metrics)

    def gradient(self) -> list[torch.Tensor]:
        return [torch.ones(1)]

    def fisher(self, mb: Any, vector: list[torch.Tensor]) -> list[torch.Tensor]:
        return [v.clone() for v in vector]

    def dot(self, a: Any, b: Any) -> float:
        return float(sum((x * y).sum() for x, y in zip(a, b, strict=True)))

    def weights(self) -> list[torch.Tensor]:
        return [torch.zeros(1)]

    def restore(self, weights: Any) -> None:
        self.calls.append("restore")

    def shift(self, direction: Any, by: float) -> None:
        self.calls.append("shift")

    def kl_from(self, old: Any, mb: Any) -> float:
        return self.kl


@CASES
def test_update_is_epochs_times_minibatches(name: str) -> None:
    algorithm, log = MAKE[name](), _Log()
    e = made(algorithm)
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
