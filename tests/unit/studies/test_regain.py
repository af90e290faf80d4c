"""Slots that were given up for want of memory are used again where there is room, nowhere else."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tests.runs_for_tests import make_world, settings
from tests.unit.studies import crowded
from tether.config.errors import OUT_OF_MEMORY
from tether.studies import devices, regain, workers
from tether.studies.crowding import Slots
from tether.studies.devices import free_memory
from tether.studies.regain import EVERY, MORE, SHARE, Regain

GPU = {"CUDA_VISIBLE_DEVICES": "0"}
GIB = 2**30


class Place:
    """A device with four slots, two of which were given up; a clock, and what is free."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.now, self.free = folder, 1000.0, 0
        self.asked: list[str] = []
        clock = SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now)
        monkeypatch.setattr(regain, "time", clock)
        monkeypatch.setattr(regain, "free_memory", self.free_memory)
        self.slots = Slots(deque([GPU] * 4))
        self.slots.free.clear()
        self.regain = Regain(self.slots)
        for name in "ab":
            self.lose(name)

    def free_memory(self, device: str) -> int | None:
        self.asked.append(device)
        return self.free

    def lose(self, name: str) -> None:
        self.slots.look([(name, GPU), ("other", GPU)])
        assert self.slots.ended(name, GPU, OUT_OF_MEMORY)
        self.regain.crowded("0")

    def update(self, name: str, *peaks: float, after: float = 1.0) -> None:
        """A run has come to an update `after` seconds after it began."""
        self.regain.began(name)
        (self.folder / name).mkdir(exist_ok=True)
        file = self.folder / name / "timing.jsonl"
        file.write_text("".join(f'{{"peak_bytes": {int(p * GIB)}}}\n' for p in peaks))
        os.utime(file, (self.now + after, self.now + after))

    def look(self, *names: str) -> list[str]:
        self.now += EVERY
        return self.regain.look((n, GPU, self.folder / n) for n in names)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def needed(peak: float) -> int:
    return round(peak * GIB * SHARE + MORE)


def test_a_slot_comes_back_where_the_largest_run_fits_and_a_third_more(place: Place) -> None:
    place.update("c", 3.0, 6.0, 5.0)
    place.update("d", 2.0)
    place.free = needed(6.0) - 1
    assert place.look("c", "d") == [] and place.slots.count["0"] == 2
    place.free = needed(6.0)  # 9 GiB
    assert place.look("c", "d") == [
        "GPU 0 has 9.0 GiB free, where a run took at most 6.0: 3 run at a time from now on"
    ]
    assert place.slots.count["0"] == 3 and list(place.slots.free) == [GPU]
    assert place.look("c", "d") == []  # nothing has begun in it
    place.slots.free.clear()
    place.regain.began("e")
    assert place.look("c", "d", "e") == []  # what it takes is not yet seen
    place.update("e", 1.0)
    assert len(place.look("c", "d", "e")) == 1 and place.slots.count["0"] == 4
    place.slots.free.clear()
    before = list(place.asked)
    assert place.look("c", "d", "e") == [] and place.asked == before  # it lacks none


def test_a_run_that_began_again_is_not_measured_by_what_it_did_before(place: Place) -> None:
    place.free = 100 * GIB
    place.update("c", 1.0, after=-1.0)  # the file is from before
    assert place.look("c") == [] and place.asked == []
    place.update("c", 1.0)
    assert len(place.look("c")) == 1


def test_nothing_is_given_back_while_nothing_is_known(place: Place) -> None:
    place.free = 100 * GIB
    assert place.look() == [] and place.asked == []
    place.regain.note("a", place.folder / "a")  # it has ended without an update
    (place.folder / "c").mkdir()
    (place.folder / "c" / "timing.jsonl").write_text('{"peak_bytes": 3\n{"update": 1}\nnull\n')
    os.utime(place.folder / "c" / "timing.jsonl", (place.now + 1e3, place.now + 1e3))
    assert place.look("c") == [] and place.asked == []


def test_the_largest_may_be_one_that_has_ended(place: Place) -> None:
    place.update("a", 20.0)
    place.regain.note("a", place.folder / "a")
    place.update("c", 1.0)
    place.free = needed(20.0) - 1
    assert place.look("c") == []
    place.free = needed(20.0)
    assert len(place.look("c")) == 1


def test_what_was_too_little_once_has_to_be_twice_as_much(place: Place) -> None:
    place.update("c", 1.0)
    place.free = 10 * GIB
    assert len(place.look("c")) == 1
    place.slots.free.clear()
    place.lose("e")  # wanted more than 10
    place.free = 20 * GIB - 1
    assert place.look("c") == []
    place.free = 20 * GIB
    assert len(place.look("c")) == 1
    place.slots.free.clear()
    place.lose("e")
    place.free = 40 * GIB - 1
    assert place.look("c") == []


def test_devices_are_not_asked_often_and_not_where_they_cannot_answer(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.update("c", 1.0)
    place.look("c")
    place.regain.look([("c", GPU, place.folder / "c")])  # at the same time
    assert place.asked == ["0"]
    monkeypatch.setattr(regain, "free_memory", lambda device: None)
    assert place.look("c") == [] and place.slots.count["0"] == 2


def test_a_slot_that_came_back_is_not_given_back_twice(place: Place) -> None:
    """A run that fits nowhere gives back what it cost, without what is back by then."""
    slots = Slots(deque([GPU] * 3))
    slots.free.clear()
    for _ in range(2):
        slots.look([("large", GPU), ("a", GPU)])
        assert slots.ended("large", GPU, OUT_OF_MEMORY)
    slots.regain("0")
    assert slots.lacking() == ["0"] and slots.count["0"] == 2
    slots.began("large")
    assert not slots.ended("large", GPU, OUT_OF_MEMORY)  # alone
    assert slots.count["0"] == 3 and list(slots.free) == [GPU] * 3 and slots.lacking() == []
    slots.regain("0")
    assert slots.count["0"] == 3


def test_the_pool_tells_it_what_ended_runs_took_and_where_memory_ran_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, free = [1000.0], [0]
    clock = SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0])
    monkeypatch.setattr(regain, "time", clock)
    monkeypatch.setattr(regain, "free_memory", lambda device: free[0])
    pool = workers.Pool(tmp_path, Console(quiet=True), {}, Slots(deque([GPU] * 3)))
    pool.slots.free.clear()

    def worker(name: str, peak: float, status: int | None) -> None:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "timing.jsonl").write_text(f'{{"peak_bytes": {int(peak * GIB)}}}\n')
        os.utime(folder / "timing.jsonl", (now[0] + 1, now[0] + 1))
        job: Any = SimpleNamespace(name=name, method="m", seed=0, folder=folder)
        watch: Any = SimpleNamespace(look=lambda: None, ended=False, updates=1)
        process: Any = SimpleNamespace(poll=lambda: status, returncode=status, pid=0)
        pool.running.append(workers.Worker(job, GPU, process, watch))

    def slots_with(gib: float) -> int:
        now[0] += EVERY
        free[0] = int(gib * GIB)
        pool.collect()
        return pool.slots.count["0"]

    worker("b", 1.0, None)
    worker("a", 12.0, OUT_OF_MEMORY)
    assert slots_with(16.9) == 2  # 12 and a third, and 1
    assert slots_with(17.1) == 3
    pool.slots.free.clear()
    worker("a", 13.0, OUT_OF_MEMORY)
    assert slots_with(34.1) == 2
    assert slots_with(34.3) == 3  # twice 17.1


SMI = "0, GPU-aa11, 1024\n1, GPU-bb22, 2048\n2, GPU-cc33, [N/A]\n"


@pytest.mark.parametrize(
    ("device", "free"),
    [("0", 2**30), ("1", 2**31), ("GPU-bb", 2**31), ("GPU-bb22", 2**31), ("2", None), ("7", None),
     ("", None), ("MIG-aa11", None)],
)  # fmt: skip
def test_free_memory_is_what_the_driver_says(
    device: str, free: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = SimpleNamespace(stdout=SMI)
    monkeypatch.setattr(devices.subprocess, "run", lambda *_, **__: said)
    assert free_memory(device) == free


@pytest.mark.parametrize(
    "error", [FileNotFoundError(), subprocess.TimeoutExpired("x", 1),
              subprocess.CalledProcessError(9, "x")],
)  # fmt: skip
def test_no_answer_is_no_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(devices.subprocess, "run", fails)
    assert free_memory("0") is None


RUN = """
# of a unit, on a device whose units another program shares at first
mine = begins(1)
while len(starts.read_text().split()) < 5:  # the first five are there together
    time.sleep(0.01)
time.sleep(0.2)
fits = len(list(taken.iterdir())) <= int(Path(os.environ["ROOM"]).read_text())
if fits:
    (folder / "timing.jsonl").write_text(f'{{"peak_bytes": {2**29}}}\\n')
    time.sleep(0.3)
ends(mine, fits)
"""


def test_a_study_uses_the_room_that_another_program_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, room = crowded.stand_in(tmp_path, RUN, monkeypatch), tmp_path / "room"
    room.write_text("2")

    def free(device: str) -> int:
        """A GiB a unit; the other program ends once two runs have finished."""
        if len(list((tmp_path / "runs").glob("*/record.jsonl"))) >= 2:
            room.write_text("6")
        return (int(room.read_text()) - len(list(taken.iterdir()))) * GIB

    monkeypatch.setattr(regain, "EVERY", 0.02)
    monkeypatch.setattr(regain, "MORE", GIB // 4)
    monkeypatch.setattr(regain, "free_memory", free)
    monkeypatch.setattr(devices, "visible_devices", lambda: ["0"])
    monkeypatch.setenv("ROOM", str(room))
    base = settings(make_world(tmp_path / "world"), root=str(tmp_path / "runs"))
    base = replace(base, model=replace(base.model, device="cuda"))
    names = [f"r{i}" for i in range(12)]
    said, failures, starts = crowded.study(tmp_path, base, names, workers=None, per_device=5)
    assert failures == {} and len(starts) > 12
    assert "FAILED" not in said and "12 of 12 runs" in said
    assert "begins again" in said and "GPU 0 has " in said
    assert "3 run at a time from now on" in said.partition("GPU 0 has ")[2]
