"""Passes at the lengths where cuDNN's attention has NaN for a gradient get masked places more, and
no number changes but by rounding (pytorch/pytorch issue 196678)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models_for_tests import byte_tokenizer, tiny, tiny_module
from tether.config.run import ModelSettings
from tether.models import attention
from tether.models.attention import STEP, extra_places, spoilt
from tether.models.classifier import TextClassifier
from tether.models.classifier_loading import build_classifier
from tether.models.language_model import LanguageModel
from tether.models.loading import recompute_activations
from tether.models.recorded import SHAPES, WIDTH, Recorded, filled_to
from tether.models.scoring import score, score_all
from tether.types import Sequences

CPU = torch.device("cpu")


def test_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the report lists them; CPUs have no such kernel."""
    failing = [64, 192, 320, 704, 832, 1088, 2112]
    others = [1, 63, 65, 72, 96, 128, 640, 768]
    assert [n for n in (*failing, *others) if spoilt(n)] == failing
    cuda = torch.device("cuda")
    own, other = (SimpleNamespace(_attn_implementation=k) for k in ("sdpa", "eager"))
    assert {extra_places(n, cuda, own) for n in failing} == {STEP}
    assert {extra_places(n, cuda, own) for n in others} == {0}
    assert extra_places(64, CPU, own) == extra_places(64, cuda, other) == 0
    assert (extra_places(64, cuda, own, 71), extra_places(64, cuda, own, 72)) == (0, STEP)
    assert not any(spoilt(n + STEP) for n in failing)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """Numbers of keys that attention was called with, where 16, 48, 80 ... are spoilt: tiny models
    have few positions."""
    monkeypatch.setattr(attention, "TILE", 32)
    found: set[int] = set()
    inner: Callable[..., Tensor] = torch.nn.functional.scaled_dot_product_attention

    def watched(query: Any, key: Any, *args: Any, **more: Any) -> Tensor:
        found.add(key.shape[-2])
        return inner(query, key, *args, **more)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    yield found


def of_length(lm: LanguageModel, prompt: int, completion: int) -> Sequences:
    """Padded prompts."""
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 250, (3, prompt + completion), generator=g)
    mask = torch.ones(3, prompt, dtype=torch.bool)
    mask[1, slice(-5, None) if lm.seq2seq else slice(0, 5)] = False
    return Sequences(
        prompt=ids[:, :prompt].where(mask, lm.pad),
        prompt_mask=mask,
        completion=ids[:, prompt:],
        completion_mask=torch.ones(3, completion, dtype=torch.bool),
    )


def states(lm: LanguageModel, s: Sequences) -> Tensor:
    return lm.hidden(s)


def logits(lm: LanguageModel, s: Sequences) -> Tensor:
    return lm.forward(s)[0]


def logits_and_states(lm: LanguageModel, s: Sequences) -> Tensor:
    a, b = lm.forward(s, hidden=True)
    assert b is not None
    return torch.cat([a.flatten(), b.flatten()])


def from_encoded(lm: LanguageModel, s: Sequences) -> Tensor:
    """With the encoder's states handed over."""
    return lm.forward(s, encoder=lm.encode(s))[0]


PASSES = [states, logits, logits_and_states]


def same(
    lm: LanguageModel, s: Sequences, of: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for devices in (("cuda",), ("cuda", "cpu")):
        monkeypatch.setattr(attention, "DEVICES", devices)
        out = of(lm, s)
        out.square().mean().backward()
        grads = {n: p.grad.clone() for n, p in lm.module.named_parameters() if p.grad is not None}
        lm.module.zero_grad()
        found.append((out.detach(), grads))
    (a, g), (b, h) = found
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert g.keys() == h.keys() and g
    for n in g:
        torch.testing.assert_close(g[n], h[n], rtol=1e-3, atol=1e-5, msg=n)


@pytest.mark.parametrize("of", PASSES)
@pytest.mark.parametrize("kind", ["gpt2", "llama", "opt"])
def test_decoders(
    kind: str, of: Callable[..., Tensor], seen: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = tiny(kind)
    same(lm, of_length(lm, 28, 20), of, monkeypatch)
    assert seen == {48, 56}
    seen.clear()
    of(lm, of_length(lm, 28, 19))
    assert seen == {47}


@pytest.mark.parametrize("of", [*PASSES, from_encoded])
@pytest.mark.parametrize("kind", ["bart", "t5"])
@pytest.mark.parametrize(("prompt", "completion"), [(48, 9), (9, 47), (48, 47)])
def test_encoder_decoders(
    kind: str, prompt: int, completion: int, of: Callable[..., Tensor], seen: set[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Lengths of the encoder, of the decoder, and of the keys that join them."""
    lm = tiny(kind)
    same(lm, of_length(lm, prompt, completion), of, monkeypatch)
    seen.clear()
    of(lm, of_length(lm, prompt, completion))
    if kind == "bart":
        assert seen and not any(map(spoilt, seen))


def test_scores_agree_with_each_other(seen: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What scores before an update and within it is one pass: equal bit for bit."""
    monkeypatch.setattr(attention, "DEVICES", ("cpu",))
    lm = tiny("llama")
    s = of_length(lm, 28, 20)
    assert torch.equal(score_all(lm, s).logprobs, score(lm, s).logprobs.detach())
    assert seen == {56}


def test_recomputed_activations(seen: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The backward pass computes them once more, after everybody has left."""
    lm = tiny("llama")
    recompute_activations(lm.core)
    s = of_length(lm, 28, 20)
    monkeypatch.setattr(attention, "DEVICES", ("cpu",))
    with lm.updating():
        score(lm, s).logprobs.sum().backward()
    assert seen == {56}


def test_a_recorded_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filled up to 64 it would be such a length."""
    lm = tiny("llama")
    recorded = Recorded(lm.core, lm._layers, lm._accepts)
    widths = []

    def record(sample: tuple[Tensor, ...], grad: bool) -> Callable[..., Tensor]:
        widths.append(sample[0].shape[1])
        return lambda ids, real, position: ids[..., None].float()

    monkeypatch.setattr(recorded, "_record", record)
    for length in (48, 49, 60, 64, 65, 80, 192):
        ids = torch.arange(length)[None]
        out = recorded({"input_ids": ids, "attention_mask": ids, "position_ids": ids})
        assert torch.equal(out[..., 0], ids.float())
    assert widths == [48, 80, 208]


@pytest.mark.parametrize("low", [16, 64, 65, 100, 128, 300])
def test_lengths_of_a_run_keep_their_recordings(low: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts and completions of every length from N to 4 N, again and again, with and without
    gradients: nothing is recorded twice, and little is filled."""
    lm = tiny("llama")
    recorded = Recorded(lm.core, lm._layers, lm._accepts)
    made: list[tuple[int, bool]] = []

    def record(sample: tuple[Tensor, ...], grad: bool) -> Callable[..., Tensor]:
        made.append((sample[0].shape[1], grad))
        return lambda ids, real, position: ids[..., None].float()

    monkeypatch.setattr(recorded, "_record", record)
    lengths = range(low, 4 * low + 1)
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(0))
    for index in [*order.tolist(), *order.flip(0).tolist()]:
        ids = torch.arange(lengths[index])[None]
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                out = recorded({"input_ids": ids, "attention_mask": ids, "position_ids": ids})
            assert torch.equal(out[..., 0], ids.float())
    widths = sorted({w for w, _ in made})
    assert len(made) == 2 * len(widths) <= 2 * (SHAPES - 1)
    assert not any(map(spoilt, widths))
    for length in lengths:
        filled = max(length / 4, WIDTH) + WIDTH * spoilt(filled_to(length) - WIDTH)
        assert length <= filled_to(length) < length + filled


def test_more_lengths_than_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one longest unused is made again, with and without gradients apart; what comes out
    without gradients is not what the next pass writes over."""
    lm = tiny("llama")
    recorded = Recorded(lm.core, lm._layers, lm._accepts)
    made: list[tuple[int, bool]] = []

    def record(sample: tuple[Tensor, ...], grad: bool) -> Callable[..., Tensor]:
        made.append((sample[0].shape[1], grad))
        place = torch.zeros(*sample[0].shape, 1)
        return lambda ids, real, position: place.copy_(ids[..., None])

    def take(width: int, grad: bool = True, first: int = 0) -> Tensor:
        ids = torch.arange(first, first + width)[None]
        with torch.set_grad_enabled(grad):
            return recorded({"input_ids": ids, "attention_mask": ids, "position_ids": ids})

    monkeypatch.setattr(recorded, "_record", record)
    widths = [16, 32, 48, 80, 96, 112, 128, 160, 224, 256, 384]
    assert len(widths) == SHAPES + 1 and [filled_to(w) for w in widths] == widths
    take(16, grad=False)
    for width in widths[:-1]:
        take(width)
    take(16)
    take(widths[-1])  # 32 is the one that was used before all others
    expected = [(16, False), *((w, True) for w in widths)]
    assert made == expected
    for width in (16, *widths[2:]):
        take(width)
    take(16, grad=False)
    assert made == expected
    take(32)
    take(16)
    assert made == [*expected, (32, True), (16, True)]
    one = take(16, grad=False)
    take(16, grad=False, first=5)
    assert one[0, 0] == 0 and len(made) == len(expected) + 2


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bart"])
def test_a_classifier(
    kind: str, tmp_path: Path, seen: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """BART pools at its EOS, of which all rows must have as many."""
    tiny_module(kind).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    settings = ModelSettings(path=str(tmp_path), device="cpu")
    c: TextClassifier = build_classifier(settings, ["no", "yes"], seed=0)
    texts = ["a" * (48 - (kind == "bart")), "b"]
    found = []
    for devices in ((), ("cpu",)):
        monkeypatch.setattr(attention, "DEVICES", devices)
        ids, mask = c.batch(c.encode(texts))
        assert ids.shape[1] == 48
        found.append(c.forward(ids, mask).detach())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert seen == {48, 56}


def test_a_classifier_that_reads_its_last_eos_and_pads_with_it(
    tmp_path: Path, seen: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_module("bart").save_pretrained(tmp_path)
    byte_tokenizer(pad=False).save_pretrained(tmp_path)
    c = build_classifier(ModelSettings(path=str(tmp_path), device="cpu"), ["no", "yes"], seed=0)
    monkeypatch.setattr(attention, "DEVICES", ("cpu",))
    ids, mask = c.batch(c.encode(["a" * 47]))
    c.forward(ids, mask)
    assert seen == {48}


def test_a_model_without_room_is_left_as_it_is(
    seen: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tile of 128 again: 64 positions are all of them."""
    monkeypatch.setattr(attention, "TILE", 128)
    monkeypatch.setattr(attention, "DEVICES", ("cpu",))
    lm = tiny("bart")
    assert lm.encoder_positions == lm.max_positions == 64
    assert lm.hidden(of_length(lm, 64, 63)).shape[:2] == (3, 64)
    assert seen == {64}
