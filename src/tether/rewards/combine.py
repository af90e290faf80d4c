"""Several rewards of one run: called, checked, weighted and logged apart.

    token_rewards_i[t] = sum over rewards f that gave sample i a list of  weight_f * f_i[t]
    score_i = sum_t token_rewards_i[t] + sum over the other rewards f of  weight_f * f_i

A reward that returned None for a sample has no part in the sample's sum (as TRL 1.16, nansum).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tether.config.errors import UserError
from tether.config.nearest import nearest
from tether.rewards.background import gather
from tether.rewards.base import Reward
from tether.rewards.batch import RewardBatch
from tether.rewards.values import Value, collect, fault, label

_SEARCH = 64
"""Samples that are called again one by one to find the one that raises."""


@dataclass(frozen=True)
class RewardResult:
    """Scores of n samples; `concatenate` joins the chunks of one update."""

    score: list[float | None]
    """Weighted sum over all rewards, token rewards included; None = no reward gave a number (the
    sample is masked and counted, never 0)."""
    per_function: dict[str, list[float | None]]
    """name -> raw values, unweighted; of token rewards their sum."""
    token_rewards: list[list[float]] | None = None
    """The part of `score` that lies on tokens: weighted, one list a sample, as long as its
    completion_ids; None where no reward gave lists. The rest belongs on the last sampled token."""
    extra: dict[str, list[Any]] = field(default_factory=dict)
    """`log_extra` columns, n values each."""
    logged: dict[str, list[float]] = field(default_factory=dict)
    """`log_metric` values."""
    lengths: list[int] = field(default_factory=list)
    """Tokens of each completion."""

    @property
    def terminal(self) -> list[float | None]:
        """`score` without the token rewards: what belongs on the last sampled token."""
        if self.token_rewards is None:
            return list(self.score)
        return [
            None if s is None else s - math.fsum(t)
            for s, t in zip(self.score, self.token_rewards, strict=True)
        ]

    @property
    def kept(self) -> list[bool]:
        """False = dropped: no reward gave a number."""
        return [s is not None for s in self.score]

    @property
    def missing(self) -> dict[str, int]:
        """name -> samples to which that reward did not apply."""
        return {name: values.count(None) for name, values in self.per_function.items()}

    @property
    def metrics(self) -> dict[str, float]:
        """`log.NAME`: mean of what the functions logged under NAME with `log_metric`."""
        return {f"log.{k}": math.fsum(v) / len(v) for k, v in self.logged.items()}

    @staticmethod
    def concatenate(parts: Sequence[RewardResult]) -> RewardResult:
        """The results of several chunks as one, in order. Of extra columns that only some chunks
        have, the others' values are None. Raises ValueError for no parts."""
        if not parts:
            raise ValueError("no reward results to concatenate")
        tokens: list[list[float]] | None = None
        if any(p.token_rewards is not None for p in parts):
            # a chunk to which no token reward applied has none to give
            tokens = [
                row
                for p in parts
                for row in (
                    [[0.0] * n for n in p.lengths] if p.token_rewards is None else p.token_rewards
                )
            ]
        names = dict.fromkeys(k for p in parts for k in p.per_function)
        columns = dict.fromkeys(k for p in parts for k in p.extra)
        logged = dict.fromkeys(k for p in parts for k in p.logged)
        return RewardResult(
            score=[s for p in parts for s in p.score],
            per_function={k: [v for p in parts for v in p.per_function[k]] for k in names},
            token_rewards=tokens,
            extra={
                k: [v for p in parts for v in p.extra.get(k, [None] * len(p.score))]
                for k in columns
            },
            logged={k: [v for p in parts for v in p.logged.get(k, [])] for k in logged},
            lengths=[n for p in parts for n in p.lengths],
        )


@dataclass
class _Log:
    """Collects what the functions of one call log."""

    n: int
    extra: dict[str, list[Any]] = field(default_factory=dict)
    metrics: dict[str, list[float]] = field(default_factory=dict)

    def column(self, name: str, values: list[Any]) -> None:
        values = list(values)
        if len(values) != self.n:
            raise ValueError(
                f"log_extra({name!r}) got {len(values)} values for {self.n} completions"
            )
        self.extra[name] = values

    def metric(self, name: str, value: float) -> None:
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"log_metric({name!r}) got {number}")
        self.metrics.setdefault(name, []).append(number)


@dataclass
class RewardSet:
    """All rewards of a run, by name. `score` may be called from several threads."""

    rewards: dict[str, Reward]

    def __post_init__(self) -> None:
        for name, reward in self.rewards.items():
            if name in ("score", "total", "dropped", "environment"):
                raise UserError(f"a reward cannot be called {name!r}: the record uses that name")
            if not math.isfinite(reward.weight):
                raise UserError(f"{label(name, reward)}: weight is {reward.weight}")

    def check(self, columns: Sequence[str] | None = None) -> None:
        """Everything that can fail early: names importable, columns there. Raises UserError."""
        there = list(columns or ())
        for name, reward in self.rewards.items():
            reward.check()
            for column in reward.needs() if columns is not None else ():
                if column not in there:
                    close = nearest(column, there)
                    hint = f"did you mean {close!r}?" if close else f"there are {there}"
                    raise UserError(f"{label(name, reward)} needs the column {column!r}; {hint}")

    def check_rows(self, table: Mapping[str, Sequence[Any]], numbers: Sequence[int]) -> None:
        """That every row has what the rewards read. numbers: of the rows in their source. Raises
        UserError naming the first row without, and how many there are."""
        for name, reward in self.rewards.items():
            wanted = reward.needs()
            if gone := [c for c in wanted if c not in table]:
                raise UserError(
                    f"{label(name, reward)} needs the column {gone[0]!r}; there are {list(table)}"
                )
            bad: list[tuple[int, str]] = []
            for i, number in enumerate(numbers if wanted else ()):
                if why := reward.lacks({c: table[c][i] for c in wanted}):
                    bad.append((number, why))
            if bad:
                number, why = min(bad)
                more = f" ({len(bad) - 1} further rows are no better)" if len(bad) > 1 else ""
                raise UserError(f"{label(name, reward)}: row {number} of the data {why}{more}")

    def prepare(self) -> None:
        """Load learned rewards."""
        for reward in self.rewards.values():
            reward.prepare()

    def versions(self) -> dict[str, dict[str, str]]:
        """name -> what computes it: numbers of other code or weights are another quantity."""
        return {k: {"source": r.source, "version": r.version} for k, r in self.rewards.items()}

    def score(self, batch: RewardBatch) -> RewardResult:
        """Scores of one batch. Raises UserError naming function, sample and prompt (B29)."""
        batch.check()
        if not len(batch):
            return RewardResult([], {name: [] for name in self.rewards})
        log = _Log(len(batch))
        inner = replace(batch, log_extra=log.column, log_metric=log.metric)
        values = self._call(inner)
        kinds: dict[str, bool] = {}
        for name, given in values.items():
            present = [isinstance(v, list) for v in given if v is not None]
            if present and any(present) != all(present):
                raise fault(
                    name,
                    self.rewards[name],
                    batch,
                    present.index(not present[0]),
                    "returned a number for some samples and a list for others; return one kind",
                )
            kinds[name] = any(present)
        for name, rows in log.extra.items():
            batch.log_extra(name, rows)
        for name, numbers in log.metrics.items():
            for number in numbers:
                batch.log_metric(name, number)
        return self._sum(batch, values, any(kinds.values()), log)

    def _call(self, batch: RewardBatch) -> dict[str, list[Value]]:
        returned: dict[str, Any] = {}
        waiting: dict[str, Awaitable[Any]] = {}
        for name, reward in self.rewards.items():
            try:
                out = reward(batch)
            except Exception as error:
                for other in waiting.values():
                    _close(other)
                if isinstance(error, UserError):
                    raise
                raise self._raised(name, batch, error) from error
            if isinstance(out, Awaitable):
                waiting[name] = out
            else:
                returned[name] = out
        if waiting:
            for name, out in zip(waiting, gather(list(waiting.values())), strict=True):
                if isinstance(out, Exception) and not isinstance(out, UserError):
                    raise self._raised(name, batch, out) from out
                if isinstance(out, BaseException):
                    raise out
                returned[name] = out
        return {
            name: collect(returned[name], name, reward, batch)
            for name, reward in self.rewards.items()
        }

    def _raised(self, name: str, batch: RewardBatch, error: Exception) -> UserError:
        """The error with the sample that causes it, found by calling sample by sample once more."""
        reward = self.rewards[name]
        what = f"raised {type(error).__name__}: {' '.join(str(error).split())}"
        if len(batch) == 1:
            return fault(name, reward, batch, 0, what)
        for i in range(min(len(batch), _SEARCH)):
            log = _Log(1)
            one = replace(batch.row(i), log_extra=log.column, log_metric=log.metric)
            try:
                out = reward(one)
                if isinstance(out, Awaitable):
                    (out,) = gather([out])
                    if isinstance(out, Exception):
                        raise out
            except Exception as again:
                if type(again) is type(error):
                    return fault(name, reward, batch, i, what)
        return UserError(
            f"{label(name, reward)} {what}, on {len(batch)} samples together (no single one "
            f"repeats it); sample 1 has prompt {batch.beginning(0)}"
        )

    def _sum(
        self, batch: RewardBatch, values: Mapping[str, list[Value]], tokens: bool, log: _Log
    ) -> RewardResult:
        score: list[float | None] = []
        lists: list[list[float]] = []
        for i in range(len(batch)):
            total, row, there = 0.0, [0.0] * len(batch.completion_ids[i]), False
            for name, given in values.items():
                value, weight = given[i], self.rewards[name].weight
                if value is None:
                    continue
                there = True
                if isinstance(value, list):
                    row = [a + weight * b for a, b in zip(row, value, strict=True)]
                else:
                    total += weight * value
            if not there:
                self._nothing(batch, i)
            score.append(total + math.fsum(row) if there else None)
            lists.append(row)
        flat = {
            name: [math.fsum(v) if isinstance(v, list) else v for v in given]
            for name, given in values.items()
        }
        lengths = [len(x) for x in batch.completion_ids]
        return RewardResult(score, flat, lists if tokens else None, log.extra, log.metrics, lengths)

    def _nothing(self, batch: RewardBatch, i: int) -> None:
        """A sample without any number: an error unless every reward says `missing: drop`."""
        strict = [n for n, r in self.rewards.items() if r.missing == "error"]
        if strict:
            raise fault(
                strict[0],
                self.rewards[strict[0]],
                batch,
                i,
                "no number for this sample (None means that a reward does not apply, and none of "
                f"{list(self.rewards)} applies); missing: drop on each leaves such samples out",
            )


def _close(awaitable: Awaitable[Any]) -> None:
    """A coroutine that nobody will await, without Python's warning."""
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()
