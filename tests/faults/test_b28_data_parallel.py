"""B28: a data-parallel run: gradients of the single process on the same data, one writer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.forked import ranks
from tests.runs_for_tests import (
    MAIN,
    agent_of,
    collected,
    final_state,
    gradients,
    lines,
    make_world,
    run,
    settings,
)  # fmt: skip
from tether.core.weights import fingerprint
from tether.distributed.total import total
from tether.train import loop

AVERAGES = ("tokens", "sequences")
LORA = {"model": {"lora": {"rank": 2}}}
CHANGES: dict[str, dict[str, Any]] = {"full": {}, "lora": LORA}


def _chosen(world: Path, average: str, kind: str) -> Any:
    change = {"batch": {"prompts": 8, "microbatch": 2}, "algorithm": {"average": average}}
    return settings(world, MAIN, change, CHANGES[kind])


def _work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "WORLD_SIZE": "2",
        "RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": Path(folder, "port").read_text(),
    }
    world, out = Path(folder), {}
    finished: list[Any] = []
    real = loop.Run.run
    loop.Run.run = lambda self: (real(self), finished.append(self))[0]  # type: ignore[assignment]
    run(settings(world, MAIN, name="both", updates=3))
    agent = finished[0].agents[0]
    out["weights"] = {n: fingerprint(s) for n, s in agent.sets.sets.items()}
    out["writes"] = finished[0].files.writes
    # what follows needs a group again
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for average in AVERAGES:
        for kind in CHANGES:
            a = agent_of(_chosen(world, average, kind))
            e = torch.load(world / f"{kind}.pt", weights_only=False)
            half = e.rows(torch.arange(8)[rank::2])
            out[average, kind] = gradients(a, half, a.algorithm.advantages(half, total))
    torch.save(out, f"{folder}/rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def _free_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("torch was built without gloo")
    world = make_world(tmp_path)
    want = {}
    for kind in CHANGES:
        e = collected(agent_of(_chosen(world, "tokens", kind)))
        # lengths differ between the halves, so a mean of means would differ too
        e.rollout.sampled[1::2, 2:] = False
        torch.save(e, world / f"{kind}.pt")
        for average in AVERAGES:
            want[average, kind] = gradients(agent_of(_chosen(world, average, kind)), e)
    (world / "port").write_text(str(_free_port()))
    ranks(_work, world)
    a, b = (torch.load(world / f"rank{r}.pt", weights_only=False) for r in (0, 1))
    for key, expected in want.items():
        assert any(g.abs().max() > 1e-4 for g in expected.values())
        for name, gradient in expected.items():
            torch.testing.assert_close(a[key][name], gradient, atol=1e-6, rtol=1e-4)
            assert torch.equal(a[key][name], b[key][name])
    # the run: equal weights of every set on both ranks, one writer, every line once
    assert a["weights"] == b["weights"]
    assert (a["writes"], b["writes"]) == (True, False)
    rows = lines(world / "runs" / "both")
    assert [x["update"] for x in rows if x["kind"] == "update"] == [1, 2, 3]
    assert [x["kind"] for x in rows].count("end") == 1
    assert [x["prompts"] for x in rows if x["kind"] == "eval"] == [4] * 4
    first = rows[2]["metrics"]
    assert first["rollout/sequences"] == 4.0 and first["update/ratio_error"] >= 0
    assert len(final_state(world / "runs" / "both")) > 1000
    # distances of replicated weights are not summed over the ranks
    point = [x for x in rows if x["kind"] == "eval"][1]
    alone = run(settings(world, MAIN, name="alone", updates=3))
    single = [x for x in lines(alone) if x["kind"] == "eval"][1]
    ratio = point["drift"]["drift/weight_distance"] / single["drift"]["drift/weight_distance"]
    assert 0.8 < ratio < 1.25
