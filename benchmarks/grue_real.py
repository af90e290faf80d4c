"""The real runs of the benchmark: from packed sets to measured cells, in as many calls as it takes.

    python -m benchmarks.grue_pack ... --out .grue                     # once, where the sets are
    python -m benchmarks.grue_real t5 --root W --out O --from .grue/t5 --gpus 2 --stop-after 1300
    python -m benchmarks.grue_real smollm2 --root W --out O --from .grue/smollm2 .grue/gguf ...
    python -m benchmarks.grue_real measure --root W --from .grue/t5 .grue/smollm2 .grue/gguf O
    python -m benchmarks.collect_grue W/runs --date D --commit C

A call unpacks what `--from` names, makes the model's own parts where they are missing (t5: the
denoising; smollm2: the classifier of intents), trains cells seed by seed over all methods, as many
at a time as --gpus x --per-device, and packs. After --stop-after seconds it asks the runs to stop:
they finish their update and write a checkpoint, and the same command goes on.

`measure` gives finished cells the metrics that they lack; on a fresh folder it needs the sets and
the weights as well as the records, of both groups or, with --tasks, of one.

--out gets pieces of at most 15 MiB: `weights` (the T5, once), `records-GROUP` (what has finished
of t5 or smollm2, with the anchors and the small classifiers) and `starts-GROUP` (adapters of
supervised runs from which unfinished ones start). On another machine `--from ... O` takes them
back, behind the packed sets; those of both groups, of one folder or of two, make one benchmark.
What is then lost, and said in lost-GROUP.json: checkpoints of unfinished cells, which begin again,
and supervised T5s whose methods were not all finished, which are too large to travel and are
trained once more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import denoising
from benchmarks.grue_pack import GROUPS
from benchmarks.grue_study import (
    INTENT,
    OUT,
    REPEATED,
    SEEDS,
    SENTIMENT,
    T5,
    asked,
    classifier_words,
    console,
    planned,
    settings,
    wanted,
    write_settings,
)
from benchmarks.measuring import ROOT
from benchmarks.parts import cut, join, packed, remove
from tether.config.errors import UserError
from tether.config.run import ModelSettings
from tether.records import read_lines
from tether.reports.grue.results import UNMEASURED, finished
from tether.reports.runs import FAILURES
from tether.studies.grue.cells import Cell
from tether.studies.grue.declaration import DECLARED, grown
from tether.studies.grue.run import main as run_cells
from tether.studies.grue.run import measure_finished, prepare
from tether.studies.workers import Job

KEPT = ("record.jsonl", "samples.jsonl", "timing.jsonl", "config.yaml", "environment.json",
        "scores.json")  # fmt: skip
GRACE = 60.0
"""Seconds in which runs finish an update, write a checkpoint, and metrics of a cell end."""
SHARED = (DECLARED, FAILURES, UNMEASURED, REPEATED)
"""Files that are of the cells of both groups, below the benchmark's folder."""
STARTS_MIB = 45
"""Most that the adapters of starts may take of a transfer."""


def say(text: str, clock: float) -> None:
    print(f"{time.perf_counter() - clock:7.0f} s  {text}", flush=True)


def unpack(sources: Iterable[Path]) -> None:
    """Every archive in some folders, into the working folder. What it has of the cells of both
    groups is joined with what is there: of the archive's group the archive counts.

    Raises UserError: no such folder, no archive in it, a list or a piece that is missing or broken.
    """
    for folder in sources:
        listed = sorted(folder.glob("*.json")) if folder.is_dir() else []
        if not listed:
            why = "holds no list of pieces (NAME.json)" if folder.is_dir() else "is no folder"
            raise UserError(f"--from {folder} {why}")
        for file in listed:
            with tempfile.TemporaryDirectory(dir=".") as place:
                count = len(join(file, Path(place)))
                take(Path(place), file.stem.rpartition("-")[2])
            print(f"{file.stem}: {count} files", flush=True)


def take(place: Path, group: str) -> None:
    """Move the files of an archive of a group into the working folder.

    Raises UserError: it is of another benchmark; then the folder is as it was.
    """
    tasks = GROUPS.get(group, ())
    for file, target in ((place / OUT / n, OUT / n) for n in SHARED):
        if file.is_file() and target.is_file():
            here, there = (json.loads(f.read_text(encoding="utf-8")) for f in (target, file))
            text = json.dumps(_joined(target, here, there, tasks), indent=1, ensure_ascii=False)
            file.write_text(text + "\n", encoding="utf-8")
    for file in sorted(f for f in place.rglob("*") if f.is_file()):
        target = file.relative_to(place)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, target)


def _joined(file: Path, here: Any, there: Any, tasks: Sequence[str]) -> Any:
    """One of the shared files: what is here, and of some tasks what is there."""
    if file.name == DECLARED:
        for key in ("mini", "budgets", "primary", "margin"):
            if here[key] != there[key]:
                raise UserError(
                    f"{file} declares {key} {here[key]}, and the archive {there[key]}: they are "
                    "of two benchmarks; unpack them into two folders"
                )
        theirs = {
            "tasks": [t for t in there["tasks"] if t in tasks],
            "anchors": {t: x for t, x in there["anchors"].items() if t in tasks},
            **{k: [c for c in there[k] if c["task"] in tasks] for k in ("cells", "free")},
        }
        return grown(here, {**there, **theirs})
    of_them = [n for n in there if n.partition("/")[0] in tasks]
    others = [n for n in here if n.partition("/")[0] not in tasks]
    if isinstance(here, list):
        return [*others, *of_them]
    return {**{n: here[n] for n in others}, **{n: there[n] for n in of_them}}


def pretrain(seconds: float, quick: bool) -> None:
    """The small T5, once."""
    if (T5 / "denoising.json").is_file():
        return
    from transformers import AutoTokenizer

    shutil.rmtree(T5, ignore_errors=True)
    tokenizer = AutoTokenizer.from_pretrained("models/t5-tokenizer")
    texts = denoising.texts_of(Path("data/denoising.jsonl.gz"))
    print(denoising.train(texts, tokenizer, T5, seconds=seconds, quick=quick), flush=True)


def classifiers(quick: bool) -> None:
    """The classifier of intents; in a rehearsal that of reviews too."""
    model = settings(quick)["tasks"]["dailydialog"]["all"]["model"]
    targets = {"intent": INTENT, **({"sentiment": SENTIMENT} if quick else {})}
    for which, target in targets.items():
        if (target / "classifier.json").is_file():
            continue
        shutil.rmtree(Path("classifiers") / which, ignore_errors=True)
        words = classifier_words(which, model, quick)
        subprocess.run([sys.executable, "-m", "tether", *words], check=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(Path("classifiers") / which / "classifier", target)


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
    options = asked(tasks, write_settings(args.quick), args.seeds)
    again = restore_starts(planned(options)[1])
    if again:
        print(f"trained again, since their weights did not travel: {', '.join(again)}", flush=True)
        file = OUT / REPEATED
        before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
        file.write_text(json.dumps([*before, *again]) + "\n", encoding="utf-8")
    workers = args.gpus * args.per_device if args.gpus else args.per_device
    _, whole = run_cells(
        options, workers=workers, per_device=args.per_device, console=console(), only=wanted,
        retry=args.retry,
    )  # fmt: skip
    return whole


def measured(tasks: Sequence[str], args: argparse.Namespace) -> bool:
    """Metrics of finished cells, nothing trained."""
    options = asked(tasks, write_settings(args.quick), args.seeds)
    return measure_finished(options, console=console(), only=wanted)[1]


def within(command: Sequence[str], seconds: float) -> int | None:
    """Run this driver's action in a process of its own; at the deadline it is asked to stop, as are
    its workers. Returns its status; None = it was stopped."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.grue_real", *command])
    try:
        return process.wait(timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return None


def records(group: str, made: Sequence[tuple[Cell, Job]]) -> Iterator[Path]:
    """Files of a group's finished cells and of the benchmark."""
    for _, job in made:
        if finished(job.folder):
            yield from (f for n in KEPT if (f := job.folder / n).is_file())
        elif (job.folder / "record.jsonl").is_file() and job.log.is_file():
            yield job.log
    yield from OUT.glob("*.json")
    yield from (f for t in GROUPS[group] if (f := OUT / "anchors" / f"{t}.json").is_file())
    if group == "t5":
        yield from (f for f in (T5 / "denoising.json",) if f.is_file())
        return
    for folder in (INTENT, Path("classifiers")):
        yield from (f for f in folder.rglob("*") if f.is_file() and _small(f))


def _small(file: Path) -> bool:
    """Of a classifier: not the second copy of its weights."""
    return file.suffix != ".safetensors" or file.is_relative_to(INTENT)


def _updates(record: Path) -> int:
    return max((int(r.get("update", 0)) for r in read_lines(record)), default=0)


def starts(made: Sequence[tuple[Cell, Job]], limit: int) -> tuple[list[Path], list[str]]:
    """(adapter files that unfinished cells need, names of starts that do not travel)."""
    by_name = {job.name: job for _, job in made}
    needed = sorted({n for _, job in made if not finished(job.folder) for n in job.after})
    files: list[Path] = []
    left = []
    for name in needed:
        folder = by_name[name].folder
        if not finished(folder):
            continue
        found = [f for f in (folder / "adapter").glob("*") if f.is_file()]
        size = sum(f.stat().st_size for f in [*files, *found])
        if found and size <= limit:
            files += found
        else:
            left.append(name)
    return files, left


def bundle(group: str, out: Path, args: argparse.Namespace) -> None:
    """Everything of a group that is needed to go on elsewhere, and for the tables."""
    made = planned(asked(GROUPS[group], write_settings(args.quick), args.seeds))[1]
    files, left = starts(made, STARTS_MIB * 2**20)
    named: dict[str, Any] = {
        "cells that begin again, with the updates they had": {
            job.name: _updates(job.folder / "record.jsonl")
            for _, job in made
            if (job.folder / "record.jsonl").is_file() and not finished(job.folder)
        },
        "supervised runs that are trained again": left,
    }
    lost = Path(f"lost-{group}.json")
    lost.write_text(json.dumps(named, indent=1) + "\n", encoding="utf-8")
    kept = [*records(group, made), lost]
    pieces = cut(packed(Path(), kept), out, f"records-{group}")
    if files:
        pieces += cut(packed(Path(), files, preset=1), out, f"starts-{group}")
    else:  # of an earlier call: what started from them has finished
        remove(out, f"starts-{group}")
    print(f"{len(kept) + len(files)} files in {len(pieces)} pieces; lost: {named}", flush=True)


def weights(out: Path) -> None:
    """The T5, once: `out` has it afterwards."""
    if (T5 / "denoising.json").is_file() and not (out / "weights.json").is_file():
        files = [f for f in T5.rglob("*") if f.is_file()]
        cut(packed(Path(), files, preset=1), out, "weights")


def study(group: str, args: argparse.Namespace, words: Sequence[str]) -> bool:
    """All stages of one model's tasks, within the time."""
    clock, out = time.perf_counter(), args.out
    unpack(args.sources)
    say("unpacked", clock)
    if group == "t5":
        pretrain(args.seconds, args.quick)
        weights(out)
    else:
        classifiers(args.quick)
    say("the model's own parts", clock)
    left = args.stop_after - (time.perf_counter() - clock) - GRACE
    status = within(["cells", group, "--root", ".", *words], left)
    say("stopped at the deadline" if status is None else f"cells ended with {status}", clock)
    bundle(group, out, args)
    say("packed", clock)
    return status == 0


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.grue_real", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.add_argument("action", choices=("t5", "smollm2", "cells", "measure", "anchors", "bundle"))
    p.add_argument("group", nargs="?", choices=tuple(GROUPS), help="of cells, bundle: whose")
    p.add_argument("--root", type=Path, required=True, help="working folder of the study")
    p.add_argument("--out", type=Path, help="folder of the pieces")
    p.add_argument("--from", dest="sources", type=Path, nargs="*", default=[], help="folders")
    p.add_argument("--tasks", nargs="+", help="default: those of the model")
    p.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    p.add_argument("--gpus", type=int, default=0, help="0 = a CPU")
    p.add_argument("--per-device", type=int, default=1, help="runs on one GPU (or on the CPU)")
    p.add_argument("--stop-after", type=float, default=1e9, help="seconds")
    p.add_argument("--seconds", type=float, default=150.0, help="of the denoising")
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
        shared += ["--quick"] * args.quick + ["--retry"] * args.retry
        return 0 if study(args.action, args, shared) else 1
    unpack(args.sources)
    if args.action == "cells":
        return 0 if cells(tasks, args) else 1
    if args.action == "bundle":
        for name in [group] if group else GROUPS:
            bundle(name, args.out, args)
        return 0
    if args.action == "anchors":
        plan, made = planned(asked(tasks, write_settings(args.quick), args.seeds))
        prepare(plan, made, console())
        return 0
    return 0 if measured(tasks, args) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as e:
        print(f"grue_real: {e}", file=sys.stderr)
        sys.exit(1)
