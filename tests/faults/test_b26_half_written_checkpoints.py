"""B26: a kill or a full disk never damages what was saved before, and says so in one line."""

from __future__ import annotations

import errno
import json
import multiprocessing as mp
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from tests.runs_for_tests import MAIN, make_world, numbers_of, run, settings
from tether.config.errors import UserError
from tether.train import checkpoint
from tether.train.disk import is_full
from tether.train.files import RunFiles
from tether.train.run import resume

STATE = {"weights": torch.arange(6.0), "best": {"agent": {}}, "note": (1, {2: "x"}, None)}
FULL = (
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    SafetensorError(
        "Error while serializing: I/O error: No space left on device (os error 28)"
    ),  # as safetensors 0.8 says it: no OSError
)


def half(error: Exception) -> Any:
    """A `save_file` that writes a part of the file and fails."""

    def save(tensors: Any, path: Path) -> None:
        Path(path).write_bytes(b"half")
        raise error

    return save


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("b26"), layers=1)


def test_round_trip(tmp_path: Path) -> None:
    state = checkpoint.load(checkpoint.save(tmp_path, 4, STATE))
    assert torch.equal(state.pop("weights"), STATE["weights"])
    assert state == {k: v for k, v in STATE.items() if k != "weights"}


@pytest.mark.parametrize("error", FULL, ids=lambda e: type(e).__name__ + str(e)[:9])
def test_disk_full_half_way(tmp_path: Path, monkeypatch: Any, error: Exception) -> None:
    folder = tmp_path / "run" / "checkpoints"
    first = checkpoint.save(folder, 2, STATE)
    monkeypatch.setattr(checkpoint, "save_file", half(error))
    with pytest.raises(UserError) as caught:
        checkpoint.save(folder, 4, STATE)
    text = str(caught.value)
    assert "disk full while writing checkpoint update_000004" in text and "\n" not in text
    assert f"`tether resume {tmp_path / 'run'}`" in text
    assert os.listdir(folder) == [first.name], "nothing half-written stays"
    assert checkpoint.newest(folder) == (first, [])
    checkpoint.load(first)


def test_another_error_stays_what_it_is(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(checkpoint, "save_file", half(OSError(errno.EACCES, "no")))
    with pytest.raises(PermissionError):
        checkpoint.save(tmp_path, 4, STATE)
    assert os.listdir(tmp_path) == []
    assert not is_full(ValueError("28"))


def test_a_run_goes_on_after_a_full_disk(world: Path, monkeypatch: Any) -> None:
    chosen = settings(world, MAIN, name="full")
    with monkeypatch.context() as m:

        def save(tensors: Any, path: Path) -> None:
            if "update_000004" in str(path):
                half(FULL[2])(tensors, path)
            save_file(tensors, path)

        m.setattr(checkpoint, "save_file", save)
        with pytest.raises(UserError, match="disk full while writing checkpoint update_000004"):
            run(chosen)
    folder = Path(chosen.root) / chosen.name
    assert os.listdir(folder / "checkpoints") == ["update_000002"]
    resume(folder, say=lambda _: None)
    assert numbers_of(folder) == numbers_of(run(settings(world, MAIN, name="room")))


class NearlyFull:
    """A file that takes ten bytes, then nothing."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.left = inner, 10

    def write(self, data: Any) -> int:
        if not self.left:
            raise FULL[0]
        n, self.left = self.inner.write(bytes(data)[: self.left]), 0
        return int(n)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_a_record_line_is_whole_or_not_there(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    files.record("start", seed=0)
    before = (tmp_path / "record.jsonl").read_bytes()
    files._open["record.jsonl"] = NearlyFull(files._open["record.jsonl"])
    with pytest.raises(UserError, match=r"disk full while writing record.jsonl .*tether resume"):
        files.record("update", metrics={"x": 1.0}, update=1)
    assert (tmp_path / "record.jsonl").read_bytes() == before
    files.close()


def _save(folder: str, ready: Any, answers: Any) -> None:
    rename = os.rename

    def together(a: Any, b: Any) -> None:
        ready.wait(30)  # both have written their part
        rename(a, b)

    os.rename = together  # type: ignore[assignment]
    answers.put(str(checkpoint.save(Path(folder), 6, STATE)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_two_processes_save_one_step(tmp_path: Path) -> None:
    context = mp.get_context("fork")
    ready, answers = context.Barrier(2), context.SimpleQueue()
    two = [context.Process(target=_save, args=(str(tmp_path), ready, answers)) for _ in range(2)]
    for p in two:
        p.start()
    for p in two:
        p.join(60)
        assert p.exitcode == 0
    assert {answers.get(), answers.get()} == {str(tmp_path / "update_000006")}
    assert os.listdir(tmp_path) == ["update_000006"]
    assert checkpoint.problem(tmp_path / "update_000006") is None


def damage(path: Path, how: str) -> None:
    if how == "tensors":
        file = path / "tensors.safetensors"
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(bytes(data))
    elif how == "state":
        (path / "state.json").write_text("{")
    elif how == "missing":
        (path / "state.json").unlink()
    elif how == "marker":
        (path / "COMPLETE").write_text("{")
    else:
        (path / "COMPLETE").unlink()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("tensors", "tensors.safetensors is damaged"),
        ("state", "state.json is damaged"),
        ("missing", "state.json is missing"),
        ("marker", "its marker is damaged"),
        ("unmarked", "it was not completed"),
    ],
)
def test_a_damaged_one_is_skipped_with_a_line(
    world: Path, how: str, why: str, request: Any
) -> None:
    whole = request.getfixturevalue("reference_run")
    chosen = settings(world, MAIN, name=f"damaged-{how}", checkpoint={"keep": 1})
    with pytest.raises(RuntimeError, match="power"):
        run(chosen, progress=_cut)
    folder = Path(chosen.root) / chosen.name
    checkpoint.save(folder / "checkpoints", 4, {"copy": 1})
    damage(folder / "checkpoints" / "update_000004", how)
    said: list[str] = []
    resume(folder, say=said.append)
    assert f"skipped checkpoint update_000004: {why}" in said
    assert "resuming after update 2 of 6" in said
    assert numbers_of(folder) == numbers_of(whole)


def _cut(done: int, _total: int, _words: str) -> None:
    if done == 2:
        raise RuntimeError("power")


@pytest.fixture(scope="module")
def reference_run(world: Path) -> Path:
    return run(settings(world, MAIN, name="reference"))


def test_a_run_is_complete_only_when_its_export_stands(
    world: Path, monkeypatch: Any, reference_run: Path
) -> None:
    """A kill between the last update and the export: resume exports, and the record is the same."""
    from tether.train import final
    from tether.train.run import complete

    chosen = settings(world, MAIN, name="unexported", checkpoint={"export": True})
    folder = Path(chosen.root) / chosen.name

    def power_cut(*_: Any, **__: Any) -> None:
        raise RuntimeError("power")

    with monkeypatch.context() as m:
        m.setattr(final, "export", power_cut)
        with pytest.raises(RuntimeError, match="power"):
            run(chosen)
    assert not complete(folder)
    resume(folder, say=lambda _: None)
    assert complete(folder) and (folder / "policy" / "model.safetensors").exists()
    record = (folder / "record.jsonl").read_bytes()
    assert record == (reference_run / "record.jsonl").read_bytes()
    said: list[str] = []
    (folder / "best").mkdir()
    resume(folder, say=said.append)
    assert said == [f"{folder} is complete already: nothing to resume"]
    assert not (folder / "best").exists() and record == (folder / "record.jsonl").read_bytes()


def test_pruning_never_counts_what_resume_skipped(tmp_path: Path) -> None:
    """keep = 1: the good one must not go because a damaged newer one is counted."""
    for update in (2, 4, 6):
        checkpoint.save(tmp_path, update, STATE)
    damage(tmp_path / "update_000006", "tensors")
    (tmp_path / ".update_000008.1.part").mkdir()
    assert checkpoint.newest(tmp_path)[0] == tmp_path / "update_000004"
    gone = {p.name for p in checkpoint.prune(tmp_path, 1, update=4)}
    assert gone == {"update_000002", "update_000006", ".update_000008.1.part"}
    assert os.listdir(tmp_path) == ["update_000004"]


def test_best_copies_of_a_damaged_one_are_no_error(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 2, {"best": {"agent": {"4": [1, 0.5]}}})
    checkpoint.save(tmp_path, 4, STATE)
    damage(tmp_path / "update_000004", "state")
    assert checkpoint.best_updates(tmp_path, "agent") == {1}


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 2, STATE)
    body = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(body | {"format": 99}))
    with pytest.raises(UserError, match="checkpoint format 99, this version reads 1"):
        checkpoint.load(path)


def test_memory_that_cannot_be_saved_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"/tethers/mine: a set cannot be in a checkpoint"):
        checkpoint.save(tmp_path, 2, {"tethers": {"mine": {1, 2}}})
    assert os.listdir(tmp_path) == []
