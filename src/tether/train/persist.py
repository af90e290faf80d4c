"""A run's state: into a checkpoint, and back from the newest one that is complete."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from tether.config.errors import UserError
from tether.distributed.total import barrier, main_process
from tether.train import checkpoint
from tether.types import Clock

if TYPE_CHECKING:
    from tether.train.loop import Run


def restore(run: Run) -> list[str]:
    """Agents, clocks and candidates as they were, files cut back; a line for each checkpoint that
    was skipped. Without any the run begins again. Raises UserError for another configuration."""
    path, skipped = checkpoint.newest(run.folder / "checkpoints")
    if path is None and skipped:
        raise UserError(
            f"{run.folder} has no usable checkpoint ({'; '.join(skipped)}); to begin again remove"
            f" {run.folder / 'checkpoints'}"
        )
    if path is None:
        run.files.cut({})
        return skipped
    state = checkpoint.load(path)
    if state["config"].startswith(f"{run.config}-"):
        raise UserError(
            f"{path}: written by the files of an ejected recipe; go on with its program: python"
            f" FOLDER/run.py --resume {run.folder}"
        )
    if state["config"] != run.config:
        raise UserError(
            f"{path}: written with another configuration ({state['config']}, now {run.config});"
            " resume with the run's own config.yaml"
        )
    for a in run.agents:
        a.load_state_dict(state["agents"][a.name])
        run.clocks[a.name] = Clock(**state["clocks"][a.name])
        run.best[a.name].load_state_dict(state["best"][a.name])
    run.files.cut(state["lengths"])
    return skipped


def save(run: Run) -> None:
    """One writer; the others wait until the checkpoint stands."""
    if main_process():
        folder = run.folder / "checkpoints"
        state = {
            "config": run.config,
            "agents": {a.name: a.state_dict() for a in run.agents},
            "clocks": {k: asdict(c) for k, c in run.clocks.items()},
            "best": {k: b.state_dict() for k, b in run.best.items()},
            "lengths": run.files.lengths(),
        }
        checkpoint.save(folder, run.update, state)
        for _ in checkpoint.prune(folder, run.settings.checkpoint.keep, run.update):
            pass
        for name, b in run.best.items():
            b.forget_others(checkpoint.best_updates(folder, name))
    barrier()
