"""Runs that share a device and together want more memory than it has."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.runs_for_tests import make_world, settings
from tests.unit.studies import crowded
from tether.config.errors import OUT_OF_MEMORY
from tether.studies import crowding, workers
from tether.studies.crowding import Slots

GPU = {"CUDA_VISIBLE_DEVICES": "0"}
OTHER = {"CUDA_VISIBLE_DEVICES": "1"}

RUN = """
# on a device on which ROOM units fit at once; it takes as many as its name ends with
mine = begins(int(config["name"].rpartition("-")[2]))
fits = True
for _ in range(12):
    time.sleep(0.03)
    fits = fits and len(list(taken.iterdir())) <= int(os.environ["ROOM"])
    if not fits:
        break
ends(mine, fits)
"""


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    crowded.stand_in(tmp_path, RUN, monkeypatch)
    return tmp_path


def run(folder: Path, *names: str, workers: int) -> tuple[str, dict[str, object], list[str]]:
    base = settings(make_world(folder / "world"), root=str(folder / "runs"))
    return crowded.study(folder, base, names, workers=workers, per_device=1)


def test_those_that_do_not_fit_begin_again(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOM", "2")
    names = [f"{x}-1" for x in "abcdef"]
    said, failures, starts = run(device, *names, workers=4)
    assert failures == {}
    assert all((device / "runs" / n / "record.jsonl").is_file() for n in names)
    assert len(starts) > len(names) and set(starts) == set(names)
    assert starts.index("f-1") > 5  # what begins again comes before what has not begun
    assert "out of memory beside other runs: it begins again, and at most " in said
    assert "FAILED" not in said and "6 of 6 runs" in said


def test_one_that_never_fits_fails_and_costs_the_others_nothing(
    device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOM", "3")
    said, failures, starts = run(device, "large-4", "a-1", "b-1", "c-1", workers=1)
    assert list(failures) == ["large-4"] and starts.count("large-4") == 1
    assert failures["large-4"]["returncode"] == OUT_OF_MEMORY  # type: ignore[index]
    assert "large-4: FAILED" in said and "begins again" not in said
    assert starts[1:] == ["a-1", "b-1", "c-1"]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(crowding, "time", made)
    return made


def test_a_device_has_a_slot_less_for_each(clock: Clock) -> None:
    slots = Slots(deque([GPU, OTHER, GPU, OTHER, GPU]))
    taken = [slots.free.popleft() for _ in range(5)]
    running = list(zip("abcde", taken, strict=True))
    for name, _ in running:
        slots.began(name)
    slots.look(running)
    assert slots.ended("a", GPU, OUT_OF_MEMORY)
    assert slots.ended("c", GPU, OUT_OF_MEMORY)
    assert slots.count == {"0": 1, "1": 2} and not slots.free
    assert slots.ended("e", GPU, OUT_OF_MEMORY)  # the last of a device is kept
    assert list(slots.free) == [GPU] and slots.count["0"] == 1
    assert not slots.ended("b", OTHER, 0)
    assert list(slots.free) == [GPU, OTHER]


@pytest.mark.parametrize("status", [0, 1, 2, 143, -9])
def test_any_other_end_gives_the_slot_back(clock: Clock, status: int) -> None:
    slots = Slots(deque([GPU, GPU]))
    slots.free.clear()
    slots.look([("a", GPU), ("b", GPU)])
    assert not slots.ended("a", GPU, status)
    assert list(slots.free) == [GPU] and slots.count["0"] == 2


def test_who_counts_as_beside(clock: Clock) -> None:
    slots = Slots(deque([GPU] * 3))
    slots.free.clear()
    slots.look([("a", GPU), ("b", OTHER)])
    assert not slots.ended("a", GPU, OUT_OF_MEMORY)  # another device
    slots.look([("c", GPU), ("d", GPU)])
    clock.now += crowding.SECONDS - 1
    assert slots.ended("c", GPU, OUT_OF_MEMORY)  # d has ended since: its memory was there
    clock.now += 2
    assert not slots.ended("d", GPU, OUT_OF_MEMORY)  # it had a minute for itself
    slots.look([("e", GPU), ("f", GPU)])
    slots.began("e")  # again, now alone
    assert not slots.ended("e", GPU, OUT_OF_MEMORY)


def test_what_one_cost_that_fits_nowhere_is_given_back(clock: Clock) -> None:
    slots = Slots(deque([GPU] * 3))
    slots.free.clear()
    for _ in range(2):
        slots.look([("large", GPU), ("a", GPU)])
        assert slots.ended("large", GPU, OUT_OF_MEMORY)
        slots.began("large")
    assert slots.count["0"] == 1 and not slots.free
    assert not slots.ended("large", GPU, OUT_OF_MEMORY)
    assert slots.count["0"] == 3 and list(slots.free) == [GPU] * 3
    slots.free.clear()
    assert not slots.ended("large", GPU, OUT_OF_MEMORY)  # given back once
    assert slots.count["0"] == 3 and list(slots.free) == [GPU]
    slots.look([("b", GPU), ("c", GPU)])
    assert slots.ended("b", GPU, OUT_OF_MEMORY)
    assert not slots.ended("b", GPU, OUT_OF_MEMORY)  # whom it was beside is forgotten


def test_a_run_that_had_ended_costs_no_slot(tmp_path: Path) -> None:
    """Out of memory on its way out, behind the end of its record: nothing is to be done again."""
    pool = workers.Pool(tmp_path, Console(quiet=True), {}, Slots(deque([GPU, GPU])))
    pool.slots.free.clear()
    for name, status in (("a", OUT_OF_MEMORY), ("b", None)):
        job = SimpleNamespace(name=name, method="m", seed=0, folder=tmp_path)
        watch = SimpleNamespace(look=lambda: None, ended=name == "a", updates=1)
        process = SimpleNamespace(poll=lambda s=status: s, returncode=status, pid=0)
        worker = SimpleNamespace(job=job, slot=GPU, watch=watch, process=process)
        pool.running.append(worker)  # type: ignore[arg-type]
    assert [w.job.name for w in pool.collect()] == ["a"]
    assert not pool.pending and not pool.failures
    assert list(pool.slots.free) == [GPU] and pool.slots.count["0"] == 2


def test_the_error_of_a_traceback_and_not_its_note_is_told(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    told = workers._last_line
    log.write_text(
        "update 1/4\nTraceback (most recent call last):\n  File 'a', line 1\n    x\nKeyError: 1\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n  File 'b', line 2\n    y\n"
        "RuntimeError: CUDA error: an illegal memory access\nCUDA kernel errors might\n\n"
        "run folder: runs/a; update 2 of 4\n"
    )
    error = "RuntimeError: CUDA error: an illegal memory access"
    assert told(log) == f"{error} (run folder: runs/a; update 2 of 4)"
    log.write_text("Traceback (most recent call last):\n  x\nKeyError: 1\ntether: no column 'a'\n")
    assert told(log) == "tether: no column 'a'"
    log.write_text("\n")
    assert told(log) == "no output"
    log.write_text(
        "tether: out of memory: CUDA\nTraceback (most recent call last):\nMemoryError:\n"
    )
    assert told(log, OUT_OF_MEMORY) == "tether: out of memory: CUDA"
    assert told(log, 1) == "MemoryError:"


def test_the_line_of_one_that_begins_again() -> None:
    slots = Slots(deque([GPU, GPU, {}]))
    assert "at most 2 run at a time on GPU 0 from now on" in crowding.told(slots, GPU)
    assert "at most 1 run at a time on this machine" in crowding.told(slots, {})
