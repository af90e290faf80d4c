"""B12: the adaptive coefficient reads the KL it targets, in its unit, and can be resumed."""

import json

import pytest

from tether.config.errors import UserError
from tether.core.controllers import rl4lms, ziegler
from tether.tethers.controllers import RL4LMs, Ziegler
from tether.tethers.kl import KLPenalty
from tether.types import Clock, Measured

SEQ, TOKEN = "kl/initial.k1_nats_per_seq", "kl/initial.k1_nats_per_token"


def measured(version: int, seq: float = 0.0, token: float = 0.0, n: float = 256) -> Measured:
    return Measured(
        {SEQ: (seq, version), TOKEN: (token, version), "rollout/sequences": (n, version)}
    )


@pytest.mark.parametrize(
    ("kl", "coef"), [(12, 0.201024), (3, 0.198976), (6.3, 0.200256), (-3, 0.198976)]
)
def test_ziegler_by_hand(kl: float, coef: float) -> None:
    assert ziegler(0.2, kl, target=6, n=256, horizon=10_000) == pytest.approx(coef, abs=1e-9)
    tether = KLPenalty(coef=0.2, controller=Ziegler(target=6, horizon=10_000))
    tether.after("update", Clock(update=1), measured(0, seq=kl, token=99.0))
    assert tether.now == pytest.approx(coef, abs=1e-9)


@pytest.mark.parametrize(("kl", "coef"), [(5.0, 0.00102), (0.0, 0.00098), (1.1, 0.00101)])
def test_rl4lms_by_hand(kl: float, coef: float) -> None:
    assert rl4lms(0.001, kl, target=1.0) == pytest.approx(coef, abs=1e-12)
    tether = KLPenalty(coef=0.001, controller=RL4LMs(target=1.0))
    tether.after("update", Clock(update=1), measured(0, token=kl, seq=99.0))
    assert tether.now == pytest.approx(coef, abs=1e-12)


def test_fifty_iterations_of_rl4lms_reach_at_most_their_factors() -> None:
    up = down = 1.0
    for _ in range(50):
        up, down = rl4lms(up, 100.0, 1.0), rl4lms(down, 0.0, 1.0)
    assert up == pytest.approx(2.69, abs=0.005) and down == pytest.approx(0.364, abs=0.001)


def test_one_measurement_acts_once_and_only_at_updates() -> None:
    tether = KLPenalty(coef=0.2, controller=Ziegler())
    m = measured(0, seq=12)
    tether.after("minibatch", Clock(minibatch=1), m)
    tether.after("epoch", Clock(epoch=1), m)
    assert tether.now == 0.2
    for update in (1, 2, 3):
        tether.after("update", Clock(update=update), m)
    assert tether.now == pytest.approx(0.201024, abs=1e-9)


def test_without_a_controller_nothing_adapts() -> None:
    tether = KLPenalty(coef=0.2)
    tether.after("update", Clock(update=1), measured(0, seq=12, token=12))
    assert tether.now == 0.2


def test_the_coefficient_is_in_the_checkpoint_and_in_the_record() -> None:
    one, other = (KLPenalty(coef=0.2, controller=Ziegler()) for _ in range(2))
    one.after("update", Clock(update=1), measured(0, seq=12))
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert other.now == one.now != 0.2
    other.after("update", Clock(update=2), measured(0, seq=12))
    assert other.now == one.now, "the same reading acted again after a resume"


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_what_divides_by_zero_or_flips_the_sign_is_refused(bad: float) -> None:
    with pytest.raises(UserError, match=r"ziegler.target must be > 0"):
        Ziegler(target=bad)
    with pytest.raises(UserError, match=r"ziegler.horizon must be > 0"):
        Ziegler(horizon=bad)
    with pytest.raises(UserError, match=r"rl4lms.target must be > 0"):
        RL4LMs(target=bad)
    with pytest.raises(ValueError, match="target must be > 0"):
        ziegler(0.2, 1.0, bad, 256, 10_000)
    with pytest.raises(ValueError, match="horizon must be > 0"):
        ziegler(0.2, 1.0, 6, 256, bad)
    with pytest.raises(ValueError, match="target must be > 0"):
        rl4lms(0.2, 1.0, bad)


def test_more_that_cannot_work() -> None:
    with pytest.raises(ValueError, match=r"too short.*take more than 51.2"):
        ziegler(0.2, 0.0, 6, n=256, horizon=51)
    with pytest.raises(ValueError, match="nan"):
        ziegler(0.2, float("nan"), 6, 256, 10_000)
    with pytest.raises(UserError, match="stays 0"):
        KLPenalty(coef=0.0, controller=Ziegler())
    with pytest.raises(UserError, match="coef must be >= 0"):
        KLPenalty(coef=-0.1)
