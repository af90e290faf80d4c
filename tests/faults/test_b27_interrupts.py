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


class Signalling:
    """Stands in for a part of an evaluation; sends SIGTERM at its call number `at` (from 1)."""

    def __init__(self, real: Any, at: int) -> None:
        self.real, self.at, self.calls = real, at, 0

    def __call__(self, *args: Any, **kw: Any) -> Any:
        import signal

        self.calls += 1
        if self.calls == self.at:
            os.kill(os.getpid(), signal.SIGTERM)
        return self.real(*args, **kw)


LONG = {
    "data": {"test_rows": 6},
    "evaluation": {"test_prompts": 6, "every": 99, "budgets": [9.0]},
    "sampling": {"chunk": 1},
    "batch": {"microbatch": 1},
    "updates": 1,
}
"""Six chunks and six microbatches a test evaluation."""


@pytest.mark.parametrize(
    ("part", "at", "left"),
    [("generate", 2, 1), ("score", 2, 1), ("reward", 2, 1)],
    ids=["while it writes", "while it scores", "while it rewards"],
)
def test_a_test_evaluation_is_left_between_its_batches(
    world: Path, monkeypatch: Any, capfd: Any, part: str, at: int, left: int
) -> None:
    """No further batch of that kind is begun; resume repeats the evaluation, bit for bit."""
    from tether.models import scoring
    from tether.rewards.combine import RewardSet
    from tether.rollout.hf import HFEngine
    from tether.train import final
    from tether.train.signals import Interrupted

    name = f"left-{part}"
    real, begun = final._write, []
    places: dict[str, tuple[Any, str]] = {
        "generate": (HFEngine, "_write"),
        "score": (scoring, "score"),
        "reward": (RewardSet, "score"),
    }
    where, attribute = places[part]
    spy = Signalling(getattr(where, attribute), at)

    def write(*given: Any) -> None:
        begun.append(given[2])
        called = (lambda *a, **k: spy(*a, **k)) if isinstance(where, type) else spy
        monkeypatch.setattr(where, attribute, called)
        real(*given)

    with monkeypatch.context() as m:
        m.setattr(final, "_write", write)
        with pytest.raises(Interrupted, match=r"stopped and saved; `tether resume .*` goes on"):
            run(settings(world, MAIN, LONG, RARE, name=name))
        monkeypatch.undo()
    assert begun == ["final"] and spy.calls <= at + left
    said = capfd.readouterr().err
    assert "stopping after this batch of the evaluation" in said
    assert "which is repeated at resume; once more to stop at once" in said
    folder = resume(world / "runs" / name, say=lambda _: None)
    whole = numbers_of(run(settings(world, MAIN, LONG, RARE, name=f"{name}-whole")))
    assert numbers_of(folder) == whole


RARE = {"tethers": {"elastic_reset": {"reset": {"n": 1}}}}
"""The reset of `MAIN` within one update."""


def test_rewards_that_have_not_begun_are_dropped(world: Path, monkeypatch: Any) -> None:
    """The first chunk's reward is slow; the signal comes while the third is written."""
    import time

    from tether.rewards.combine import RewardSet
    from tether.rollout.hf import HFEngine
    from tether.train.signals import Interrupted

    score, scored = RewardSet.score, []
    spy = Signalling(HFEngine._write, 3)

    def slowly(self: Any, batch: Any) -> Any:
        scored.append(batch)
        time.sleep(1.0)
        return score(self, batch)

    with monkeypatch.context() as m:
        m.setattr(HFEngine, "_write", lambda *a, **k: spy(*a, **k))
        m.setattr(RewardSet, "score", slowly)
        with pytest.raises(Interrupted):
            run(settings(world, MAIN, LONG, RARE, name="slow-reward"))
    assert (spy.calls, len(scored)) == (3, 1)


def test_the_first_evaluation_is_left_too(world: Path, monkeypatch: Any) -> None:
    """There is no checkpoint yet: the run begins again."""
    from tether.rollout.hf import HFEngine
    from tether.train.signals import Interrupted

    spy = Signalling(HFEngine._write, 1)
    chosen = settings(world, MAIN, LONG, RARE, name="at-first")
    with monkeypatch.context() as m:
        m.setattr(HFEngine, "_write", lambda *a, **k: spy(*a, **k))
        with pytest.raises(Interrupted, match=r"stopped before the first update; .* begins again"):
            run(chosen)
    assert spy.calls == 1
    folder = resume(world / "runs" / "at-first", say=lambda _: None)
    assert numbers_of(folder) == numbers_of(
        run(settings(world, MAIN, LONG, RARE, name="not-at-first"))
    )


def test_what_after_measures_is_left_too(world: Path, monkeypatch: Any) -> None:
    from tether.train import after_samples
    from tether.train.signals import Interrupted

    more = {"after": {"best_of_n": True, "samples": 4}, "checkpoint": {"export": False}}
    spy = Signalling(after_samples.write, 2)
    chosen = settings(world, MAIN, LONG, RARE, more, name="after-left")
    with monkeypatch.context() as m:
        m.setattr(after_samples, "write", spy)
        with pytest.raises(Interrupted):
            run(chosen)
    assert spy.calls == 2, "four blocks of one prompt each"
    folder = resume(world / "runs" / "after-left", say=lambda _: None)
    whole = run(settings(world, MAIN, LONG, RARE, more, name="after-whole"))
    assert numbers_of(folder) == numbers_of(whole)


def test_handlers_come_back() -> None:
    import signal

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.code == 143
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
