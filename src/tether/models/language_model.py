"""One face for decoder-only and encoder-decoder models: the only place that knows how a sequence
becomes logits."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from tether.config.errors import UserError
from tether.models.attention import extra_places
from tether.models.compiled import compiled_layers
from tether.models.head import ExactLogits
from tether.models.recorded import Recorded
from tether.types import Sequences


def core_of(module: nn.Module) -> Any:
    """The transformers model inside a peft or compiled wrapper."""
    inner: Any = getattr(module, "_orig_mod", module)
    return inner.get_base_model() if hasattr(inner, "get_base_model") else inner


class LanguageModel:
    """A causal or encoder-decoder model, its tokenizer and its stop tokens.

    `stops`: ids that end a completion, EOS first. `pad`: the id that fills up rows; it may be
    EOS, since masks travel beside ids (B02). The module stands in eval mode between passes.
    """

    def __init__(
        self, module: nn.Module, tokenizer: Any = None, stops: tuple[int, ...] = (), pad: int = 0
    ) -> None:
        if not stops:
            raise UserError("a language model needs a stop token: pass stops=(eos_id,)")
        self.module = module.eval()
        self.tokenizer = tokenizer
        self.stops = tuple(int(i) for i in stops)
        self.pad = int(pad)
        self.dropout = False
        self.compile = False
        """Whether scoring and the update run compiled layers."""
        self.capture = False
        """Whether the update's passes are recorded (`recording`)."""
        self._record = False
        self.facts: dict[str, Any] = {}
        self.scratch: dict[str, Any] = {}
        """What engines keep for this module between calls; a copy of the model starts without."""
        core = core_of(module)
        self.config = core.config
        self.seq2seq = bool(getattr(core.config, "is_encoder_decoder", False))
        self.padding_side = "right" if self.seq2seq else "left"
        self._accepts = frozenset(inspect.signature(core.forward).parameters)

    @property
    def core(self) -> Any:
        """The transformers model itself (LoRA layers included)."""
        return core_of(self.module)

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Of the input embeddings: what the model computes in."""
        weight: Tensor = self.core.get_input_embeddings().weight
        return weight.dtype

    @property
    def vocab_size(self) -> int:
        """Width of the logits, which may be more than the tokenizer's words."""
        return int(self.core.get_output_embeddings().weight.shape[0])

    @property
    def hidden_size(self) -> int:
        """Width of the last hidden state (the critic's input)."""
        config = self.config.get_text_config(decoder=True)
        projected = getattr(config, "word_embed_proj_dim", None)  # OPT-350m projects it out
        return int(projected or config.hidden_size)

    @property
    def max_positions(self) -> int | None:
        """Longest sequence of a decoder-only model, else of the decoder (start token included);
        None where positions are relative and unbounded (T5)."""
        config = self.config.get_text_config(decoder=True)
        return self._limit(config, "max_decoder_position_embeddings", "max_target_positions")

    @property
    def encoder_positions(self) -> int | None:
        """Longest prompt that the encoder reads; None where unbounded, and for decoder-only
        models, whose prompt and completion share `max_positions`."""
        if not self.seq2seq:
            return None
        config = getattr(self.config, "encoder", self.config)
        return self._limit(config, "max_encoder_position_embeddings", "max_source_positions")

    def _limit(self, config: Any, *own: str) -> int | None:
        if hasattr(self.config, "relative_attention_num_buckets"):
            return None
        for name in (*own, "max_position_embeddings", "n_positions"):
            value = getattr(config, name, None)
            if isinstance(value, int) and value > 0:
                return value
        return None

    @property
    def decoder_start(self) -> int:
        """First decoder id of an encoder-decoder model."""
        start = getattr(self.config, "decoder_start_token_id", None)
        if start is None:
            start = getattr(self.core.generation_config, "decoder_start_token_id", None)
        if start is None:
            raise UserError("the encoder-decoder model has no decoder_start_token_id in its config")
        return int(start)

    def max_prompt_tokens(self, max_new_tokens: int) -> int | None:
        """Longest prompt beside `max_new_tokens`; None = no limit (B32).

        Raises UserError where not even one prompt token fits.
        """
        limit = self.max_positions
        if self.seq2seq:
            # the decoder reads its start token, and the last token for the value after it
            if limit is not None and max_new_tokens > limit - 1:
                raise UserError(
                    f"sampling.max_new_tokens = {max_new_tokens} does not fit the decoder: it has "
                    f"{limit} positions, the first for its start token; use at most {limit - 1}"
                )
            return self.encoder_positions
        if limit is None:
            return None
        if max_new_tokens >= limit:
            raise UserError(
                f"sampling.max_new_tokens = {max_new_tokens} leaves no room for a prompt: "
                f"the model has {limit} positions"
            )
        return limit - max_new_tokens

    def check_length(self, prompt_tokens: int, max_new_tokens: int, where: str = "prompt") -> None:
        """Raises UserError when prompt and new tokens do not fit the model's positions (B32)."""
        room = self.max_prompt_tokens(max_new_tokens)
        if room is not None and prompt_tokens > room:
            if self.seq2seq:
                raise UserError(
                    f"{where} has {prompt_tokens} tokens, the encoder {room} positions: shorten "
                    "it, or set data.too_long"
                )
            raise UserError(
                f"{where} has {prompt_tokens} tokens; with {max_new_tokens} new tokens the model's "
                f"{self.max_positions} positions leave {room}: shorten it, or set data.too_long"
            )

    # ---- forward

    def forward(
        self, s: Sequences, *, hidden: bool = False, encoder: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """-> logits [B,T,V] before each completion token; with `hidden` the last hidden states
        [B,T+1,H] at the same positions and one more, the state after the last token.

        Positions are the running count of real tokens, so the result depends neither on padding
        nor on batch neighbours (B01). The shape of the pass is the same with and without
        `hidden`, so that two scorings of equal weights are equal bit for bit.
        """
        if self.seq2seq:
            return self._forward_seq2seq(s, hidden, encoder)
        s = self._widened(s)
        t, p = s.completion.shape[1], s.prompt.shape[1]
        inputs = self._inputs(s)
        keep = "logits_to_keep" in self._accepts
        if keep:
            inputs["logits_to_keep"] = t + 1
        logits, states = self._run(inputs, hidden)
        if not keep:
            logits = logits[:, p - 1 :]
        return logits[:, :t], None if states is None else states[:, p - 1 :]

    def _forward_seq2seq(
        self, s: Sequences, hidden: bool, encoder: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        t = s.completion.shape[1]
        prompt, mask = self._encoder_input(s)
        inputs: dict[str, Any] = {
            "attention_mask": mask.long(),
            "decoder_input_ids": self._decoder_ids(s),
        }
        if encoder is None:
            inputs["input_ids"] = prompt
        else:
            n = prompt.shape[1] - encoder.shape[1]
            inputs["encoder_outputs"] = (pad(encoder, (0, 0, 0, n)),)
        logits, states = self._run(inputs, hidden)
        return logits[:, :t], None if states is None else states[:, : t + 1]

    def hidden(self, s: Sequences) -> Tensor:
        """[B,T+1,H] last hidden states at the positions of `forward`, without computing logits."""
        decoder = self.core.get_decoder()
        if self.seq2seq:
            prompt, mask = self._encoder_input(s)
            encoder = self._encode(prompt, mask)
            with self._layers():
                states: Tensor = decoder(
                    input_ids=self._decoder_ids(s),
                    encoder_hidden_states=encoder,
                    encoder_attention_mask=mask.long(),
                    use_cache=False,
                ).last_hidden_state
            return states[:, : s.completion.shape[1] + 1]
        s = self._widened(s)
        inputs = self._inputs(s)
        if self._recordable():
            return self._recorded()(inputs)[:, s.prompt.shape[1] - 1 :]
        with self._layers():
            states = decoder(**inputs, use_cache=False).last_hidden_state
        return states[:, s.prompt.shape[1] - 1 :]

    def _recordable(self) -> bool:
        if not self.capture or self.cannot_record() is not None:
            return False
        if not torch.is_grad_enabled():
            return True
        once, self._record = self._record, False
        return once

    def cannot_record(self) -> str | None:
        """Why passes of this model cannot be recorded (`capture`), or None."""
        return self._recorded().why_not

    def _recorded(self) -> Recorded:
        known: Recorded | None = self.scratch.get("recorded")
        if known is None:
            known = self.scratch["recorded"] = Recorded(self.core, self._layers, self._accepts)
        return known

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within, the first pass of `hidden` with gradients is a recorded one, where the model
        allows; who enters takes its backward pass before he enters again."""
        self._record = not self.dropout
        try:
            yield
        finally:
            self._record = False

    def _layers(self) -> AbstractContextManager[object]:
        if not self.compile:
            return nullcontext()
        return compiled_layers(self.core, self.scratch.setdefault("compiled layers", {}))

    # ---- lengths that every kernel of attention can do (`models.attention`)
    def _widened(self, s: Sequences) -> Sequences:
        """Of a decoder: with masked places more before the prompt, which take no position."""
        n = extra_places(s.prompt.shape[1] + s.completion.shape[1], s.prompt.device, self.config)
        if not n:
            return s
        ids, mask = pad(s.prompt, (n, 0), value=self.pad), pad(s.prompt_mask, (n, 0))
        return replace(s, prompt=ids, prompt_mask=mask)

    def _encoder_input(self, s: Sequences) -> tuple[Tensor, Tensor]:
        """Ids and mask that an encoder reads."""
        n = extra_places(s.prompt.shape[1], s.prompt.device, self.config, self.encoder_positions)
        return pad(s.prompt, (0, n), value=self.pad), pad(s.prompt_mask, (0, n))

    def _decoder_ids(self, s: Sequences) -> Tensor:
        """Ids that the decoder behind it reads; nothing before what is added sees it."""
        start = torch.full_like(s.prompt[:, :1], self.decoder_start)
        n = extra_places(
            s.completion.shape[1] + 1, s.completion.device, self.config, self.max_positions
        )
        return torch.cat([start, pad(s.completion, (0, n), value=self.pad)], 1)

    def _inputs(self, s: Sequences) -> dict[str, Any]:
        mask = torch.cat([s.prompt_mask, torch.ones_like(s.completion, dtype=torch.bool)], 1)
        inputs: dict[str, Any] = {
            "input_ids": torch.cat([s.prompt, s.completion], 1),
            "attention_mask": mask.long(),
        }
        if "position_ids" in self._accepts:
            inputs["position_ids"] = positions(mask)
        return inputs

    def _run(self, inputs: Mapping[str, Any], hidden: bool) -> tuple[Tensor, Tensor | None]:
        # A hook on the decoder reads its last state: `output_hidden_states` would keep every layer.
        states: list[Tensor] = []
        handle = None
        if hidden:
            decoder = self.core.get_decoder()
            handle = decoder.register_forward_hook(
                lambda module, args, out: states.append(out.last_hidden_state)
            )
        try:
            with ExactLogits(self.core), self._layers():
                out = self.module(**inputs, use_cache=False)
        finally:
            if handle is not None:
                handle.remove()
        return out.logits, states[-1] if hidden else None

    def encode(self, s: Sequences) -> Tensor | None:
        """Encoder states [B,P,H], or None for a decoder-only model."""
        if not self.seq2seq:
            return None
        return self._encode(*self._encoder_input(s))[:, : s.prompt.shape[1]]

    def _encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        with self._layers():
            out = self.core.get_encoder()(input_ids=ids, attention_mask=mask.long())
        states: Tensor = out.last_hidden_state
        return states

    # ---- modes

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Eval mode and no gradients for scoring and sampling; the mode comes back, exceptions
        included (B07)."""
        with self._mode(train=False), torch.no_grad():
            yield

    @contextmanager
    def plain(self) -> Iterator[None]:
        """Without compiled layers, which have no second derivative."""
        before, self.compile = self.compile, False
        try:
            yield
        finally:
            self.compile = before

    @contextmanager
    def updating(self) -> Iterator[None]:
        """The mode of the update: train mode where dropout was asked for or activations are
        recomputed (transformers recomputes in train mode only), else eval mode."""
        with self._mode(train=self.dropout or self._recomputes()):
            yield

    @contextmanager
    def _mode(self, train: bool) -> Iterator[None]:
        before = self.module.training
        if train != before:  # a walk through every module, which a small step would feel
            self.module.train(train)
        try:
            yield
        finally:
            if self.module.training != before:
                self.module.train(before)

    def _recomputes(self) -> bool:
        switches: list[Any] | None = self.scratch.get("recomputation")
        if switches is None:
            switches = [m for m in self.module.modules() if hasattr(m, "gradient_checkpointing")]
            self.scratch["recomputation"] = switches
        return any(m.gradient_checkpointing for m in switches)

    # ---- copies

    def twin(
        self, trainable: bool = False, weights: Mapping[str, Tensor] | None = None
    ) -> LanguageModel:
        """A second module. Frozen tensors (a LoRA base) are shared; trainable ones are copied, or
        are the tensors of `weights` (parameter name -> tensor) without a copy."""
        memo: dict[int, Any] = {}
        for name, p in self.module.named_parameters():
            if not p.requires_grad:
                memo[id(p)] = p
            elif weights is not None and name in weights:
                memo[id(p)] = nn.Parameter(weights[name], requires_grad=trainable)
            else:
                memo[id(p)] = nn.Parameter(p.detach().clone(), requires_grad=trainable)
        out = copy.copy(self)
        out.module = copy.deepcopy(self.module, memo).eval()
        out.facts = dict(self.facts)
        out.scratch = {}
        return out

    def short_lived(self, of: LanguageModel) -> LanguageModel:
        """This twin for a few passes: what was compiled for earlier ones serves it too, and a
        recording would not live to be used."""
        self.capture = False
        self.scratch["compiled layers"] = of.scratch.setdefault("compiled layers", {})
        return self


def positions(mask: Tensor) -> Tensor:
    """[B,L] bool -> [B,L]: running count of real tokens minus one, floor 0 (B01)."""
    return (mask.long().cumsum(1) - 1).clamp(min=0)
