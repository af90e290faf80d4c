"""Best of n and filtered supervised: what is kept, by hand, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.contracts.examples import experience, minibatch, scores
from tests.runs_for_tests import agent_of, collected, make_world, metrics, run, settings
from tether.algorithms.best_of_n import BestOfN
from tether.algorithms.filtered_supervised import FilteredSupervised
from tether.config.errors import UserError
from tether.core.masking import at_last, local
from tether.types import Experience

LENGTHS = (4, 1, 3, 5, 2, 5)
MASK = torch.arange(5)[None] < torch.tensor(LENGTHS)[:, None]
GROUP = torch.tensor([1, 0, 1, 0, 1, 0])


def made(rewards: list[float], dropped: int | None = None) -> Experience:
    e = experience(MASK)
    sampled = MASK.clone()
    if dropped is not None:
        sampled[dropped] = False
    rollout = replace(
        e.rollout, group=GROUP, sampled=sampled, finished=torch.ones(6, dtype=torch.bool)
    )
    return replace(e, rollout=rollout, rewards=at_last(torch.tensor(rewards), MASK))


def rows(mask: Tensor) -> list[int]:
    """Rows that train, each with all of its tokens."""
    kept = mask.any(1)
    assert torch.equal(mask, MASK & kept[:, None])
    return kept.nonzero()[:, 0].tolist()  # type: ignore[no-any-return]


def test_best_of_n_keeps_the_best_of_each_prompt() -> None:
    """Prompt 1: rows 0, 2, 4 with 1, 3, 2; prompt 0: rows 1, 3, 5 with 0, -1, 0 (the earlier)."""
    e = made([1.0, 0.0, 3.0, -1.0, 2.0, 0.0])
    assert rows(BestOfN(group_size=3).advantages(e, local).mask) == [1, 2]
    assert rows(BestOfN(group_size=3, keep=2).advantages(e, local).mask) == [1, 2, 4, 5]
    dropped = made([1.0, 0.0, 3.0, -1.0, 2.0, 0.0], dropped=2)
    assert rows(BestOfN(group_size=3).advantages(dropped, local).mask) == [1, 4]


def test_filtered_keeps_the_best_share_of_all_prompts() -> None:
    e = made([1.0, 0.0, 3.0, -1.0, 2.0, 0.5])
    one = FilteredSupervised(group_size=3, share=0.5)
    assert rows(one.advantages(e, local).mask) == [0, 2, 4]
    assert one.kept == {"update/sequences_kept": 3.0, "update/reward_kept.mean": 2.0}
    per_prompt = FilteredSupervised(group_size=3, share=0.5, per_prompt=True)
    assert rows(per_prompt.advantages(e, local).mask) == [1, 2, 4, 5]
    third = FilteredSupervised(group_size=3, share=1 / 3, per_prompt=True)
    assert rows(third.advantages(e, local).mask) == [2, 5]


def test_their_loss_is_the_mean_nll_of_what_is_kept() -> None:
    e, fresh = made([1.0, 0.0, 3.0, -1.0, 2.0, 0.5]), scores(4, MASK)
    for algorithm in (BestOfN(group_size=3), FilteredSupervised(group_size=3, share=1 / 3)):
        mb = minibatch(e, algorithm.advantages(e, local))
        out = algorithm.loss(mb, fresh)
        kept = mb.targets.mask
        nll = -float(fresh.free_logprobs[kept].mean())
        assert int(kept.sum()) < int(MASK.sum())
        assert float(out.loss) == float(out.metrics["nll"]) == pytest.approx(nll, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group_size": 1}, "group_size is 1"),
        ({"greedy": True}, "would all be the same"),
        ({"keep": 0}, "keep must be from 1 to group_size - 1 = 3, not 0"),
        ({"keep": 4}, "keep must be from 1 to group_size - 1 = 3, not 4"),
    ],
)
def test_best_of_n_refusals(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        BestOfN(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 0.0}, "share must be above 0 and below 1, not 0"),
        ({"share": 1.0}, "share must be above 0 and below 1, not 1"),
        ({"greedy": True}, "would all be the same"),
        ({"group_size": 1, "per_prompt": True}, "group_size is 1"),
    ],
)
def test_filtered_refusals(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        FilteredSupervised(**settings)  # type: ignore[arg-type]
    assert FilteredSupervised(group_size=1).group_size == 1


def test_the_initial_model_writes_however_far_the_policy_is(tmp_path: Path) -> None:
    """After the policy has moved the completions of an update are still what they were before."""
    part = {"algorithm": {"kind": "filtered_supervised", "lr": 1e-2}}
    agent = agent_of(settings(make_world(tmp_path), part))
    before = collected(agent, update=1).rollout
    with torch.no_grad():
        for p in agent.sets.sets["policy"].values():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    agent.version = 1
    after = collected(agent, update=1).rollout
    assert after.writer == "initial"
    assert torch.equal(before.sequences.completion, after.sequences.completion)


@pytest.mark.parametrize("kind", ["best_of_n", "filtered_supervised"])
def test_the_record_counts_what_was_kept(tmp_path: Path, kind: str) -> None:
    """4 prompts of 4 completions, a quarter kept: 4 of 16, at an equal number of samples."""
    part = {"algorithm": {"kind": kind, "epochs": 1, "minibatches": 1}}
    folder = run(settings(make_world(tmp_path), part, updates=2, name=kind))
    for m in metrics(folder):
        assert m["rollout/sequences"] == 16 and m["update/sequences_kept"] == 4
