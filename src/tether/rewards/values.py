"""What a reward returned -> plain floats, or an error naming reward, sample and prompt (B29)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any

from tether.config.errors import UserError
from tether.rewards.base import Reward
from tether.rewards.batch import RewardBatch

Value = float | list[float] | None


def label(name: str, reward: Reward) -> str:
    """`reward 'x' (file.py:function)`"""
    return f"reward {name!r} ({reward.source})"


def fault(name: str, reward: Reward, batch: RewardBatch, i: int, what: str) -> UserError:
    """One line: which reward, which sample, its prompt's beginning, what came back."""
    return UserError(
        f"{label(name, reward)}, sample {i + 1} of {len(batch)}, "
        f"prompt {batch.beginning(i)}: {what}"
    )


def _short(value: Any, length: int = 60) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= length else text[:length] + "..."


def plain(value: Any) -> Any:
    """Arrays and tensors (numpy, torch, anything with `tolist`) as Python numbers and lists."""
    return value.tolist() if hasattr(value, "tolist") else value


LARGEST = 1e18
"""Squares and sums over a batch of such numbers still fit fp32."""


def as_float(value: Real) -> float:
    """A number as float; infinite where it is too large to train on."""
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    if math.isnan(number) or abs(number) <= LARGEST:
        return number
    return math.copysign(math.inf, number)


def collect(returned: Any, name: str, reward: Reward, batch: RewardBatch) -> list[Value]:
    """n values of one reward. Non-finite numbers are an error, or None where `missing` is drop."""
    n = len(batch)
    returned = plain(returned)
    if isinstance(returned, str | bytes | dict) or not isinstance(returned, Iterable):
        raise UserError(
            f"{label(name, reward)} returned {_short(returned)} ({type(returned).__name__}) for "
            f"{n} samples, the first with prompt {batch.beginning(0)}; return a list of {n} numbers"
        )
    values = list(returned)
    if len(values) != n:
        odd = min(len(values), n - 1)
        raise fault(
            name,
            reward,
            batch,
            odd,
            f"returned {len(values)} values for {n} samples; return "
            "one number, None or list for each completion",
        )
    return [_value(v, name, reward, batch, i) for i, v in enumerate(values)]


def _value(raw: Any, name: str, reward: Reward, batch: RewardBatch, i: int) -> Value:
    value = plain(raw)
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return _tokens(value, name, reward, batch, i)
    if not isinstance(value, Real):
        raise fault(
            name,
            reward,
            batch,
            i,
            f"returned {_short(raw)} ({type(raw).__name__}); return a number, None or a list",
        )
    number = as_float(value)
    if math.isfinite(number):
        return number
    if reward.missing == "drop":
        return None
    raise fault(
        name,
        reward,
        batch,
        i,
        f"returned {_short(raw)}; return a finite number of at most {LARGEST:g}, or None where the "
        "reward does not apply "
        "(missing: drop leaves such samples out)",
    )


def _tokens(
    value: list[Any] | tuple[Any, ...], name: str, reward: Reward, batch: RewardBatch, i: int
) -> list[float] | None:
    want = len(batch.completion_ids[i])
    if len(value) != want:
        raise fault(
            name,
            reward,
            batch,
            i,
            f"returned a list of {len(value)} token rewards for a completion of {want} tokens; "
            "return one for each of its completion_ids",
        )
    numbers = []
    for t, raw in enumerate(value):
        item = plain(raw)
        if not isinstance(item, Real):
            raise fault(
                name,
                reward,
                batch,
                i,
                f"returned {_short(raw)} ({type(raw).__name__}) for token {t + 1}; return numbers",
            )
        numbers.append(as_float(item))
    if all(math.isfinite(x) for x in numbers):
        return numbers
    if reward.missing == "drop":
        return None
    bad = next(t for t, x in enumerate(numbers) if not math.isfinite(x))
    raise fault(
        name,
        reward,
        batch,
        i,
        f"returned {_short(value[bad])} for token {bad + 1}; return finite numbers, or None for a "
        "completion to which the reward does not apply",
    )
