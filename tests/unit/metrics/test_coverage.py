"""Coverage of concepts: inflections, irregular forms, and what people write."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.conftest import shared
from tether.config.errors import UserError
from tether.metrics.base import Samples
from tether.metrics.coverage import Coverage, missing_concepts, used


def test_inflections_count() -> None:
    text = "Two women held the dogs' leashes while a man ran, skiing and lying down."
    concepts = ["woman", "hold", "dog", "leash", "man", "run", "ski", "lie", "cat"]
    assert used(text, concepts) == [True] * 8 + [False]
    assert missing_concepts(text, concepts) == 1
    assert used("a snow-covered hill", ["snow", "cover"]) == [True, True]
    assert used("The traffic light is red", ["traffic light", "traffic jam"]) == [True, False]
    assert used("category", ["cat"]) == [False]
    assert used("", ["cat"]) == [False]


def test_value() -> None:
    columns = {"concepts": [["cat", "sit"], ["cat", "sit"], ["cat"]]}
    result = Coverage()(Samples(["A cat sat.", "cats", ""], None, None, columns))
    assert result.per_sample == [1.0, 0.5, 0.0]
    assert result.value == 0.5
    assert result.parts == {"complete": 1 / 3}


@pytest.mark.parametrize("concepts", [[], "cat sit", [""], [1]])
def test_concepts_are_a_list_of_words(concepts: object) -> None:
    with pytest.raises(UserError, match=r"row 1 holds .* expected a list of concepts"):
        Coverage()(Samples(["a"], None, None, {"concepts": [concepts]}))


def test_people_use_the_concepts_that_they_were_given() -> None:
    """References of CommonGen were written to contain all concepts: what is not found is an
    inflection that the rule misses."""
    texts, concepts = [], []
    with gzip.open(shared("data/mini/commongen.jsonl.gz"), "rt", encoding="utf-8") as f:
        for line in f:
            row = json.loads(line)
            for reference in row["references"]:
                texts.append(reference)
                concepts.append(row["concepts"])
    value = Coverage()(Samples(texts, None, None, {"concepts": concepts})).value
    assert value is not None and value > 0.97, value
