"""The IMDB runs with engine `graph`: what they are told, and pairs with the first runs, on
synthetic folders with numbers by hand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import imdb_first, imdb_graph
from benchmarks.check import problems
from benchmarks.collect_imdb import flat, opened
from benchmarks.collect_imdb_graph import NAME, TEST, collect, pairs, seconds
from benchmarks.measuring import PAGE
from benchmarks.render import main as render
from tests.unit.benchmarks.test_collect_imdb import config, on_test, point, write
from tether.config.errors import UserError
from tether.config.settings import dump
from tether.config.text_values import read_yaml, write_yaml
from tether.records import line
from tether.reports.runs import find_runs, read_run
from tether.studies import compare

ROOT = Path(__file__).resolve().parents[3]
CARDS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
PLACES = ["--model", "m", "--train", "/d/train.parquet", "--test", "/d/test.parquet", "--out", "o"]
TOLD = {
    "engine.kind": "graph",
    "model.capture": True,
    "batch.old_logprobs": "sampled",
    "evaluation.drift_every": 0,
}


def driver(root: Path, *words: str) -> Any:
    return imdb_graph.parser().parse_args([*PLACES, "--root", str(root), *words])


def jobs(study: compare.Study) -> dict[str, dict[str, Any]]:
    return {j.name: flat(dump(j.settings)) for j in compare.plan(study)}


def test_the_settings_differ_where_they_should_and_nowhere_else(tmp_path: Path) -> None:
    args = driver(tmp_path)
    assert args.coefs == [0.03] and (args.seeds, args.per_device) == (3, 3)
    new = jobs(imdb_graph.plan(args, tmp_path, 4e-5))
    old = jobs(imdb_first.plan(args, tmp_path, 4e-5))
    assert sorted(new) == sorted(imdb_graph.every_row())
    for name, told in new.items():
        first = old[name.replace("-0.03", "")]
        differ = {k for k in told | first if told.get(k) != first.get(k)}
        own = {"engine.cache", "engine.compile", "engine.capture"}  # of one engine or the other
        places = {"name", "root", "method"} & differ
        assert differ - own - places == set(TOLD)
        assert TOLD.items() <= told.items()
        assert told["batch.prompts"] // told["algorithm.minibatches"] == told["batch.microbatch"]


def test_the_runs_are_those_of_the_committed_records(tmp_path: Path) -> None:
    """Defaults that have changed since the first study would be found here."""
    args = driver(tmp_path, "--domain", "/d/valid.txt", "--coefs", ".003", ".01", ".03", ".1")
    after = []
    for job in compare.plan(imdb_graph.plan(args, tmp_path, 4e-5)):
        folder = tmp_path / "graph" / job.name
        folder.mkdir(parents=True)
        (folder / "record.jsonl").write_text(line("start", seed=job.seed, method=job.method) + "\n")
        write_yaml(folder / "config.yaml", dump(job.settings))
        after.append(read_run(folder))
    with opened(ROOT / "benchmarks" / "records" / "imdb_first.tgz") as records:
        found = pairs(find_runs([records / "study"])[0], after)
        for pair in found:
            assert {k for k in pair.differing() if not k.startswith("engine.")} == set(TOLD) - {
                "engine.kind"
            }
            assert seconds(pair.before)["whole_s"] > 100
    assert len({p.before.name for p in found}) == 18


def test_all_six_settings_have_names_that_do_not_depend_on_each_other(tmp_path: Path) -> None:
    everything = driver(tmp_path, "--coefs", ".003", ".01", ".03", ".1", "--seeds", "1")
    names = set(jobs(imdb_graph.plan(everything, tmp_path, 4e-5)))
    assert len(names) == 6
    assert {n for n in imdb_graph.every_row() if n.endswith("seed0")} <= names


def test_the_driver_takes_the_learning_rate_of_the_pilot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pilot.json").write_text('{"lr": 0.0125}')
    seen: dict[str, Any] = {}
    monkeypatch.setattr(imdb_graph, "run_study", lambda study, **kw: seen.update(kw, study=study))
    monkeypatch.setattr(imdb_graph, "pack", lambda root, out: seen.update(packed=root))
    words = ["x", *PLACES[:-1], str(tmp_path / "out"), "--root", str(tmp_path), "--gpus", "2"]
    monkeypatch.setattr(sys, "argv", words)
    imdb_graph.main()
    assert {j["algorithm.lr"] for j in jobs(seen["study"]).values()} == {0.0125}
    assert (seen["workers"], seen["per_device"], seen["packed"]) == (6, 3, tmp_path)
    assert seen["study"].folder == tmp_path / "graph"


def timing(folder: Path, scale: float) -> None:
    """A slow first update, then seconds whose medians are 2, 1, 3 and 7, times `scale`."""
    updates = [(9.0, 9.0, 9.0), (2.0, 1.0, 3.0), (1.0, 0.5, 2.0), (3.0, 2.0, 4.0)]
    lines: list[dict[str, Any]] = [{"update": 0, "side": "", "evaluation_seconds": 10.0 * scale}]
    for u, phases in enumerate(updates, 1):
        spent = dict(zip(("rollout", "scoring", "learning"), phases, strict=True))
        spent = {k: v * scale for k, v in (spent | {"reward_wait": 1.0}).items()}
        lines.append({"update": u, "agent": "agent", "seconds": spent, "peak_bytes": 0})
    lines.append({"update": 4, "side": "", "evaluation_seconds": 5.0 * scale})
    (folder / "timing.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))


def run(folder: Path, mapping: dict[str, Any], side: int, *, base: str = "abc", **kw: Any) -> None:
    """Updates to 4: reward .8 and drift 6 before, .75 and 6.5 after; on test prompts .1 less."""
    reward, nats = ((0.8, 6.0), (0.75, 6.5))[side]
    points = [point(0, 0.0, 0.5 + 0.01 * side), point(2, 1.0 + side, 0.6), point(4, nats, reward),
              on_test(4, nats, reward - 0.1, "final")]  # fmt: skip
    write(folder, mapping, points, **kw)
    lines = (folder / "record.jsonl").read_text().splitlines()
    errors = iter((0.01, 0.03, None, 0.02) if side else (0.5, 0.5, 0.5, 0.5))
    for i, text in enumerate(lines):
        if json.loads(text)["kind"] == "update":
            error = next(errors)
            metrics = {} if error is None else {"engine/logprob_error.mean": error}
            update = json.loads(text)["update"]
            lines[i] = line("update", agent="agent", update=update, metrics=metrics)
    (folder / "record.jsonl").write_text("\n".join(lines) + "\n")
    versions = {"torch": "2.11", "python": "3.12", "transformers": "5.17", "tether-rl": None}
    facts = {"versions": versions, "device": CARDS[side], "initial_weights": base}
    (folder / "environment.json").write_text(json.dumps(facts))
    timing(folder, (1.0, 0.25)[side])


SETTINGS = {
    "ppo": ("imdb-ppo", "PPO", []),
    "ppo-kl-0.03": ("imdb-ppo-kl", "PPO + KL 0.03", ["--tethers.kl.coef", ".03"]),
    "ppo-elastic-reset": ("imdb-elastic-reset", "PPO + Elastic Reset", []),
}


@pytest.fixture
def records(tmp_path: Path) -> Path:
    for seed in (0, 1):
        for name, (recipe, method, words) in SETTINGS.items():
            first, folder = method.removesuffix(" 0.03"), f"{name}-seed{seed}"
            run(tmp_path / "study" / folder, config(recipe, first, seed, *words), 0)
            told = [*words, *imdb_graph.quick()]
            run(tmp_path / "graph" / folder, config(recipe, method, seed, *told), 1)
    return tmp_path


def gathered(records: Path) -> dict[str, Any]:
    return collect(
        records, records, date="2026-01-02", commit="0123abc", before_commit="4567def"
    )  # fmt: skip


def row(records: Path, name: str = "ppo-seed0") -> dict[str, Any]:
    (found,) = (r for r in gathered(records)["rows"] if r["row"] == name)
    return found


def test_one_row_for_each_setting_and_seed_in_the_order_of_the_first_study(records: Path) -> None:
    found = gathered(records)["rows"]
    assert [r["row"] for r in found] == [f"{n}-seed{s}" for n in SETTINGS for s in (0, 1)]
    assert [r["seeds"] for r in found] == [[0], [1]] * 3
    assert found[2]["method"] == "PPO + KL" and found[2]["setting"] == "coefficient 0.03"


def test_reward_and_drift_side_by_side(records: Path) -> None:
    r = row(records)
    assert (r["update"], r["reward_before"], r["reward_after"]) == (4, 0.8, 0.75)
    assert r["reward_difference"] == pytest.approx(-0.05)
    assert (r["drift_before"], r["drift_after"], r["drift_difference"]) == (6.0, 6.5, 0.5)
    assert r["reward_test_before"] == pytest.approx(0.7)
    assert r["reward_test_after"] == pytest.approx(0.65)
    assert r["drift_test_difference"] == 0.5 and r["failed"] == ""


def test_seconds_of_updates_and_of_whole_runs(records: Path) -> None:
    r = row(records)
    assert [r[f"{p}_s_before"] for p in ("rollout", "scoring", "learning")] == [2.0, 1.0, 3.0]
    assert [r[f"{p}_s_after"] for p in ("rollout", "scoring", "learning")] == [0.5, 0.25, 0.75]
    # later updates take 7, 4.5 and 10 seconds, the wait for rewards included; the first one 28
    assert (r["update_s_before"], r["update_s_after"], r["update_s_ratio"]) == (7.0, 1.75, 4.0)
    assert r["spread_before_s"] == [4.5, 5.75, 8.5, 10.0]
    assert r["spread_s"] == [x / 4 for x in r["spread_before_s"]]
    assert (r["first_s_before"], r["first_s_after"]) == (28.0, 7.0)
    assert (r["evaluations_s_before"], r["whole_s_before"]) == (15.0, 28.0 + 21.5 + 15.0)
    assert r["whole_s_ratio"] == 4.0
    assert (r["card_before"], r["card_after"], r["card"]) == (*CARDS, CARDS[1])


def test_log_prob_error_is_the_mean_over_the_updates_that_measured_it(records: Path) -> None:
    r = row(records)
    assert r["logprob_error_before"] == 0.5
    assert r["logprob_error_after"] == pytest.approx(0.02)


def test_an_unfinished_run_is_compared_where_both_were_evaluated(records: Path) -> None:
    file = records / "graph" / "ppo-seed1" / "record.jsonl"
    lines = [json.loads(x) for x in file.read_text().splitlines()]
    kept = [x for x in lines if x["kind"] != "end" and x.get("update", 0) < 4]
    file.write_text("".join(json.dumps(x) + "\n" for x in kept))
    r = row(records, "ppo-seed1")
    assert (r["update"], r["reward_before"], r["reward_after"]) == (2, 0.6, 0.6)
    assert r["drift_difference"] == 1.0 and r["reward_test_difference"] is None
    assert r["failed"] == "after: not finished"
    assert r["whole_s_after"] is None and r["whole_s_ratio"] is None and r["update_s_ratio"] == 4.0


def test_a_run_without_seconds_has_none(records: Path) -> None:
    folder = records / "study" / "ppo-seed0"
    (folder / "timing.jsonl").unlink()
    assert set(seconds(read_run(folder)).values()) == {None}
    assert row(records)["update_s_ratio"] is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (("updates",), 4, "ppo-seed0: updates is 4 and was 40 in ppo-seed0: not the same run"),
        (("algorithm", "lr"), 1.0, "algorithm.lr is 1.0 and was 2e-05"),
        (("sampling", "temperature"), 0.5, "sampling.temperature is 0.5"),
        (("data", "validation_rows"), 8, "data.validation_rows is 8 and was 1536"),
        (("seed",), 7, "no run with no tether and seed 7"),
    ],
)
def test_what_is_no_pair_is_refused(
    records: Path, key: tuple[str, ...], value: Any, message: str
) -> None:
    folder = records / "graph" / "ppo-seed0"
    mapping = read_yaml(folder / "config.yaml")
    inner = mapping
    for k in key[:-1]:
        inner = inner[k]
    inner[key[-1]] = value
    write_yaml(folder / "config.yaml", mapping)
    if key == ("seed",):
        text = (folder / "record.jsonl").read_text()
        (folder / "record.jsonl").write_text(text.replace('"seed": 0', '"seed": 7'))
    with pytest.raises(UserError, match=re.escape(message)):
        gathered(records)


def test_other_places_are_no_difference_but_a_missing_domain_is_told(records: Path) -> None:
    for side, place in (("study", "/a/text.txt"), ("graph", "/b/text.txt.gz")):
        for folder in (records / side).iterdir():
            mapping = read_yaml(folder / "config.yaml")
            mapping["evaluation"]["domains"] = {"wikitext": place}
            mapping["data"]["path"] = f"{place}.parquet"
            write_yaml(folder / "config.yaml", mapping)
    assert not re.search("domains|data", gathered(records)["notes"][0])
    mapping["evaluation"]["domains"] = {}
    write_yaml(folder / "config.yaml", mapping)
    assert "evaluation.domains.wikitext text.txt -> null" in gathered(records)["notes"][0]


def test_notes_say_what_differs_and_what_this_cannot_show(records: Path) -> None:
    text = " ".join(gathered(records)["notes"])
    for key, value in TOLD.items():
        told = value if isinstance(value, str) else json.dumps(value)
        assert re.search(rf"{re.escape(key)} \w+ -> {told}[;.]", text), key
    assert "at commit 4567def" in text and "2 seeds cannot show equality" in text
    assert "The initial weights are the same" in text
    assert "0.500 before, 0.510 after" in text
    assert "Another card than before: ppo-seed0, ppo-seed1, " in text
    facts = records / "graph" / "ppo-seed1" / "environment.json"
    facts.write_text(facts.read_text().replace('"abc"', '"def"'))
    assert "The initial weights are not the same" in " ".join(gathered(records)["notes"])


def test_the_chi_square_test_that_is_named_exists() -> None:
    file, name = re.findall(r"(\S+\.py) -k (\w+)", TEST)[0]
    assert re.search(rf"def test_\w*{name}\w*", (ROOT / file).read_text())


def test_the_check_accepts_the_file_and_refuses_one_without_seconds(
    records: Path, tmp_path: Path
) -> None:
    root = tmp_path / "repository"
    (root / "docs").mkdir(parents=True)
    places = "".join(f"<!-- generated: {n} -->\n<!-- end -->\n" for n in ("goals", NAME))
    (root / PAGE).write_text(places)
    out = root / "benchmarks" / "results" / f"{NAME}.json"
    code = (
        "import sys; from benchmarks.collect_imdb_graph import main;"
        "main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    )
    words = [sys.executable, "-c", code, str(records), "--before", str(records),
             "--date", "2026-01-02", "--commit", "0123abc", "--out", str(out)]  # fmt: skip
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert render(["--root", str(root)]) == 0
    assert list(problems(root)) == []
    text = (root / PAGE).read_text()
    assert "| PPO | no tether | 4 | 0.800 | 0.750 | -0.050 | 6.000 | 6.500 | 0.500 | 0 |" in text
    assert str(records) not in text and "/data" not in text
    found = json.loads(out.read_text())
    found["rows"][0]["spread_s"] = None
    out.write_text(json.dumps(found))
    assert any("ppo-seed0: spread_s must be smallest" in p for p in problems(root))
