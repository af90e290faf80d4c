"""Settings of the kin of Elastic Reset: limits after a reset, layers, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.examples import experience
from tests.runs_for_tests import agent_of, lines, make_world, metrics, run, settings
from tether.config.errors import UserError
from tether.core.masking import local
from tether.tethers.elastic_pull import ElasticPull
from tether.tethers.elastic_reset import ElasticReset
from tether.tethers.ema_anchor import EMAAnchor
from tether.tethers.kl_loss import KLLoss
from tether.tethers.layers import Matching, where
from tether.tethers.ref_sync import RefSync
from tether.tethers.reset_to_ema import ResetToEMA
from tether.tethers.reset_to_init import ResetToInit
from tether.tethers.triggers import DRIFT, AllOf, AnyOf, DriftBudget, Every, budgets
from tether.types import Clock, Measured, Move, Until, WeightEvent

SEQ = "kl/initial.k1_nats_per_seq"
HUMAN = "drift/kl_initial_on_human.exact_nats_per_token"


# ---- the limit after a reset


@pytest.mark.parametrize(
    ("reset", "within", "limit"),
    [
        (Every(3), "half", None),
        (DriftBudget(4.0), "half", Until(DRIFT, 2.0)),
        (DriftBudget(4.0), "no_limit", None),
        (DriftBudget(4.0), 1.5, Until(DRIFT, 1.5)),
        (Every(3), 1.5, Until(DRIFT, 1.5)),
        (DriftBudget(4.0, SEQ), "half", Until(DRIFT, 2.0)),
        (DriftBudget(0.2, HUMAN), "half", Until(HUMAN, 0.1)),
        (DriftBudget(0.2, HUMAN), 0.05, Until(HUMAN, 0.05)),
        (AnyOf((Every(3), AllOf((Every(2), DriftBudget(3.0))))), "half", Until(DRIFT, 1.5)),
        (AnyOf((DriftBudget(3.0), DriftBudget(0.2, HUMAN))), 1.0, Until(DRIFT, 1.0)),
    ],
)
def test_how_far_the_policy_may_be_after_a_reset(reset: Any, within: Any, limit: Any) -> None:
    assert ElasticReset(reset, within=within).limit() == limit


def test_a_budget_resets_to_part_of_the_average() -> None:
    tether = ElasticReset(DriftBudget(4.0), decay=0.9, layers=("*.1.*",))
    measured = Measured({DRIFT: (3.5, 0)})
    assert len(list(tether.after("update", Clock(update=1), measured))) == 1
    measured[DRIFT] = (4.75, 1)
    _, event = tether.after("update", Clock(update=2), measured)
    assert isinstance(event, WeightEvent)
    second = Matching(("*.1.*",))
    assert event.moves == (
        Move("policy", "initial", 1.0, second),
        Move("policy", "ema", Until(DRIFT, 2.0), second),
        Move("ema", "initial", 1.0, second),
    )
    assert event.reason == (
        f"{DRIFT} 4.75 > 4, passed by 0.75 since a measurement of 3.5;"
        " 2 averagings since the last reset"
    )
    assert ResetToEMA(DriftBudget(4.0)).moves() == ElasticReset(DriftBudget(4.0)).moves()[:2]
    assert [b.budget for b in budgets(AnyOf((DriftBudget(1.0), AllOf((DriftBudget(2.0),
            Every())))))] == [1.0, 2.0]  # fmt: skip


# ---- refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ElasticReset(within=0.0), "elastic_reset.within must be > 0, not 0"),
        (
            lambda: ResetToEMA(AnyOf((DriftBudget(1.0), DriftBudget(2.0)))),
            "reset_to_ema.within: reset_to_ema.reset holds 2 drift budgets",
        ),
        (
            lambda: ElasticReset(DriftBudget(1.0, "kl/ema.k1_nats_per_seq")),
            "half of a budget on kl/ema.k1_nats_per_seq cannot be measured",
        ),
        (lambda: ResetToEMA(decay=2.0), r"reset_to_ema: decay must be in \[0, 1\], not 2"),
        (lambda: ResetToInit(by=0.0), r"reset_to_init.by must be in \(0, 1\], not 0"),
        (lambda: ElasticPull(0.0), r"elastic_pull.by must be in \(0, 1\), not 0"),
        (lambda: ElasticPull(1.0), r"elastic_pull.by must be in \(0, 1\), not 1"),
        (lambda: RefSync(by=0.0), r"ref_sync.by must be in \(0, 1\], not 0"),
        (lambda: RefSync(coef=-1.0), "ref_sync.coef must be >= 0"),
        (lambda: EMAAnchor(decay=0.5, half_life=3.0), "ema_anchor: decay or half_life, not both"),
        (lambda: EMAAnchor(estimator="k4"), "ema_anchor.estimator is k1, k2, k3 or exact"),  # type: ignore[arg-type]
        (lambda: KLLoss(coef=0.0), "kl_loss.coef is 0: it would do nothing"),
        (lambda: KLLoss(estimator="k1"), "its gradient is 0 on average"),  # type: ignore[arg-type]
        (lambda: KLLoss(estimator="k3"), "that of the other divergence"),  # type: ignore[arg-type]
        (lambda: KLLoss(reference="policy"), "kl_loss.reference is the policy itself"),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


# ---- layers


def test_a_pattern_fits_the_whole_name() -> None:
    chosen = where(("*.h.1.*", "wte.*"))
    assert chosen is not None and where(()) is None
    names = ["transformer.h.1.mlp.w", "transformer.h.10.mlp.w", "wte.weight", "x.wte.weight"]
    assert [chosen(n) for n in names] == [True, False, True, False]


# ---- in a run


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("kin"))


def refused(world: Path, message: str, *changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=message) as e:
        agent_of(settings(world, *changes))
    assert "\n" not in str(e.value)


EVERY = {"kind": "every", "n": 2}


@pytest.mark.parametrize("lora", [None, {"rank": 2}])
@pytest.mark.parametrize(
    "tether",
    [
        {"kind": "reset_to_init", "reset": EVERY},
        {"kind": "elastic_reset", "reset": EVERY},
        {"kind": "reset_to_ema", "reset": EVERY},
        {"kind": "elastic_pull"},
    ],
    ids=lambda t: t["kind"],
)
def test_a_pattern_that_fits_nothing_is_refused(world: Path, tether: Any, lora: Any) -> None:
    change = {"model": {"lora": lora}, "tethers": {"mine": {**tether, "layers": ["*.h.9.*"]}}}
    refused(world, r"tethers.mine.layers '\*.h.9.\*' fits none of the \d+ parameters", change)


def test_chosen_layers_of_a_model_fall_back(world: Path) -> None:
    reset = {"kind": "reset_to_init", "reset": EVERY, "layers": ["*.h.1.*", "*wte*"]}
    folder = run(settings(world, tethers={"reset": reset}, updates=2, name="layers"))
    state = load(folder)
    for name, w in state["policy"].items():
        same = torch.equal(w, state["initial"][name])
        assert same == (".h.1." in name or "wte" in name), name


def load(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    """set -> parameter -> weights of the newest checkpoint."""
    from safetensors.torch import load_file

    newest = sorted((folder / "checkpoints").glob("update_*"))[-1]
    out: dict[str, dict[str, torch.Tensor]] = {}
    for key, t in load_file(newest / "tensors.safetensors").items():
        *_, rest = key.partition("sets/tensors/")
        if rest and "buffer:" not in rest:
            name, _, parameter = rest.partition("/")
            out.setdefault(name, {})[parameter] = t
    return out


@pytest.mark.parametrize("kind", ["ref_sync", "ema_anchor"])
def test_a_follower_that_nobody_reads_is_refused(world: Path, kind: str) -> None:
    name = {"ref_sync": "reference", "ema_anchor": "anchor"}[kind]
    mine = {"kind": kind, "coef": 0.0}
    mine |= {"every": EVERY} if kind == "ref_sync" else {}
    refused(world, f"tethers.mine keeps the weight set '{name}' and nothing reads it",
            {"tethers": {"mine": mine}})  # fmt: skip
    loss = {"kind": "kl_loss", "reference": name}
    agent = agent_of(settings(world, {"tethers": {"mine": mine, "loss": loss}}))
    assert agent.tethers["mine"].report(experience(), local)["coef"] == 0
    # and with an algorithm that sees no reward the loss still reads it
    sft = {"algorithm": {"kind": "supervised"}, "rewards": {"reward": None}}
    exact = {"tethers": {"mine": mine, "loss": {**loss, "estimator": "exact"}}}
    agent_of(settings(world, sft, exact))
    refused(world, "tethers.mine acts on reward only", sft, {"tethers": {"mine": {**mine,
            "coef": 0.1}}})  # fmt: skip


def test_a_sampled_kl_loss_on_demonstrations_is_refused(world: Path) -> None:
    sft = {"algorithm": {"kind": "supervised"}, "rewards": {"reward": None}}
    refused(world, "tethers.mine is right along the policy's own samples only", sft,
            {"tethers": {"mine": {"kind": "kl_loss"}}})  # fmt: skip


def test_prorl_clears_the_moments_and_is_seen(world: Path) -> None:
    sync = {"kind": "ref_sync", "every": EVERY, "by": 1.0, "optimizer": "clear"}
    folder = run(settings(world, tethers={"sync": sync}, updates=4, name="prorl"))
    events = [x for x in lines(folder) if x["kind"] == "event"]
    assert [(e["update"], e["optimizer"], e["reason"]) for e in events] == [
        (2, "clear", "2 updates"), (4, "clear", "4 updates"),
    ]  # fmt: skip
    kl = [m["kl/reference.k1_nats_per_seq"] for m in metrics(folder)]
    assert kl[0] == 0 and abs(kl[1]) > 1e-6 and kl[2] == 0, "the reference is the policy after 2"
    state = load(folder)
    assert all(torch.equal(w, state["policy"][n]) for n, w in state["reference"].items())


def test_an_adaptive_coefficient_follows_an_exact_kl_to_any_set(world: Path) -> None:
    """The controller's reading exists although the set is scored as a whole distribution."""
    kl = {
        "kind": "kl", "coef": 0.1, "estimator": "exact", "reference": "anchor",
        "controller": {"kind": "rl4lms", "target": 5.0},
    }  # fmt: skip
    anchor = {"kind": "ema_anchor", "coef": 0.0}
    folder = run(settings(world, tethers={"kl": kl, "anchor": anchor}, updates=3, name="exact"))
    coef = [m["tether/kl/coef"] for m in metrics(folder)]
    assert coef == pytest.approx([0.1, 0.098, 0.09604]), "2 % down an update: KL is below target"
