"""The catalog agrees with the files in src, and the shipped schema with the classes."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tether.config.catalog import (
    BASES,
    CATALOG,
    family_of,
    kinds,
    load,
)
from tether.config.describe import SCHEMA, schema
from tether.config.directions import LESS_IS_BETTER, less_is_better

SRC = Path(__file__).parents[2] / "src"
FOLDERS = {
    "algorithm": "algorithms",
    "tether": "tethers",
    "trigger": "tethers",
    "controller": "tethers",
    "reward": "rewards",
    "environment": "tasks",
    "task": "tasks",
    "engine": "rollout",
    "metric": "metrics",
}


def file_of(address: str) -> Path:
    return SRC / (address.split(":")[0].replace(".", "/") + ".py")


def classes(folder: str) -> dict[str, tuple[str, list[str]]]:
    """class name -> (module, names of its bases), read from the text of a folder."""
    out = {}
    for file in sorted((SRC / "tether" / folder).glob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                bases = [b.id for b in node.bases if isinstance(b, ast.Name)]
                out[node.name] = (f"tether.{folder}.{file.stem}", bases)
    return out


@pytest.mark.parametrize("family", CATALOG)
def test_every_name_leads_to_something(family: str) -> None:
    for name, address in CATALOG[family].items():
        assert file_of(address).is_file(), address
        found = load(family, name)
        assert callable(found) and found.__module__ == address.split(":")[0]
        if family in ("algorithm", "tether", "trigger", "controller", "reward", "task"):
            assert family_of(found) == family
        if family == "metric" and name in kinds(family):
            assert family_of(found) == family and found.name == name


def test_directions_of_metrics_are_those_of_their_classes() -> None:
    for name in kinds("metric"):
        assert less_is_better(name) is not load("metric", name).higher_is_better, name
    assert less_is_better("TER") and less_is_better("perplexity") and less_is_better("x") is None
    assert set(LESS_IS_BETTER) <= CATALOG["metric"].keys()


@pytest.mark.parametrize("family", FOLDERS)
def test_every_class_of_a_family_has_a_name(family: str) -> None:
    """A class in src that derives from a family's base, and is itself no base, has a name."""
    found = classes(FOLDERS[family])
    base = next(address.split(":")[1] for address, f in BASES.items() if f == family)
    assert base in found, f"{base} is gone from {FOLDERS[family]}"

    def derives(name: str) -> bool:
        return any(b == base or (b in found and derives(b)) for b in found[name][1])

    mine = {f"{module}:{name}" for name, (module, _) in found.items() if derives(name)}
    parents = {f"{found[b][0]}:{b}" for _, bases in found.values() for b in bases if b in found}
    named = set(CATALOG[family].values())
    assert mine - parents <= named, "classes without a name in the catalog"
    assert mine <= named | parents


def test_every_recipe_function_has_a_name() -> None:
    functions = set()
    for file in sorted((SRC / "tether" / "recipes").glob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                functions.add(f"tether.recipes.{file.stem}:{node.name}")
    assert functions == set(CATALOG["recipe"].values())


def test_every_file_of_metrics_is_named() -> None:
    """But for what several of them share: the seam, what it is given, words, tables."""
    shared = {"__init__", "base", "given", "words", "text", "irregular", "sentence_pairs"}
    files = {f.stem for f in (SRC / "tether" / "metrics").glob("*.py")} - shared
    places = [a.split(":")[0].rsplit(".", 1) for a in CATALOG["metric"].values()]
    assert files == {name for folder, name in places if folder == "tether.metrics"}
    assert {folder for folder, _ in places} == {"tether.metrics", "tether.rewards"}


def test_the_shipped_schema_is_current() -> None:
    from tether.config.generate import text

    assert text() == SCHEMA.read_text(encoding="utf-8"), "run python -m tether.config.generate"


def test_generate_says_when_it_is_stale(tmp_path, monkeypatch) -> None:
    from tether.config import generate

    stale = tmp_path / "schema.json"
    stale.write_text("{}")
    monkeypatch.setattr(generate, "SCHEMA", stale)
    assert generate.main(["--check"]) == 1
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


def test_every_setting_is_documented() -> None:
    """Parts: a doc for each field, so that --help says what it is."""
    bare = [
        f"{family}.{kind}.{name}"
        for family, kinds in schema()["parts"].items()
        for kind, description in kinds.items()
        for name, field in description["fields"].items()
        if not field["doc"]
    ]
    assert bare == []


def test_every_recipe_says_what_it_needs() -> None:
    for name in CATALOG["recipe"]:
        doc = load("recipe", name).__doc__
        assert all(word in doc for word in ("Hardware", "ime", "emory", "Command: tether train"))


def test_the_command_agrees() -> None:
    out = subprocess.run(
        [sys.executable, "-m", "tether", "list", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    import json

    listed = json.loads(out.stdout)
    assert {f.removesuffix("s"): set(n) for f, n in listed.items()} == {
        f: set(n) for f, n in CATALOG.items()
    }
