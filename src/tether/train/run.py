"""A run from its settings: folder, provenance, build, loop; and what reads a finished one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from tether.config.errors import UserError
from tether.config.folder import refuse_taken, run_folder
from tether.config.run import ClassifierSettings, RunSettings
from tether.config.settings import dump, fingerprint, read
from tether.config.text_values import write_yaml
from tether.core.weights import fingerprint as weights_hash
from tether.distributed.total import main_process
from tether.records import read_lines
from tether.rewards.batch import Prompt
from tether.train.agent import Agent
from tether.train.build import Parts, build_agent, build_parts, check_data, set_threads
from tether.train.disk import guarded
from tether.train.group import process_group
from tether.train.lock import writing
from tether.train.loop import Progress, Run
from tether.train.memory import enough
from tether.train.provenance import write_environment
from tether.train.signals import StopRequest
from tether.train.telling import described

Say = Callable[[str], None]


def complete(folder: Path) -> bool:
    """True where the record has its end line."""
    record = folder / "record.jsonl"
    return record.exists() and any(row["kind"] == "end" for row in read_lines(record))


def train(
    settings: RunSettings | ClassifierSettings,
    resume: bool = False,
    *,
    parts: Parts | None = None,
    progress: Progress | None = None,
    say: Say = print,
    loop: Callable[..., Run] = Run,
) -> Path:
    """Run to the end; returns the run's folder. With `resume` go on from its newest checkpoint.
    `loop` takes what `Run` takes (an ejected recipe brings its own).

    Raises UserError for anything the user can mend, `signals.Interrupted` after a signal.
    """
    folder = run_folder(settings)
    asks = not resume and os.environ.get("RANK", "0") == "0"  # the others may come later
    if asks:
        refuse_taken(settings)
    set_threads(settings)
    transformers_logging.disable_progress_bar()
    if isinstance(settings, ClassifierSettings):
        from tether.train.classifier import train_classifier

        with enough(settings, lambda: f"{folder}: `tether resume {folder}` begins again"):
            return train_classifier(settings, folder, say)
    if resume and complete(folder):
        shutil.rmtree(folder / "best", ignore_errors=True)  # a kill may have left it
        say(f"{folder} is complete already: nothing to resume")
        return folder
    with ExitStack() as held:
        held.enter_context(enough(settings, lambda: _saved(folder)))
        parts = parts or build_parts(settings)
        check_data(settings, parts)
        held.enter_context(process_group())
        stop = held.enter_context(StopRequest())
        if resume and main_process():
            held.enter_context(writing(folder))
        agent = build_agent(settings, parts)
        if main_process():
            with guarded("config.yaml and environment.json", folder):
                if not resume:
                    folder.mkdir(parents=True, exist_ok=True)
                    held.enter_context(writing(folder))
                    if asks:  # one may have come and gone while the model was loaded
                        refuse_taken(settings)
                    _write_config(folder, settings)
                write_environment(
                    folder,
                    settings,
                    model=agent.lm.facts,
                    initial_weights=weights_hash(agent.sets.sets["initial"]),
                    rewards=parts.rewards.versions(),
                    judges=parts.judges.versions() if parts.judges else {},
                )
            for line in described(agent, settings.updates):
                say(line)
        notes = {k: t.notes for k, t in agent.tasks.items()}
        notes |= {f"tethers.{k}": texts.notes() for k, texts in agent.draws.items()}
        run = loop(
            [agent], folder, settings, fingerprint(_numbers(settings)),
            notes=notes, progress=progress, stop=stop,
        )  # fmt: skip
        for line in run.skipped:
            say(line)
        if resume:
            say(f"resuming after update {run.update} of {settings.updates}")
        try:
            run.run()
        except Exception as e:
            # The lines up to here stand; a study counts the run as failed (protocol, section 4).
            if not isinstance(e, UserError):
                now = min(run.update + 1, settings.updates)
                e.add_note(f"run folder: {folder}; update {now} of {settings.updates}")
            raise
    return folder


def _saved(folder: Path) -> str:
    """How a run that broke off goes on from what it has saved, for the end of an error's line."""
    from tether.train import checkpoint

    path, _ = checkpoint.newest(folder / "checkpoints")
    if path is not None:
        return (
            f"`tether resume {folder}` goes on after {path.name}, with the settings that it has, "
            "where more memory is free"
        )
    return f"nothing of {folder} is saved yet: start anew with another --name"


def _write_config(folder: Path, settings: RunSettings) -> None:
    """config.yaml, whole or absent."""
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        write_yaml(part, dump(settings))
        os.replace(part, folder / "config.yaml")
    finally:
        part.unlink(missing_ok=True)


def _numbers(settings: RunSettings) -> RunSettings:
    """Settings without what may differ when a run is resumed: it changes no number."""
    blank = RunSettings()
    return replace(settings, checkpoint=blank.checkpoint, logging=blank.logging, threads=None)


def resume(
    folder: str | Path,
    *,
    progress: Progress | None = None,
    say: Say = print,
    loop: Callable[..., Run] = Run,
) -> Path:
    """Go on with an interrupted run. The folder may have been moved."""
    folder = Path(folder)
    if not (folder / "config.yaml").exists():
        raise UserError(f"{folder} is not a run folder: it has no config.yaml")
    settings = replace(read(folder), name=folder.name, root=str(folder.parent))
    return train(settings, resume=True, progress=progress, say=say, loop=loop)


def load_finished(folder: str | Path, **changes: Any) -> tuple[RunSettings, Agent]:
    """The agent of a run with its newest weights: `policy/` if exported, else a checkpoint.

    changes: fields of `RunSettings` to replace (data, evaluation, sampling).
    """
    from tether.train import checkpoint

    transformers_logging.disable_progress_bar()
    folder = Path(folder)
    settings = read(folder)
    if not isinstance(settings, RunSettings):
        raise UserError(f"{folder} is a classifier, not a policy run")
    settings = replace(settings, **changes)
    parts = build_parts(settings)
    check_data(settings, parts)
    agent = build_agent(settings, parts)
    path, _ = checkpoint.newest(folder / "checkpoints")
    if path is None:
        raise UserError(f"{folder} has no usable checkpoint yet")
    agent.load_state_dict(checkpoint.load(path)["agents"][agent.name])
    return settings, agent


def evaluate_run(
    folder: str | Path, split: str = "validation", prompts: int | None = None, **changes: Any
) -> list[Any]:
    """Evaluation points of a run's final weights on one split (`test` needs data.test)."""
    from tether.train.evaluate import evaluate

    if split not in ("validation", "test"):
        raise UserError(f"split is validation or test, not '{split}'")
    settings = read(Path(folder))
    if isinstance(settings, RunSettings) and prompts is not None:
        key = "prompts" if split == "validation" else "test_prompts"
        evaluation = replace(settings.evaluation, **{key: prompts})
        changes = {"evaluation": evaluation} | changes
    settings, agent = load_finished(folder, **changes)
    if split not in agent.tasks:
        raise UserError(f"{folder} has no {split} prompts; name data.{split} in its config.yaml")
    found = evaluate(agent, settings.updates, split, weights="final", prompts=prompts)  # type: ignore[arg-type]
    return [point for point, _ in found]


def generate(
    folder: str | Path,
    prompts: Sequence[Prompt],
    n: int = 1,
    *,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    greedy: bool = False,
    seed: int = 0,
) -> list[list[str]]:
    """n completions for each prompt from a run's final weights (or any model folder or hub id).
    A prompt is text or chat messages; where the run was trained on chat messages, text is one
    message of the user."""
    from tether.models.loading import load_language_model
    from tether.models.tokenizing import decode, encode_prompt, pad
    from tether.rollout.hf import HFEngine
    from tether.types import Sequences

    transformers_logging.disable_progress_bar()
    folder = Path(folder)
    settings = read(folder) if (folder / "config.yaml").exists() else RunSettings()
    if not isinstance(settings, RunSettings):
        raise UserError(f"{folder} is a classifier: it writes no text")
    source = folder / "policy" if (folder / "policy").exists() else folder
    lm = load_language_model(
        replace(settings.model, path=str(source), adapter=None, lora=None, gguf_file=None,
                tokenizer=None, random_weights=False, revision=None)
    )  # fmt: skip
    sampling = settings.sampling
    sampling = replace(
        sampling,
        greedy=greedy,
        max_new_tokens=max_new_tokens or sampling.max_new_tokens,
        temperature=temperature or sampling.temperature,
    )
    chats = _chats(folder)
    asked = [
        [{"role": "user", "content": p}] if chats and isinstance(p, str) else p for p in prompts
    ]
    ids, mask = pad([encode_prompt(lm.tokenizer, p) for p in asked], lm.padding_side, lm.pad)
    row = torch.arange(len(prompts)).repeat_interleave(n)
    empty = torch.zeros(len(row), 0, dtype=torch.long)
    s = Sequences(ids[row], mask[row], empty, empty.bool()).to(lm.device)
    out: list[list[str]] = [[] for _ in prompts]
    for chunk in HFEngine().generate(lm, s, row, row, sampling, ("generate", seed)):
        c = chunk.sequences
        for i, x, keep in zip(chunk.row.tolist(), c.completion, c.completion_mask, strict=True):
            out[i].append(decode(lm.tokenizer, x[keep]))
    return out


def _chats(folder: Path) -> bool:
    """Were the prompts of a run chat messages? Its first sample tells."""
    samples = folder / "samples.jsonl"
    if not samples.exists():
        return False
    with open(samples, encoding="utf-8") as f:
        first = f.readline()
    return bool(first) and isinstance(json.loads(first)["prompt"], list)
