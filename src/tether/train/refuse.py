"""What could not have an effect, or not work, is refused before a model is loaded."""

from __future__ import annotations

import importlib.util

from tether.algorithms.base import Algorithm
from tether.config.errors import UserError
from tether.config.run import RunSettings
from tether.tethers.base import Tether
from tether.train.agent import check_sets
from tether.types import Clock


def steps_of(algorithm: Algorithm, updates: int) -> Clock:
    """The clock at the end of a run without early stops (B19)."""
    minibatch = epoch = 0
    for u in range(updates):
        a = algorithm.at(u)
        epoch += a.epochs
        minibatch += a.epochs * a.minibatches
    return Clock(minibatch=minibatch, epoch=epoch, update=updates)


def refuse(settings: RunSettings, algorithm: Algorithm, tethers: dict[str, Tether]) -> None:
    """Raises UserError with the setting, the reason and the mend."""
    check_sets(tethers, [algorithm.writer])
    kind = settings.algorithm["kind"]
    for name, t in tethers.items():
        acts = set(t.acts_on)
        if not acts:
            raise UserError(
                f"tethers.{name}: {type(t).__name__} declares no place where it acts; set the class"
                " variable acts_on to a subset of reward, sampling, loss, weights, text"
            )
        deaf = set()
        if not algorithm.uses_rewards:
            deaf.add("reward")
        if not algorithm.samples:
            deaf.add("sampling")
        if acts and acts <= deaf:
            raise UserError(
                f"tethers.{name} acts on {' and '.join(sorted(acts))} only, and the algorithm"
                f" '{kind}' does not look there: it would have no effect; drop it"
                f" (--tethers.{name} null) or take another algorithm"
            )
        _unreachable(name, t, steps_of(algorithm, settings.updates))
    if algorithm.uses_rewards and algorithm.writer == "data":
        raise UserError(
            f"algorithm.writer is data, but '{kind}' learns from rewards, which only sampled"
            " completions get: set --algorithm.writer policy or take algorithm supervised"
        )
    for name in _TRACKERS if settings.logging.tensorboard else ():
        _installed("logging.tensorboard", name)
    if settings.logging.wandb:
        _installed("logging.wandb", "wandb")
    single = settings.environment.get("kind") == "single_turn"
    if algorithm.uses_rewards and not settings.rewards and single:
        raise UserError(
            f"rewards: the algorithm '{kind}' needs at least one; give --reward FILE.py:FUNCTION,"
            " a classifier's folder or hub id, or a built-in (`tether list`)"
        )


_TRACKERS = ("tensorboard",)


def _installed(setting: str, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UserError(
            f"{setting} needs the package {package}: pip install 'tether-rl[{package}]'"
        )


def _unreachable(name: str, t: Tether, end: Clock) -> None:
    """A reset, refresh or sync that the run is too short to reach."""
    for path, every in t.clocked().items():
        if every.expected(end) == 0:
            raise UserError(
                f"tethers.{name}.{path} is due first after {every.first()} {every.unit}s, and the"
                f" run ends after {getattr(end, every.unit)}: it would never happen; lower it"
                f" (--tethers.{name}.{path}.n) or raise --updates"
            )
