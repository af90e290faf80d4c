"""README's commands stand as they must; links, names of metrics and of commands are true."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import tether
from tests.docs.blocks import PAGES, ROOT, world
from tether.cli.main import COMMANDS
from tether.config.catalog import CATALOG
from tether.records import read_lines

ONE = (
    "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt . && "
    ".venv/bin/tether quickstart"
)
TWO = (
    'python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e ".[test]" && '
    ".venv/bin/python -m pytest"
)
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_opens_with_the_two_commands() -> None:
    lines = README.splitlines()
    assert lines.count(ONE) == 1 and lines.count(TWO) == 1
    assert lines.index(ONE) < lines.index(TWO) < 20


def test_ci_takes_the_second_command_from_the_readme() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    found = re.search(r"^command=\$\((.*)\)$", text, re.MULTILINE)
    assert found
    done = subprocess.run(
        ["bash", "-c", found.group(1)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == TWO
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            heads = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in heads}
            assert anchor in slugs, f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_and_recipes_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for command in re.findall(r"`tether ([a-z][a-z0-9-]*)", text):
        assert command in COMMANDS, f"{page.name}: tether {command}"
    for recipe in re.findall(r"tether train ([a-z][a-z-]+)", text):
        assert recipe in CATALOG["recipe"], f"{page.name}: recipe {recipe}"


def documented() -> list[re.Pattern[str]]:
    """Names in the first column of metrics.md; `<name>` is anything without a slash."""
    patterns = []
    for row in (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines():
        if not row.startswith("| `"):
            continue
        for name in re.findall(r"`([^`]+)`", row.split(" | ")[0]):
            parts = re.split(r"<name>", name)
            patterns.append(re.compile("[^/]+".join(map(re.escape, parts)) + r"\Z"))
    return patterns


def unmapped(names: set[str]) -> list[str]:
    known = documented()
    return sorted(n for n in names if not any(p.match(n) for p in known))


def test_an_unmapped_name_is_found() -> None:
    assert unmapped({"drift/kl_initial.k4_nats_per_seq", "drift/weight_distance"}) == [
        "drift/kl_initial.k4_nats_per_seq"
    ]


def test_every_metric_of_a_run_is_documented(tmp_path: Path) -> None:
    """Every gauge, two algorithms, an adaptive k3 penalty, resets, a judge, labels and a domain."""
    world(tmp_path)
    (tmp_path / "other.txt").write_text(
        "It rained all night long and into the morning.\n", encoding="utf-8"
    )
    shared = {
        "model": str(tmp_path / "tiny"),
        "data": str(tmp_path / "prompts.jsonl"),
        "root": str(tmp_path / "runs"),
        "updates": 2,
        "threads": 1,
        "data.validation_rows": 8,
        "data.reference": "reference",
        "data.label": "topic",
        "sampling.max_new_tokens": 4,
        "batch.prompts": 8,
        "evaluation.every": 1,
        "evaluation.human_rows": 4,
        "evaluation.domains": {"weather": str(tmp_path / "other.txt")},
        "checkpoint.export": False,
    }
    kl = {"kind": "kl", "estimator": "k3", "reference": "ema", "controller": {"kind": "ziegler"}}
    er = {"kind": "elastic_reset", "reset": {"kind": "every", "n": 2}}
    rl = tether.train(
        "ppo",
        reward="length",
        name="rl",
        judges={"judge": {"kind": "contains", "words": ["a"]}},
        tethers={"kl": kl, "elastic_reset": er},
        **shared,
        **{"algorithm.target_kl": 1e-9},
    )
    sft = tether.train("supervised", name="sft", **shared)
    names: set[str] = set()
    for folder in (rl, sft):
        for line in read_lines(folder / "record.jsonl"):
            for key in ("metrics", "drift"):
                names |= set(line.get(key) or {})
    assert {"drift/kl_initial_on_human.exact_nats_per_token", "update/steps_not_taken",
            "human/perplexity.domain_weather", "human/perplexity.label_a", "update/nll",
            "tether/kl/exponent_bounded", "kl/ema.k1_nats_per_seq"} <= names  # fmt: skip
    assert not unmapped(names)


def test_every_documented_plain_name_is_in_the_source() -> None:
    """A name that no file can write any more has to leave the page."""
    source = "".join(f.read_text(encoding="utf-8") for f in (ROOT / "src" / "tether").rglob("*.py"))
    for row in (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines():
        if not row.startswith("| `"):
            continue
        for name in re.findall(r"`([^`]+)`", row.split(" | ")[0]):
            last = re.split(r"[/.]", name)[-1].replace("<name>", "")
            stem = re.sub(r"_nats_per_(seq|token)$", "", last)
            stem = re.sub(r"^(label_|domain_|grad_norm_).*", r"\1", stem)
            assert not stem or stem in source, f"{name}: nothing in src writes '{stem}'"
