"""Fixtures of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.models_for_tests import tiny
from tether.models.language_model import LanguageModel

torch.set_num_threads(1)
SHARED = Path(__file__).resolve().parents[2] / "shared"


def shared(path: str) -> Path:
    """A file or folder of ../shared; the test is skipped, with the reason, where it is absent."""
    found = SHARED / path
    if not found.exists():
        pytest.skip(f"needs ../shared/{path}, which is not on this machine")
    return found


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is read from the user's cache, or left there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TETHER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def shared_path() -> object:
    return shared


@pytest.fixture
def tiny_gpt2() -> LanguageModel:
    return tiny("gpt2")


@pytest.fixture
def tiny_llama() -> LanguageModel:
    return tiny("llama")


@pytest.fixture
def tiny_t5() -> LanguageModel:
    return tiny("t5")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of the metrics' contract (tests/contracts/test_metrics.py), where it ran."""
    rows: dict[str, tuple[str, ...]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for key, row in getattr(report, "user_properties", ()):
                if key == "metric":
                    rows[row[0]] = tuple(row)
    if rows:
        head = ("metric", "version", "value", "1,000 rows, s", "again, s", "card, s", "")
        table = [head, *(rows[name] for name in sorted(rows))]
        wide = [max(len(row[i]) for row in table) for i in range(6)]
        terminalreporter.section("metrics on 1,000 rows")
        for row in table:
            cells = [cell.ljust(n) for cell, n in zip(row[:6], wide, strict=True)]
            terminalreporter.write_line("  ".join([*cells, row[6]]).rstrip())
