"""Metrics of which less is better: +1 is agreement with people for them too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.human_study.studies import fill, read, sealed
from tether.config.errors import UserError
from tether.reports.human_study import parts
from tether.studies.human.analyse import analyse
from tether.studies.human.completions import read_completions
from tether.studies.human.prepare import Design, Prepared, prepare

SCORES = {"ter": -1.0, "TER": -1.0, "rouge_1": 1.0, "mine": -1.0}
"""metric -> its value rises or falls with quality."""


def made(folder: Path, kind: str = "likert", of_run: bool = False) -> Prepared:
    words = []
    for m in range(3):
        rows: list[dict[str, Any]] = [
            {"prompt": f"Prompt {i}", "completion": f"text {i} of {m}",
             "scores": {name: sign * (m + i / 100) for name, sign in SCORES.items()}}
            for i in range(12)
        ]  # fmt: skip
        if of_run:
            rows = [{**r, "update": 3, "row": i, "split": "validation"} for i, r in enumerate(rows)]
        file = folder / f"{m}.jsonl"
        file.write_text("".join(json.dumps(r) + "\n" for r in rows))
        words.append(f"method{m}={file}")
    design = Design(task="toy", kind=kind, per_form=18, raters=2)
    return prepare(read_completions(words), design, folder / "study")


def answered(done: Prepared, folder: Path) -> Any:
    """Later methods are better, to everybody."""
    key = read(done)

    def answer(unit: dict[str, Any], axis: str) -> str:
        of = [int(key["texts"][t]["method"][-1]) for t in unit["texts"]]
        return str(2 + of[0]) if len(of) == 1 else "A" if of[0] > of[1] else "B"

    for form in key["forms"]:
        fill(key, form, folder / "back", answer, rater=form)
    return analyse([folder / "back"], done.key)


@pytest.mark.parametrize("kind", ["likert", "pairwise"])
def test_agreement_is_plus_one(kind: str, tmp_path: Path) -> None:
    found = answered(made(tmp_path, kind), tmp_path)
    ranks = found.axes[0].ranks
    taus = {name: r.tau_methods for name, r in ranks.items()}
    assert taus == {"ter": 1.0, "TER": 1.0, "rouge_1": 1.0, "mine": -1.0}
    assert {n: r.less_is_better for n, r in ranks.items()} == {
        "ter": True, "TER": True, "rouge_1": False, "mine": None,
    }  # fmt: skip
    assert ranks["ter"].tau_texts > 0 and ranks["ter"].low > 0
    table = next(p for p in parts(found) if "against people" in p.title)
    assert [r[0] for r in table.rows] == [
        "ter (less is better)", "TER (less is better)", "rouge_1", "mine",
    ]  # fmt: skip
    assert table.rows[0][2] == "1.00"
    assert "less is better the sign is turned. Of mine it is not known" in table.note


def test_scores_of_a_run_are_of_its_rewards(tmp_path: Path) -> None:
    """1 - TER is what is logged of a reward that is TER: more of it is better."""
    done = made(tmp_path, of_run=True)
    assert read(done)["rewards"] == sorted(SCORES)
    ranks = answered(done, tmp_path).axes[0].ranks
    assert ranks["ter"].tau_methods == -1.0 and ranks["ter"].less_is_better is False


def test_a_key_that_does_not_say_which_are_rewards(tmp_path: Path) -> None:
    done = made(tmp_path)
    key = read(done)
    del key["rewards"]
    sealed(done, key)
    found = answered(done, tmp_path)
    ranks = found.axes[0].ranks
    assert ranks["ter"].tau_methods == -1.0 and ranks["ter"].less_is_better is None
    assert ranks["rouge_1"].less_is_better is False
    assert any("does not say whether ter, TER is the metric's value" in n for n in found.notes)
    # what the note asks for is no change of what the forms were made from
    done.key.write_text(json.dumps({**read(done), "rewards": []}))
    again = analyse([tmp_path / "back"], done.key)
    assert again.axes[0].ranks["ter"].tau_methods == 1.0 and not again.notes


def test_one_name_for_opposite_numbers(tmp_path: Path) -> None:
    run = {"prompt": "p", "completion": "a", "update": 1, "row": 0, "scores": {"ter": 0.9}}
    rows = {"prompt": "p", "completion": "b", "scores": {"ter": 0.1}}
    (tmp_path / "run.jsonl").write_text(json.dumps(run) + "\n")
    (tmp_path / "rows.jsonl").write_text(json.dumps(rows) + "\n")
    pool = read_completions([f"a={tmp_path / 'run.jsonl'}", f"b={tmp_path / 'rows.jsonl'}"])
    with pytest.raises(UserError, match="'ter' is a reward's score in the samples of runs"):
        prepare(pool, Design(task="toy", checks=0), tmp_path / "study")
