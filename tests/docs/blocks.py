"""Code blocks of the documentation, and a small world in which they run."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.models_for_tests import byte_tokenizer, tiny_module

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w.]+\.(?:py|yaml))\n")
"""A block whose first line is a file's name is that file."""
SMALLER = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": "tiny",
    "updates=20": "updates=2",
    'data="prompts.jsonl",': (
        'data="prompts.jsonl", **{"batch.prompts": 8, "evaluation.prompts": 8,'
        ' "evaluation.human_rows": 8, "sampling.max_new_tokens": 8},'
    ),
}
"""What runs in seconds stands for what the page says."""


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        found = NAMED.match(self.text)
        return found.group(1) if found else None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page.name, text.count("\n", 0, m.start()) + 1, m.group(1), m.group(2))
        for m in FENCE.finditer(text)
    ]


def smaller(text: str) -> str:
    for long, short in SMALLER.items():
        text = text.replace(long, short)
    return text


def commands(page: Path) -> list[tuple[int, list[str]]]:
    """(line, words) of every `tether ...` line of a bash block; a trailing comment is no word."""
    out = []
    for block in blocks(page):
        if block.language != "bash":
            continue
        for i, line in enumerate(block.text.splitlines()):
            if line.startswith("tether "):
                words = shlex.split(smaller(line), comments=True)
                out.append((block.line + 1 + i, words[1:]))
    return out


def world(folder: Path) -> None:
    """`tiny/` (a random model), `prompts.jsonl` and `labelled.jsonl`, more rows than are held out
    by default."""
    module = tiny_module("llama", width=16)
    module.config.max_position_embeddings = 256
    module.save_pretrained(folder / "tiny")
    byte_tokenizer().save_pretrained(folder / "tiny")
    rows = [{"prompt": f"Say {i}: ", "topic": "a", "reference": f"yes {i}"} for i in range(500)]
    labelled = [{"text": f"yes {i}", "label": i % 2} for i in range(400)]
    for name, table in (("prompts", rows), ("labelled", labelled)):
        text = "".join(json.dumps(r) + "\n" for r in table)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def write_files(folder: Path, page: Path) -> None:
    """Blocks that are files."""
    for block in blocks(page):
        if block.file:
            (folder / block.file).write_text(smaller(block.text), encoding="utf-8")
