"""What the real runs read: IMDB's fixed part, and no held-out text among those of the denoising."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from benchmarks import grue_pack
from benchmarks.grue_pack import SPLITS, TEXTS, apart, denoising_texts, held_out, rows_of, whole

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


def save(file: Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)


def test_rows_have_the_columns_of_their_task() -> None:
    if not (DATA / "scitldr").is_dir():
        pytest.skip("the sets are not here: ../shared/data")
    rows = rows_of(DATA, "scitldr", "test")
    assert len(rows) == 618 and set(rows[0]) == {"source", "target"}


def test_imdb_rows_are_a_fixed_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the training set 5 reviews for validation and 20 others for training."""
    monkeypatch.setattr(grue_pack, "IMDB_ROWS", {"train": 20, "validation": 5, "test": 8})
    for split in ("train", "test"):
        rows = [{"text": f"{split} {i}", "label": i % 2, "more": 0} for i in range(40)]
        save(tmp_path / "imdb" / f"{split}.parquet", rows)
    drawn = {s: [r["text"] for r in rows_of(tmp_path, "imdb", s)] for s in SPLITS["imdb"]}
    assert {s: len(set(x)) for s, x in drawn.items()} == {"train": 20, "validation": 5, "test": 8}
    assert set(drawn["train"]).isdisjoint(drawn["validation"])
    assert all(t.startswith("train") for t in drawn["train"] + drawn["validation"])
    assert all(t.startswith("test") for t in drawn["test"])
    in_order = {"train": ("train", 5, 25), "validation": ("train", 0, 5), "test": ("test", 0, 8)}
    for split, (name, first, end) in in_order.items():  # other rows than the first of the file
        assert set(drawn[split]) != {f"{name} {i}" for i in range(first, end)}
    again = {s: [r["text"] for r in rows_of(tmp_path, "imdb", s)] for s in SPLITS["imdb"]}
    assert again == drawn


def test_rows_of_dart_that_share_a_subject_are_in_one_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where two sets are linked by a third only: a with b, b with c."""
    monkeypatch.setattr(grue_pack, "DART_ROWS", {"validation": 4, "test": 5})
    rows = []
    for i in range(8):
        a, b, c = ([f"{x}{i}", "is", "y"] for x in "abc")
        sets = [[a], [c, a], [b, c], [b]] if i % 2 else [[a], [c, b], [b, a], [c]]
        rows += [{"tripleset": s, "targets": ["t"], "sources": ["x"]} for s in sets]
    save(tmp_path / "dart" / "dev.parquet", rows)
    found = {s: rows_of(tmp_path, "dart", s) for s in SPLITS["dart"]}
    # whole links of 4 sets, until there are enough
    assert {s: len(x) for s, x in found.items()} == {"train": 20, "validation": 4, "test": 8}
    said = {s: {t[0] for r in x for t in r["tripleset"]} for s, x in found.items()}
    assert said["train"].isdisjoint(said["validation"] | said["test"])
    assert said["validation"].isdisjoint(said["test"])
    assert sorted(map(str, (r for x in found.values() for r in x))) == sorted(
        str({k: r[k] for k in ("tripleset", "targets")}) for r in rows
    )
    assert found == {s: rows_of(tmp_path, "dart", s) for s in SPLITS["dart"]}


def test_the_denoising_reads_no_validation_or_test_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the rows of IMDB that are held out of its training set, nor duplicates in any set."""
    monkeypatch.setattr(grue_pack, "IMDB_ROWS", {"train": 4, "validation": 3, "test": 2})
    monkeypatch.setattr(grue_pack, "DART_ROWS", {"validation": 1, "test": 1})
    reviews = [{"text": f"review {i}", "label": 0} for i in range(10)]
    talk = {"act": [1, 1], "emotion": [0, 0]}
    rows: dict[str, list[dict[str, Any]]] = {
        "commongen/train": [{"concepts": ["a"], "references": ["a dog runs", "held sentence"]}],
        "commongen/dev": [{"concepts": ["a"], "references": ["held sentence"]}],
        "commongen/test": [{"concepts": ["a"], "references": [""]}],
        "fairytaleqa/val": [{"question": "?", "answers": ["x"], "context": "held section"}],
        "fairytaleqa/test": [{"question": "?", "answers": ["x"], "context": "another section"}],
        "fairytaleqa/stories_train": [{"text": "once a fox ran"},
                                      {"text": "a told held\n section ends"}],
        "multi30k/train": [{"en": "a man", "de": "ein Mann"}, {"en": "held en", "de": "frei"}],
        "multi30k/val": [{"en": "held en", "de": "gehalten"}],
        "multi30k/test2016": [{"en": "held  too", "de": "auch"}],
        "imdb/train": reviews,
        "imdb/test": [{"text": "seen<br />twice", "label": 1}],
        "dailydialog/train": [{"utterances": ["hi", "held"], **talk},
                              {"utterances": ["hi", "free"], **talk}],
        "dailydialog/validation": [{"utterances": ["hi", "held"], **talk}],
        "dailydialog/test": [{"utterances": ["x", "y"], **talk}],
        "scitldr/train": [{"source": ["one.", "two."], "target": ["three."]},
                          {"source": ["held", "source"], "target": ["four."]}],
        "scitldr/dev": [{"source": ["held", "source"], "target": ["five."]}],
        "scitldr/test": [{"source": ["six."], "target": ["seven."]}],
        "dart/dev": [{"tripleset": [[f"x{i}", "is", "y"]], "targets": [f"x{i} is y"]}
                     for i in range(4)],
        "tatoeba/en_de": [{"en": "yes", "de": "ja"}, {"en": "held too", "de": "x"}],
        "europarl_en_fr/train_60k": [{"en": "the house"}],
        "stackexchange_pairs/questions": [{"question": "seen twice"}],
    }  # fmt: skip
    for name, content in rows.items():
        save(tmp_path / f"{name}.parquet", content)
    validation = {r["text"] for r in rows_of(tmp_path, "imdb", "validation")}
    texts = denoising_texts(tmp_path)
    assert len(validation) == 3 and validation.isdisjoint(texts)
    wanted = {r["text"] for r in reviews} - validation
    wanted |= {"a dog runs", "once a fox ran", "a man", "ein Mann", "frei", "hi free", "yes ja",
               "one. two. three.", "the house"}  # fmt: skip
    assert set(texts) == wanted and len(texts) == len(wanted)


def test_the_table_says_what_in_a_list_is_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"concepts": ["c"], "references": ["a  dog", "", "b"], "source": ["one.", "two."],
           "target": ["three."], "utterances": ["hi", "you"], "context": "section", "en": "man",
           "de": "Mann", "text": "good<br />film", "targets": ["x  y", "z"]}  # fmt: skip
    monkeypatch.setattr(grue_pack, "rows_of", lambda *_: [row])
    held = {"commongen": {"a dog", "b"}, "fairytaleqa": {"section"}, "multi30k": {"man", "Mann"},
            "imdb": {"good film"}, "dailydialog": {"hi you"}, "scitldr": {"one. two.", "three."},
            "dart": {"x y", "z"}}  # fmt: skip
    assert held_out(Path()) == held
    other = {"commongen": {"references": whole}, "scitldr": {"source": apart}}
    monkeypatch.setattr(grue_pack, "TEXTS", {**TEXTS, **other})
    assert held_out(Path()) == {**held, "commongen": {"a dog b"}, "scitldr": {"one.", "two."}}
