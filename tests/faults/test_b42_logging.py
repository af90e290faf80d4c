"""B42: a mirror that fails is a warning; what JSON cannot hold is null and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runs_for_tests import MAIN, lines, make_world, numbers_of, run, settings
from tether.train import trackers
from tether.train.files import NON_FINITE, RunFiles
from tether.train.run import resume
from tether.train.trackers import Trackers


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("b42"), layers=1)


def test_a_back_end_that_raises_on_call_3(world: Path, monkeypatch: Any) -> None:
    calls: list[str] = []

    def backend(_folder: Path) -> Any:
        def put(name: str, value: float, update: int) -> None:
            calls.append(name)
            if len(calls) == 3:
                raise ConnectionError("the service is away")

        return put, lambda: calls.append("closed")

    monkeypatch.setattr(trackers, "_tensorboard", backend)
    with pytest.warns(UserWarning, match="tensorboard stopped taking values .ConnectionError: the"):
        folder = run(settings(world, MAIN, name="mirrored", logging={"tensorboard": True}))
    assert len(calls) == 3, "a broken mirror is left alone"
    plain = run(settings(world, MAIN, name="plain"))
    assert numbers_of(folder) == numbers_of(plain)


def test_a_back_end_that_does_not_start(world: Path, monkeypatch: Any) -> None:
    def backend(_folder: Path) -> Any:
        raise OSError("read-only")

    monkeypatch.setattr(trackers, "_tensorboard", backend)
    with pytest.warns(UserWarning, match="tensorboard stopped .*OSError: read-only"):
        folder = run(settings(world, name="unstarted", updates=1, logging={"tensorboard": True}))
    assert lines(folder)[-1]["kind"] == "end"


def test_mirrors_get_what_the_record_holds(world: Path, monkeypatch: Any) -> None:
    seen: dict[tuple[str, int], float] = {}
    monkeypatch.setattr(
        trackers,
        "_tensorboard",
        lambda _: (lambda n, v, u: seen.__setitem__((n, u), v), lambda: None),
    )
    folder = run(settings(world, name="mirror", updates=2, logging={"tensorboard": True}))
    rows = [x for x in lines(folder) if x["kind"] == "update"]
    assert all(seen[k, x["update"]] == v for x in rows for k, v in x["metrics"].items())
    point = lines(folder)[1]
    assert seen["validation/reward", 0] == point["reward"]


def test_non_finite_numbers_are_null_and_counted(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    files.record("update", update=1, metrics={"a": float("nan"), "b": [1.0, float("-inf")]})
    files.record("update", update=2, metrics={"a": 1.0})
    files.sample(score=float("inf"))
    files.close()
    first, second = lines(tmp_path)
    assert first["metrics"] == {"a": None, "b": [1.0, None], NON_FINITE: 2.0}
    assert second["metrics"] == {"a": 1.0}
    assert json.loads((tmp_path / "samples.jsonl").read_text()) == {"score": None}


def test_half_a_surrogate_pair_that_a_reward_logs_ends_no_run(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    files.sample(extra={"note": "a\ud83d", "more": "größer"})
    files.close()
    kept = json.loads((tmp_path / "samples.jsonl").read_text(encoding="utf-8"))
    assert kept == {"extra": {"note": "a?", "more": "größer"}}


def test_no_mirror_sees_a_non_finite_number(world: Path, monkeypatch: Any) -> None:
    seen: list[str] = []
    monkeypatch.setattr(
        trackers, "_tensorboard", lambda _: (lambda n, v, u: seen.append(n), lambda: None)
    )
    t = Trackers(settings(world, logging={"tensorboard": True}), world)
    for name, value in (("a", 1.0), ("b", float("nan")), ("c", float("inf")), ("d", None)):
        t.put(name, value, 1)
    assert seen == ["a"]


def test_one_file_with_rising_steps_after_a_resume(world: Path) -> None:
    def cut(done: int, _total: int, _words: str) -> None:
        if done == 3:  # the checkpoint is of update 2: update 3 is written twice
            raise KeyboardInterrupt

    chosen = settings(world, MAIN, name="resumed")
    with pytest.raises(KeyboardInterrupt):
        run(chosen, progress=cut)
    resume(world / "runs" / "resumed", say=lambda _: None)
    rows = lines(world / "runs" / "resumed")
    assert [x["update"] for x in rows if x["kind"] == "update"] == [1, 2, 3, 4, 5, 6]
    assert [x["kind"] for x in rows].count("start") == 1
    assert sorted(p.name for p in (world / "runs" / "resumed").glob("*.jsonl")) == [
        "record.jsonl",
        "samples.jsonl",
        "timing.jsonl",
    ]
