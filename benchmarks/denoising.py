"""A small T5 from nothing: span corruption on texts at hand, for a stated time.

    python -m benchmarks.denoising tokenizer --texts texts.jsonl.gz --out tokenizer
    python -m benchmarks.denoising train --texts texts.jsonl.gz --tokenizer tokenizer --out t5 \\
        --seconds 150

Source: Raffel et al. 2020, arXiv 1910.10683, section 3.1.4, and t5's `random_spans_noise_mask`:
15 % of a window's tokens are noise, in spans of mean length 3; each span is one sentinel in the
input and follows it in the target. The rate follows the clock: a linear rise over the first
twentieth of the time, then a cosine to a tenth, so that a training cut to a time is a whole one.
`t5/denoising.json` has what it came to.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parts import sha256

SENTINELS, PAD, EOS, UNK = 100, "<pad>", "</s>", "<unk>"
NOISE, SPAN = 0.15, 3.0
PEAK = 2e-2
"""Learning rate of Adafactor, times the root mean square of each tensor (Shazeer and Stern, arXiv
1804.04235), as T5 trains."""
WINDOW, ROWS = 256, 256
"""Tokens of a window before corruption; windows of an optimizer step."""
HELD_OUT = 50
"""Every 50th text is not trained on; the loss on it is told."""
SHARD = "14MB"
"""Largest file of weights."""
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


def spans(length: int, rng: np.random.Generator) -> np.ndarray:
    """Which of `length` tokens are noise, [length] bool; the first is not. Every mask of a length
    has as many noise tokens and spans as any other, so batches need no padding."""
    noise, count = counts(length)
    lengths = np.empty(2 * count, dtype=int)
    lengths[0::2] = _segments(length - noise, count, rng)
    lengths[1::2] = _segments(noise, count, rng)
    return np.repeat(np.arange(2 * count) % 2 == 1, lengths)


def counts(length: int) -> tuple[int, int]:
    """(noise tokens, spans) of a window."""
    noise = min(max(round(length * NOISE), 1), length - 1)
    return noise, max(round(noise / SPAN), 1)


def _segments(total: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths of at least 1 that add up to total, all partitions equally likely."""
    cuts = np.sort(rng.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def corrupted(window: np.ndarray, first: int, end: int, rng: np.random.Generator) -> Any:
    """(input ids, target ids) of one window [L]; `first` is the id of sentinel 0, sentinel i has
    first - i, both sides close with `end`."""
    noise = spans(len(window), rng)
    return _marked(window, noise, first, end), _marked(window, ~noise, first, end)


def _marked(window: np.ndarray, gone: np.ndarray, first: int, end: int) -> np.ndarray:
    """The window with each run of what is gone as one sentinel."""
    begins = gone & ~np.concatenate([[False], gone[:-1]])
    ids = np.where(begins, first - (np.cumsum(begins) - 1), window)
    return np.append(ids[begins | ~gone], end)


def batches(
    stream: np.ndarray, first: int, end: int, rows: int, window: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Without end: windows of the stream in a new order each pass, cut at a new place."""
    rng = np.random.default_rng(seed)
    while True:
        shift = int(rng.integers(window))
        count = (len(stream) - shift) // window
        order = rng.permutation(count)
        for at in range(0, count - rows + 1, rows):
            pairs = [
                corrupted(stream[s : s + window], first, end, rng)
                for s in shift + order[at : at + rows] * window
            ]
            yield np.stack([p[0] for p in pairs]), np.stack([p[1] for p in pairs])


def stream_of(tokenizer: Any, texts: Sequence[str]) -> np.ndarray:
    """Ids of all texts, each closed by EOS, in one row."""
    out: list[np.ndarray] = []
    for at in range(0, len(texts), 20_000):
        found = tokenizer(list(texts[at : at + 20_000]), verbose=False)["input_ids"]
        out.append(np.concatenate([np.asarray(x, dtype=np.int32) for x in found]))
    return np.concatenate(out)


def rate(done: float, peak: float = PEAK) -> float:
    """Learning rate at a share of the time, relative to the size of a tensor as T5's optimizer
    takes it."""
    if done < 0.05:
        return peak * max(done, 0.001) / 0.05
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * (done - 0.05) / 0.95)))


def train(
    texts: Sequence[str], tokenizer: Any, out: Path, *, seconds: float, quick: bool, seed: int = 0
) -> dict[str, Any]:
    """Train for a time, write the model with its tokenizer and what it came to."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration
    from transformers.optimization import Adafactor

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows, window = (8, 64) if quick else (ROWS, WINDOW)
    first, end = tokenizer.convert_tokens_to_ids("<extra_id_0>"), tokenizer.eos_token_id
    held = list(texts[::HELD_OUT])
    kept = [t for i, t in enumerate(texts) if i % HELD_OUT]
    stream, test = stream_of(tokenizer, kept), stream_of(tokenizer, held)
    torch.manual_seed(seed)
    size = -(-len(tokenizer) // 64) * 64
    shape: dict[str, Any] = {**SHAPE, **(TINY if quick else {})}
    shape |= {"vocab_size": size, "pad_token_id": tokenizer.pad_token_id, "eos_token_id": end}
    config = T5Config(**shape, decoder_start_token_id=tokenizer.pad_token_id)
    model: Any = T5ForConditionalGeneration(config)
    model.to(device)
    fused = device.type == "cuda"
    optimizer = Adafactor(
        model.parameters(), lr=PEAK, scale_parameter=True, relative_step=False, warmup_init=False
    )

    def loss_of(pair: tuple[np.ndarray, np.ndarray]) -> Any:
        ids, labels = (torch.from_numpy(x.astype(np.int64)).to(device) for x in pair)
        with torch.autocast(device.type, torch.bfloat16, enabled=fused):
            return model(input_ids=ids, labels=labels).loss

    source = batches(stream, first, end, rows, window, seed)
    clock, steps, told = time.perf_counter(), 0, 0.0
    with ThreadPoolExecutor(1) as pool:  # the next batch is made while this one trains
        coming = pool.submit(next, source)
        while (gone := time.perf_counter() - clock) < seconds:
            pair, coming = coming.result(), pool.submit(next, source)
            for group in optimizer.param_groups:
                group["lr"] = rate(gone / seconds)
            loss = loss_of(pair)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            steps += 1
            if steps % 50 == 0 and gone - told > 10:  # asking the device waits for it
                told = gone
                print(f"{gone:6.0f} s  step {steps}  loss {float(loss):.3f}", flush=True)
    model.eval()
    some = batches(test, first, end, min(rows, max(1, len(test) // window - 1)), window, 1)
    with torch.no_grad():
        losses = [float(loss_of(next(some))) for _ in range(8)]
    model.to(torch.bfloat16).save_pretrained(out, max_shard_size=SHARD)
    tokenizer.save_pretrained(out)
    facts = {
        "seconds": seconds, "steps": steps, "tokens_seen": steps * rows * window,
        "tokens_of_texts": len(stream), "held_out_loss": sum(losses) / len(losses),
        "parameters": sum(p.numel() for p in model.parameters()), "seed": seed,
        "files": {p.name: sha256(p) for p in sorted(out.glob("*.safetensors"))},
    }  # fmt: skip
    (out / "denoising.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def main(words: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m benchmarks.denoising", description="see the module")
    p.add_argument("action", choices=("tokenizer", "train"))
    p.add_argument("--texts", type=Path, required=True, help=".jsonl.gz, one JSON text a line")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--tokenizer", type=Path)
    p.add_argument("--vocabulary", type=int, default=12_100)
    p.add_argument("--seconds", type=float, default=150.0)
    p.add_argument("--quick", action="store_true", help="a tiny model (a rehearsal)")
    given = p.parse_args(words)
    texts = texts_of(given.texts)
    if given.action == "tokenizer":
        train_tokenizer(texts, given.vocabulary).save_pretrained(given.out)
        return 0
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(given.tokenizer)
    print(train(texts, tokenizer, given.out, seconds=given.seconds, quick=given.quick))
    return 0


if __name__ == "__main__":
    sys.exit(main())
