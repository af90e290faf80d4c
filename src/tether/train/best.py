"""The best validation weights under each drift budget, kept on disk until the test prompts have
seen them (evaluation protocol, section 2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from tether.core.weights import WeightSet, local
from tether.records import DRIFT, EvalPoint
from tether.train.checkpoint import save_tensors


class BestUnderBudget:
    """One candidate a budget: (update, validation reward). Update 0 is always a member, so there
    is one for every budget; its weights are the initial set's and need no copy."""

    def __init__(self, folder: Path, budgets: list[float], writes: bool) -> None:
        self.folder, self.budgets, self.writes = folder, budgets, writes
        self.best: dict[str, tuple[int, float]] = {}

    def consider(self, point: EvalPoint, policy: WeightSet) -> None:
        """Keep a copy if this common, exported validation point leads under any budget."""
        if not point.common or point.policy != "exported" or point.split != "validation":
            return
        drift, leads = point.drift[DRIFT], False
        for b in self.budgets:
            key = f"{b:g}"
            fits = drift <= b or point.update == 0
            if fits and (key not in self.best or point.reward > self.best[key][1]):
                self.best[key] = (point.update, point.reward)
                leads = True
        if leads and point.update > 0 and self.writes:
            copies = {n: host(t) for n, t in policy.items()}
            save_tensors(self.path(point.update), copies, self.folder.parent.parent)

    def path(self, update: int) -> Path:
        return self.folder / f"update_{update:06d}.safetensors"

    def forget_others(self, also: set[int]) -> None:
        """Remove copies that neither the table nor the kept checkpoints (`also`) name."""
        if not self.writes or not self.folder.exists():
            return
        wanted = {self.path(u).name for u in {u for u, _ in self.best.values()} | also}
        for file in self.folder.glob("*.safetensors"):
            if file.name not in wanted:
                file.unlink()

    def state_dict(self) -> dict[str, Any]:
        return {k: list(v) for k, v in self.best.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best = {k: (int(v[0]), float(v[1])) for k, v in state.items()}


def host(t: Tensor) -> Tensor:
    return local(t).detach().to("cpu", copy=True).contiguous()
