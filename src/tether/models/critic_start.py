"""A critic that starts from a reward model instead of from the policy (B13).

    V(s_t) = (w . h_t) + b        h_t: the reward model's own hidden state after the first t tokens

Its trunk becomes the critic's trunk, its score head the first head: (w, b) of a model with one
label; (w_1 - w_0, b_1 - b_0), the log-odds of the last label, of one with two. Of more labels, and
of encoder-decoder classifiers (their head is no linear map of the last state), the trunk is taken
and the head starts at zero. So before training V is what the reward model would say of the prefix.

The tensors must be those of the policy's architecture, name by name; so must the vocabulary. With a
LoRA policy the critic is an adapter of its own on the frozen reward model, which then costs a
second base in memory.

Source: the value function starts from the reward model's weights in Stiennon et al. 2020, arXiv
2009.01325, and Ouyang et al. 2022, arXiv 2203.02155.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tether.config.errors import UserError
from tether.config.run import LoraSettings
from tether.distributed.seeds import seed_of
from tether.models import lora
from tether.models.classifier import TextClassifier
from tether.models.classifier_loading import folder_of, load_classifier
from tether.models.language_model import LanguageModel, core_of
from tether.models.loading import same_words


@dataclass(frozen=True)
class Start:
    """What a critic of its own begins with."""

    trunk: LanguageModel
    weight: Tensor | None = None
    """[H] fp32; None = zero."""
    bias: float = 0.0


def start_from(
    path: str, lm: LanguageModel, adapter: LoraSettings | None = None, seed: int = 0
) -> Start:
    """The reward model in a folder or on the hub, as the start of a critic beside `lm`.

    adapter: what the policy trains, if not all weights. Raises UserError where the reward model is
    of another architecture or vocabulary.
    """
    dtype = str(lm.dtype).removeprefix("torch.")
    try:
        model = load_classifier(path, device=str(lm.device), dtype=dtype)
        same_words(folder_of(path), lm)
    except UserError as e:
        raise UserError(f"critic.start: {e}") from e
    module: Any = model.module
    theirs: Any = lora.plain(module) if lora.is_adapted(module) else core_of(module)
    weight, bias = _head(model, theirs)
    trunk = _trunk(path, lm, theirs)
    if adapter is not None:
        trunk.module = lora.wrap(trunk.module, adapter, seed_of(seed, "critic_lora")).eval()
    return Start(trunk, weight, bias)


def _trunk(path: str, lm: LanguageModel, theirs: Any) -> LanguageModel:
    """The policy's architecture with the reward model's tensors; nothing of the policy is copied
    but its structure."""
    mine: Any = lm.core
    if lora.is_adapted(lm.module):
        mine = lm.twin().module.unload()  # type: ignore[operator]
    here, there = _tensors(mine), dict(theirs.base_model.named_parameters())
    _fits(path, mine, theirs, here, there)
    memo: dict[int, Any] = {id(p): p for p in mine.parameters()}  # the output head: dropped below
    trained = {id(p) for p in lm.core.parameters() if p.requires_grad}
    adapted = lora.is_adapted(lm.module)
    for name, p in here.items():
        moves = not adapted and id(p) in trained
        memo[id(p)] = nn.Parameter(there[name].detach().to(p.device), requires_grad=moves)
    core = copy.deepcopy(mine, memo).eval()
    core.set_output_embeddings(nn.Identity())  # it reads states, never logits
    out = copy.copy(lm)
    out.module, out.facts, out.scratch = core, dict(lm.facts), {}
    return out


def _tensors(core: Any) -> dict[str, nn.Parameter]:
    """Parameters of the trunk of a language model, without an output head of its own."""
    base, head = core.base_model, core.get_output_embeddings()
    ends = tuple(f"{n}." for n, m in base.named_modules() if m is head and n)
    return {n: p for n, p in base.named_parameters() if not (ends and n.startswith(ends))}


def _fits(path: str, mine: Any, theirs: Any, here: dict[str, Any], there: dict[str, Any]) -> None:
    kinds = (theirs.config.model_type, mine.config.model_type)
    if kinds[0] != kinds[1]:
        raise UserError(
            f"critic.start: {path!r} is a {kinds[0]} model and the policy a {kinds[1]} model; "
            "give a reward model of the policy's architecture"
        )
    rows = [m.get_input_embeddings().weight.shape[0] for m in (theirs, mine)]
    if rows[0] != rows[1]:
        raise UserError(
            f"critic.start: {path!r} has a vocabulary of {rows[0]}, the policy {rows[1]}; give a "
            "reward model with the policy's tokens"
        )
    odd = sorted(here.keys() ^ there.keys())
    odd += sorted(n for n in here.keys() & there.keys() if here[n].shape != there[n].shape)
    if odd:
        raise UserError(
            f"critic.start: {path!r} and the policy are of different sizes ({odd[0]!r} does not "
            "fit); give a reward model of the policy's architecture"
        )


def _head(model: TextClassifier, core: Any) -> tuple[Tensor | None, float]:
    if not model.causal or model.num_labels > 2:
        return None, 0.0
    weight: Tensor = core.score.weight.detach().float()
    bias = torch.zeros(len(weight)) if core.score.bias is None else core.score.bias.detach().float()
    if model.num_labels == 1:
        return weight[0].clone(), float(bias[0])
    return weight[1] - weight[0], float(bias[1] - bias[0])


__all__ = ["Start", "start_from"]
