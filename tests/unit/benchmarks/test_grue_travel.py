"""What of the real runs is done beside something else, and what travels alone: anchors that were
computed beforehand, and the T5's weights, which are packed while cells train."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import grue_classifiers, grue_real, grue_study, grue_travel
from benchmarks.grue_pack import GROUPS, write_rows
from benchmarks.grue_study import INTENT, PILOT, PRETRAINED, SENTIMENT, T5
from benchmarks.grue_travel import unpack
from benchmarks.measuring import ROOT
from benchmarks.parts import join
from tether.config.errors import UserError
from tether.config.text_values import read_yaml, write_yaml
from tether.config.whole_file import write_whole
from tether.studies.grue.run import Ready

ANCHORS = Path("runs/anchors")
SCITLDR = ["--tasks", "scitldr"]


def run(*words: str) -> int:
    return grue_real.main([*words])


def test_anchors_travel_alone_and_are_used_where_they_arrive(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_rouge(monkeypatch)
    here, there, out = place, place / "there", place / "anchors"
    assert run("anchors", "smollm2", *SCITLDR, "--root", str(here), "--out", str(out)) == 0
    assert sorted(p.name for p in out.iterdir()) == [
        "anchors-smollm2.json", "anchors-smollm2.tar.xz-00",
    ]  # fmt: skip
    assert join(out / "anchors-smollm2.json", place / "x") == ["runs/anchors/scitldr.json"]
    shutil.copytree(here / "data", there / "data")
    monkeypatch.setattr("tether.studies.grue.anchors.anchor", None)  # nothing is computed there
    words = ["anchors", "smollm2", *SCITLDR, "--root", str(there)]
    assert run(*words, "--from", str(out)) == 0
    assert (there / ANCHORS / "scitldr.json").read_bytes() == (
        here / ANCHORS / "scitldr.json"
    ).read_bytes()
    assert run(*words, "--from", str(out)) == 0  # taken twice is taken once
    data = there / "data" / "scitldr" / "test.jsonl.gz"
    write_rows(data, [{"source": ["We do."], "target": ["Another one."]}] * 8)
    with pytest.raises(UserError, match="of other test examples"):
        run(*words)
    content = json.loads((there / ANCHORS / "scitldr.json").read_text())
    content["metrics"][0]["floor"] = 0.5
    (there / ANCHORS / "scitldr.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="was changed after it was written"):
        run(*words)


def use_rouge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics that need no file."""
    plain = grue_study.write_settings

    def write(quick: bool, ablations: bool) -> Path:
        file = plain(quick, ablations)
        content = read_yaml(file)
        content["tasks"]["scitldr"]["metrics"] = ["rouge_1", "rouge_l"]
        write_yaml(file, content)
        return file

    monkeypatch.setattr(grue_study, "write_settings", write)


def test_other_anchors_than_those_that_are_there_are_refused(place: Path) -> None:
    ANCHORS.mkdir(parents=True)
    (ANCHORS / "imdb.json").write_text('{"of": "there"}')
    (ANCHORS / "scitldr.json").write_text("{}")
    grue_travel.anchors(["imdb", "scitldr"], place / "o")
    (ANCHORS / "imdb.json").write_text('{"of": "here"}')
    (ANCHORS / "scitldr.json").unlink()
    with pytest.raises(UserError, match=r"imdb.json is there and has other anchors than .*smollm2"):
        unpack([place / "o"])
    assert json.loads((ANCHORS / "imdb.json").read_text()) == {"of": "here"}
    assert not (ANCHORS / "scitldr.json").exists()
    (ANCHORS / "imdb.json").unlink()
    unpack([place / "o"])
    assert json.loads((ANCHORS / "imdb.json").read_text()) == {"of": "there"}


def test_anchors_packed_before_stay_in_the_archive(place: Path) -> None:
    ANCHORS.mkdir(parents=True)
    for task in ("scitldr", "imdb", "commongen"):
        (ANCHORS / f"{task}.json").write_text("{}")
        grue_travel.anchors([task], place / "o")
    packed = {g: join(place / "o" / f"anchors-{g}.json", place / g) for g in ("smollm2", "t5")}
    assert packed == {
        "smollm2": ["runs/anchors/imdb.json", "runs/anchors/scitldr.json"],
        "t5": ["runs/anchors/commongen.json"],
    }


def test_anchors_that_lack_a_metric_are_no_anchors(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A benchmark that takes them, and has the metric, would silently go without."""

    def prepare(plan: Any, *_: Any) -> dict[str, Ready]:
        entry = type("E", (), {"name": "intent_accuracy", "missing": "no classifier"})
        for task in plan.tasks:
            ANCHORS.mkdir(parents=True, exist_ok=True)
            (ANCHORS / f"{task}.json").write_text("{}")
        return {t: Ready([entry], [], None, "") for t in plan.tasks}  # type: ignore[list-item, arg-type]

    monkeypatch.setattr(grue_real, "prepare", prepare)
    ANCHORS.mkdir(parents=True)
    (ANCHORS / "imdb.json").write_text("{}")
    words = ["anchors", "smollm2", "--root", str(place), "--out", str(place / "o")]
    with pytest.raises(UserError, match=r"imdb would lack intent_accuracy \(no classifier\)"):
        run(*words)
    assert [p.name for p in ANCHORS.iterdir()] == ["imdb.json"]  # what was there stays
    assert not list((place / "o").iterdir())


def there(*tasks: str) -> None:
    """Anchors of some tasks."""
    for task in tasks:
        write_whole(ANCHORS / f"{task}.json", "{}")


class Stages:
    """The stages of a call, each of which only notes that it came."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, anchors: int = 0, seconds: float = 0.0
    ) -> None:
        self.came: list[str] = []
        self.training = threading.Event()
        self.packed = threading.Event()
        program = f"import time; time.sleep({seconds}); raise SystemExit({anchors})"
        monkeypatch.setattr(grue_real, "unpack", lambda sources: None)
        monkeypatch.setattr(grue_real, "pretrain", lambda *_: self.came.append("t5"))

        def started(words: list[str]) -> subprocess.Popen[bytes]:
            at = len(words) - words[::-1].index("--tasks")
            self.anchored.append(words[at:])
            if not (anchors or seconds):
                there(*words[at:])
            return subprocess.Popen([sys.executable, "-c", program])

        self.anchored: list[list[str]] = []
        monkeypatch.setattr(grue_real, "started", started)
        monkeypatch.setattr(grue_real, "within", self.within)
        monkeypatch.setattr(grue_real, "weights", self.weights)
        monkeypatch.setattr(grue_real, "bundle", lambda *_: self.came.append("records"))

    def within(self, words: list[str], seconds: float) -> int:
        self.training.set()
        self.came.append(" ".join(words[:2]))
        if words[0] == "pilot":
            rates = {t: {"lr": 1e-5} for tasks in GROUPS.values() for t in tasks}
            write_whole(PILOT, json.dumps(rates))
        assert self.packed.wait(10)  # the cells end after the weights are packed: side by side
        return 0

    def weights(self, out: Path) -> None:
        assert self.training.wait(10)
        self.packed.set()


WORDS = ["t5", "--root", ".", "--out", "O"]


def test_the_weights_are_packed_while_cells_train(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = Stages(monkeypatch)
    assert run(*WORDS) == 0
    assert stages.came == ["t5", "pilot t5", "cells t5", "records"]
    assert stages.anchored == [["commongen", "fairytaleqa", "multi30k"]]
    monkeypatch.setattr(grue_real, "weights", None)
    assert run(*WORDS, "--without-weights") == 0


def test_anchors_do_not_outlast_the_time(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = Stages(monkeypatch, seconds=30.0)
    stages.training.set()  # the weights have nothing to wait for
    monkeypatch.setattr(grue_real, "GRACE", 0.0)
    clock = time.perf_counter()
    assert run(*WORDS, "--stop-after", "1") == 1
    assert time.perf_counter() - clock < 15
    assert stages.came == ["t5", "records"] and stages.packed.is_set()
    said = capsys.readouterr().out
    assert "the anchors: they are left to the cells" in said and "pilot: stopped" in said


DRIVER = """
import subprocess, sys, time
from benchmarks import grue_real

def started(words):
    child = [sys.executable, "-c", "import time; time.sleep(60)"]
    process = subprocess.Popen(child)
    print("child", words[0], process.pid, flush=True)
    return process

grue_real.unpack = lambda sources: None
grue_real.pretrain = lambda *_: time.sleep({seconds})
grue_real.started = started
sys.argv[1:] = ["t5", "--root", ".", "--out", "O", "--without-weights"]
grue_real.entry()
"""


@pytest.mark.parametrize(("stage", "seconds"), [("anchors", 60.0), ("pilot", 0.0)])
def test_what_a_call_has_started_ends_with_it(stage: str, seconds: float, place: Path) -> None:
    if stage == "pilot":  # no anchors beside an own part that is there
        T5.mkdir(parents=True)
        (T5 / "denoising.json").write_text("{}")
        there(*GROUPS["t5"])
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER.format(seconds=seconds)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
    )  # fmt: skip
    assert driver.stdout is not None
    (line,) = itertools.islice((x for x in driver.stdout if x.startswith("child")), 1)
    _, what, pid = line.split()
    try:
        assert what == stage
        time.sleep(0.2)  # it waits
        driver.terminate()
        assert driver.wait(20) == 143
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    finally:
        driver.kill()
        driver.wait()
        driver.stdout.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def test_anchors_that_need_a_classifier_wait_for_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are computed beside the pilots and the supervised runs, which need none."""
    stages = Stages(monkeypatch)
    monkeypatch.setattr(grue_real, "classifiers", lambda *_: stages.came.append("made"))
    stages.packed.set()
    words = ["smollm2", *WORDS[1:]]
    every = ["made", "pilot smollm2", "cells smollm2", "records"]
    assert run(*words) == 0
    assert stages.anchored == [["scitldr", "dart"], ["imdb", "dailydialog"]]
    assert stages.came == every
    shutil.rmtree(ANCHORS)
    write_whole(SENTIMENT / "classifier.json", "{}")
    stages.anchored = []
    assert run(*words) == 0
    assert stages.anchored == [["imdb", "scitldr", "dart"], ["dailydialog"]]
    assert stages.came == every * 2
    for tasks, first in ((["dailydialog"], ["dailydialog"]), (["imdb", "scitldr"], None)):
        shutil.rmtree(ANCHORS, ignore_errors=True)
        stages.anchored = []
        assert run(*words, "--tasks", *tasks) == 0
        assert stages.anchored == [first or tasks]  # nothing is made meanwhile
        assert run(*words, "--tasks", *tasks) == 0
        assert len(stages.anchored) == 1  # they are there


def test_anchors_that_fail_beside_the_pilots_stop_the_study(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = Stages(monkeypatch, anchors=1)
    stages.packed.set()
    monkeypatch.setattr(grue_real, "classifiers", lambda *_: None)
    with pytest.raises(UserError, match="the anchors cannot be used"):
        run("smollm2", *WORDS[1:], "--tasks", "dailydialog")
    assert stages.came == ["pilot smollm2", "records"]  # what the pilots found is not lost


def test_classifiers_that_tasks_read_are_trained_once_each_on_a_gpu_of_its_own(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: dict[str, dict[str, str]] = {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    monkeypatch.setattr(grue_classifiers, "training", trains(place, began))
    for tasks, gpus, wanted in (
        (["scitldr"], 2, {}),
        (["imdb", "scitldr"], 0, {"sentiment": {}}),
        (["imdb", "dailydialog"], 2, {"intent": {"CUDA_VISIBLE_DEVICES": "4"}}),
        (["imdb", "dailydialog"], 2, {}),
    ):
        began.clear()
        grue_classifiers.classifiers(tasks, False, gpus)
        assert began == wanted
    for gpus, cards in ((2, ["4", "5"]), (1, ["4", "4"])):
        for target in (SENTIMENT, INTENT):
            assert (target / "classifier.json").is_file()
            shutil.rmtree(target)
        began.clear()
        grue_classifiers.classifiers(["imdb", "dailydialog"], False, gpus)
        assert [c["CUDA_VISIBLE_DEVICES"] for c in began.values()] == cards


def trains(place: Path, began: dict[str, dict[str, str]], failing: str = "") -> Any:
    """Trains a classifier at once, unless it is the failing one."""

    def training(words: list[str], card: dict[str, str]) -> subprocess.Popen[bytes]:
        name = words[words.index("--name") + 1]
        began[name] = card
        if name != failing:
            write_whole(place / "classifiers" / name / "classifier" / "classifier.json", "{}")
        return subprocess.Popen(["false" if name == failing else "true"])

    return training


def test_a_classifier_that_could_not_be_trained_stops_the_study(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one beside it stays."""
    began: dict[str, dict[str, str]] = {}
    monkeypatch.setattr(grue_classifiers, "training", trains(place, began, "sentiment"))
    with pytest.raises(subprocess.CalledProcessError):
        grue_classifiers.classifiers(["imdb", "dailydialog"], False)
    assert not SENTIMENT.exists() and (INTENT / "classifier.json").is_file()


def test_a_training_is_told_its_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES $*" > "$(dirname $0)/said"\n')
    python.chmod(0o755)
    monkeypatch.setattr(grue_classifiers.sys, "executable", str(python))
    assert grue_classifiers.training(["train", "x"], {"CUDA_VISIBLE_DEVICES": "3"}).wait() == 0
    assert (tmp_path / "said").read_text() == "3 -m tether train x\n"


def test_classifiers_travel_that_were_trained_here(place: Path) -> None:
    """One that came in the pack is there wherever the pack is."""
    for target in (SENTIMENT, INTENT):
        write_whole(target / "adapter_model.safetensors", "weights")
    write_whole(Path("classifiers/intent/results.json"), "{}")
    write_whole(Path("classifiers/intent/classifier/adapter_model.safetensors"), "weights")
    found = {f.as_posix() for f in grue_travel.records("smollm2", [])}
    assert found == {f"{INTENT}/adapter_model.safetensors", "classifiers/intent/results.json"}


def test_what_the_pretraining_came_to_travels_with_the_records_of_its_cells(place: Path) -> None:
    """Reports have it from the benchmark's folder, where the weights are no more."""
    write_whole(T5 / "denoising.json", '{"steps": 3000}')
    assert list(grue_travel.records("smollm2", [])) == []
    assert list(grue_travel.records("t5", [])) == [PRETRAINED]
    assert json.loads(PRETRAINED.read_text()) == {"steps": 3000}
    shutil.rmtree(T5)
    assert list(grue_travel.records("t5", [])) == [PRETRAINED]  # of an earlier place


def test_a_later_call_starts_its_cells_at_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = Stages(monkeypatch, anchors=1)
    T5.mkdir(parents=True)
    (T5 / "denoising.json").write_text("{}")
    there(*GROUPS["t5"])
    monkeypatch.setattr(grue_real, "started", None)
    assert run(*WORDS) == 0
    assert stages.came == ["pilot t5", "cells t5", "records"]


def test_the_memory_of_the_pretraining_is_free_for_cells(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's process lives as long as they do, and keeps what its allocator has."""
    came: list[str] = []
    write_rows(Path("data/denoising.jsonl.gz"), ["a text"])
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda path: path)
    monkeypatch.setattr(grue_real.denoising, "train", lambda *_, **__: came.append("trained"))
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: came.append("emptied"))
    grue_real.pretrain(1, True)
    assert came == ["trained", "emptied"]


def test_what_fails_beside_the_cells_is_told_and_the_records_are_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = Stages(monkeypatch)

    def full(out: Path) -> None:
        stages.packed.set()
        raise OSError("no space left")

    monkeypatch.setattr(grue_real, "weights", full)
    with pytest.raises(OSError, match="no space left"):
        run(*WORDS)
    assert stages.came == ["t5", "pilot t5", "cells t5", "records"]


def test_no_cell_starts_under_anchors_that_cannot_be_used(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = Stages(monkeypatch, anchors=1)
    with pytest.raises(UserError, match="the anchors cannot be used"):
        run(*WORDS)
    assert stages.came == ["t5"]


def test_the_packed_weights_are_the_files_that_cells_load(place: Path) -> None:
    T5.mkdir(parents=True)
    for name in ("model.safetensors", "config.json", "denoising.json"):
        (T5 / name).write_bytes(name.encode() * 1000)
    before = {f: f.read_bytes() for f in T5.iterdir()}
    grue_travel.weights(place / "o")
    assert {f: f.read_bytes() for f in T5.iterdir()} == before
    assert (place / "o" / "weights.tar-00").is_file()  # stored
    shutil.rmtree("models")
    unpack([place / "o"])
    assert {f: f.read_bytes() for f in T5.iterdir()} == before
    (place / "o" / "weights.tar-00").write_bytes(b"once is enough")
    grue_travel.weights(place / "o")
    assert (place / "o" / "weights.tar-00").read_bytes() == b"once is enough"


def test_weights_made_anew_take_the_place_of_those_packed_before(place: Path) -> None:
    T5.mkdir(parents=True)
    for text in ("first", "second"):
        for name in ("model.safetensors", "denoising.json"):
            (T5 / name).write_text(text)
        grue_travel.weights(place / "o")
    shutil.rmtree("models")
    unpack([place / "o"])
    assert {f.read_text() for f in T5.iterdir()} == {"second"}
