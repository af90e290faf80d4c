"""Worker processes of a study: one run each, one torch thread each, none left behind.

Two processes of two threads each on two cores are many times slower than two of one thread, hence
the thread limits. Ctrl-C or SIGTERM: every worker finishes its update, saves and exits; again:
they are killed. If this process itself is killed, the kernel stops the workers (Linux).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tether.config.errors import OUT_OF_MEMORY, UserError
from tether.config.run import RunSettings
from tether.config.whole_file import write_whole
from tether.reports.runs import FAILURES, failures_of
from tether.studies.advice import of_study
from tether.studies.crowding import Slots, told
from tether.studies.devices import Slot, device_of, slots
from tether.studies.regain import Regain
from tether.studies.warm import Fork, Warm, architectures
from tether.studies.watch import Left, Watch
from tether.train.lock import held

PAUSE = 0.2
"""Seconds between looks at the workers."""
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
"""Exit status of a run that was asked to stop and saved: unfinished, not failed."""
TETHER = (sys.executable, "-m", "tether")
"""The command of a worker, of this very installation."""
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_GUARD = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 15)\n"  # PR_SET_PDEATHSIG, SIGTERM: survives exec
    "if os.getppid() != int(sys.argv[1]): sys.exit(143)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    name: str
    method: str
    seed: int
    settings: RunSettings
    folder: Path
    config: Path
    log: Path
    after: tuple[str, ...] = ()
    """Names of the runs that it starts from: it waits for them, and fails with them."""


@dataclass
class Worker:
    job: Job
    slot: Slot
    process: subprocess.Popen[bytes] | Fork
    watch: Watch


@dataclass
class Signals:
    """How often, and last by which signal, this process was asked to stop."""

    count: int = 0
    number: int = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.number = number


@dataclass
class Pool:
    """What is running, and what became of the rest."""

    folder: Path
    console: Console
    failures: dict[str, dict[str, Any]]
    slots: Slots = field(default_factory=lambda: Slots(deque()))
    pending: deque[Job] = field(default_factory=deque)
    warm: Warm | None = None
    running: list[Worker] = field(default_factory=list)
    left: Left = field(default_factory=lambda: Left(0))
    regain: Regain = field(init=False)

    def __post_init__(self) -> None:
        self.regain = Regain(self.slots)

    def start(self, job: Job, slot: Slot) -> None:
        self.slots.began(job.name)
        self.regain.began(job.name)
        resume = _can_resume(job)
        if job.folder.exists() and not resume and any(job.folder.iterdir()):
            _clear(job.folder)
        words = ["resume", str(job.folder)] if resume else ["train", "--config", str(job.config)]
        job.log.parent.mkdir(parents=True, exist_ok=True)
        process: subprocess.Popen[bytes] | Fork
        if self.warm is not None and not slot:
            process = self.warm.start(words, job.log)
        else:
            with open(job.log, "ab") as log:
                process = subprocess.Popen(
                    _command([*TETHER, *words]),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=_environment(slot),
                    start_new_session=True,  # a terminal's Ctrl-C reaches this process only
                )
        self.running.append(Worker(job, slot, process, Watch(job.folder / "record.jsonl")))

    def collect(self) -> list[Worker]:
        """Workers that ended since the last look, their slots given back, their failures recorded;
        those that begin again are pending."""
        self.slots.look((w.job.name, w.slot) for w in self.running)
        done = [w for w in self.running if w.process.poll() is not None]
        for w in done:
            self.running.remove(w)
            w.watch.look()
            self.regain.note(w.job.name, w.job.folder)
            status = w.process.returncode
            again = self.slots.ended(w.job.name, w.slot, 0 if w.watch.ended else status)
            if again:
                self.regain.crowded(device_of(w.slot))
                self.pending.appendleft(w.job)
                said = told(self.slots, w.slot)
            elif w.watch.ended:
                self.failures.pop(w.job.name, None)
                said = f"finished; {self.left.one_less()}"
            elif status in STOPPED or status == -signal.SIGTERM:
                said = f"stopped after update {w.watch.updates}"
            elif held(w.job.folder, but=w.process.pid):
                self.pending.append(w.job)  # as `ready` waits for what was held before
                said = "another study runs it: this one waits for that"
            else:
                error = of_study(_last_line(w.job.log, status), w.job.folder)
                self.fail(w.job, status, error)
                said = f"FAILED after update {w.watch.updates} (status {status}): {error}"
            self.save()
            self.console.print(f"{w.job.name}: {said}", markup=False, highlight=False)
        if self.pending:
            for said in self.regain.look(
                [(w.job.name, w.slot, w.job.folder) for w in self.running]
            ):
                self.console.print(said, markup=False, highlight=False)
        return done

    def elsewhere(self, job: Job) -> None:
        """A run that was waited for has ended in another study."""
        said = f"{job.name}: finished in another study; {self.left.one_less()}"
        self.console.print(said, markup=False, highlight=False)

    def fail(self, job: Job, status: int | None, error: str) -> None:
        self.left.one_less()
        self.failures[job.name] = {
            "method": job.method,
            "seed": job.seed,
            "returncode": status,
            "error": error,
        }

    def ready(self, ended: set[str]) -> Job | None:
        """Take the first run whose forerunners have ended; those of a failed one fail with it."""
        for job in tuple(self.pending):
            broken = next((n for n in job.after if n in self.failures), None)
            if broken is None and (not ended.issuperset(job.after) or held(job.folder)):
                continue  # held: by a worker of another study, or of one that was killed
            self.pending.remove(job)
            if broken is None:
                return job
            self.fail(job, None, f"{broken}, which it starts from, failed")
            self.save()
            said = f"{job.name}: FAILED, as {broken}, which it starts from"
            self.console.print(said, markup=False, highlight=False)
        return None

    def save(self) -> None:
        file = self.folder / FAILURES
        if not self.failures and not file.exists():
            return
        text = json.dumps(self.failures, indent=1, sort_keys=True, ensure_ascii=False)
        write_whole(file, text + "\n")

    def signal(self, number: int) -> None:
        """To the run itself for a clean stop, to its whole process group for a kill."""
        for w in self.running:
            with contextlib.suppress(ProcessLookupError):
                if number == signal.SIGKILL:
                    os.killpg(w.process.pid, number)
                else:
                    w.process.send_signal(number)


def run_jobs(
    jobs: Sequence[Job],
    folder: Path,
    *,
    workers: int | None,
    per_device: int,
    retry: bool,
    console: Console,
    ended: Callable[[Job], object] = lambda job: None,
) -> None:
    """Run all jobs that are not finished, in order, as many at once as there are slots.

    Args:
        ended: called with each run that has finished, while the others go on: keep it short.
    Raises:
        SystemExit: 128 + signal, once every worker has stopped.
    """
    free = deque(slots([j.settings for j in jobs], workers, per_device))
    failures = failures_of(folder)
    repeated = {j.name for j in jobs} if retry else set()
    kept = {k: v for k, v in failures.items() if k not in repeated}
    pool = Pool(folder, console, kept, Slots(free))
    before = {j.name: _looked(j) for j in jobs}
    for name in [n for n in pool.failures if n in before and before[n].ended]:
        del pool.failures[name]  # it failed in this study and has since ended in another
    pending = pool.pending
    pending += [j for j in jobs if not before[j.name].ended and j.name not in pool.failures]
    for j in jobs:
        if j.name in pool.failures:
            console.print(f"{j.name}: failed before, not repeated (--retry does)", markup=False)
    shown = [j for j in jobs if j.name not in pool.failures]
    counted = {j.name: before[j.name].updates for j in shown}
    total = sum(j.settings.updates for j in shown)
    whole = {j.name for j in jobs if before[j.name].ended}
    pool.left = Left(len(pending))
    pool.warm = _warm(pending, free)
    with _signals() as asked, _progress(console) as bars:
        bar = bars.add_task(_title(pool, len(jobs), len(pending)), total=total)
        try:
            while (pending or pool.running) and not asked.count:
                while free and (job := pool.ready(whole)) is not None:
                    if not _looked(job).ended:
                        pool.start(job, free.popleft())
                        continue
                    pool.elsewhere(job)
                    whole.add(job.name)
                    ended(job)
                if not pool.running and not any(held(j.folder) for j in pending):
                    break  # what is left waits for a run that was stopped
                time.sleep(PAUSE)
                for w in pool.running:
                    w.watch.look()
                    counted[w.job.name] = w.watch.updates
                for w in pool.collect():
                    again = w.job in pending
                    counted[w.job.name] = w.watch.updates if again else w.job.settings.updates
                    if w.watch.ended:
                        whole.add(w.job.name)
                        ended(w.job)
                left = len(pending) + len(pool.running)
                bars.update(
                    bar,
                    completed=sum(counted.values()),
                    description=_title(pool, len(jobs), left),
                )
            if asked.count:
                _stop(pool, asked)
        finally:
            pool.signal(signal.SIGKILL)
            for w in pool.running:
                w.process.wait()
            if pool.warm is not None:
                pool.warm.end()
    if asked.count:
        raise SystemExit(128 + asked.number)


def _stop(pool: Pool, asked: Signals) -> None:
    """Ask every worker to stop and wait; a second signal kills them."""
    pool.console.print(
        f"Stopping: {len(pool.running)} workers finish their update and save "
        "(again: they are killed, the last checkpoints stand).",
        markup=False,
    )
    pool.signal(signal.SIGTERM)
    while pool.running and asked.count < 2:
        time.sleep(PAUSE)
        pool.collect()


def _environment(slot: Slot) -> dict[str, str]:
    return {**os.environ, **dict.fromkeys(ONE_THREAD, "1"), **slot}


def _warm(jobs: Sequence[Job], free: Sequence[Slot]) -> Warm | None:
    """Where forks are safe and pay: plain CPU slots, and more runs than can start at once."""
    if not sys.platform.startswith("linux") or any(free) or len(jobs) <= len(free):
        return None
    classes = architectures([j.settings.model.path for j in jobs])
    python, *program = TETHER
    run = [python, "-m", "tether.studies.warm", *program, *classes]
    return Warm.begin(_command(run), _environment({}))


def _command(run: list[str]) -> list[str]:
    if not sys.platform.startswith("linux"):
        return run
    return [sys.executable, "-c", _GUARD, str(os.getpid()), *run]


def _can_resume(job: Job) -> bool:
    return any((job.folder / "checkpoints").glob("*"))


def _clear(folder: Path) -> None:
    """A run that was stopped before its first checkpoint starts again, and identically."""
    if not (folder / "config.yaml").is_file():
        raise UserError(f"{folder} holds files that are no run; move them away")
    shutil.rmtree(folder)


def _looked(job: Job) -> Watch:
    watch = Watch(job.folder / "record.jsonl")
    watch.look()
    return watch


def _last_line(log: Path, status: int | None = None) -> str:
    """What a run ended with: the last line of its log or, of a traceback, the error that it is of,
    with the note behind it. Behind the line of one that is out of memory others may fail."""
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [x for x in text.splitlines() if x.strip()]
    if status == OUT_OF_MEMORY and (ours := [x for x in lines if x.startswith("tether: ")]):
        lines = [ours[-1]]
    last = lines[-1].strip() if lines else "no output"
    starts = [i for i, x in enumerate(lines) if x.startswith("Traceback (most recent call last)")]
    if starts and last.startswith("run folder: "):
        after = lines[starts[-1] + 1 :]
        error = next(x.strip() for x in after if not x.startswith(" "))
        last = f"{error[:400]} ({last})" if error != last else last
    return last[:500]


def _title(pool: Pool, total: int, left: int) -> str:
    failed = f", {len(pool.failures)} failed" if pool.failures else ""
    return f"{total - left} of {total} runs{failed}"


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("updates"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        speed_estimate_period=600.0,
    )


@contextlib.contextmanager
def _signals() -> Iterator[Signals]:
    """Count SIGINT and SIGTERM instead of dying of them (main thread only: Python's rule)."""
    asked = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    kept = {n: signal.signal(n, asked) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
