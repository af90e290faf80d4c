"""What of the real runs travels: packed sets and results in, records and weights out.

--out of `benchmarks.grue_real` gets pieces of at most 15 MiB (`benchmarks.parts`):

    weights         the T5 in bf16, stored: the very files that every cell here loads
    records-GROUP   what has finished of t5 or smollm2, with the anchors and the small classifiers
    starts-GROUP    adapters of supervised runs from which unfinished ones start, stored
    anchors-GROUP   of `grue_real anchors --out`: the anchors alone, which need no GPU

`unpack` takes any of them back. Anchors carry the hash of their examples, the signatures of their
metrics and a hash of their own, which the benchmark compares before it uses them.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.grue_classifiers import CLASSIFIERS
from benchmarks.grue_pack import GROUPS
from benchmarks.grue_study import OUT, PILOT, PRETRAINED, REPEATED, T5, options, planned
from benchmarks.parts import cut, holds, join, packed, remove
from tether.config.errors import UserError
from tether.records import read_lines
from tether.reports.grue.results import UNMEASURED, finished
from tether.reports.runs import FAILURES
from tether.studies.grue.anchors import FOLDER
from tether.studies.grue.cells import Cell
from tether.studies.grue.declaration import DECLARED, grown
from tether.studies.workers import Job

KEPT = ("record.jsonl", "samples.jsonl", "timing.jsonl", "config.yaml", "environment.json",
        "scores.json")  # fmt: skip
SHARED = (DECLARED, FAILURES, UNMEASURED, REPEATED, PILOT.name)
"""Files that are of the cells of both groups, below the benchmark's folder."""
ANCHORS = "anchors"
"""What archives of anchors alone are called, before their group."""
STARTS_MIB = 45
"""Most that the archive of the adapters of starts may take."""


def unpack(sources: Iterable[Path]) -> None:
    """Every archive in some folders, into the working folder. What it has of the cells of both
    groups is joined with what is there: of the archive's group the archive counts.

    Raises UserError: no such folder, no archive in it, a list or a piece that is missing or broken,
    anchors that are not those which are there.
    """
    for folder in sources:
        listed = sorted(folder.glob("*.json")) if folder.is_dir() else []
        if not listed:
            why = "holds no list of pieces (NAME.json)" if folder.is_dir() else "is no folder"
            raise UserError(f"--from {folder} {why}")
        for file in listed:
            group = file.stem.rpartition("-")[2]
            with tempfile.TemporaryDirectory(dir=".") as place:
                count = len(join(file, Path(place)))
                take(Path(place), group, file)
            print(f"{file.stem}: {count} files", flush=True)


def _same_anchors(place: Path, listed: Path) -> None:
    """Raises UserError: a task has other anchors here, under which cells may be measured."""
    for file in sorted((place / OUT / FOLDER).glob("*.json")):
        there = OUT / FOLDER / file.name
        if there.is_file() and there.read_bytes() != file.read_bytes():
            raise UserError(
                f"{there} is there and has other anchors than {listed}: leave one of them out"
            )


def take(place: Path, group: str, listed: Path) -> None:
    """Move the files of an archive of a group, whose list is told in errors, into the working
    folder.

    Raises UserError: it is of another benchmark, or has other anchors; then the folder is as it
    was.
    """
    tasks = GROUPS.get(group, ())
    for file, target in ((place / OUT / n, OUT / n) for n in SHARED):
        if file.is_file() and target.is_file():
            here, there = (json.loads(f.read_text(encoding="utf-8")) for f in (target, file))
            text = json.dumps(_joined(target, here, there, tasks), indent=1, ensure_ascii=False)
            file.write_text(text + "\n", encoding="utf-8")
    _same_anchors(place, listed)
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


def records(group: str, made: Sequence[tuple[Cell, Job]]) -> Iterator[Path]:
    """Files of a group's finished cells and of the benchmark."""
    for _, job in made:
        if finished(job.folder):
            yield from (f for n in KEPT if (f := job.folder / n).is_file())
        elif (job.folder / "record.jsonl").is_file() and job.log.is_file():
            yield job.log
    if group == "t5" and (T5 / PRETRAINED.name).is_file():
        OUT.mkdir(exist_ok=True)
        shutil.copyfile(T5 / PRETRAINED.name, PRETRAINED)
    yield from OUT.glob("*.json")
    yield from (f for t in GROUPS[group] if (f := OUT / FOLDER / f"{t}.json").is_file())
    if group == "t5":
        return
    trained = Path("classifiers")
    here = [x for x, name in CLASSIFIERS.items() if (trained / name).is_dir()]  # else: packed
    for folder in (*here, trained):
        yield from (f for f in folder.rglob("*") if f.is_file() and _small(f))


def _small(file: Path) -> bool:
    """Of a classifier: not the second copy of its weights."""
    return file.suffix != ".safetensors" or any(map(file.is_relative_to, CLASSIFIERS))


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


def bundle(group: str, out: Path, args: Namespace) -> None:
    """Everything of a group that is needed to go on elsewhere, and for the tables."""
    made = planned(options(GROUPS[group], args))[1]
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
        pieces += cut(packed(Path(), files, None), out, f"starts-{group}")
    else:  # of an earlier call: what started from them has finished
        remove(out, f"starts-{group}")
    print(f"{len(kept) + len(files)} files in {len(pieces)} pieces; lost: {named}", flush=True)


def weights(out: Path) -> None:
    """The T5: `out` has this very one afterwards, and is written only if it had not."""
    if (T5 / "denoising.json").is_file():
        archive = packed(Path(), [f for f in T5.rglob("*") if f.is_file()], None)
        if not holds(archive, out, "weights"):
            cut(archive, out, "weights")


def anchors(tasks: Iterable[str], out: Path) -> None:
    """The anchors of some tasks, a group an archive. It takes the place of an earlier one, so it
    has all of the group's anchors that are here."""
    asked = set(tasks)
    for group, of_group in GROUPS.items():
        files = [f for t in of_group if (f := OUT / FOLDER / f"{t}.json").is_file()]
        if asked.intersection(of_group):
            made = cut(packed(Path(), files), out, f"{ANCHORS}-{group}")
            print(f"{len(files)} anchors of {group} in {len(made)} pieces", flush=True)
