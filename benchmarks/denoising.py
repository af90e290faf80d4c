"""A small T5 from nothing: span corruption on texts at hand, for a stated number of steps.

    python -m benchmarks.denoising tokenizer --texts texts.jsonl.gz --out tokenizer
    python -m benchmarks.denoising train --texts texts.jsonl.gz --tokenizer tokenizer --out t5 \\
        --steps 3000

Source: Raffel et al. 2020, arXiv 1910.10683, section 3.1.4, and t5's `random_spans_noise_mask`:
15 % of a window's tokens are noise, in spans of mean length 3; each span is one sentinel in the
input and follows it in the target. The rate rises along a line over the first twentieth of the
steps, then falls along a cosine to a tenth. Steps and not seconds, so that a training beside others
is the same one. `t5/denoising.json` has what it came to.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parts import sha256
from tether.config.errors import UserError

SENTINELS, PAD, EOS, UNK = 100, "<pad>", "</s>", "<unk>"
NOISE, SPAN = 0.15, 3.0
PEAK = 2e-2
"""Learning rate of Adafactor, times the root mean square of each tensor (Shazeer and Stern, arXiv
1804.04235), as T5 trains."""
WINDOW, ROWS = 256, 256
"""Tokens of a window before corruption; windows of an optimizer step."""
STEPS = 3000
"""With which the loss on texts held out is 3.6; a training of 1,294 steps came to 5.0."""
HELD_OUT = 50
"""Every 50th text is not trained on; the loss on it is told."""
SHARD = "14MB"
"""Largest file of weights."""
IN_FLIGHT = 2
"""Steps that the device may be behind."""
PARALLEL = "TOKENIZERS_PARALLELISM"
SHAPE: dict[str, Any] = {
    "d_model": 384, "d_kv": 64, "num_heads": 6, "d_ff": 1280, "num_layers": 6,
    "feed_forward_proj": "relu", "tie_word_embeddings": True,
    "dropout_rate": 0.1,
}  # fmt: skip
TINY = {"d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 64, "num_layers": 2}


def texts_of(file: Path) -> list[str]:
    """One JSON text a line."""
    with gzip.open(file, "rt", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> Any:
    """Byte-pair merges over text whose spaces are kept as T5 keeps them; sentinels come last, the
    first of them the last id, as in T5."""
    from tokenizers import (
        AddedToken,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE(unk_token=UNK, byte_fallback=False))
    inner.normalizer = normalizers.Sequence([normalizers.NFKC()])
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - SENTINELS, special_tokens=[PAD, EOS, UNK], limit_alphabet=400,
        min_frequency=2, show_progress=False,
    )  # fmt: skip
    inner.train_from_iterator(texts, trainer)
    sentinels = [f"<extra_id_{i}>" for i in reversed(range(SENTINELS))]
    inner.add_special_tokens([AddedToken(s, normalized=False) for s in sentinels])
    inner.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}",
        pair=f"$A {EOS} $B {EOS}",
        special_tokens=[(EOS, inner.token_to_id(EOS))],
    )
    made: Any = PreTrainedTokenizerFast
    return made(
        tokenizer_object=inner, pad_token=PAD, eos_token=EOS, unk_token=UNK,
        additional_special_tokens=list(reversed(sentinels)),
    )  # fmt: skip


def spans(rows: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """Which tokens of some windows are noise, [rows, length] bool; the first of each is not. Every
    mask of a length has as many noise tokens and spans as any other, so batches need no padding."""
    noise, count = counts(length)
    lengths = np.empty((rows, 2 * count), dtype=np.int64)
    lengths[:, 0::2] = _segments(rows, length - noise, count, rng)
    lengths[:, 1::2] = _segments(rows, noise, count, rng)
    of_noise = np.tile(np.arange(2 * count) % 2 == 1, rows)
    return np.repeat(of_noise, lengths.ravel()).reshape(rows, length)


def counts(length: int) -> tuple[int, int]:
    """(noise tokens, spans) of a window."""
    noise = min(max(round(length * NOISE), 1), length - 1)
    return noise, max(round(noise / SPAN), 1)


def _segments(rows: int, total: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths of at least 1 that add up to total, [rows, parts], all partitions equally likely."""
    ends = np.broadcast_to([[0, total]], (rows, 2))
    if parts > 1:  # the places of the smallest of random numbers are any places equally likely
        drawn = rng.random((rows, total - 1), dtype=np.float32)
        cuts = np.argpartition(drawn, parts - 2, axis=1)[:, : parts - 1] + 1
        ends = np.sort(np.concatenate([ends, cuts], axis=1), axis=1)
    return np.diff(ends, axis=1)


def corrupted(windows: np.ndarray, first: int, end: int, rng: np.random.Generator) -> Any:
    """(input ids, target ids), each [rows, shorter], of windows [rows, L]; `first` is the id of
    sentinel 0, sentinel i has first - i, both sides close with `end`."""
    noise = spans(len(windows), windows.shape[1], rng)
    return _marked(windows, noise, first, end), _marked(windows, ~noise, first, end)


def _marked(windows: np.ndarray, gone: np.ndarray, first: int, end: int) -> np.ndarray:
    """The windows with each run of what is gone as one sentinel."""
    begins = gone.copy()
    begins[:, 1:] &= ~gone[:, :-1]
    ids = np.where(begins, first + 1 - np.cumsum(begins, axis=1), windows)
    kept = ids[begins | ~gone].reshape(len(windows), -1)
    return np.pad(kept, ((0, 0), (0, 1)), constant_values=end).astype(np.int32)


def batches(
    stream: np.ndarray, first: int, end: int, rows: int, window: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Without end: windows of the stream in a new order each pass, cut at a new place; int32.
    The stream has at least `least(rows, window)` tokens: then every pass has a batch."""
    rng = np.random.default_rng(seed)
    while True:
        shift = int(rng.integers(window))
        count = (len(stream) - shift) // window
        order = rng.permutation(count)
        for at in range(0, count - rows + 1, rows):
            starts = shift + order[at : at + rows] * window
            yield corrupted(stream[starts[:, None] + np.arange(window)], first, end, rng)


def least(rows: int, window: int) -> int:
    """Tokens with which a pass has a batch wherever its windows begin."""
    return (rows + 1) * window - 1


def stream_of(tokenizer: Any, texts: Sequence[str]) -> np.ndarray:
    """Ids of all texts, each closed by EOS, in one row; on all cores, whatever else may run on one
    thread."""
    out = [np.empty(0, dtype=np.int32)]
    before = os.environ.get(PARALLEL)
    os.environ[PARALLEL] = "true"
    try:
        for at in range(0, len(texts), 20_000):
            found = tokenizer(list(texts[at : at + 20_000]), verbose=False)["input_ids"]
            out.append(np.concatenate([np.asarray(x, dtype=np.int32) for x in found]))
    finally:
        os.environ.pop(PARALLEL)
        if before is not None:
            os.environ[PARALLEL] = before
    return np.concatenate(out)


def rate(done: float, peak: float = PEAK) -> float:
    """Learning rate at a share of the steps, relative to the size of a tensor as T5's optimizer
    takes it."""
    if done < 0.05:
        return peak * max(done, 0.001) / 0.05
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * (done - 0.05) / 0.95)))


def train(
    texts: Sequence[str], tokenizer: Any, out: Path, *, steps: int, quick: bool, seed: int = 0
) -> dict[str, Any]:
    """Train for some steps, write the model in bf16 with its tokenizer and what it came to.

    The master weights are fp32 and the passes bf16 on a GPU, fp32 on a CPU; a seed gives the same
    batches on both.

    Raises UserError: too few tokens for one batch of training, or for one window held out.
    """
    import torch

    from benchmarks.ahead import ahead

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows, window = (8, 64) if quick else (ROWS, WINDOW)
    first, end = tokenizer.convert_tokens_to_ids("<extra_id_0>"), tokenizer.eos_token_id
    clock = time.perf_counter()
    stream, test = (
        stream_of(tokenizer, [t for i, t in enumerate(texts) if bool(i % HELD_OUT) == kept])
        for kept in (True, False)
    )
    for some, has, needed in (
        ("to train on", len(stream), least(rows, window)),
        (f"held out (one text of {HELD_OUT})", len(test), least(1, window)),
    ):
        if has < needed:
            raise UserError(f"the texts have {has:,} tokens {some}, and need {needed:,}: give more")
    print(f"{len(stream):,} tokens in {time.perf_counter() - clock:.0f} s", flush=True)
    source = ahead(lambda: batches(stream, first, end, rows, window, seed), device)
    torch.manual_seed(seed)
    model = made(tokenizer, quick).to(device)
    took = spend(model, source, steps)
    model.eval()
    held = batches(test, first, end, min(rows, max(1, len(test) // window - 1)), window, 1)
    with torch.no_grad():
        pairs = ([torch.from_numpy(x).long().to(device) for x in next(held)] for _ in range(8))
        losses = [float(loss_of(model, *pair)) for pair in pairs]
    model.to(torch.bfloat16).save_pretrained(out, max_shard_size=SHARD)
    tokenizer.save_pretrained(out)
    facts = {
        "seconds": round(took, 2), "steps": steps,
        "tokens_seen": steps * rows * window, "tokens_of_texts": len(stream),
        "held_out_loss": sum(losses) / len(losses),
        "parameters": sum(p.numel() for p in model.parameters()), "seed": seed,
        "files": {p.name: sha256(p) for p in sorted(out.glob("*.safetensors"))},
    }  # fmt: skip
    (out / "denoising.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def made(tokenizer: Any, quick: bool) -> Any:
    """The model with random weights."""
    from transformers import T5Config, T5ForConditionalGeneration

    shape: dict[str, Any] = {**SHAPE, **(TINY if quick else {})}
    shape |= {"vocab_size": -(-len(tokenizer) // 64) * 64, "eos_token_id": tokenizer.eos_token_id}
    pad = tokenizer.pad_token_id
    shape |= {"pad_token_id": pad, "decoder_start_token_id": pad}
    config = T5Config(**shape)
    return T5ForConditionalGeneration(config)


def loss_of(model: Any, ids: Any, labels: Any) -> Any:
    """Mean cross-entropy of the targets, a scalar on the device."""
    import torch

    with torch.autocast(ids.device.type, torch.bfloat16, enabled=ids.device.type == "cuda"):
        return model(input_ids=ids, labels=labels).loss


def spend(model: Any, source: Iterator[Any], steps: int) -> float:
    """Train for some steps. Returns the seconds that they took, from the first batch on.

    The device is never waited for but where a line is printed and where it is `IN_FLIGHT` steps
    behind, which keeps the lines at their time.
    """
    import torch

    from benchmarks.adafactor import Adafactor

    model.train()
    optimizer = Adafactor(model.parameters(), PEAK)
    on_gpu = next(model.parameters()).is_cuda
    flight: deque[Any] = deque()
    pair = next(source)
    clock, told = time.perf_counter(), 0.0
    for done in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(done / steps)
        loss = step(model, optimizer, pair)
        if on_gpu:
            event: Any = torch.cuda.Event
            flight.append(event())
            flight[-1].record()
            if len(flight) > IN_FLIGHT:
                flight.popleft().synchronize()
        if done + 1 < steps:
            pair = next(source)
        gone = time.perf_counter() - clock
        if gone - told > 10:
            told = gone
            print(f"{gone:6.0f} s  step {done + 1} of {steps}  loss {float(loss):.3f}", flush=True)
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - clock


def step(model: Any, optimizer: Any, pair: Any) -> Any:
    """One optimizer step; its loss, on the device."""
    import torch

    loss = loss_of(model, *pair)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def main(words: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m benchmarks.denoising", description="see the module")
    p.add_argument("action", choices=("tokenizer", "train"))
    p.add_argument("--texts", type=Path, required=True, help=".jsonl.gz, one JSON text a line")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--tokenizer", type=Path)
    p.add_argument("--vocabulary", type=int, default=12_100)
    p.add_argument("--steps", type=int, default=STEPS)
    p.add_argument("--quick", action="store_true", help="a tiny model (a rehearsal)")
    given = p.parse_args(words)
    texts = texts_of(given.texts)
    if given.action == "tokenizer":
        train_tokenizer(texts, given.vocabulary).save_pretrained(given.out)
        return 0
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(given.tokenizer)
    try:
        print(train(texts, tokenizer, given.out, steps=given.steps, quick=given.quick))
    except UserError as e:
        print(f"denoising: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
