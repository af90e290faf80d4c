"""What costs no training, in the CSV, the charts and the page: counted, and never a checkpoint."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import pytest

from tests.browser import browse, needs_chromium
from tests.unit.reports.folders import point, write_run
from tether.analysis.best_of_n import kl_bound
from tether.records import BASELINES, INTERPOLATION, BaselinePoint, baseline_line
from tether.reports import baselines
from tether.reports.runs import read_run
from tether.reports.write import HTML_LIMIT, Written, write_report

ORACLE = [(0.0, 0.5), (0.5, 0.6), (2.0, 0.7), (4.5, 0.9), (5.2, 0.97)]
"""(drift, reward); the last is beyond the range."""


def free(baseline: str, at: float | None, drift: float, reward: float, **other: object):
    values = {
        "agent": "policy", "baseline": baseline, "how": "", "at": at, "split": "validation",
        "prompts": 64, "samples": 256, "drift": drift, "drift_is": "estimate", "valid": True,
        "reward": reward, "reward_se": 0.01, **other,
    }  # fmt: skip
    return BaselinePoint(**values)  # type: ignore[arg-type]


def sampled() -> list[BaselinePoint]:
    best = [
        free("best_of_n", float(n), kl_bound(n), 0.5 + 0.05 * i, drift_is="bound",
             judges={"other": 0.3})
        for i, n in enumerate((1, 2, 4))
    ]  # fmt: skip
    oracle = [free("oracle", math.inf if x == 0 else 1 / x, x, y, valid=x < 5) for x, y in ORACLE]
    return [*best, *oracle]


def between(reward: float = 0.0) -> list[BaselinePoint]:
    return [
        free("interpolation", s, 3 * s, 0.5 + 0.2 * s + reward, how="linear", drift_is="measured")
        for s in (0.0, 0.5, 1.0)
    ]


def study(folder: Path, with_free: bool = True) -> Path:
    for m, name in enumerate(("PPO", "KL")):
        for s in range(2):
            run = write_run(
                folder / f"{name}{s}", name, s,
                [point(0, 0.0, 0.5), point(4, 3.0 - m, 0.7), point(8, 6.0, 0.75)],
            )  # fmt: skip
            if not with_free:
                continue
            lines = (run / "record.jsonl").read_text().splitlines()
            added = [baseline_line(p) for p in [*sampled(), *between()]]
            text = "\n".join([*lines[:-1], *added, lines[-1]]) + "\n"
            (run / "record.jsonl").write_text(text)
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_report([study(tmp_path_factory.mktemp("free"))])


def table(file: Path) -> list[dict[str, str]]:
    with open(file, newline="") as f:
        return list(csv.DictReader(f))


def marks(markup: str, layer: str) -> int:
    group = re.search(rf'<g class="[^"]*\b{layer}_marks".*?</g>', markup, re.S)
    return 0 if group is None else group[0].count("<path ")


def test_rows_of_the_csv(written: Written) -> None:
    rows = table(written.csv)
    kinds = [r["kind"] for r in rows]
    assert {k: kinds.count(k) for k in set(kinds)} == {
        "evaluation": 12, "best_of_n": 12, "oracle": 20, "interpolation": 12,
    }  # fmt: skip
    mine = [r for r in rows if r["run"] == "PPO0"]
    best = [r for r in mine if r["kind"] == "best_of_n"]
    assert [r["setting"] for r in best] == ["n = 1", "n = 2", "n = 4"]
    assert [float(r["drift_nats_per_completion"]) for r in best] == [0, kl_bound(2), kl_bound(4)]
    assert {(r["drift_is"], r["judge.other"], r["update"]) for r in best} == {("bound", "0.3", "")}
    oracle = [r for r in mine if r["kind"] == "oracle"]
    assert [r["setting"] for r in oracle][:2] == ["lambda = inf", "lambda = 2"]
    assert [r["valid"] for r in oracle] == ["true"] * 4 + ["false"]
    assert [r["setting"] for r in mine if r["kind"] == "interpolation"][1] == "linear 0.5"
    assert not any(r["checkpoint"] == "true" for r in rows if r["kind"] != "evaluation")


def test_a_judge_that_gave_no_number(tmp_path: Path) -> None:
    """Null in the record: an empty cell, as for a judge that the others have not."""
    run = write_run(tmp_path / "a", "PPO", 0, [point(0, 0.0, 0.5), point(4, 3.0, 0.7)])
    lost = free("best_of_n", 2.0, kl_bound(2), 0.6, judges={"other": math.nan})
    (run / BASELINES).write_text(baseline_line(lost) + "\n")
    found = baselines.table(write_report([run]).study)
    assert found is not None and [c.main for c in found[1][0]][-2:] == ["0.600", "-"]


def test_no_budget_counts_them(written: Written, tmp_path: Path) -> None:
    """The oracle's .9 at 4.5 nats would win every budget if it were a checkpoint."""
    without = write_report([study(tmp_path, with_free=False)])
    for a, b in zip(written.study.methods, without.study.methods, strict=True):
        assert [a.reward_at(x) for x in (1, 4, 16)] == [b.reward_at(x) for x in (1, 4, 16)]
        assert a.final_reward() == b.final_reward()
    assert written.study.areas == without.study.areas


def test_the_svg_draws_each_once_and_the_valid_range_only(written: Written) -> None:
    svg = written.svg.read_text()
    # four runs of one initial model: one curve, one set of squares; a path for each run's line
    assert marks(svg, "oracle") == 1 and marks(svg, "best_of_n") == 3
    assert marks(svg, "interpolation") == 12
    assert 'stroke-dasharray="6,4"' in svg and svg.count(">n=4<") == 1 and ">oracle<" in svg
    assert "valid to 4.5 nats" in svg and "best-of-n at its KL bound" in svg
    spec = json.dumps(baselines.layers(written.study, ["PPO", "KL"]))
    assert '"x": 4.5' in spec and '"x": 5.2' not in spec
    assert written.html.stat().st_size <= HTML_LIMIT


def test_without_them_nothing_changes(tmp_path: Path) -> None:
    files = write_report([study(tmp_path, with_free=False)])
    svg, page = files.svg.read_text(), files.html.read_text()
    assert "oracle" not in svg and "interpolation" not in svg and "Without training" not in svg
    assert "id='baselines'" not in page and "id='waste'" not in page


def test_tables_of_the_page(written: Written) -> None:
    page = written.html.read_text()
    assert "id='baselines'" in page and "≤ 0.64" in page and "lambda = inf" in page
    head, rows = baselines.waste(written.study)  # type: ignore[misc]
    assert head[0] == "Within 4 nats"
    # reward .7 is the oracle's at 2 nats; PPO has it at 3, KL at 2
    assert [[c.main for c in r] for r in rows] == [
        ["KL", "2.00", "2.00", "0.00"],
        ["PPO", "3.00", "2.00", "1.00"],
    ]


def test_later_files_win(tmp_path: Path) -> None:
    run = study(tmp_path) / "PPO0"
    changed = [baseline_line(p) for p in between(0.1)[1:]]
    (run / INTERPOLATION).write_text("\n".join(changed) + "\n")
    (run / BASELINES).write_text(baseline_line(free("oracle", 0.0, 1.0, 0.8)) + "\n")
    found = read_run(run).baselines
    line = [(p.at, round(p.reward, 3)) for p in found if p.baseline == "interpolation"]
    assert line == [(0.0, 0.5), (0.5, 0.7), (1.0, 0.8)]
    assert [p.reward for p in found if p.baseline == "oracle"] == [0.8]
    assert sum(p.baseline == "best_of_n" for p in found) == 3


def test_vega_lite_has_nothing_to_say(written: Written, capfd: pytest.CaptureFixture[str]) -> None:
    import vl_convert

    from tether.reports import charts
    from tether.reports.points import rows

    spec = charts.frontier(written.study, rows(written.study))
    vl_convert.vegalite_to_svg(spec, show_warnings=True)
    assert "WARN" not in capfd.readouterr().err


@needs_chromium
def test_a_browser_draws_them(written: Written, tmp_path: Path) -> None:
    dom, console = browse(written.html, tmp_path / "profile")
    assert console == []
    shown = dom[dom.rindex('id="frontier"') :]
    assert (marks(shown, "best_of_n"), marks(shown, "interpolation")) == (3, 12)
