"""A recording and what threads do on the device exclude each other."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tether.core import gate
from tether.core.gate import alone, beside

SECONDS = 20.0


@pytest.fixture(autouse=True)
def nobody_left() -> None:
    assert gate._beside == 0 and not gate._alone


def test_a_recording_waits_for_threads_at_work_and_they_for_it() -> None:
    seen: list[str] = []
    inside, leave, recording, end = (threading.Event() for _ in range(4))

    def first() -> None:
        with beside():
            inside.set()
            leave.wait(SECONDS)
            seen.append("first")

    def record() -> None:
        with alone():
            seen.append("recording")
            recording.set()
            end.wait(SECONDS)
            seen.append("recorded")

    def second() -> None:
        with beside():
            seen.append("second")

    threads = [threading.Thread(target=f) for f in (first, record, second)]
    threads[0].start()
    assert inside.wait(SECONDS)
    threads[1].start()
    while not gate._alone:  # it waits for the first; who comes now, waits for it
        time.sleep(0.001)
    threads[2].start()
    time.sleep(0.05)
    assert seen == []
    leave.set()
    assert recording.wait(SECONDS)
    time.sleep(0.05)
    assert seen == ["first", "recording"]
    end.set()
    for t in threads:
        t.join(SECONDS)
    assert seen == ["first", "recording", "recorded", "second"]


def test_threads_do_not_wait_for_each_other() -> None:
    together = threading.Barrier(2, timeout=SECONDS)

    def work() -> None:
        with beside():
            together.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(SECONDS)
    assert not together.broken


def test_an_error_within_opens_the_gate_again() -> None:
    for kind in (alone, beside):
        with pytest.raises(ValueError, match="within"), kind():
            raise ValueError("within")
    with alone():
        pass
    with beside():
        pass


@pytest.mark.parametrize("outer", [alone, beside])
@pytest.mark.parametrize("inner", [alone, beside])
def test_a_thread_does_not_wait_for_itself(outer: Any, inner: Any) -> None:
    with outer(), pytest.raises(RuntimeError, match="would wait for itself"), inner():
        raise AssertionError("not reached")
    with inner():
        pass


def test_one_recording_at_a_time() -> None:
    second = threading.Event()

    def record() -> None:
        with alone():
            second.set()

    with alone():
        thread = threading.Thread(target=record)
        thread.start()
        assert not second.wait(0.05)
    thread.join(SECONDS)
    assert second.is_set()


def test_interrupted_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def interrupted(*_: object) -> bool:
        calls.append(1)
        if len(calls) == 2:  # of the threads at work, with the gate closed
            raise KeyboardInterrupt
        return True

    with monkeypatch.context() as m:
        m.setattr(gate._changed, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt), alone():
            raise AssertionError("not reached")
    with beside():
        pass
