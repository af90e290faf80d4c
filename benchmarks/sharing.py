"""Several runs on one GPU: how many updates the card makes, with and without NVIDIA's multi-process
service (MPS).

    python -m benchmarks.sharing
    python -m benchmarks.render

Each process makes updates of its own, as `benchmarks.update` measures them (`adapter-ours`:
recorded passes over an adapter of SmolLM2's shape, random weights, 64 x 96 tokens), for SECONDS,
all at once. Without the service processes take turns on a GPU. The programs get ready side by
side, those with the service and those without; only those that are measured run. Needs a GPU and
NVIDIA's `nvidia-cuda-mps-control` (part of the driver), or --tiny.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.measuring import Results, arguments, command, say, spread
from benchmarks.workers import Worker

COUNTS = (1, 2, 4, 6)
SECONDS = 4.0
CONTROL = "nvidia-cuda-mps-control"
NAMES = tuple(f"{n}{way}" for way in ("", "-mps") for n in COUNTS)
TABLES: list[dict[str, Any]] = [
    {
        "title": "Several runs on one GPU",
        "rows": ["sharing"],
        "columns": {
            "processes": "Runs at once",
            "mps": "MPS",
            "a_second": "updates of the card a second",
            "spread_run": "of a run: smallest, quartiles, largest",
            "against_one": "of one run alone, times",
        },
        "text": "Updates of 64 x 96 tokens, forward and backward, an adapter of rank 16 on all "
        "linear layers, recorded. Each run counts its own for the same seconds.",
    },
]


@contextmanager
def service() -> Iterator[dict[str, str]]:
    """The environment of its clients, for as long as it runs."""
    with tempfile.TemporaryDirectory() as place:
        names = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
        environment = {name: f"{place}/{n}" for n, name in enumerate(names)}
        for folder in environment.values():
            os.mkdir(folder)
        told: dict[str, Any] = {"env": {**os.environ, **environment}, "check": True, "timeout": 60}
        subprocess.run([CONTROL, "-d"], **told)
        try:
            yield environment
        finally:
            subprocess.run([CONTROL], input="quit\n", text=True, **told)


def work(tiny: bool) -> None:
    """A worker: ready, then for each word of the parent as many updates as there is time for."""
    from benchmarks.measuring import synchronise
    from benchmarks.update import prepared

    messages, sys.stdout = sys.stdout, sys.stderr
    update = prepared("smollm2-adapter-ours", tiny, 8 if tiny else 64)[2]
    for _ in range(3):
        update(0)
    synchronise()

    def tell(**message: Any) -> None:
        print(json.dumps(message), file=messages, flush=True)

    tell(ready=True)
    for word in sys.stdin:
        count, clock = 0, time.perf_counter()
        while time.perf_counter() - clock < float(word):
            update(count)
            synchronise()
            count += 1
        tell(a_second=count / (time.perf_counter() - clock))


def started(n: int, tiny: bool, environment: Mapping[str, str]) -> list[Worker]:
    words = ["-m", "benchmarks.sharing", "--worker", *["--tiny"] * tiny]
    return [Worker(f"run {i}", words, {"OMP_NUM_THREADS": "1", **environment}) for i in range(n)]


def at_once(workers: Sequence[Worker], seconds: float) -> list[float]:
    """Updates a second of each. Raises RuntimeError where one has ended."""
    for w in workers:
        w.tell(str(seconds))
    heard = [w.hear() for w in workers]
    if None in heard:
        raise RuntimeError("a process has ended; its error stands above")
    return [float(h["a_second"]) for h in heard if h]


def measure(wanted: Sequence[str], results: Results, tiny: bool) -> None:
    """One alone, without the service, is measured first in any case."""
    counts: dict[bool, list[int]] = {False: [], True: []}
    for name in wanted:
        counts[name.endswith("-mps")].append(int(name.split("-")[0]))
    with service() if counts[True] else _nothing() as environment:
        pools = {
            False: started(max([1, *counts[False]]), tiny, {}),
            True: started(max([0, *counts[True]]), tiny, environment),
        }
        try:
            if not all(w.hear() for pool in pools.values() for w in pool):
                raise RuntimeError("a process did not get ready; its error stands above")
            say("all processes are ready")
            seconds = 0.5 if tiny else SECONDS
            alone = at_once(pools[False][:1], seconds)[0]
            for mps, ns in counts.items():
                for n in ns:
                    each = [alone] if (n, mps) == (1, False) else at_once(pools[mps][:n], seconds)
                    name = f"{n}{'-mps' * mps}"
                    row = {
                        "kind": "sharing", "row": name, "processes": n,
                        "mps": "yes" if mps else "no", "a_second": sum(each),
                        "spread_run": spread(each), "against_one": sum(each) / alone,
                        "command": command("sharing", "--only", name),
                    }  # fmt: skip
                    results.add(row, NAMES)
        finally:
            for pool in pools.values():
                for w in pool:
                    w.end()


@contextmanager
def _nothing() -> Iterator[dict[str, str]]:
    yield {}


def parser() -> argparse.ArgumentParser:
    p = arguments("sharing", __doc__, NAMES)
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return p


def every_row() -> tuple[str, ...]:
    return NAMES


def main(words: Sequence[str] | None = None) -> None:
    args = parser().parse_args(words)
    if args.worker:
        work(args.tiny)
        return
    wanted = args.only or (NAMES[:2] if args.tiny else NAMES)
    if any(n.endswith("-mps") for n in wanted) and shutil.which(CONTROL) is None:
        sys.exit(f"sharing: {CONTROL} is not here; --only {' '.join(NAMES[: len(COUNTS)])} goes on")
    measure(wanted, Results("sharing", args.out, args.commit, TABLES, keep=args.keep), args.tiny)


if __name__ == "__main__":
    main()
