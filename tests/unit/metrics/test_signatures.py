"""A signature names what decides a number: weights, judges and lists by their content, and not
where they were loaded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from tests.unit.metrics.test_adapters import save_bert, save_convolution
from tether.config.parts import build
from tether.config.run import LoraSettings, ModelSettings
from tether.metrics.base import Samples
from tether.models import classifier_loading, encoders
from tether.models.classifier_loading import build_classifier, save_classifier
from tether.rewards.tfidf import fit_tfidf


@pytest.mark.parametrize("name", ["bert_score", "bleurt", "summac", "summac_conv"])
def test_a_signature_names_the_weights(name: str, tmp_path: Path) -> None:
    """Not only the folder, whose content may change."""
    labels = ["score"] if name == "bleurt" else ["entailment", "contradiction"]
    settings = {"kind": name, "device": "cpu", "model": str(tmp_path / "model")}
    if name == "bert_score":
        pytest.importorskip("bert_score", reason="bert-score is absent")
        settings["layer"] = 2
    if name == "summac_conv":
        settings["weights"] = str(tmp_path / "conv.bin")

    def signature(seed: int, bias: float = 0.25) -> str:
        save_bert(tmp_path / "model", None if name == "bert_score" else labels, seed)
        save_convolution(tmp_path / "conv.bin", **{"mlp.bias": torch.tensor([bias])})
        return build("metric", settings)(Samples(["a"], [["b"]], ["c."])).signature

    first, same, other = signature(0), signature(0), signature(1)
    assert first == same != other
    assert re.search(r"transformers [\d.]+, weights [0-9a-f]{12}[|,]", first)
    assert (signature(0, 0.5) != first) == (name == "summac_conv")
    assert "device" not in first and "batch_size" not in first


@pytest.mark.parametrize("name", ["classifier", "preference", "intent_accuracy"])
def test_a_signature_names_the_weights_of_a_learned_reward(name: str, tmp_path: Path) -> None:
    inner = {"kind": "classifier", "path": str(tmp_path / "model"), "device": "cpu"}
    part = {"kind": name, "model" if name == "preference" else "classifier": inner}
    if name != "preference":
        inner.pop("kind")

    def signature(seed: int) -> str:
        save_bert(tmp_path / "model", ["0", "1"], seed)
        return build("metric", part).signature

    first, same, other = signature(0), signature(0), signature(1)
    assert first == same != other
    assert first.startswith(f"{name}|tether/1, weights ") and " tokens|" in first
    assert "device" not in first and "batch_size" not in first


@pytest.mark.parametrize("adapter", [False, True])
def test_a_signature_is_the_same_on_a_cpu_and_on_a_gpu(
    adapter: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `auto` loads bfloat16 on one and float32 on the other."""
    path = str(save_bert(tmp_path / "model", ["0", "1"], 0))
    if adapter:
        settings = ModelSettings(path=path, device="cpu", lora=LoraSettings(rank=2))
        save_classifier(build_classifier(settings, ["0", "1"]), tmp_path / "adapter")
        path = str(tmp_path / "adapter")
    part = {"kind": "classifier", "classifier": {"path": path, "device": "cpu"}}

    def measured() -> tuple[str, torch.dtype]:
        metric = build("metric", part)
        signature = metric.signature
        return signature, next(metric.classifier.classifier.module.parameters()).dtype

    on_cpu, wide = measured()
    for module in (classifier_loading, encoders):
        monkeypatch.setattr(module, "resolve_dtype", lambda *_: torch.bfloat16)
    on_gpu, narrow = measured()
    assert (wide, narrow) == (torch.float32, torch.bfloat16)
    assert on_cpu == on_gpu
    monkeypatch.undo()
    part["classifier"]["dtype"] = "float32"  # type: ignore[index]
    exact, _ = measured()
    assert "'dtype': 'float32'" in exact and exact.split(",")[1] != on_cpu.split(",")[1]


def test_a_copy_with_fewer_bits_is_another_model(tmp_path: Path) -> None:
    """Where the checkpoint says in what type it is read, it gives other numbers."""
    path = save_bert(tmp_path / "model", ["score"], 0)
    part = {"kind": "bleurt", "device": "cpu", "model": str(path)}
    metric = build("metric", part)
    wide = metric(Samples(["a"], [["b"]], ["c."])).signature
    model = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.bfloat16)
    model.save_pretrained(path)
    assert build("metric", part)(Samples(["a"], [["b"]], ["c."])).signature != wide


def test_a_signature_names_what_a_preference_reads(tmp_path: Path) -> None:
    """Judges and word lists by their content, ensembles by all of their members."""
    words, judge = tmp_path / "words.txt", tmp_path / "judge.json"
    lexicon = {"kind": "preference", "model": {"kind": "lexicon", "path": str(words)}}
    tfidf = {"kind": "preference", "model": {"kind": "tfidf", "path": str(judge)}}
    seen = []
    for number in (1, 2):
        words.write_text(f"good {number}\n")
        seen.append(build("metric", lexicon).signature)
    for texts in (["good", "bad"], ["good day", "bad day"]):
        fit_tfidf(texts * 3, [1, 0] * 3).save(judge)
        seen.append(build("metric", tfidf).signature)
    assert len(set(seen)) == 4
    members = [str(save_bert(tmp_path / f"m{i}", ["0", "1"], i)) for i in (0, 1, 2)]
    ensembles = [
        build("metric", {"kind": "preference", "model": {
            "kind": "ensemble", "paths": [members[0], other], "device": "cpu"}}).version
        for other in members[1:]
    ]  # fmt: skip
    assert ensembles[0] != ensembles[1] and all(v.count("weights ") == 2 for v in ensembles)
    brief = build("metric", {"kind": "preference", "model": {"kind": "length"}})
    assert brief.version == "tether/1"
