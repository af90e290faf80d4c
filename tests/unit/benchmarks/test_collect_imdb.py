"""From run folders to the rows of the IMDB study, on synthetic folders with numbers by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.collect_imdb import collect, command, every_seed, flat, portable
from benchmarks.render import main as render
from tether.config.compose import recipe
from tether.config.layers import apply_overrides
from tether.config.settings import dump, parse
from tether.config.text_values import write_yaml
from tether.records import DRIFT, EvalPoint, line, point_line

ROOT = Path(__file__).resolve().parents[3]
WORDS = ["--model.lora.rank", "8", "--algorithm.lr", "2e-05", "--data.test", "/data/x/test.parquet",
         "--rewards.reward.path", "/mnt/runs/imdb-classifier/classifier"]  # fmt: skip


def point(update: int, nats: float, reward: float, **other: Any) -> EvalPoint:
    split = other.pop("split", "validation")
    metrics = {
        "policy/entropy_nats_per_token": 3.0,
        "human/perplexity": 20.0 + update,
        "human/perplexity.label_0": 21.0,
        "human/perplexity.label_1": 19.0,
        "human/perplexity.domain_wikitext": 40.0,
        "text/distinct_2": 0.8,
        "text/common_4gram_share": 0.1,
        "text/length_tokens": 47.0,
        "text/finished_share": 0.2,
    }
    given: dict[str, Any] = {
        "side": "", "common": split == "validation", "weights": "live", **other
    }  # fmt: skip
    return EvalPoint(
        agent="agent", update=update, policy_version=update, split=split, policy="exported",
        prompts=4, reward=reward, reward_se=0.01, drift={DRIFT: nats},
        judges={"tfidf": reward - 0.1}, metrics=metrics, **given,
    )  # fmt: skip


def config(name: str, method: str, seed: int, *more: str) -> dict[str, Any]:
    place = {"name": "x", "root": "r", "method": method, "seed": seed}
    mapping = apply_overrides(recipe(name) | place, [*WORDS, *more])
    return dump(parse(mapping))


def write(folder: Path, mapping: dict[str, Any], points: list[EvalPoint], end: bool = True) -> None:
    folder.mkdir(parents=True)
    lines = [line("start", config="c0", seed=mapping["seed"], agents=["agent"], notes={})]
    lines += [point_line(p) for p in points if p.split == "validation"]
    last = max(p.update for p in points)
    lines += [line("update", agent="agent", update=u, metrics={}) for u in range(1, last + 1)]
    lines += [point_line(p) for p in points if p.split == "test"]
    if end:
        lines.append(line("end", updates=last, counts={}, notes={}))
    (folder / "record.jsonl").write_text("\n".join(lines) + "\n")
    write_yaml(folder / "config.yaml", mapping)
    made = {"versions": {"torch": "2.13.0", "tether-rl": None}, "device": "one card"}
    (folder / "environment.json").write_text(json.dumps(made))


def on_test(update: int, nats: float, reward: float, weights: str) -> EvalPoint:
    return point(update, nats, reward, split="test", weights=weights)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    study = tmp_path / "study"
    for seed in (0, 1, 2):
        up = 0.01 * seed
        write(
            study / f"ppo-seed{seed}",
            config("imdb-ppo", "PPO", seed),
            [point(0, 0.0, 0.5), point(5, 3.0, 0.7 + up), point(10, 30.0, 0.95),
             on_test(10, 30.0, 0.94, "final"), on_test(5, 3.0, 0.69 + up, "budget:4"),
             on_test(5, 3.0, 0.69 + up, "budget:8"), on_test(0, 0.0, 0.51, "budget:1")],
        )  # fmt: skip
        for i, coef in enumerate((".003", ".1")):
            write(
                study / f"ppo-kl.{i + 1}-seed{seed}",
                config("imdb-ppo-kl", "PPO + KL", seed, "--tethers.kl.coef", coef),
                [point(0, 0.0, 0.5), point(10, 3.9 - i, 0.8 - 0.2 * i),
                 on_test(10, 3.9 - i, 0.79 - 0.2 * i, "final")],
            )  # fmt: skip
        write(
            study / f"ppo-elastic-reset-seed{seed}",
            config("imdb-elastic-reset", "PPO + Elastic Reset", seed),
            [point(0, 0.0, 0.5), point(5, 9.0, 0.9),
             point(5, 9.0, 0.9, side="before", common=False),
             point(5, 0.2, 0.55, side="after", common=False),
             point(8, 5.0, 0.91), on_test(8, 5.0, 0.9, "final")],
        )  # fmt: skip
    (tmp_path / "pilot.json").write_text(json.dumps({"lr": 2e-5, "rise": {"2e-05": 0.2}}))
    results = {
        "imdb-classifier": ({"accuracy": 0.91, "accuracy_on_112_tokens": 0.84}, "imdb-classifier"),
        "imdb-judge": ({"accuracy": 0.88}, "imdb-judge"),
    }
    for name, (values, base) in results.items():
        (tmp_path / name).mkdir()
        found = {"test": {"rows": 100, **values}, "train_rows": 50}
        (tmp_path / name / "results.json").write_text(json.dumps(found))
        write_yaml(tmp_path / name / "config.yaml", dump(parse(recipe(base))))
    return tmp_path


def rows(found: dict[str, Any], kind: str, **where: Any) -> list[dict[str, Any]]:
    return [
        r for r in found["rows"]
        if r["kind"] == kind and all(r.get(k) == v for k, v in where.items())
    ]  # fmt: skip


def gathered(records: Path) -> dict[str, Any]:
    return collect(records, date="2026-01-02", commit="0123abc")


def test_one_row_for_every_method_setting_and_seed(records: Path) -> None:
    found = gathered(records)
    runs = rows(found, "run")
    assert len(runs) == 12
    assert [(r["method"], r["setting"], r["seeds"]) for r in runs[:4]] == [
        ("PPO", "no tether", [0]),
        ("PPO", "no tether", [1]),
        ("PPO", "no tether", [2]),
        ("PPO + KL", "coefficient 0.003", [0]),
    ]
    assert len(rows(found, "setting")) == 4 and len(rows(found, "method")) == 3
    assert found["card"] == "one card" and all(r["date"] == "2026-01-02" for r in found["rows"])


def test_numbers_of_a_run(records: Path) -> None:
    run = rows(gathered(records), "run", method="PPO", seeds=[1])[0]
    assert (run["reward_validation"], run["drift_validation"]) == (0.95, 30.0)
    assert (run["reward_test"], run["drift_test"], run["judge_test"]) == (0.94, 30.0, 0.84)
    assert run["perplexity"] == 30.0 and run["distinct_2"] == 0.8
    # within 4 nats: update 5, chosen on validation prompts and reported on test prompts
    assert run["at_1"] == 0.51 and run["at_4"] == pytest.approx(0.70) == run["at_16"]
    assert (run["updates"], run["failed"], run["resets"]) == (10, "", 0)


def test_means_show_every_seed_and_no_interval(records: Path) -> None:
    found = gathered(records)
    method = rows(found, "method", method="PPO")[0]
    assert method["at_4"]["values"] == pytest.approx([0.69, 0.70, 0.71])
    assert method["at_4"]["mean"] == pytest.approx(0.70) and method["at_4"]["low"] is None
    assert any("no interval and no verdict" in n for n in found["notes"])


def test_the_setting_is_chosen_on_validation_prompts(records: Path) -> None:
    found = gathered(records)
    kl = rows(found, "method", method="PPO + KL")[0]
    assert kl["at_4"]["mean"] == pytest.approx(0.79)  # coefficient .003
    assert kl["at_2"]["mean"] == pytest.approx(0.51)  # neither is within 2 nats: the initial model
    weaker = rows(found, "setting", setting="coefficient 0.1")[0]
    assert weaker["at_4"]["mean"] == pytest.approx(0.59)
    assert weaker["command"].startswith("for seed in 0 1 2; do tether train imdb-ppo-kl ")


def test_resets(records: Path) -> None:
    run = rows(gathered(records), "run", method="PPO + Elastic Reset", seeds=[0])[0]
    assert (run["resets"], run["reset_at"]) == (1, [5])
    assert (run["reward_before"], run["reward_after"]) == ([0.9], [0.55])
    assert (run["drift_before"], run["drift_after"]) == ([9.0], [0.2])
    assert (run["regained_after"], run["regained_at_drift"]) == ([3], [5.0])


def test_a_run_without_an_end_counts_as_not_finished(records: Path) -> None:
    file = records / "study" / "ppo-seed2" / "record.jsonl"
    kept = [x for x in file.read_text().splitlines() if json.loads(x)["kind"] != "end"]
    file.write_text("\n".join(kept) + "\n")
    run = rows(gathered(records), "run", method="PPO", seeds=[2])[0]
    assert run["failed"] == "not finished"


def test_a_run_that_never_started_counts_as_failed(records: Path) -> None:
    mapping = config("imdb-ppo", "PPO", 3)
    (records / "study" / "configs").mkdir()
    write_yaml(records / "study" / "configs" / "ppo-seed3.yaml", mapping)
    why = {"ppo-seed3": {"method": "PPO", "seed": 3, "returncode": 1, "error": "out of memory"}}
    (records / "study" / "failures.json").write_text(json.dumps(why))
    found = gathered(records)
    run = rows(found, "run", method="PPO", seeds=[3])[0]
    assert run["failed"] == "out of memory" and run["at_4"] is None
    assert rows(found, "method", method="PPO")[0]["failed_runs"] == 1


def test_a_failed_run_whose_configuration_is_not_packed(records: Path) -> None:
    why = {"ppo-seed3": {"method": "PPO", "seed": 3, "returncode": 1, "error": "out of memory"}}
    (records / "study" / "failures.json").write_text(json.dumps(why))
    run = rows(gathered(records), "run", method="PPO", seeds=[3])[0]
    assert (run["setting"], run["command"]) == ("unknown", "tether train imdb-ppo --seed 3")


def test_the_command_gives_the_run_again() -> None:
    mapping = config("imdb-ppo-kl", "PPO + KL", 2, "--tethers.kl.coef", ".003")
    text = command("imdb-ppo-kl", mapping)
    assert text.startswith("tether train imdb-ppo-kl --seed 2 ")
    again = flat(dump(parse(apply_overrides(recipe("imdb-ppo-kl"), text.split()[3:]))))
    differ = {k for k, v in flat(mapping).items() if again.get(k) != v}
    assert differ == {"name", "root", "method", "data.test", "rewards.reward.path"}
    assert again["data.test"] == "test.parquet"
    assert again["rewards.reward.path"] == "runs/imdb-classifier/classifier"


def test_words() -> None:
    assert portable("/a/b/c.parquet") == "c.parquet" and portable("hub/id") == "hub/id"
    assert portable([1, 2]) == "'[1, 2]'" and portable(False) == "false"
    assert every_seed("tether train x --seed 0", [0]) == "tether train x --seed 0"


def test_the_file_renders(records: Path, tmp_path: Path) -> None:
    root = tmp_path / "repository"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "results.md").write_text("<!-- generated: imdb_first -->\n<!-- end -->\n")
    out = root / "benchmarks" / "results" / "imdb_first.json"
    done = subprocess.run(
        [sys.executable, "-c",
         "import sys; from benchmarks.collect_imdb import main;"
         "main(sys.argv[1:]); sys.exit('torch' in sys.modules)",
         str(records), "--date", "2026-01-02", "--commit", "0123abc", "--out", str(out)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert render(["--root", str(root)]) == 0
    text = (root / "docs" / "results.md").read_text()
    assert "| PPO | no tether | 0.940 (0.940 0.940 0.940) |" in text
    assert str(records) not in text and "/mnt" not in text and "/data" not in text
