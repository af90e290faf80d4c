"""Every algorithm with every tether, and pairs of tethers, causal and encoder-decoder.

    python -m tests.composition            # all, two processes; prints `N run, M refused`
    python -m tests.composition --third 0  # the third that the default tests run

Each combination runs two updates with settings under which its tethers act within them. It fails
when it raises anything but a refusal, when an invariant is broken, or when a tether did not act:
the run without that tether left the same weights and the same measurements.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.acting import ACTING
from tether.config.catalog import names

KINDS = {"causal": "gpt2", "encoder-decoder": "t5"}
PAIRS: tuple[tuple[str, ...], ...] = (
    ("kl@ema", "elastic_reset"),
    ("nlpo_mask", "elastic_reset"),
    ("replay", "elastic_reset"),
    ("rehearsal", "kl_loss"),
    ("nlpo_mask", "kl"),
    ("ema_anchor", "elastic_reset"),
    ("kl", "rehearsal", "reset_to_init"),
    ("ref_sync", "elastic_pull"),
    ("elastic_pull", "kl"),
    ("replay", "nlpo_mask"),
    ("reset_to_ema", "kl_loss"),
    ("min_length", "nlpo_mask"),
)
"""`kl@ema` = the kl tether with the average of Elastic Reset as its reference."""
ALGORITHMS: dict[str, dict[str, Any]] = {
    "trpo": {"minibatches": 1, "cg_steps": 4, "critic_epochs": 2, "critic_minibatches": 2},
    "rloo": {"group_size": 2},
    "grpo": {"group_size": 2},
    "best_of_n": {"group_size": 2},
    "filtered_supervised": {"group_size": 2},
}
"""Settings of an algorithm that its default would make slow or impossible here."""


@dataclass(frozen=True)
class Combination:
    algorithm: str
    tethers: tuple[str, ...]
    model: str

    def __str__(self) -> str:
        return f"{self.algorithm} + {' + '.join(self.tethers) or 'nothing'} ({self.model})"


def combinations() -> list[Combination]:
    """All of them, in a fixed order."""
    sets = [(t,) for t in names("tether")] + list(PAIRS)
    return [
        Combination(algorithm, tethers, model)
        for model in KINDS
        for tethers in sets
        for algorithm in names("algorithm")
    ]


def settings_of(c: Combination, world: Path, without: str | None = None) -> dict[str, Any]:
    """Settings of a run; `without` leaves a tether out."""
    from tests.runs_for_tests import REWARDS, mapping

    algorithm = {"kind": c.algorithm, "lr": 5e-3, "epochs": 1, "minibatches": 2}
    algorithm |= ALGORITHMS.get(c.algorithm, {})
    tethers = {}
    for name in c.tethers:
        kind, _, reference = name.partition("@")
        if name == without:
            continue
        tethers[kind] = {"kind": kind, **ACTING[kind](world)}
        if reference:
            # without the tether that keeps the reference there is nothing to read
            tethers[kind]["reference"] = reference if without is None else "initial"
    return mapping(
        world,
        {"tethers": tethers, "rewards": {"reward": {"function": f"{REWARDS}:low"}}},
        algorithm=algorithm,
        updates=2,
        evaluation={"every": 2, "prompts": 4, "human_rows": 0, "samples": 0},
        checkpoint={"every": 0, "export": False},
    )


def run_one(c: Combination, world: Path, without: str | None = None) -> dict[str, Any]:
    """Two updates in this process: the final weights, the samples' ids, what moved. Raises
    UserError for a refusal and AssertionError for a broken invariant."""
    import torch

    from tests.runs_for_tests import config_of
    from tether.config.settings import parse
    from tether.core.weights import snapshot
    from tether.train.build import build_agent, build_parts, check_data
    from tether.train.loop import Run

    chosen = parse(settings_of(c, world, without), "composition")
    parts = build_parts(chosen)
    check_data(chosen, parts)
    agent = build_agent(chosen, parts)
    initial = {n: t.clone() for n, t in snapshot(agent.sets.sets["initial"]).items()}
    with tempfile.TemporaryDirectory() as folder:
        run = Run([agent], Path(folder), chosen, config_of(chosen))
        run.run()
        from tether.records import read_lines

        record = list(read_lines(Path(folder) / "record.jsonl"))
    for name, tensor in agent.sets.sets["initial"].items():
        assert torch.equal(tensor, initial[name]), f"the initial weights '{name}' have moved"
    for name, tensor in agent.sets.sets["policy"].items():
        assert bool(torch.isfinite(tensor).all()), f"the weights '{name}' are not finite"
    agent.sets.verify()
    evaluations = [r for r in record if r["kind"] == "eval"]
    events = [r for r in record if r["kind"] == "event"]
    start = [r for r in evaluations if r["update"] == 0 and r["policy"] == "exported"]
    assert start and all(r["drift"]["drift/kl_initial.exact_nats_per_seq"] == 0 for r in start), (
        "drift is not 0 before the first update"
    )
    sides = Counter(r["side"] for r in evaluations if r["policy"] == "exported")
    assert sides["before"] == sides["after"] >= len({r["update"] for r in events}), (
        "an event was not evaluated on both sides"
    )
    assert record[-1]["kind"] == "end"
    metrics = [r["metrics"] for r in record if r["kind"] == "update"]
    assert len(metrics) == 2
    weights = {n: t.clone() for n, t in agent.sets.sets["policy"].items()}
    return {"weights": weights, "metrics": metrics}


def differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """The weights, or what both records say about the updates."""
    import torch

    if any(not torch.equal(t, other["weights"][n]) for n, t in one["weights"].items()):
        return True
    return any(
        mine[k] != theirs[k]
        for mine, theirs in zip(one["metrics"], other["metrics"], strict=True)
        for k in mine.keys() & theirs.keys()
    )


@cache
def _world(model: str) -> Path:
    import atexit
    import shutil

    from tests.runs_for_tests import make_world

    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return make_world(folder, KINDS[model], layers=1)


@cache
def _outcome(c: Combination, without: str | None = None) -> dict[str, Any] | str:
    """Of a run, or why it is refused. Kept: a pair's parts are runs of their own here."""
    from tether.config.errors import UserError

    rest = tuple(t for t in c.tethers if t != without)
    if without is not None and not any("@" in t for t in rest):
        return _outcome(Combination(c.algorithm, rest, c.model))
    try:
        return run_one(c, _world(c.model), without)
    except UserError as e:
        return str(e)


def check(c: Combination) -> tuple[str, str]:
    """-> (`run` | `refused` | `failed`, why)."""
    import warnings

    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        found = _outcome(c)
        if isinstance(found, str):
            return "refused", found
        for name in c.tethers:
            other = _outcome(c, name)
            # refused: the rest needs this tether, which is an effect
            if not isinstance(other, str) and not differ(found, other):
                return "failed", f"'{name}' did not act: without it the run is the same"
    except Exception as e:  # whatever it is, it is this combination's failure
        return "failed", f"{type(e).__name__}: {e}"
    return "run", ""


def thirds(of: Sequence[Combination], third: int) -> list[Combination]:
    """A fixed third: diagonals of tethers x algorithms, so that each of both is in each."""
    width = len(names("algorithm"))
    return [c for i, c in enumerate(of) if (i + i // width) % 3 == third]


def _checks(chosen: Sequence[Combination]) -> list[tuple[str, str]]:
    try:
        return [check(c) for c in chosen]
    finally:
        _outcome.cache_clear()


def results(
    chosen: Sequence[Combination], processes: int
) -> Iterator[tuple[Combination, tuple[str, str]]]:
    """An algorithm and a model at a time: their runs share parts."""
    groups: dict[tuple[str, str], list[Combination]] = {}
    for c in chosen:
        groups.setdefault((c.model, c.algorithm), []).append(c)
    if processes == 1:
        for group in groups.values():
            yield from zip(group, _checks(group), strict=True)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for group, found in zip(groups.values(), pool.map(_checks, groups.values()), strict=True):
            yield from zip(group, found, strict=True)


def main(words: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m tests.composition", description=__doc__)
    p.add_argument("--third", type=int, choices=(0, 1, 2))
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--only", default="", help="combinations whose name contains this")
    given = p.parse_args(words)
    chosen = combinations() if given.third is None else thirds(combinations(), given.third)
    chosen = [c for c in chosen if given.only in str(c)]
    started, count, reasons = time.perf_counter(), Counter[str](), Counter[str]()
    for c, (what, why) in results(chosen, given.processes):
        count[what] += 1
        if what == "failed":
            print(f"FAILED  {c}: {why}", flush=True)
        elif what == "refused":
            reasons[f"{' + '.join(c.tethers)} with {c.algorithm}: {why}"] += 1
    for reason, n in sorted(reasons.items()):
        print(f"refused {n}x  {reason}")
    seconds = time.perf_counter() - started
    print(
        f"{count['run']} run, {count['refused']} refused, {count['failed']} failed, "
        f"{len(chosen)} in all ({seconds:.0f} s)"
    )
    assert count["run"] + count["refused"] + count["failed"] == len(chosen)
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
