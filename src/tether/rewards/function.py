"""A Python function as a reward, called exactly as TRL 1.16 calls it.

Source of the convention: trl 1.16.0, trl/trainer/grpo_trainer.py `_calculate_rewards` and
trl/trainer/utils.py `is_async_callable`: keywords prompts, completions, completion_ids, every
dataset column but prompt, completion and completion_ids, trainer_state, log_extra, log_metric.
Beyond TRL: what the function does not accept is not passed, and `finished` is passed to a function
that names it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tether.config.errors import UserError
from tether.rewards.base import Reward
from tether.rewards.batch import ARGUMENTS, TAKEN, RewardBatch
from tether.rewards.resolve import resolve

_NAMED = (*ARGUMENTS, "finished")


def is_async_callable(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine: functions, partials, objects with async `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  the method itself is wanted
    )


def function_name(function: Callable[..., Any]) -> str:
    """Readable name of functions, partials and callable objects."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


@dataclass
class FunctionReward(Reward):
    """`function(prompts=..., completions=..., completion_ids=..., **columns) -> n values`."""

    function: Any = ""
    """`file.py:function`, `module:function` or `pkg.mod.function`; in Python also the function."""
    factory: dict[str, Any] | None = None
    """Where the name is a factory (trl.rewards.get_soft_overlong_punishment): its arguments; what
    it returns is the reward function."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Further fixed keyword arguments of every call."""

    wraps: ClassVar[bool] = True

    @functools.cached_property
    def callable(self) -> Callable[..., Any]:
        """The function itself, read once. Raises UserError."""
        if self.function == "":
            raise UserError("a function reward needs `function`: file.py:function")
        found = resolve(self.function) if isinstance(self.function, str) else self.function
        if self.factory is not None:
            try:
                found = found(**self.factory)
            except Exception as error:
                raise UserError(
                    f"reward function {self.function!r}: its factory fails with "
                    f"{self.factory}: {type(error).__name__}: {error}"
                ) from error
        if not callable(found):
            raise UserError(f"reward function {self.source}: {found!r} is not callable")
        return found

    @property
    def source(self) -> str:
        if isinstance(self.function, str):
            return self.function
        return function_name(self.function)

    @functools.cached_property
    def is_async(self) -> bool:
        return is_async_callable(self.callable)

    @functools.cached_property
    def _parameters(self) -> dict[str, inspect.Parameter] | None:
        """None where the signature cannot be read: then everything is passed."""
        try:
            return dict(inspect.signature(self.callable).parameters)
        except (TypeError, ValueError):
            return None

    @property
    def _takes_all(self) -> bool:
        kinds = self._parameters
        return kinds is None or any(p.kind is p.VAR_KEYWORD for p in kinds.values())

    def needs(self) -> tuple[str, ...]:
        """Parameters without a default that only a dataset column can fill."""
        given = {*_NAMED, *self.arguments}
        return tuple(
            name
            for name, p in (self._parameters or {}).items()
            if p.default is p.empty
            and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
            and name not in given
        )

    def check(self) -> None:
        """Importable, callable, and callable by keyword. Raises UserError."""
        for name, p in (self._parameters or {}).items():
            if p.kind is p.POSITIONAL_ONLY and p.default is p.empty:
                raise UserError(
                    f"reward function {self.source}: parameter {name!r} is positional-only; "
                    "rewards are called with keyword arguments"
                )
        self.callable  # noqa: B018  raises where the name cannot be read
        if not self._takes_all:
            unknown = set(self.arguments) - set(self._parameters or {})
            if unknown:
                raise UserError(
                    f"reward function {self.source} takes no argument {sorted(unknown)[0]!r}"
                )

    def __call__(self, batch: RewardBatch) -> Sequence[Any]:
        # User code may change the lists it is given; nobody else must see that.
        columns = {k: list(v) for k, v in batch.columns.items() if k not in TAKEN}
        everything: dict[str, Any] = (
            columns
            | {
                "prompts": list(batch.prompts),
                "completions": batch.trl_completions,
                "completion_ids": [list(ids) for ids in batch.completion_ids],
                "trainer_state": batch.trainer_state,
                "log_extra": batch.log_extra,
                "log_metric": batch.log_metric,
            }
            | self.arguments
        )
        names = self._parameters or {}
        if not self._takes_all:
            everything = {k: v for k, v in everything.items() if k in names}
        if "finished" in names and "finished" not in everything:
            everything["finished"] = batch.finished
        return self.callable(**everything)  # type: ignore[no-any-return]
