"""B33: ids re-encoded, markers lost, multi-byte characters broken."""

from __future__ import annotations

from pathlib import Path

from tests.models_for_tests import EOS, byte_tokenizer
from tether.models.tokenizing import decode, encode_prompt

TEXT = "ok 🔥!"


def test_the_whole_response_is_decoded_at_once() -> None:
    tokenizer = byte_tokenizer()
    ids = encode_prompt(tokenizer, TEXT)
    assert len(ids) == 8
    assert decode(tokenizer, ids) == TEXT
    assert "".join(decode(tokenizer, [i]) for i in ids) == "ok " + "\ufffd" * 4 + "!"
    assert decode(tokenizer, ids[:5]) == "ok \ufffd"  # a cut character is one mark


def test_special_tokens_have_a_switch_and_text_is_left_alone() -> None:
    tokenizer = byte_tokenizer()
    ids = [*encode_prompt(tokenizer, "a , b ."), EOS]
    assert decode(tokenizer, ids) == "a , b ."  # no clean-up of spaces
    assert decode(tokenizer, ids, special=True) == "a , b .</s>"


def test_files_are_utf_8(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    file = tmp_path / "x.txt"
    file.write_text(decode(tokenizer, encode_prompt(tokenizer, TEXT)), encoding="utf-8")
    assert file.read_bytes() == TEXT.encode()
