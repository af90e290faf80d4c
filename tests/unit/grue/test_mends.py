"""What a line says that mends a folder is what mends it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.grue.folders import row, write
from tests.unit.reports.folders import point, write_run
from tether.config.errors import UserError
from tether.reports.grue.results import read
from tether.reports.grue.write import notes
from tether.studies.grue.anchors import Examples
from tether.studies.grue.cells import jobs
from tether.studies.grue.planning import Asked, plan_of
from tether.studies.grue.run import main
from tether.studies.grue.scoring import completions, score
from tether.studies.grue.starts import check_starts

ROWS = {"zero-shot": row("zero-shot", tuned=False), "ppo": row("ppo")}
CELL = "imdb/ppo-seed0"
EXAMPLES = Examples(["p", "p"], [[], []], {}, "")
FAILURE = {CELL: {"method": "ppo", "seed": 0, "returncode": 1, "error": "it broke"}}


def test_failed_runs_are_repeated_with_retry(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", ROWS, [0], lambda *_: 0.3, unfinished=[CELL])
    again = "The same `tether grue run --retry` repeats what failed."
    assert again not in notes(read(folder))
    (folder / "unmeasured.json").write_text(json.dumps({CELL: "a metric broke"}))
    assert f"{CELL} failed: its metrics: a metric broke" in notes(read(folder))
    assert again not in notes(read(folder))  # the next call measures again
    (folder / "failures.json").write_text(json.dumps(FAILURE))
    (folder / "unmeasured.json").unlink()
    assert again in notes(read(folder))


def test_a_folder_in_which_nothing_has_finished(tmp_path: Path) -> None:
    every = [f"{t}/{r}-seed0" for t in ("imdb", "commongen") for r in ROWS]
    folder = write(tmp_path / "b", ROWS, [0], lambda *_: 0.3, unfinished=every)
    with pytest.raises(
        UserError, match=r"no cell has finished yet; the same `tether grue run` goe"
    ):
        read(folder)
    (folder / "failures.json").write_text(json.dumps(FAILURE))
    said = r"\(imdb/ppo-seed0: it broke\); the same `tether grue run --retry` repeats what failed$"
    with pytest.raises(UserError, match=said):
        read(folder)


def sample(i: int, **more: Any) -> str:
    line = {"split": "test", "update": 4, "policy": "exported", "row": i, "prompt": "p"}
    return json.dumps({**line, "completion": "c", **more}) + "\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "it is not there"),
        (sample(0), "1 of 2 test completions of update 4"),
        (sample(0) + sample(1)[:-9], "1 of 2 test completions of update 4"),
        ("", "it has no test completions of update 4"),
        (sample(0, update=2) + sample(1, update=2), "it has no test completions of update 4"),
        (sample(0) + "{]\n" + sample(1), "line 2"),
        (sample(0) + '{"split": "test"}\n', "a line is no sample"),
        (sample(0, row="x") + sample(1), "2 of 2 test completions of update 4"),
        (sample(0, row=[1]), "a line is no sample"),
    ],
)
def test_completions_that_are_lost_or_cut(text: str | None, why: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_run(folder, "m", 0, [point(4, 1.0, 0.5, weights="final", split="test", common=False)])
    (folder / "samples.jsonl").unlink(missing_ok=True)
    if text is not None:
        (folder / "samples.jsonl").write_text(text)
    cell = jobs(plan_of(Asked(["imdb"], ["ppo"], mini=True, out=tmp_path)))[1][0]
    with pytest.raises(UserError) as e:
        score(folder, cell, [], [], EXAMPLES, "stamp")
    said = str(e.value)
    assert said.startswith(f"{folder / 'samples.jsonl'} was changed after the run had finished (")
    assert why in said
    assert said.endswith(f"or delete {folder}: the same `tether grue run` trains it again")


def test_completions_in_order(tmp_path: Path) -> None:
    (tmp_path / "samples.jsonl").write_text(sample(1, completion="d") + sample(0))
    assert completions(tmp_path, 2) == {(4, "exported"): (["p", "p"], ["c", "d"])}


@pytest.mark.parametrize("left", ["nothing", "configuration"])
def test_a_start_whose_weights_are_gone(left: str, tmp_path: Path) -> None:
    asked = Asked(["imdb"], ["supervised+ppo"], mini=True, out=tmp_path / "o")
    made = [j for _, j in jobs(plan_of(asked))]
    start = next(j for j in made if j.name == "imdb/supervised-seed0")
    check_starts(made)  # nothing has run
    write_run(start.folder, "supervised", 0, [point(0, 0.0, 0.5)])
    weights = start.folder / "policy"
    weights.mkdir()
    (weights / "model.safetensors").touch()
    check_starts(made)
    shutil.rmtree(weights)
    if left == "configuration":
        weights.mkdir()
        (weights / "config.json").touch()
    said = (
        r"^imdb/supervised-ppo-seed0 starts from the final weights of imdb/supervised-seed0, which "
        rf"has finished, but {weights} does not hold them: restore that folder, or delete "
    )
    with pytest.raises(UserError, match=said):
        check_starts(made)
    for file in (start.folder / "config.yaml",):
        file.unlink()  # made up: not what `main` would compare
    with pytest.raises(UserError, match=said):  # before any worker
        main(asked)
    later = next(j for j in made if j.name == "imdb/supervised-ppo-seed0")
    write_run(later.folder, "supervised+ppo", 0, [point(0, 0.0, 0.5)])
    check_starts(made)  # nobody needs them any more
