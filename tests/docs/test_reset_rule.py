"""The reset rule of docs/add_a_tether.md: a user's file of under 50 lines that imports only
`tether`, trained with by name from the command line, killed and resumed bit for bit, evaluated on
both sides, with full weights and with LoRA; none of which the file mentions."""

from __future__ import annotations

import ast
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.crash import Moment
from tests.docs.blocks import ROOT, blocks
from tests.forked import finish, start
from tests.runs_for_tests import lines, make_world, mapping, metrics, numbers_of
from tether.cli.main import main
from tether.config.text_values import write_yaml

FILE = ROOT / "examples" / "cosine_reset.py"
PAGE = ROOT / "docs" / "add_a_tether.md"
RULE = [
    "--tethers.mine.kind", "examples/cosine_reset.py:CosineReset",
    "--tethers.mine.waves", "3", "--tethers.mine.reset.n", "2",
]  # fmt: skip
SHARES = [1.0, 0.75, 0.25]
"""(1 + cos 0) / 2, (1 + cos 60 degrees) / 2, (1 + cos 120 degrees) / 2."""


def test_the_page_contains_exactly_this_reset_rule() -> None:
    shown = [b.text for b in blocks(PAGE) if b.file == FILE.name]
    assert shown == [FILE.read_text(encoding="utf-8")]


def test_the_reset_rule_is_short_and_imports_only_tether() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 50
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    assert found - set(sys.stdlib_module_names) == {"tether"}
    for word in ("lora", "resume", "state_dict", "checkpoint", "evaluat", "torch"):
        assert word not in text.lower(), f"the rule speaks of {word}"


@pytest.mark.parametrize("lora", [None, {"rank": 2}], ids=["full", "lora"])
def test_reset_rule_by_name_killed_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: dict[str, int] | None
) -> None:
    monkeypatch.chdir(ROOT)
    world = make_world(tmp_path)
    change: dict[str, Any] = {"updates": 6, "model": {"lora": lora}}
    write_yaml(world / "run.yaml", mapping(world, change))
    config = ["--config", str(world / "run.yaml")]
    assert main(["train", *config, "--name", "whole", *RULE]) == 0

    second = Moment(
        "right after the second reset, before its checkpoint",
        lambda folder: _text(folder / "record.jsonl").count(b'"kind": "event"') >= 2,
    )
    killed = world / "runs" / "killed"
    kill(["train", *config, "--name", "killed", *RULE], killed, second, world / "log")
    before = len(_text(killed / "record.jsonl").splitlines())
    finish("resume", str(killed), output=world / "log")

    whole = world / "runs" / "whole"
    want, have = numbers_of(whole), numbers_of(killed)
    assert [k for k in want if want[k] != have[k]] == []
    record = lines(whole)
    assert before < len(record), "it was killed before the end"
    events = [x for x in record if x["kind"] == "event"]
    assert [(e["update"], e["moves"][0]["by"]) for e in events] == [
        (2, 1.0), (4, pytest.approx(SHARES[1])), (6, pytest.approx(SHARES[2])),
    ]  # fmt: skip
    sides = [(x["update"], x["side"]) for x in record if x["kind"] == "eval" and x["side"]]
    assert sides == [(u, side) for u in (2, 4, 6) for side in ("before", "after")]
    drift = {(x["update"], x["side"]): x["drift"]["drift/weight_distance"] for x in record
             if x["kind"] == "eval"}  # fmt: skip
    assert drift[2, "before"] > 0 and drift[2, "after"] == 0
    for update, share in ((4, SHARES[1]), (6, SHARES[2])):
        ratio = drift[update, "after"] / drift[update, "before"]
        assert ratio == pytest.approx(1 - share, rel=1e-3), "the rest of the way stays"
    assert [m["tether/mine/resets"] for m in metrics(whole)] == [0, 0, 1, 1, 2, 2]


def _text(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


def kill(words: list[str], folder: Path, moment: Moment, log: Path) -> None:
    """Start the command and kill -9 at the moment."""
    process = start(*words, output=log)
    try:
        while not moment.reached(folder):
            assert process.poll() is None, f"ended before its moment:\n{log.read_text()}"
            time.sleep(0.001)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
