"""Clean the sampled texts, keep the natural ones, and split them; no torch."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

Row = dict[str, str]

MAX_WORDS = 34
MIN_WORDS = 9
RARE = 8
"""A word seen in fewer texts than this is rare; a text with a rare word is dropped, so that a
model of a million parameters can learn every word there is."""

PLAIN = str.maketrans({"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "\u2014": ", "})
META = re.compile(
    r"\b(review\w*|write|words|sentences?|prompt|smollm|assistant|ai|user|recipe|"
    r"weather report|here (is|are)|note|title|language model)\b|[\[\]{}<>*#=_|~/\\:;\"()]|\d",
    re.IGNORECASE,
)
WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)?")
SENTENCE = re.compile(r"[^.!?]+[.!?]+")


def words(text: str) -> list[str]:
    """Lower-case words: letters with at most one inner apostrophe."""
    return [w.lower() for w in WORD.findall(text)]


def shorten(text: str) -> str:
    """The first whole sentences, at most three, that stay within MAX_WORDS."""
    kept: list[str] = []
    count = 0
    for sentence in SENTENCE.findall(text)[:3]:
        count += len(words(sentence))
        if count > MAX_WORDS:
            break
        kept.append(" ".join(sentence.split()))
    return " ".join(kept)


def repeats(text: str) -> bool:
    """True where a sentence or four words in a row stand twice, or one word makes a fifth."""
    parts = [tuple(words(s)) for s in SENTENCE.findall(text)]
    all_words = words(text)
    grams = list(zip(*(all_words[i:] for i in range(4)), strict=False))
    frequent = max(Counter(w for w in all_words if len(w) > 3).values(), default=0)
    return (
        len(set(parts)) < len(parts)
        or len(set(grams)) < len(grams)
        or frequent > 2
        or any(a == b for a, b in pairwise(all_words))
    )


def natural(text: str) -> bool:
    """One or more whole sentences of plain English without talk about the task itself."""
    return (
        text.isascii()
        and MIN_WORDS <= len(words(text)) <= MAX_WORDS
        and not META.search(text)
        and text[0].isupper()
        and text.endswith((".", "!", "?"))
        and "..." not in text
        and not repeats(text)
    )


def clean(rows: Iterable[Row]) -> list[Row]:
    """Shortened, natural rows without doubles and without rare words, in a fixed order."""
    kept: dict[str, Row] = {}
    for row in rows:
        text = shorten(" ".join(row["text"].translate(PLAIN).split()))
        if text and natural(text):
            kept.setdefault(" ".join(words(text)), {**row, "text": text})
    rows = list(kept.values())
    for domain in sorted({row["domain"] for row in rows}):
        rows = _common_words(rows, domain)
    return sorted(rows, key=lambda row: _hash(row["text"]))


def _common_words(rows: list[Row], domain: str) -> list[Row]:
    own = [row for row in rows if row["domain"] == domain]
    least = RARE if len(own) > 20_000 else 3
    seen = Counter(w for row in own for w in set(words(row["text"])))
    left = [row for row in own if all(seen[w] >= least for w in words(row["text"]))]
    return [row for row in rows if row["domain"] != domain] + left


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def split(rows: list[Row], held_out: float = 0.1) -> tuple[list[Row], list[Row]]:
    """(training, held-out) film texts; rows come sorted by hash, so this is a random split."""
    films = [row for row in rows if row["domain"] == "film"]
    cut = round(held_out * len(films))
    return films[cut:], films[:cut]


def prompts(rows: list[Row], sizes: dict[str, int]) -> dict[str, list[Row]]:
    """Prompts of 4 to 6 words with the human rest, disjoint between the splits.

    The number of words is a function of the text's hash; a prompt occurs once.
    """
    seen: set[str] = set()
    out: list[Row] = []
    for row in rows:
        tokens = row["text"].split(" ")
        count = 4 + int(_hash(row["text"])[:8], 16) % 3
        prompt = " ".join(tokens[:count])
        if prompt in seen or prompt[-1] in ".!?," or len(tokens) < count + 5:
            continue
        seen.add(prompt)
        reference = " " + " ".join(tokens[count:])
        out.append({"prompt": prompt, "reference": reference, "mood": row["mood"]})
    need = sum(sizes.values())
    if len(out) < need:
        raise ValueError(f"{len(out)} different prompts, {need} are needed: sample more texts")
    made, at = {}, 0
    for name, size in sizes.items():
        made[name] = out[at : at + size]
        at += size
    return made


def read_rows(path: Path) -> list[Row]:
    with gzip.open(path, "rt", encoding="utf-8") as f:
        return [json.loads(text) for text in f]
