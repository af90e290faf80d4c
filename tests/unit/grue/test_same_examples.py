"""All cells of a task are measured on the same examples: looked at before the first run, in the
records of those that are there, and in the completions that are scored."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.unit.grue.test_prompts_given import settings as imdb
from tether.config.errors import UserError
from tether.config.settings import dump
from tether.config.text_values import write_yaml
from tether.studies.grue import run as running
from tether.studies.grue.anchors import Examples, examples, given, given_again
from tether.studies.grue.cells import jobs
from tether.studies.grue.planning import Asked, plan_of, with_test_rows
from tether.studies.grue.run import Ready, measure, prepare
from tether.studies.grue.same_examples import check_prompts, check_same
from tether.tasks.loading import noted

METHODS = ("zero-shot", "supervised", "ppo", "nlpo")


def asked(folder: Path, layers: dict[str, Any], **more: Any) -> Asked:
    file = folder / "settings.yaml"
    write_yaml(file, layers)
    words: dict[str, Any] = {"mini": True, "settings": file, "out": folder / "o", **more}
    return Asked(["commongen"], METHODS, **words)


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        (
            {"demonstrations": {"data": {"seed": 5}}},
            r"commongen/supervised-seed0 would be tested on other examples than commongen/zero-shot"
            r" \(data.seed: 0 in commongen/zero-shot, 5 in commongen/supervised-seed0\): give all "
            r"cells of a task the same \(`all` in",
        ),
        (
            {"tuned": {"evaluation": {"human_rows": 4}}},
            "evaluation.human_rows: 12 in commongen/zero-shot, 4 in commongen/ppo-seed0: cells",
        ),
        (
            {"methods": {"ppo": {"evaluation": {"test_prompts": 6}}}},
            "evaluation.test_prompts: 12 in commongen/zero-shot, 6 in commongen/ppo-seed0: cells",
        ),
        (
            {"methods": {"nlpo": {"evaluation": {"prompts": 6}}}},
            "evaluation.prompts: 12 in commongen/ppo-seed0, 6 in commongen/nlpo-seed0: cells would",
        ),
        ({"tuned": {"evaluation": {"human_tokens": 9}}}, "evaluation.human_tokens: 96 in .*9 in "),
        ({"tuned": {"evaluation": {"seed": 9}}}, "evaluation.seed: 0 in .*9 in commongen/ppo-seed"),
        ({"tuned": {"data": {"max_prompt_tokens": 20}}}, "data.max_prompt_tokens: 96 in .*, 20 in"),
        (
            {"methods": {"ppo": {"data": {"task": {"prefix": "Say "}}}}},
            r"commongen/ppo-seed0 would be tested on other examples .*data.task.prefix: .*\"Say \"",
        ),
        (
            {"demonstrations": {"data": {"validation": "test", "test": "validation"}}},
            "commongen/supervised-seed0 would be tested on other examples",
        ),
        (
            {"methods": {"nlpo": {"data": {"validation": "train", "split": "validation"}}}},
            "commongen/nlpo-seed0 would be validated on other examples than commongen/zero-shot",
        ),
    ],
)
def test_before_the_first_run(
    layers: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a worker was started")

    monkeypatch.setattr(running, "run_jobs", never)
    monkeypatch.setattr(running, "_check", lambda made: None)
    with pytest.raises(UserError, match=said) as e:
        running.main(asked(tmp_path, layers), console=Console(quiet=True))
    assert "\n" not in str(e.value) and not (tmp_path / "o" / "grue.json").exists()


def test_what_may_differ(tmp_path: Path) -> None:
    """How often a run is evaluated, how it draws, and what it trains on."""
    layers = {
        "tuned": {"evaluation": {"every": 2, "samples": 1, "drift_every": 0}},
        "demonstrations": {"evaluation": {"prompts": 6}, "data": {"limit": 8}},
        "methods": {"ppo": {"sampling": {"chunk": 8, "temperature": 0.7}}},
        "all": {"after": {"best_of_n": True}},
    }
    plan = plan_of(asked(tmp_path, layers))
    made = jobs(plan)
    free = jobs(plan, running.free_cells(plan))
    assert free
    assert prepare(plan, made, Console(quiet=True), free)["commongen"].splits.keys() == {
        "test",
        "validation",
    }


def test_free_runs_have_them_too(tmp_path: Path) -> None:
    """They are measured as those are that train on a reward, and not as one method of them."""
    layers = {"all": {"after": {"best_of_n": True}}, "tuned": {"evaluation": {"human_rows": 12}}}
    plan = plan_of(asked(tmp_path, layers))
    made, free = jobs(plan), jobs(plan, running.free_cells(plan))
    data = replace(free[0][1].settings.data, seed=4)
    other = replace(free[0][1], settings=replace(free[0][1].settings, data=data))
    with pytest.raises(UserError, match="commongen/baselines would be tested on other examples"):
        prepare(plan, made, Console(quiet=True), [(free[0][0], other)])


def test_positive_reviews_train_and_all_are_held_out(tmp_path: Path) -> None:
    """IMDB's recipe of the supervised method, of a file without splits."""
    rows = [{"text": f"one {i} two {i}", "label": i % 2} for i in range(40)]
    (tmp_path / "imdb.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    plan = with_test_rows(plan_of(Asked(["imdb"], METHODS, data=tmp_path, out=tmp_path / "o")))
    made = {c.method.name: j for c, j in jobs(plan)}
    task = made["supervised"].settings.data.task
    assert task is not None and task["positive_only"]
    assert set(check_same(list(made.values()))) == {"test", "validation"}
    trained, held = (noted(made[m].settings.data) for m in ("supervised", "zero-shot"))
    assert set(trained["train"].table["label"]) == {1}
    used = set(trained["train"].numbers)
    assert not used & {n for name in ("test", "validation") for n in held[name].numbers}


def test_a_run_that_is_there_had_them(tmp_path: Path) -> None:
    """A file that was changed between two calls, and a run of an earlier version."""
    for split in ("train", "validation", "test"):
        lines = [
            {"concepts": [f"{split}{i}"], "references": [f"a {split}{i}"]}
            for i in range(30 if split == "train" else 12)
        ]
        text = "".join(json.dumps(x) + "\n" for x in lines)
        (tmp_path / "commongen").mkdir(exist_ok=True)
        (tmp_path / "commongen" / f"{split}.jsonl").write_text(text)
    wanted = asked(tmp_path, {}, data=tmp_path)
    plan = plan_of(wanted)
    made = jobs(plan)
    folder = made[0][1].folder
    folder.mkdir(parents=True)
    write_yaml(folder / "config.yaml", dump(made[0][1].settings))
    notes = {k: r.notes for k, r in noted(made[0][1].settings.data).items()}
    (folder / "record.jsonl").write_text(json.dumps({"kind": "start", "notes": notes}) + "\n")
    ready = prepare(plan, made, Console(quiet=True))["commongen"]
    file = tmp_path / "commongen" / "validation.jsonl"
    file.write_text(file.read_text().replace("a validation3", "the validation3"))
    with pytest.raises(UserError, match="zero-shot holds a run that was validated on other valida"):
        prepare(plan, made, Console(quiet=True))
    with pytest.raises(UserError, match="zero-shot holds a run that was validated on other valida"):
        running.measure_finished(wanted, only=_finish(folder))
    # changed while the workers ran
    later = Ready([], [], ready.examples, "stamp", {**ready.splits, "validation": "other"})
    failed = measure(made[:1], {"commongen": later})
    assert "was validated on other validation" in failed["commongen/zero-shot"]
    for record in ("", '{"kind": "start"}\n'):  # nothing yet, or of a version that noted nothing
        (folder / "record.jsonl").write_text(record)
        prepare(plan, made, Console(quiet=True))


def _finish(folder: Path) -> Any:
    with open(folder / "record.jsonl", "a") as f:
        f.write('{"kind": "end"}\n')
    return lambda cell: True


def test_completions_are_of_the_prompts(tmp_path: Path) -> None:
    s = imdb(tmp_path)
    rows = examples(s)
    whole, cut = rows.prompts, [str(p) for p in given(s)]
    file, calls = Path("samples.jsonl"), []

    def again() -> Any:
        calls.append(1)
        return given_again(s, rows)

    check_prompts(file, whole, whole, again)
    assert not calls  # no tokenizer is loaded where no prompt was cut
    assert again() == cut != whole
    check_prompts(file, cut, whole, again)
    check_prompts(file, [p.replace(" ", "") for p in cut], whole, again)
    at = next(i for i, p in enumerate(cut) if p != whole[i])
    other = [f"{p} more" if i == at else p for i, p in enumerate(cut)]
    with pytest.raises(
        UserError, match=rf"l: the completion of test prompt {at + 1} is of another"
    ):
        check_prompts(file, other, whole, again)
    assert given_again(replace(s, model=replace(s.model, path="/nowhere")), rows) is None
    assert given_again(replace(s, data=replace(s.data, max_prompt_tokens=None)), rows) is None
    whole_only = replace(s, data=replace(s.data, too_long="error"))
    assert given_again(whole_only, rows) == whole


def test_a_file_that_changed_while_others_ran(tmp_path: Path) -> None:
    """The run had read it; references of other prompts are not taken for its own."""
    plan = plan_of(asked(tmp_path, {}))
    made = jobs(plan)[:1]
    folder = made[0][1].folder
    folder.mkdir(parents=True)
    lines = [
        {"split": "test", "row": i, "update": 0, "policy": "exported", "prompt": p,
         "completion": "x"}
        for i, p in enumerate(["one dog", "two cats"])
    ]  # fmt: skip
    (folder / "samples.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    (folder / "record.jsonl").write_text('{"kind": "end"}\n')

    def failed(*prompts: str) -> dict[str, str]:
        columns = {"prompt": list(prompts), "reference": ["a", "b"]}
        rows = Examples(list(prompts), [["a"], ["b"]], columns, "e")
        return measure(made, {"commongen": Ready([], [], rows, "stamp")})

    assert failed("one dog", "two cats") == {}
    (folder / "scores.json").unlink()
    found = failed("one dog", "two dogs")["commongen/zero-shot"]
    assert 'test prompt 2 is of another prompt ("two cats", and not "two dogs")' in found
    assert not (folder / "scores.json").exists()
