"""What is to be had without training, as points of the frontier: best-of-n and the oracle frontier
of the initial model, and the weights between the initial and the final ones.

The last step of a run where `after` asks for it, and the commands `tether baselines` and `tether
interpolate`. Source: evaluation protocol, section 3 (docs/after_training.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tether.analysis.best_of_n import best_of_n, kl_bound
from tether.analysis.oracle import LEAST_SAMPLES, oracle
from tether.analysis.reweighting import PromptSamples, Reweighted
from tether.config.errors import UserError
from tether.config.run import AfterSettings, How
from tether.core.weights import WeightSet, exchange_, snapshot, trainable
from tether.models import lora
from tether.models.interpolation import between
from tether.models.language_model import LanguageModel
from tether.models.weight_sets import WeightSets
from tether.records import DRIFT, BaselinePoint
from tether.train.after_samples import initial_samples
from tether.train.agent import Agent
from tether.train.evaluate import evaluate
from tether.types import Measured

if TYPE_CHECKING:
    from tether.train.loop import Run


class NothingScored(UserError):
    """Rewards gave no number to (enough of) the initial model's completions."""


def after(run: Run, agent: Agent) -> list[str]:
    """The steps of `settings.after`, recorded; notes for the end line on what could not be had,
    since the training that is over must not be lost for it. A run that is cut here repeats them
    from its last checkpoint, like everything else after the last update."""
    wanted, notes = run.settings.after, []
    if wanted.best_of_n or wanted.oracle:
        run.heed()
        try:
            points = baselines(agent, wanted, run.between)
        except NothingScored as e:
            points, notes = [], [f"{e}: no baseline"]
        for point in points:
            write_point(run, point)
    if wanted.interpolate:
        for point in interpolation(agent, wanted, run.update, heed=run.between):
            write_point(run, point)
            run.heed()
    return notes


def write_point(run: Run, point: BaselinePoint) -> None:
    run.files.record("baseline", **as_line(point))


def as_line(point: BaselinePoint) -> dict[str, object]:
    """Fields of a record line: an infinite lambda, and the error of a single prompt, are null."""
    return {
        k: None if isinstance(v, float) and not math.isfinite(v) else v
        for k, v in asdict(point).items()
    }


def baselines(
    agent: Agent, wanted: AfterSettings, heed: Callable[[], None] | None = None
) -> list[BaselinePoint]:
    """Best-of-n and the oracle, as far as wanted, from one set of samples.

    Raises UserError where too few completions got a score.
    """
    samples = initial_samples(agent, wanted.split, wanted.samples, wanted.prompts, heed)
    if not samples:
        raise NothingScored("after: no completion of the initial model got a score")
    out: list[BaselinePoint] = []
    if wanted.best_of_n:
        out += [_best(agent, wanted, n, m) for n, m in best_of_n(samples).items()]
    if wanted.oracle:
        enough = [s for s in samples if len(s.rewards) >= LEAST_SAMPLES]
        if not enough:
            raise NothingScored(
                f"after.oracle: no prompt has {LEAST_SAMPLES} completions with a score"
            )
        out += _oracle(agent, wanted, enough)
    return out


def _best(agent: Agent, wanted: AfterSettings, n: int, means: Reweighted) -> BaselinePoint:
    return BaselinePoint(
        agent=agent.name,
        baseline="best_of_n",
        how="",
        at=float(n),
        split=wanted.split,
        samples=wanted.samples,
        drift=kl_bound(n),
        drift_is="bound",
        valid=True,
        **_of(means),
    )


def _oracle(
    agent: Agent, wanted: AfterSettings, samples: list[PromptSamples]
) -> list[BaselinePoint]:
    return [
        BaselinePoint(
            agent=agent.name,
            baseline="oracle",
            how="",
            at=p.lam,
            split=wanted.split,
            samples=wanted.samples,
            drift=p.means.kl,
            drift_is="estimate",
            valid=p.valid,
            **_of(p.means),
        )
        for p in oracle(samples)
    ]


def _of(means: Reweighted) -> dict[str, Any]:
    return {
        "prompts": means.prompts,
        "reward": means.reward,
        "reward_se": means.reward_se,
        "judges": means.judges,
        "metrics": {
            "baseline/kl_reweighted_nats_per_seq": means.kl,
            "baseline/effective_samples": means.effective_samples,
        },
    }


def interpolation(
    agent: Agent,
    wanted: AfterSettings,
    update: int,
    prompts: int | None = None,
    heed: Callable[[], None] | None = None,
) -> Iterator[BaselinePoint]:
    """Each way of interpolating at each share, evaluated as exported weights; the agent's own
    weights are back after every point."""
    for how in wanted.how:
        here, initial, final = _ends(agent, how)
        for share in wanted.shares:
            candidate = between(how, initial, final, share)
            yield _evaluated(here, candidate, how, share, wanted, update, prompts, heed)


def _ends(agent: Agent, how: How) -> tuple[Agent, WeightSet, WeightSet]:
    """Who is evaluated, and the two ends. An arc goes between whole weights, so an adapter is
    merged for it, into copies: its product starts at 0, which has no direction."""
    if not how.startswith("slerp") or not lora.is_adapted(agent.lm.module):
        return agent, agent.sets.sets["initial"], snapshot(agent.sets.sets["policy"])
    with agent.sets.swapped_in("initial") as lm:
        start = lora.merged_copy(lm.module)
    end = snapshot(trainable(lora.merged_copy(agent.lm.module)))
    sets = WeightSets(LanguageModel(start, agent.lm.tokenizer, agent.lm.stops, agent.lm.pad))
    plain = replace(
        agent, lm=sets.lm, sets=sets, tethers={}, critic=None, draws={}, measured=Measured()
    )
    return plain, sets.sets["initial"], end


def _evaluated(
    agent: Agent,
    candidate: WeightSet,
    how: How,
    share: float,
    wanted: AfterSettings,
    update: int,
    prompts: int | None,
    heed: Callable[[], None] | None,
) -> BaselinePoint:
    policy = agent.sets.sets["policy"]
    exchange_(policy, candidate)
    agent.sets.publish("policy")
    try:
        [(point, _)] = evaluate(
            agent, update, wanted.split, weights=f"{how} {share:g}", prompts=prompts,
            constrained=False, heed=heed,
        )  # fmt: skip
    finally:
        exchange_(policy, candidate)
        agent.sets.publish("policy")
    drift = dict(point.drift)
    return BaselinePoint(
        agent=agent.name,
        baseline="interpolation",
        how=how,
        at=share,
        split=wanted.split,
        prompts=point.prompts,
        samples=1,
        drift=drift.pop(DRIFT),
        drift_is="measured",
        valid=True,
        reward=point.reward,
        reward_se=point.reward_se,
        judges=point.judges,
        metrics=drift | point.metrics,
    )
