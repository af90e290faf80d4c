"""Raw rows -> prompt ids that fit (B32)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tether.models.tokenizing import decode, encode_prompt
from tether.rewards.batch import Prompt, text_of

Policy = Literal["error", "drop", "truncate_left", "truncate_right"]


@dataclass(frozen=True)
class Frame:
    """Tokens of a prompt that are not its text: they survive every cut."""

    head: int
    """At the front: the start token, where the tokenizer adds one."""
    tail: int
    """At the end: what follows the last message in the chat template (the assistant's turn), or
    the EOS that an encoder reads."""


def specials(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Tokens that the tokenizer puts before and after a text."""
    bare = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    full = list(tokenizer("a")["input_ids"])
    for i in range(len(full) - len(bare) + 1):
        if full[i : i + len(bare)] == bare:
            return full[:i], full[i + len(bare) :]
    return [], []


def bare_ids(tokenizer: Any, texts: Sequence[str], chunk: int = 1000) -> list[list[int]]:
    """Ids of texts without special tokens, in batches (a fast tokenizer uses all its threads).

    `verbose=False`: a text longer than the model is legal here, it is cut before it is used.
    """
    out: list[list[int]] = []
    for i in range(0, len(texts), chunk):
        part = list(texts[i : i + chunk])
        out += tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"]
    return out


def frame(
    tokenizer: Any, prompt: Prompt, ids: list[int], ends: tuple[list[int], list[int]]
) -> Frame:
    """What of `ids` must be kept when the prompt is cut. `ends` = `specials(tokenizer)`."""
    if isinstance(prompt, str):
        head, tail = ends
        return Frame(len(head), len(tail))
    # The tail is what two prompts that differ in the last message's text have in common at the end.
    other = [*prompt[:-1], {**prompt[-1], "content": text_of([prompt[-1]]) + " 0"}]
    third = [*prompt[:-1], {**prompt[-1], "content": text_of([prompt[-1]]) + " 1"}]
    a, b = encode_prompt(tokenizer, other), encode_prompt(tokenizer, third)
    tail_length = 0
    for x, y, z in zip(reversed(a), reversed(b), reversed(ids), strict=False):
        if not x == y == z:
            break
        tail_length += 1
    start = tokenizer.bos_token_id
    return Frame(int(start is not None and ids[:1] == [start]), tail_length)


def cut(ids: list[int], limit: int, kept: Frame, policy: Policy) -> list[int] | None:
    """`ids` with its text cut to `limit` tokens in all, or None where the frame alone is longer."""
    room = limit - kept.head - kept.tail
    if room < 1:
        return None
    end = len(ids) - kept.tail
    text = ids[kept.head : end]
    text = text[-room:] if policy == "truncate_left" else text[:room]
    return ids[: kept.head] + text + ids[end:]


def shown(tokenizer: Any, prompt: Prompt, ids: list[int]) -> Prompt:
    """What rewards see of a prompt that was cut: the text that the model saw; chat messages stay
    as they are."""
    return decode(tokenizer, ids) if isinstance(prompt, str) else prompt
