"""KL in the reward: which numbers it reads and what it pays (controllers: fault B12)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.contracts.examples import MASK, experience
from tether.config.errors import UserError
from tether.config.parts import build, check
from tether.core.masking import local
from tether.tethers.controllers import Fixed, Ziegler
from tether.tethers.kl import KLPenalty
from tether.types import Clock, Experience, Measured


def pair(own: float, home: float, name: str = "initial") -> Experience:
    e = experience()
    old = replace(e.old, free_logprobs=torch.where(MASK, own, 0.0))
    ref = replace(e.references[name], free_logprobs=torch.where(MASK, home, 0.0))
    return replace(e, old=old, references={name: ref})


@pytest.mark.parametrize(("estimator", "cost"), [("k1", 0.1), ("k2", 0.005), ("k3", 0.0048374)])
def test_cost_per_token_by_hand(estimator: str, cost: float) -> None:
    """d = log pi - log ref = .1, coefficient .5."""
    out = KLPenalty(0.5, estimator=estimator).reward(pair(-1.0, -1.1))  # type: ignore[arg-type]
    assert out[MASK].tolist() == pytest.approx([-0.5 * cost] * int(MASK.sum()), abs=1e-6)
    assert not out[~MASK].any()


def test_a_likelier_token_under_the_reference_is_paid_by_k1_only() -> None:
    e = pair(-1.1, -1.0)
    assert float(KLPenalty(0.5).reward(e)[0, 0]) == pytest.approx(0.05, abs=1e-6)
    assert float(KLPenalty(0.5, estimator="k3").reward(e)[0, 0]) < 0


def test_free_log_probs_not_those_that_sampled() -> None:
    e = pair(-1.0, -1.0)
    e = replace(e, old=replace(e.old, logprobs=torch.full((3, 4), -7.0)))
    assert not KLPenalty(0.5).reward(e).any()


def test_exact_reads_the_whole_distribution() -> None:
    e, tether = experience(), KLPenalty(0.5, estimator="exact")
    assert dict(tether.reads()) == {"initial": "distribution"}
    expected = torch.where(MASK, -0.5 * e.old.exact_kl["initial"], 0.0)
    assert torch.equal(tether.reward(replace(e, references={})), expected)


def test_which_set_is_home() -> None:
    plain, ema = KLPenalty(), KLPenalty(reference="ema")
    assert (plain.home, plain.keeps(), dict(plain.sources())) == ("initial", (), {})
    assert dict(plain.reads()) == {"initial": "tokens"}
    assert dict(ema.reads()) == {"ema": "tokens"} and ema.keeps() == ()
    other = KLPenalty(model="runs/sft/policy")
    assert other.keeps() == ("reference",)
    assert dict(other.sources()) == {"reference": "runs/sft/policy"}
    named = KLPenalty(model="runs/sft/policy", reference="sft")
    assert named.keeps() == ("sft",) and dict(named.reads()) == {"sft": "tokens"}


def test_a_reference_with_settings_of_its_own() -> None:
    about = {"path": "a/b", "revision": "v2", "adapter": "runs/sft/adapter"}
    tether = build("tether", {"kind": "kl", "model": about})
    assert (tether.home, dict(tether.sources())) == ("reference", {"reference": about})
    assert check("tether", {"kind": "kl_loss", "model": about})["model"] == about
    for wrong, said in (
        (
            {"path": "a/b", "revison": "v2"},
            r"^tethers\.x\.model: unknown key 'revison'; did you mean 'revision'",
        ),
        ({"path": "a/b", "lora": {}}, r"^tethers\.x\.model: unknown key 'lora'"),
        ({"revision": "v2"}, r"^tethers\.x\.model\.path: it is empty; give a hub id or a folder"),
        ({"path": "a/b", "adapter": 3}, r"^tethers\.x\.model\.adapter: it is 3, not text"),
    ):
        with pytest.raises(UserError, match=said):
            build("tether", {"kind": "kl", "model": wrong}, "tethers.x")


def test_the_controller_reads_the_kl_to_its_own_reference() -> None:
    tether = KLPenalty(0.2, Ziegler(6, 10_000), reference="ema")
    measured = Measured(
        {
            "kl/initial.k1_nats_per_seq": (0.0, 0),
            "kl/ema.k1_nats_per_seq": (12.0, 0),
            "rollout/sequences": (256.0, 0),
        }
    )
    tether.after("update", Clock(update=1), measured)
    assert tether.now == pytest.approx(0.201024, abs=1e-9)
    assert tether.coef == 0.2, "the setting stays; the memory moves"
    assert tether.report(pair(-1.0, -1.0, "ema"), local) == {"coef": tether.now}
    tether.restart()
    assert tether.now == 0.2


def test_the_coefficient_in_force_is_what_pays() -> None:
    tether, e = KLPenalty(0.2, Ziegler(6, 1_000)), pair(-1.0, -1.1)
    before = tether.reward(e)
    measured = Measured({"kl/initial.k1_nats_per_seq": (12.0, 0), "rollout/sequences": (500.0, 0)})
    tether.after("update", Clock(update=1), measured)
    assert torch.allclose(tether.reward(e), before * 1.1)


def test_bounded_exponents_are_reported() -> None:
    tether = KLPenalty(estimator="k3")
    assert tether.report(pair(-30.0, -1.0), local)["exponent_bounded"] == int(MASK.sum())
    assert tether.report(pair(-2.0, -1.0), local)["exponent_bounded"] == 0
    assert torch.isfinite(tether.reward(pair(-200.0, -1.0))).all()


def test_fixed_is_the_same_as_none() -> None:
    fixed = KLPenalty(0.0, Fixed())
    fixed.after("update", Clock(update=1), Measured())
    assert fixed.now == 0.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"estimator": "k4"}, "k1, k2, k3 or exact, not 'k4'"),
        ({"reference": "policy"}, "its KL is always 0"),
        ({"coef": -1.0}, "coef must be >= 0"),
    ],
)
def test_refusals(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        KLPenalty(**settings)  # type: ignore[arg-type]
