"""Passes at the lengths where cuDNN's attention has NaN for a gradient do without it, and no other
pass does (pytorch/pytorch issue 196678)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.backends.cuda import cudnn_sdp_enabled, enable_cudnn_sdp

from tests.models_for_tests import some_sequences, tiny
from tether.models.attention import sound, spoilt
from tether.models.language_model import LanguageModel
from tether.models.recorded import _States
from tether.models.scoring import score, score_all
from tether.types import Sequences


def test_lengths() -> None:
    """As the report lists them."""
    failing = [64, 192, 320, 704, 832, 1088, 2112]
    assert [n for n in (*failing, 1, 63, 65, 96, 128, 640, 768) if spoilt(n)] == failing


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, set[bool]]]:
    """Number of keys -> whether attention over them might have been cuDNN's."""
    found: dict[int, set[bool]] = {}
    attention: Callable[..., torch.Tensor] = torch.nn.functional.scaled_dot_product_attention

    def watched(query: Any, key: Any, *args: Any, **more: Any) -> torch.Tensor:
        found.setdefault(key.shape[-2], set()).add(cudnn_sdp_enabled())
        return attention(query, key, *args, **more)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    yield found
    assert cudnn_sdp_enabled()


def of_length(lm: LanguageModel, prompt: int, completion: int) -> Sequences:
    few = some_sequences(lm, 4)
    rows = len(few.prompt)
    return Sequences(
        prompt=few.prompt[:, :1].expand(rows, prompt).contiguous(),
        prompt_mask=torch.ones(rows, prompt, dtype=torch.bool),
        completion=few.completion[:, :1].expand(rows, completion).contiguous(),
        completion_mask=torch.ones(rows, completion, dtype=torch.bool),
    )


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("passes", [score, score_all])
def test_decoders(kind: str, passes: Callable[..., Any], seen: dict[int, set[bool]]) -> None:
    lm = tiny(kind)
    for prompt in (20, 19):
        passes(lm, of_length(lm, prompt, 44))
    assert seen == {64: {False}, 63: {True}}


def test_encoder_and_decoder(seen: dict[int, set[bool]]) -> None:
    """A length of either: the keys of its encoder, of its decoder and of what joins them."""
    lm = tiny("bart")
    for prompt, completion in ((64, 7), (7, 63), (7, 8)):
        score(lm, of_length(lm, prompt, completion))
    assert seen[64] == {False}
    assert True in seen[9]


def test_a_recorded_pass(seen: dict[int, set[bool]]) -> None:
    lm = tiny("llama")
    states = _States(lm.core.get_decoder(), lm._layers)
    for length in (64, 80):
        ids = torch.ones(1, length, dtype=torch.long)
        states(ids, ids.bool(), torch.arange(length)[None])
    assert seen == {64: {False}, 80: {True}}


def test_the_last_of_several_threads_brings_it_back() -> None:
    inside, go = threading.Event(), threading.Event()

    def other() -> None:
        with sound(64):
            inside.set()
            go.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(10)
    with sound(192):
        go.set()
        thread.join()
        assert not cudnn_sdp_enabled()
    assert cudnn_sdp_enabled()


def test_what_a_user_switched_off_stays_off() -> None:
    enable_cudnn_sdp(False)
    try:
        with sound(64):
            assert not cudnn_sdp_enabled()
        assert not cudnn_sdp_enabled()
    finally:
        enable_cudnn_sdp(True)
