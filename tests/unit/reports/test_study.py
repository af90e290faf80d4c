"""What the reports compute from run folders, against hand-worked numbers."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.reports.folders import point, sample, write_run
from tether.config.errors import UserError
from tether.records import DRIFT, line
from tether.reports.methods import candidates, study
from tether.reports.points import as_csv, rows
from tether.reports.runs import find_runs, read_run
from tether.reports.samples import side_by_side
from tether.reports.tables import console, judges, resets, results
from tether.reports.wording import conclusion, verdicts

VALIDATION = [
    point(0, 0.0, 0.50),
    point(2, 1.0, 0.70),
    point(4, 3.0, 0.80),
    point(6, 9.0, 0.90),
]


def on_test(update: int, weights: str, reward: float, drift: float = 99.0):  # type: ignore[no-untyped-def]
    """Test drift differs from validation drift: budgets must read the latter."""
    return point(update, drift, reward, split="test", weights=weights)


TESTED = [
    *VALIDATION,
    on_test(2, "budget:1", 0.66),
    on_test(2, "budget:2", 0.66),
    on_test(4, "budget:4", 0.77),
    on_test(4, "budget:8", 0.77),
    on_test(6, "budget:16", 0.84),
    on_test(6, "final", 0.84),
    on_test(0, "initial", 0.52),
]


def test_rewards_at_budgets_on_validation(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "PPO", 0, VALIDATION)
    found = study(*find_runs([tmp_path]))
    (seed,) = found.methods[0].seeds
    assert found.split == "validation"
    assert [seed.reward_at(b) for b in found.budgets] == [0.70, 0.70, 0.80, 0.80, 0.90]
    # (1*.5 + 2*.7 + 6*.8 + 7*.9) / 16 = .8125; (.8125 - .5) / .5 = .625
    assert found.methods[0].area(16.0).mean == pytest.approx(0.625)
    # (.5 + 1.4 + .8) / 4 = .675; .175 / .5 = .35
    assert found.methods[0].area(4.0).mean == pytest.approx(0.35)
    assert found.methods[0].final_drift().mean == 9.0


def test_rewards_at_budgets_on_test(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "PPO", 0, TESTED)
    found = study(*find_runs([tmp_path / "a"]))
    (seed,) = found.methods[0].seeds
    assert found.split == "test"
    assert [seed.reward_at(b) for b in found.budgets] == [0.66, 0.66, 0.77, 0.77, 0.84]
    assert (seed.initial, seed.final.reward) == (0.52, 0.84)
    # steps at validation drifts: (1*.52 + 2*.66 + 6*.77 + 7*.84) / 16 = .77125
    assert found.methods[0].area(16.0).mean == pytest.approx((0.77125 - 0.52) / 0.48)
    assert [s.checkpoint.reward for s in seed.shown] == [0.50, 0.70, 0.80, 0.90]


def test_the_setting_is_chosen_on_validation_and_reported_on_test(tmp_path: Path) -> None:
    better_on_test = [replace(p, reward=p.reward - 0.05) for p in VALIDATION[1:]]
    other = [VALIDATION[0], *better_on_test]
    other += [on_test(4, "budget:4", 0.95), on_test(6, "final", 0.96), on_test(2, "budget:1", 0.94)]
    write_run(tmp_path / "a", "PPO + KL", 0, TESTED)
    write_run(tmp_path / "b", "PPO + KL", 0, other)
    (seed,) = study(*find_runs([tmp_path])).methods[0].seeds
    assert len(seed.runs) == 2
    assert seed.reward_at(4.0) == 0.77  # not .95
    assert seed.final.reward == 0.84


def test_untested_initial_model_takes_the_test_value_of_another_run(tmp_path: Path) -> None:
    without = [p for p in TESTED if p.weights != "initial"]
    write_run(tmp_path / "a", "PPO", 0, without)
    alone = study(*find_runs([tmp_path]))
    assert alone.methods[0].seeds[0].initial == 0.50
    assert any("no test evaluation" in n for n in alone.notes)
    write_run(tmp_path / "b", "PPO", 1, TESTED)
    both = study(*find_runs([tmp_path]))
    assert [s.initial for s in both.methods[0].seeds] == [0.52, 0.52]


def test_only_common_exported_points_count(tmp_path: Path) -> None:
    extra = [
        *VALIDATION,
        point(5, 0.5, 0.99, common=False, side="before"),
        point(4, 0.5, 0.98, policy="constrained"),
        point(4, 0.5, 0.97, agent="other"),
    ]
    write_run(tmp_path / "a", "PPO", 0, extra)
    found = study(*find_runs([tmp_path]))
    assert found.methods[0].seeds[0].reward_at(1.0) == 0.70
    assert read_run(tmp_path / "a", agent="other").validation()[0].reward == 0.97


def test_several_policies_and_agents_are_named(tmp_path: Path) -> None:
    """The exported policy of one agent in numbers, texts and updates; the others are named."""
    points = [
        *VALIDATION[:2],
        point(2, 1.0, 0.95, policy="constrained"),
        point(0, 0.0, 0.1, agent="other"),
        point(4, 0.5, 0.97, agent="other"),
    ]
    texts = [
        sample(u, 0, f"{agent}, {policy}, {u}", agent=agent, policy=policy)
        for u in (0, 2)
        for agent in ("policy", "other")
        for policy in ("exported", "constrained")
    ]
    texts.append(sample(4, 0, "policy, constrained, 4", policy="constrained"))
    write_run(tmp_path / "a", "NLPO", 0, points, samples=texts)
    record = tmp_path / "a" / "record.jsonl"
    text = record.read_text().replace('"agents": ["policy"]', '"agents": ["policy", "other"]')
    record.write_text(text + line("update", agent="other", update=9, metrics={}) + "\n")
    found = study(*find_runs([tmp_path]))
    assert found.notes[:2] == (
        "A masked policy is two policies; budgets, curves and texts are of the exported one, "
        "without its mask: NLPO.",
        "a has 2 agents (policy, other); only policy is shown.",
    )
    assert found.methods[0].final_reward().mean == 0.70 and found.runs[0].updates == 4
    (shown,) = side_by_side(found)
    assert shown.before is not None and shown.before.completion == "policy, exported, 0"
    assert [x.completion for x in shown.after] == ["policy, exported, 2"]


def test_completions_stand_under_their_own_prompt(tmp_path: Path) -> None:
    """Runs that read different data have other prompts in the same rows."""
    both = [sample(u, r, "text") for u in (0, 2) for r in range(3)]
    other = [x | {"prompt": "Another"} if x["row"] == 1 else x for x in both]
    for name, texts in (("A", both), ("B", other)):
        write_run(tmp_path / name, name, 0, VALIDATION[:2], samples=texts)
    assert [p.text for p in side_by_side(study(*find_runs([tmp_path])))] == [
        "The film 0",
        "The film 2",
    ]


def test_a_test_point_without_its_validation_point_is_an_error(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "PPO", 0, [*VALIDATION, on_test(5, "final", 0.9)])
    with pytest.raises(UserError, match="update 5"):
        candidates(read_run(tmp_path / "a"), "test")


def test_the_initial_model_belongs_to_every_set(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "PPO", 0, [point(0, 0.0, 0.5), point(2, 30.0, 0.9)])
    found = study(*find_runs([tmp_path]))
    assert [found.methods[0].seeds[0].reward_at(b) for b in (1.0, 16.0)] == [0.5, 0.5]
    write_run(tmp_path / "b", "PPO", 1, VALIDATION[1:])
    with pytest.raises(UserError, match="update 0"):
        study(*find_runs([tmp_path]))


def test_diverged_and_failed_runs_count(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "PPO", 0, VALIDATION)
    write_run(tmp_path / "b", "PPO", 1, [*VALIDATION[:3], point(6, 9.0, float("nan"))])
    write_run(tmp_path / "c", "PPO", 2, VALIDATION[:2], finished=False)
    failures = {
        "c": {"method": "PPO", "seed": 2, "returncode": 1, "error": "out of memory"},
        "d": {"method": "PPO", "seed": 3, "returncode": 1, "error": "no such model"},
    }
    (tmp_path / "failures.json").write_text(json.dumps(failures))
    found = study(*find_runs([tmp_path]))
    (method,) = found.methods
    # the diverged run stands with its last finite checkpoint, the failed one with its last
    assert method.final_reward().values == (0.90, 0.80, 0.70)
    assert method.failed() == 3 and method.missing == ("d",)
    assert [bool(s.failed) for s in method.seeds] == [False, True, True]
    assert "3 of 4 runs failed" in found.notes[0]
    assert results(found)[1][0][0].small == "3 failed"


def test_an_infinite_drift_is_not_finite(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "PPO", 0, [*VALIDATION, point(8, float("inf"), 0.99)])
    run = read_run(tmp_path / "a")
    assert len(run.points) == 4 and run.failed.startswith("diverged")


def test_rewards_above_one_have_no_area(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "PPO", 0, [*VALIDATION, point(8, 10.0, 3.0)])
    found = study(*find_runs([tmp_path]))
    assert not found.areas and any("left out" in n for n in found.notes)
    assert not any("Area" in h for h in results(found)[0])


def test_csv_holds_every_exported_point(tmp_path: Path) -> None:
    resetting = [
        *VALIDATION[:3],
        point(5, 5.0, 0.86, side="before", common=False),
        point(5, 0.8, 0.60, side="after", common=False),
        point(6, 2.0, 0.75, judges={"tfidf": 0.4}, reward_se=float("nan")),  # one prompt
    ]
    write_run(tmp_path / "a", 'El"astic, Reset', 0, resetting, events=(5,))
    table = list(csv.DictReader(io.StringIO(as_csv(rows(study(*find_runs([tmp_path])))))))
    assert len(table) == 6
    assert {r["method"] for r in table} == {'El"astic, Reset'}
    assert [r["checkpoint"] for r in table] == ["true"] * 3 + ["false"] * 2 + ["true"]
    assert [r["reset"] for r in table] == ["", "", "", "before", "after", ""]
    assert [r["non_dominated"] for r in table] == ["true"] * 3 + ["false"] * 2 + ["true"]
    assert float(table[1]["reward"]) == 0.70
    assert float(table[1]["drift_nats_per_completion"]) == 1.0
    assert table[5]["judge.tfidf"] == "0.4" and table[0]["judge.tfidf"] == ""
    assert [r["reward_se"] for r in table] == ["0.01"] * 5 + [""]


def test_recovery_and_judge_tables(tmp_path: Path) -> None:
    resetting = [
        point(0, 0.0, 0.5, judges={"j": 0.40}),
        point(4, 5.0, 0.86, side="before", common=False),
        point(4, 0.8, 0.60, side="after"),
        point(8, 2.0, 0.87, judges={"j": 0.30}),
    ]
    write_run(tmp_path / "a", "ER", 0, resetting)
    found = study(*find_runs([tmp_path]))
    recovered = resets(found)
    assert recovered is not None
    assert [c.main for c in recovered[1][0]] == ["ER", "1", "1 of 1", "4", "2.00", "5.00"]
    judged = judges(found)
    assert judged is not None and [c.main for c in judged[1][0]] == ["ER", "0.400", "0.300"]


def test_judges_are_compared_on_the_same_prompts(tmp_path: Path) -> None:
    """Where the final weights are judged on test prompts, so is the initial model, by whichever
    run tested it."""
    judged = [replace(p, judges={"j": 0.1}) for p in VALIDATION]
    tests = [on_test(2, "budget:1", 0.6), on_test(4, "budget:4", 0.7), on_test(6, "final", 0.8)]
    tests = [replace(p, judges={"j": 0.6}) for p in tests]
    initial = replace(on_test(0, "initial", 0.5), judges={"j": 0.4})
    write_run(tmp_path / "a", "PPO", 0, [*judged, *tests])
    write_run(tmp_path / "b", "KL", 0, [*judged, *tests, initial])
    found = judges(study(*find_runs([tmp_path])))
    assert found is not None
    assert [[c.main for c in row] for row in found[1]] == [
        ["PPO", "0.400", "0.600"],
        ["KL", "0.400", "0.600"],
    ]


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a folder"):
        find_runs([tmp_path / "nowhere"])
    with pytest.raises(UserError, match="holds no runs"):
        find_runs([tmp_path])
    folder = write_run(tmp_path / "a", "PPO", 0, [])
    with pytest.raises(UserError, match="finite evaluation"):
        study(*find_runs([folder]))
    broken = replace(VALIDATION[1], drift={DRIFT.replace("exact", "k1"): 1.0})
    with pytest.raises(UserError, match="update 2 has no drift"):
        read_run(write_run(tmp_path / "b", "PPO", 0, [VALIDATION[0], broken]))


def declare(folder: Path, methods: list[str], primary: list[list[str]]) -> None:
    plan = {"name": "s", "methods": methods, "seeds": [], "primary": primary, "margin": 0.01}
    (folder / "study.json").write_text(json.dumps(plan))


def pair(folder: Path, seeds: int, gain: float = 0.1) -> None:
    for s in range(seeds):
        wobble = 0.002 * (-1) ** s
        for name, more in (("B", 0.0), ("A", gain + wobble)):
            moved = [VALIDATION[0], *(replace(p, reward=p.reward + more) for p in VALIDATION[1:3])]
            write_run(folder / f"{name}{s}", name, s, moved)


def test_few_seeds_carry_no_verdict(tmp_path: Path) -> None:
    pair(tmp_path, 3)
    declare(tmp_path, ["A", "B"], [["A", "B"]])
    said = conclusion(study(*find_runs([tmp_path])))
    assert said.endswith("3 seeds): 3 seeds carry no verdict.")
    assert "Within 4 nats" in said and "A 0.901 and B 0.800 (initial model 0.500" in said


def test_a_verdict_needs_a_declared_comparison(tmp_path: Path) -> None:
    pair(tmp_path, 6)
    said = conclusion(study(*find_runs([tmp_path])))
    assert "no comparison was declared" in said
    declare(tmp_path, ["B", "A"], [["A", "B"]])
    found = study(*find_runs([tmp_path]))
    assert conclusion(found).endswith("A is better than B.")
    assert [m.name for m in found.methods] == ["B", "A"]  # the study's order


@pytest.mark.parametrize(("shared", "said"), [(5, "5"), (1, "fewer than 2")])
def test_a_comparison_that_lacks_seeds_has_no_verdict(
    shared: int, said: str, tmp_path: Path
) -> None:
    """Six seeds each, of which both methods have but five, or one."""
    for s in range(6):
        write_run(tmp_path / f"A{s}", "A", s, VALIDATION)
        write_run(tmp_path / f"B{s}", "B", s if s < shared else s + 10, VALIDATION)
    declare(tmp_path, ["A", "B"], [["A", "B"]])
    text = conclusion(study(*find_runs([tmp_path])))
    assert text.endswith(f"A against B has no verdict ({said} seeds that both have).")


def test_a_declared_comparison_without_seeds_counts_in_holm(tmp_path: Path) -> None:
    """p = 2 / 2^6 = .03125 alone; beside one that cannot be had yet Holm doubles it to .0625."""
    pair(tmp_path, 6)
    write_run(tmp_path / "C0", "C", 0, VALIDATION)
    declare(tmp_path, ["A", "B", "C"], [["A", "B"], ["A", "C"]])
    found = verdicts(study(*find_runs([tmp_path])))
    assert list(found) == [("A", "B")]
    assert found["A", "B"].p == 0.03125 and found["A", "B"].p_holm == 0.0625
    assert found["A", "B"].verdict == "undecided"


def test_what_is_undecided_has_the_power_of_its_rule(tmp_path: Path) -> None:
    for s in range(7):
        moved = [replace(p, reward=p.reward + 0.1 * (s % 2)) for p in VALIDATION]
        write_run(tmp_path / f"A{s}", "A", s, [VALIDATION[0], *moved[1:]])
        write_run(tmp_path / f"B{s}", "B", s, VALIDATION)
    declare(tmp_path, ["A", "B"], [["A", "B"], ["B", "A"], ["A", "B"]])
    # .1 on three of seven seeds: s.d. .0535; one comparison of 7 pairs: 1.36 of it (simulated)
    said = conclusion(study(*find_runs([tmp_path])))
    assert said.endswith("A against B is undecided (80 % power only for 0.073 and more).")
    assert said.count("undecided") == 1  # the same comparison, declared three times


def test_too_few_seeds_for_the_declared_comparisons_are_said(tmp_path: Path) -> None:
    pair(tmp_path, 6)
    for s in range(6):
        write_run(tmp_path / f"C{s}", "C", s, VALIDATION)
    declare(tmp_path, ["A", "B", "C"], [["A", "B"], ["A", "C"]])
    said = conclusion(study(*find_runs([tmp_path])))
    why = (
        "6 seeds are too few to find better or worse in 2 declared comparisons: p after Holm's "
        "correction is 0.0625 at least; 7 seeds would do"
    )
    assert f"A against B is undecided ({why})" in said and "80 % power" not in said


def test_above_20_seeds_nothing_is_tested(tmp_path: Path) -> None:
    pair(tmp_path, 21)
    declare(tmp_path, ["A", "B"], [["A", "B"]])
    said = conclusion(study(*find_runs([tmp_path])))
    assert said.endswith(
        "no verdict on more than 20 seeds, up to which the sign-flip test is exact."
    )


def test_equivalent_and_undecided(tmp_path: Path) -> None:
    pair(tmp_path, 6, gain=0.0)
    declare(tmp_path, ["A", "B"], [["A", "B"]])
    assert conclusion(study(*find_runs([tmp_path]))).endswith("A and B are equivalent.")


def test_the_terminal_table_fits_eighty_columns(tmp_path: Path) -> None:
    from rich.console import Console

    for s in range(5):
        write_run(tmp_path / f"a{s}", "PPO + Elastic Reset", s, VALIDATION)
    out = io.StringIO()
    Console(file=out, width=80).print(console(study(*find_runs([tmp_path]))))
    text = out.getvalue()
    assert "0.625" in text and "±.000" in text and "0-4" in text
    assert max(map(len, text.splitlines())) <= 80


def test_runs_of_different_things_are_named(tmp_path: Path) -> None:
    """Pooled runs that differ in data or reward get a note; equal ones none."""
    a = write_run(tmp_path / "a", "PPO", 0, [point(0, 0.0, 0.5), point(2, 1.0, 0.6)])
    b = write_run(tmp_path / "b", "PPO", 1, [point(0, 0.0, 0.5), point(2, 1.0, 0.6)])
    for folder, reward in ((a, "length"), (b, "length")):
        text = f"data: {{path: p.jsonl}}\nrewards: {{reward: {{kind: {reward}}}}}\n"
        (folder / "config.yaml").write_text(text)
    runs, _ = find_runs([a, b])
    assert not [n for n in study(runs).notes if "differ in" in n]
    (b / "config.yaml").write_text("data: {path: q.jsonl}\nrewards: {reward: {kind: contains}}\n")
    runs, _ = find_runs([a, b])
    notes = [n for n in study(runs).notes if "differ in" in n]
    assert notes and "differ in data, rewards:" in notes[0]
