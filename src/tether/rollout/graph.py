"""Rollouts whose decoding step is one CUDA graph over the live model."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tether.config.run import SamplingSettings
from tether.distributed.seeds import seed_of
from tether.distributed.total import rank
from tether.models.fused import lay_together
from tether.models.language_model import LanguageModel
from tether.models.non_finite import first_non_finite
from tether.rollout.buffers import Shape
from tether.rollout.engine import Engine, bits_fit
from tether.rollout.hf import HFEngine, check_call, real_tokens
from tether.rollout.program import Program
from tether.rollout.sampler import check_rows
from tether.rollout.static_attention import Unsupported
from tether.types import Constraint, Rollout, Sequences

PROGRAMS = 6
"""Recorded shapes that stay per model; the one longest unused is dropped."""
WIDTH = 16
"""Prompt widths are rounded up to a multiple of this."""

NAME, REFUSED = "graph", "graph refused"
"""What `LanguageModel.scratch` holds: recorded programs; why there are none, by engine and
companions."""


@dataclass(frozen=True, kw_only=True)
class GraphEngine(Engine):
    """transformers' own model code over keys and values at fixed addresses; the decoding step, with
    sampling, constraints and stop tokens inside, is compiled and recorded as a CUDA graph.

    The weights are the live policy's tensors: nothing is copied or sent after an update. A new
    shape of batch costs a recording, so batches are rounded up to few shapes. Models that cannot
    be captured, and machines without CUDA, fall back to `hf` with one line that says why.
    """

    compile: bool = True
    """Compile the decoding step before it is recorded (the first call of a shape takes a minute
    more, each step about half the time)."""
    capture: bool = True
    """False: the same steps without graph and compiler, on any device (to look into a fault)."""

    def prepare(self, lm: LanguageModel) -> None:
        if lm.device.type == "cuda" and not any(
            hasattr(p, "to_local") for p in lm.module.parameters()
        ):
            lay_together(lm.module)

    def generate(
        self,
        lm: LanguageModel,
        prompts: Sequences,
        row: Tensor,
        group: Tensor,
        sampling: SamplingSettings,
        key: tuple[Any, ...],
        constraints: Sequence[Constraint] = (),
        companions: Mapping[str, LanguageModel] | None = None,
        version: int = 0,
        writer: str = "policy",
    ) -> Iterator[Rollout]:
        check_call(lm, prompts, sampling)
        others = dict(companions or {})
        keep = bits_fit(sampling, len(prompts.prompt), lm.vocab_size)
        refused = lm.scratch.setdefault(REFUSED, {})
        who = (self, *(id(o.module) for o in others.values()))
        why = refused.get(who) or self._refuses(lm, others)
        for number, i in enumerate(torch.arange(len(prompts.prompt)).split(sampling.chunk)):
            if why is not None:
                break
            seed = seed_of(*key, "sampling", rank(), number)
            s = prompts.rows(i).to(lm.device)
            with lm.quiet(), _current(lm.device):
                few, expand = _unique(s, group[i].to(lm.device))
                try:
                    program = self._program(lm, others, few, expand, sampling, constraints, keep)
                except Unsupported as e:
                    if number:  # the other engine would write the rows before it once more
                        raise RuntimeError(f"engine graph: rows {int(i[0])} and on: {e}") from e
                    why = str(e)
                    break
                program.load(few, expand, seed)
                steps = program.run()
            yield _rollout(
                lm, program, s, steps, row=row[i].to(lm.device), group=group[i].to(lm.device),
                policy_version=version, writer=writer,
            )  # fmt: skip
        if why is not None:
            if refused.get(who) != why:
                refused[who] = why
                print(f"engine graph: falling back to hf, since {why}", file=sys.stderr)
            yield from HFEngine().generate(
                lm, prompts, row, group, sampling, key, constraints, others, version, writer
            )

    def _refuses(self, lm: LanguageModel, others: Mapping[str, LanguageModel]) -> str | None:
        """Why this engine cannot write for these models; None where it can."""
        if self.capture and lm.device.type != "cuda":
            return f"it needs CUDA, the model is on {lm.device}"
        for one in (lm, *others.values()):
            if one.seq2seq != lm.seq2seq:
                return "policy and companion are of different kinds"
            if not one.seq2seq and "position_ids" not in one._accepts:
                return f"{type(one.core).__name__} takes no position_ids"
            if any(hasattr(p, "to_local") for p in one.module.parameters()):
                return "its weights are sharded"
            if not getattr(one.core, "_supports_sdpa", False):
                return f"the attention of {type(one.core).__name__} cannot be replaced"
            window = getattr(one.config, "sliding_window", None)
            if window and any(
                "sliding" in t for t in getattr(one.config, "layer_types", None) or ()
            ):
                return f"{type(one.core).__name__} attends within a sliding window"
        return None

    def _program(
        self,
        lm: LanguageModel,
        others: Mapping[str, LanguageModel],
        few: Sequences,
        expand: Tensor,
        sampling: SamplingSettings,
        constraints: Sequence[Constraint],
        keep: bool,
    ) -> Program:
        (unique, width), rows = few.prompt.shape, len(expand)
        shape = Shape(
            rows=rounded(rows),
            prompts=rounded(rows if unique == rows else unique),
            width=-(-width // WIDTH) * WIDTH,
            new=sampling.max_new_tokens,
            seq2seq=lm.seq2seq,
        )
        way = replace(sampling, chunk=0, allowed_bytes=0)
        models = tuple((name, id(other.module)) for name, other in others.items())
        key = (shape, repr(way), tuple(id(c) for c in constraints), models, keep, self)
        known: OrderedDict[Any, Program] = lm.scratch.setdefault(NAME, OrderedDict())
        if key not in known:
            program = Program(
                lm, others, shape, sampling, constraints, keep,
                graph=self.capture, compiled=self.capture and self.compile,
            )  # fmt: skip
            program.load(few, expand, 0)
            program.check()
            known[key] = program
            while len(known) > PROGRAMS:
                known.popitem(last=False)
        known.move_to_end(key)
        return known[key]


def _current(device: torch.device) -> AbstractContextManager[Any]:
    """Kernels are launched on the current device, which need not be the model's."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def programs_of(lm: LanguageModel) -> list[Program]:
    """What is recorded for a model, the latest last (for benchmarks and tests)."""
    return list(lm.scratch.get(NAME, {}).values())


def rounded(n: int) -> int:
    """The next number of the form 2^k or 3 * 2^k: at most a third of the rows are idle."""
    size = 1
    while size < n:
        size *= 2
    return size * 3 // 4 if size >= 4 and size * 3 // 4 >= n else size


def _unique(s: Sequences, group: Tensor) -> tuple[Sequences, Tensor]:
    """Each prompt of a group once, and which of them a row continues; all rows where the rows of a
    group differ (an environment's later turns)."""
    numbers, expand = group.unique(return_inverse=True)
    everyone = torch.arange(len(group), device=group.device)
    if len(numbers) == len(group):
        return s, everyone
    first = torch.full_like(numbers, len(group)).scatter_reduce(0, expand, everyone, "amin")
    few = s.rows(first)
    same = torch.equal(few.prompt[expand], s.prompt)
    if not same or not torch.equal(few.prompt_mask[expand], s.prompt_mask):
        return s, everyone
    return few, expand


def _rollout(
    lm: LanguageModel, program: Program, s: Sequences, steps: int, *, row: Tensor, **given: Any
) -> Rollout:
    n, w = len(s.prompt), program.written
    completion = w.token[:n, :steps]
    mask, finished = real_tokens(completion, program.stops)
    width = int(mask.sum(1).max())
    completion, mask = completion[:, :width].clone(), mask[:, :width]
    logprobs = w.logprob[:n, :width]

    def layer(b: int, t: int) -> str:
        return first_non_finite(lm, s.prompt[b][s.prompt_mask[b]], completion[b, : t + 1])

    check_rows({k: x[:n, :width] for k, x in w.empty.items()}, logprobs, mask, row, layer)
    return Rollout(
        sequences=Sequences(s.prompt, s.prompt_mask, completion, mask),
        sampled=mask.clone(),
        row=row,
        finished=finished,
        logprobs=torch.where(mask, logprobs, 0.0),
        allowed=None if w.bits is None else w.bits[:n, :width].clone(),
        **given,
    )
