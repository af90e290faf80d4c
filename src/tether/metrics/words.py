"""Texts -> words and sentences, for the metrics that leave the choice open.

Small rules that need no data file. Where a metric's published numbers come from a tokenizer of
their own, the metric uses that one and says so.
"""

from __future__ import annotations

import re

_WORD = r"\w+(?:['’-]\w+)*"
_WORDS = re.compile(_WORD)
_TOKENS = re.compile(rf"{_WORD}|[^\w\s]")
_BREAK = re.compile(r"\s*\n\s*|(?<=[.!?…])\s+|(?<=[.!?…][\"'”’)\]])\s+|(?<=[。！？])")


def words(text: str) -> list[str]:
    """Lower-cased words of any script, without punctuation: `It's 3-0!` -> it's, 3-0."""
    return _WORDS.findall(text.lower())


def tokens(text: str) -> list[str]:
    """Lower-cased words and single punctuation marks: `A cat.` -> a, cat, `.`"""
    return _TOKENS.findall(text.lower())


def sentences(text: str) -> list[str]:
    """Split at line breaks and after `.`, `!`, `?` before white space (abbreviations included:
    `Dr. Who` is two), and after their full-width forms. Empty ones are left out."""
    return [s for s in (part.strip() for part in _BREAK.split(text)) if s]
