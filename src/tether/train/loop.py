"""The loop. Numbers refer to the box in docs/design.md. No branch on any method's name."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from tether.config.run import RunSettings
from tether.config.settings import method_of
from tether.distributed.total import main_process, total
from tether.records import EvalPoint
from tether.train import persist, self_checks
from tether.train.agent import Agent
from tether.train.best import BestUnderBudget
from tether.train.collect import collect, reward_thread
from tether.train.evaluate import evaluate, probe
from tether.train.events import apply_event, tick
from tether.train.files import RunFiles
from tether.train.final import finish
from tether.train.seeding import seed_user_code
from tether.train.signals import Interrupted, StopRequest
from tether.train.telling import words
from tether.train.trackers import Trackers
from tether.train.update import PolicyLearner
from tether.types import Clock, Rollout, Unit, WeightEvent

Progress = Callable[[int, int, str], None]
"""(completed updates, all updates, a few words)"""


class Run:
    """One execution: agents, files and counters. `run()` goes on from the newest checkpoint."""

    def __init__(
        self,
        agents: list[Agent],
        folder: Path,
        settings: RunSettings,
        config: str,
        *,
        notes: dict[str, Any] | None = None,
        progress: Progress | None = None,
        stop: StopRequest | None = None,
    ) -> None:
        self.agents, self.folder, self.settings, self.config = agents, folder, settings, config
        self.notes, self.progress, self.stop = notes or {}, progress, stop or StopRequest()
        self.clocks = {a.name: Clock() for a in agents}
        self.files = RunFiles(folder, main_process())
        self.trackers = Trackers(settings, folder) if main_process() else None
        self.best = {a.name: self._candidates(a) for a in agents}
        self.told: list[EvalPoint] = []
        self.skipped = persist.restore(self)

    @property
    def update(self) -> int:
        return self.clocks[self.agents[0].name].update

    def _candidates(self, agent: Agent) -> BestUnderBudget:
        keeps = main_process() and "test" in agent.tasks
        return BestUnderBudget(self.folder / "best" / agent.name, agent.evaluation.budgets, keeps)

    def _tick(self, agent: Agent, unit: Unit) -> list[WeightEvent]:
        self.clocks[agent.name] = clock = self.clocks[agent.name].tick(unit)
        return tick(agent, unit, clock)

    def _evaluate(self, side: str = "", *, common: bool) -> None:
        started = time.perf_counter()
        for a in self.agents:
            for point, samples in evaluate(
                a, self.update, "validation", side=side, common=common, heed=self.between
            ):
                self.keep(a, point, samples)
        seconds = time.perf_counter() - started
        self.files.timing(update=self.update, side=side, evaluation_seconds=seconds)

    def keep(self, agent: Agent, point: EvalPoint, samples: list[dict[str, Any]]) -> None:
        self.files.record("eval", **asdict(point))
        for row in samples:
            self.files.sample(**row)
        self.told.append(point)
        self.best[agent.name].consider(point, agent.sets.sets["policy"])
        if self.trackers:
            self.trackers.point(point)

    def _learn(self, pool: ThreadPoolExecutor) -> None:
        rollouts: dict[str, Rollout] = {}
        u, seed = self.update, self.settings.seed
        for a in self.agents:
            seconds: dict[str, float] = {}
            algorithm = a.algorithm.at(u)
            e = collect(a, algorithm, u, seed, rollouts, pool, seconds)  # 1-5
            rollouts[a.name] = e.rollout
            targets = algorithm.advantages(e, total)  # 6
            learner = PolicyLearner(
                a,
                algorithm,
                lambda unit, a=a: self._tick(a, unit),  # type: ignore[misc]
                lambda a=a: self.clocks[a.name],  # type: ignore[misc]
                seed,
            )
            started = time.perf_counter()
            algorithm.update(learner, e, targets)  # 7-9
            learned = learner.log
            seconds["learning"] = time.perf_counter() - started
            self_checks.first_ratios(a, learner.first)
            self_checks.metrics_exist(a, u)
            metrics = learned | {
                k: value for k, (value, version) in a.measured.items() if version == a.version
            }
            for name, t in a.tethers.items():
                metrics |= {f"tether/{name}/{k}": v for k, v in t.report(e, total).items()}
            self.files.record(
                "update", agent=a.name, update=u + 1, policy_version=a.version, metrics=metrics
            )  # 10
            self.files.timing(update=u + 1, agent=a.name, seconds=seconds, peak_bytes=_peak())
            if self.trackers:
                self.trackers.update(u + 1, metrics, seconds)
            a.version += 1

    def _due(self) -> bool:
        s = self.settings
        return self.update % s.evaluation.every == 0 or self.update == s.updates

    def _after_update(self) -> None:
        events = [(a, e) for a in self.agents for e in self._tick(a, "update")]  # 11
        if events:  # 12
            self._evaluate("before", common=False)
            for a, event in events:
                moves = apply_event(a, event, a.optimizer, probe)
                self.files.record(
                    "event",
                    agent=a.name,
                    update=self.update,
                    reason=event.reason,
                    moves=moves,
                    optimizer=event.optimizer,
                    critic=event.critic,
                    controllers=event.controllers,
                    counts=dict(sorted(a.sets.counts.items())),
                )
            self._evaluate("after", common=self._due())
        elif self._due():
            self._evaluate(common=True)

    def heed(self) -> None:
        """Leave if a signal has come; what the newest checkpoint lacks is repeated at resume."""
        if code := self.stop.agreed():
            raise Interrupted(code, self.folder, saved=self.update > 0)

    def between(self) -> None:
        """The same between the batches of an evaluation that is repeated at resume."""
        if self.stop.batch():
            self.heed()

    def _begin(self) -> None:
        self.files.record(
            "start",
            config=self.config,
            method=method_of(self.settings),
            agents=[a.name for a in self.agents],
            seed=self.settings.seed,
            notes=self.notes,
        )
        seed_user_code(self.settings.seed, 0)
        with self.stop.repeatable():
            self._evaluate(common=True)

    def run(self) -> Path:
        updates, every = self.settings.updates, self.settings.checkpoint.every
        with reward_thread() as pool:
            if self.update == 0:
                self._begin()
            while self.update < updates:
                started = time.perf_counter()
                seed_user_code(self.settings.seed, self.update + 1)
                self._learn(pool)
                self._after_update()
                self.stop.seconds_left = time.perf_counter() - started
                code = self.stop.agreed()
                if code or self.update == updates or (every and self.update % every == 0):  # 13
                    persist.save(self)
                if code:
                    raise Interrupted(code, self.folder)
                if self.progress:
                    self.progress(self.update, updates, words(self.agents[0], self.told))
                    self.told = []
            with self.stop.repeatable():
                finish(self)
        return self.folder


def _peak() -> int:
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
