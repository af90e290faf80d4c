"""A recipe as a folder that a researcher owns: its settings, the loop, its algorithm and tethers.

The copies stand in for the library's files by two ways that exist anyway: `kind: file.py:Class`
for algorithm and tethers, and the `loop` argument of `tether.train.run.train`. Nothing is patched,
so an untouched folder gives the library's run bit for bit.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tether.config.catalog import load, target
from tether.config.compose import recipe
from tether.config.errors import UserError
from tether.config.layers import merge
from tether.config.parts import DEFAULT_KIND
from tether.config.settings import parse
from tether.config.text_values import to_yaml
from tether.studies.eject_texts import README, RUN

LOOP = {"loop.py": "loop", "loop_collect.py": "collect", "loop_update.py": "update"}
"""File here -> module of `tether.train`."""
HOUSE = ("base", "triggers", "controllers")
"""Files of `algorithms` and `tethers` that the library's other parts know by class: not copied."""
_SIBLING = re.compile(r"^from tether\.(algorithms|tethers)\.(\w+) import", re.MULTILINE)
PACKAGE = Path(__file__).resolve().parents[1]
SUMMARY = {
    "loop.py": "the loop: who writes, who learns, when is evaluated and saved",
    "loop_collect.py": "prompts to experience: sampling, rewards, scoring, what tethers add",
    "loop_update.py": "what an algorithm may do with the policy: minibatches, gradients, steps",
}


class _Ejection:
    """The folder's files as they come together."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.about: dict[str, str] = {}

    def part(self, family: str, part: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The part with its kind in this folder, and its file copied."""
        kind = str(part["kind"])
        place, _, cls = target(family, kind, where).partition(":")
        if place.startswith("tether."):
            file = self.module(place)
        elif place.endswith(".py"):
            file = f"{family}_{Path(place).name}"
            self._own(place, file)
        else:
            return dict(part)  # a package of somebody's own: importable from anywhere
        self.kinds[f"{file}:{cls}"] = kind
        self.about[file] = f"the {family} `{kind}`"
        return {**part, "kind": f"{file}:{cls}"}

    def module(self, module: str) -> str:
        """Copies a file of the library and the method files that it imports."""
        package, name = module.split(".")[-2:]
        file = f"{package.removesuffix('s')}_{name}.py"
        if file not in self.files:
            self.files[file] = ""  # seen; a circle ends here
            text = source(module)
            for match in _SIBLING.finditer(text):
                if match[2] not in HOUSE:
                    self.module(f"tether.{match[1]}.{match[2]}")
            self.files[file] = _SIBLING.sub(_local, text)
            self.about.setdefault(file, "shared by the files that import it")
        return file

    def _own(self, place: str, file: str) -> None:
        try:
            self.files[file] = Path(place).expanduser().read_text(encoding="utf-8")
        except OSError as e:
            raise UserError(f"cannot read '{place}': {e.strerror or e}") from e

    def loop(self) -> None:
        for file, name in LOOP.items():
            text = source(f"tether.train.{name}")
            for other, there in LOOP.items():
                text = text.replace(
                    f"from tether.train.{there} import", f"from {Path(other).stem} import"
                )
            self.files[file] = text
            self.about[file] = SUMMARY[file]


def _local(match: re.Match[str]) -> str:
    if match[2] in HOUSE:
        return match[0]
    return f"from {match[1].removesuffix('s')}_{match[2]} import"


def source(module: str) -> str:
    """Text of a file of the library, without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise UserError(f"the library's file {module} is not there: reinstall tether")
    return Path(spec.origin).read_text(encoding="utf-8")


def eject(name: str, folder: str | Path) -> list[Path]:
    """Writes the folder, which must be new or empty; returns its files. Raises UserError."""
    folder = Path(folder)
    free(folder)
    mapping = merge(recipe(name))
    if mapping.get("job", "policy") != "policy":
        raise UserError(
            f"the recipe {name} trains a classifier: it has no loop, algorithm or tethers to eject;"
            f" tether recipes show {name} prints its settings"
        )
    parse(mapping, f"the recipe {name}")
    out = _Ejection()
    out.loop()
    algorithm = {"kind": DEFAULT_KIND["algorithm"], **mapping.get("algorithm", {})}
    kind = algorithm["kind"]
    mapping["algorithm"] = out.part("algorithm", algorithm, f"the recipe {name}")
    tethers = {k: v for k, v in mapping.get("tethers", {}).items() if v is not None}
    if tethers:
        mapping["tethers"] = {
            k: out.part("tether", v, f"tethers.{k} of the recipe {name}")
            for k, v in tethers.items()
        }
    mapping = _portable(mapping)
    title = Path(name.replace(":", "-")).name
    out.files["recipe.yaml"] = _recipe(name, mapping)
    kinds = "{\n" + "".join(f"    {k!r}: {v!r},\n" for k, v in out.kinds.items()) + "}"
    kinds = kinds.replace("'", '"')
    out.files["run.py"] = RUN.replace("@NAME@", f'"{title}"').replace("@KINDS@", kinds)
    out.files["README.md"] = _readme(title, folder, kind, out.about)
    return _write(folder, out.files)


def _portable(value: Any) -> Any:
    """Paths into the installed library start with `{tether}`, which run.py fills in."""
    if isinstance(value, Mapping):
        return {k: _portable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_portable(v) for v in value]
    if isinstance(value, str) and Path(value).is_relative_to(PACKAGE):
        return f"{{tether}}/{Path(value).relative_to(PACKAGE).as_posix()}"
    return value


def free(folder: Path) -> None:
    """Raises UserError where the folder is a file or holds anything."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; choose another folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty; choose a new folder, nothing is overwritten")


def _recipe(name: str, mapping: Mapping[str, Any]) -> str:
    doc = inspect.getdoc(load("recipe", name)) or ""
    head = [f"The recipe {name}; a kind `file.py:Class` is a file of this folder.", ""]
    lines = [f"# {line}".rstrip() for line in [*head, *doc.splitlines()]]
    return "\n".join(lines) + "\n" + to_yaml(dict(mapping))


def _readme(title: str, folder: Path, kind: str, about: Mapping[str, str]) -> str:
    try:
        release = version("tether-rl")
    except PackageNotFoundError:
        release = "from source"
    rows = {
        "recipe.yaml": "the settings",
        "run.py": "the program: reads the recipe, runs the loop of this folder",
        **about,
    }
    words = {
        "@NAME@": title,
        "@VERSION@": release,
        "@FOLDER@": folder.name or ".",
        "@KIND@": kind,
        "@TABLE@": "\n".join(f"| `{k}` | {v} |" for k, v in rows.items()),
    }
    text = README
    for mark, word in words.items():
        text = text.replace(mark, word)
    return text


def _write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
            written.append(folder / name)
    except OSError as e:
        raise UserError(f"cannot write {folder}: {e.strerror or e}") from e
    return written
