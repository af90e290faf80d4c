"""Padding with masks, prompts, decoding."""

from __future__ import annotations

import pytest

from tests.models_for_tests import BOS, EOS, byte_tokenizer
from tether.config.errors import UserError
from tether.models.tokenizing import decode, encode_prompt, pad, stop_ids


def test_pad_on_both_sides() -> None:
    ids, mask = pad([[1, 2, 3], [9]], "left", 7)
    assert ids.tolist() == [[1, 2, 3], [7, 7, 9]]
    assert mask.tolist() == [[True] * 3, [False, False, True]]
    ids, mask = pad([[1, 2, 3], [9]], "right", 9)
    assert ids.tolist() == [[1, 2, 3], [9, 9, 9]]
    assert mask.tolist() == [[True] * 3, [True, False, False]]  # a real id equal to pad stays real
    assert pad([], "left", 0)[0].shape == (0, 0) and pad([[], [1]], "right", 5)[1].sum() == 1


def test_prompts_as_text_and_as_messages() -> None:
    tokenizer = byte_tokenizer()
    assert encode_prompt(tokenizer, "ab") == tokenizer("ab")["input_ids"]
    assert encode_prompt(tokenizer, "") == [BOS]
    tokenizer.bos_token = None
    assert encode_prompt(tokenizer, "") == [EOS]
    chat = [{"role": "user", "content": "hi"}]
    with pytest.raises(UserError, match="no chat template"):
        encode_prompt(tokenizer, chat)
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    assert decode(tokenizer, encode_prompt(tokenizer, chat)) == "<user>hi<assistant>"


def test_half_a_surrogate_pair_is_one_line() -> None:
    for prompt in ("ab\udcff", [{"role": "user", "content": "ab\udcff"}]):
        with pytest.raises(UserError, match=r"^prompt .*: character 3 is half of a surrogate pair"):
            encode_prompt(byte_tokenizer(), prompt)


def test_special_tokens_are_shown_on_request() -> None:
    tokenizer = byte_tokenizer()
    ids = [*tokenizer("a .")["input_ids"], EOS]
    assert decode(tokenizer, ids) == "a ." and decode(tokenizer, ids, special=True) == "a .</s>"


def test_stops_are_single_tokens() -> None:
    tokenizer = byte_tokenizer()
    assert stop_ids(tokenizer, ["</s>", "\n"]) == (EOS, tokenizer("\n")["input_ids"][0])
    with pytest.raises(UserError, match="'ab' is 2 tokens"):
        stop_ids(tokenizer, ["ab"])
