"""RL fine-tuning of language models that shows and controls what the reward costs the model.

    import tether

    def short(completions, **columns):
        return [-len(text) for text in completions]

    run = tether.train("ppo-kl", model="HuggingFaceTB/SmolLM2-135M-Instruct",
                       data="prompts.jsonl", reward=short, updates=20)
    points = tether.load_points(run)

Importing this imports no torch; `train` does.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tether.algorithms.base import Algorithm
    from tether.config.errors import UserError
    from tether.records import EvalPoint
    from tether.tethers.base import OwnData, Tether
    from tether.tethers.triggers import AllOf, AnyOf, DriftBudget, Every, Plateau, Trigger
    from tether.types import LossOutput, Move, OwnText, Targets, Until, WeightEvent

__all__ = [
    "Algorithm",
    "AllOf",
    "AnyOf",
    "DriftBudget",
    "Every",
    "LossOutput",
    "Move",
    "OwnData",
    "OwnText",
    "Plateau",
    "Targets",
    "Tether",
    "Trigger",
    "Until",
    "UserError",
    "WeightEvent",
    "load_points",
    "load_record",
    "recipe",
    "recipes",
    "resume",
    "settings",
    "train",
]

_LATER = {
    "tether.algorithms.base": ("Algorithm",),
    "tether.config.errors": ("UserError",),
    "tether.tethers.base": ("OwnData", "Tether"),
    "tether.tethers.triggers": ("AllOf", "AnyOf", "DriftBudget", "Every", "Plateau", "Trigger"),
    "tether.types": ("LossOutput", "Move", "OwnText", "Targets", "Until", "WeightEvent"),
}
"""What a file of one's own needs, imported when it is asked for: most of it needs torch."""


def settings(
    recipe: str | None = None,
    *,
    model: str | None = None,
    data: str | None = None,
    reward: str | Callable[..., Any] | Mapping[str, Any] | Any = None,
    tethers: Iterable[Any] | Mapping[str, Any] | None = None,
    config: str | Path | Iterable[str | Path] = (),
    overrides: Iterable[str] = (),
    **values: Any,
) -> Any:
    """The settings that `train` would run: recipe < config files < these values < overrides.

    model, data, reward: short forms, as on the command line; reward may be a function (of a file
    or module, so that `tether resume` finds it again), a name, an instance or {kind, ...}.
    tethers: added to the recipe's; a list of instances, or name -> instance, {kind, ...} or None.
    values: any other key of a run: `updates=20`, `sampling={"max_new_tokens": 64}`, and a dotted
    one as `**{"algorithm.lr": 1e-5}`.
    Raises tether.config.errors.UserError, one line.
    """
    from tether.config.compose import compose, from_python

    files = [config] if isinstance(config, str | Path) else list(config)
    layer = from_python(values, model=model, data=data, reward=reward, tethers=tethers)
    return compose(recipe, files, list(overrides), layer)


def _train(recipe: str | None = None, **given: Any) -> Path:
    """`tether.train(recipe, ...)`: train and return the run's folder; arguments as in `settings`.

    Mistakes in the settings, and a folder that already holds a run, are errors before anything is
    loaded.
    """
    from tether.config.checks import check_complete
    from tether.config.folder import refuse_taken

    chosen = settings(recipe, **given)
    check_complete(chosen)
    refuse_taken(chosen)
    from tether.train.run import train as run

    return run(chosen)


def resume(folder: str | Path) -> Path:
    """Go on with an interrupted run, exactly as if it had never stopped."""
    from tether.train.run import resume as go_on

    return go_on(Path(folder))


def recipe(name: str) -> dict[str, Any]:
    """The mapping of one recipe, to read or to change."""
    from tether.config.compose import recipe as mapping_of

    return mapping_of(name)


def load_record(folder: str | Path) -> list[dict[str, Any]]:
    """The complete lines of a run's record.jsonl."""
    from tether.records import read_lines

    return list(read_lines(Path(folder) / "record.jsonl"))


def load_points(folder: str | Path) -> list[EvalPoint]:
    """The evaluation points of a run: reward and drift of the same weights."""
    from tether.records import read_points

    return read_points(Path(folder) / "record.jsonl")


class _Callable(ModuleType):
    """`tether.train` is the function that users call and the package that holds the trainer: Python
    binds a package's name on its parent at import, so the package itself is made callable."""

    def __call__(self, recipe: str | None = None, **given: Any) -> Path:
        return _train(recipe, **given)


train = importlib.import_module("tether.train")  # an empty file: no torch
train.__class__ = _Callable
train.__doc__ = _train.__doc__


def __getattr__(name: str) -> Any:
    if name == "recipes":
        from tether.config.catalog import CATALOG

        for module in sorted({a.split(":")[0] for a in CATALOG["recipe"].values()}):
            importlib.import_module(module)
        return importlib.import_module("tether.recipes")
    for module, names in _LATER.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'tether' has no attribute '{name}'")
