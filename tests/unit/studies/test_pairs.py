"""Pairs from two models: who wins, with which noise, and what people write."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.models_for_tests import byte_tokenizer
from tests.runs_for_tests import make_world, quiet, run, settings
from tether.cli.main import main
from tether.config.errors import UserError
from tether.config.settings import parse
from tether.studies.pairs import Sampling, collect
from tether.studies.raters import Candidate, judged, key_of, rater, read_form

HERE = Path(__file__)


def words(completions: list[str], **columns: Any) -> list[float]:
    """A reward of these tests: number of `z`."""
    return [float(c.count("z")) for c in completions]


def both(completions: list[str], concepts: list[list[str]], **columns: Any) -> list[float]:
    """The filter of the paper: a completion tries all concepts."""
    return [float(all(w in c for w in wanted)) for c, wanted in zip(completions, concepts)]  # noqa: B905


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_world(tmp_path_factory.mktemp("sampled"))
    run(settings(folder, name="done", updates=1, checkpoint={"export": True}))
    return folder


def candidates(n: int, a: str = "zz", b: str = "z") -> list[Candidate]:
    return [Candidate(str(i), "p", (a, b), ("one", "two"), {}) for i in range(n)]


def test_a_rater_without_noise_takes_the_better_one() -> None:
    r = rater(f"z={HERE}:words", 0, 0)
    rows = judged(candidates(3), [r], byte_tokenizer())
    assert [x["chosen"] for x in rows] == ["zz"] * 3
    assert rows[0]["chosen_from"] == "one" and rows[0]["rejected_from"] == "two"
    assert rows[0]["rater"] == "z"
    rows = judged(candidates(3, "z", "zz"), [r], byte_tokenizer())
    assert [x["chosen_from"] for x in rows] == ["two"] * 3


@pytest.mark.parametrize(
    ("noise", "want"), [(1 / math.log(3), 0.75), (1.0, 1 / (1 + math.exp(-1)))]
)
def test_noise_is_bradley_terrys(noise: float, want: float) -> None:
    rows = judged(candidates(4000), [rater(f"z={HERE}:words", noise, 5)], byte_tokenizer())
    share = sum(x["chosen"] == "zz" for x in rows) / len(rows)
    assert share == pytest.approx(want, abs=4 * math.sqrt(want * (1 - want) / 4000))


def test_draws_depend_on_name_and_seed_alone() -> None:
    def who(name: str, seed: int) -> list[str]:
        r = rater(f"{name}={HERE}:words", 1.0, seed)
        return [x["chosen"] for x in judged(candidates(50), [r], byte_tokenizer())]

    assert who("a", 0) == who("a", 0)
    assert who("a", 0) != who("b", 0) and who("a", 0) != who("a", 1)


def test_a_rater_in_a_mapping_has_its_own_noise() -> None:
    r = rater("long={kind: length, noise: .25, seed: 3}", 1.0, 0)
    assert (r.noise, r.seed, r.name) == (0.25, 3, "long")


def test_sampling_judging_and_training_on_it(world: Path, tmp_path: Path) -> None:
    out = tmp_path / "pairs.jsonl"
    chosen = Sampling(a=str(world / "runs" / "done"), b=str(world / "model"), prompts=10,
                      per_prompt=3, max_new_tokens=6, seed=1)  # fmt: skip
    raters = [f"z={HERE}:words", "long={kind: length, noise: .5}"]
    facts = collect(chosen, out=out, raters=raters, noise=2.0, say=quiet)
    rows = [json.loads(x) for x in out.read_text().splitlines()]
    assert len(rows) == 2 * facts["pairs"] and facts["sampled"] == 30
    assert {r["rater"] for r in rows} == {"z", "long"}
    assert {r["chosen_from"] for r in rows} <= {"done", "model"}
    assert all("reference" in r for r in rows)  # other columns come along
    again = tmp_path / "again.jsonl"
    collect(chosen, out=again, raters=raters, noise=2.0, say=quiet)
    assert again.read_bytes() == out.read_bytes()
    with pytest.raises(UserError, match="exists; choose another name"):
        collect(chosen, out=out, raters=raters, say=quiet)
    trained = run(
        parse(
            {"job": "classifier", "kind": "pairs", "name": "rm", "root": str(tmp_path),
             "threads": 1, "data": {"path": str(out), "validation_rows": 6},
             "model": {"path": str(world / "model"), "device": "cpu", "dtype": "float32"}}
        )  # type: ignore[arg-type]
    )  # fmt: skip
    tuned = run(
        settings(world, name="round-2", updates=1, root=str(tmp_path),
                 rewards={"reward": {"kind": "classifier", "path": str(trained)}},
                 checkpoint={"export": True})
    )  # fmt: skip
    second = Sampling(a=str(tuned), b=str(tuned), prompts=4, max_new_tokens=6, seed=2)
    facts = collect(second, out=tmp_path / "two.jsonl", raters=raters[:1], say=quiet)
    assert facts["pairs"] > 0  # one model, two samples
    sources = {
        r["chosen_from"] for r in map(json.loads, (tmp_path / "two.jsonl").read_text().splitlines())
    }
    assert sources <= {"round-2 (a)", "round-2 (b)"}


@pytest.mark.parametrize("which", [f"{HERE}:both", "{kind: metric, metric: coverage}"])
def test_the_filter_asks_both(
    which: str, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pair of four in which both try all concepts."""
    file = tmp_path / "concepts.jsonl"
    rows = [{"prompt": f"p{i}", "concepts": ["dog", "run"]} for i in range(4)]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    whole, part = "a dog can run", "a dog"
    written = iter([[[whole], [whole], [part], [part]], [["run, dog!"], [part], [whole], ["no"]]])
    monkeypatch.setattr("tether.studies.pairs.generate", lambda *given, **named: next(written))
    model = str(world / "model")
    chosen = Sampling(a=model, b=model, data=str(file), prompts=4, filter=which)
    facts = collect(chosen, out=tmp_path / "kept.jsonl", raters=["n={kind: length}"], say=quiet)
    (kept,) = [json.loads(x) for x in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert {kept["chosen"], kept["rejected"]} == {whole, "run, dog!"}
    assert facts["filtered_out"] == 3 and facts["pairs"] == 1


def test_nothing_is_written_where_no_pair_is_left(world: Path, tmp_path: Path) -> None:
    model, out = str(world / "model"), tmp_path / "none.jsonl"
    never = Sampling(a=model, b=model, data=str(world / "prompts.jsonl"), prompts=2,
                     max_new_tokens=8, filter=f"{HERE}:words", least=99)  # fmt: skip
    with pytest.raises(UserError, match=r"no pair is left.*filtered out 2"):
        collect(never, out=out, raters=["n={kind: length}"], say=quiet)
    assert not out.exists()


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_form_reads_back(world: Path, tmp_path: Path, ending: str) -> None:
    form = tmp_path / f"form.{ending}"
    model = str(world / "model")
    chosen = Sampling(a=model, b=model, data=str(world / "prompts.jsonl"), prompts=8,
                      max_new_tokens=12)  # fmt: skip
    collect(chosen, form=form, say=quiet)
    if ending == "csv":
        with open(form, newline="") as f:
            rows = list(csv.DictReader(f))
    else:
        rows = [json.loads(x) for x in form.read_text().splitlines()]
    assert set(rows[0]) == {"pair", "prompt", "left", "right", "choice", "rater"}
    assert "model" not in form.read_text()  # blind
    for row, answer in zip(rows, ["left", "Right ", "tie", ""] * 2, strict=False):
        row["choice"], row["rater"] = answer, "ann"
    if ending == "csv":
        with open(form, "w", newline="") as f:
            writer = csv.DictWriter(f, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    else:
        form.write_text("".join(json.dumps(r) + "\n" for r in rows))
    read, counts = read_form(form)
    assert counts == {"ties": 2, "unanswered": 2}
    assert len(read) == 4 and {r["rater"] for r in read} == {"ann"}
    by_pair = {r["pair"]: r for r in rows}
    for r in read:
        seen = by_pair[r["pair"]]
        side = seen["choice"].strip().lower()
        assert r["chosen"] == seen[side]
        assert r["rejected"] == seen["left" if side == "right" else "right"]
    key = json.loads(key_of(form).read_text())
    assert {k["left"] for k in key.values()} == {0, 1}  # both orders occur
    assert main(["reward-model", "read", str(form), "--out", str(tmp_path / "out.jsonl")]) == 0
    rows[0]["choice"] = "lift"
    form.write_text("".join(json.dumps(r) + "\n" for r in rows)) if ending == "jsonl" else None
    if ending == "jsonl":
        with pytest.raises(UserError, match="row 1: choice is 'lift'; did you mean 'left'"):
            read_form(form)


def test_bad_words_are_one_line(world: Path, tmp_path: Path, capsys: Any) -> None:
    model, out = str(world / "model"), str(tmp_path / "x.jsonl")
    data = ["--data", str(world / "prompts.jsonl")]
    unexported = run(settings(world, name="bare", updates=1))
    for given, message in (
        ([model, model, *data], "give either --out PAIRS.jsonl with --rater, or --form"),
        ([model, model, *data, "--out", out], "needs at least one --rater"),
        ([model, model, *data, "--out", out, "--rater", "x"], "must be NAME=REWARD"),
        ([model, model, *data, "--out", out, "--rater", "x=lenth"], "unknown reward 'lenth'"),
        ([model, model, *data, "--out", out, "--rater", "x={kind: length, noise: -1}"],
         "noise is -1"),
        ([model, model, "--out", out, "--rater", "x=length"], "say which prompts: --data FILE"),
        ([str(unexported), model, "--out", out, "--rater", "x=length"], "has no policy/"),
        ([model, model, *data, "--form", str(tmp_path / "f.xls")], "write .csv or .jsonl"),
        ([model, model, *data, "--out", out, "--rater", "x=length", "--rater", "x=length"],
         "two raters have one name"),
    ):  # fmt: skip
        assert main(["reward-model", "pairs", *given]) == 2
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1
    assert not Path(out).exists()
