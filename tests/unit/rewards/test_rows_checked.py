"""What rewards and judges need is asked of every row of every split, before a model is loaded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tether.train.build
from tests.runs_for_tests import agent_of, lines, make_world, run, settings
from tests.unit.rewards.test_metric_rewards import Likes
from tether.config.errors import UserError
from tether.config.parts import build
from tether.metrics.meteor import Meteor
from tether.rewards.batch import RewardBatch
from tether.rewards.combine import RewardSet
from tether.rewards.concept_preference import ConceptPreference
from tether.rewards.metric import MetricReward
from tether.studies.compare import check_inputs, from_recipes


def metric(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "metric", "metric": name, "references": "ref", **more}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("rows"), layers=1)


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loads a model fails."""
    monkeypatch.delattr(tether.train.build, "load_language_model")


def write(file: Path, bad: dict[int, dict[str, Any]], n: int = 40) -> str:
    """n rows, some of them (number from 1) with other values."""
    rows = [{"prompt": f"q {i}", "ref": f"a {i}", "concepts": ["a"]} for i in range(1, n + 1)]
    for number, change in bad.items():
        rows[number - 1] |= change
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(file)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("rouge_l", {"ref": None}, r"row 31 of the data has no reference in 'ref' \(None\); mend it, or"
     " leave such rows out with missing: drop"),
    ("rouge_l", {"ref": " "}, r"row 31 of the data has no reference in 'ref' \(' '\)"),
    ("rouge_l", {"ref": [None, ""]}, "row 31 of the data has no reference"),
    ("rouge_l", {"ref": 7}, "row 31 of the data holds 7 in 'ref', expected a text or a list of"),
    ("rouge_l", {"ref": [3]}, r"row 31 of the data holds \[3\] in 'ref', expected a text or"),
    ("rouge_l", {"ref": "a\ud83d"}, "row 31 of the data holds text in 'ref' whose character 2"),
    ("coverage", {"concepts": None}, "row 31 of the data holds None in 'concepts', expected a list"
     ".*; mend it, or leave such rows out with missing: drop"),
    ("coverage", {"concepts": "a"}, "row 31 of the data holds 'a' in 'concepts', expected a list"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "message"), BAD)
def test_a_row_without_what_a_reward_needs(
    world: Path, tmp_path: Path, no_model: None, name: str, change: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "p.jsonl", {31: change})
    where = rf"^reward 'r' \(metric {name}\): {message}"
    for family in ("rewards", "judges"):
        given = {family: {"r": metric(name)}, "data": {"path": path, "reference": None}}
        if family == "judges":  # they read validation rows only
            given["data"]["validation"] = path
            where += rf".* \(data\.validation: {path}\)$"
        with pytest.raises(UserError, match=where) as e:
            agent_of(settings(world, given))
        assert "\n" not in str(e.value)


def test_the_first_of_several_rows_is_named(world: Path, tmp_path: Path, no_model: None) -> None:
    """By its number in the file, whatever the shuffle."""
    path = write(tmp_path / "p.jsonl", {9: {"ref": None}, 31: {"ref": None}, 33: {"ref": None}})
    data = {"path": path, "reference": None}
    reward = {"r": metric("rouge_l")}
    for seed in range(4):
        chosen = settings(world, {"rewards": reward, "data": data | {"seed": seed}})
        with pytest.raises(UserError, match=r"row (9|31|33) of the data has no reference"):
            agent_of(chosen)
    held = data | {"validation": write(tmp_path / "v.jsonl", {})}
    with pytest.raises(UserError, match=r"row 9 of .* \(2 further rows are no better\)"):
        agent_of(settings(world, {"rewards": reward, "data": held}))


def test_a_column_that_a_named_split_does_not_have(
    world: Path, tmp_path: Path, no_model: None
) -> None:
    other = tmp_path / "v.jsonl"
    other.write_text('{"prompt": "q"}\n')
    data = {"path": write(tmp_path / "p.jsonl", {}), "reference": None, "validation": str(other)}
    with pytest.raises(UserError, match=rf"needs the column 'ref'; there are .*{other}\)"):
        agent_of(settings(world, {"rewards": {"r": metric("rouge_l")}, "data": data}))


def test_a_test_split_that_is_not_scored_may_lack_what_rewards_need(
    world: Path, tmp_path: Path
) -> None:
    other = tmp_path / "t.jsonl"
    other.write_text('{"prompt": "q"}\n')
    data = {"path": write(tmp_path / "p.jsonl", {}), "reference": None, "test": str(other)}
    changes = {"rewards": {"r": metric("rouge_l")}, "data": data}
    assert agent_of(settings(world, changes, {"evaluation": {"human_rows": 0}}))
    with pytest.raises(UserError, match=rf"needs the column 'ref'; there are .*{other}\)"):
        agent_of(settings(world, changes, {"evaluation": {"human_rows": 0, "test_prompts": 1}}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": None}, "row 31, column 'prompt' holds None"),
        ({"prompt": "a\ud83d"}, "row 31, column 'prompt': character 2 is half"),
        ({"ref": None}, "row 31, column 'ref': the human completion is missing"),
    ],
)
def test_prompts_and_completions_are_read_before_a_model(
    world: Path, tmp_path: Path, no_model: None, change: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "p.jsonl", {31: change})
    with pytest.raises(UserError, match=message):
        agent_of(settings(world, {"data": {"path": path, "reference": "ref"}}))
    own = {"kind": "rehearsal", "data": {"path": path, "prompt": "prompt", "reference": "ref"}}
    with pytest.raises(UserError, match=rf"^tethers\.mine: .*{message}"):
        agent_of(settings(world, {"tethers": {"mine": own}}))


def test_a_study_asks_for_each_way_of_training(tmp_path: Path) -> None:
    """Training rows are scored by one of its methods alone, which comes second."""
    path = write(tmp_path / "p.jsonl", {31: {"ref": None}})
    whole = write(tmp_path / "v.jsonl", {})
    changes = [
        f"data.path={path}", f"data.validation={whole}", "data.reference=prompt",
        "rewards.r.kind=metric", "rewards.r.metric=rouge_l", "rewards.r.references=ref",
    ]  # fmt: skip
    study = from_recipes(
        ["supervised", "ppo"], seeds=1, folder=tmp_path / "s", overrides=[f"--{c}" for c in changes]
    )
    with pytest.raises(UserError, match="row 31 of the data has no reference"):
        check_inputs(study)
    check_inputs(replace(study, arms={"supervised": study.arms["supervised"]}))


def test_rows_without_a_reference_may_be_left_out(world: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", {i: {"ref": None} for i in range(1, 41, 2)})
    given = {
        "rewards": {"reward": None, "r": metric("rouge_l", missing="drop")},
        "data": {"path": path, "reference": None},
    }
    folder = run(settings(world, given, name="left_out", updates=2))
    updates = [x["metrics"] for x in lines(folder) if x["kind"] == "update"]
    assert sum(m["rollout/dropped_samples"] for m in updates) > 0


def test_rows_beyond_the_limit_are_not_asked(world: Path, tmp_path: Path) -> None:
    """`data.limit` cuts the shuffled training rows: one is left, and it is whole."""
    path = write(tmp_path / "p.jsonl", {i: {"ref": None} for i in range(1, 40)})
    whole = write(tmp_path / "v.jsonl", {})
    from tether.tasks.loading import splits

    for seed in range(400):
        data = {"path": path, "reference": None, "validation": whole, "limit": 1, "seed": seed}
        chosen = settings(world, {"rewards": {"r": metric("rouge_l")}, "data": data})
        if splits(chosen.data)["train"][1] == [40]:
            agent_of(chosen)
            return
    raise AssertionError("no shuffle begins with row 40")


def test_a_column_that_is_missing_is_dropped_where_asked() -> None:
    batch = RewardBatch(["p"] * 2, ["a dog"] * 2, [[1]] * 2, {"concepts": [None, ["dog"]]})
    assert build("reward", metric("coverage", missing="drop"))(batch) == [None, 1.0]
    table = {"overlap_subset": [None, True], "ref": ["a dog"] * 2}
    subset = build("reward", metric("sacre_bleu_by_overlap", missing="drop"))
    values = subset(RewardBatch(["p"] * 2, ["a dog"] * 2, [[1]] * 2, table))
    assert None not in values  # nothing is a value of this column
    RewardSet({"r": subset}).check_rows(table, [1, 2])


def test_rows_outside_where_are_not_asked() -> None:
    reward = MetricReward(metric=build("metric", "chrf"), references="ref", where={"n": 1})
    rows = RewardSet({"r": reward})
    rows.check_rows({"ref": ["a", None], "n": [1, 2]}, [1, 2])
    with pytest.raises(UserError, match="row 2 of the data has no reference"):
        rows.check_rows({"ref": ["a", None], "n": [1, 1]}, [1, 2])


def test_concept_preference_asks_for_all_it_reads() -> None:
    def of(**more: Any) -> ConceptPreference:
        return ConceptPreference(preference=Likes(), metric=Meteor(synonyms=False), **more)

    assert of().lacks({"concepts": ["a"], "references": ["b"]}) == ""
    no_concepts = of().lacks({"concepts": None, "references": ["b"]})
    assert "expected a list of concepts; or leave such rows out" in no_concepts
    assert "has no reference" in of().lacks({"concepts": ["a"], "references": []})
    drop = of(missing="drop", meteor_coef=0.0)
    assert drop.lacks({"concepts": None}) == ""
    batch = RewardBatch(["p"] * 2, ["dog"] * 2, [[1]] * 2, {"concepts": [None, ["dog"]]})
    assert drop(batch) == [None, 0.8]
