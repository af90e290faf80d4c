"""Text to ids and back. Ids are never re-encoded between rollout and update (B33)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jinja2 import TemplateError
from torch import Tensor

from tether.config.errors import UserError
from tether.config.half_pairs import HALF_PAIR, half_pair_within

Message = dict[str, Any]
Prompt = str | Sequence[Message]


def pad(
    rows: Sequence[Sequence[int]], side: Literal["left", "right"] | str, value: int
) -> tuple[Tensor, Tensor]:
    """Rows of ids -> ids [B,L] and mask [B,L] (True = real). The mask is the only record of what
    is real: `value` may be a genuine id such as EOS (B02)."""
    width = max((len(r) for r in rows), default=0)
    ids = torch.full((len(rows), width), value, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.bool)
    for i, row in enumerate(rows):
        at = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[i, at] = torch.tensor(row, dtype=torch.long)
        mask[i, at] = True
    return ids, mask


def encode_prompt(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Ids of one prompt: text with the tokenizer's own special tokens, or chat messages through
    its chat template up to the assistant's turn.

    An empty prompt is the start token (else EOS): a model needs something to read.
    Raises UserError for messages where the tokenizer has no chat template, and for half of a
    surrogate pair (of a terminal too: bytes that are no UTF-8).
    """
    if (at := half_pair_within(prompt)) is not None:
        raise UserError(f"prompt {prompt!r:.60}: character {at} is {HALF_PAIR}; write it whole")
    if isinstance(prompt, str):
        ids = list(tokenizer(prompt)["input_ids"])
    else:
        if not getattr(tokenizer, "chat_template", None):
            raise UserError(
                "the prompts are chat messages but the tokenizer has no chat template; "
                "use text prompts or a chat model"
            )
        try:
            ids = list(
                tokenizer.apply_chat_template(
                    list(prompt), add_generation_prompt=True, tokenize=True, return_dict=False
                )
            )
        except TemplateError as e:
            raise UserError(
                f"the tokenizer's chat template fails on a prompt: {e}; its first message is "
                f"{str(prompt[0])[:60]}"
            ) from e
    if ids:
        return ids
    start = tokenizer.bos_token_id
    return [tokenizer.eos_token_id if start is None else start]


def encode_answers(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Ids of human completions as an encoder-decoder model learned to write them: with the special
    tokens of its target side (BART's start token, mBART's language) up to the first EOS after the
    text, which is added where the tokenizer puts none."""
    end = int(tokenizer.eos_token_id)
    out = []
    for ids in tokenizer(text_target=list(texts), verbose=False)["input_ids"]:
        last = len(ids) - 1 - ids[::-1].index(end) if end in ids else len(ids)
        out.append([*ids[:last], end])
    return out


def decode(tokenizer: Any, ids: Sequence[int] | Tensor, special: bool = False) -> str:
    """Text of one whole response at once; a cut multi-byte character is one replacement mark.

    Pass real ids only (pads are a matter of the mask). `special` keeps special tokens.
    """
    if isinstance(ids, Tensor):
        ids = ids.tolist()
    return str(
        tokenizer.decode(
            list(ids), skip_special_tokens=not special, clean_up_tokenization_spaces=False
        )
    )


def stop_ids(tokenizer: Any, texts: Sequence[str]) -> tuple[int, ...]:
    """Ids of stop texts, each of exactly one token. Raises UserError otherwise."""
    out = []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            raise UserError(
                f"sampling.stop: {text!r} is {len(ids)} tokens of this tokenizer; "
                "a stop must be exactly one"
            )
        out.append(int(ids[0]))
    return tuple(out)
