"""Reward from a word list with weights: cheap, and gameable by design.

    raw = sum over words w of the text of weight(w)     (divided by the number of words with `mean`)
    score = squash(raw)

A policy games it by repeating heavy words, which is what quickstart shows.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tether.config.errors import UserError
from tether.rewards.base import Reward
from tether.rewards.batch import RewardBatch

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")

SQUASH: dict[str, Callable[[float], float]] = {
    "none": lambda x: x,
    "tanh": math.tanh,
    "sigmoid": lambda x: 0.5 * (1.0 + math.tanh(x / 2.0)),
    # VADER's normalisation with alpha = 15 (Hutto and Gilbert 2014, vaderSentiment `normalize`)
    "vader": lambda x: x / math.sqrt(x * x + 15.0),
}


def words(text: str) -> list[str]:
    """Lower-cased words; digits and punctuation are left out."""
    return _WORD.findall(text.lower())


def read_lexicon(path: str | Path) -> dict[str, float]:
    """word -> weight of a .json ({word: weight}, or a list of words: weight 1), .jsonl (word or
    token, and weight, score, mean or polarity) or .txt (word, tab or space, weight) file, .gz too.
    Raises UserError naming file and line."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise UserError(f"lexicon: there is no file {path}")
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as f:
        text = f.read()
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    try:
        if suffix == ".json":
            found = json.loads(text)
            pairs = [(w, 1.0) for w in found] if isinstance(found, list) else list(found.items())
            out = {str(w).lower(): float(x) for w, x in pairs}
        else:
            read = _jsonl_line if suffix == ".jsonl" else _text_line
            out = {}
            for number, line in enumerate(text.splitlines(), 1):
                if line.strip():
                    try:
                        word, weight = read(line)
                    except (ValueError, KeyError, TypeError, StopIteration) as error:
                        raise UserError(
                            f"lexicon {path}, line {number}: expected a word and its weight, "
                            f"found {line[:60]!r}"
                        ) from error
                    out[word.lower()] = weight
    except UserError:
        raise
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"lexicon {path}: expected words with weights: {error}") from error
    if not out:
        raise UserError(f"lexicon {path} is empty")
    bad = next((w for w, x in out.items() if not math.isfinite(x)), None)
    if bad is not None:
        raise UserError(f"lexicon {path}: the weight of {bad!r} is {out[bad]}")
    return out


def _jsonl_line(line: str) -> tuple[str, float]:
    row = json.loads(line)
    word = next(row[k] for k in ("word", "token") if k in row)
    weight = next(row[k] for k in ("weight", "score", "mean", "polarity") if k in row)
    return str(word), float(weight)


def _text_line(line: str) -> tuple[str, float]:
    word, _, weight = line.strip().rpartition("\t" if "\t" in line else " ")
    return (word.strip(), float(weight)) if word else (weight, 1.0)


@dataclass
class LexiconReward(Reward):
    """Weighted words of the completion."""

    path: str = ""
    """Word list: .json, .jsonl or .txt, each also .gz."""
    mean: bool = False
    """Divide by the number of words of the text, so that length alone earns nothing."""
    scale: float = 1.0
    """Factor before the squash."""
    squash: Literal["none", "tanh", "sigmoid", "vader"] = "none"
    """tanh to (-1, 1), sigmoid to (0, 1), vader x / sqrt(x^2 + 15)."""
    reads: Literal["completion", "prompt_and_completion"] = "completion"
    """What is scored."""

    @cached_property
    def _weights(self) -> dict[str, float]:
        if not self.path:
            raise UserError("a lexicon reward needs `path`: a file of words with weights")
        return read_lexicon(self.path)

    @cached_property
    def version(self) -> str:  # type: ignore[override]
        """`words HASH`: 12 hexadecimal digits of the words with their weights."""
        content = json.dumps(sorted(self._weights.items()))
        return f"words {hashlib.sha256(content.encode()).hexdigest()[:12]}"

    def check(self) -> None:
        self._weights  # noqa: B018  raises where the file cannot be read

    def value(self, text: str) -> float:
        """Score of one text; an empty text has raw value 0."""
        found = words(text)
        raw = math.fsum(self._weights.get(w, 0.0) for w in found)
        if self.mean and found:
            raw /= len(found)
        return SQUASH[self.squash](self.scale * raw)

    def __call__(self, batch: RewardBatch) -> Sequence[Any]:
        texts = batch.texts if self.reads == "completion" else batch.joined_texts
        return [self.value(text) for text in texts]
