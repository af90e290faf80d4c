"""`tether import-rl4lms config.yml`: an RL4LMs configuration as a run configuration of tether."""

from __future__ import annotations

from pathlib import Path

from tether.cli.parsing import Parser, positive
from tether.config.errors import UserError


def import_rl4lms(words: list[str]) -> int:
    """Writes the configuration (and files beside it), prints what became of every key."""
    p = Parser(
        "import-rl4lms",
        "An RL4LMs YAML file as a configuration for `tether train --config`, and a report of\n"
        "every key: carried, carried with a changed meaning, without counterpart, without effect.",
    )
    p.add_argument("config", type=Path, help="RL4LMs' YAML file")
    p.add_argument("--out", type=Path, default=None, help="default: NAME.tether.yaml, here")
    p.add_argument(
        "--as",
        dest="as_",
        choices=["released", "published"],
        default="released",
        help="NLPO's mask: released (default) = never refreshed, as the code that made the old "
        "numbers; published = refreshed every target_update_iterations",
    )
    p.add_argument(
        "--rows", type=positive, default=None, help="training rows, for supervised configurations"
    )
    p.add_argument("--force", action="store_true", help="overwrite what is there")
    given = p.parse(words)
    out = given.out or Path(f"{given.config.stem}.tether.yaml")
    from tether.integrations.rl4lms_yaml import import_file

    found = import_file(given.config, out, given.as_, given.rows)
    files = {out: found.yaml} | {out.parent / k: text for k, text in found.files.items()}
    for path in files:
        if path.exists() and not given.force:
            raise UserError(f"{path} exists; choose another --out, or --force to overwrite it")
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as e:
        raise UserError(f"cannot write {path}: {e.strerror or e}") from e
    print(found.report)
    print(f"written: {', '.join(map(str, files))}")
    print(f"next: tether train --config {out}")
    return 0
