"""One shape of rollout at fixed addresses: prompts in, a decoding step that is recorded once and
repeated, completions out. On CUDA the step is a graph: no launch per operation and no host
synchronisation per token."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tether.config.run import SamplingSettings
from tether.core.gate import alone
from tether.core.sampling import exponential, pack_bits
from tether.models.compiled import own_code
from tether.models.fused import Together, padded_head
from tether.models.head import ExactLogits
from tether.models.language_model import LanguageModel, positions
from tether.rollout.buffers import Inputs, Shape, Written, restore, saved
from tether.rollout.draw import choose, draw_and_write, triton, write
from tether.rollout.sampler import narrow, narrows
from tether.rollout.static_attention import Span, Spans, Unsupported, attending
from tether.rollout.static_cache import Kept
from tether.rollout.waiting import NoWaiting
from tether.types import Constraint, Sequences

LOOK = 8
"""Steps between looks at whether every row has ended; the look is at the state of LOOK steps ago,
so the device never waits for the host."""
WARM_UP = 2
"""Runs of a step before it is recorded: libraries and kernels are chosen in them."""


class Reader:
    """A model that reads along: its cache, and its logits before the next token."""

    def __init__(self, lm: LanguageModel, shape: Shape, inputs: Inputs, compiled: bool) -> None:
        self.lm, self.shape, self.inputs = lm, shape, inputs
        accepts = inspect.signature(lm.core.forward).parameters
        self.word = "cache" if "cache" in accepts else "past_key_values"
        self.accepts = accepts
        self.kept: Kept | None = None
        self._together = Together(lm.core)
        self._logits = ExactLogits(lm.core, padded_head(lm.core))
        self._step: Callable[[], Tensor] = self._forward
        if compiled:
            self._step = torch.compile(
                _own_method(self._forward), dynamic=False, options=_options()
            )

    def begin(self) -> Tensor:
        """Read the prompts, each once, and spread what is kept of them over the rows; [B,V]."""
        i = self.inputs
        with self._logits:
            out = self.lm.core(**self._prompts())
        kept = getattr(out, "cache", None) or out.past_key_values
        if self.kept is None:
            self.kept = Kept(kept, self.shape.rows, self.shape.length, i.now)
        self.kept.take(kept, i.expand)
        last: Tensor = out.logits[:, -1].index_select(0, i.expand)
        return last

    def _prompts(self) -> dict[str, Any]:
        i = self.inputs
        words: dict[str, Any] = {"use_cache": True, "attention_mask": i.prompt_mask.long()}
        if self.shape.seq2seq:
            start = torch.full_like(i.prompt[:, :1], self.lm.decoder_start)
            return words | {"input_ids": i.prompt, "decoder_input_ids": start}
        if "position_ids" in self.accepts:
            words["position_ids"] = positions(i.prompt_mask)
        if "logits_to_keep" in self.accepts:
            words["logits_to_keep"] = 1
        return words | {"input_ids": i.prompt}

    def step(self, plain: bool = False) -> Tensor:
        """The newest token of every row -> [B,V] logits before the next. plain: not compiled."""
        with attending(self.lm.core, self.inputs.spans), self._together, self._logits:
            return self._forward() if plain else self._step()

    def _forward(self) -> Tensor:
        assert self.kept is not None
        i = self.inputs
        words: dict[str, Any] = {"use_cache": True, self.word: self.kept.handed}
        if self.shape.seq2seq:
            words["decoder_input_ids"] = i.token[:, None]
            words["encoder_outputs"] = (i.encoder,)
            words["decoder_attention_mask"] = i.seen
        else:
            words["input_ids"] = i.token[:, None]
            words["attention_mask"] = i.seen  # unread; without one models look for padding
            if "position_ids" in self.accepts:
                words["position_ids"] = i.position[:, None]
            if "logits_to_keep" in self.accepts:
                words["logits_to_keep"] = 1
        logits: Tensor = self.lm.core(**words).logits
        return logits[:, -1]


class Program:
    """Buffers, readers and graphs of one shape and one way of sampling.

    Everything that a call may change (prompts, rows, seed) is content of a buffer; weights are the
    live modules' own tensors, which are written in place everywhere in this library, so a step, a
    reset or a swap between calls is seen without anything being told.
    """

    def __init__(
        self,
        lm: LanguageModel,
        companions: Mapping[str, LanguageModel],
        shape: Shape,
        sampling: SamplingSettings,
        constraints: Sequence[Constraint],
        keep_bits: bool,
        *,
        graph: bool,
        compiled: bool,
    ) -> None:
        self.lm, self.shape, self.sampling = lm, shape, sampling
        self.constraints, self.graph, self.compiled = tuple(constraints), graph, compiled
        self.device = lm.device
        self.stops = torch.tensor(lm.stops, device=self.device)
        self.inputs = self._inputs()
        self.readers = {"policy": Reader(lm, shape, self.inputs, compiled)}
        for name, other in companions.items():
            self.readers[name] = Reader(other, shape, self.inputs, compiled)
        self.fast = self.device.type == "cuda" and triton is not None
        self.rng = torch.Generator(self.device)
        self.seed = torch.zeros(1, dtype=torch.long, device=self.device)
        b, t, v = shape.rows, shape.new, lm.vocab_size
        kept = keep_bits and sampling.scored == "sampled" and narrows(sampling, self.constraints)
        self.written = Written(
            torch.zeros((b, t), dtype=torch.long, device=self.device),
            torch.zeros((b, t), device=self.device),
            torch.zeros((b, t, -(-v // 8)), dtype=torch.uint8, device=self.device)
            if kept
            else None,
        )
        self._first: Callable[[], object] | None = None
        self._next: Callable[[], object] | None = None

    def _inputs(self) -> Inputs:
        s, device = self.shape, self.device

        def zeros(*size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.long, device=device)

        encoder = Span(zeros(s.rows), zeros(s.rows)) if s.seq2seq else None
        return Inputs(
            prompt=zeros(s.prompts, s.width),
            prompt_mask=torch.ones((s.prompts, s.width), dtype=torch.bool, device=device),
            expand=zeros(s.rows),
            token=zeros(s.rows),
            position=zeros(s.rows),
            spans=Spans(Span(zeros(s.rows), zeros(s.rows)), encoder, s.width if encoder else -1),
            clock=zeros(2),
            done=torch.zeros(s.rows, dtype=torch.bool, device=device),
            seen=torch.ones((s.rows, 1, 1, 1), dtype=torch.bool, device=device),
            encoder=torch.zeros((s.rows, 1, 1), dtype=self.lm.dtype, device=device),
        )

    # ---- a call

    def load(self, prompts: Sequences, expand: Tensor, seed: int) -> None:
        """prompts: U or fewer different ones, at most P wide; expand: for each of B or fewer rows
        the number of its prompt. Rows too many have ended before they begin."""
        i, s = self.inputs, self.shape
        u, p = prompts.prompt.shape
        side = slice(0, p) if s.seq2seq else slice(s.width - p, s.width)
        i.prompt.fill_(self.lm.pad)
        i.prompt_mask.zero_()
        i.prompt[:u, side].copy_(prompts.prompt)
        i.prompt_mask[:u, side].copy_(prompts.prompt_mask)
        # a row that attends to nothing would be NaN
        i.prompt_mask[u:, 0 if s.seq2seq else -1] = True
        i.expand.zero_()
        i.expand[: len(expand)].copy_(expand)
        lengths = i.prompt_mask.sum(1)[i.expand]
        tokens, encoder = i.spans.tokens, i.spans.encoder
        if encoder is not None:
            encoder.end.copy_(lengths)
            lengths = torch.ones_like(lengths)
        tokens.start.copy_(s.read - lengths)
        tokens.end.fill_(s.read)
        i.now.fill_(s.read - 1)
        i.position.copy_(lengths - 1)
        i.step.zero_()
        i.done.zero_()
        i.done[len(expand) :] = True
        self.rng.manual_seed(seed)
        self.seed.fill_(seed)

    def check(self) -> None:
        """One plain step of what was loaded. Raises Unsupported where a model's attention goes
        another way than over the static keys, which would otherwise be seen in no number."""
        kept, spans = saved(self.inputs), self.inputs.spans
        for reader in self.readers.values():
            spans.calls = 0
            reader.begin()
            with NoWaiting(type(reader.lm.core).__name__):
                reader.step(plain=True)
            assert reader.kept is not None
            wanted = len(reader.kept.tokens.layers) * (1 if reader.kept.cross is None else 2)
            if spans.calls != wanted:
                raise Unsupported(
                    f"the attention of {type(reader.lm.core).__name__} cannot be replaced"
                )
        spans.calls = None
        restore(self.inputs, kept)

    def begin(self) -> None:
        """Read the prompts and write the first token."""
        if self._first is None:
            self._record()
        assert self._first is not None
        self._first()

    def again(self) -> None:
        """Write one token more."""
        assert self._next is not None
        self._next()

    def run(self) -> int:
        """Write; the number of steps taken."""
        self.begin()
        ahead: list[tuple[Any, Tensor]] = []
        for step in range(1, self.shape.new):
            if step % LOOK == 0:
                ahead.append(self._ask())
                if len(ahead) > 1 and _answer(*ahead.pop(0)):
                    return step
            self.again()
        return self.shape.new

    def _ask(self) -> tuple[Any, Tensor]:
        ended = self.inputs.done.all()
        if self.device.type != "cuda":
            return None, ended
        here = torch.empty((), dtype=torch.bool, pin_memory=True)
        here.copy_(ended, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        return event, here

    # ---- the steps

    def first(self) -> None:
        """Prompts to the first token."""
        self._sample({name: reader.begin() for name, reader in self.readers.items()})

    def next(self) -> None:
        """One token more."""
        self._sample({name: reader.step() for name, reader in self.readers.items()})

    def _sample(self, views: Mapping[str, Tensor]) -> None:
        i, w, s = self.inputs, self.written, self.sampling
        allowed = None
        if narrows(s, self.constraints):
            place = i.step.expand(self.shape.rows)
            allowed, empty = narrow(s, self.constraints, _fp32(views), place, self.stops)
            for key, flag in empty.items():
                if key not in w.empty:
                    w.empty[key] = torch.zeros_like(w.token, dtype=torch.bool)
                w.empty[key].index_copy_(1, i.step, flag[:, None])
            if w.bits is not None:
                w.bits.index_copy_(1, i.step, pack_bits(allowed)[:, None])
        logits, full, pad = views["policy"], s.scored == "full", self.lm.pad
        if self.fast:
            draw_and_write(
                logits, allowed, self.seed, i, w, self.stops, pad=pad,
                temperature=s.temperature, greedy=s.greedy, full=full,
            )  # fmt: skip
            return
        noise = None if s.greedy else exponential(logits, self.rng)
        write(*choose(logits, noise, allowed, s.temperature, full), i, w, self.stops, pad=pad)

    # ---- recording

    def _record(self) -> None:
        """The first call runs each step a few times with what was loaded, then loads it again."""
        if not self.graph:
            self._first, self._next = self.first, self.next
            return
        kept, state = saved(self.inputs), self.rng.get_state()
        stream, pool = _place(self.lm)
        stream.wait_stream(torch.cuda.current_stream())
        graphs = []
        with torch.cuda.stream(stream):
            for step in (self.first, self.next):
                for _ in range(WARM_UP):
                    restore(self.inputs, kept)
                    step()
                restore(self.inputs, kept)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                graph.register_generator_state(self.rng)
                with alone(), torch.cuda.graph(graph, pool=pool, stream=stream):
                    step()
                graphs.append(graph)
        torch.cuda.current_stream().wait_stream(stream)
        restore(self.inputs, kept)
        self.rng.set_state(state)
        self._first, self._next = graphs[0].replay, graphs[1].replay


def _place(lm: LanguageModel) -> tuple[torch.cuda.Stream, Any]:
    """Stream and memory in which all steps of a model are recorded. What a step leaves is in
    buffers of its own outside, and steps are repeated one after the other, so they can work in one
    memory: it is as large as the largest step needs, not as all together. On another stream the
    allocator would not give it out again."""
    if "recording place" not in lm.scratch:
        lm.scratch["recording place"] = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
    found: tuple[torch.cuda.Stream, Any] = lm.scratch["recording place"]
    return found


def _options() -> dict[str, bool]:
    """Of the compiler."""
    from torch._inductor import config

    # neighbours that do not depend on each other: one launch
    options = {"combo_kernels": True}
    if hasattr(config, "combo_kernels_pointwise_only"):
        # a sum over rows gets the blocks of its neighbours otherwise, and takes 30 times as long
        options["combo_kernels_pointwise_only"] = True
    return options


def _own_method(method: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """`own_code` of a bound method: shapes of a step, too, are counted per code object."""
    copy = own_code(method.__func__)  # type: ignore[attr-defined]
    return types.MethodType(copy, method.__self__)  # type: ignore[attr-defined]


def _fp32(views: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k: v.float() for k, v in views.items()}


def _answer(event: Any, ended: Tensor) -> bool:
    if event is not None:
        event.synchronize()
    return bool(ended)
