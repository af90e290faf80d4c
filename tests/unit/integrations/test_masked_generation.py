"""Plain transformers under a run's masks: the engine's constrained distribution, from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    LogitsProcessorList,
)

from tests.models_for_tests import EOS
from tests.runs_for_tests import make_world, run, settings
from tether.config.errors import UserError
from tether.integrations.masked_generation import Masks, load_masks
from tether.train.collect import write
from tether.train.run import load_finished

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {}),
    "lora": ("gpt2", {"model": {"lora": {"rank": 2}}}),
    "own top-p": ("gpt2", {"tethers": {"mask": {"mask": "policy", "refresh": None}}}),
    "initial": ("gpt2", {"tethers": {"mask": {"mask": "initial", "refresh": None}}}),
    "minimum length": ("gpt2", {"tethers": {"least": {"kind": "min_length", "tokens": 3}}}),
    "t5": ("t5", {}),
    "bart": ("bart", {}),
}
REFRESH = {"kind": "every", "n": 2}
NLPO = {"tethers": {"mask": {"kind": "nlpo_mask", "top_p": 0.6, "refresh": REFRESH}}}


class Finished(dict[str, Path]):
    """Runs of 3 updates, made when first asked for: the mask is the policy of update 2."""

    def __init__(self, make: pytest.TempPathFactory) -> None:
        self.make, self.worlds = make, dict[str, Path]()

    def __missing__(self, name: str) -> Path:
        kind, change = CASES[name]
        if kind not in self.worlds:
            self.worlds[kind] = make_world(self.make.mktemp(kind), kind, sharp=3.0)
        chosen = settings(
            self.worlds[kind], NLPO, change, name=name.replace(" ", "-"), updates=3,
            checkpoint={"export": True}, algorithm={"lr": 5e-3}, sampling={"max_new_tokens": 7},
            evaluation={"every": 3},
        )  # fmt: skip
        self[name] = run(chosen)
        return self[name]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return Finished(tmp_path_factory)


def model_of(folder: Path, kind: str) -> Any:
    cls = AutoModelForCausalLM if kind == "gpt2" else AutoModelForSeq2SeqLM
    return cls.from_pretrained(folder / "policy").eval()


class Forced:
    """Lets the processor speak at every step, then takes the token of a given completion."""

    def __init__(self, processor: Any, completion: Tensor) -> None:
        self.processor, self.completion = processor, completion
        self.logprobs: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        token = self.completion[:, len(self.logprobs)]
        masked = self.processor(input_ids, scores)
        self.logprobs.append(masked.log_softmax(-1).gather(1, token[:, None])[:, 0])
        return torch.full_like(scores, -torch.inf).scatter_(1, token[:, None], 0.0)


@pytest.mark.parametrize("name", CASES)
def test_the_distribution_is_the_engines(finished: Finished, name: str) -> None:
    """The engine's samples have, token by token, the log-probs that `generate` gives them."""
    folder, kind = finished[name], CASES[name][0]
    _, agent = load_finished(folder)
    task = agent.tasks["train"]
    (chunk,) = write(agent, task, torch.arange(4), ("test",), agent.sampling)
    s, want = chunk.rollout.sequences, chunk.rollout.logprobs
    masks, model = load_masks(folder), model_of(folder, kind)
    inputs = {"input_ids": s.prompt, "attention_mask": s.prompt_mask.long()}
    forced = Forced(masks.processor(**inputs), s.completion)
    model.generate(
        **inputs, do_sample=False, max_new_tokens=s.completion.shape[1],
        logits_processor=LogitsProcessorList([forced]),
    )  # fmt: skip
    have = torch.stack(forced.logprobs, 1)
    real = s.completion_mask[:, : have.shape[1]]
    torch.testing.assert_close(have[real], want[:, : have.shape[1]][real], atol=1e-4, rtol=0)
    free = agent_free(agent, s)
    assert float((want - free)[s.completion_mask].mean()) > 0.1, "the mask takes something out"


def agent_free(agent: Any, s: Any) -> Tensor:
    with agent.lm.quiet():
        logp = agent.lm.forward(s)[0].log_softmax(-1)
    found: Tensor = logp.gather(2, s.completion[..., None]).squeeze(2)
    return found


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_generate_stays_inside_and_follows_beams(finished: Finished, name: str) -> None:
    """Sampling several times a prompt, and a beam search that reorders rows, stay in the mask."""
    folder, kind = finished[name], CASES[name][0]
    tokenizer = AutoTokenizer.from_pretrained(folder / "policy")
    inputs = dict(tokenizer(["the film", "a"], return_tensors="pt", padding=True))
    masks, model = load_masks(folder), model_of(folder, kind)
    for options in (
        {"do_sample": True, "num_return_sequences": 3},
        {"do_sample": False, "num_beams": 3, "num_return_sequences": 3},
    ):
        torch.manual_seed(0)
        out = model.generate(
            **inputs, max_new_tokens=7, logits_processor=[masks.processor(**inputs)], **options
        )
        assert_inside(masks, inputs, out, 3)


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_rows_that_change_places_are_read_anew(finished: Finished, name: str) -> None:
    """What a beam search does between two steps: the cache of before would be another row's."""
    masks = load_masks(finished[name])
    (lm,) = masks.models.values()
    prompt = torch.tensor([[5, 60, 7]])
    old = torch.tensor([[9, 30], [70, 120], [200, 41]])
    head = torch.full((3, 1), lm.decoder_start) if lm.seq2seq else prompt.expand(3, -1)
    one, swapped = torch.cat([head, old], 1), torch.cat([head, old.flip(0), old], 1)[:, :-1]
    scores = torch.zeros(3, lm.vocab_size)
    processor = masks.processor(prompt)
    for ids in (head, one[:, :-1], one, swapped):
        masked = processor(ids, scores)
    fresh = masks.processor(prompt)
    fresh(head, scores)
    want = fresh(swapped, scores)
    assert torch.equal(masked, want) and bool(torch.isinf(want).any())
    assert not torch.equal(want[0], want[1])


def assert_inside(masks: Masks, inputs: dict[str, Any], out: Tensor, copies: int) -> None:
    (lm,) = masks.models.values()
    ids = inputs["input_ids"].repeat_interleave(copies, 0)
    keep = inputs["attention_mask"].repeat_interleave(copies, 0).bool()
    from tether.rollout.hf import real_tokens
    from tether.types import Sequences

    completion = out[:, 1 if lm.seq2seq else ids.shape[1] :]
    real, _ = real_tokens(completion, torch.tensor([EOS]))
    s = Sequences(ids, keep, completion, real)
    views = {"policy": torch.zeros(1), "mask": torch.zeros(1)}
    with lm.quiet():
        logits = lm.forward(s)[0]
    for t in range(completion.shape[1]):
        views = {"policy": logits[:, t], "mask": logits[:, t]}
        legal = masks.constraints[0].allow(views, torch.full((len(ids),), t))
        legal[:, EOS] = True
        assert legal.gather(1, completion[:, t, None])[:, 0][real[:, t]].all()


def test_bad_input_is_one_line(finished: Finished, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    plain = run(settings(world, name="plain", updates=1))
    with pytest.raises(UserError, match="no tether that narrows sampling"):
        load_masks(plain)
    unexported = run(settings(world, NLPO, name="unexported", updates=2))
    with pytest.raises(UserError, match="no exported policy"):
        load_masks(unexported)
    masks, model = load_masks(finished["gpt2"]), model_of(finished["gpt2"], "gpt2")
    one = {"input_ids": torch.tensor([[5], [6]]), "attention_mask": torch.ones(2, 1).long()}
    with pytest.raises(UserError, match=r"generate has 3 rows and the processor was made for 2"):
        three = torch.tensor([[5], [6], [7]])
        model.generate(three, max_new_tokens=2, logits_processor=[masks.processor(**one)])
    with pytest.raises(UserError, match="at least one token"):
        masks.processor(torch.tensor([[5]]), torch.tensor([[0]]))
