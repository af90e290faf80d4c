"""The cleaning of sampled texts (scripts/quickstart_assets/texts.py)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts" / "quickstart_assets"


@pytest.fixture(scope="module")
def texts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("quickstart_texts", SCRIPTS / "texts.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


GOOD = "The old actor is superb in it. The music fits every scene and I laughed."


@pytest.mark.parametrize(
    ("text", "natural"),
    [
        (GOOD, True),
        ("Too short a text.", False),
        ("Here is a short text about it. The music fits every scene and I laughed.", False),
        ("My review of it is good. The music fits every scene and I laughed.", False),
        ("It has 3 good actors in it. The music fits every scene and I laughed.", False),
        ("The caf\u00e9 is superb in it. The music fits every scene and I laughed.", False),
        ("the old actor is superb in it. The music fits every scene and I laughed.", False),
        ("The old actor is superb in it. The music fits every scene and I", False),
        ("The ship is so good to us. The ship is so good to us.", False),
        ("He said it was so fun and she said it was so fun in the end.", False),
        ("So good. The music fits every scene and I laughed. So good.", False),
        ("I like the film and you like the film and we like the film a lot.", False),
        ("The old old actor is superb. The music fits every scene and I laughed.", False),
    ],
)
def test_natural(texts: ModuleType, text: str, natural: bool) -> None:
    assert texts.natural(text) is natural


def test_shorten_keeps_whole_sentences(texts: ModuleType) -> None:
    long = "One two three four five six seven eight nine ten. " * 4
    assert texts.shorten(long).split(" ").count("ten.") == 3
    assert texts.shorten("It is good. It is bad. No. Yes. Perhaps") == "It is good. It is bad. No."
    assert texts.shorten(" ".join(["word"] * 40) + ".") == ""


def row(text: str, mood: str = "positive") -> dict[str, str]:
    return {"domain": "film", "mood": mood, "film": "", "aspect": "", "text": text}


def test_doubles_and_typographic_signs_go(texts: ModuleType) -> None:
    curly = "I didn\u2019t like the old actor in it. The music fits every scene and I laughed."
    rows = [row(curly), row(curly.replace("\u2019", "'")), row(curly.upper().capitalize())]
    others = [row(curly.replace("actor", a).replace("\u2019", "'")) for a in ("like", "music")]
    kept = texts.clean([*rows, *rows, *others, row(GOOD), row(GOOD)])
    found = [r["text"] for r in kept if "actor" in r["text"]]
    assert found == []  # `actor` is in two different texts only
    more = row(curly.replace("actor in it", "actor in every film"))
    texts_kept = [r["text"] for r in texts.clean([*rows, *others, more, row(GOOD)])]
    assert texts_kept.count(curly.replace("\u2019", "'")) == 1


def test_texts_with_rare_words_go(texts: ModuleType) -> None:
    common = [row(f"The {a} {b} is superb in it. The music fits every scene and I laughed.")
              for a in ("old", "new", "tall") for b in ("actor", "king", "dog")]  # fmt: skip
    rare = row("The old zyzzyva is superb in it. The music fits every scene and I laughed.")
    kept = texts.clean([*common, rare])
    assert len(kept) == 9
    assert not any("zyzzyva" in r["text"] for r in kept)


def test_prompts_are_disjoint_and_whole(texts: ModuleType) -> None:
    rows = [
        row(f"{a} {b} {c} {d} is here for you to see. It is a film about the sea.")
        for a in ("Our", "My") for b in ("old", "new", "tall") for c in ("red", "blue", "grey")
        for d in ("dog", "cat", "bird")
    ]  # fmt: skip
    other_end = [{**r, "text": r["text"].replace("sea", "land")} for r in rows]
    rows = [r for pair in zip(rows, other_end, strict=True) for r in pair]
    made = texts.prompts(rows, {"train": 8, "validation": 4, "test": 42})
    assert [len(made[k]) for k in ("train", "validation", "test")] == [8, 4, 42]
    every = [r["prompt"] for part in made.values() for r in part]
    assert len(set(every)) == 54
    originals = {r["text"] for r in rows}
    for part in made.values():
        for r in part:
            assert r["prompt"] + r["reference"] in originals
            assert 4 <= len(r["prompt"].split()) <= 6
    with pytest.raises(ValueError, match="sample more texts"):
        texts.prompts(rows, {"train": 1000})
