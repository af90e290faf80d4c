"""Studies: what runs, in which order, and what survives failures, stops and kills.

The workers here are a stand-in that writes real record lines; the processes, signals and folders
are the product's.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tether.config.errors import UserError
from tether.config.settings import dump
from tether.config.text_values import read_yaml, write_yaml
from tether.records import read_lines
from tether.reports.runs import find_runs
from tether.studies import workers
from tether.studies.compare import Study, from_recipes, main, plan, read_study, run_study
from tether.studies.devices import slots
from tether.studies.watch import Left, Watch
from tether.studies.workers import run_jobs
from tether.train.lock import held, writing

ROOT = Path(__file__).resolve().parents[3]

STAND_IN = '''
"""train --config FILE | resume FOLDER, as far as a study can see them."""
import json, os, signal, sys, time
from pathlib import Path
from tether.config.text_values import read_yaml, write_yaml
from tether.records import DRIFT, line

stop = []
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell may have it ignored
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
word, where = sys.argv[1], sys.argv[-1]
config = read_yaml(where) if word == "train" else read_yaml(Path(where) / "config.yaml")
folder = Path(config["root"]) / config["name"]
if word == "train":
    assert not (folder / "record.jsonl").exists(), "a finished or unfinished run was begun anew"
    folder.mkdir(parents=True)
    write_yaml(folder / "config.yaml", config)
    (folder / "calls").write_text("")
with open(folder / "calls", "a") as f:
    print(word, os.environ["OMP_NUM_THREADS"], os.environ.get("CUDA_VISIBLE_DEVICES", "-"),
          os.getpid(), time.monotonic(), file=f)
if config["method"] == "broken":
    print("error: the reward raised ZeroDivisionError", file=sys.stderr)
    sys.exit(1)
record = folder / "record.jsonl"
done = sum(json.loads(x)["kind"] == "update" for x in open(record)) if record.exists() else 0

def put(text):
    with open(record, "a") as f:
        f.write(text + "\\n")

def evaluate(update):
    put(line("eval", agent="policy", update=update, policy_version=update, split="validation",
             side="", common=True, weights="live", policy="exported", prompts=4,
             reward=0.5 + 0.01 * update, reward_se=0.1, drift={DRIFT: float(update)}))

if word == "train":
    put(line("start", config="x", method=config["method"], seed=config["seed"], agents=[],
             notes=[]))
    evaluate(0)
for update in range(done + 1, config["updates"] + 1):
    time.sleep(float(os.environ.get("PACE", "0.01")))
    put(line("update", agent="policy", update=update, policy_version=update - 1, metrics={}))
    (folder / "checkpoints" / str(update)).mkdir(parents=True, exist_ok=True)
    if stop:
        sys.exit(143)
evaluate(config["updates"])
put(line("end", updates=config["updates"], counts={}, notes=[]))
'''

BASE = {"model": {"path": "m", "device": "cpu"}, "data": {"path": "d"}, "updates": 4,
        "rewards": {"length": {"kind": "length"}},
        "evaluation": {"every": 2}}  # fmt: skip


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "stand_in.py"
    file.write_text(STAND_IN)
    monkeypatch.setattr(workers, "TETHER", (sys.executable, str(file)))
    monkeypatch.setattr(workers, "PAUSE", 0.02)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    return file


def make(folder: Path, *methods: str, seeds: int = 2, **other: object) -> Study:
    arms = {m: [(None, BASE)] for m in methods}
    return Study("s", folder, arms, range(seeds), **other)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["name", "root", "method", "seed"])
def test_settings_that_a_study_makes_itself_are_refused(key: str, tmp_path: Path) -> None:
    said = f"'{key}' would have no effect"
    with pytest.raises(UserError, match=said):
        plan(from_recipes(["ppo"], overrides=[f"--{key}", "3"], folder=tmp_path))
    changed = Study("s", tmp_path, {"a": [("ppo", {**BASE, key: 3})]}, range(1))
    with pytest.raises(UserError, match=f"changes of the method a: {said}"):
        plan(changed)
    file = tmp_path / "study.yaml"
    write_yaml(file, {"arms": {"a": {"recipe": "ppo", **BASE, key: 3}}})
    with pytest.raises(UserError, match=f"arm a: {said}"):
        read_study(file)
    write_yaml(file, {"arms": {"a": {"recipe": "ppo", **BASE}}})
    with pytest.raises(UserError, match=f"command line: {said}"):
        read_study(file, overrides=[f"--{key}", "3"])


def calls(folder: Path) -> list[list[str]]:
    return [x.split() for x in (folder / "calls").read_text().splitlines()]


def test_plan_goes_seed_by_seed_over_all_arms(tmp_path: Path) -> None:
    study = Study(
        "s",
        tmp_path / "s",
        {"PPO": [(None, BASE)], "PPO + KL": [(None, BASE), (None, {**BASE, "updates": 6})]},
        [3, 5],
    )
    jobs = plan(study)
    assert [j.name for j in jobs] == [
        "ppo-seed3",
        "ppo-kl.1-seed3",
        "ppo-kl.2-seed3",
        "ppo-seed5",
        "ppo-kl.1-seed5",
        "ppo-kl.2-seed5",
    ]
    assert jobs[2].settings.updates == 6 and jobs[2].settings.method == "PPO + KL"
    assert (jobs[3].settings.seed, jobs[3].settings.threads) == (5, 1)
    assert jobs[0].folder == tmp_path / "s" / "ppo-seed3"


def test_recipes_and_overrides(tmp_path: Path) -> None:
    words = ["--model", "m", "--data", "d", "--reward", "length", "--updates", "35"]
    study = from_recipes(["ppo", "ppo-kl"], seeds=1, folder=tmp_path, overrides=words)
    first, second = plan(study)
    assert (first.method, second.method) == ("ppo", "ppo-kl")
    assert first.settings.updates == second.settings.updates == 35
    assert not first.settings.tethers and "kl" in second.settings.tethers
    with pytest.raises(UserError, match="both called"):
        from_recipes(["ppo", "ppo"])


def test_a_study_file(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        textwrap.dedent("""
        seeds: [7, 8]
        margin: 0.02
        primary: [[KL, PPO]]
        arms:
          PPO: ppo
          KL:
            - {recipe: ppo-kl, tethers: {kl: {coef: 0.1}}}
            - {recipe: ppo-kl, tethers: {kl: {coef: 0.3}}}
        """)
    )
    words = ["--model", "m", "--data", "d", "--reward", "length"]
    study = read_study(file, folder=tmp_path / "out", overrides=words)
    jobs = plan(study)
    assert [j.name for j in jobs] == [
        f"{m}-seed{s}" for s in (7, 8) for m in ("ppo", "kl.1", "kl.2")
    ]
    assert [j.settings.tethers["kl"]["coef"] for j in jobs[1:3]] == [0.1, 0.3]
    assert (study.primary, study.margin) == ([("KL", "PPO")], 0.02)
    assert from_recipes([str(file)], overrides=words).folder == Path("runs/sweep")
    assert from_recipes([str(file)], overrides=words).seeds == [7, 8]
    assert list(from_recipes([str(file)], seeds=2, overrides=words).seeds) == [0, 1]
    assert len(from_recipes(["ppo"]).seeds) == 3
    for line, message in {
        "seeds: many": "'seeds' in .* is 'many', must be a whole number of at least 1",
        "seeds: [a]": "'seeds' in .* is 'a', must be a whole number of at least 0",
        "seeds: []": "'seeds' in .* names none",
        "margin: wide": "'margin' in .* is 'wide', must be a number",
        "folder: [x]": r"'folder' in .* is \['x'\], must be text",
        "primary: KL": r"'primary' in .* must list pairs \[method, against\], not 'KL'",
        "primary: [KL]": r"'primary' in .* must list pairs \[method, against\], not 'KL'",
    }.items():
        wrong = tmp_path / "wrong.yaml"
        wrong.write_text(f"arms: {{PPO: ppo}}\n{line}\n")
        with pytest.raises(UserError, match=message) as e:
            read_study(wrong)
        assert "\n" not in str(e.value)
    file.write_text("arm: {}\narms: {}\n")
    with pytest.raises(UserError, match="unknown key 'arm'"):
        read_study(file)


def test_wrong_studies_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least one"):
        plan(make(tmp_path))
    with pytest.raises(UserError, match="must differ"):
        plan(Study("s", tmp_path, {"a": [(None, BASE)]}, [1, 1]))
    with pytest.raises(UserError, match="a study of 1,000,000,000 runs; at most 10,000"):
        plan(Study("s", tmp_path, {"a": [(None, BASE)]}, range(10**9)))
    with pytest.raises(UserError, match="share the folder name"):
        plan(make(tmp_path, "a + b", "a b"))
    with pytest.raises(UserError, match="updates"):
        plan(Study("s", tmp_path, {"a": [(None, {**BASE, "updats": 3})]}, [1]))
    with pytest.raises(UserError, match="no method of the study"):
        run_study(make(tmp_path, "a", primary=[("a", "b")]), progress=False)
    assert not list(tmp_path.glob("*-seed*"))


def test_runs_everything_once(stand_in: Path, tmp_path: Path) -> None:
    study = make(tmp_path / "s", "PPO", "KL")
    folders = run_study(study, workers=2, progress=False)
    assert [f.name for f in folders] == ["ppo-seed0", "kl-seed0", "ppo-seed1", "kl-seed1"]
    first = [calls(f) for f in folders]
    assert all(c[0][:3] == ["train", "1", "-"] for c in first)
    started = [float(c[0][4]) for c in first]
    assert max(started[:2]) < min(started[2:])  # seed 0 of every arm before seed 1
    assert run_study(study, workers=2, progress=False) == folders
    assert [calls(f) for f in folders] == first  # finished runs are left alone
    plan_file = json.loads((tmp_path / "s" / "study.json").read_text())
    assert plan_file["methods"] == ["PPO", "KL"]
    assert read_yaml(tmp_path / "s" / "configs" / "kl-seed1.yaml")["seed"] == 1


def test_a_failure_is_counted_and_the_others_go_on(stand_in: Path, tmp_path: Path) -> None:
    study = make(tmp_path / "s", "broken", "PPO", seeds=1)
    folders = run_study(study, workers=1, progress=False)
    assert [f.name for f in folders] == ["ppo-seed0"]
    failures = json.loads((tmp_path / "s" / "failures.json").read_text())
    assert failures == {
        "broken-seed0": {
            "method": "broken",
            "seed": 0,
            "returncode": 1,
            "error": "error: the reward raised ZeroDivisionError",
        }
    }
    broken = tmp_path / "s" / "broken-seed0"
    run_study(study, progress=False)
    assert len(calls(broken)) == 1  # not repeated
    run_study(study, progress=False, retry=True)
    assert len(calls(broken)) == 1 and float(calls(broken)[0][4]) > 0  # begun anew, and failed
    assert "broken-seed0" in json.loads((tmp_path / "s" / "failures.json").read_text())


def test_a_run_waits_for_what_it_starts_from(stand_in: Path, tmp_path: Path) -> None:
    study = make(tmp_path / "s", "later", "PPO", "broken", "never", seeds=1)
    later, ppo, broken, never = plan(study)
    jobs = [
        replace(later, after=(ppo.name,)),
        replace(never, after=(broken.name,)),
        ppo,
        broken,
    ]
    for job in jobs:
        write_yaml(_parent(job.config), dump(job.settings))
    out = io.StringIO()
    ended: list[str] = []
    run_jobs(
        jobs,
        study.folder,
        workers=2,
        per_device=1,
        retry=False,
        console=Console(file=out, width=200),
        ended=lambda job: ended.append(job.name),
    )
    assert ended == ["ppo-seed0", "later-seed0"]
    assert float(calls(later.folder)[0][4]) > float(calls(ppo.folder)[0][4])
    assert not never.folder.exists()
    failures = json.loads((study.folder / "failures.json").read_text())
    assert failures["never-seed0"]["error"] == "broken-seed0, which it starts from, failed"
    said = out.getvalue()
    assert "never-seed0: FAILED, as broken-seed0, which it starts from" in said
    assert re.search(r"later-seed0: finished; 4 of 4 runs, 0 s left", said)


def test_a_run_that_is_still_written_is_waited_for(stand_in: Path, tmp_path: Path) -> None:
    study = make(tmp_path / "s", "PPO", seeds=1)
    (job,) = plan(study)
    write_yaml(_parent(job.config), dump(job.settings))
    job.folder.mkdir(parents=True)
    write_yaml(job.folder / "config.yaml", dump(job.settings))
    released: list[float] = []

    def release() -> None:
        time.sleep(0.5)
        released.append(time.monotonic())
        lock.__exit__(None, None, None)

    lock = writing(job.folder)
    lock.__enter__()
    assert held(job.folder) and not held(tmp_path)
    thread = threading.Thread(target=release)
    thread.start()
    run_jobs([job], study.folder, workers=1, per_device=1, retry=False, console=Console(quiet=True))
    thread.join()
    assert float(calls(job.folder)[0][4]) > released[0]
    assert not held(job.folder)


def _parent(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_time_left_at_the_pace_so_far() -> None:
    left = Left(4, began=time.monotonic() - 30.0)
    assert left.one_less() == "1 of 4 runs, 90 s left"
    left.began = time.monotonic() - 600.0
    assert left.one_less() == "2 of 4 runs, 10 min left"


def test_an_unfinished_run_is_resumed(stand_in: Path, tmp_path: Path) -> None:
    study = make(tmp_path / "s", "PPO", seeds=1)
    (folder,) = run_study(study, progress=False)
    record = folder / "record.jsonl"
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(lines[:4]) + lines[4][:10])  # killed within a line
    record.write_text("".join(lines[:4]))
    run_study(study, progress=False)
    assert [c[0] for c in calls(folder)] == ["train", "resume"]
    assert record.read_text() == "".join(lines)


def test_a_run_without_a_checkpoint_starts_again(stand_in: Path, tmp_path: Path) -> None:
    study = make(tmp_path / "s", "PPO", seeds=1)
    (folder,) = run_study(study, progress=False)
    for checkpoint in (folder / "checkpoints").iterdir():
        checkpoint.rmdir()
    lines = (folder / "record.jsonl").read_text().splitlines(keepends=True)
    (folder / "record.jsonl").write_text(lines[0])
    run_study(study, progress=False)
    assert [c[0] for c in calls(folder)] == ["train"]
    assert (folder / "record.jsonl").read_text() == "".join(lines)


def test_other_settings_in_the_same_folder_are_refused(stand_in: Path, tmp_path: Path) -> None:
    run_study(make(tmp_path / "s", "PPO", seeds=1), progress=False)
    other = Study("s", tmp_path / "s", {"PPO": [(None, {**BASE, "updates": 6})]}, [0])
    with pytest.raises(UserError, match="other settings"):
        run_study(other, progress=False)


def test_comparisons_cannot_be_declared_after_the_results(stand_in: Path, tmp_path: Path) -> None:
    run_study(make(tmp_path / "s", "PPO", "KL", seeds=1), progress=False)
    with pytest.raises(UserError, match="results already"):
        run_study(make(tmp_path / "s", "PPO", "KL", primary=[("KL", "PPO")]), progress=False)
    # more seeds and more methods may follow
    run_study(make(tmp_path / "s", "PPO", "New", seeds=1), progress=False)
    assert json.loads((tmp_path / "s" / "study.json").read_text())["methods"] == [
        "PPO",
        "KL",
        "New",
    ]


def test_comparisons_count_once_and_seeds_that_cannot_decide_are_told(
    stand_in: Path, tmp_path: Path
) -> None:
    def said(seeds: int, *primary: tuple[str, str]) -> str:
        folder = tmp_path / f"{seeds}-{len(primary)}"
        study = make(folder, "A", "B", "C", seeds=seeds, primary=primary)
        run_study(study, workers=2, console=Console(file=(out := io.StringIO()), width=1000))
        return out.getvalue().splitlines()[0]

    pairs = [("B", "A"), ("C", "A")]
    assert said(2, *pairs).startswith("2 seeds are too few to find better or worse in 2 declared")
    assert said(2, *pairs, ("A", "B"), ("B", "A")).endswith("7 seeds would do (--seeds N)")
    held = json.loads((tmp_path / "2-4" / "study.json").read_text())
    assert held["primary"] == [["B", "A"], ["C", "A"]]
    # one that was declared before they were counted once goes on
    twice = {**held, "primary": [["B", "A"], ["C", "A"], ["B", "A"]]}
    (tmp_path / "2-4" / "study.json").write_text(json.dumps(twice))
    run_study(make(tmp_path / "2-4", "A", "B", "C", seeds=2, primary=pairs), progress=False)
    assert find_runs([tmp_path / "2-4"])[1].primary == tuple(pairs)


def test_declared_comparisons_that_cannot_be_tested(tmp_path: Path) -> None:
    for more, why in (
        ({"primary": [("A", "A")]}, "'primary' compares 'A' with itself"),
        ({"primary": [("A", "B")], "seeds": 21}, "has at most 20 seeds, .* not 21"),
    ):
        with pytest.raises(UserError, match=why):
            run_study(make(tmp_path, "A", "B", **more), progress=False)
    study = replace(make(tmp_path, "A", "B", primary=[("A", "B")]), margin=0.0)
    with pytest.raises(UserError, match="'margin' of a study must be a number above 0, not 0"):
        run_study(study, progress=False)


DRIVER = """
import sys
from pathlib import Path
from tether.studies import workers
from tether.studies.compare import Study, run_study
workers.TETHER = (sys.executable, {stand_in!r})
workers.PAUSE = 0.02
arms = {{"A": [(None, {base!r})], "B": [(None, {base!r})]}}
run_study(Study("s", Path({folder!r}), arms, {seeds}), workers=2, progress=False)
"""


FORKED = pytest.mark.parametrize("seeds", [[0], [0, 1]], ids=["processes", "forks"])
"""With more runs than workers a study forks them from one process."""


def start(stand_in: Path, folder: Path, seeds: list[int]) -> subprocess.Popen[bytes]:
    """A study in a process of its own, returned once both workers have begun to train."""
    base = {**BASE, "updates": 400}
    code = DRIVER.format(stand_in=str(stand_in), folder=str(folder), base=base, seeds=seeds)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PACE": "0.05"},
        start_new_session=True,  # a process group of its own, as in a terminal
    )
    until(lambda: sum(_updates(folder / f"{m}-seed0") > 0 for m in "ab") == 2)
    return process


def _updates(run: Path) -> int:
    watch = Watch(run / "record.jsonl")
    watch.look()
    return watch.updates


def until(condition: object, seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@FORKED
def test_a_stop_leaves_no_orphan_and_can_be_resumed(
    stand_in: Path, tmp_path: Path, number: int, status: int, seeds: list[int]
) -> None:
    folder = tmp_path / "s"
    process = start(stand_in, folder, seeds)
    pids = [int(calls(folder / f"{m}-seed0")[0][3]) for m in "ab"]
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # Ctrl-C goes to the whole foreground group
    else:
        process.send_signal(number)
    assert process.wait(30) == status
    assert not any(alive(p) for p in pids)
    assert not (folder / "failures.json").exists()  # stopped is not failed
    for m in "ab":
        last = list(read_lines(folder / f"{m}-seed0" / "record.jsonl"))[-1]
        assert last["kind"] == "update" and last["update"] < 400


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's parent-death signal")
@FORKED
def test_workers_end_when_the_study_is_killed(
    stand_in: Path, tmp_path: Path, seeds: list[int]
) -> None:
    folder = tmp_path / "s"
    process = start(stand_in, folder, seeds)
    pids = [int(calls(folder / f"{m}-seed0")[0][3]) for m in "ab"]
    assert all(alive(p) for p in pids)
    process.kill()
    process.wait(30)
    until(lambda: not any(alive(p) for p in pids), 20)


def test_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study("s", tmp_path, {"PPO": [(None, {**BASE, "model": {"path": "m"}})]}, [0])
    on_cpu = [j.settings for j in plan(make(tmp_path, "PPO", seeds=1))]
    anywhere = [j.settings for j in plan(study)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    gpu = "CUDA_VISIBLE_DEVICES"
    assert slots(on_cpu, None, 1) == [{} for _ in os.sched_getaffinity(0)]
    assert slots(on_cpu, 3, 1) == [{}, {}, {}]
    assert slots(anywhere, None, 1) == [{gpu: "2"}, {gpu: "5"}]
    assert slots(anywhere, None, 2) == [{gpu: "2"}, {gpu: "5"}, {gpu: "2"}, {gpu: "5"}]
    assert slots(anywhere, 3, 1) == [{gpu: "2"}, {gpu: "5"}, {gpu: "2"}]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert slots(anywhere, 2, 1) == [{}, {}]
    with pytest.raises(UserError, match="at least 1"):
        slots(on_cpu, 0, 1)


def test_watch_counts_whole_lines_and_follows_a_shortened_record(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    watch = Watch(record)
    watch.look()
    assert (watch.updates, watch.ended) == (0, False)
    text = "".join(f'{{"kind": "update", "update": {u}}}\n' for u in (1, 2, 3))
    record.write_text(text + '{"kind": "upd')
    watch.look()
    assert watch.updates == 3
    record.write_text(text[: len(text) // 3])
    watch.look()
    assert watch.updates == 1
    record.write_text(text + '{"kind": "end"}\n')
    watch.look()
    assert (watch.updates, watch.ended) == (3, True)


def test_compare_ends_with_the_report(
    stand_in: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "study.yaml"
    folder = tmp_path / "s"
    arms = {"PPO": BASE, "KL": BASE}
    file.write_text(json.dumps({"name": "two", "seeds": 2, "arms": arms}))
    assert main([str(file)], folder=folder, check=False) == 0
    said = capsys.readouterr().out
    assert "carry no verdict" in said and str(folder / "report.html") in said
    assert (folder / "frontier.csv").read_text().count("\n") == 1 + 2 * 2 * 2
