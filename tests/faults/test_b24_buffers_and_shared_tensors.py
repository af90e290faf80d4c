"""B24: floats are averaged, integers copied; a tensor under two names is one tensor."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tether.core.weights import distance, exchange_, lerp_, snapshot, trainable


class Tied(nn.Module):
    """Embedding and output share one tensor, as in GPT-2; a counter is an integer buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("count", torch.tensor([7]))
        self.register_buffer("scratch", torch.tensor([1.0]), persistent=False)


def test_integer_buffers_equal_the_source_after_an_update() -> None:
    source = trainable(Tied(), buffers=True)
    average = snapshot(source)
    assert set(source) == {"embedding.weight", "count"}
    assert average["count"].dtype == torch.int64
    source["count"].fill_(9)
    with torch.no_grad():
        source["embedding.weight"].zero_()
    before = average["embedding.weight"].clone()
    lerp_(average, source, by=0.1)
    assert int(average["count"]) == 9
    assert torch.allclose(average["embedding.weight"], 0.9 * before)


def test_shared_tensors_are_in_a_set_once() -> None:
    module = Tied()
    assert list(trainable(module)) == ["embedding.weight"]
    assert trainable(module)["embedding.weight"] is module.embedding.weight


def test_both_names_of_a_tensor_move_once() -> None:
    """A state dict has both names: averaging per name would average twice."""
    both = {k: v for k, v in Tied().state_dict().items() if v.is_floating_point()}
    assert len(both) == 2
    copy = snapshot(both)
    assert copy["embedding.weight"] is copy["head.weight"], "a copy keeps sharing"
    home = {k: torch.zeros(5, 3) for k in both}
    once = 0.9 * copy["head.weight"]
    lerp_(copy, home, by=0.1)
    assert torch.allclose(copy["head.weight"], once)
    norm = float(once.square().sum().sqrt())
    assert distance(copy, home) == pytest.approx(norm, rel=1e-6)
    other = {k: torch.ones(5, 3) for k in both}
    exchange_(copy, other)
    assert float(copy["head.weight"].min()) == 1, "swapped once, not back again"


def test_gpt2_keeps_one_embedding_through_a_file(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=11, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    names = set(trainable(model))
    assert "transformer.wte.weight" in names and "lm_head.weight" not in names
    model.save_pretrained(tmp_path)
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    assert loaded.lm_head.weight is loaded.transformer.wte.weight
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
