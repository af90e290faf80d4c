"""Pairs from two models: who wins, with which noise, and what people write."""

from __future__ import annotations

import csv
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from tests.models_for_tests import byte_tokenizer
from tests.runs_for_tests import make_world, quiet, run, settings
from tether.cli.main import main
from tether.config.errors import UserError
from tether.config.settings import parse
from tether.studies.pairs import Sampling, collect
from tether.studies.raters import Candidate, form_texts, judged, key_of, rater, read_form

HERE = Path(__file__)


def words(completions: list[str], **columns: Any) -> list[float]:
    """A reward of these tests: number of `z`."""
    return [float(c.count("z")) for c in completions]


def nan(completions: list[str], **columns: Any) -> list[float]:
    return [math.nan] * len(completions)


def short(completions: list[str], **columns: Any) -> list[float]:
    return [1.0]


def boom(completions: list[str], **columns: Any) -> list[float]:
    raise KeyError("x")


def late(completions: list[str], **columns: Any) -> list[float]:
    """Fails on what was sampled alone."""
    if len(completions) > 2:
        raise KeyError("late")
    return [0.0] * len(completions)


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


@pytest.mark.parametrize(
    ("raters", "which", "message"),
    [
        (["ok=length", f"bad={HERE}:nan"], None, "--rater bad, tried on made-up completions"),
        ([f"bad={HERE}:short"], None, "--rater bad, tried on made-up completions"),
        ([f"bad={HERE}:boom"], None, "--rater bad, tried on .*KeyError"),
        (["ok=length"], f"{HERE}:short", "--filter, tried on made-up completions"),
        (["ok={kind: metric, metric: rouge_1}"], None, "references"),
    ],
)
def test_a_broken_rater_is_found_before_sampling(
    raters: list[str], which: str | None, message: str, world: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def generate(*given: Any, **named: Any) -> Any:
        raise AssertionError("sampled")

    monkeypatch.setattr("tether.studies.pairs.generate", generate)
    model = str(world / "model")
    chosen = Sampling(a=model, b=model, data=str(world / "prompts.jsonl"), prompts=4, filter=which)
    with pytest.raises(UserError, match=message) as e:
        collect(chosen, out=tmp_path / "x.jsonl", raters=raters, say=quiet)
    assert "\n" not in str(e.value) and not list(tmp_path.iterdir())


def test_what_fails_after_sampling_loses_nothing(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The completions of each side are kept as they come; the next call samples what is missing."""
    written = [[[f"{side}{i}"] for i in range(4)] for side in "ab"]
    answers: list[Any] = [written[0], RuntimeError("out of memory"), written[1]]
    calls = []

    def generate(source: str, *given: Any, **named: Any) -> Any:
        calls.append(source)
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("tether.studies.pairs.generate", generate)
    model, out = str(world / "model"), tmp_path / "x.jsonl"
    samples = tmp_path / "x.jsonl.samples.json"
    asked: dict[str, Any] = {"a": model, "b": model, "data": str(world / "prompts.jsonl")}
    chosen = Sampling(**asked, prompts=4)
    with pytest.raises(RuntimeError, match="out of memory"):
        collect(chosen, out=out, raters=["n=length"], say=quiet)
    with pytest.raises(UserError, match=r"KeyError.*the completions are kept in .*samples\.json"):
        collect(chosen, out=out, raters=[f"n={HERE}:late"], say=quiet)
    assert samples.is_file() and not out.exists()
    with pytest.raises(UserError, match="completions of an earlier call with other settings"):
        collect(Sampling(**asked, prompts=3), out=out, raters=["n=length"], say=quiet)
    weights = world / "model" / "config.json"
    then = weights.stat()
    os.utime(weights, ns=(then.st_atime_ns, then.st_mtime_ns + 10**12))
    with pytest.raises(UserError, match="other settings, prompts or weights: remove it"):
        collect(chosen, out=out, raters=["n=length"], say=quiet)
    os.utime(weights, ns=(then.st_atime_ns, then.st_mtime_ns))
    (tmp_path / "x.jsonl.facts.json").write_text("{}")  # of a result that was not written
    said: list[str] = []
    facts = collect(chosen, out=out, raters=["n=length"], noise=2.0, say=said.append)
    assert facts["pairs"] == 4 and len(calls) == 3 and "going on with" in said[0]
    rows = [json.loads(x) for x in out.read_text().splitlines()]
    assert {r["chosen"][0] for r in rows} <= {"a", "b"} and not samples.exists()
    samples.write_text("[")
    with pytest.raises(UserError, match="exists"):
        collect(chosen, out=out, raters=["n=length"], say=quiet)
    out.unlink()
    (tmp_path / "x.jsonl.facts.json").unlink()
    with pytest.raises(UserError, match="remove it to sample anew"):
        collect(chosen, out=out, raters=["n=length"], say=quiet)


def test_nothing_is_left_where_nothing_was_sampled(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def generate(*given: Any, **named: Any) -> Any:
        raise RuntimeError("no room")

    monkeypatch.setattr("tether.studies.pairs.generate", generate)
    model = str(world / "model")
    chosen = Sampling(a=model, b=model, data=str(world / "prompts.jsonl"), prompts=4)
    with pytest.raises(RuntimeError):
        collect(chosen, out=tmp_path / "x.jsonl", raters=["n=length"], say=quiet)
    assert not list(tmp_path.iterdir())
    key_of(tmp_path / "f.csv").write_text("{}")
    with pytest.raises(UserError, match=r"key\.json exists"):
        collect(chosen, form=tmp_path / "f.csv", say=quiet)


def form_of(folder: Path, n: int = 4, ending: str = "csv") -> tuple[Path, list[dict[str, str]]]:
    form = folder / f"form.{ending}"
    for path, text in form_texts(candidates(n), form, 0).items():
        path.write_text(text)
    rows = [{"pair": str(i), "choice": "left", "rater": "ann"} for i in range(n)]
    return form, rows


def fill(form: Path, rows: list[dict[str, str]], delimiter: str = ",") -> None:
    with open(form, "w", newline="", encoding="utf-8") as f:
        writer = csv.DictWriter(f, ["pair", "choice", "rater"], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def test_a_pair_counts_once_a_rater(tmp_path: Path) -> None:
    form, rows = form_of(tmp_path)
    for again in ("left", "right", "tie"):
        fill(form, [*rows, {**rows[1], "choice": again}])
        with pytest.raises(UserError, match=r"line 6 answers pair '1' a second time \(by 'ann', "
                                            r"first in .*line 3\): remove one, or"):  # fmt: skip
            read_form(form)
    fill(form, [*rows, {**rows[1], "rater": "bob"}, {**rows[1], "choice": ""}])
    read, counts = read_form(form)
    assert len(read) == 5 and counts == {"ties": 0, "unanswered": 0}


def test_pairs_whose_rows_are_gone_are_unanswered(tmp_path: Path) -> None:
    form, rows = form_of(tmp_path, 12)
    rows[1]["choice"] = "tie"
    rows[2]["choice"] = ""
    fill(form, rows[:3])
    read, counts = read_form(form)
    assert len(read) == 1 and counts == {"ties": 1, "unanswered": 10}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_form_that_a_spreadsheet_saved(delimiter: str, encoding: str, tmp_path: Path) -> None:
    form, rows = form_of(tmp_path)
    fill(form, rows, delimiter)
    blank = delimiter * 2 + "\r\n"
    form.write_bytes((form.read_bytes().decode() + blank + "\r\n" + blank).encode(encoding))
    read, counts = read_form(form)
    assert len(read) == 4 and counts == {"ties": 0, "unanswered": 0}


def test_a_form_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    form, rows = form_of(tmp_path)
    fill(form, [{**rows[0], "pair": "05.01.2000"}])
    with pytest.raises(UserError, match=r"line 2: there is no pair '05.01.2000'.*column pair as t"):
        read_form(form)
    form.write_bytes(b"PK\x03\x04")
    with pytest.raises(UserError, match="is a workbook, not CSV; save it again as CSV"):
        read_form(form)
    form.write_text("pair,answer\n")
    with pytest.raises(UserError, match="has no column 'choice'"):
        read_form(form)
    for damaged in ("[1]", "{", '{"0": {"left": 1}}'):
        key_of(form).write_text(damaged)
        with pytest.raises(UserError, match=r"key\.json is damaged"):
            read_form(form)


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
        ([model, model, *data, "--out", out, "--rater", "x=rouge_1"],
         "in --rater x; it is a metric, metrics are rewards too: {kind: metric, metric: rouge_1}"),
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
