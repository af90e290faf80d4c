"""An RL4LMs configuration -> a run configuration of tether and a report of every key.

Nothing is guessed in silence. A key that RL4LMs does not know, an unknown id, a missing required
key and a wrong type are errors that name the place. Every key of the file, and every default of
RL4LMs that a number here rests on, is in the report: carried, carried with a changed meaning,
without counterpart, or ignored because it has no effect here.

The released code differs from what was published in one place: NLPO's mask was never refreshed.
`released` (the default) gives what the old run did, since its numbers come from that.

Source: schema, ids and defaults of allenai/RL4LMs@97df0bd; keys of Elastic Reset from
mnoukhov/RL4LMs, branch `paper`. The units are explained in `rl4lms_units`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tether.config.errors import UserError
from tether.config.settings import parse
from tether.config.text_values import read_yaml
from tether.integrations import rl4lms_data as pools
from tether.integrations import rl4lms_rewards as rewards
from tether.integrations import rl4lms_task as task
from tether.integrations.rl4lms_check import check
from tether.integrations.rl4lms_draft import Draft, Note, leaves
from tether.integrations.rl4lms_method import method
from tether.integrations.rl4lms_rollout import sampling
from tether.integrations.rl4lms_supervised import supervised
from tether.integrations.rl4lms_text import report, run_yaml

As = Literal["released", "published"]


@dataclass(frozen=True)
class Imported:
    """What an import gives."""

    settings: dict[str, Any]
    """A mapping for `tether.config.settings.parse`."""
    notes: list[Note]
    files: dict[str, str]
    """Name of a file that goes beside the configuration -> its text."""
    yaml: str
    report: str


ORDER = (
    "seed", "updates", "model", "data", "rewards", "judges", "sampling", "batch", "algorithm",
    "optimizer", "tethers", "evaluation", "checkpoint",
)  # fmt: skip


def import_file(
    path: str | Path, out: str | Path, as_: As = "released", rows: int | None = None
) -> Imported:
    """Reads an RL4LMs YAML file; nothing is written. out: where the configuration will be, for the
    names of files beside it. Raises UserError, one line."""
    return convert(read_yaml(path), str(path), Path(out), as_, rows)


def convert(
    config: Mapping[str, Any],
    where: str,
    out: Path = Path("run.yaml"),
    as_: As = "released",
    rows: int | None = None,
) -> Imported:
    """A configuration of RL4LMs as a mapping. rows: training rows of a supervised run, where the
    pool does not tell."""
    if as_ not in ("released", "published"):
        raise UserError(f"--as is released or published, not '{as_}'")
    check(config, where)
    draft = Draft(config, where)
    if config["alg"]["id"] == "supervised":
        supervised(draft, rows)
    else:
        if rows is not None:
            raise UserError(
                f"{where}: --rows is for supervised runs; alg.id is {config['alg']['id']}, which "
                "counts iterations (train_evaluation.n_iters)"
            )
        _reinforcement(draft, as_ == "released")
    pools.settle(draft)
    _fallback(draft)
    files = _place(draft, out)
    settings = {k: draft.settings[k] for k in ORDER if k in draft.settings}
    assert set(settings) == set(draft.settings)
    head = [
        f"From RL4LMs' {Path(where).name} ({config['alg']['id']}, read as {as_}); comments name the"
        " old keys.",
        "Keys with a changed meaning or no counterpart: see the report of `tether import-rl4lms`.",
    ]
    text = run_yaml(settings, draft.comments, head)
    _parsed(settings, where)
    return Imported(settings, draft.notes, files, text, report(draft.notes))


def _reinforcement(draft: Draft, released: bool) -> None:
    task.tokenizer(draft, "alg.policy.args.model_name")
    for key in ("tokenizer.truncation_side", "tokenizer.max_length"):
        if draft.given(key):
            draft.note(key, "ignored", why="env.args say how prompts are cut")
    pools.data(draft)
    task.prompts(
        draft,
        "env.args.max_prompt_length",
        ["env.args.prompt_truncation_side", "alg.policy.args.prompt_truncation_side"],
    )
    rewards.reward(draft)
    sampling(draft)
    draft.carry("train_evaluation.n_iters", "updates", why="an update is an iteration")
    method(draft, released)
    why = "the policy's class follows from the model, its mask from alg.id"
    draft.note("alg.policy.id", "carried", "model.path", why)
    if draft.given("alg.policy.args.apply_model_parallel"):
        why = "where layers lie changes no number; model.device says where the model is"
        draft.note("alg.policy.args.apply_model_parallel", "ignored", why=why)
    draft.rest("alg.policy.args.state_dict", "none", "weights come from model.path")
    task.evaluation(draft)
    rewards.metrics(draft)


def _fallback(draft: Draft) -> None:
    """What nobody has said anything about yet: empty blocks, and null for what was absent."""
    have = {n.key for n in draft.notes}
    for leaf in leaves(draft.config):
        if leaf not in have:
            empty = draft.get(leaf) in (None, {}, [])
            why = "empty" if empty else "not read by the importer"
            draft.note(leaf, "ignored" if empty else "none", why=why)


def _place(draft: Draft, out: Path) -> dict[str, str]:
    """Files beside the configuration, and their names in it."""
    files = {}
    for ending, text in draft.files.items():
        name = f"{out.stem}.{ending}"
        files[name] = text
        path = str(out.parent / name)
        draft.settings["data"].update(path=path, validation=path)
    return files


def _parsed(settings: Mapping[str, Any], where: str) -> None:
    """Raises UserError where a value that RL4LMs may take does not exist here."""
    try:
        parse(settings, "its translation")
    except UserError as e:
        raise UserError(f"{where}: {e}") from e
