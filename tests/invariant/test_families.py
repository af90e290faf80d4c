"""Every family of models x what a run needs of it, on small random weights: the numbers of the
engine, of scoring, of a critic, of an adapter and of the exported files are the bare model's."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from tests.models_for_tests import (
    CAUSAL,
    ENCODER_DECODER,
    VOCAB,
    some_prompts,
    some_sequences,
    take_gradients,
    tiny,
)
from tests.runs_for_tests import make_world, numbers_of, run, settings
from tether.config.run import LoraSettings, ModelSettings, SamplingSettings
from tether.core.sampling import unpack_bits
from tether.models.critic import Critic
from tether.models.export import export
from tether.models.language_model import LanguageModel
from tether.models.loading import load_language_model
from tether.models.scoring import log_distribution, score, score_all, scored_as
from tether.models.weight_sets import WeightSets
from tether.rollout.engine import join
from tether.rollout.hf import HFEngine
from tether.train.run import resume
from tether.types import Rollout, Sequences

FAMILIES = (*CAUSAL, *ENCODER_DECODER)
every_family = pytest.mark.parametrize("kind", FAMILIES)
SHARP = {"t5": 2.0, "mt5": 2.0, "gemma": 2.0}
"""Scale of the random weights: enough that a wrong position or mask moves logits by over .1."""


@cache
def shared_model(kind: str) -> LanguageModel:
    """One model a family, for tests that leave it as it is."""
    return tiny(kind, sharp=SHARP.get(kind, 4.0))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    base = tmp_path_factory.mktemp("families")

    def of(kind: str) -> Path:
        folder = base / kind
        if folder.exists():
            return folder
        # transformers gives every Qwen2 tokenizer a token of its own
        return make_world(folder, kind, **({"vocab": 264} if kind == "qwen2" else {}))

    yield of


def write(lm: LanguageModel, constraints: Any = (), companions: Any = None, **how: Any) -> Rollout:
    prompts, row = some_prompts(lm), torch.arange(4)
    sampling = SamplingSettings(**({"max_new_tokens": 8} | how))
    return join(
        list(HFEngine().generate(lm, prompts, row, row, sampling, (7,), constraints, companions)),
        lm.pad,
    )


def bare(lm: LanguageModel, prompt: list[int], completion: list[int]) -> torch.Tensor:
    """[T,V] logits of the transformers model on one row: no padding, no positions, no cache."""
    with torch.no_grad():
        if not lm.seq2seq:
            ids = torch.tensor([prompt + completion])
            return lm.module(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()
        start = torch.tensor([[lm.config.decoder_start_token_id, *completion[:-1]]])
        out = lm.module(input_ids=torch.tensor([prompt]), decoder_input_ids=start)
        return out.logits[0].float()


def rows_of(s: Sequences) -> Iterator[tuple[int, list[int], list[int]]]:
    for i in range(len(s.prompt)):
        yield (
            i,
            s.prompt[i][s.prompt_mask[i]].tolist(),
            s.completion[i][s.completion_mask[i]].tolist(),
        )


@every_family
@pytest.mark.parametrize(
    "how", ({}, {"temperature": 0.7, "top_k": 9, "min_new_tokens": 2}), ids=str
)
def test_the_engine_writes_what_scoring_sees(kind: str, how: dict[str, Any]) -> None:
    lm = shared_model(kind)
    r = write(lm, **how)
    mask = r.sequences.completion_mask
    seen = score_all(lm, r.sequences, **scored_as(SamplingSettings(**how), r))
    off = (seen.logprobs - r.logprobs).abs()[mask]
    assert off.mean() < 1e-5 and off.max() < 1e-4
    assert (r.logprobs[mask] < -1e-3).any()


@every_family
def test_a_batch_is_its_rows_alone(kind: str) -> None:
    """Padding and neighbours change nothing, against the bare model of transformers."""
    lm = shared_model(kind)
    s = some_sequences(lm, length=10)
    got = score_all(lm, s).logprobs
    for i, prompt, completion in rows_of(s):
        want = bare(lm, prompt, completion).log_softmax(-1)[range(len(completion)), completion]
        torch.testing.assert_close(got[i, : len(completion)], want, atol=5e-5, rtol=0)


@every_family
def test_more_pads_and_rubbish_under_them_change_nothing(kind: str) -> None:
    lm = shared_model(kind)
    s = some_sequences(lm)
    critic = Critic(lm)
    nn.init.normal_(critic.head.weight, std=0.1)
    pads = torch.full((4, 5), 77)
    sides = [pads, s.prompt] if lm.padding_side == "left" else [s.prompt, pads]
    keeps = [pads * 0, s.prompt_mask] if lm.padding_side == "left" else [s.prompt_mask, pads * 0]
    wide = Sequences(
        torch.cat(sides, 1),
        torch.cat([k.bool() for k in keeps], 1),
        torch.cat([torch.where(s.completion_mask, s.completion, 88), pads], 1),
        torch.cat([s.completion_mask, pads.bool() & False], 1),
    )
    one, two = score_all(lm, s, critic=critic), score_all(lm, wide, critic=critic)
    torch.testing.assert_close(one.logprobs, two.logprobs[:, :6], atol=5e-5, rtol=0)
    torch.testing.assert_close(one.values, two.values[:, :6], atol=5e-5, rtol=0)
    torch.testing.assert_close(one.last_value, two.last_value, atol=5e-5, rtol=0)


@every_family
def test_kl_at_the_start_is_exactly_zero(kind: str) -> None:
    lm = tiny(kind, sharp=SHARP.get(kind, 4.0))
    sets, s = WeightSets(lm), some_sequences(lm)
    here = score_all(lm, s).free_logprobs
    with sets.swapped_in("initial") as other:
        assert torch.equal(score_all(other, s).free_logprobs, here)
    with sets.beside("initial") as other:
        assert other is not lm
        got = score_all(lm, s, against={"initial": other})
    assert (got.exact_kl["initial"] == 0).all()
    assert torch.equal(got.set_logprobs["initial"], here)


@every_family
def test_exact_kl_and_its_gradient_are_brute_force(kind: str) -> None:
    lm, other = tiny(kind, sharp=2.0), tiny(kind, sharp=2.0, seed=1)
    s = some_sequences(lm, length=3)
    name, weight = next((n, p) for n, p in lm.module.named_parameters() if p.requires_grad)
    total = score(lm, s, against={"initial": other}).exact_kl["initial"].sum()
    (mine,) = torch.autograd.grad(total, weight)
    want, by_hand = 0.0, torch.zeros_like(weight)
    for _, prompt, completion in rows_of(s):
        ids, said = torch.tensor([prompt]), torch.tensor([completion])
        rows = Sequences(ids, torch.ones_like(ids).bool(), said, torch.ones_like(said).bool())
        p = lm.forward(rows)[0].double().softmax(-1)[0]
        q = bare(other, prompt, completion).double().softmax(-1)
        kl = (p * (p.log() - q.log())).sum()
        want += kl.item()
        by_hand += torch.autograd.grad(kl, weight)[0]
    assert want > 1e-3, name
    assert total.item() == pytest.approx(want, rel=1e-3)
    torch.testing.assert_close(mine, by_hand, atol=1e-5 * by_hand.abs().max().item(), rtol=1e-3)


@every_family
@pytest.mark.parametrize("critic_kind", ("separate", "shared"))
def test_values_stand_before_each_token_and_after_the_last(kind: str, critic_kind: Any) -> None:
    """V at t is read from the prompt and the first t tokens alone: of a sequence cut there."""
    lm = shared_model(kind)
    critic = Critic(lm, critic_kind)
    nn.init.normal_(critic.head.weight, std=0.1)
    s = some_sequences(lm)
    got = score_all(lm, s, critic=critic)
    for t in (0, 2, 5):
        cut = replace(s, completion=s.completion[:, :t], completion_mask=s.completion_mask[:, :t])
        want = score_all(lm, cut, critic=critic).last_value
        real = s.completion_mask[:, t]
        torch.testing.assert_close(got.values[real, t], want[real], atol=5e-5, rtol=0)
    assert got.values[s.completion_mask].std() > 1e-3
    assert got.last_value[1] != 0 and got.values[1, 3] == 0


@every_family
def test_a_resident_set_reads_along_while_the_policy_writes(kind: str) -> None:
    lm, other = shared_model(kind), tiny(kind, sharp=SHARP.get(kind, 4.0), seed=1)

    class AboveMean:
        def allow(self, logits: Any, position: torch.Tensor) -> torch.Tensor:
            return logits["mask"] > logits["mask"].mean(-1, keepdim=True)  # type: ignore[no-any-return]

    r = write(lm, [AboveMean()], {"mask": other})
    with torch.no_grad():
        logits = other.forward(r.sequences)[0]
    gap = (logits - logits.mean(-1, keepdim=True)).abs() > 1e-4  # not within rounding of the rule
    want = logits > logits.mean(-1, keepdim=True)
    want[..., lm.stops[0]] = True
    real = r.sequences.completion_mask[..., None] & gap
    assert r.allowed is not None
    assert torch.equal(
        unpack_bits(r.allowed, VOCAB)[real.expand_as(want)], want[real.expand_as(want)]
    )
    seen = score_all(lm, r.sequences, allowed=r.allowed).logprobs
    torch.testing.assert_close(r.logprobs, seen, atol=1e-4, rtol=0)


def linear_layers(core: Any) -> set[str]:
    """Names of every linear layer but the output head."""
    head = core.get_output_embeddings()
    kinds = ("Linear", "Conv1D")
    return {n for n, m in core.named_modules() if type(m).__name__ in kinds and m is not head}


def moved(lm: LanguageModel, sets: WeightSets) -> None:
    """Two steps that change every weight of the policy."""
    optimizer = torch.optim.Adam(sets.sets["policy"].values(), lr=3e-3)
    for _ in range(2):
        lm.forward(some_sequences(lm))[0].float().square().mean().backward()
        take_gradients(sets)
        optimizer.step()
        optimizer.zero_grad()
        sets.publish("policy")


def loaded(folder: Path, **options: Any) -> LanguageModel:
    return load_language_model(
        ModelSettings(path=str(folder / "model"), device="cpu", **options), seed=1
    )


def tied(core: Any) -> bool:
    return bool(core.get_input_embeddings().weight is core.get_output_embeddings().weight)


@every_family
@pytest.mark.parametrize("lora", (None, LoraSettings(rank=2)), ids=("full", "lora"))
def test_an_export_is_the_policy_for_plain_transformers(
    folders: Any, tmp_path: Path, kind: str, lora: Any
) -> None:
    lm = loaded(folders(kind), lora=lora)
    sets, s = WeightSets(lm), some_sequences(lm)
    was = score_all(lm, s).logprobs
    if lora is not None:
        adapted = {
            n.removesuffix(".lora_A") for n, m in lm.core.named_modules() if n.endswith("lora_A")
        }
        assert adapted == linear_layers(shared_model(kind).core)
    moved(lm, sets)
    live = score_all(lm, s).logprobs
    assert (live - was).abs().max() > 1e-3
    auto = AutoModelForSeq2SeqLM if lm.seq2seq else AutoModelForCausalLM
    export(lm, sets, tmp_path / "out")
    plain = auto.from_pretrained(tmp_path / "out")
    again = LanguageModel(plain, None, lm.stops, lm.pad)
    torch.testing.assert_close(score_all(again, s).logprobs, live, atol=5e-5, rtol=0)
    if lora is None:
        assert torch.equal(score_all(again, s).logprobs, live)
        assert tied(lm.core) == tied(plain) == tied(shared_model(kind).core)
        return
    export(lm, sets, tmp_path / "adapter", merged=False)
    base = loaded(folders(kind), adapter=str(tmp_path / "adapter"))
    torch.testing.assert_close(score_all(base, s).logprobs, live, atol=5e-5, rtol=0)
    assert base.facts["trainable"] == loaded(folders(kind)).facts["trainable"]


@every_family
def test_two_updates_and_a_resume_are_the_uninterrupted_run(folders: Any, kind: str) -> None:
    small = {
        "updates": 2,
        "sampling": {"max_new_tokens": 3},
        "batch": {"prompts": 2, "microbatch": 2},
        "algorithm": {"epochs": 1, "minibatches": 1},
        "evaluation": {"prompts": 2, "every": 9, "human_rows": 2, "human_tokens": 8, "samples": 1},
        "checkpoint": {"every": 1, "export": True},
    }
    tethers = {
        "tethers": {
            "kl": {"kind": "kl", "coef": 0.1},
            "min_length": {"kind": "min_length", "tokens": 2},
        }
    }

    def cut(done: int, _total: int, _words: str) -> None:
        if done == 1:
            raise KeyboardInterrupt

    world = folders(kind)
    with pytest.raises(KeyboardInterrupt):
        run(settings(world, small, tethers, name="cut"), progress=cut)
    torch.manual_seed(77)
    parts = resume(world / "runs" / "cut", say=lambda _: None)
    whole = run(settings(world, small, tethers, name="whole"))
    assert numbers_of(parts) == numbers_of(whole)
    assert (whole / "policy" / "config.json").is_file()


@pytest.mark.parametrize("kind", ("gpt2", "llama", "gemma2", "t5", "marian"))
def test_bf16_agrees_within_its_tolerance(kind: str) -> None:
    """The limits of `train/self_checks`: .05 on average, 5 for the worst token."""
    lm = tiny(kind, sharp=SHARP.get(kind, 3.0))
    lm.module.to(torch.bfloat16)
    r = write(lm)
    assert r.logprobs is not None and r.logprobs.dtype == torch.float32
    mask = r.sequences.completion_mask
    off = (score_all(lm, r.sequences).logprobs - r.logprobs).abs()[mask]
    exact = log_distribution(lm, r.sequences)
    assert off.mean() < 0.05 and off.max() < 5.0
    assert exact.dtype == torch.float32


@pytest.mark.parametrize("kind", ("gpt2", "t5", "marian"))
def test_a_run_with_an_adapter_warns_of_nothing(folders: Any, kind: str) -> None:
    small = {"updates": 1, "model": {"lora": {"rank": 2}}, "checkpoint": {"export": True}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folder = run(settings(folders(kind), small, name="quiet"))
    assert (folder / "policy").is_dir() and (folder / "adapter").is_dir()
