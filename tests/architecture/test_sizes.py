"""A file over 400 lines, a function over 80, or a method's name in the loop: a seam is missing."""

import ast
from pathlib import Path

import pytest

from tether.config.catalog import CATALOG

SRC = Path(__file__).parents[2] / "src" / "tether"
FILES = sorted(SRC.rglob("*.py"))
LOOP = SRC / "train" / "loop.py"


def test_files_are_short() -> None:
    lengths = {str(f.relative_to(SRC)): len(f.read_text().splitlines()) for f in FILES}
    assert {f: n for f, n in lengths.items() if n > 400} == {}
    assert len(lengths) > 50  # it looked at something


def test_functions_are_short() -> None:
    long = {}
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > 80:
                    long[f"{file.relative_to(SRC)}:{node.name}"] = length
    assert long == {}


def test_the_loop_is_short() -> None:
    assert len(LOOP.read_text().splitlines()) <= 200


@pytest.mark.parametrize("family", ["algorithm", "tether", "trigger", "controller", "reward"])
def test_the_loop_names_no_method(family: str) -> None:
    tree = ast.parse(LOOP.read_text())
    texts = {
        n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    classes = {source.split(":")[1] for source in CATALOG[family].values()}
    assert texts & set(CATALOG[family]) == set()
    assert names & classes == set()


def test_init_files_are_empty() -> None:
    full = [
        f for f in FILES if f.name == "__init__.py" and f.parent != SRC and f.read_text().strip()
    ]
    assert full == []


def test_there_is_no_drawer_for_everything() -> None:
    assert [f for f in FILES if f.stem in ("utils", "helpers", "misc", "common")] == []
