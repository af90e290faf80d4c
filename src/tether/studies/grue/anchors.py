"""Floor and ceiling of every metric, computed once from the test examples before any run.

    floor    what an empty output or the copied prompt gets, whichever is better
    ceiling  a human reference against the others where most examples have several, else the
             metric's maximum

Nothing of it depends on a model that is compared. `anchors/TASK.json` holds them with the hash of
the examples and the metrics' signatures; a metric whose ceiling is not above its floor is dropped,
or not by more than the examples' chance, as is one that cannot be computed, and each says why.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tether.analysis.grue import PERPLEXITY, Anchor
from tether.analysis.jackknife import GROUPS, groups, standard_error
from tether.config.errors import UserError
from tether.config.json_file import digest, read_mapping
from tether.config.run import DataSettings, RunSettings
from tether.config.whole_file import write_whole
from tether.metrics.base import Metric, Samples
from tether.models.loading import load_tokenizer
from tether.reports.grue.anchors_file import CHANGED, RECOMPUTE
from tether.rewards.batch import Prompt
from tether.studies.grue.metrics import Entry
from tether.tasks.loading import prompts_given, splits

FOLDER = "anchors"
SEVERAL = 0.5
"""Share of the examples that must have several references for a human ceiling."""
ERRORS = 3.0
"""Standard errors over examples, at least, between a floor and a human ceiling. On less than that
everything is divided by chance: BLEU of abstracts and one-sentence summaries has .045 and .049, and
a policy's .18 would stand at 36."""


@dataclass(frozen=True)
class Examples:
    """Test examples of a task, in the order in which every run is evaluated on them."""

    prompts: list[str]
    references: list[list[str]]
    columns: dict[str, list[Any]]
    sha256: str
    """Of prompts and references."""
    given: Sequence[Any] = ()
    """The prompts as a model was given them, cut where they were too long: what metrics read that
    say so (`Metric.as_given`)."""

    def __len__(self) -> int:
        return len(self.prompts)

    def samples(self, texts: Sequence[str], metric: Metric, at: Sequence[int] = ()) -> Samples:
        """Texts for the examples (all, or some by position) with what a metric reads."""
        rows = list(at) or list(range(len(self)))
        prompts = self.read_by(metric)
        return Samples(
            [texts[i] if metric.keeps_blanks else texts[i].strip() for i in rows],
            [self.references[i] for i in rows] if metric.needs_references else None,
            [prompts[i] for i in rows],
            {c: [self.columns[c][i] for i in rows] for c in metric.columns() if c in self.columns},
        )

    def read_by(self, metric: Metric) -> Sequence[Any]:
        """The prompts that a metric reads."""
        if metric.as_given and len(self.given) != len(self):
            raise ValueError(f"{metric.name} reads prompts as models are given them: none are here")
        return self.given if metric.as_given else self.prompts


def examples(settings: RunSettings) -> Examples:
    """Those that a run with these settings is tested on. Raises UserError where there are none."""
    found = splits(settings.data, caps={"test": settings.evaluation.test_prompts})
    if "test" not in found:
        raise UserError(
            f"{settings.data.path} has no test split with references: hold rows out "
            "(--data.test_rows N) or name one (--data.test NAME)"
        )
    table, _ = found["test"]
    prompts, references = list(table["prompt"]), [list(r) for r in table["references"]]
    text = json.dumps([prompts, references], ensure_ascii=False)
    columns = {k: list(v) for k, v in table.items()}
    return Examples(prompts, references, columns, hashlib.sha256(text.encode()).hexdigest())


def given(settings: RunSettings) -> list[Prompt]:
    """The prompts of `examples` as the model of these settings is given them: loads its tokenizer.
    Raises UserError."""
    found = splits(settings.data, caps={"test": settings.evaluation.test_prompts})
    return prompts_given(settings.data, load_tokenizer(settings.model), *found["test"])


def given_again(settings: RunSettings, rows: Examples) -> list[Prompt] | None:
    """The prompts of examples that are there, as the model of a run that has finished was given
    them. None where nobody knows: only a model says what its positions leave, or the run is
    measured where its tokenizer is not."""
    data = settings.data
    if data.too_long == "error":
        return list(rows.prompts)
    if data.max_prompt_tokens is None:
        return None
    try:
        tokenizer = load_tokenizer(settings.model)
    except (UserError, OSError):
        return None
    return prompts_given(data, tokenizer, rows.columns, list(range(1, len(rows) + 1)))


def check_cuts(task: str, entries: Sequence[Entry], runs: Iterable[DataSettings]) -> None:
    """Where metrics read prompts as models are given them, that is one cut for all runs of a task,
    and known before any.

    Raises UserError.
    """
    reading = [e.name for e in entries if e.metric is not None and e.metric.as_given]
    cuts = {(data.max_prompt_tokens, data.too_long) for data in runs}
    if not reading:
        return
    said = f"{', '.join(reading)} of {task} reads prompts as models are given them"
    if len(cuts) > 1:
        raise UserError(
            f"{said}, and settings cut them otherwise for some cells than for others: give "
            "data.max_prompt_tokens and data.too_long once for all (`all` in a settings file)"
        )
    if any(tokens is None and how != "error" for tokens, how in cuts):
        raise UserError(f"{said}: set data.max_prompt_tokens, which is open")


def anchor(entry: Entry, rows: Examples) -> Anchor:
    """Both ends of one metric, or why it is dropped."""
    if entry.is_perplexity:
        return Anchor(entry.name, entry.family, PERPLEXITY, ceiling_is="initial model / policy")
    if entry.metric is None:
        return Anchor(entry.name, entry.family, dropped=entry.missing)
    metric = entry.metric
    if entry.family == "other":
        return Anchor(entry.name, entry.family, metric.signature)
    better = max if metric.higher_is_better else min
    several = [i for i, r in enumerate(rows.references) if len(r) > 1]
    human = len(several) >= SEVERAL * len(rows)
    lowest = {"empty output": [""] * len(rows), "copied prompt": list(rows.read_by(metric))}
    floors = {k: value_of(metric, rows.samples(t, metric)) for k, t in lowest.items()}
    floor = better(floors.values())
    floor_is = next(k for k, v in floors.items() if v == floor)
    ceiling, source = entry.maximum, "maximum of the metric"
    if human:
        ceiling = people(metric, rows, several)
        source = f"first reference against the others, {len(several)} of {len(rows)} examples"
    made = Anchor(
        entry.name,
        entry.family,
        metric.signature,
        floor,
        floor_is,
        ceiling if math.isfinite(ceiling) else None,
        source,
    )
    why = ""
    if not math.isfinite(ceiling):
        why = "it has no largest value and the examples have one reference"
    elif better(ceiling, floor) == floor:
        why = f"its ceiling {ceiling:.4g} ({source}) is not above its floor {floor:.4g}"
    elif human and len(rows) >= GROUPS:
        error = _error(metric, rows, lowest[floor_is])
        if abs(ceiling - floor) < ERRORS * error:
            why = (
                f"its ceiling {ceiling:.4g} ({source}) and its floor {floor:.4g} ({floor_is}) are "
                f"less than {ERRORS:g} standard errors over examples ({error:.2g}) apart"
            )
    return replace(made, dropped=why)


def people(metric: Metric, rows: Examples, at: Sequence[int]) -> float:
    """The first reference against the others, of the examples at these positions, which have
    several."""
    texts = [r[0] for r in rows.references]
    others = replace(rows, references=[r[1:] for r in rows.references], sha256="")
    return value_of(metric, others.samples(texts, metric, at))


def _error(metric: Metric, rows: Examples, lowest: Sequence[Any]) -> float:
    """Standard error over examples of ceiling - floor, `lowest` being what the floor is of."""
    apart = []
    for group in groups(len(rows)):
        left = [i for i in range(len(rows)) if i not in set(group)]
        ceiling = people(metric, rows, [i for i in left if len(rows.references[i]) > 1])
        apart.append(ceiling - value_of(metric, rows.samples(lowest, metric, left)))
    return standard_error(apart) or 0.0


def value_of(metric: Metric, samples: Samples) -> float:
    """Of the corpus. Raises UserError where it is not a number."""
    return with_parts(metric, samples)[0]


def with_parts(metric: Metric, samples: Samples) -> tuple[float, dict[str, float]]:
    """Value of the corpus and its parts. Raises UserError where the value is not a number."""
    found = metric(samples)
    value = found.value
    if value is None or not math.isfinite(value):
        raise UserError(f"the metric {metric.name} gives {value} for {len(samples)} texts")
    return value, found.parts


def store(
    folder: Path,
    task: str,
    entries: Sequence[Entry],
    rows: Examples,
    prompts: Callable[[], Sequence[Any]] = tuple,
) -> list[Anchor]:
    """The anchors of a task: read, where they are there and of the same examples and metrics, else
    computed and written.

    prompts: as models are given them; called only where anchors are computed that need them.
    Raises UserError: what is there is of others, was changed by hand, or leaves no task metric.
    """
    file = folder / FOLDER / f"{task}.json"
    if file.is_file():
        return _same(file, entries, rows)
    if any(e.metric is not None and e.metric.as_given for e in entries):
        rows = replace(rows, given=prompts())
    found = [anchor(e, rows) for e in entries]
    if not any(a.family == "task" and not a.dropped for a in found):
        why = "; ".join(f"{a.metric}: {a.dropped}" for a in found if a.dropped)
        raise UserError(f"no metric of the task {task} can be used ({why})")
    content = {
        "task": task,
        "examples": len(rows),
        "examples_sha256": rows.sha256,
        "metrics": [asdict(a) for a in found],
    }
    if _read_given(entries, {a.metric for a in found if not a.dropped}):
        content["prompts_given_sha256"] = digest(list(rows.given))
    content["sha256"] = digest(content)
    write_whole(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return found


def _same(file: Path, entries: Sequence[Entry], rows: Examples) -> list[Anchor]:
    content = read_mapping(file, RECOMPUTE, "metrics", "examples_sha256", "sha256")
    stated = content.pop("sha256", "")
    if digest(content) != stated:
        raise UserError(f"{file} {CHANGED}")
    found = [Anchor(**a) for a in content["metrics"]]
    kept = {a.metric: a.signature for a in found if not a.dropped}
    for e in entries:
        if e.name in kept and e.missing:
            raise UserError(f"{file} has the metric {e.name}, which is not to be had: {e.missing}")
    now = {
        e.name: PERPLEXITY if e.metric is None else e.metric.signature
        for e in entries
        if e.name in kept
    }
    if content["examples_sha256"] != rows.sha256:
        raise UserError(
            f"{file} is of other test examples than these settings give; take another --out FOLDER"
        )
    reading = _read_given(entries, kept)
    if reading and "prompts_given_sha256" not in content:
        raise UserError(
            f"{file} is of an earlier version, in which {', '.join(reading)} read whole prompts, "
            "and not those that models are given: delete this file; finished cells are then "
            "measured again, and not trained"
        )
    if now != kept or {(e.name, e.family) for e in entries} != {
        (a.metric, a.family) for a in found
    }:
        raise UserError(
            f"{file} is of other metrics, of other versions of them, or has another of them in a "
            "score: take another --out FOLDER, or delete this file; finished cells are then "
            "measured again, and not trained"
        )
    return found


def _read_given(entries: Sequence[Entry], kept: Container[str]) -> list[str]:
    """Those metrics that are kept and read prompts as models are given them."""
    return [e.name for e in entries if e.name in kept and e.metric and e.metric.as_given]
