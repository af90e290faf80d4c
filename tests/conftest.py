"""Fixtures of all tests."""

from __future__ import annotations

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
