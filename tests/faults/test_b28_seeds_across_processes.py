"""B28: identical samples on every rank, grouped statistics that mix prompts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.forked import ranks
from tests.models_for_tests import some_prompts, tiny
from tether.config.run import SamplingSettings
from tether.core.advantages import group_mean_std
from tether.distributed.total import total
from tether.rollout.hf import HFEngine


def _ids() -> torch.Tensor:
    lm = tiny("gpt2")
    sampling = SamplingSettings(max_new_tokens=12)
    row = torch.zeros(1, dtype=torch.long)
    r = next(HFEngine().generate(lm, some_prompts(lm, (5,)), row, row, sampling, (0, "agent", 7)))
    return r.sequences.completion


def _work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    weights = torch.cat([p.flatten() for p in tiny("gpt2").module.parameters()]).detach()
    out = {
        "ids": _ids(),
        "again": _ids(),
        "weights": weights,
        "sum": total(torch.tensor(rank + 1.0)),
    }
    torch.save(out, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def test_ranks_sample_apart_and_repeat_by_seed(tmp_path: Path) -> None:
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("torch was built without gloo")
    ranks(_work, tmp_path)
    a, b = (torch.load(tmp_path / f"{r}.pt", weights_only=True) for r in (0, 1))
    assert not torch.equal(a["ids"], b["ids"])
    assert torch.equal(a["ids"], a["again"]) and torch.equal(b["ids"], b["again"])
    assert torch.equal(a["weights"], b["weights"])
    assert a["sum"] == b["sum"] == 3.0
    assert torch.equal(a["ids"], _ids())  # rank 0 is what a single process samples


@pytest.mark.parametrize("order", ([0, 1, 2, 3], [2, 0, 3, 1]))
def test_group_means_travel_with_the_sample(order: list[int]) -> None:
    """Prompt A with rewards 0 and 2, B with 10 and 12: means 1 and 11 in any row order."""
    score, group = torch.tensor([0.0, 2, 10, 12])[order], torch.tensor([0, 0, 1, 1])[order]
    mean, _, _ = group_mean_std(score, group)
    assert mean.tolist() == torch.tensor([1.0, 1, 11, 11])[order].tolist()
