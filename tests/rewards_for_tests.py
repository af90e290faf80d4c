"""Reward functions that runs in other processes find by name."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve()


def low(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Share of ids below 100: a random model scores about .4, a trained one 1."""
    return [sum(t < 100 for t in ids) / len(ids) for ids in completion_ids]


def noisy(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """`low` with noise from every global generator that user code may read."""
    out = []
    for x in low(completion_ids):
        out.append(x + 0.1 * (random.random() + float(np.random.rand()) + float(torch.rand(()))))
    return out


def _update(trainer_state: Any) -> int | None:
    """Update that the samples train, or None in an evaluation."""
    return None if hasattr(trainer_state, "evaluation") else int(trainer_state.global_step)


def interrupting(completion_ids: list[list[int]], trainer_state: Any, **_: Any) -> list[float]:
    """`noisy`; sends TETHER_TEST_SIGNAL, once or twice, during update TETHER_TEST_UPDATE."""
    wanted = os.environ.get("TETHER_TEST_UPDATE")
    if wanted is not None and _update(trainer_state) == int(wanted):
        for _i in range(int(os.environ.get("TETHER_TEST_TIMES", "1"))):
            os.kill(os.getpid(), getattr(signal, os.environ["TETHER_TEST_SIGNAL"]))
            if os.environ.get("TETHER_TEST_TIMES") == "2":
                import time

                time.sleep(0.2)  # the main thread handles the first one meanwhile
    return noisy(completion_ids)


def spoilt(completion_ids: list[list[int]], trainer_state: Any, **_: Any) -> list[float]:
    """NaN in the second update unless TETHER_TEST_HEALED is set."""
    out = noisy(completion_ids)
    if _update(trainer_state) == 1 and not os.environ.get("TETHER_TEST_HEALED"):
        out[1] = float("nan")
    return out


def per_token(completion_ids: list[list[int]], **_: Any) -> list[list[float]]:
    """1 for each id below 100."""
    return [[float(t < 100) for t in ids] for ids in completion_ids]


def one_too_few(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return low(completion_ids)[1:]


def silent(completion_ids: list[list[int]], **_: Any) -> list[None]:
    """No number for any sample."""
    return [None] * len(completion_ids)
