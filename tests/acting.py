"""Settings under which each tether acts within two updates of a tiny run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

EVERY_UPDATE = {"kind": "every", "n": 1, "unit": "update"}
EVERY_STEP = {"kind": "every", "n": 1, "unit": "minibatch"}

ACTING: dict[str, Callable[[Path], dict[str, Any]]] = {
    "kl": lambda world: {"coef": 5.0},
    "kl_loss": lambda world: {"coef": 0.5},
    "elastic_reset": lambda world: {
        "reset": EVERY_UPDATE, "average": EVERY_STEP, "decay": 0.5
    },
    # not after the first update: a KL from home would be 0 in the second
    "reset_to_init": lambda world: {"reset": {"kind": "every", "n": 2, "unit": "update"}},
    "reset_to_ema": lambda world: {"reset": EVERY_UPDATE, "average": EVERY_STEP, "decay": 0.5},
    "ema_anchor": lambda world: {"coef": 5.0},
    "ref_sync": lambda world: {"every": EVERY_STEP, "coef": 5.0},
    "elastic_pull": lambda world: {"by": 0.1},
    "nlpo_mask": lambda world: {"top_p": 0.9, "refresh": EVERY_UPDATE},
    "rehearsal": lambda world: {
        "data": {"path": str(world / "prompts.jsonl"), "reference": "reference"},
        "rows": 4,
        "tokens": 5,
    },
    "replay": lambda world: {"rows": 2},
    "min_length": lambda world: {"tokens": 4, "stop_ids": list(range(64, 192))},
}  # fmt: skip
"""tether -> world folder -> settings without `kind`."""
