"""B14: a finished sequence has no next value, a truncated one may; masked tokens are no steps."""

from dataclasses import replace

import pytest
import torch

from tests.contracts.examples import experience
from tether.algorithms.ppo import PPO
from tether.core.masking import local
from tether.core.returns import discounted, gae
from tether.types import Experience, Scores

VALUES = torch.tensor([[0.5, 0.6, 0.7]])
ALL = torch.ones(1, 3, dtype=torch.bool)
REWARD = torch.tensor([[0.0, 0.0, 1.0]])
NONE = torch.zeros(1, 3)


def advantages(rewards: torch.Tensor, bootstrap: float, gamma: float = 1.0) -> list[float]:
    found, _ = gae(rewards, VALUES, torch.tensor([bootstrap]), ALL, gamma, 0.95)
    return found[0].tolist()  # type: ignore[no-any-return]


def test_by_hand() -> None:
    assert advantages(REWARD, 0.0) == pytest.approx([0.46575, 0.385, 0.3], abs=1e-6)
    assert advantages(NONE, 0.8) == pytest.approx([0.28525, 0.195, 0.1], abs=1e-6)
    assert advantages(NONE, 0.0) == pytest.approx([-0.43675, -0.565, -0.7], abs=1e-6)


def test_gamma_below_one_by_hand() -> None:
    """gamma .5, lambda .95: delta = (-.2, -.25, .3), factor .475."""
    assert advantages(REWARD, 0.0, 0.5) == pytest.approx([-0.2510625, -0.1075, 0.3], abs=1e-6)


def test_returns_are_advantages_plus_values() -> None:
    _, returns = gae(REWARD, VALUES, torch.tensor([0.0]), ALL, 1.0, 0.95)
    assert returns[0].tolist() == pytest.approx([0.96575, 0.985, 1.0], abs=1e-6)


def test_masked_tokens_do_not_discount() -> None:
    """Two masked tokens inside, one at each end: the same three numbers, no factor .9025."""
    mask = torch.tensor([[0, 1, 0, 0, 1, 1, 0]], dtype=torch.bool)
    rewards, values = torch.full((1, 7), 1e9), torch.full((1, 7), -1e9)
    rewards[mask], values[mask] = REWARD[0], VALUES[0]
    found, returns = gae(rewards, values, torch.tensor([0.0]), mask, 1.0, 0.95)
    assert found[0][mask[0]].tolist() == pytest.approx([0.46575, 0.385, 0.3], abs=1e-6)
    assert not found[~mask].any() and not returns[~mask].any()
    g = discounted(rewards, mask, 0.5)
    assert g[0].tolist() == pytest.approx([0, 0.25, 0, 0, 0.5, 1, 0])


def example(finished: bool) -> Experience:
    e = experience(ALL)
    old = Scores(NONE, NONE, None, VALUES, torch.tensor([0.8]))  # type: ignore[arg-type]
    rollout = replace(e.rollout, finished=torch.tensor([finished]))
    return replace(e, rollout=rollout, rewards=NONE, old=old)


@pytest.mark.parametrize(
    ("truncated", "finished", "expected"),
    [
        ("bootstrap", False, [0.28525, 0.195, 0.1]),
        ("bootstrap", True, [-0.43675, -0.565, -0.7]),
        ("end", False, [-0.43675, -0.565, -0.7]),
        ("end", True, [-0.43675, -0.565, -0.7]),
    ],
)
def test_ppo_bootstraps_where_it_says_so(
    truncated: str, finished: bool, expected: list[float]
) -> None:
    found = PPO(truncated=truncated).advantages(example(finished), local)  # type: ignore[arg-type]
    assert found.advantages[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_why_the_length_limit_is_an_end_by_default() -> None:
    """A score of 1 on the last token and a critic that learns its own targets: with bootstrapping
    the value after the last token, near the one before it, is paid on top, and grows for ever."""
    values = {"end": 0.0, "bootstrap": 0.0}
    for _ in range(20):
        for kind, v in values.items():
            same = torch.full((1, 3), v)
            after = torch.tensor([v if kind == "bootstrap" else 0.0])
            _, returns = gae(REWARD, same, after, ALL, 1.0, 0.95)
            values[kind] = float(returns.mean())
    assert values["end"] == pytest.approx(1.0, abs=0.02)
    assert values["bootstrap"] > 15
