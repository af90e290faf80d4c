"""What could not have an effect, or not work, is refused before a model is loaded."""

from __future__ import annotations

import importlib.util

from tether.algorithms.base import Algorithm
from tether.config.errors import UserError
from tether.config.run import RunSettings
from tether.tethers.base import Tether
from tether.tethers.controllers import Controller
from tether.tethers.triggers import Every
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
        feeds = [s for s in t.keeps() if _readers(s, name, tethers)]
        if acts and acts <= deaf and not feeds:
            raise UserError(
                f"tethers.{name} acts on {' and '.join(sorted(acts))} only, and the algorithm"
                f" '{kind}' does not look there: it would have no effect; drop it"
                f" (--tethers.{name} null) or take another algorithm"
            )
        if t.remembers_texts and not algorithm.samples:
            raise UserError(
                f"tethers.{name} uses what was written earlier, and the algorithm '{kind}' writes"
                f" nothing: drop it (--tethers.{name} null) or take another algorithm"
            )
        if t.needs_samples() and algorithm.writer == "data":
            raise UserError(
                f"tethers.{name} is right along the policy's own samples only, and the algorithm"
                f" '{kind}' trains on demonstrations: set --tethers.{name}.estimator exact, or drop"
                f" it (--tethers.{name} null)"
            )
        adapts = [p for p in t._parts().values() if isinstance(p, Controller) and p.unit]
        if adapts and algorithm.writer != "policy":
            raise UserError(
                f"tethers.{name}.controller follows the KL along the policy's own samples, and with"
                f" the algorithm '{kind}' {algorithm.writer} writes: the coefficient would never"
                f" change; set --tethers.{name}.controller null"
            )
        unread = [s for s in t.keeps() if not (t.reads() or _readers(s, name, tethers))]
        if unread and "weights" not in acts and algorithm.writer not in unread:
            raise UserError(
                f"tethers.{name} keeps the weight set '{unread[0]}' and nothing reads it: it would"
                f" have no effect; raise --tethers.{name}.coef above 0, or add a tether that reads"
                f" it (kl or kl_loss with reference {unread[0]})"
            )
        if "sampling" in acts and settings.sampling.scored == "full":
            raise UserError(
                f"tethers.{name} narrows what is sampled, and sampling.scored is full: ratios would"
                " be of another distribution; set sampling.scored to sampled"
            )
        _idle(name, settings, algorithm, tethers)
        _unreachable(name, t, steps_of(algorithm, settings.updates))
    _whole_run(settings, algorithm)


def _idle(
    name: str, settings: RunSettings, algorithm: Algorithm, tethers: dict[str, Tether]
) -> None:
    """Settings of a tether that could not have an effect in this run."""
    t, where = tethers[name], f"tethers.{name}"
    if t.remembers_texts and settings.updates == 1:
        raise UserError(
            f"{where} uses what earlier updates wrote, and this run has one update: raise --updates"
            f" or drop it (--{where} null)"
        )
    critic = getattr(t, "critic", "keep")
    if critic != "keep" and not algorithm.needs_values:
        raise UserError(
            f"{where}.critic is {critic}, and the algorithm"
            f" '{settings.algorithm['kind']}' has no critic: set it to keep"
        )
    parts = [p for o in tethers.values() for p in o._parts().values()]
    if getattr(t, "controllers", "keep") != "keep" and not any(
        isinstance(p, Controller) for p in parts
    ):
        raise UserError(f"{where}.controllers: no tether has a controller; set it to keep")
    others = [o for o in tethers.values() if o is not t]
    if getattr(t, "at_event", "keep") != "keep" and not any("weights" in o.acts_on for o in others):
        raise UserError(f"{where}.at_event: no tether moves the policy's weights; set it to keep")
    longest, least = settings.sampling.max_new_tokens, getattr(t, "tokens", 0)
    if getattr(t, "decides_stops", False) and least > longest:
        raise UserError(
            f"{where}.tokens is {least}, more than sampling.max_new_tokens"
            f" {longest}: no completion could end; lower it"
        )


def _whole_run(settings: RunSettings, algorithm: Algorithm) -> None:
    """What no single tether is the matter of."""
    kind = settings.algorithm["kind"]
    single = settings.environment.get("kind") == "single_turn"
    if algorithm.uses_rewards and algorithm.writer == "data":
        raise UserError(
            f"algorithm.writer is data, but '{kind}' learns from rewards, which only sampled"
            " completions get: set --algorithm.writer policy or take algorithm supervised"
        )
    wanted = settings.after
    if (wanted.best_of_n or wanted.oracle) and not settings.rewards and single:
        raise UserError(
            "after.best_of_n and after.oracle choose completions by their reward, and there is"
            " none: give --reward, or drop them"
        )
    if settings.critic.start != "policy":
        if not algorithm.needs_values:
            raise UserError(
                f"critic.start: the algorithm '{kind}' has no critic, so a start of it would have"
                " no effect; drop it"
            )
        if settings.critic.kind != "separate":
            raise UserError(
                f"critic.start is a reward model, and a {settings.critic.kind} critic has no trunk"
                " of its own to start from it; set critic.kind separate"
            )
    for name in _TRACKERS if settings.logging.tensorboard else ():
        _installed("logging.tensorboard", name)
    if settings.logging.wandb:
        _installed("logging.wandb", "wandb")
    if algorithm.uses_rewards and not settings.rewards and single:
        raise UserError(
            f"rewards: the algorithm '{kind}' needs at least one; give --reward FILE.py:FUNCTION,"
            " a classifier's folder or hub id, or a built-in (`tether list`)"
        )


def _readers(kept: str, owner: str, tethers: dict[str, Tether]) -> list[str]:
    """Other tethers that look at a set which `owner` keeps."""
    return [n for n, t in tethers.items() if n != owner and kept in t.reads()]


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
                f"tethers.{name}.{path} is due first after {every.first()} {_units(every)}, and the"
                f" run ends after {getattr(end, every.unit)}: it would never happen; lower it"
                f" (--tethers.{name}.{path}.n) or raise --updates"
            )


def _units(every: Every) -> str:
    return "optimizer steps" if every.unit == "minibatch" else f"{every.unit}s"
