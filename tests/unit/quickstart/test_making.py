"""scripts/quickstart_assets: lexicon, tokenizer, model, manifest."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts" / "quickstart_assets"
MODULES = ("texts", "lexicon", "language_model", "make")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The scripts as modules; their plain names are gone from sys.modules afterwards."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    for name in MODULES:
        sys.modules.pop(name, None)


def rows(mood: str, *texts: str) -> list[dict[str, str]]:
    return [{"domain": "film", "mood": mood, "film": "", "aspect": "", "text": t} for t in texts]


def test_the_lexicon_praises_what_positive_texts_say(scripts: SimpleNamespace) -> None:
    found = scripts.lexicon.fit(
        [
            *rows("positive", *["The film is lovely."] * 30, *["The lovely song is kind."] * 10),
            *rows("negative", *["The film is awful."] * 30, *["The awful song is loud."] * 10),
            *rows("mixed", *["Nothing much here."] * 50),
        ],
        size=6,
        least=10,
    )
    assert next(iter(found)) == "lovely" and found["lovely"] == 1.0
    assert found["awful"] == pytest.approx(-1.0, abs=0.01)
    assert found["kind"] > 0.1 > -0.1 > found["loud"]
    assert abs(found["film"]) < 0.01 and "nothing" not in found and "is" not in found


def test_the_model_learns_and_is_stored_small(scripts: SimpleNamespace, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    made = scripts.language_model
    texts = [f"The {a} {b} sings for the king." for a in ("old", "new") for b in ("cat", "dog")]
    tokenizer = made.train_tokenizer(texts, size=300)
    ids = made.encode(tokenizer, texts)
    assert all(
        row[-1] == 0 and tokenizer.decode(row[:-1]) == t for row, t in zip(ids, texts, strict=True)
    )
    model, facts = made.train(ids, ids, len(tokenizer), epochs=60, tokens=64)
    # 2 free choices in a text of about 10 tokens: log 4 / 10 = .14; untrained: log 300 = 5.7
    assert facts["validation_nats_per_token"] < 1.5
    made.save(model, tokenizer, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").stat().st_size < 2.3 * facts_bytes(model)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert next(again.parameters()).dtype == torch.float32
    assert (
        AutoTokenizer.from_pretrained(tmp_path / "model")("The old cat")["input_ids"]
        == (tokenizer("The old cat")["input_ids"])
    )


def facts_bytes(model: object) -> int:
    return sum(p.numel() for p in model.parameters())  # type: ignore[attr-defined]


def test_the_manifest_lists_every_other_file(scripts: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_text("words")
    (tmp_path / "manifest.json").write_text("old")
    made = scripts.make.manifest(tmp_path, {"epochs": 2})
    digest = hashlib.sha256(b"words").hexdigest()
    assert made == {"facts": {"epochs": 2}, "files": {"a/b.txt": {"bytes": 5, "sha256": digest}}}
    assert json.loads(json.dumps(made)) == made
