"""User code may use the global generators: they are seeded anew before every update, from counters,
so that a resumed run draws what the uninterrupted one would. The house itself never uses them."""

from __future__ import annotations

import random

import numpy as np
import torch

from tether.distributed.seeds import seed_of


def seed_user_code(seed: int, update: int) -> None:
    value = seed_of("user code", seed, update) % (1 << 32)
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)
