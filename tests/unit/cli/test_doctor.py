"""doctor: who owns the name, what is missing, what does not fit."""

import pytest
from transformers import GPT2Config

from tether.cli import doctor as d
from tether.cli.main import main


@pytest.fixture
def model(tmp_path) -> str:
    GPT2Config(vocab_size=20, n_positions=64, n_embd=8, n_layer=1, n_head=2).save_pretrained(
        tmp_path
    )
    return str(tmp_path)


def test_another_owner_of_the_name(monkeypatch, capsys) -> None:
    monkeypatch.setattr(
        d.metadata, "packages_distributions", lambda: {"tether": ["tether_rl", "tether", "tether"]}
    )
    assert d.other_owners() == ["tether"]
    assert main(["doctor"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "problem: the distribution 'tether' also owns the import name tether" in out


def test_nobody_else(monkeypatch) -> None:
    monkeypatch.setattr(d.metadata, "packages_distributions", lambda: {"tether": ["tether-rl"]})
    assert d.other_owners() == []
    assert main(["doctor"]) == 0


def test_a_missing_package(monkeypatch, capsys) -> None:
    monkeypatch.setattr(d, "PACKAGES", ("torch", "no-such-package"))
    assert main(["doctor"]) == 1
    assert "problem: no-such-package is not installed: pip install" in capsys.readouterr().out


def test_a_plan_that_fits(model: str, capsys) -> None:
    assert main(["doctor", "elastic-reset", "--model", model, "--model.device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "ema copy" in out and "problem" not in out and "together" in out


def test_a_plan_that_does_not_fit(model: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr(d, "free_memory", lambda device: 1000)
    assert main(["doctor", "ppo", "--model", model, "--model.device", "cpu"]) == 1
    assert "problem: it does not fit" in capsys.readouterr().out


def test_free_memory_is_some() -> None:
    assert d.free_memory("cpu") > 10**6
