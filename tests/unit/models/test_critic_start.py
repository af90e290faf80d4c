"""A critic from a reward model: what V says before training, what trains, what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from tests.models_for_tests import BOS, EOS, PAD, byte_tokenizer, some_sequences, tiny_module
from tests.runs_for_tests import agent_of, make_world, numbers_of, run, settings
from tether.config.errors import UserError
from tether.config.run import LoraSettings, ModelSettings
from tether.models.classifier_loading import build_classifier, load_classifier, save_classifier
from tether.models.critic import Critic
from tether.models.critic_start import start_from
from tether.models.language_model import LanguageModel
from tether.models.loading import load_language_model
from tether.models.scoring import score_all
from tether.models.weight_sets import WeightSets
from tether.train.run import resume
from tether.types import Move, Sequences

CAUSAL = ("gpt2", "opt", "opt_projected", "gpt_neox", "llama", "qwen3", "gemma2", "phi")


def backbone(folder: Path, kind: str = "gpt2", seed: int = 5, **options: Any) -> Path:
    """The language model that a reward model stands on: other weights than the policy's."""
    tiny_module(kind, seed=seed, sharp=2.0, **options).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def reward_model(folder: Path, labels: list[str], kind: str = "gpt2", lora: Any = None) -> str:
    """A reward model as tether writes it."""
    base = backbone(folder / "backbone", kind)
    chosen = ModelSettings(path=str(base), device="cpu", lora=lora)
    model = build_classifier(chosen, labels, seed=3)
    with torch.no_grad():
        for n, p in model.module.named_parameters():
            if "lora_B" in n or "score" in n:
                p.normal_()
    save_classifier(model, folder / "rm")
    return str(folder / "rm")


def policy(folder: Path, kind: str = "gpt2", **options: Any) -> LanguageModel:
    tiny_module(kind, sharp=2.0).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return load_language_model(ModelSettings(path=str(folder), device="cpu", **options))


def said(path: str, s: Sequences) -> torch.Tensor:
    """[B,labels] the reward model's logits on each whole sequence."""
    model, rows = load_classifier(path, device="cpu", dtype="float32"), []
    for i in range(len(s.prompt)):
        ids = torch.cat([s.prompt[i][s.prompt_mask[i]], s.completion[i][s.completion_mask[i]]])
        rows.append(model.forward(ids[None], torch.ones_like(ids[None]).bool())[0])
    return torch.stack(rows).detach()


@pytest.mark.parametrize("kind", CAUSAL)
def test_the_first_values_are_the_reward_models_scores(tmp_path: Path, kind: str) -> None:
    path = reward_model(tmp_path, ["score"], kind)
    lm = policy(tmp_path / "policy", kind)
    critic = Critic(lm, start=start_from(path, lm))
    s = some_sequences(lm)
    got = score_all(lm, s, critic=critic)
    want = said(path, s)[:, 0]
    assert want.std() > 0.1
    torch.testing.assert_close(got.last_value, want, atol=1e-4, rtol=1e-4)
    assert set(dict(critic.named_parameters())) == set(dict(Critic(lm).named_parameters()))


def test_two_labels_give_the_log_odds_of_the_last_and_three_give_no_head(tmp_path: Path) -> None:
    two = reward_model(tmp_path / "two", ["bad", "good"])
    three = reward_model(tmp_path / "three", ["bad", "so", "good"])
    lm = policy(tmp_path / "policy")
    s = some_sequences(lm)
    got = score_all(lm, s, critic=Critic(lm, start=start_from(two, lm))).last_value
    odds = said(two, s)
    torch.testing.assert_close(got, odds[:, 1] - odds[:, 0], atol=1e-4, rtol=1e-4)
    critic = Critic(lm, start=start_from(three, lm))
    assert (score_all(lm, s, critic=critic).values == 0).all()
    wte = load_classifier(three, device="cpu").core.transformer.wte.weight
    assert torch.equal(critic.trunk.transformer.wte.weight, wte)  # type: ignore[union-attr]


def test_the_policy_is_untouched_and_the_critic_trains_and_goes_back(tmp_path: Path) -> None:
    path = reward_model(tmp_path, ["score"])
    lm = policy(tmp_path / "policy")
    before = {n: p.clone() for n, p in lm.module.named_parameters()}
    lm.scratch["recorded"] = object()  # what is recorded of the policy is no pass of the critic
    critic = Critic(lm, start=start_from(path, lm))
    assert critic._lm[0].scratch == {}
    sets, s = WeightSets(lm, critic), some_sequences(lm)
    assert all(torch.equal(p, before[n]) for n, p in lm.module.named_parameters())
    mine = {id(p) for p in lm.module.parameters()}
    assert not any(id(p) in mine for p in critic.parameters())
    first = critic.values(s)
    first.sum().backward()
    assert all(p.grad is not None for p in critic.parameters())
    with torch.no_grad():
        for p in sets.sets["critic"].values():
            p.add_(0.1)
    assert not torch.equal(critic.values(s), first)
    sets.apply([Move("critic", "critic_initial")])
    assert torch.equal(critic.values(s), first)


@pytest.mark.parametrize("of_adapter", (False, True), ids=("full rm", "lora rm"))
def test_with_an_adapter_the_reward_model_is_the_critics_frozen_base(
    tmp_path: Path, of_adapter: bool
) -> None:
    path = reward_model(tmp_path, ["score"], lora=LoraSettings(rank=2) if of_adapter else None)
    adapter = LoraSettings(rank=3)
    lm = policy(tmp_path / "policy", lora=adapter)
    critic = Critic(lm, start=start_from(path, lm, adapter))
    sets, s = WeightSets(lm, critic), some_sequences(lm)
    got = score_all(lm, s, critic=critic).last_value
    torch.testing.assert_close(got, said(path, s)[:, 0], atol=1e-4, rtol=1e-4)
    assert all("lora" in n or "head" in n for n in sets.sets["critic"])
    state = sets.state_dict()
    sets.load_state_dict(state)
    with torch.no_grad():
        critic.trunk.get_input_embeddings().weight.add_(1.0)  # type: ignore[operator]
    with pytest.raises(UserError, match="critic is an adapter on another reward model"):
        sets.load_state_dict(state)


@pytest.mark.parametrize("kind", ("t5", "bart"))
def test_an_encoder_decoder_gives_its_trunk_alone(tmp_path: Path, kind: str) -> None:
    lm = policy(tmp_path / "policy", kind)
    config = type(lm.config).from_dict(lm.config.to_dict() | {"num_labels": 1})
    name = {"t5": "T5", "bart": "Bart"}[kind]
    model = getattr(transformers, f"{name}ForSequenceClassification")(config)
    model.save_pretrained(tmp_path / "rm")
    byte_tokenizer().save_pretrained(tmp_path / "rm")
    critic = Critic(lm, start=start_from(str(tmp_path / "rm"), lm))
    s = some_sequences(lm)
    assert (score_all(lm, s, critic=critic).values == 0).all()
    theirs = dict(model.base_model.named_parameters())
    mine = dict(critic.trunk.base_model.named_parameters())  # type: ignore[union-attr]
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(p, theirs[n]) for n, p in mine.items())
    nn.init.normal_(critic.head.weight)
    critic.values(s).square().sum().backward()
    assert critic.trunk.get_encoder().embed_tokens.weight.grad.abs().sum() > 0  # type: ignore[operator, union-attr]


def test_plain_transformers_folders_work(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(
        vocab_size=259, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
        pad_token_id=PAD, eos_token_id=EOS, bos_token_id=BOS, num_labels=1,
    )  # fmt: skip
    model = transformers.LlamaForSequenceClassification(config)
    model.save_pretrained(tmp_path / "rm")
    byte_tokenizer().save_pretrained(tmp_path / "rm")
    lm = policy(tmp_path / "policy", "llama")
    s = some_sequences(lm)
    got = score_all(lm, s, critic=Critic(lm, start=start_from(str(tmp_path / "rm"), lm)))
    want = said(str(tmp_path / "rm"), s)[:, 0]
    torch.testing.assert_close(got.last_value, want, atol=1e-5, rtol=1e-4)


def test_what_does_not_fit_is_one_line(tmp_path: Path) -> None:
    lm = policy(tmp_path / "policy")
    other = reward_model(tmp_path / "other", ["score"], "llama")
    base = backbone(tmp_path / "wide" / "backbone", width=48)
    wide = build_classifier(ModelSettings(path=str(base), device="cpu"), ["score"])
    save_classifier(wide, tmp_path / "wide" / "rm")
    base = backbone(tmp_path / "more" / "backbone", vocab=300)
    more = build_classifier(ModelSettings(path=str(base), device="cpu"), ["score"])
    save_classifier(more, tmp_path / "more" / "rm")
    words = Path(shutil.copytree(reward_model(tmp_path / "words", ["score"]), tmp_path / "odd"))
    tokens = (words / "tokenizer.json").read_text(encoding="utf-8")
    tokens = tokens.replace('"a": 64', '"a": -1').replace('"b": 65', '"b": 64')
    (words / "tokenizer.json").write_text(tokens.replace('"a": -1', '"a": 65'), encoding="utf-8")
    for path, message in (
        (other, "is a llama model and the policy a gpt2 model"),
        (str(tmp_path / "wide" / "rm"), r"of different sizes \('h.0.attn.c_attn.bias' does not"),
        (str(tmp_path / "more" / "rm"), "vocabulary of 300, the policy 259"),
        (str(words), "has another tokenizer than the policy"),
        (str(tmp_path / "policy"), "is no trained classifier"),
        (str(tmp_path / "nowhere"), "there is no folder"),
    ):
        with pytest.raises(UserError, match=message) as e:
            start_from(path, lm)
        assert str(e.value).startswith("critic.start: ") and "\n" not in str(e.value)


def test_a_start_that_could_not_act_is_refused(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    with pytest.raises(UserError, match="a frozen critic has no trunk of its own"):
        agent_of(settings(world, critic={"start": "x", "kind": "frozen"}))
    with pytest.raises(UserError, match="'supervised' has no critic"):
        agent_of(
            settings(
                world, algorithm={"kind": "supervised"}, rewards={}, critic={"start": "x"}
            )
        )  # fmt: skip


@pytest.mark.parametrize("lora", ({}, {"model": {"lora": {"rank": 2}}}), ids=("full", "lora"))
def test_a_run_resumes_bit_for_bit(tmp_path: Path, lora: dict[str, Any]) -> None:
    world = make_world(tmp_path / "world")
    path = reward_model(tmp_path, ["bad", "good"])
    chosen: dict[str, Any] = {
        "updates": 2, "critic": {"start": path}, "checkpoint": {"every": 1}, **lora,
    }  # fmt: skip

    def cut(done: int, _total: int, _words: str) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(settings(world, chosen, name="cut"), progress=cut)
    parts = resume(world / "runs" / "cut", say=lambda _: None)
    whole = run(settings(world, chosen, name="whole"))
    plain = run(settings(world, chosen, critic={"start": "policy"}, name="plain"))
    assert numbers_of(parts) == numbers_of(whole)
    assert numbers_of(whole)["weights"] != numbers_of(plain)["weights"]
