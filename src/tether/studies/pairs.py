"""`tether reward-model pairs`: preference pairs sampled from two runs or models.

    prompts -> a completion of A and one of B -> filter -> raters -> pairs.jsonl

Raters are simulated (see `raters`), or the pairs go to a form for people. With A = B the pairs are
two samples of one model, with another seed each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from tether.config.errors import UserError
from tether.config.parts import build
from tether.config.run import DataSettings, RunSettings
from tether.config.settings import read
from tether.config.whole_file import write_whole
from tether.distributed.seeds import generator, seed_of
from tether.models.loading import load_tokenizer
from tether.rewards.base import Reward
from tether.rewards.batch import Prompt
from tether.studies.pair_samples import Kept, asked, samples_of
from tether.studies.raters import (
    Candidate,
    check_form,
    form_texts,
    judged,
    key_of,
    rater,
    read_reward,
    scores,
)
from tether.tasks.loading import load_task
from tether.tasks.task import Task
from tether.train.run import generate

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What is sampled, and how."""

    a: str
    b: str
    """Runs, folders of models, or hub ids."""
    data: str | None = None
    """File, folder or hub id of the prompts; default: the training prompts of the run `a`."""
    column: str = "prompt"
    """Column of the prompts in `data`."""
    prompts: int = 128
    """The first of them after a shuffle by `seed`."""
    per_prompt: int = 1
    """Pairs of each."""
    max_new_tokens: int | None = None
    temperature: float | None = None
    """Default: as in the run, else as a run has it by default."""
    seed: int = 0
    filter: str | None = None
    """Reward (a word or a mapping): a pair stays where both completions have at least `least`."""
    least: float = 1.0


def collect(
    chosen: Sampling,
    *,
    out: Path | None = None,
    form: Path | None = None,
    raters: Sequence[str] = (),
    noise: float = 1.0,
    say: Say = print,
) -> dict[str, Any]:
    """Sample, filter, and write `out` (judged by `raters`) or `form` (for people); the counts.

    Raises UserError before sampling for what can be known then: a file that exists, a rater that
    cannot be read or fails on a made-up completion, a run without weights. What fails later leaves
    the completions in a file beside the target, from which the next call goes on.
    """
    if (out is None) == (form is None):
        raise UserError("give either --out PAIRS.jsonl with --rater, or --form FORM.csv for people")
    if bool(raters) != (out is not None):
        raise UserError("--out needs at least one --rater NAME=REWARD, and --form takes none")
    target = out or form
    assert target is not None
    if form is not None:
        check_form(form)
    beside = [facts_of(target), *([] if form is None else [key_of(form)])]
    # with completions kept, those are of a result whose writing was cut short
    free([target, *([] if samples_of(target).is_file() else beside)])
    if not math.isfinite(chosen.least):
        raise UserError(f"--least is {chosen.least}, must be a finite number")
    judges = [rater(text, noise, chosen.seed) for text in raters]
    names = [r.name for r in judges]
    if len(set(names)) < len(names):
        raise UserError(f"two raters have one name: {names}; a name stands in each row")
    wanted = None
    if chosen.filter is not None:
        wanted = build("reward", read_reward(chosen.filter, "--filter"), "--filter")
    asks = {f"--rater {r.name}": r.reward for r in judges}
    asks |= {} if wanted is None else {"--filter": wanted}
    for reward in asks.values():
        reward.check()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    settings = _settings(chosen.a)
    _settings(chosen.b)
    tokenizer = load_tokenizer(settings.model)
    task = _prompts(chosen, settings, tokenizer)
    for where, reward in asks.items():
        _tried(reward, where, task, tokenizer)
    rows, prompts = _drawn(chosen, task)
    sampling = ("a", "b", "data", "column", "per_prompt", "max_new_tokens", "temperature", "seed")
    of = asked({k: getattr(chosen, k) for k in sampling}, (chosen.a, chosen.b), prompts)
    store = Kept(samples_of(target), of, say)
    candidates, counts = _sampled(chosen, task, rows, prompts, store, say)
    with store.named():
        candidates = _filtered(candidates, wanted, chosen.least, tokenizer, counts)
        if out is not None:
            texts = {out: pairs_text(judged(candidates, judges, tokenizer))}
        else:
            texts = form_texts(candidates, target, chosen.seed)
        facts = {
            "a": chosen.a, "b": chosen.b, "seed": chosen.seed, "filter": chosen.filter,
            "raters": [r.facts() for r in judges], **counts,
        }  # fmt: skip
        write({**texts, facts_of(target): json.dumps(facts, indent=1, ensure_ascii=False) + "\n"})
    store.remove()
    say(f"{target}: {_told(counts)}")
    return facts


def _filtered(
    candidates: list[Candidate], wanted: Reward | None, least: float, tokenizer: Any,
    counts: dict[str, int],
) -> list[Candidate]:  # fmt: skip
    """Those of which both completions reach `least`, counted. Raises UserError where none is."""
    if wanted is not None and candidates:
        values = scores(wanted, candidates, tokenizer)
        kept = [c for c, v in zip(candidates, values, strict=True) if min(v) >= least]
        counts["filtered_out"] = len(candidates) - len(kept)
        candidates = kept
    if not candidates:
        raise UserError(f"no pair is left ({_told(counts)}); sample more prompts, or filter less")
    counts["pairs"] = len(candidates)
    return candidates


def facts_of(target: Path) -> Path:
    """Where the counts and settings of a file of pairs stand."""
    return target.with_name(target.name + ".facts.json")


def free(paths: Sequence[Path]) -> None:
    """Raises UserError where a file exists: nothing is overwritten."""
    taken = next((p for p in paths if p.exists()), None)
    if taken is not None:
        raise UserError(f"{taken} exists; choose another name, nothing is overwritten")


def write(texts: Mapping[Path, str]) -> None:
    """Files, each whole or not at all, the first last: it is there only when the others are."""
    for path, text in reversed(list(texts.items())):
        try:
            write_whole(path, text)  # as it is: a form has line ends of its own
        except OSError as e:
            raise UserError(f"cannot write {path}: {e.strerror or e}") from e


def pairs_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """JSON lines of judged pairs."""
    return "".join(json.dumps(r, ensure_ascii=False, default=str) + "\n" for r in rows)


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{k.replace('_', ' ')} {n}" for k, n in counts.items())


def _settings(source: str) -> RunSettings:
    """Of a run, or those that load a model. Raises UserError for a run that cannot write."""
    folder = Path(source)
    if not (folder / "config.yaml").is_file():
        return RunSettings(model=replace(RunSettings().model, path=source))
    settings = read(folder)
    if not isinstance(settings, RunSettings):
        raise UserError(f"{folder} is a reward model: it writes no text")
    if not (folder / "policy").is_dir():
        raise UserError(
            f"{folder} has no policy/: train it with --checkpoint.export true, and to its end"
        )
    return settings


def _prompts(chosen: Sampling, settings: RunSettings, tokenizer: Any) -> Task:
    """The training prompts of `data`, or of the run as it reads them."""
    data = settings.data
    if chosen.data is not None:
        data = DataSettings(path=chosen.data, prompt=chosen.column, validation_rows=0)
    elif not data.path:
        raise UserError(f"{chosen.a} is a model, not a run: say which prompts: --data FILE")
    data = replace(data, limit=None)
    caps = {"validation": 1, "test": 1}
    task = load_task(data, tokenizer, settings.sampling, caps=caps)["train"]
    assert task is not None  # `splits` refuses data without rows
    return task


def _tried(reward: Reward, where: str, task: Task, tokenizer: Any) -> None:
    """Raises UserError for a reward that fails on made-up completions: after the sampling is late.
    Of two prompts, since a reward that returns too few values may be right for one."""
    made_up = [
        Candidate("made up", task.raw_prompts[i], ("This is a try.", "So is this."), ("", ""),
                  {k: v[i] for k, v in task.columns.items()})
        for i in (0, len(task) - 1)
    ]  # fmt: skip
    try:
        scores(reward, made_up, tokenizer)
    except UserError as e:
        raise UserError(f"{where}, tried on made-up completions before sampling: {e}") from e


def _drawn(chosen: Sampling, task: Task) -> tuple[list[int], list[Prompt]]:
    """The prompts to sample of, with their rows."""
    order = torch.randperm(len(task), generator=generator("pairs", chosen.seed)).tolist()
    rows = order[: chosen.prompts]
    return rows, [task.raw_prompts[i] for i in rows]


def _sampled(
    chosen: Sampling, task: Task, rows: list[int], prompts: list[Prompt], store: Kept, say: Say
) -> tuple[list[Candidate], dict[str, int]]:
    sides = []
    for side, source in (("a", chosen.a), ("b", chosen.b)):

        def sample(side: str = side, source: str = source) -> list[list[str]]:
            say(f"{len(prompts)} prompts, {chosen.per_prompt} completions each, of {source}")
            return generate(
                source,
                prompts,
                chosen.per_prompt,
                max_new_tokens=chosen.max_new_tokens,
                temperature=chosen.temperature,
                seed=seed_of("pairs", chosen.seed, side),
            )

        sides.append(store.side(side, sample))
    names = _names(chosen)
    out: list[Candidate] = []
    equal = 0
    for i, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        columns = {k: v[row] for k, v in task.columns.items()}
        for j, (a, b) in enumerate(zip(sides[0][i], sides[1][i], strict=True)):
            if a == b:
                equal += 1
                continue
            # the letter keeps spreadsheets from reading it as a date
            pair = f"p{chosen.seed}-{task.source[row]}-{j}"
            out.append(Candidate(pair, prompt, (a, b), names, columns))
    counts = {"prompts": len(prompts), "sampled": len(prompts) * chosen.per_prompt, "equal": equal}
    return out, counts


def _names(chosen: Sampling) -> tuple[str, str]:
    """Short names of the sources, told apart where they would be equal."""
    a, b = (Path(x).name or x for x in (chosen.a, chosen.b))
    return (a, b) if a != b else (f"{a} (a)", f"{b} (b)")
