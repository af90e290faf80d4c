"""One contract for every tether in the catalog."""

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
from safetensors.torch import load, save
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from tests.contracts.examples import SETS, experience, minibatch, scores, spoiled
from tether.config.catalog import CATALOG
from tether.config.catalog import load as load_kind
from tether.core.masking import local
from tether.tethers.base import Tether
from tether.tethers.controllers import RL4LMs, Ziegler
from tether.tethers.elastic_pull import ElasticPull
from tether.tethers.elastic_reset import ElasticReset
from tether.tethers.ema_anchor import EMAAnchor
from tether.tethers.kl import KLPenalty
from tether.tethers.kl_loss import KLLoss
from tether.tethers.min_length import MinLength
from tether.tethers.penalty import Follower
from tether.tethers.ref_sync import RefSync
from tether.tethers.reset_to_ema import ResetToEMA
from tether.tethers.reset_to_init import ResetToInit
from tether.tethers.triggers import AllOf, AnyOf, DriftBudget, Every, Plateau
from tether.types import (
    Clock,
    Experience,
    Measured,
    Move,
    Scores,
    Targets,
    WeightEvent,
)

FOLDER = Path(inspect.getfile(Tether)).parent
NAMES = sorted(CATALOG["tether"])
MAKE: dict[str, Any] = {name: load_kind("tether", name) for name in NAMES} | {
    "kl, ziegler": lambda: KLPenalty(coef=0.2, controller=Ziegler(target=1.0, horizon=500.0)),
    "kl, rl4lms, ema": lambda: KLPenalty(controller=RL4LMs(), reference="ema", estimator="k2"),
    "kl, exact": lambda: KLPenalty(estimator="exact"),
    "kl, k3, model": lambda: KLPenalty(estimator="k3", model="some/folder"),
    "elastic_reset, half-life": lambda: ElasticReset(
        Every(3), Every(2, "minibatch"), half_life=50.0, optimizer="clear", controllers="clear"
    ),
    "elastic_reset, epochs": lambda: ElasticReset(
        AnyOf((Every(5, start=6), DriftBudget(0.5))), Every(1, "epoch"), 0.9
    ),
    "reset_to_init, all of": lambda: ResetToInit(AllOf((Every(3), Plateau(patience=2)))),
    "elastic_reset, budget, layers": lambda: ElasticReset(
        DriftBudget(0.5), decay=0.5, layers=("*.h.0.*",)
    ),
    "reset_to_init, half way": lambda: ResetToInit(Every(2), layers=("*.h.0.*",), by=0.5),
    "reset_to_ema, budget": lambda: ResetToEMA(DriftBudget(0.5), Every(1, "epoch"), 0.7),
    "ema_anchor, half-life, exact": lambda: EMAAnchor(
        0.2, Ziegler(target=1.0, horizon=500.0), "exact", Every(1, "epoch"), half_life=4.0
    ),
    "ema_anchor, for others": lambda: EMAAnchor(0.0),
    "ref_sync": lambda: RefSync(every=Every(3, "minibatch")),
    "ref_sync, hard, clear": lambda: RefSync(
        0.1, every=Plateau(patience=2), by=1.0, optimizer="clear"
    ),
    "elastic_pull, an epoch, layers": lambda: ElasticPull(0.5, Every(2, "epoch"), ("*.h.0.*",)),
    "kl_loss, exact": lambda: KLLoss(estimator="exact"),
    "kl_loss, ziegler, ema": lambda: KLLoss(
        controller=Ziegler(target=1.0, horizon=500.0), reference="ema"
    ),
    "kl_loss, model": lambda: KLLoss(model="some/folder"),
    "min_length, own stops": lambda: MinLength(3, (1, 2)),
}
CASES = pytest.mark.parametrize("name", list(MAKE))


def met(name: str) -> Tether:
    tether: Tether = MAKE[name]()
    tether.meet((1,))
    return tether


def ticks(tether: Tether, first: int, last: int, clock: Clock) -> tuple[list[Any], Clock]:
    """Updates of 2 epochs x 2 minibatches, with measurements that wander; all wishes in order."""
    out: list[Any] = []
    measured = Measured()
    for update in range(first, last):
        wave = 0.4 + 0.4 * ((7 * update) % 5) / 4
        for key in ("kl/initial", "kl/ema", "kl/reference", "drift/kl_initial"):
            for unit in ("k1_nats_per_seq", "k1_nats_per_token", "exact_nats_per_seq"):
                measured[f"{key}.{unit}"] = (wave, update)
        measured["reward/score.mean"] = (wave / 2, update)
        measured["rollout/sequences"] = (64.0, update)
        for unit in (
            "minibatch",
            "minibatch",
            "epoch",
            "minibatch",
            "minibatch",
            "epoch",
            "update",
        ):
            clock = clock.tick(unit)  # type: ignore[arg-type]
            out += [(unit, w) for w in tether.after(unit, clock, measured)]  # type: ignore[arg-type]
    return out, clock


def through_files(state: Any) -> Any:
    """A state as a checkpoint brings it back: JSON, tensors through safetensors."""
    if isinstance(state, Tensor):
        return load(save({"x": state.contiguous()}))["x"]
    if isinstance(state, dict):
        assert all(isinstance(k, str) for k in state)
        return {k: through_files(v) for k, v in state.items()}
    if isinstance(state, list):
        return [through_files(v) for v in state]
    assert state is None or isinstance(state, bool | int | float | str), f"not storable: {state!r}"
    return json.loads(json.dumps(state))


def test_every_tether_is_in_the_catalog() -> None:
    known = set(CATALOG["tether"].values())
    for file in FOLDER.glob("*.py"):
        module = importlib.import_module(f"tether.tethers.{file.stem}")
        for name, thing in vars(module).items():
            own = inspect.isclass(thing) and thing.__module__ == module.__name__
            if own and issubclass(thing, Tether) and not thing.__subclasses__():
                assert f"{module.__name__}:{name}" in known, f"{name} is not in the catalog"


@CASES
def test_source_and_settings_are_documented(name: str) -> None:
    cls = type(met(name))
    assert "Source:" in (cls.__doc__ or "")
    assert "Source:" in (sys.modules[cls.__module__].__doc__ or "")
    tree = ast.parse(inspect.getsource(cls)).body[0]
    assert isinstance(tree, ast.ClassDef)
    for setting, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(setting, ast.AnnAssign) and "ClassVar" not in ast.unparse(setting):
            assert isinstance(following, ast.Expr), f"no doc under {ast.unparse(setting)}"
            assert isinstance(following.value, ast.Constant)


@CASES
def test_settings_cannot_be_assigned_twice(name: str) -> None:
    tether = met(name)
    for f in fields(tether):
        with pytest.raises(AttributeError, match="is a setting"):
            setattr(tether, f.name, getattr(tether, f.name))


@CASES
def test_hooks_are_pure(name: str) -> None:
    tether, e = met(name), experience()
    targets = Targets(torch.ones_like(e.rewards), None, e.mask)
    mb, fresh = minibatch(e, targets), scores(7)
    before = json.dumps(tether.state_dict())
    for _ in range(2):
        assert tether.keeps() == tether.keeps()
        assert dict(tether.reads()) == dict(tether.reads())
        assert dict(tether.sources()) == dict(tether.sources())
        assert tether.report(e, local) == tether.report(e, local)
        tether.own_text(Clock(), None)
        tether.loss(mb, fresh)
        added = tether.reward(e)
        if added is not None:
            assert torch.equal(added, tether.reward(e))  # type: ignore[arg-type]
    assert json.dumps(tether.state_dict()) == before


@CASES
def test_reward_reads_and_writes_real_tokens_only(name: str) -> None:
    tether, e = met(name), experience()
    added = tether.reward(e)
    if added is None:
        idle = isinstance(tether, Follower) and tether.coef == 0
        assert "reward" not in tether.acts_on or idle
        return
    assert "reward" in tether.acts_on
    assert added.shape == e.rewards.shape
    assert (added[~e.mask] == 0).all() and (added[e.mask] != 0).any()
    for by in (1e9, float("nan")):
        assert torch.equal(added, tether.reward(spoiled(e, by)))  # type: ignore[arg-type]
    assert tether.report(e, local) == tether.report(spoiled(e, -1e9), local)


def loss_and_gradient(
    tether: Tether, e: Experience, fresh: Scores
) -> tuple[list[Tensor], list[Tensor]] | None:
    """Value and metrics; the gradients with respect to what the scoring pass gives."""
    targets = Targets(torch.ones_like(e.rewards), None, e.mask)
    out = tether.loss(minibatch(e, targets), fresh)
    if out is None:
        return None
    given = [fresh.free_logprobs, *fresh.exact_kl.values()]
    grads = torch.autograd.grad(out.loss, given, allow_unused=True)
    assert all(m.shape == () and not m.requires_grad for m in out.metrics.values())
    return [out.loss.detach(), *out.metrics.values()], [g for g in grads if g is not None]


@CASES
def test_loss_reads_real_tokens_only(name: str) -> None:
    """Loss, metrics and gradient; NaN outside the mask changes nothing (invariant 4)."""
    tether, e = met(name), experience()
    fresh = scores(7, grad=True)
    want = loss_and_gradient(tether, e, fresh)
    assert (want is not None) == ("loss" in tether.acts_on and tether.own_data() is None
                                  and not tether.remembers_texts)  # fmt: skip
    if want is None:
        return
    assert any(bool(g.any()) for g in want[1]), "nothing trains"
    assert all(not g[~e.mask].any() for g in want[1]), "what is masked trains"
    for by in (1e9, float("nan")):
        dirty = replace(
            fresh,
            **{k: torch.where(e.mask, v, by).detach().requires_grad_()
               for k, v in (("free_logprobs", fresh.free_logprobs), ("logprobs", fresh.logprobs))},
            exact_kl={k: torch.where(e.mask, v, by).detach().requires_grad_()
                      for k, v in fresh.exact_kl.items()},
        )  # fmt: skip
        have = loss_and_gradient(tether, spoiled(e, by), dirty)
        assert have is not None
        assert all(map(torch.equal, want[0], have[0])) and all(map(torch.equal, want[1], have[1]))


@CASES
def test_losses_of_microbatches_add(name: str) -> None:
    tether, e, fresh = met(name), experience(), scores(7)
    mb = minibatch(e, Targets(torch.ones_like(e.rewards), None, e.mask))
    whole = tether.loss(mb, fresh)
    if whole is None:
        return
    parts = [tether.loss(mb.rows(i), fresh.rows(i)) for i in torch.arange(3).split(1)]
    assert float(sum(p.loss for p in parts if p)) == pytest.approx(float(whole.loss), abs=1e-6)
    for k, v in whole.metrics.items():
        assert float(sum(p.metrics[k] for p in parts if p)) == pytest.approx(float(v), abs=1e-6)


@CASES
def test_state_round_trip(name: str) -> None:
    """Memory goes through files, and the copy behaves like the original ever after."""
    one, other = met(name), met(name)
    _, clock = ticks(one, 0, 7, Clock())
    state = through_files(one.state_dict())
    other.load_state_dict(state)
    assert through_files(other.state_dict()) == state
    rest, _ = ticks(one, 7, 30, clock)
    again, _ = ticks(other, 7, 30, clock)
    assert rest == again
    assert one.state_dict() == other.state_dict()
    with pytest.raises(ValueError, match="checkpoint"):
        other.load_state_dict({**state, "unknown": 1})


@CASES
def test_moves_name_declared_sets(name: str) -> None:
    tether = met(name)
    wishes, _ = ticks(tether, 0, 30, Clock())
    moves: list[Move] = []
    for unit, wish in wishes:
        if isinstance(wish, WeightEvent):
            assert unit == "update", "an event belongs between updates"
            cleared = "clear" in (wish.optimizer, wish.critic, wish.controllers)
            seen = any(m.what == "policy" for m in wish.moves) or cleared
            assert wish.reason and seen, "nothing that needs both sides"
            moves += wish.moves
        else:
            moves.append(wish)
    for move in moves:
        assert move.what in {"policy", *tether.keeps()}, f"{name} moves {move.what}"
        assert move.toward in {"policy", "initial", *tether.keeps()}
        assert not isinstance(move.by, float | int) or 0 <= move.by <= 1
    own = any(m.what == "policy" for m in moves)
    assert own == ("weights" in tether.acts_on), "acts_on: weights = it moves the policy"
    assert bool(moves) or not tether.keeps() or tether.sources(), "keeps a set that never moves"
    assert set(tether.sources()) <= set(tether.keeps())
    assert set(tether.keeps()).isdisjoint({"policy", "initial", "critic", "data"})
    assert set(tether.reads()) <= {"policy", *SETS}


@CASES
def test_allow_needs_no_value_on_the_host(name: str) -> None:
    tether = met(name)
    sampling = [k for k, depth in tether.reads().items() if depth == "sampling"]
    assert bool(sampling) == ("sampling" in tether.acts_on)
    if not sampling:
        return
    with FakeTensorMode():
        logits = {k: torch.empty(5, 8) for k in sampling}
        fake = tether.allow(logits, torch.empty(5, dtype=torch.long))
        assert fake.shape == (5, 8) and fake.dtype == torch.bool
    torch.manual_seed(0)
    real = tether.allow({k: torch.randn(5, 8) for k in sampling}, torch.arange(5))
    assert real.any(1).all(), "a rule must leave something legal"


@CASES
def test_restart_is_the_start_of_controllers(name: str) -> None:
    """Where memory says how the tether acts on rewards, `restart` brings back the start."""
    tether, e = met(name), experience()
    first = tether.reward(e)
    ticks(tether, 0, 9, Clock())
    tether.restart()
    if first is not None:
        assert torch.equal(first, tether.reward(e))  # type: ignore[arg-type]


def test_the_contract_refuses_what_it_should() -> None:
    """A rule that looks at a value cannot pass; so the fake-tensor check can fail."""

    def looks(logits: Tensor, position: Tensor) -> Tensor:
        return logits > 0 if position.max() < 2 else logits < 0

    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        looks(torch.empty(5, 8), torch.empty(5, dtype=torch.long))
    with pytest.raises(AssertionError, match="not storable"):
        through_files({"x": (1, 2)})
