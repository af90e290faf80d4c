"""Is a run's folder free? Asked before anything expensive."""

from __future__ import annotations

import os
from pathlib import Path

from tether.config.errors import UserError
from tether.config.settings import Settings, dump, fingerprint
from tether.config.text_values import read_yaml


def run_folder(settings: Settings) -> Path:
    return Path(settings.root) / settings.name


def refuse_taken(settings: Settings) -> None:
    """Raises UserError where the folder holds a run (the mend: another name, or resume) or other
    files; an empty folder is free."""
    folder = run_folder(settings)
    above = folder.parent.absolute()
    while not above.exists():
        above = above.parent
    if not above.is_dir():
        raise UserError(f"{above} is a file; choose another folder of runs: --root FOLDER")
    if not os.access(above, os.W_OK | os.X_OK):
        raise UserError(f"{above} cannot be written to; choose another folder: --root FOLDER")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; choose another name: --name NAME")
    if not folder.is_dir() or not any(p.name != ".lock" for p in folder.iterdir()):
        return
    if (folder / "config.yaml").is_file() and not _has_work(folder):
        raise UserError(
            f"{folder} holds a run that ended before anything was saved: mend the cause, if it "
            f"failed, and `tether resume {folder}`, or choose another name: --name NAME"
        )
    config = folder / "config.yaml"
    if not config.is_file():
        raise UserError(f"{folder} holds files that are no run; choose another name: --name NAME")
    if fingerprint(read_yaml(config)) == fingerprint(dump(settings)):
        raise UserError(
            f"{folder} already holds this run; to go on: tether resume {folder}, "
            "to repeat it: --name NAME"
        )
    raise UserError(
        f"{folder} holds another run; choose another name: --name NAME, "
        f"or go on with that one: tether resume {folder}"
    )


def _has_work(folder: Path) -> bool:
    """Is there anything to go on with: a finished update or a checkpoint?"""
    record = folder / "record.jsonl"
    updates = record.is_file() and '"kind": "update"' in record.read_text(encoding="utf-8")
    return updates or any((folder / "checkpoints").glob("*")) or (folder / "results.json").is_file()
