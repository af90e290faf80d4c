"""Studies that are made: balanced, blinded, a function of the seed; sources; mistakes."""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.unit.human_study.studies import METHODS, completions, read, study
from tests.unit.reports.folders import point, sample, write_run
from tether.cli.human_study import prepare as command
from tether.config.errors import UserError
from tether.studies.human.completions import read_completions, shared_prompts
from tether.studies.human.prepare import Design, prepare


def shown(key: dict[str, Any]) -> dict[str, list[list[str]]]:
    """form -> texts of its units, without checks."""
    return {f: [u["texts"] for u in us if "check" not in u] for f, us in key["forms"].items()}


def test_every_text_gets_its_raters_and_every_form_its_share(tmp_path: Path) -> None:
    done = study(tmp_path, prompts=20, per_form=13, raters=3)
    key = read(done)
    assert len(key["forms"]) == 15 and done.per_form == (12, 12)  # 60 texts in 5 forms, 3 times
    method = {t: v["method"] for t, v in key["texts"].items()}
    seen = Counter(text for units in shown(key).values() for (text,) in units)
    assert set(seen) == set(method) and set(seen.values()) == {3}
    for units in shown(key).values():
        assert len({t for (t,) in units}) == len(units)
        assert len({key["texts"][t]["item"] for (t,) in units}) == len(units)  # no prompt twice
        assert Counter(method[t] for (t,) in units) == dict.fromkeys(METHODS, 4)


def test_pairs_are_shown_on_both_sides(tmp_path: Path) -> None:
    done = study(tmp_path, kind="pairwise", prompts=24, per_form=24, raters=2)
    key = read(done)
    method = {t: v["method"] for t, v in key["texts"].items()}
    seen: Counter[tuple[str, ...]] = Counter()
    for units in shown(key).values():
        sides = Counter((method[a], method[b]) for a, b in units)
        for a, b in combinations(METHODS, 2):
            assert sides[a, b] + sides[b, a] == 8 and abs(sides[a, b] - sides[b, a]) <= 1
        seen.update(tuple(sorted(u)) for u in units)
    assert len(seen) == 24 * 3 and set(seen.values()) == {2}


@pytest.mark.parametrize("seed", range(4))
def test_sides_are_even_over_the_whole_study(seed: int, tmp_path: Path) -> None:
    """Odd numbers of each two methods in a form: what is left over is evened out between forms."""
    design: dict[str, Any] = {"kind": "pairwise", "per_form": 9, "raters": 2, "seed": seed}
    key = read(study(tmp_path, prompts=27, **design))
    sides: Counter[tuple[str, str]] = Counter()
    for units in shown(key).values():
        mine = Counter((key["texts"][a]["method"], key["texts"][b]["method"]) for a, b in units)
        assert all(mine[a, b] + mine[b, a] == 3 for a, b in combinations(METHODS, 2))
        assert all(abs(mine[a, b] - mine[b, a]) == 1 for a, b in combinations(METHODS, 2))
        sides += mine
    assert all(sides[a, b] == sides[b, a] == 27 for a, b in combinations(METHODS, 2))


@pytest.mark.parametrize(("per_form", "twice"), [(10, False), (20, True)])
def test_a_prompt_stands_once_in_a_form_of_pairs_up_to_the_number_of_prompts(
    per_form: int, twice: bool, tmp_path: Path
) -> None:
    """4 methods are 6 pairs: 6 forms a round have every prompt once, 3 forms twice."""
    names = ("a", "b", "c", "d")
    key = read(study(tmp_path, names, 10, kind="pairwise", per_form=per_form, raters=1))
    most = [
        max(Counter(key["texts"][a]["item"] for a, _ in units).values())
        for units in shown(key).values()
    ]
    assert (max(most) > 1) == twice


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--kind pairwise --points 5", "--points would have no effect: pairs are not rated on a"),
        (
            "--kind pairwise --ends low,high",
            "--ends would have no effect: .* or give --kind likert",
        ),
        ("--no-equal", "--no-equal would have no effect: it is about pairs; leave it out, or give"),
    ],
)
def test_options_of_the_other_kind_are_refused(words: str, message: str, tmp_path: Path) -> None:
    sources = completions(tmp_path)
    with pytest.raises(UserError, match=message):
        command([*sources, "--out", str(tmp_path / "out"), *words.split()])
    assert not (tmp_path / "out").exists()
    assert command([*sources, "--out", str(tmp_path / "out"), "--kind", "pairwise"]) == 0


def test_checks_stand_apart_and_never_first(tmp_path: Path) -> None:
    done = study(tmp_path, checks=3)
    for units in read(done)["forms"].values():
        places = [i for i, u in enumerate(units) if "check" in u]
        assert len(places) == 3 and places[0] > 0
        for place in places:
            answer = units[place]["check"]["answer"]
            assert answer in "12345"
            assert f"Please answer {answer} " in units[place]["check"]["texts"][0]


def test_equal_studies_are_equal_files(tmp_path: Path) -> None:
    """The sources stand in other folders: no path is in a study."""
    a, b, c = (
        study(tmp_path / name, seed=seed, kind="pairwise")
        for name, seed in (("a", 5), ("b", 5), ("c", 6))
    )
    assert a.key.read_bytes() == b.key.read_bytes()
    for x, y in zip(a.forms, b.forms, strict=True):
        assert x.name == y.name and x.read_bytes() == y.read_bytes()
    assert read(a)["study"] != read(c)["study"]
    assert a.forms[0].read_bytes() != c.forms[0].read_bytes()


def test_the_key_is_apart_and_ids_have_no_order(tmp_path: Path) -> None:
    done = study(tmp_path)
    assert {p.suffix for p in done.forms[0].parent.iterdir()} == {".html"}
    assert done.key.parent == done.forms[0].parent.parent
    key = read(done)
    ids = [u["id"] for us in key["forms"].values() for u in us]
    assert len(set(ids)) == len(ids) and ids != sorted(ids)
    assert list(key["texts"]) != sorted(key["texts"])
    assert all(t not in f.read_text(encoding="utf-8") for t in key["texts"] for f in done.forms)


def test_identical_texts_are_not_compared(tmp_path: Path) -> None:
    for name, texts in {"a": "xyz", "b": "xqz", "c": "ppp"}.items():
        rows = [{"prompt": f"p{i}", "completion": t} for i, t in enumerate(texts)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pool = read_completions([str(tmp_path / f"{n}.jsonl") for n in "abc"])
    done = prepare(pool, Design(task="", kind="pairwise"), tmp_path / "out")
    assert done.units == 9 - 2 and "2 pairs of identical texts" in " ".join(done.notes)
    same = {"a": {"p": pool["a"]["p0"]}, "b": {"p": pool["a"]["p0"]}}
    with pytest.raises(UserError, match="nothing to compare"):
        prepare(same, Design(task="", kind="pairwise"), tmp_path / "none")


def test_from_runs(tmp_path: Path) -> None:
    """The last update of validation samples, @0 for the initial model, two seeds pooled."""
    for seed in (0, 1):
        rows = [sample(u, r, f"seed {seed} update {u}") for u in (0, 4) for r in range(3)]
        rows.append(sample(4, 0, "the other side", side="before"))
        rows.append(sample(4, 0, "another split", split="test"))
        write_run(tmp_path / f"r{seed}", "PPO", seed, [point(0, 0, 0.5)], samples=rows)
    pool = read_completions(
        [str(tmp_path / "r0"), str(tmp_path / "r1"), f"start={tmp_path / 'r0'}@0"]
    )
    assert list(pool) == ["PPO", "start"]
    assert shared_prompts(pool) == ["The film 0", "The film 1", "The film 2"]
    assert [c.text for c in pool["PPO"]["The film 0"]] == ["seed 0 update 4", "seed 1 update 4"]
    (start,) = pool["start"]["The film 1"]
    assert start.text == "seed 0 update 0" and start.scores == {"score": 0.5, "sentiment": 0.5}
    key = read(prepare(pool, Design(task="film"), tmp_path / "out"))
    drawn = {t["text"] for t in key["texts"].values() if t["method"] == "PPO"}
    assert drawn <= {"seed 0 update 4", "seed 1 update 4"}


def test_a_masked_policy_is_shown_as_exported(tmp_path: Path) -> None:
    """Its run has both policies' samples of the same prompts; the last update of the masked one
    alone is no update of the exported one."""
    rows = [
        sample(u, r, f"{policy} {u}", policy=policy)
        for u in (0, 4)
        for r in range(2)
        for policy in ("exported", "constrained")
    ]
    rows.append(sample(6, 0, "constrained 6", policy="constrained"))
    write_run(tmp_path / "nlpo", "NLPO", 0, [point(0, 0, 0.5)], samples=rows)
    write_run(tmp_path / "ppo", "PPO", 0, [point(0, 0, 0.5)],
              samples=[sample(4, r, "plain", policy="exported") for r in range(2)])  # fmt: skip
    pool = read_completions([str(tmp_path / "nlpo"), str(tmp_path / "ppo")])
    texts = {m: [c.text for cs in of.values() for c in cs] for m, of in pool.items()}
    assert texts == {"NLPO": ["exported 4"] * 2, "PPO": ["plain"] * 2}
    done = prepare(pool, Design(task="", checks=0), tmp_path / "out")
    said = [n for n in done.notes if "mask" in n]
    assert said == ["A masked policy is shown as exported, without its mask: NLPO."]
    only = "\n".join(json.dumps(r) for r in rows if r["policy"] == "constrained")
    (tmp_path / "masked.jsonl").write_text(only)
    with pytest.raises(UserError, match="has no validation samples of the policy as exported"):
        read_completions([str(tmp_path / "masked.jsonl")])


def test_samples_of_several_agents_are_refused(tmp_path: Path) -> None:
    rows = [sample(4, r, f"of {a}", agent=a) for r in range(2) for a in ("guesser", "asker")]
    run = write_run(tmp_path / "two", "PPO", 0, [point(0, 0, 0.5)], samples=rows)
    with pytest.raises(UserError, match=r"samples of 2 agents \(asker, guesser\), .* one agent to"):
        read_completions([str(run)])
    one = tmp_path / "asker.jsonl"
    one.write_text("\n".join(json.dumps(r) for r in rows if r["agent"] == "asker"))
    pool = read_completions([f"asker={one}"])
    assert [c.text for cs in pool["asker"].values() for c in cs] == ["of asker"] * 2


def test_the_last_line_of_a_run_that_still_writes(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    file.write_text(json.dumps(sample(4, 0, "whole")) + '\n{"agent": "pol')
    (texts,) = read_completions([f"PPO={file}"])["PPO"].values()
    assert [c.text for c in texts] == ["whole"]


def test_rows_may_name_their_method_and_chats_are_shown(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hello"}]
    rows = [
        {"prompt": chat, "completion": "x \ud800", "method": "a", "scores": {"m": 1, "n": None}},
        {"prompt": chat, "completion": "", "method": "b", "scores": {"m": True}},
    ]
    file = tmp_path / "all.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    pool = read_completions([str(file)])
    assert pool["a"]["user: hello"][0].text == "x ?"
    assert pool["a"]["user: hello"][0].scores == {"m": 1.0}
    assert pool["b"]["user: hello"][0].scores == {}
    done = prepare(pool, Design(task=""), tmp_path / "out")
    assert "(no text)" in done.forms[0].read_text(encoding="utf-8")


def test_a_message_may_have_parts_or_no_content(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "it?"}]
    chat = [{"role": "user", "content": parts}, {"role": "assistant", "content": None}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": chat, "completion": "c"}))
    (prompt,) = read_completions([str(tmp_path / "a.jsonl")])["a"]
    assert prompt == "user: What is it?\nassistant: "


def test_a_judge_may_be_called_like_a_reward(tmp_path: Path) -> None:
    row = sample(4, 0, "x", scores={"score": 2.0, "kind": 3.0}, judges={"kind": 4.0, "own": 5.0})
    (tmp_path / "samples.jsonl").write_text(json.dumps(row))
    (texts,) = read_completions([f"PPO={tmp_path / 'samples.jsonl'}"])["PPO"].values()
    assert texts[0].scores == {
        "score": 0.54, "scores.score": 2.0, "kind": 3.0, "judges.kind": 4.0, "own": 5.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.jsonl"], "there is no file 'nothing.jsonl' of completions"),
        (["=a.jsonl"], "'=a.jsonl' is not METHOD=PATH"),
        (["a.jsonl@3"], "a.jsonl is not the samples of a run: it has no update 3"),
        (["bad.jsonl"], "bad.jsonl:2 is no JSON in UTF-8: Expecting"),
        (["latin.jsonl"], "latin.jsonl:1 is no JSON in UTF-8: 'utf-8' codec can't decode"),
        (["list.jsonl"], "list.jsonl:1 is not an object"),
        (["lacks.jsonl"], "lacks.jsonl:1 has no 'completion'; it has: prompt, text"),
        (["empty.jsonl"], "empty.jsonl holds no completion"),
        (["odd.jsonl"], "odd.jsonl:1: 'scores' is not a mapping"),
        (["null.jsonl"], "null.jsonl:2: 'completion' is null, which raters cannot be shown: give"),
        (["words.jsonl"], """words.jsonl:1: 'completion' is ["a"], which raters cannot be shown"""),
        (["number.jsonl"], "number.jsonl:1: 'prompt' is 5, which raters cannot be shown"),
        (["parts.jsonl"], """parts.jsonl:1: 'prompt' is [{"role": "user", "content": 5}], which"""),
        (["run.jsonl"], "run.jsonl:2: 'completion' is null, which raters cannot be shown"),
        (["samples.jsonl@7"], "samples.jsonl has no validation samples of update 7; it has: 0, 4"),
    ],
)
def test_sources_that_cannot_be_read(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    good = '{"prompt": "p", "completion": "c"}'
    files = {
        "a": good,
        "bad": f"{good}\n{{",
        "list": "[1]",
        "lacks": '{"prompt": "p", "text": "c"}',
        "empty": "\n",
        "odd": '{"prompt": "p", "completion": "c", "scores": [1]}',
        "null": f'{good}\n{{"prompt": "p", "completion": null}}',
        "words": '{"prompt": "p", "completion": ["a"]}',
        "number": '{"prompt": 5, "completion": "c"}',
        "parts": '{"prompt": [{"role": "user", "content": 5}], "completion": "c"}',
        "run": "\n".join(json.dumps(sample(0, r, t)) for r, t in enumerate(("x", None))),
        "samples": "\n".join(json.dumps(sample(u, 0, "x")) for u in (0, 4)),
    }
    for name, text in files.items():
        (tmp_path / f"{name}.jsonl").write_text(text)
    (tmp_path / "latin.jsonl").write_bytes('{"prompt": "é", "completion": ""}'.encode("latin-1"))
    with pytest.raises(UserError) as e:
        read_completions(words)
    assert str(e.value).startswith(message)


def test_methods_that_share_nothing(tmp_path: Path) -> None:
    words = completions(tmp_path, ("a", "b"), prompts=3)
    pool = read_completions(words)
    with pytest.raises(UserError, match="at least 2 methods, not a:"):
        shared_prompts({"a": pool["a"]})
    with pytest.raises(UserError, match=r"no prompt is shared by all methods \(a has 3, b has 1\)"):
        shared_prompts({"a": pool["a"], "b": {"else": pool["b"]}})


@pytest.mark.parametrize(
    ("design", "message"),
    [
        ({"items": 0}, "items must be at least 1, not 0"),
        ({"points": 1}, "points must be at least 2, not 1"),
        ({"checks": -1, "allowed": 0}, "checks must be at least 0, not -1"),
        ({"checks": 2, "allowed": 3}, r"allowed failures must be 0 to the number of checks \(2\)"),
        (
            {"per_form": 1},
            "a form of 1 text has no place for 2 attention checks, .* lower --checks",
        ),
        ({"prompts": 1, "per_form": 2}, "a form of 1 text has no place for 2 attention checks"),
    ],
)
def test_settings_out_of_range(design: dict[str, int], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        study(tmp_path, **design)
    assert not (tmp_path / "study").exists()


def test_forms_that_identical_pairs_left_too_small(tmp_path: Path) -> None:
    """Of three pairs one remains: it is no place for two checks."""
    for name, texts in {"a": "xyz", "b": "xyq"}.items():
        rows = [{"prompt": f"p{i}", "completion": t} for i, t in enumerate(texts)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pool = read_completions([str(tmp_path / f"{n}.jsonl") for n in "ab"])
    with pytest.raises(UserError, match="a form of 1 pair has no place for 2 attention checks"):
        prepare(pool, Design(task="", kind="pairwise"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    done = prepare(pool, Design(task="", kind="pairwise", checks=1, raters=1), tmp_path / "out")
    (units,) = read(done)["forms"].values()
    assert ["check" in u for u in units] == [False, True]


def test_what_needs_no_completion_is_refused_before_one_is_dealt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("dealt before the settings were checked")

    monkeypatch.setattr("tether.studies.human.prepare._texts", never)
    with pytest.raises(UserError, match="a form of 1 text"):
        study(tmp_path, per_form=1)
    monkeypatch.undo()
    monkeypatch.setattr("tether.studies.human.prepare.spread", never)
    with pytest.raises(UserError, match="a form of 1 text"):
        study(tmp_path, prompts=1, per_form=2)


def test_a_study_is_not_written_over(tmp_path: Path) -> None:
    done = study(tmp_path)
    with pytest.raises(UserError, match="already holds a study"):
        study(tmp_path)
    done.key.unlink()
    with pytest.raises(UserError, match=r"holds forms but no key.json: .* not written to its end"):
        study(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "study").write_text("")
    with pytest.raises(UserError, match="taken/study is a file; give a new folder"):
        study(tmp_path / "taken")


def test_the_key_is_written_last_and_every_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill at any file leaves no key, and nothing that is cut."""
    whole = {p.name: p.read_bytes() for p in study(tmp_path / "whole").key.parent.rglob("*.*")}
    move, moved = os.replace, 0

    def killed(source: Path, target: Path) -> None:
        nonlocal moved
        if moved == after:
            raise KeyboardInterrupt
        moved += 1
        move(source, target)

    for after in (0, 3, len(whole) - 1):
        moved = 0
        monkeypatch.setattr("tether.config.whole_file.os.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            study(tmp_path / str(after))
        monkeypatch.undo()
        there = [p for p in (tmp_path / str(after)).rglob("*") if p.suffix in (".html", ".json")]
        assert len(there) == after and "key.json" not in [p.name for p in there]
        assert all(p.read_bytes() == whole[p.name] for p in there)
