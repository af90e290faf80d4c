"""B09: an alarm names the broken invariant, the first differing token and a cause; an early stop
takes no half step and counts what it left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.runs_for_tests import agent_of, collected, lines, make_world, metrics, run, settings
from tether.config.run import SamplingSettings
from tether.rollout.hf import HFEngine
from tether.train import self_checks
from tether.train.build import build_parts
from tether.train.update import PolicyLearner
from tether.types import Clock, Experience, Rollout, Scores, Sequences


@dataclass(frozen=True, kw_only=True)
class NoEnd(HFEngine):
    """Suppresses EOS in sampling and tells nobody: `lies` also hides it in the log-probs."""

    lies: bool = False

    def generate(
        self, lm: Any, prompts: Any, row: Any, group: Any, sampling: Any, *a: Any, **k: Any
    ) -> Iterator[Rollout]:  # type: ignore[override]
        narrowed = replace(sampling, min_new_tokens=sampling.max_new_tokens)
        for r in super().generate(lm, prompts, row, group, narrowed, *a, **k):
            yield replace(r, allowed=None)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("b09"))


def test_eos_suppressed_in_sampling_only_is_named(world: Path) -> None:
    """Policy and reference are equal: a KL alarm could not see it."""
    chosen = settings(world, name="suppressed")
    parts = replace(build_parts(chosen), engine=NoEnd())
    with pytest.raises(RuntimeError) as caught:
        run(chosen, parts=parts)
    text = str(caught.value)
    assert "engine and scoring disagree on a sampled token's log-prob" in text
    assert "first at sequence 0, position 0 (token" in text
    assert "a minimum length that suppresses EOS" in text and "likelier in sampling" in text


def test_another_temperature_is_not_called_a_minimum_length(world: Path) -> None:
    class Hot(HFEngine):
        def generate(
            self, lm: Any, prompts: Any, row: Any, group: Any, sampling: Any, *a: Any, **k: Any
        ) -> Iterator[Rollout]:  # type: ignore[override]
            yield from super().generate(
                lm, prompts, row, group, replace(sampling, temperature=2.0), *a, **k
            )

    chosen = settings(world, name="hot")
    parts = replace(build_parts(chosen), engine=Hot())
    with pytest.raises(RuntimeError, match="use different distributions \\(temperature"):
        run(chosen, parts=parts)


def two_letters(
    eos: float, home: float, n: int, suppressed: bool = False, share: float | None = None
) -> Experience:
    """n completions of one token from {EOS, a}: policy p(EOS) = eos, reference p(EOS) = home.
    share: of EOS among the samples, where it is not the policy's."""
    ends = torch.zeros(n, dtype=torch.bool)
    if not suppressed:
        ends[: round((eos if share is None else share) * n)] = True
    mask = torch.ones(n, 1, dtype=torch.bool)

    def logp(p: float) -> torch.Tensor:
        two = torch.tensor([p, 1 - p]).log()
        return torch.where(ends, two[0], two[1])[:, None]

    ids = torch.where(ends, 0, 1)[:, None]
    s = Sequences(ids, mask, ids, mask)
    zero = torch.zeros(n, dtype=torch.long)
    rollout = Rollout(s, mask, zero, zero, ends, logprobs=logp(eos))
    old = Scores(logp(eos), logp(eos))
    home_scores = {"initial": Scores(logp(home), logp(home))}
    return Experience(rollout, zero.float(), mask.float(), old, home_scores)


def agent(**sampling: Any) -> Any:
    return SimpleNamespace(constraints=[], sampling=SamplingSettings(**sampling), version=3)


def test_a_mean_kl_far_below_zero_is_an_alarm() -> None:
    """log .5 - log .9 = -.588 on every sample where EOS is never drawn."""
    with pytest.raises(RuntimeError) as caught:
        self_checks.stays_positive(agent(), two_letters(0.5, 0.1, 64, suppressed=True))
    text = str(caught.value)
    assert "is -0.588 nats per sequence" in text and "below 0" in text
    assert "worst sequence 0, position 0, token 1" in text and "suppressed EOS" in text


def test_three_standard_errors_are_the_limit() -> None:
    """20 % EOS where the policy says 50 %: mean .2 * 1.609 - .8 * .588 = -.148, sd .88; three
    standard errors are .33 of 64 samples and .104 of 640."""
    self_checks.stays_positive(agent(), two_letters(0.5, 0.1, 64, share=0.2))
    with pytest.raises(RuntimeError, match=r"is -0\.148 nats per sequence"):
        self_checks.stays_positive(agent(), two_letters(0.5, 0.1, 640, share=0.2))


@pytest.mark.parametrize(
    ("eos", "home", "n", "suppressed", "sampling"),
    [
        (0.5, 0.1, 64, False, {}),  # healthy: half of the tokens have a negative log ratio
        (0.5, 0.9, 64, True, {}),  # positive
        (0.5, 0.1, 31, True, {}),  # too few to tell
        (0.5, 0.1, 64, True, {"min_new_tokens": 1}),  # narrowed on purpose: another quantity
        (0.5, 0.1, 64, True, {"top_p": 0.9, "scored": "full"}),
        (0.5, 0.1, 64, True, {"temperature": 0.7}),
    ],
)
def test_no_alarm(eos: float, home: float, n: int, suppressed: bool, sampling: Any) -> None:
    self_checks.stays_positive(agent(**sampling), two_letters(eos, home, n, suppressed))


def test_every_rollout_is_checked(world: Path, monkeypatch: Any) -> None:
    seen: list[int] = []
    monkeypatch.setattr(self_checks, "stays_positive", lambda a, e: seen.append(a.version))
    run(settings(world, name="seen", updates=3))
    assert seen == [0, 1, 2]


def test_an_early_stop_takes_no_half_step(world: Path) -> None:
    """4 steps planned an update; the second one already passes a tiny target."""
    change = {"algorithm": {"target_kl": 1e-9, "lr": 1e-2}}
    folder = run(settings(world, change, name="stop", updates=3))
    assert [m["update/steps_not_taken"] for m in metrics(folder)] == [3.0] * 3
    end = lines(folder)[-1]
    assert end["notes"]["agent"] == [
        "3 of 12 planned optimizer steps taken, 9 left out by early stops"
    ]


def test_a_discarded_gradient_leaves_nothing(world: Path) -> None:
    chosen = settings(world)
    a = agent_of(chosen)
    e = collected(a)
    learner = PolicyLearner(a, a.algorithm, lambda unit: [], Clock, 0)
    learner.accumulate(learner.whole(e, a.algorithm.advantages(e, lambda x: x)))
    assert any(p.grad is not None and p.grad.any() for p in learner.parameters)
    learner.discard()
    assert all(p.grad is None for p in learner.parameters)
    assert a.not_taken == 4 and learner.log["update/steps_not_taken"] == 4.0
