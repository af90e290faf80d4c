"""A word-level tokenizer small enough to count by hand."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

CHAT = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def toy_tokenizer(bos: bool = False, words: int = 100) -> Any:
    """`w0` ... are ids from 8 on; 0 pad, 1 eos, 2 bos, 3 unknown, 4 to 7 chat marks."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<user>", "<system>", "<assistant>", "<end>"]
    vocabulary = {w: i for i, w in enumerate([*special, *(f"w{i}" for i in range(words))])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if bos:
        inner.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", 2)]
        )
    out = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<bos>" if bos else None,
    )
    out.chat_template = CHAT
    return out


def words(n: int, start: int = 0) -> str:
    return " ".join(f"w{i}" for i in range(start, start + n))
