"""B36: an encoder-decoder model has two sides: room, human texts, special tokens and tables of its
own on each."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForSeq2SeqLM, GenerationConfig

from tests.models_for_tests import BOS, EOS, PAD, byte_tokenizer, some_sequences, tiny_module
from tests.runs_for_tests import agent_of, collected, lines, make_world, run, settings
from tether.config.errors import UserError
from tether.config.run import DataSettings, LoraSettings, ModelSettings, SamplingSettings
from tether.models.export import export
from tether.models.loading import load_language_model
from tether.models.scoring import score_all
from tether.models.tokenizing import encode_answers
from tether.models.weight_sets import WeightSets
from tether.tasks.loading import load_task
from tether.train.evaluate import evaluate
from tether.train.run import evaluate_run, generate

BOTH = ("t5", "bart")


def words_with_ends() -> Any:
    """A tokenizer as BART's: <s> text </s>."""
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", BOS), ("</s>", EOS)]
    )
    return tokenizer


def task_of(tmp_path: Path, new: int, tokenizer: Any = None, **options: Any) -> Any:
    (tmp_path / "d.jsonl").write_text(
        f'{{"prompt": "{"p" * 50}", "reference": "{"r" * 40}"}}\n' * 4
    )
    data = DataSettings(path=str(tmp_path / "d.jsonl"), reference="reference", validation_rows=1)
    sampling = SamplingSettings(max_new_tokens=new)
    room = {"max_positions": 64, "encoder_positions": 64, "seq2seq": True} | options
    return load_task(data, tokenizer or byte_tokenizer(), sampling, **room)["train"]


def test_prompt_and_completion_do_not_share_positions(tmp_path: Path) -> None:
    """50 + 40 tokens: too many for 64 positions that are shared, none too many for two sides."""
    task = task_of(tmp_path, new=40)
    assert len(task.prompts[0]) == 50 and len(task.references[0]) == 41
    with pytest.raises(UserError, match=r"prompt of row \d has 50 tokens, the limit is 24"):
        task_of(tmp_path, new=40, seq2seq=False, encoder_positions=None)
    with pytest.raises(UserError, match="has 50 tokens, the limit is 49"):
        task_of(tmp_path, new=40, encoder_positions=49)
    with pytest.raises(UserError, match="64 does not fit the decoder's 64 positions"):
        task_of(tmp_path, new=64)
    cut = task_of(tmp_path, new=8, max_positions=30)
    assert len(cut.references[0]) == 29 and cut.notes["references_cut"] == 3


def test_human_completions_have_the_decoders_special_tokens(tmp_path: Path) -> None:
    tokenizer = words_with_ends()
    assert encode_answers(tokenizer, ["ab"]) == [[BOS, 64, 65, EOS]]
    assert encode_answers(byte_tokenizer(), ["ab"]) == [[64, 65, EOS]]
    task = task_of(tmp_path, new=40, tokenizer=tokenizer)
    assert task.references[0] == [BOS, *[81] * 40, EOS] and task.prompts[0][0] == BOS
    plain = task_of(
        tmp_path, new=8, tokenizer=tokenizer, seq2seq=False, max_positions=None
    ).references[0]
    assert plain == [*[81] * 40, EOS]  # decoder-only: it goes on from the prompt


def test_what_follows_eos_is_no_completion() -> None:
    """mBART's target side ends `text </s> language`: the completion ends with EOS."""
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A </s> <s>", special_tokens=[("<s>", BOS), ("</s>", EOS)]
    )
    assert encode_answers(tokenizer, ["ab", "c"]) == [[64, 65, EOS], [66, EOS]]


@pytest.mark.parametrize("kind", BOTH)
def test_human_perplexity_is_of_the_completion_given_the_prompt(tmp_path: Path, kind: str) -> None:
    world = make_world(tmp_path, kind)
    (world / "other.txt").write_text("nine plain words of quite another domain stand here\n" * 2)
    agent = agent_of(
        settings(world, evaluation={"domains": {"other": str(world / "other.txt")}})
    )  # fmt: skip
    point, _ = next(iter(evaluate(agent, 0, "validation")))
    task, nats, tokens = agent.tasks["validation"], 0.0, 0
    for i in range(2):
        prompt, answer = task.prompts[i], task.references[i][:16]
        with torch.no_grad():
            logp = agent.lm.module(
                input_ids=torch.tensor([prompt]),
                decoder_input_ids=torch.tensor([[agent.lm.decoder_start, *answer[:-1]]]),
            ).logits[0].log_softmax(-1)  # fmt: skip
        nats -= sum(float(logp[t, x]) for t, x in enumerate(answer))
        tokens += len(answer)
    assert point.metrics["human/perplexity"] == pytest.approx(math.exp(nats / tokens), rel=1e-4)
    assert point.drift["drift/kl_initial_on_human.exact_nats_per_token"] == 0
    assert point.metrics["human/perplexity.domain_other"] > 1


@pytest.mark.parametrize("kind", BOTH)
def test_human_texts_stay_inside_the_positions(tmp_path: Path, kind: str) -> None:
    """A limit of 500 tokens and texts of 1,000 on a decoder of 64 positions."""
    world = make_world(tmp_path, kind)
    (world / "other.txt").write_text("a word and " * 100 + "\n")
    wide = {"human_tokens": 500, "domains": {"other": str(world / "other.txt")}}
    human = agent_of(settings(world, evaluation=wide)).human
    other = human.others["other"]
    if kind == "bart":
        assert other.completion.shape[1] == 63 and other.prompt.shape[1] == 63
    else:
        assert other.completion.shape[1] == 500


def test_a_decoder_only_model_too(tmp_path: Path) -> None:
    world = make_world(tmp_path, "gpt2")
    (world / "other.txt").write_text("a word and " * 100 + "\n")
    wide = {"human_tokens": 500, "domains": {"other": str(world / "other.txt")}}
    agent = agent_of(settings(world, evaluation=wide))
    text = agent.human.others["other"]
    assert text.completion.shape[1] == 63
    assert torch.isfinite(score_all(agent.lm, text).logprobs).all()


@pytest.mark.parametrize("kind", BOTH)
def test_supervised_training_and_the_commands(tmp_path: Path, kind: str) -> None:
    world = make_world(tmp_path, kind)
    folder = run(
        settings(
            world,
            algorithm={"kind": "supervised", "lr": 1e-2},
            rewards={},
            checkpoint={"export": True},
            updates=6,
        )
    )
    seen = [x for x in lines(folder) if x["kind"] == "eval"]
    first, last = (x["metrics"]["human/perplexity"] for x in (seen[0], seen[-1]))
    assert last < 0.8 * first
    (point,) = evaluate_run(folder)
    assert point.metrics["human/perplexity"] == pytest.approx(last, rel=1e-5)
    written = generate(folder, ["the film", "a much longer prompt"], 2, max_new_tokens=4)
    assert [len(x) for x in written] == [2, 2]
    (alone,) = generate(folder, ["the film"], 1, max_new_tokens=4, greedy=True)
    both = generate(folder, ["the film", "a much longer prompt"], 1, max_new_tokens=4, greedy=True)
    assert alone == both[0]


def marian(folder: Path) -> str:
    """As converted: the pad's row is zeros, and generation settings keep it out of every text."""
    module = tiny_module("marian", sharp=4.0)
    with torch.no_grad():
        module.final_logits_bias[:, PAD] = 3.0
    module.generation_config = GenerationConfig(
        bad_words_ids=[[PAD]], decoder_start_token_id=PAD, eos_token_id=EOS, pad_token_id=PAD
    )
    module.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)


def test_marian_never_writes_its_start(tmp_path: Path) -> None:
    lm = load_language_model(ModelSettings(path=marian(tmp_path / "m"), device="cpu"))
    s = some_sequences(lm)
    with torch.no_grad():
        p = lm.forward(s)[0].softmax(-1)
        raw = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "m")
        start = torch.full((4, 1), PAD)
        free = raw(
            input_ids=s.prompt,
            attention_mask=s.prompt_mask.long(),
            decoder_input_ids=torch.cat([start, s.completion], 1),
        ).logits[:, :-1].softmax(-1)  # fmt: skip
    assert (free[..., PAD] > 0.01).any()  # what would have been sampled
    assert (p[..., PAD] == 0).all()
    free[..., PAD] = 0
    torch.testing.assert_close(p, free / free.sum(-1, keepdim=True), atol=1e-5, rtol=1e-4)
    sets = WeightSets(lm)
    got = score_all(lm, s, entropy=True, against={"initial": lm.twin()})
    assert torch.isfinite(got.entropy).all() and (got.exact_kl["initial"] == 0).all()
    export(lm, sets, tmp_path / "out")
    again = load_language_model(ModelSettings(path=str(tmp_path / "out"), device="cpu"))
    with torch.no_grad():
        assert torch.equal(again.forward(s)[0].softmax(-1), p)


@pytest.mark.parametrize("kind", ("marian", "pegasus"))
def test_computed_positions_never_train(tmp_path: Path, kind: str) -> None:
    """transformers' from_pretrained hands them out as weights; Marian's are in no saved file."""
    folder = make_world(tmp_path, kind) / "model"
    path = str(folder)
    lm = load_language_model(ModelSettings(path=path, device="cpu"))
    names = WeightSets(lm).sets["policy"]
    assert not any("embed_positions" in n for n in names) and len(names) > 20
    adapter = load_language_model(ModelSettings(path=path, device="cpu", lora=LoraSettings(rank=2)))
    export(adapter, None, tmp_path / "adapter", merged=False)
    merged = load_language_model(
        ModelSettings(path=path, device="cpu", adapter=str(tmp_path / "adapter"))
    )
    assert WeightSets(merged).sets["policy"].keys() == names.keys()


def test_an_environment_of_several_turns_is_refused(tmp_path: Path) -> None:
    world = make_world(tmp_path, "t5")
    here = Path(__file__).parents[1] / "environments_for_tests.py"
    agent = agent_of(
        settings(
            world,
            environment={"kind": f"{here}:TwoTurns"},
            sampling={"max_new_tokens": 20},
        )
    )
    agent.lm.stops = (EOS, *range(200))  # so that the first turn ends
    with pytest.raises(UserError, match="more than one turn, which needs a decoder-only model"):
        collected(agent)


@pytest.mark.parametrize("kind", ("t5", "bart", "gpt2"))
def test_a_tokenizer_without_pad_and_start_token(tmp_path: Path, kind: str) -> None:
    """EOS fills rows, an empty prompt is EOS, and nothing is sampled or scored differently."""
    world = make_world(tmp_path, kind)
    bare = byte_tokenizer(pad=False)
    bare.bos_token = None
    bare.save_pretrained(world / "model")
    text = (world / "prompts.jsonl").read_text().replace("the film 0", "")
    (world / "prompts.jsonl").write_text(text)
    agent = agent_of(settings(world))
    assert agent.lm.pad == EOS and agent.lm.tokenizer.bos_token_id is None
    assert [EOS] in agent.tasks["train"].prompts + agent.tasks["validation"].prompts
    collected(agent)  # raises where engine and scoring differ
    folder = run(settings(world, updates=1))
    seen = [x for x in lines(folder) if x["kind"] == "eval"]
    assert all(math.isfinite(x["metrics"]["human/perplexity"]) for x in seen)
