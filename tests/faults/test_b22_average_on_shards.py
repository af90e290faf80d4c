"""B22: averages and syncs on shards. Two gloo processes with FSDP2 read back the new value."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.forked import ranks
from tests.models_for_tests import some_sequences, tiny
from tether.models.language_model import LanguageModel
from tether.models.scoring import score_all
from tether.models.weight_sets import WeightSets
from tether.types import Move


def test_the_mixing_convention() -> None:
    lm = tiny("gpt2")
    sets = WeightSets(lm)
    sets.declare("ema")
    with torch.no_grad():
        for name, value in (("policy", 1.0), ("ema", 0.0)):
            for t in sets.sets[name].values():
                t.fill_(value)
    for want in (0.1, 0.19):  # decay .9 moves by .1
        sets.apply([Move("ema", "policy", 1 - 0.9)])
        for t in sets.sets["ema"].values():
            torch.testing.assert_close(t, torch.full_like(t, want))
    assert sets.counts == {"ema<-policy": 2}


def _work(rank: int, folder: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    lm = tiny("gpt2", sharp=3.0)
    mesh = init_device_mesh("cpu", (2,))
    for block in lm.module.transformer.h:  # type: ignore[union-attr, operator]
        fully_shard(block, mesh=mesh)
    fully_shard(lm.module, mesh=mesh)
    sets, s = WeightSets(lm), some_sequences(lm)
    out = {"start": score_all(lm, s).logprobs}  # leaves a gathered copy at the root
    _shift(sets.sets["policy"])
    sets.publish("policy")
    out["moved"] = score_all(lm, s).logprobs
    sets.declare("ema")
    sets.apply([Move("ema", "policy", 0.5), Move("policy", "ema")])
    out["half"] = score_all(lm, s).logprobs
    with sets.swapped_in("initial") as live:
        out["swapped"] = score_all(live, s).logprobs
    sets.apply([Move("policy", "initial")])
    out["back"] = score_all(lm, s).logprobs
    torch.save(out, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def _shift(weights: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for t in weights.values():
            local = t.to_local() if hasattr(t, "to_local") else t
            local.mul_(1.05)


def _one_process() -> dict[str, torch.Tensor]:
    lm: LanguageModel = tiny("gpt2", sharp=3.0)
    sets, s = WeightSets(lm), some_sequences(lm)
    out = {"start": score_all(lm, s).logprobs}
    _shift(sets.sets["policy"])
    out["moved"] = score_all(lm, s).logprobs
    sets.declare("ema")
    sets.apply([Move("ema", "policy", 0.5), Move("policy", "ema")])
    out["half"] = score_all(lm, s).logprobs
    return out | {"swapped": out["start"], "back": out["start"]}


def test_two_processes_read_back_the_new_value(tmp_path: Path) -> None:
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("torch was built without gloo")
    ranks(_work, tmp_path)
    want = _one_process()
    assert (want["start"] - want["half"]).abs().max() > 0.01
    assert (want["moved"] - want["half"]).abs().max() > 0.01
    for rank in (0, 1):
        got = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name, x in want.items():
            torch.testing.assert_close(got[name], x, atol=1e-4, rtol=0, msg=f"{name} on {rank}")


def test_an_option_with_nothing_to_act_on_is_refused() -> None:
    lm = tiny("gpt2")
    with pytest.raises(ValueError, match="no set of weights 'ema'"):
        WeightSets(lm).apply([Move("policy", "ema")])
    assert isinstance(lm.module, nn.Module)
