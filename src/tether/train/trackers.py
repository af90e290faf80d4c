"""Mirrors of the record: TensorBoard and Weights & Biases. A mirror's failure is a warning, once;
the record goes on (B42)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tether.config.errors import UserError
from tether.config.run import RunSettings
from tether.records import EvalPoint

Put = Callable[[str, float, int], None]
"""(name, value, update)"""


def _tensorboard(folder: Path) -> tuple[Put, Callable[[], None]]:
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError as e:
        raise UserError(
            "logging.tensorboard needs the package tensorboard:"
            " pip install 'tether-rl[tensorboard]'"
        ) from e
    writer = SummaryWriter(str(folder / "tensorboard"))
    return writer.add_scalar, writer.close


def _wandb(settings: RunSettings, folder: Path) -> tuple[Put, Callable[[], None]]:
    try:
        import wandb
    except ImportError as e:
        raise UserError(
            "logging.wandb needs the package wandb: pip install 'tether-rl[wandb]'"
        ) from e
    # The id is the run's name: a resumed run goes on in the same one.
    run = wandb.init(
        project=settings.logging.wandb, id=settings.name, name=settings.name, resume="allow",
        dir=str(folder),
    )  # fmt: skip
    return (lambda name, value, update: run.log({name: value, "update": update})), run.finish


class Trackers:
    """All mirrors of one run."""

    def __init__(self, settings: RunSettings, folder: Path) -> None:
        self._mirrors: dict[str, tuple[Put, Callable[[], None]]] = {}
        wanted: dict[str, Callable[[], Any]] = {}
        if settings.logging.tensorboard:
            wanted["tensorboard"] = lambda: _tensorboard(folder)
        if settings.logging.wandb:
            wanted["wandb"] = lambda: _wandb(settings, folder)
        for name, start in wanted.items():
            self._guard(name, lambda start=start, name=name: self._mirrors.update({name: start()}))

    def _guard(self, name: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except UserError:
            raise
        except Exception as e:
            self._mirrors.pop(name, None)
            warnings.warn(
                f"{name} stopped taking values ({type(e).__name__}: {e}); record.jsonl goes on",
                stacklevel=3,
            )

    def put(self, name: str, value: float | None, update: int) -> None:
        if value is None or not math.isfinite(value):
            return  # null in the record, and counted there
        for mirror, (call, _) in list(self._mirrors.items()):
            self._guard(mirror, lambda call=call: call(name, value, update))

    def update(self, update: int, metrics: dict[str, float], seconds: dict[str, float]) -> None:
        for k, v in metrics.items():
            self.put(k, v, update)
        for k, v in seconds.items():
            self.put(f"seconds/{k}", v, update)

    def point(self, point: EvalPoint) -> None:
        end = f"_{point.side}" if point.side else ""
        where = f"{point.split}{end}{'' if point.policy == 'exported' else '_constrained'}"
        self.put(f"{where}/reward", point.reward, point.update)
        for group in (point.scores, point.judges, point.drift, point.metrics):
            for k, v in group.items():
                self.put(f"{where}/{k}", v, point.update)

    def close(self) -> None:
        for mirror, (_, close) in list(self._mirrors.items()):
            self._guard(mirror, close)
