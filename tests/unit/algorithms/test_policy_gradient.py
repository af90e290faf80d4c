"""A2C and REINFORCE by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.contracts.examples import MASK, experience, minibatch, scores
from tests.unit.core.test_advantages import on_ranks
from tether.algorithms.a2c import A2C
from tether.algorithms.grpo import GRPO
from tether.algorithms.reinforce import Reinforce
from tether.algorithms.rloo import RLOO
from tether.config.errors import UserError
from tether.core.masking import local
from tether.types import Experience


def paid(*rewards: float) -> Experience:
    """One completion of as many tokens as there are rewards."""
    n = len(rewards)
    e = experience(torch.ones(1, n, dtype=torch.bool))
    return replace(e, rewards=torch.tensor([list(rewards)]))


def test_a2c_is_returns_minus_values() -> None:
    """lambda 1, gamma 1: rewards 1 2 3 -> returns 6 5 3; V .5 .5 1 -> A 5.5 4.5 2."""
    e = paid(1.0, 2.0, 3.0)
    e = replace(e, old=replace(e.old, values=torch.tensor([[0.5, 0.5, 1.0]])))
    targets = A2C().advantages(e, local)
    assert targets.returns is not None
    assert targets.returns.tolist() == [[6, 5, 3]]
    assert targets.advantages.tolist() == [[5.5, 4.5, 2]]


def test_a2c_loss_token_by_token() -> None:
    algorithm = A2C(vf_coef=0.3, ent_coef=0.05)
    e, fresh = experience(), scores(33)
    mb = minibatch(e, algorithm.advantages(e, local))
    returns = mb.targets.returns
    assert returns is not None
    policy = value = entropy = 0.0
    for b, t in MASK.nonzero().tolist():
        policy -= float(mb.targets.advantages[b, t] * fresh.logprobs[b, t]) / 8
        value += float(fresh.values[b, t] - returns[b, t]) ** 2 / 2 / 8
        entropy += float(fresh.entropy[b, t]) / 8
    out = algorithm.loss(mb, fresh)
    assert float(out.loss) == pytest.approx(policy + 0.3 * value - 0.05 * entropy, abs=1e-5)
    assert float(out.metrics["value_loss"]) == pytest.approx(value, abs=1e-5)


def test_a2c_cut_completions_end_or_go_on() -> None:
    """Row 1 of the example is cut at 4 tokens: its last return gains the value after it."""
    e = experience()
    end = A2C().advantages(e, local).returns
    on = A2C(truncated="bootstrap").advantages(e, local).returns
    assert end is not None and on is not None
    gain = on - end
    assert gain[1].tolist() == pytest.approx([float(e.old.last_value[1])] * 4, abs=1e-5)
    assert not gain[0].any() and not gain[2].any()


def test_the_moving_baseline_by_hand() -> None:
    """Returns 3 3 3; then 9; then 0 0: means over everything before: own 3, 3, (9 + 9) / 4."""
    algorithm = Reinforce()
    first = algorithm.advantages(paid(0.0, 0.0, 3.0), local)
    assert first.advantages.tolist() == [[0, 0, 0]]
    assert algorithm.advantages(paid(9.0), local).advantages.tolist() == [[6]]
    assert algorithm.advantages(paid(0.0, 0.0), local).advantages.tolist() == [[-4.5, -4.5]]
    assert algorithm.level == pytest.approx(18 / 6) and algorithm.tokens == 6


def test_a_decaying_baseline_by_hand() -> None:
    algorithm = Reinforce(baseline_decay=0.75)
    algorithm.advantages(paid(4.0), local)
    assert algorithm.advantages(paid(8.0), local).advantages.tolist() == [[4]]
    assert algorithm.level == 5
    assert algorithm.advantages(paid(5.0), local).advantages.tolist() == [[0]]


def test_no_baseline_and_a_learned_one() -> None:
    """gamma .5: rewards 1 2 4 -> 3 4 4."""
    e = paid(1.0, 2.0, 4.0)
    plain = Reinforce(gamma=0.5, baseline="none")
    assert plain.advantages(e, local).advantages.tolist() == [[3, 4, 4]] and not plain.needs_values
    learned = Reinforce(gamma=0.5, baseline="learned")
    e = replace(e, old=replace(e.old, values=torch.tensor([[1.0, 1.0, 1.0]])))
    targets = learned.advantages(e, local)
    assert learned.needs_values and targets.returns is not None
    assert targets.returns.tolist() == [[3, 4, 4]] and targets.advantages.tolist() == [[2, 3, 3]]


def test_nothing_written_leaves_the_baseline_alone() -> None:
    algorithm = Reinforce()
    algorithm.advantages(paid(4.0), local)
    e = paid(9.0)
    empty = replace(e, rollout=replace(e.rollout, sampled=torch.zeros(1, 1, dtype=torch.bool)))
    algorithm.advantages(empty, local)
    assert (algorithm.level, algorithm.tokens) == (4, 1)


def test_the_baseline_is_one_over_all_ranks() -> None:
    parts = [paid(1.0, 1.0, 1.0), paid(8.0)]

    def work(rank: int, total: object) -> float:
        algorithm = Reinforce()
        algorithm.advantages(parts[rank], total)  # type: ignore[arg-type]
        return algorithm.level

    # returns 3 2 1 and 8: mean 14 / 4
    assert on_ranks(work) == pytest.approx([3.5, 3.5])


@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        (Reinforce, {"baseline": "mean"}, "moving, learned or none, not 'mean'"),
        (Reinforce, {"baseline": "none", "baseline_decay": 0.9}, "no effect with baseline none"),
        (Reinforce, {"baseline_decay": 1.5}, r"baseline_decay must be in \[0, 1\]"),
        (Reinforce, {"gamma": 2.0}, r"gamma must be in \[0, 1\]"),
        (A2C, {"vf_coef": -1.0}, "vf_coef must be >= 0"),
        (A2C, {"truncated": "no"}, "end or bootstrap, not 'no'"),
        (GRPO, {"group_size": 1}, "group_size is 1: each completion is compared with the others"),
        (GRPO, {"greedy": True}, "would all be the same"),
        (GRPO, {"scale": "mean"}, "std, batch or none, not 'mean'"),
        (GRPO, {"ratio": "word"}, "token or sequence, not 'word'"),
        (GRPO, {"constant_length": 0}, "constant_length must be > 0 or null"),
        (GRPO, {"constant_length": 9, "average": "tokens"}, "leave algorithm.average at sequences"),
        (GRPO, {"clip_range": 0.0}, "clip_range must be > 0, not 0"),
        (GRPO, {"truncated_importance": 0.0}, "truncated_importance must be > 0 or null"),
        (RLOO, {"group_size": 1}, "group_size is 1"),
        (RLOO, {"clip_range": -0.2}, "clip_range must be > 0 or null"),
    ],
)
def test_refusals(cls: type, settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        cls(**settings)
    assert "\n" not in str(caught.value)
