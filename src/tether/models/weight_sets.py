"""Every set of weights one agent has, by name: policy, initial, critic, and what tethers declare
(ema, mask, teacher...).

A set is a map of fp32 tensors. `policy` holds the masters; where the model computes in bf16 its
parameters are the *working* tensors and `publish` rounds masters into them. Only `policy` and
*resident* sets have a module; any other set can still be run (`swapped_in`): contents are exchanged
with the live module's, addresses never change, and with LoRA a set costs an adapter. Nobody else
writes a weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tether.config.errors import UserError
from tether.config.run import Source
from tether.core import weights as w
from tether.distributed.shards import reshard
from tether.models.critic import Critic
from tether.models.language_model import LanguageModel
from tether.models.loading import load_beside
from tether.models.overlap import Aside, Overlap
from tether.types import Move, Until

BUFFER = "buffer:"
"""Prefix of persistent buffers in a checkpoint. Averages act on parameters; buffers are copied."""


class WeightSets:
    """The sets of one agent.

    sets: name -> fp32 tensors. working: name -> the tensors a module computes with (the same
    objects where that module is fp32). residents: name -> a module of its own. counts: how often
    each move happened ("ema<-policy"), so that one that never did can be an error.
    """

    def __init__(
        self,
        lm: LanguageModel,
        critic: Critic | None = None,
        *,
        copies: str | None = None,
    ) -> None:
        """copies: "cpu" keeps every set that does not train in pinned memory, and an average of
        the policy there is on its way until somebody needs it (`settle`)."""
        self.lm, self.critic, self._copies = lm, critic, copies
        self._overlap, self._aside = Overlap(), Aside()
        self.live = "policy"
        self.counts: Counter[str] = Counter()
        self._sets: dict[str, w.WeightSet] = {}
        self.working: dict[str, w.WeightSet] = {}
        self.residents: dict[str, LanguageModel] = {}
        self.foreign: set[str] = set()
        self._base: dict[str, str] = {}
        self._pairs: dict[tuple[str, str], tuple[list[Tensor], list[Tensor]] | None] = {}
        self._rounded: dict[str, tuple[list[Tensor], list[Tensor]]] = {}
        self._adopt("policy", lm.module)
        if not self.sets["policy"]:
            raise UserError("the model has no trainable parameter")
        self.buffers: dict[str, dict[str, Tensor]] = {"policy": _persistent_buffers(lm.module)}
        self.declare("initial")
        if critic is not None:
            if critic.kind == "frozen":
                self.declare("initial", resident=True)
                critic.stand_on(self.residents["initial"])
            self._adopt("critic", critic)
            self.sets["critic_initial"] = self._copy(self.sets["critic"])

    @property
    def sets(self) -> dict[str, w.WeightSet]:
        """Every set as it stands: what is on its way has arrived."""
        self.settle()
        return self._sets

    def settle(self) -> None:
        """Wait for an average on its way. Call it before masters are written."""
        self._overlap.finish()
        self._aside.finish()

    def _copy(self, source: w.WeightSet, device: str | None = None) -> w.WeightSet:
        place = device or self._copies or str(self.lm.device)
        return w.snapshot(source, device=place, pin=_pin(place))

    def _adopt(self, name: str, module: nn.Module) -> None:
        """Parameters of a live module: fp32 ones are their own masters, others get fp32 masters."""
        self.working[name] = w.trainable(module)
        self.sets[name] = {
            n: t if t.dtype == torch.float32 else nn.Parameter(w.local(t).float().clone())
            for n, t in self.working[name].items()
        }

    # ---- declaring

    def declare(
        self,
        name: str,
        *,
        resident: bool = False,
        device: str | None = None,
        source: Source | None = None,
    ) -> None:
        """Make a set, or make a known one resident. A new one starts as `initial`, or as `source`.

        device: "cpu" = pinned host memory; default: where `copies` says, else the policy's device.
        A source of another architecture, or any where the policy is an adapter, becomes a resident
        module without a movable set; its vocabulary must be the policy's.
        """
        if name not in self.sets:
            start = self.sets["policy" if name == "initial" else "initial"]
            if source is not None:
                self._from_source(name, source, device)
            else:
                self.sets[name] = self._copy(start, device)
            self.buffers[name] = {n: b.clone() for n, b in self.buffers["policy"].items()}
        if resident and name not in self.residents and name != "policy":
            self.residents[name], self.working[name] = self._module_for(name)

    def _from_source(self, name: str, source: Source, device: str | None) -> None:
        try:
            other = load_beside(source, self.lm)
        except UserError as e:
            raise UserError(f"the weights '{name}': {str(e).removeprefix('model.path: ')}") from e
        theirs = w.trainable(other.module)
        mine = self.sets["policy"]
        if {n: t.shape for n, t in theirs.items()} == {n: t.shape for n, t in mine.items()}:
            self.sets[name] = self._copy(theirs, device)
            return
        if other.vocab_size != self.lm.vocab_size:
            raise UserError(
                f"the weights '{name}' ({source}) have a vocabulary of {other.vocab_size}, the "
                f"policy {self.lm.vocab_size}: a KL between them has no meaning"
            )
        other.module.requires_grad_(False)
        self.residents[name], self.sets[name], self.working[name] = other, {}, {}
        self.foreign.add(name)

    def _module_for(self, name: str) -> tuple[LanguageModel, w.WeightSet]:
        """A module that runs a set: its tensors are the set's own where dtype and device allow."""
        contents, share = self.sets[name], {}
        for raw, p in self.lm.module.named_parameters():
            if p.requires_grad:
                t = contents[w.clean(raw)]
                plain = not hasattr(p, "to_local")
                if plain and t.dtype == p.dtype and t.device == p.device:
                    share[raw] = t.detach()
        twin = self.lm.twin(weights=share)
        names = self.sets["policy"].keys()
        working: w.WeightSet = {
            w.clean(n): p for n, p in twin.module.named_parameters() if w.clean(n) in names
        }
        for n, t in working.items():
            if w.local(t).data_ptr() != w.local(contents[n]).data_ptr():
                w.local(t).copy_(w.local(contents[n]))
        for n, b in twin.module.named_buffers():
            if n in self.buffers[name]:
                b.copy_(self.buffers[name][n])
        return twin, working

    # ---- writing

    @torch.no_grad()
    def publish(self, name: str) -> None:
        """Round masters into working tensors, in place, and drop stale gathered copies. Call it
        after every optimizer step."""
        if name in self.working:
            if name not in self._rounded:  # tensors are written, never replaced
                self._rounded[name] = w.pairs(self.working[name], self.sets[name])
            w.copy_(*self._rounded[name])
        module = self._module(name)
        if module is not None:
            reshard(module)

    def _module(self, name: str) -> nn.Module | None:
        if name == "policy":
            return self.lm.module
        if name == "critic":
            return self.critic
        return self.residents[name].module if name in self.residents else None

    def apply(self, moves: Iterable[Move]) -> None:
        """Execute moves in order; each is counted, published and, for low-precision working
        tensors, verified. Raises ValueError for an unknown set or one that never moves."""
        for move in moves:
            self._check(move)
            assert not isinstance(move.by, Until)
            self._lerp(move)
            self._copy_buffers(move)
            self.publish(move.what)
            self.counts[f"{move.what}<-{move.toward}"] += 1
            if move.what == "policy":
                self.verify()

    def _lerp(self, move: Move) -> None:
        self.settle()
        target, source = self._sets[move.what], self._sets[move.toward]
        alone = move.where is None and move.what not in self.working
        if alone and self._overlap.takes(target, source, move.by):
            self._overlap.start(target, source, move.by)
        elif move.where is None and 0 < move.by < 1 and (found := self._alike(move)):
            later = alone and found[0][0].is_cuda
            (self._aside.start if later else torch._foreach_lerp_)(*found, move.by)
        else:
            w.lerp_(target, source, move.by, move.where)

    def _alike(self, move: Move) -> tuple[list[Tensor], list[Tensor]] | None:
        """Both sides of an average as lists, sought once: one is taken after every optimizer step.
        None where types or devices differ."""
        key = (move.what, move.toward)
        if key not in self._pairs:
            self._pairs[key] = w.alike(self._sets[move.what], self._sets[move.toward])
        return self._pairs[key]

    def _check(self, move: Move) -> None:
        if self.live != "policy":
            raise RuntimeError(f"moves while '{self.live}' is swapped in")
        if isinstance(move.by, Until):
            raise ValueError("a move with `by = Until(...)` must be given a number by the house")
        if not 0 <= move.by <= 1:
            raise ValueError(
                f"a move of '{move.what}' towards '{move.toward}' by {move.by}: "
                "`by` is a share of the way, from 0 to 1"
            )
        for name in (move.what, move.toward):
            if name not in self._sets:
                raise ValueError(f"no set of weights '{name}'; there are {sorted(self._sets)}")
            if name in self.foreign:
                raise ValueError(
                    f"'{name}' is another model's weights and cannot take part in moves"
                )
        if move.what in ("initial", "critic_initial"):
            raise ValueError(f"the weights '{move.what}' are never moved")

    @torch.no_grad()
    def _copy_buffers(self, move: Move) -> None:
        here, there = self.buffers.get(move.what, {}), self.buffers.get(move.toward, {})
        for n, b in here.items():
            if n in there and (move.where is None or move.where(n)):
                b.copy_(there[n])
        if move.what in self.residents:
            for n, b in self.residents[move.what].module.named_buffers():
                if n in here:
                    b.copy_(here[n])

    def verify(self) -> None:
        """Raises RuntimeError where a working tensor is not its master, rounded (B23)."""
        for name, tensors in self.working.items():
            for n, t in tensors.items():
                master = self.sets[name][n]
                if t is not master and not torch.equal(
                    w.local(t), w.local(master).to(device=t.device, dtype=t.dtype)
                ):
                    raise RuntimeError(f"working weights '{name}/{n}' are not the masters' rounded")

    # ---- running

    @contextmanager
    def swapped_in(self, name: str) -> Iterator[LanguageModel]:
        """Run any set without a second module, for no-grad passes only. Contents come back bit
        for bit, exceptions included."""
        if name == "policy" or name in self.residents:
            yield self.residents.get(name, self.lm)
            return
        if name not in self.sets or name.startswith("critic"):
            raise ValueError(f"no set of weights '{name}' to run; there are {sorted(self.sets)}")
        if self.live != "policy":
            raise RuntimeError(f"'{self.live}' is already swapped in")
        self._exchange(name)
        self.live = name
        try:
            yield self.lm
        finally:
            self._exchange(name, back=True)
            self.live = "policy"

    @torch.no_grad()
    def _exchange(self, name: str, back: bool = False) -> None:
        masters, working = self.sets["policy"], self.working["policy"]
        own = {n: t for n, t in working.items() if t is masters[n]}
        w.exchange_(own, {n: self.sets[name][n] for n in own})
        rounded = {n: t for n, t in working.items() if n not in own}
        w.round_(rounded, masters if back else self.sets[name])
        w.exchange_(self.buffers["policy"], self.buffers[name])
        reshard(self.lm.module)

    @contextmanager
    def beside(self, name: str) -> Iterator[LanguageModel]:
        """A module with this set's weights next to the policy's, for exact KL: the resident one,
        or one made for the time of the block.

        It shares frozen tensors and, in fp32 on one device, the set's own tensors, so it costs
        nothing there; with a bf16 policy it costs one bf16 copy until the block ends.
        """
        if name == "policy" or name in self.residents:
            yield self.residents.get(name, self.lm)
        elif name not in self.sets:
            raise ValueError(f"no set of weights '{name}' to run; there are {sorted(self.sets)}")
        else:
            yield self._module_for(name)[0].short_lived(self.lm)

    # ---- checkpoint

    def base_fingerprint(self) -> str:
        """Hash of the frozen parameters (a LoRA base); empty text where nothing is frozen."""
        frozen = {n: p for n, p in self.lm.module.named_parameters() if not p.requires_grad}
        return w.fingerprint(frozen) if frozen else ""

    def _critic_base(self) -> str:
        """Hash of the frozen tensors that are the critic's alone: a reward model under an adapter.
        Empty text where there are none."""
        if self.critic is None or self.critic.kind != "separate":
            return ""
        shared = {id(p) for p in self.lm.module.parameters()}
        frozen = {
            n: p
            for n, p in self.critic.named_parameters()
            if not p.requires_grad and id(p) not in shared
        }
        return w.fingerprint(frozen) if frozen else ""

    def check_base(self) -> None:
        """Raises RuntimeError when the frozen base is not what it was at the first call (B20)."""
        now = self.base_fingerprint()
        if self._base.setdefault("policy", now) != now:
            raise RuntimeError("the frozen base of the adapter has changed during the run")

    def state_dict(self) -> dict[str, Any]:
        """{"tensors": {"set/parameter": tensor on the CPU}, "counts": {...}, "base": hash}.

        The critic's head is in it as "critic/head.weight" (B13).
        """
        self._base.setdefault("policy", self.base_fingerprint())
        tensors = {k: _host(t) for k, t in self._flat().items()}
        return {
            "tensors": tensors,
            "counts": dict(self.counts),
            "base": self._base["policy"],
            "critic_base": self._critic_base(),
        }

    def _flat(self) -> dict[str, Tensor]:
        out = {f"{k}/{n}": t for k, s in self.sets.items() for n, t in s.items()}
        for k, s in self.buffers.items():
            out |= {f"{k}/{BUFFER}{n}": t for n, t in s.items()}
        return out

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """In place. Raises UserError for a missing or unknown tensor, another shape or base."""
        mine, theirs = self._flat(), state["tensors"]
        for what, names in (
            ("lacks", mine.keys() - theirs.keys()),
            ("has the unknown", theirs.keys() - mine.keys()),
        ):
            if names:
                raise UserError(
                    f"checkpoint {what} weights {sorted(names)[0]!r} ({len(names)} in all): "
                    "it is of another model, critic or set of tethers"
                )
        for k, t in mine.items():
            if w.local(t).shape != theirs[k].shape:
                raise UserError(
                    f"checkpoint weights {k!r} have shape {tuple(theirs[k].shape)}, "
                    f"this run needs {tuple(w.local(t).shape)}"
                )
        self._base.setdefault("policy", self.base_fingerprint())
        if state["base"] != self._base["policy"]:
            raise UserError("checkpoint is of an adapter on another base model (its hash differs)")
        if state.get("critic_base", "") != self._critic_base():
            raise UserError(
                "critic.start: the checkpoint's critic is an adapter on another reward model (its "
                "hash differs)"
            )
        for k, t in mine.items():
            w.local(t).copy_(theirs[k])
        for name in self.working:
            self.publish(name)
        for name in self.residents.keys() - self.foreign:
            for n, b in self.residents[name].module.named_buffers():
                if n in self.buffers[name]:
                    b.copy_(self.buffers[name][n])
        self.counts = Counter(state["counts"])


def _pin(device: str) -> bool:
    return device == "cpu" and torch.cuda.is_available()


def _host(t: Tensor) -> Tensor:
    return w.local(t).to("cpu", copy=True)


def _persistent_buffers(module: nn.Module) -> dict[str, Tensor]:
    kept = module.state_dict().keys()
    return {n: b for n, b in module.named_buffers() if n in kept}
