"""The real runs of the benchmark: from packed sets to measured cells, in as many calls as it takes.

    python -m benchmarks.grue_pack ... --out .grue                     # once, where the sets are
    python -m benchmarks.grue_real t5 --root W --out O --from .grue/t5 --gpus 2 --stop-after 1300
    python -m benchmarks.grue_real smollm2 --root W --out O --from .grue/smollm2 .grue/gguf ...
    python -m benchmarks.grue_real measure --root W --from .grue/t5 .grue/smollm2 .grue/gguf O
    python -m benchmarks.collect_grue W/runs --date D --commit C

A call unpacks what `--from` names, makes the model's own parts where they are missing (t5: the
denoising; smollm2: the classifiers of reviews and of intents), finds each task's learning rate
(`benchmarks.grue_pilot`), trains cells seed by seed over all methods, as many at a time as --gpus x
--per-device, and packs. After --stop-after seconds it asks the runs to stop:
they finish their update and write a checkpoint, and the same command goes on; --from is then not
needed, nor is --out given the T5 again with --without-weights.

The anchors of a task need the sets and no GPU. They can be computed beforehand and packed as an
archive of their own, in a folder that is one more of --from:

    python -m benchmarks.grue_real anchors t5 --root A --out .grue/anchors --from .grue/t5

Those of IMDB and DailyDialog need classifiers and tokenizer too (--tasks leaves them out). What is
not there is computed while the model's own parts are made, as far as it can be.

Cells are measured while others train, on one thread; with --measure-later they are not, and
`measure` does it afterwards, where there is time.

--ablations, given to every call of the study, adds the cells of `benchmarks.grue_ablations`.

`measure` gives finished cells the metrics that they lack; on a fresh folder it needs the sets and
the weights as well as the records, of both groups or, with --tasks, of one.

--out gets pieces of at most 15 MiB (`benchmarks.grue_travel`): `weights` (the T5, once, packed
while cells train), `records-GROUP` (what has finished of t5 or smollm2, with the anchors and the
small classifiers) and `starts-GROUP` (adapters of supervised runs from which unfinished ones
start). In a new folder `--from ... O` takes them back, behind the packed sets; those of both
groups, of one folder or of two, make one benchmark. What is then lost, and said in lost-GROUP.json:
checkpoints of unfinished cells, which begin again, and supervised T5s whose methods were not all
finished, which are too large to travel and are trained once more.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from benchmarks import denoising
from benchmarks.grue_classifiers import READ_BY, classifiers, lacking
from benchmarks.grue_pack import GROUPS
from benchmarks.grue_pilot import pilot
from benchmarks.grue_study import (
    OUT,
    REPEATED,
    SEEDS,
    T5,
    console,
    learning_rates,
    options,
    planned,
    wanted,
)
from benchmarks.grue_travel import anchors, bundle, unpack, weights
from benchmarks.measuring import ROOT
from tether.config.errors import UserError
from tether.config.run import ModelSettings
from tether.reports.grue.results import finished
from tether.studies.grue.anchors import FOLDER
from tether.studies.grue.cells import Cell
from tether.studies.grue.run import main as run_cells
from tether.studies.grue.run import measure_finished, prepare
from tether.studies.workers import Job

GRACE = 60.0
"""Seconds in which runs finish an update, write a checkpoint, and metrics of a cell end."""
SAVING = 20.0
"""Seconds that workers have for a last checkpoint where their driver had to be killed."""


def say(text: str, clock: float) -> None:
    print(f"{time.perf_counter() - clock:7.0f} s  {text}", flush=True)


def pretrain(steps: int, quick: bool) -> None:
    """The small T5. This process goes on while cells train, so it gives the GPU's memory back."""
    import torch
    from transformers import AutoTokenizer

    shutil.rmtree(T5, ignore_errors=True)
    tokenizer = AutoTokenizer.from_pretrained("models/t5-tokenizer")
    texts = denoising.texts_of(Path("data/denoising.jsonl.gz"))
    print(denoising.train(texts, tokenizer, T5, steps=steps, quick=quick), flush=True)
    gc.collect()  # modules refer to each other
    torch.cuda.empty_cache()


def restore_starts(made: Sequence[tuple[Cell, Job]]) -> list[str]:
    """Weights from which unfinished cells start, where only the record of the run that made them is
    here: from its adapter, or by training it again. Returns the names of those trained again."""
    by_name = {job.name: job for _, job in made}
    again = []
    needed = {n for _, job in made if not finished(job.folder) for n in job.after}
    for name in sorted(needed):
        folder = by_name[name].folder
        if not finished(folder) or (folder / "policy").is_dir():
            continue
        if (folder / "adapter").is_dir():
            merge(by_name[name], folder)
        else:
            shutil.rmtree(folder)
            again.append(name)
    return again


def merge(job: Job, folder: Path) -> None:
    """The run's model with its adapter merged, as its export was."""
    from dataclasses import replace

    from tether.models.export import export
    from tether.models.loading import load_language_model

    model: ModelSettings = replace(job.settings.model, lora=None, adapter=str(folder / "adapter"))
    lm = load_language_model(model, seed=job.settings.seed)
    export(lm, None, folder / "policy")


def cells(tasks: Sequence[str], args: argparse.Namespace) -> bool:
    """Train what is not finished; metrics of what ends meanwhile. True = everything has."""
    given = options(tasks, args)
    again = restore_starts(planned(given)[1])
    if again:
        print(f"trained again, since their weights did not travel: {', '.join(again)}", flush=True)
        file = OUT / REPEATED
        before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
        file.write_text(json.dumps([*before, *again]) + "\n", encoding="utf-8")
    workers = args.gpus * args.per_device if args.gpus else args.per_device
    _, whole = run_cells(
        given, workers=workers, per_device=args.per_device, console=console(), only=wanted,
        retry=args.retry, measuring=not args.measure_later,
    )  # fmt: skip
    return whole


def anchored(tasks: Sequence[str], args: argparse.Namespace) -> None:
    """The anchors of some tasks, computed or compared with what is there; packed with --out.

    Raises UserError: a metric is not to be had here. The anchors would lack it, and with them the
    whole benchmark.
    """
    plan, made = planned(options(tasks, args))
    files = {t: OUT / FOLDER / f"{t}.json" for t in plan.tasks}
    before = {t for t, file in files.items() if file.is_file()}
    for task, ready in prepare(plan, made, console()).items():
        lacking = [f"{e.name} ({e.missing})" for e in ready.entries if e.missing]
        if lacking:
            for new in files.keys() - before:
                files[new].unlink()
            raise UserError(
                f"the anchors of {task} would lack {', '.join(lacking)}: compute them where that "
                "is, or name other --tasks"
            )
    if args.out is not None:
        anchors(plan.tasks, args.out)


def measured(tasks: Sequence[str], args: argparse.Namespace) -> bool:
    """Metrics of finished cells, nothing trained."""
    return measure_finished(options(tasks, args), console=console(), only=wanted)[1]


def started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """This driver's action in a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "benchmarks.grue_real", *command])


def within(command: Sequence[str], seconds: float) -> int | None:
    """Run an action; at the deadline it is asked to stop, as are its workers. Returns its status;
    None = it was stopped."""
    process = started(command)
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:  # also where this process is itself asked to stop
        stop(process, GRACE)


def stop(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Ask a process to stop, if it has not ended, and end it after some seconds. Its workers are
    then asked by the kernel, and write a last checkpoint: they have `SAVING` seconds for it."""
    workers: set[tuple[int, str]] = set()
    try:
        process.terminate()
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        workers = below(process.pid)
    finally:
        process.kill()
        process.wait()
    end = time.perf_counter() + SAVING
    while workers & {(pid, born) for pid, _, born in alive()} and time.perf_counter() < end:
        time.sleep(0.1)


def alive() -> list[tuple[int, int, str]]:
    """(id, parent's id, time of start) of every process that has not ended; none without /proc."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended since
            continue
        state, parent, *more = text.rpartition(")")[2].split()  # from the third field on
        if state not in "ZX":
            found.append((int(file.parent.name), int(parent), more[17]))
    return found


def below(pid: int) -> set[tuple[int, str]]:
    """(id, time of start) of the processes that a process has started, and of theirs."""
    every, found, last = alive(), set[tuple[int, str]](), {pid}
    while last:
        new = {(p, born) for p, parent, born in every if parent in last}
        found |= new
        last = {p for p, _ in new}
    return found


def study(group: str, args: argparse.Namespace, words: Sequence[str]) -> bool:
    """All stages of one model's tasks, within the time."""
    clock, out = time.perf_counter(), args.out
    unpack(args.sources)
    say("unpacked", clock)
    end = clock + args.stop_after - GRACE
    parts(group, args, words, end)
    say("the model's own parts", clock)
    tasks = args.tasks or GROUPS[group]
    stages = [["pilot"], ["cells", *["--measure-later"] * args.measure_later]]
    with ThreadPoolExecutor(1) as beside, Anchoring(group, words, unanchored(tasks)) as anchoring:
        packing = group == "t5" and not args.without_weights and beside.submit(weights, out)
        status: int | None = 0
        wrong: UserError | None = None
        for stage, *more in stages:
            if stage == "cells":  # none of a task whose learning rate is not known
                wrong = anchoring.wait(end) if status == 0 else None
                status = 1 if wrong else status
                known = [t for t in tasks if t in learning_rates()]
                more += ["--tasks", *known]
                status = status if known else 1
            left = end - time.perf_counter()
            if status == 0:
                words_ = [stage, group, "--root", ".", *words, *more]
                status = within(words_, left) if left > 0 else None
                say(f"{stage}: {'stopped' if status is None else f'ended with {status}'}", clock)
        bundle(group, out, args)
        if packing:
            packing.result()
    say("packed", clock)
    if wrong:
        raise wrong
    return status == 0 and all(t in learning_rates() for t in tasks)


def unanchored(tasks: Sequence[str]) -> list[str]:
    """Tasks whose anchors are not there."""
    return [t for t in tasks if not (OUT / FOLDER / f"{t}.json").is_file()]


class Anchoring:
    """The anchors of some tasks, computed beside something else in a process of their own."""

    def __init__(self, group: str, words: Sequence[str], tasks: Sequence[str]) -> None:
        self._process = (
            started(["anchors", group, "--root", ".", *words, "--tasks", *tasks]) if tasks else None
        )

    def __enter__(self) -> Anchoring:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            stop(self._process, 1.0)

    def wait(self, end: float) -> UserError | None:
        """Until they are there, or until `end` of `time.perf_counter`: then they are left to the
        cells. Returns an error where they failed, as their process has said."""
        try:
            left = max(0.0, end - time.perf_counter())
            if self._process is not None and self._process.wait(left):
                return UserError("the anchors cannot be used (the line above)")
        except subprocess.TimeoutExpired:
            print("no time is left for the anchors: they are left to the cells", flush=True)
        return None


def parts(group: str, args: argparse.Namespace, words: Sequence[str], end: float) -> None:
    """What a model's cells start from, once; meanwhile the anchors of those tasks whose classifier
    is there, or that have none. At `end`, of `time.perf_counter`, they are left to the cells.

    Raises UserError: the anchors failed, as their process has said.
    """
    tasks = args.tasks or GROUPS[group]
    missing = lacking(tasks)
    idle = (T5 / "denoising.json").is_file() if group == "t5" else not missing
    meanwhile = [t for t in unanchored(tasks) if READ_BY.get(t) not in missing]
    with Anchoring(group, words, [] if idle else meanwhile) as anchoring:
        if group != "t5":
            classifiers(tasks, args.quick, args.gpus)
        elif not idle:
            pretrain(args.steps, args.quick)
        if wrong := anchoring.wait(end):
            raise wrong


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.grue_real", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.add_argument("action", choices=(*GROUPS, "pilot", "cells", "measure", "anchors", "bundle"))
    p.add_argument("group", nargs="?", choices=tuple(GROUPS), help="of pilot, cells, bundle: whose")
    p.add_argument("--root", type=Path, required=True, help="working folder of the study")
    p.add_argument("--out", type=Path, help="folder of the pieces")
    p.add_argument("--from", dest="sources", type=Path, nargs="*", default=[], help="folders")
    p.add_argument("--tasks", nargs="+", help="default: those of the model")
    p.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    p.add_argument("--gpus", type=int, default=0, help="0 = a CPU")
    p.add_argument("--per-device", type=int, default=1, help="runs on one GPU (or on the CPU)")
    p.add_argument("--stop-after", type=float, default=1e9, help="seconds")
    p.add_argument("--steps", type=int, default=denoising.STEPS, help="of the denoising")
    p.add_argument("--measure-later", action="store_true", help="no metrics beside the training")
    p.add_argument("--without-weights", action="store_true", help="do not pack the T5")
    p.add_argument("--ablations", action="store_true", help="benchmarks.grue_ablations too")
    p.add_argument("--retry", action="store_true", help="repeat cells that failed")
    p.add_argument("--quick", action="store_true", help="a rehearsal: tiny models, few rows")
    return p


def main(words: Sequence[str] | None = None) -> int:
    p = parser()
    args = p.parse_args(words)
    if args.out is None and args.action in (*GROUPS, "bundle"):
        p.error(f"{args.action} packs what it has: --out FOLDER is needed")
    for name in ("root", "out"):
        if getattr(args, name) is not None:
            setattr(args, name, getattr(args, name).absolute())
            getattr(args, name).mkdir(parents=True, exist_ok=True)
    args.sources = [s.absolute() for s in args.sources]
    kept = [str(Path(x).absolute()) for x in os.environ.get("PYTHONPATH", "").split(":") if x]
    os.environ["PYTHONPATH"] = ":".join(dict.fromkeys([str(ROOT), *kept]))
    os.chdir(args.root)
    group = args.group or (args.action if args.action in GROUPS else None)
    tasks = args.tasks or (GROUPS[group] if group else [t for g in GROUPS.values() for t in g])
    if args.action in GROUPS:
        shared = ["--gpus", str(args.gpus), "--per-device", str(args.per_device)]
        shared += ["--seeds", *map(str, args.seeds), "--tasks", *tasks]
        for name in ("quick", "retry", "ablations"):
            shared += [f"--{name}"] * getattr(args, name)
        return 0 if study(args.action, args, shared) else 1
    unpack(args.sources)
    if args.action == "pilot":
        pilot(tasks, args)
        return 0
    if args.action == "cells":
        return 0 if cells(tasks, args) else 1
    if args.action == "bundle":
        for name in [group] if group else GROUPS:
            bundle(name, args.out, args)
        return 0
    if args.action == "anchors":
        anchored(tasks, args)
        return 0
    return 0 if measured(tasks, args) else 1


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def entry() -> None:
    """The command: SIGTERM ends what it has started, too."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        sys.exit(main())
    except UserError as e:
        print(f"grue_real: {e}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    entry()
