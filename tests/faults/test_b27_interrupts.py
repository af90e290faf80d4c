"""B27: Ctrl-C and SIGTERM, sent from inside a reward function: the update is finished and saved;
the second signal ends at once; resume is the uninterrupted run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.forked import ROOT, launch
from tests.runs_for_tests import MAIN, REWARDS, make_world, mapping, numbers_of, run, settings
from tether.config.text_values import write_yaml
from tether.train import checkpoint
from tether.train.run import resume
from tether.train.signals import StopRequest

REWARD = {"rewards": {"reward": {"function": f"{REWARDS}:interrupting"}}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("b27"), layers=1)


@pytest.fixture(scope="module")
def whole(world: Path) -> dict[str, bytes]:
    return numbers_of(run(settings(world, MAIN, REWARD, name="whole")))


def train_and_signal(world: Path, name: str, signum: str, times: int) -> tuple[int, str, int]:
    """Exit code, what stderr said, process group, of a run that signals itself in update 3."""
    write_yaml(world / f"{name}.yaml", mapping(world, MAIN, REWARD, name=name))
    env = {
        "TETHER_TEST_SIGNAL": signum,
        "TETHER_TEST_UPDATE": "2",
        "TETHER_TEST_TIMES": str(times),
    }
    words = ["-m", "tether", "train", "--config", str(world / f"{name}.yaml")]
    out, errors = world / f"{name}.out", world / f"{name}.err"
    p = launch(words, out, folder=ROOT, env=env, errors=errors)
    return p.wait(), errors.read_text(), p.pid


@pytest.mark.parametrize(
    ("signum", "times", "code", "saved"),
    [("SIGINT", 1, 130, 3), ("SIGTERM", 1, 143, 3), ("SIGINT", 2, 130, 2)],
    ids=["first Ctrl-C", "SIGTERM", "second Ctrl-C"],
)
def test_from_a_reward_function(
    world: Path, whole: Any, signum: str, times: int, code: int, saved: int
) -> None:
    name = f"{signum}{times}"
    got, err, group = train_and_signal(world, name, signum, times)
    assert got == code, err
    assert "Traceback" not in err
    assert "finishing this update (an update takes" in err
    folder = world / "runs" / name
    if times == 1:
        assert err.strip().splitlines()[-1] == (
            f"tether: stopped and saved; `tether resume {folder}` goes on"
        )
    newest, skipped = checkpoint.newest(folder / "checkpoints")
    assert newest is not None and newest.name == checkpoint.name_of(saved) and skipped == []
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)  # no orphan is left in the group
    resume(folder, say=lambda _: None)
    assert numbers_of(folder) == whole


def test_a_signal_among_the_test_prompts_is_heeded(world: Path, monkeypatch: Any) -> None:
    import signal

    from tether.train import final
    from tether.train.signals import Interrupted

    change = {"data": {"test_rows": 4}, "evaluation": {"test_prompts": 4, "budgets": [1e-9, 9.0]}}
    real, asked = final._write, []

    def write(run: Any, agent: Any, weights: str, also: list[str], update: int) -> None:
        asked.append(weights)
        if weights == "final":
            os.kill(os.getpid(), signal.SIGTERM)
        real(run, agent, weights, also, update)

    chosen = settings(world, MAIN, change, name="late")
    with monkeypatch.context() as m:
        m.setattr(final, "_write", write)
        with pytest.raises(Interrupted) as caught:
            run(chosen)
    assert caught.value.code == 143 and asked == ["final"]
    folder = resume(world / "runs" / "late", say=lambda _: None)
    assert numbers_of(folder) == numbers_of(run(settings(world, MAIN, change, name="not-late")))


def test_handlers_come_back() -> None:
    import signal

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.code == 143
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
