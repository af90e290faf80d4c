"""A report while seeds are missing: what its numbers are over, and that pairs have equal seeds."""

from __future__ import annotations

from pathlib import Path

from tests.unit.grue.folders import row, write
from tether.reports.grue import tables
from tether.reports.grue.comparing import comparisons
from tether.reports.grue.results import read

ROWS = {"zero-shot": row("zero-shot", tuned=False), "ppo": row("ppo"), "nlpo": row("nlpo")}
VALUES = {"zero-shot": 0.1, "ppo": 0.26, "nlpo": 0.34}


def value(task: str, label: str, seed: int) -> float:
    return VALUES[label] + 0.04 * seed * (label != "zero-shot")


def test_intervals_say_what_they_are_over(tmp_path: Path) -> None:
    gone = [f"imdb/ppo-seed{s}" for s in (1, 4, 5)] + ["imdb/nlpo-seed0"]
    r = read(write(tmp_path, ROWS, range(6), value, tasks=["imdb"], unfinished=gone))
    scores, budgets, metrics = tables.of_task(r, r.tasks[0])
    told = {(x[0], x[1]): x[2] for x in scores.rows}
    # (.26 - .1) / .4 = .4 for seed 0, .1 more for each
    ppo = told["ppo", "final"]
    assert ppo.startswith("0.567 [") and ppo.endswith(
        "] over examples, 3 of 6 seeds (0.400, 0.600, 0.700)"
    )
    assert told["nlpo", "final"].startswith("0.900 [")
    assert told["nlpo", "final"].endswith("] over 5 of 6 seeds")
    assert "over" not in told["zero-shot", "final"]
    said = "Not all seeds: ppo on imdb 0, 2, 3; nlpo on imdb 1, 2, 3, 4, 5."
    assert scores.note.startswith("2 test examples. Brackets: 95 % t-interval over 6 seeds;")
    for part in (scores, budgets, metrics, tables.by_task(r, 4.0)):
        assert part.note.endswith(said)
    whole = read(write(tmp_path / "whole", ROWS, range(6), value, tasks=["imdb"]))
    for part in (*tables.of_task(whole, whole.tasks[0]), tables.by_task(whole, 4.0)):
        assert "Not all seeds" not in part.note and " of 6 seeds" not in str(part.rows)


def test_differences_are_of_the_seeds_that_both_have(tmp_path: Path) -> None:
    """Unpaired, seeds 0 and 1 of one against 2 and 3 of the other would differ by .2 - .2 = 0."""
    pairs = [["nlpo", "ppo"], ["ppo", "zero-shot"]]
    gone = [f"imdb/{x}" for x in ("nlpo-seed2", "nlpo-seed3", "ppo-seed0")]
    gone += ["commongen/nlpo-seed0", "commongen/nlpo-seed1", "commongen/ppo-seed2"]
    gone += ["commongen/ppo-seed3"]
    r = read(write(tmp_path, ROWS, range(4), value, primary=pairs, unfinished=gone))
    part = comparisons(r)
    assert part is not None and part.head[2] == "Seeds" and "seeds that both have" in part.note
    assert part.rows == [
        ["nlpo - ppo", "commongen", "-", "-", "-"],
        ["nlpo - ppo", "imdb", "1", "+0.200", "[0.200, 0.200]"],
        # within 4 nats .04 less: (.22 - .1) / .4 = .3 and .4; the model as it is, 0
        ["ppo - zero-shot", "commongen", "0, 1", "+0.350", "[0.350, 0.350]"],
        ["ppo - zero-shot", "imdb", "1, 2, 3", "+0.500", "[0.500, 0.500]"],
    ]
    open_ = comparisons(read(write(tmp_path / "open", ROWS, range(4), value, unfinished=gone)))
    assert open_ is not None and [x[1:3] for x in open_.rows] == [["imdb", "1"]]
