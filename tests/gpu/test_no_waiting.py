"""Within an update the host never waits for the device: it runs ahead, and what it would wait for
is read at the end."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from tests.runs_for_tests import agent_of, collected, make_world, settings
from tether.distributed.total import total
from tether.train.update import PolicyLearner
from tether.types import Clock

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize("microbatch", [2, 64])
def test_minibatches_of_an_update(tmp_path: Path, microbatch: int, capture: bool) -> None:
    world = make_world(tmp_path, "llama")
    chosen = settings(
        world,
        {"model": {"device": "cuda", "dtype": "bfloat16", "capture": capture}},
        {"batch": {"microbatch": microbatch}},
    )
    agent = agent_of(chosen)
    e = collected(agent)
    assert e.rollout.sequences.count is not None
    targets = agent.algorithm.advantages(e, total)
    learner = PolicyLearner(agent, agent.algorithm, lambda unit: [], Clock, 0)

    def epoch(number: int) -> None:
        for mb in learner.minibatches(2, e, targets, number):
            learner.accumulate(mb)
            learner.step()

    epoch(0)  # what is chosen, compiled and recorded the first time
    log = dict(learner.log)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as waits:
            warnings.simplefilter("always")
            epoch(1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    mine = [w for w in waits if "synchronizing" in str(w.message)]
    if not capture:  # transformers looks whether a mask has padding, once a forward pass
        mine = [w for w in mine if Path(w.filename).name != "masking_utils.py"]
    assert [f"{w.filename}:{w.lineno}" for w in mine] == []
    assert dict(learner.log) != log
