"""What the report says of made-up cells: numbers by hand, and no more than the seeds allow."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.unit.grue.folders import row, stamp, write
from tests.unit.reports.folders import point, write_run
from tests.unit.reports.test_baselines import free
from tether.cli.main import main as tether
from tether.config.errors import UserError
from tether.records import BaselinePoint, baseline_line
from tether.reports.grue import tables
from tether.reports.grue.comparing import comparisons
from tether.reports.grue.frontiers import Frontier, chart, frontiers, waste, without_training
from tether.reports.grue.results import read
from tether.reports.grue.write import notes
from tether.reports.grue.write import write as write_report

ROWS = {
    "zero-shot": row("zero-shot", tuned=False),
    "supervised": row("supervised", tuned=False),
    "ppo": row("ppo"),
    "nlpo": row("nlpo"),
    "supervised+ppo": row("supervised+ppo", start="supervised"),
}
VALUES = {"zero-shot": 0.1, "supervised": 0.31, "ppo": 0.26, "nlpo": 0.34, "supervised+ppo": 0.5}


def value(task: str, label: str, seed: int) -> float:
    return VALUES[label] + (0.02 if task == "imdb" else 0.0) + 0.004 * seed * (label != "zero-shot")


def test_scores_by_hand(tmp_path: Path) -> None:
    r = read(write(tmp_path, ROWS, [0, 1], value))
    imdb = r.tasks[1]
    ppo = r.row("ppo")
    final = r.score(imdb, ppo, "task", None)
    # (.28 - .1) / .4 and (.284 - .1) / .4
    assert final is not None and final.seeds == pytest.approx((0.45, 0.46))
    within = r.score(imdb, ppo, "task", 4.0)
    assert within is not None and within.seeds == pytest.approx((0.35, 0.36))
    # without either group of examples: -+ .04 / .4, so se = sqrt(1/2 * 2 * .1^2) = .1
    half = 12.706204736432095 * 0.1
    assert (within.low, within.high) == pytest.approx((0.355 - half, 0.355 + half))
    natural = r.score(imdb, ppo, "naturalness", None)
    assert natural is not None and natural.seeds == (0.8, 0.8)  # 40 / 50
    board = r.aggregate(ppo, "task", 4.0)
    # commongen: (.22 - .1) / .4 = .3 and .31
    assert board is not None and board.seeds == pytest.approx((0.325, 0.335))
    assert board.over == "examples"


@pytest.mark.parametrize("seeds", [2, 6])
def test_the_model_as_it_is_is_one_run(tmp_path: Path, seeds: int) -> None:
    pair = [["ppo", "zero-shot"]]
    r = read(write(tmp_path, ROWS, range(seeds), value, primary=pair))
    found = r.aggregate(r.row("zero-shot"), "task", 4.0)
    assert found is not None and found.seeds == pytest.approx((0.025,))
    assert found.over == "examples" and found.low is not None and found.low < found.mean
    text = write_report(tmp_path).leaderboard.read_text()
    assert next(x for x in text.splitlines() if x.startswith("zero-shot")).endswith("examples,1,2")
    if seeds == 6:  # its one value stands beside every seed of the other's
        assert r.by_seed("zero-shot") == pytest.approx([0.025] * 6)
        part = comparisons(r)
        assert part is not None and part.rows[0][-1] == "better"


def test_the_leaderboard_is_in_order_and_drift_stands_beside(tmp_path: Path) -> None:
    part = tables.leaderboard(read(write(tmp_path, ROWS, [0], value)), 4.0)
    assert [x[0] for x in part.rows] == [
        "supervised+ppo", "supervised", "nlpo", "ppo", "zero-shot",
    ]  # fmt: skip
    by_name = {x[0]: x for x in part.rows}
    assert by_name["ppo"][3] == "3.00" and by_name["ppo"][4] == "64"
    assert by_name["supervised"][1].startswith("0.550 [")
    final = tables.leaderboard(read(tmp_path), None)
    assert {x[0]: x[3] for x in final.rows}["ppo"] == "6.00"


def test_below_5_seeds_nothing_is_decided(tmp_path: Path) -> None:
    r = read(write(tmp_path, ROWS, [0, 1], value, primary=[["nlpo", "ppo"]]))
    part = comparisons(r)
    assert part is not None and "examples only" in part.title and "No verdict" in part.note
    assert "Verdict" not in part.head and "p" not in part.head
    # the same examples move both methods alike
    assert part.rows[0] == ["nlpo - ppo", "commongen", "0, 1", "+0.200", "[0.200, 0.200]"]
    text = write_report(tmp_path).markdown.read_text()
    assert "2 seeds: intervals are over examples only, and nothing is decided" in text
    assert "(0.325, 0.335)" in text  # every seed's value


def test_pairs_share_their_start(tmp_path: Path) -> None:
    part = comparisons(read(write(tmp_path, ROWS, [0], value)))
    assert part is not None and {x[0] for x in part.rows} == {"nlpo - ppo"}


def test_from_5_seeds_there_are_tests_and_from_6_verdicts(tmp_path: Path) -> None:
    def noisy(task: str, label: str, seed: int) -> float:
        return value(task, label, seed) + (0.002 * (seed % 2) if label == "nlpo" else 0.0)

    five = comparisons(
        read(write(tmp_path / "5", ROWS, range(5), noisy, primary=[["nlpo", "ppo"]]))
    )
    assert five is not None and five.rows[0][-1] == "none"
    assert five.rows[0][3] == "0.0625"  # 2 / 2^5
    six = comparisons(read(write(tmp_path / "6", ROWS, range(6), noisy, primary=[["nlpo", "ppo"]])))
    assert six is not None and six.rows[0][-1] == "better"
    assert six.rows[0][:2] == ["nlpo - ppo", "+0.203"]  # .08 / .4, and .005 on odd seeds
    open_ = comparisons(read(write(tmp_path / "none", ROWS, range(6), noisy)))
    assert open_ is not None and open_.title.startswith("Exploratory") and len(open_.head) == 5


def test_a_declared_pair_that_is_missing_stays_and_counts(tmp_path: Path) -> None:
    def noisy(task: str, label: str, seed: int) -> float:
        return value(task, label, seed) + (0.002 * (seed % 2) if label == "nlpo" else 0.0)

    pairs = [["nlpo", "ppo"], ["supervised+ppo", "ppo"]]
    gone = ["imdb/supervised+ppo-seed3"]
    write(tmp_path, ROWS, range(6), noisy, primary=pairs, unfinished=gone)
    part = comparisons(read(tmp_path))
    assert part is not None
    # 2 / 2^6, and twice that: 2 comparisons were declared
    assert part.rows[0][3:] == ["0.0312", "0.0625", part.rows[0][5]]
    assert part.rows[0][5].startswith("undecided")
    assert part.rows[1] == ["supervised+ppo - ppo", "-", "-", "-", "-", "none: not finished"]
    few = write(tmp_path / "few", ROWS, [0], noisy, primary=pairs, unfinished=["imdb/nlpo-seed0"])
    below = comparisons(read(few))
    assert below is not None and ["nlpo - ppo", "imdb", "-", "-", "-"] in below.rows


def test_above_20_seeds_the_notes_say_that_nothing_is_compared(tmp_path: Path) -> None:
    rows = {k: ROWS[k] for k in ("zero-shot", "ppo", "nlpo")}
    r = read(write(tmp_path, rows, range(21), value, primary=[["nlpo", "ppo"]], tasks=["imdb"]))
    assert comparisons(r) is None
    assert any("21 seeds: there are no comparisons" in x for x in notes(r))


def test_without_the_initial_perplexity_there_is_no_naturalness(tmp_path: Path) -> None:
    write(tmp_path, ROWS, [0], value, unfinished=["imdb/zero-shot-seed0"])
    r = read(tmp_path)
    assert r.score(r.tasks[1], r.row("ppo"), "naturalness", None) is None
    assert r.score(r.tasks[0], r.row("ppo"), "naturalness", None) is not None
    said = "perplexity is told as a share of zero-shot's, which is not finished."
    assert f"imdb: no naturalness score: {said}" in notes(r)
    file = tmp_path / "commongen" / "ppo-seed0" / "scores.json"
    content = json.loads(file.read_text())
    for w in content["weights"]:
        del w["values"]["rouge_1"]
    file.write_text(json.dumps(content))
    assert "commongen: no task score of ppo: rouge_1 is not measured." in notes(read(tmp_path))


def test_failed_metrics_are_said(tmp_path: Path) -> None:
    write(tmp_path, ROWS, [0], value, unfinished=["imdb/ppo-seed0"])
    (tmp_path / "unmeasured.json").write_text(json.dumps({"imdb/ppo-seed0": "no memory"}))
    assert "imdb/ppo-seed0 failed: its metrics: no memory" in notes(read(tmp_path))


def test_a_row_without_all_tasks_has_no_aggregate(tmp_path: Path) -> None:
    write(tmp_path, ROWS, [0, 1], value, unfinished=["imdb/ppo-seed1"])
    r = read(tmp_path)
    assert r.missing == ("imdb/ppo-seed1",)
    assert r.aggregate(r.row("ppo"), "task", 4.0) is None
    assert r.aggregate(r.row("nlpo"), "task", 4.0) is not None
    assert (
        "1 of 18 cells are not finished: imdb/ppo-seed1" in write_report(tmp_path).html.read_text()
    )


def test_scores_of_other_anchors_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, ROWS, [0], value)
    file = tmp_path / "commongen" / "ppo-seed0" / "scores.json"
    file.write_text(file.read_text().replace(stamp("commongen"), "another stamp"))
    assert read(tmp_path).missing == ("commongen/ppo-seed0",)


def test_unequal_samples_are_said(tmp_path: Path) -> None:
    write(tmp_path, ROWS, [0], value)
    assert "not at equal samples" not in " ".join(notes(read(tmp_path)))
    declared = json.loads((tmp_path / "grue.json").read_text())
    next(c for c in declared["cells"] if c["name"] == "imdb/nlpo-seed0")["completions"] = 96
    (tmp_path / "grue.json").write_text(json.dumps(declared))
    said = "imdb: not at equal samples (completions: ppo 64, nlpo 96, supervised+ppo 64)."
    assert said in notes(read(tmp_path))


def test_completions_are_of_the_last_stage(tmp_path: Path) -> None:
    said = "Completions are those of the last stage: a start's own training is not in them."
    assert said in tables.leaderboard(read(write(tmp_path / "a", ROWS, [0], value)), None).note
    alone = {k: v for k, v in ROWS.items() if not v["start"]}
    assert said not in tables.leaderboard(read(write(tmp_path / "b", alone, [0], value)), None).note


def test_methods_that_are_equal_to_the_last_digit_are_said(tmp_path: Path) -> None:
    def alike(task: str, label: str, seed: int) -> float:
        same = label == "nlpo" and (task, seed) in (("imdb", 0), ("imdb", 2))
        return value(task, "ppo" if same else label, seed)

    def said(folder: Path) -> list[str]:
        return [n for n in notes(read(folder)) if "last digit" in n]

    assert said(write(tmp_path / "apart", ROWS, range(3), value)) == []
    equal = write(tmp_path / "equal", ROWS, range(3), alike)
    assert said(equal) == [
        "imdb: ppo and nlpo are equal to the last digit (seeds 0, 2): what sets them apart had no "
        "effect."
    ]
    for seed, key, other in ((0, "drift", 6.0000001), (2, "reward", 0.4000001)):
        file = equal / "imdb" / f"nlpo-seed{seed}" / "scores.json"
        content = json.loads(file.read_text())
        content["weights"][0][key] = other
        file.write_text(json.dumps(content))
    assert said(equal) == []


def test_the_matrix_of_rewards(tmp_path: Path) -> None:
    rows = {
        "zero-shot": ROWS["zero-shot"],
        "ppo (reward chrf)": row("ppo", trained_on="chrf"),
        "ppo (reward rouge_1)": row("ppo", trained_on="rouge_1"),
    }
    write(tmp_path, rows, [0], lambda t, label, s: 0.3 if "rouge" in label else 0.2)
    part = tables.matrix(read(tmp_path))[0]
    assert part.head == ["Trained on", "rouge_1", "perplexity", "chrf"]
    assert part.rows == [
        ["none (zero-shot)", "0.200", "40.000", "0.700"],
        ["chrf", "0.200", "50.000", "0.700"],
        ["rouge_1", "0.300", "50.000", "0.700"],
    ]


def test_parts_of_a_metric_are_rows(tmp_path: Path) -> None:
    write(tmp_path, ROWS, [0, 1], value, tasks=["imdb"])
    for seed, recall in ((0, 0.2), (1, 0.4)):
        file = tmp_path / "imdb" / f"ppo-seed{seed}" / "scores.json"
        content = json.loads(file.read_text())
        for w in content["weights"]:
            w["parts"] = {"chrf": {"non_overlap": recall}}
        file.write_text(json.dumps(content))
    r = read(tmp_path)
    part = tables.of_task(r, r.tasks[0])[-1]
    at = part.head.index("ppo")
    rows = {x[0]: x for x in part.rows}
    assert rows["chrf: non overlap"][at] == "0.300" and rows["chrf (other)"][at] == "0.700"
    assert rows["chrf: non overlap"][at + 1] == "-"  # nlpo has none
    text = write_report(tmp_path).scores.read_text()
    assert text.count(",part,chrf: non_overlap,0.2,,,") == 3


def test_two_starts_by_two_references(tmp_path: Path) -> None:
    cells = {"": {"raw": 0.1, "supervised": 0.2}, "supervised": {"raw": 0.3, "supervised": 0.5}}
    rows = {"zero-shot": ROWS["zero-shot"]}
    numbers = {"zero-shot": 0.1}
    for start, by_reference in cells.items():
        for reference, number in by_reference.items():
            method = f"{start}+ppo".lstrip("+")
            label = f"{method} (KL to {reference})"
            rows[label] = row(method, start=start, reference=reference)
            numbers[label] = number
    write(tmp_path, rows, [0], lambda t, label, s: numbers[label], tasks=["imdb"])
    part = tables.references(read(tmp_path))[0]
    assert part.head == ["Start", "KL to raw", "KL to supervised"]
    assert part.rows == [
        ["raw", "0.000 / 0.800", "0.250 / 0.800"],
        ["supervised", "0.500 / 0.800", "1.000 / 0.800"],
    ]


def free_run(folder: Path, start: str, seed: int, points: list[BaselinePoint]) -> dict[str, Any]:
    """A run that trains nothing, and how it is declared."""
    name = f"imdb/{start or 'raw'}-baselines-seed{seed}"
    run = write_run(folder / name, name, seed, [point(0, 0.0, 0.3)])
    (run / "baselines.jsonl").write_text("".join(baseline_line(p) + "\n" for p in points))
    about = {"task": "imdb", "start": start, "seed": seed, "trained_on": "", "reference": ""}
    return {"name": name, **about}


def test_what_costs_no_training_stands_in_the_frontiers(tmp_path: Path) -> None:
    def sampled(up: float) -> list[BaselinePoint]:
        best = [free("best_of_n", n, 0.3 * (n - 1), 0.2 + 0.1 * n + up, drift_is="bound")
                for n in (1.0, 2.0)]  # fmt: skip
        oracle = [(0.0, 0.3), (1.0, 0.5), (3.0, 0.7), (5.0, 0.9)]
        return [*best, *(free("oracle", 1.0, x, y + up, valid=x < 4) for x, y in oracle)]

    declared = [
        free_run(tmp_path, "", 0, sampled(0.0)),
        free_run(tmp_path, "supervised", 0, sampled(0.1)),
        free_run(tmp_path, "supervised", 1, sampled(0.2)),
    ]
    gone = {**declared[1], "name": "imdb/gone", "start": "supervised", "trained_on": "chrf"}
    write(tmp_path, ROWS, [0, 1], value, free=[*declared, gone])
    for seed, reward in ((0, 0.4), (1, 0.6)):
        between = free("interpolation", 0.5, 1.0 + seed, reward, how="linear", drift_is="measured")
        file = tmp_path / "imdb" / f"nlpo-seed{seed}" / "interpolation.jsonl"
        file.write_text(baseline_line(between) + "\n")
    r = read(tmp_path)
    raw, warm = frontiers(r, r.tasks[1])
    part = without_training(raw)
    assert part is not None and part.title == "imdb: without training, from the model as it is"
    # budgets 2 and 4: half way from 1 to 3 nats; 4 is beyond the range
    assert part.rows == [
        ["best-of-n", "n = 1", "≤ 0.00", "0.300"],
        ["best-of-n", "n = 2", "≤ 0.30", "0.400"],
        ["oracle", "within 2 nats", "2.00", "0.600"],
        ["interpolation, nlpo", "linear 0.5", "1.50", "0.500"],
    ]
    other = without_training(warm)
    assert other is not None and [x[3] for x in other.rows] == ["0.450", "0.550", "0.750"]
    drawn = {x.get("name"): x["data"]["values"] for x in chart(raw)["layer"] if "data" in x}
    assert len(drawn["oracle"]) == 3 and len(drawn["best_of_n"]) == 2
    assert [v["m"] for v in drawn["interpolation"]] == ["nlpo", "nlpo"]
    assert len({v["c"] for v in of_oracle(warm)["data"]["values"]}) == 2
    wasted = waste(raw)
    assert wasted is not None and {x[0] for x in wasted.rows} == {"ppo", "nlpo"}
    assert not [f for f in frontiers(r, r.tasks[0]) if without_training(f)]
    text = write_report(tmp_path).markdown.read_text()
    assert "### imdb: without training, from supervised" in text
    assert "Baselines that are not finished: imdb/gone." in text
    assert "oracle frontier (256 samples a prompt" in (tmp_path / "leaderboard.html").read_text()
    assert "baselines" not in (tmp_path / "leaderboard.csv").read_text()  # no row


def test_an_oracle_of_other_completions_measures_no_method(tmp_path: Path) -> None:
    """A task that is evaluated on the likeliest token, with baselines of samples."""
    points = [free("oracle", 1.0, x, y) for x, y in ((0.0, 0.3), (3.0, 0.7))]
    write(tmp_path, ROWS, [0, 1], value, free=[free_run(tmp_path, "", 0, points)])
    between = free("interpolation", 0.5, 1.0, 0.4, how="linear", drift_is="measured", prompts=512)
    file = tmp_path / "imdb" / "nlpo-seed0" / "interpolation.jsonl"
    file.write_text(baseline_line(between) + "\n")
    r = read(tmp_path)
    alike = frontiers(r, r.tasks[1])[0]
    part = without_training(alike)
    assert waste(alike) is not None and part is not None and "sampling" not in part.note
    assert "on validation prompts: 64 (oracle), 512 (interpolation);" in part.note
    assert not any("sampling" in x for x in chart(alike)["title"]["subtitle"])
    for name in ("ppo", "nlpo"):
        for seed in (0, 1):
            with open(tmp_path / "imdb" / f"{name}-seed{seed}" / "config.yaml", "a") as f:
                f.write("evaluation: {sampling: {greedy: true}}\n")
    apart = frontiers(r, r.tasks[1])[0]
    part = without_training(apart)
    assert waste(apart) is None and part is not None
    assert "no table of drift beyond the oracle" in part.note
    assert any("evaluation.sampling" in x for x in chart(apart)["title"]["subtitle"])


def of_oracle(f: Frontier) -> dict[str, Any]:
    return next(x for x in chart(f)["layer"] if x.get("name") == "oracle")


def test_what_is_left_out_of_scores_is_in_the_table_where_it_was_measured(tmp_path: Path) -> None:
    write(tmp_path, ROWS, [0], value)
    assert tether(["grue", "report", str(tmp_path)]) == 0
    before = (tmp_path / "leaderboard.md").read_text()
    assert "coverage (left out)" not in before
    file = tmp_path / "commongen" / "ppo-seed0" / "scores.json"
    found = json.loads(file.read_text())
    for weights in found["weights"]:
        weights["values"]["coverage"] = 0.875
    file.write_text(json.dumps(found))
    assert tether(["grue", "report", str(tmp_path)]) == 0
    after = (tmp_path / "leaderboard.md").read_text()
    (row,) = set(after.splitlines()) - set(before.splitlines())
    assert row.startswith("| coverage (left out) | 1.000 | 1.000 |") and row.count("0.875") == 1
    assert set(before.splitlines()) < set(after.splitlines())  # no score has moved


def test_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, ROWS, range(5), value)
    assert tether(["grue", "report", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "Leaderboard" in out and "supervised+ppo" in out
    page = (tmp_path / "leaderboard.html").read_text()
    # two starts on each of two tasks
    assert all(f"frontier-{t}-{i}" in page for t in ("commongen", "imdb") for i in (0, 1))
    assert f"anchors {stamp('commongen')[:16]}" in page and "Left out: coverage" in page
    assert "neither means nor curves" not in page  # each seed has a start of its own, on purpose
    with open(tmp_path / "scores.csv", newline="") as f:
        scores = list(csv.DictReader(f))
    one = next(
        x for x in scores
        if (x["task"], x["method"], x["seed"], x["weights"], x["metric"])
        == ("imdb", "ppo", "3", "final", "rouge_1")
    )  # fmt: skip
    assert math.isclose(float(one["mapped"]), (0.26 + 0.02 + 0.012 - 0.1) / 0.4)
    assert (one["floor"], one["ceiling"], one["drift_nats_per_completion"]) == ("0.1", "0.5", "6.0")
    with open(tmp_path / "leaderboard.csv", newline="") as f:
        board = list(csv.DictReader(f))
    kept = {(x["method"], x["weights"]): x for x in board}
    assert len(kept) == len(board) == 2 + 3 * 2
    assert kept["ppo", "budget:4"]["interval_over"] == "seeds"
    assert math.isclose(float(kept["supervised", "final"]["score"]), 0.55 + 0.02)


def test_nothing_finished(tmp_path: Path) -> None:
    names = [f"imdb/{x}-seed0" for x in ROWS]
    write(tmp_path, ROWS, [0], value, tasks=["imdb"], unfinished=names)
    with pytest.raises(UserError, match="no cell has finished yet"):
        read(tmp_path)
