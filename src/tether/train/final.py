"""The end of a run: test prompts for the final weights and for the best validation weights under
each budget, what `after` asks for, the clocks' account, the export, the end line."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import load_file

from tether.config.errors import UserError
from tether.core.weights import exchange_
from tether.distributed.total import barrier, main_process
from tether.models.export import export
from tether.models.lora import is_adapted
from tether.records import EvalPoint
from tether.train import self_checks
from tether.train.after import after
from tether.train.agent import Agent
from tether.train.disk import guarded
from tether.train.evaluate import evaluate
from tether.train.seeding import seed_user_code

if TYPE_CHECKING:
    from tether.train.loop import Run


def finish(run: Run) -> None:
    """Everything here is repeated from the last checkpoint if it is cut short: the end line comes
    last, since it is what calls a run complete. A clock that did not tick as it should is an error,
    raised when nothing more can be lost."""
    seed_user_code(run.settings.seed, run.update + 1)
    notes, broken = {}, []
    for a in run.agents:
        a.sets.check_base()
        clock = run.clocks[a.name]
        broken += (missed := self_checks.clocks_kept(a, clock))
        notes[a.name] = missed + self_checks.never_fired(a) + self_checks.steps_kept(a, clock)
        if a.tasks.get("test") is not None and a.evaluation.test_prompts:
            _test(run, a)
    counts = {a.name: dict(sorted(a.sets.counts.items())) for a in run.agents}
    if main_process() and run.settings.checkpoint.export:
        _export(run)
    barrier()
    for a in run.agents:
        notes[a.name] += after(run, a)
    if broken:
        raise UserError(
            f"{'; '.join(broken)}: a configured event did not happen (early stops leave optimizer"
            f" steps out); the weights are in {run.folder}, its record has no end line"
        )
    run.files.record("end", updates=run.update, counts=counts, notes=notes)
    run.files.lengths()
    if main_process():
        shutil.rmtree(run.folder / "best", ignore_errors=True)
    run.files.close()
    if run.trackers:
        run.trackers.close()


def _export(run: Run) -> None:
    with guarded("policy/", run.folder):
        for a in run.agents:
            target = run.folder / ("policy" if len(run.agents) == 1 else f"policy_{a.name}")
            export(a.lm, a.sets, target, overwrite=True)
            if is_adapted(a.lm.module):
                adapter = target.with_name(target.name.replace("policy", "adapter"))
                export(a.lm, a.sets, adapter, merged=False, overwrite=True)
            for name in a.companions:
                export(a.sets.residents[name], None, sets_folder(target, name), overwrite=True)


def sets_folder(policy: Path, name: str) -> Path:
    """Where the weights are exported that the run's constraints read, beside `policy/`: whoever
    wants to sample as the run did needs them (`integrations.masked_generation`)."""
    return policy.with_name(policy.name.replace("policy", "sets")) / name


def _test(run: Run, agent: Agent) -> None:
    """Final weights first, then each different candidate once, written for every budget it won,
    and the initial model, where every frontier begins. Without an update all of them are it."""
    table = run.best[agent.name].best
    if run.update == 0:
        _write(run, agent, "final", ["initial", *(f"budget:{b}" for b in table)], 0)
        return
    _write(run, agent, "final", [], run.update)
    for update in sorted({0} | {u for u, _ in table.values()}):
        run.heed()
        names = ["initial"] if update == 0 else []
        names += [f"budget:{b}" for b, (u, _) in table.items() if u == update]
        source = (
            agent.sets.sets["initial"]
            if update == 0
            else load_file(run.best[agent.name].path(update))
        )
        policy = agent.sets.sets["policy"]
        candidate = {n: source[n].to(t.device).clone() for n, t in policy.items()}
        exchange_(policy, candidate)
        agent.sets.publish("policy")
        try:
            _write(run, agent, names[0], names[1:], update)
        finally:
            exchange_(policy, candidate)
            agent.sets.publish("policy")


def _write(run: Run, agent: Agent, weights: str, also: list[str], update: int) -> None:
    """A candidate of earlier is evaluated under constraints only where they are still those of its
    time: no set that they read has moved."""
    points: list[EvalPoint] = []
    same = weights == "final" or set(agent.companions) <= {"initial"}
    for point, samples in evaluate(
        agent, update, "test", weights=weights, constrained=same, heed=run.between
    ):
        points.append(point)
        for row in samples:
            run.files.sample(**row)
    for name in (weights, *also):
        for point in points:
            run.files.record("eval", **asdict(replace(point, weights=name)))
