"""Texts of the files that `recipes eject` writes beside the copies: the program and the README."""

from __future__ import annotations

RUN = '''"""Trains with the files of this folder, on the installed library.

    python run.py [--a.b.c VALUE ...] [--dry-run]
    python run.py --resume RUN_FOLDER

Overrides are those of `tether train`; an edited class takes its new settings too.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from loop import Run

import tether
from tether.cli.progress import showing
from tether.config.checks import check_complete
from tether.config.compose import compose
from tether.config.errors import UserError
from tether.config.folder import refuse_taken
from tether.config.run import RunSettings
from tether.config.settings import dump, method_of
from tether.config.text_values import read_yaml, to_yaml
from tether.train.run import resume, train
from tether.train.signals import Interrupted

HERE = Path(__file__).resolve().parent
NAME = @NAME@
LIBRARY = @KINDS@
"""Kind here -> its name in the library, for the method's name in tables and plots."""


def located(value: Any) -> Any:
    """Kinds that name a file of this folder, with the way to it from where the program started;
    `{tether}` is the folder of the installed library."""
    if isinstance(value, str):
        return value.replace("{tether}", str(Path(tether.__file__).parent))
    if isinstance(value, list):
        return [located(v) for v in value]
    if not isinstance(value, dict):
        return value
    out = {k: located(v) for k, v in value.items()}
    file, _, cls = str(out.get("kind", "")).partition(":")
    if cls and (HERE / file).is_file():
        path = HERE / file
        below = path.is_relative_to(Path.cwd())
        out["kind"] = f"{path.relative_to(Path.cwd()) if below else path}:{cls}"
    return out


def named(part: dict[str, Any] | None) -> dict[str, Any] | None:
    """A part with the library's name for its kind."""
    if part is None:
        return None
    file, _, cls = part["kind"].partition(":")
    return {**part, "kind": LIBRARY.get(f"{Path(file).name}:{cls}", part["kind"])}


def settings(words: list[str]) -> RunSettings:
    """recipe.yaml, then the overrides."""
    found = compose(overrides=words, values=located(read_yaml(HERE / "recipe.yaml")))
    if not isinstance(found, RunSettings):
        raise UserError("recipe.yaml is no policy run")
    if found.name == f"run-seed{found.seed}":
        found = replace(found, name=f"{NAME}-seed{found.seed}")
    if not found.method:
        tethers = {k: named(p) for k, p in found.tethers.items()}
        plain = replace(found, algorithm=named(found.algorithm) or {}, tethers=tethers)
        found = replace(found, method=method_of(plain))
    return found


def loop(agents: Any, folder: Path, settings: RunSettings, config: str, **more: Any) -> Run:
    """The loop of this folder. The texts of its files are part of the configuration: a run goes on
    with the files that it began with, or is refused."""
    texts = b"".join(p.read_bytes() for p in sorted(HERE.glob("*.py")))
    return Run(agents, folder, settings, f"{config}-{zlib.crc32(texts):08x}", **more)


def here(error: Exception) -> str:
    """What the library says, with this folder's way to go on."""
    return str(error).replace("tether resume ", f"python {sys.argv[0]} --resume ")


def main(words: list[str]) -> int:
    if "-h" in words or "--help" in words:
        print(__doc__)
        return 0
    dry = "--dry-run" in words
    words = [w for w in words if w != "--dry-run"]
    if words and words[0] == "--resume":
        if len(words) != 2:
            raise UserError("--resume takes the folder of one run, and no overrides")
        with showing() as (progress, say):
            resume(words[1], loop=loop, progress=progress, say=say)
        return 0
    chosen = settings(words)
    if dry:
        print(to_yaml(dump(chosen)), end="")
        return 0
    check_complete(chosen)
    refuse_taken(chosen)
    with showing() as (progress, say):
        print(f"done: {train(chosen, loop=loop, progress=progress, say=say)}")
    return 0


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except (UserError, Interrupted) as e:
        print(f"run.py: {here(e)}", file=sys.stderr)
        code = getattr(e, "code", 2)
    sys.exit(code)
'''

README = """# @NAME@, ejected

The recipe `@NAME@` of tether @VERSION@ as files that are yours. They run on the installed library
and stand in for its own: what is edited here changes runs that are started here, nothing else.

```bash
python @FOLDER@/run.py --seed 0
python @FOLDER@/run.py --resume runs/@NAME@-seed0
```

`run.py` takes the overrides of `tether train` (`--updates 20`, `--algorithm.lr 2e-5`). Paths in
`recipe.yaml` and overrides count from the folder in which the program is started.

| file | what it is |
|---|---|
@TABLE@

## How to edit

* A setting: in `recipe.yaml`, or as an override.
* A method: in its file. A new field of the class is a setting at once (`--algorithm.NAME`,
  `--tethers.NAME.KEY`); every other attribute is memory and is in the checkpoint.
* The loop: `loop.py`; it calls `loop_collect.py` (prompts to experience) and `loop_update.py`
  (epochs, minibatches, optimizer steps). Evaluation and all else of `tether.train` is the
  library's.
* Back to the library's class: write its name (`kind: @KIND@`) in `recipe.yaml` and remove the file.

## What is equal

As it was written, this folder gives the library's run bit for bit: the same `samples.jsonl`, the
same weights, the same `record.jsonl` but for one value: `config` in its first line, a hash of the
settings and of the files here. So a run goes on only with the files that it began with: take
`run.py --resume`, for `tether resume` has another loop. `tether evaluate`, `generate`, `frontier`
and reports read these runs like any other.

The copies are under the licence of tether (Apache 2.0).
"""
