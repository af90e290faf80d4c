"""The pretraining of the small T5: spans are corrupted as T5 says, batches come from a process
ahead of the device, a step waits for nothing, and the weights are written once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import denoising
from benchmarks.adafactor import Adafactor
from benchmarks.ahead import ahead
from benchmarks.denoising import (
    batches,
    corrupted,
    counts,
    least,
    made,
    rate,
    spans,
    train,
    train_tokenizer,
)
from benchmarks.parts import sha256
from tether.config.errors import UserError
from tether.config.run import ModelSettings
from tether.models.loading import load_language_model
from tether.models.weight_sets import WeightSets

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = np.random.default_rng(0)
    words = [f"{a}{b}" for a in ("ba", "do", "ki", "lu") for b in ("mer", "nat", "pos", "ril")]
    return [" ".join(rng.choice(words, 40)) for _ in range(400)]


@pytest.fixture(scope="module")
def tokenizer(texts: list[str]) -> Any:
    return train_tokenizer(texts, 300)


def test_noise_is_fifteen_percent_in_spans_of_three() -> None:
    assert counts(256) == (38, 13)  # .15 * 256 = 38.4; 38 / 3 = 12.7
    mask = spans(2000, 256, np.random.default_rng(0))
    assert mask.shape == (2000, 256) and set(mask.sum(axis=1)) == {38} and not mask[:, 0].any()
    begins = mask[:, 1:] & ~mask[:, :-1]
    assert set(begins.sum(axis=1)) == {13}
    # 218 kept tokens in 13 segments: 12 of 217 places are ends, the first as likely as any
    assert mask[:, 1].mean() == pytest.approx(12 / 217, abs=4 * (0.055 / 2000) ** 0.5)
    # the last token is always noise, the one before it unless the last span is one long: 12 of 37
    assert mask[:, -1].all()
    assert 1 - mask[:, -2].mean() == pytest.approx(12 / 37, abs=4 * (0.22 / 2000) ** 0.5)


def test_input_and_target_hold_each_window_between_them() -> None:
    windows = np.arange(10, 74) + 100 * np.arange(5)[:, None]
    all_ids, all_labels = corrupted(windows, first=999, end=1, rng=np.random.default_rng(0))
    noise, count = counts(64)
    assert all_ids.shape == (5, 64 - noise + count + 1)
    assert all_labels.shape == (5, noise + count + 1)
    assert len({tuple(row - row[0]) for row in all_ids}) > 1  # rows are cut at their own places
    for window, ids, labels in zip(windows, all_ids, all_labels, strict=True):
        assert ids[-1] == labels[-1] == 1
        assert sorted(i for i in [*ids, *labels] if i in window) == list(window)
        sentinels = [999 - k for k in range(count)]
        assert [i for i in ids if i > 900] == sentinels == [i for i in labels if i > 900]
        # sentinel k of the input is followed, in the target, by what it stands for
        at = list(ids).index(998)
        span = list(labels)[list(labels).index(998) + 1]
        assert ids[at - 1] + 1 == span


def test_the_rate_rises_then_falls_to_a_tenth() -> None:
    assert rate(0.025, 1.0) == pytest.approx(0.5)
    assert rate(0.05, 1.0) == pytest.approx(1.0) and rate(1.0, 1.0) == pytest.approx(0.1)


def source(seed: int) -> Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]:
    stream = np.arange(5, 5 + 64 * 40, dtype=np.int32)
    return lambda: batches(stream, 9000, 1, 8, 64, seed)


def test_a_seed_gives_the_same_batches_here_and_from_the_process_ahead() -> None:
    coming, here, other = ahead(source(0), CPU), source(0)(), source(1)()
    for _ in range(12):  # more than a pass, more than are made ahead
        ids, labels = next(coming)
        wanted = next(here)
        assert ids.dtype == labels.dtype == torch.int64
        assert np.array_equal(ids, wanted[0]) and np.array_equal(labels, wanted[1])
        assert not np.array_equal(ids, next(other)[0])


def test_batches_are_made_in_another_process_whose_failure_is_told() -> None:
    def failing() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield np.array([os.getpid()]), np.array([0])
        raise ValueError("no more texts")

    coming = ahead(failing, CPU)
    assert int(next(coming)[0]) != os.getpid()
    with pytest.raises(ValueError, match="no more texts"):
        next(coming)


def test_the_optimizer_is_that_of_transformers() -> None:
    from transformers.optimization import Adafactor as Theirs

    shapes = [(6, 4), (6, 4), (3,), (6, 4), (3,), (5, 2)]
    generator = torch.Generator().manual_seed(0)
    size = [1.0, 1e-5, 1.0, 30.0, 1e-5, 0.1]  # one below the least size of a tensor
    start = [torch.randn(s, generator=generator) * k for s, k in zip(shapes, size, strict=True)]
    ours, theirs = ([torch.nn.Parameter(x.clone()) for x in start] for _ in range(2))
    mine = Adafactor(ours, 0.0)
    reference = Theirs(
        theirs, lr=0.0, scale_parameter=True, relative_step=False, warmup_init=False
    )  # fmt: skip
    for number in range(8):
        for pair in zip(ours, theirs, strict=True):
            grad = torch.randn(pair[0].shape, generator=generator) * (10.0 if number == 3 else 1.0)
            for p in pair:
                p.grad = grad.clone()
        for optimizer in (mine, reference):
            optimizer.param_groups[0]["lr"] = 0.02 * (number + 1)
            optimizer.step()
    for a, b, c in zip(ours, theirs, start, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-9)
        assert not torch.equal(a, c)


class Waits(TorchDispatchMode):
    """Operations whose result Python needs: on a GPU each waits until all before it are done."""

    NAMES = ("_local_scalar_dense", "nonzero", "masked_select", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += any(n in str(func) for n in self.NAMES)
        return func(*args, **(kwargs or {}))


def test_a_step_waits_for_nothing(tokenizer: Any) -> None:
    from transformers.optimization import Adafactor as Theirs

    model = made(tokenizer, quick=True).train()
    ids = torch.randint(5, 100, (2, 16))
    theirs: Any = Theirs(model.parameters(), lr=0.01, relative_step=False, scale_parameter=True)
    waits = {}
    for optimizer in (Adafactor(model.parameters(), 0.01), theirs):
        denoising.step(model, optimizer, (ids, ids))  # the first makes its state
        with Waits() as seen:
            loss = denoising.step(model, optimizer, (ids, ids))
        waits[type(optimizer)] = seen.count
        assert not loss.requires_grad
    assert waits[Adafactor] == 0 < waits[Theirs]  # theirs: one a tensor


def test_as_many_steps_and_batches_as_asked_each_at_its_own_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A clock by which every step takes a second: 20 steps are 20 s, wherever the time goes."""
    now, rates = [100.0], []

    def step(model: Any, optimizer: Any, pair: Any) -> torch.Tensor:
        rates.append(optimizer.param_groups[0]["lr"])
        now[0] += 1.0
        return torch.tensor(0.0)

    def first_is_slow() -> Iterator[Any]:
        now[0] += 7.0  # until the first batch nothing can train
        for _ in range(20):
            yield None

    monkeypatch.setattr(denoising, "step", step)
    monkeypatch.setattr(denoising.time, "perf_counter", lambda: now[0])
    assert denoising.spend(torch.nn.Linear(2, 2), first_is_slow(), 20) == 20.0
    assert rates == [rate(i / 20) for i in range(20)]


def test_it_learns_the_weights_are_one_set_of_bits_and_a_second_training_has_the_same(
    texts: list[str], tokenizer: Any, tmp_path: Path
) -> None:
    out = tmp_path / "t5"
    facts = train(texts, tokenizer, out, steps=60, quick=True)
    assert facts["steps"] == 60 and facts["tokens_seen"] == 60 * 8 * 64
    assert facts["held_out_loss"] < 5.0  # ln 300 = 5.7 is a uniform guess
    again = train(texts, tokenizer, tmp_path / "again", steps=60, quick=True)
    assert {**again, "seconds": 0} == {**facts, "seconds": 0}
    assert facts == json.loads((out / "denoising.json").read_text())
    files = sorted(out.glob("*.safetensors"))
    assert facts["files"] == {f.name: sha256(f) for f in files}
    stored = {k: v for f in files for k, v in load_file(f).items()}
    assert {v.dtype for v in stored.values()} == {torch.bfloat16}
    assert sum(f.stat().st_size for f in files) < 2.1 * facts["parameters"] + 50_000
    assert json.loads((out / "config.json").read_text())["dtype"] == "bfloat16"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_cells_train_fp32_masters_of_these_bits(
    dtype: str, texts: list[str], tokenizer: Any, tmp_path: Path
) -> None:
    """bfloat16 is what `auto` takes on a GPU; the study's settings say nothing else."""
    out = tmp_path / "t5"
    train(texts, tokenizer, out, steps=1, quick=True)
    kind: Any = dtype
    lm = load_language_model(ModelSettings(path=str(out), dtype=kind, device="cpu"), seed=0)
    masters = WeightSets(lm).sets["policy"]
    (file,) = out.glob("*.safetensors")
    stored = load_file(file)
    assert masters and {m.dtype for m in masters.values()} == {torch.float32}
    for name, value in stored.items():
        assert torch.equal(masters[name.removeprefix("module.")], value.float()), name


def test_texts_are_cut_on_all_cores_and_the_setting_stays(
    texts: list[str], tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    seen = []

    def spying(some: list[str], **kwargs: Any) -> Any:
        seen.append(os.environ["TOKENIZERS_PARALLELISM"])
        return tokenizer(some, **kwargs)

    stream = denoising.stream_of(spying, texts[:3])
    assert seen == ["true"] and os.environ["TOKENIZERS_PARALLELISM"] == "false"
    assert list(stream) == [i for t in texts[:3] for i in tokenizer(t)["input_ids"]]
    monkeypatch.delenv("TOKENIZERS_PARALLELISM")
    denoising.stream_of(spying, texts[:3])
    assert "TOKENIZERS_PARALLELISM" not in os.environ


def test_too_few_tokens_are_told_before_anything_starts(
    texts: list[str], tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source without a batch would be waited for without end."""

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("started")

    monkeypatch.setattr("benchmarks.ahead.ahead", never)
    long = " ".join(texts[:20])
    for some, wanted in (
        (texts[:3], r"tokens to train on, and need 575: give more"),  # 9 windows of 64, less one
        ([], r"have 0 tokens to train on"),
        (["short", *texts[:30]], r"tokens held out \(one text of 50\), and need 127"),
    ):
        with pytest.raises(UserError, match=wanted):
            train(some, tokenizer, tmp_path / "t5", steps=1, quick=True)
    assert not (tmp_path / "t5").exists()
    with pytest.raises(AssertionError, match="started"):
        train([long, long], tokenizer, tmp_path / "t5", steps=1, quick=True)


@pytest.mark.parametrize("seed", range(20))
def test_the_least_stream_has_a_batch_every_pass(seed: int) -> None:
    """Cut at its last place it has just enough: 3 windows of 5 after 4 tokens."""
    assert least(3, 5) == 4 + 3 * 5
    source = batches(np.arange(10, 10 + least(3, 5), dtype=np.int32), 900, 1, 3, 5, seed)
    assert [len(next(source)[0]) for _ in range(3)] == [3, 3, 3]
