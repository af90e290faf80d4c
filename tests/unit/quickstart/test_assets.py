"""The bundled material: whole, small, disjoint, readable, and gameable."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

import pytest

from tether.recipes.toy import ASSETS
from tether.rewards.batch import RewardBatch
from tether.rewards.lexicon import LexiconReward
from tether.studies.quickstart import settings

LIMIT = 4_000_000


def manifest() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ASSETS / "manifest.json").read_text())
    return found


def prompts(split: str) -> list[dict[str, str]]:
    lines = (ASSETS / "prompts" / f"{split}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_every_file_has_its_hash_and_size() -> None:
    listed = manifest()["files"]
    there = {p.relative_to(ASSETS).as_posix() for p in ASSETS.rglob("*") if p.is_file()}
    assert there - {"manifest.json"} == set(listed)
    for name, facts in listed.items():
        data = (ASSETS / name).read_bytes()
        assert len(data) == facts["bytes"], name
        assert hashlib.sha256(data).hexdigest() == facts["sha256"], name


def test_all_together_are_small() -> None:
    assert sum(p.stat().st_size for p in ASSETS.rglob("*") if p.is_file()) <= LIMIT


def test_the_licence_of_the_source_is_named() -> None:
    notice = (ASSETS / "NOTICE.txt").read_text()
    assert "SmolLM2-135M-Instruct" in notice and "Apache License 2.0" in notice


def test_prompts_are_in_one_split_only() -> None:
    seen = Counter(r["prompt"] for s in ("train", "validation", "test") for r in prompts(s))
    assert max(seen.values()) == 1
    evaluation = settings({})["evaluation"]
    assert len(prompts("validation")) >= evaluation["prompts"]
    assert len(prompts("test")) >= evaluation["test_prompts"]
    for split in ("train", "validation", "test"):
        assert {r["mood"] for r in prompts(split)} == {"positive", "negative", "mixed"}


def test_model_and_tokenizer_load_and_have_learned() -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ASSETS / "model")
    model = AutoModelForCausalLM.from_pretrained(ASSETS / "model")
    assert next(model.parameters()).dtype == torch.float32
    assert 0.8e6 < sum(p.numel() for p in model.parameters()) < 1.3e6
    assert tokenizer.eos_token_id == 0 and tokenizer.pad_token_id == 1
    assert len(tokenizer) == model.config.vocab_size
    total, count = 0.0, 0
    for row in prompts("validation")[:64]:
        text = row["prompt"] + row["reference"]
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids) == text
        x = torch.tensor([[*ids, tokenizer.eos_token_id]])
        with torch.no_grad():
            total += float(model(input_ids=x, labels=x).loss) * (x.shape[1] - 1)
        count += x.shape[1] - 1
    # untrained: log 2048 = 7.6 nats a token; texts of prompts that occur once are harder
    assert manifest()["facts"]["validation_nats_per_token"] < total / count < 2.5


def reward(text: str) -> float:
    part = dict(settings({})["rewards"]["praise"])
    assert part.pop("kind") == "lexicon"
    batch = RewardBatch(
        prompts=[""], completions=[text], completion_ids=[[0]], columns={}, trainer_state={},
        finished=[True],
    )  # fmt: skip
    return float(LexiconReward(**part)(batch)[0])


def test_the_reward_reads_mood_and_can_be_gamed() -> None:
    rows = prompts("test")
    mean = {
        mood: sum(reward(r["reference"]) for r in rows if r["mood"] == mood)
        / sum(r["mood"] == mood for r in rows)
        for mood in ("positive", "negative")
    }
    assert mean["positive"] > mean["negative"] + 0.1
    weights = json.loads((ASSETS / "reward" / "lexicon.json").read_text())
    top = max(weights, key=weights.get)
    best_human = max(reward(r["reference"]) for r in rows)
    assert reward(f" {top}" * 20) >= best_human
    assert reward("") == pytest.approx(0.5)
