"""The small language model of the quickstart: its tokenizer and its training."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

EOS, PAD = "<eos>", "<pad>"


def train_tokenizer(texts: list[str], size: int = 2048) -> PreTrainedTokenizerFast:
    """A byte-level BPE of `size` tokens in all."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[EOS, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS,
        pad_token=PAD,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def configuration(vocabulary: int) -> LlamaConfig:
    """About a million parameters: a quarter of them are the tied embeddings."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=1,
        initializer_range=0.04,
    )


def batches(rows: list[list[int]], tokens: int, draw: random.Random) -> Iterator[Tensor]:
    """One epoch of batches of about `tokens` tokens, of texts of similar length, padded by -100."""
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i]), draw.random()))
    cut: list[list[int]] = [[]]
    for i in order:
        if (len(cut[-1]) + 1) * len(rows[i]) > tokens:
            cut.append([])
        cut[-1].append(i)
    draw.shuffle(cut)
    for chosen in cut:
        width = max(len(rows[i]) for i in chosen)
        yield torch.tensor([rows[i] + [-100] * (width - len(rows[i])) for i in chosen])


def loss_of(model: LlamaForCausalLM, labels: Tensor) -> tuple[Tensor, int]:
    """(summed NLL in nats, number of predicted tokens); the first token is not predicted."""
    logits = model(input_ids=labels.clamp(min=0), use_cache=False).logits[:, :-1].float()
    target = labels[:, 1:]
    nll = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=-100, reduction="sum"
    )
    return nll, int((target != -100).sum())


@torch.inference_mode()
def validation_loss(model: LlamaForCausalLM, rows: list[list[int]], device: str) -> float:
    """NLL in nats per token."""
    model.eval()
    total, count = 0.0, 0
    for labels in batches(rows, 8192, random.Random(0)):
        nll, n = loss_of(model, labels.to(device))
        total, count = total + float(nll), count + n
    model.train()
    return total / count


def train(
    rows: list[list[int]],
    held_out: list[list[int]],
    vocabulary: int,
    *,
    epochs: float,
    tokens: int = 2048,
    lr: float = 4e-3,
    dropout: float = 0.1,
    seed: int = 0,
    device: str = "cpu",
) -> tuple[LlamaForCausalLM, dict[str, Any]]:
    """AdamW, 200 steps of warm-up, cosine to a twentieth over `epochs`."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    model = LlamaForCausalLM(configuration(vocabulary)).to(device).train()
    hooks = with_dropout(model, dropout)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        lr=lr,
        betas=(0.9, 0.98),
    )
    total = epochs * sum(len(row) - 1 for row in rows)
    start, step, done, epoch, shown, share = time.perf_counter(), 0, 0, 0, 0.0, 0.0
    while share < 1:
        epoch += 1
        if epoch > 1:
            print(f"epoch {epoch - 1}: held out {validation_loss(model, held_out, device):.4f}")
        for labels in batches(rows, tokens, draw):
            spent = time.perf_counter() - start
            share = done / total
            if share >= 1:
                break
            cosine = 0.05 + 0.95 * (1 + math.cos(math.pi * share)) / 2
            now = lr * min(1.0, (step + 1) / 200) * cosine
            for group in optimizer.param_groups:
                group["lr"] = now
            nll, n = loss_of(model, labels.to(device))
            (nll / n).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            step, done = step + 1, done + n
            if spent - shown > 30:
                shown = spent
                print(
                    f"{spent:.0f} s, epoch {epoch}, step {step}, loss {float(nll) / n:.3f}, "
                    f"{done / spent:.0f} tokens/s",
                    flush=True,
                )
    for hook in hooks:
        hook.remove()
    facts = {
        "epochs": epochs,
        "steps": step,
        "validation_nats_per_token": round(validation_loss(model, held_out, device), 4),
    }
    return model.eval(), facts


def with_dropout(model: LlamaForCausalLM, share: float) -> list[Any]:
    """Dropout on the embeddings and on what each attention and MLP adds; handles that remove it."""

    def drop(module: torch.nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return torch.nn.functional.dropout(output, share, training=model.training)

    places = [model.model.embed_tokens]
    for layer in model.model.layers:
        places += [layer.self_attn.o_proj, layer.mlp.down_proj]
    return [place.register_forward_hook(drop) for place in places]


def encode(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> list[list[int]]:
    """Ids of each text, with EOS at its end."""
    eos = tokenizer.convert_tokens_to_ids(EOS)
    return [[*ids, eos] for ids in tokenizer(texts)["input_ids"]]


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """config.json, model.safetensors in fp16 (half the bytes; read as fp32), tokenizer."""
    model.cpu().to(torch.float16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for path in folder.iterdir():
        path.chmod(0o644)
