"""Arithmetic on named sets of weights: elementwise, in place, fp32, on local shards (B22 to B24).

Every function writes into the tensors it is given and never replaces one: captured graphs,
optimizers and engines keep their addresses. A tensor under two names is touched once. Floating
tensors are averaged, anything else (integer buffers) is copied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tether.core.masking import local as local_total
from tether.types import Total

WeightSet = dict[str, Tensor]
"""name -> tensor of everything a run can move in one model."""
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def local(t: Tensor) -> Tensor:
    """The part of t that this process holds, without its graph (a shard under FSDP2)."""
    if isinstance(t, DTensor):
        return t.to_local().detach()
    return t.detach()


def clean(name: str) -> str:
    """The parameter's own name, without what torch.compile, DDP and FSDP put around it."""
    parts = [p for p in name.split(".") if p not in _WRAPPERS]
    while len(parts) > 1 and parts[0] == "module":
        parts = parts[1:]
    return ".".join(parts)


def trainable(module: nn.Module, buffers: bool = False) -> WeightSet:
    """The weights that a run can move, shared tensors once (the live tensors, not copies).

    Take it before the first forward: FSDP2 swaps parameters in during one.
    Args:
        module: with LoRA only the adapter is trainable, hence only the adapter is in the set.
        buffers: also the persistent buffers (running statistics, counters).
    """
    found: WeightSet = {clean(n): p for n, p in module.named_parameters() if p.requires_grad}
    if buffers:
        kept = set(module.state_dict(keep_vars=True))
        found |= {clean(n): b for n, b in module.named_buffers() if n in kept}
    return found


@torch.no_grad()
def snapshot(
    source: Mapping[str, Tensor], device: torch.device | str | None = None, pin: bool = False
) -> WeightSet:
    """A copy in fp32 (integer tensors keep their type); tensors that were one stay one.

    Args:
        source: any weight set.
        device: default: where each tensor is.
        pin: page-locked CPU memory, so that averages overlap with the device's work. Without an
            accelerator there is nothing to overlap with, and the copy is plain.
    """
    pin = pin and torch.accelerator.is_available()
    copies: dict[tuple[object, ...], Tensor] = {}
    out: WeightSet = {}
    for name, t in source.items():
        here = local(t)
        key = _identity(here)
        if key not in copies:
            dtype = torch.float32 if here.is_floating_point() else here.dtype
            where = torch.device("cpu") if pin else torch.device(device or here.device)
            copy = torch.empty(here.shape, dtype=dtype, device=where, pin_memory=pin)
            copies[key] = copy.copy_(here)
        out[name] = copies[key]
    return out


@torch.no_grad()
def lerp_(
    target: Mapping[str, Tensor],
    source: Mapping[str, Tensor],
    by: float = 1.0,
    where: Callable[[str], bool] | None = None,
) -> None:
    """target <- target + by * (source - target), computed in fp32.

    by = 1 copies bit for bit. A target below fp32 is written from the fp32 result, but averages
    belong in fp32 sets: at decay .995 a bf16 average never moves (B23).
    Args:
        target, source: sets; source may hold more names than target.
        by: share of the way; an average with decay d moves by 1 - d.
        where: name -> touched or not; None = all.
    Raises:
        ValueError: a name or shape that source lacks.
    """
    fast: tuple[list[Tensor], list[Tensor]] = ([], [])
    for name, a in _once(target, where):
        b = _partner(name, a, source)
        if not a.is_floating_point() or by == 1.0:
            a.copy_(b)
        elif a.dtype == b.dtype == torch.float32 and a.device == b.device:
            fast[0].append(a)
            fast[1].append(b)
        else:
            moved = b.to(device=a.device, dtype=torch.float32)
            a.copy_(a.float().lerp_(moved, by))
    if fast[0]:
        torch._foreach_lerp_(fast[0], fast[1], by)


@torch.no_grad()
def round_(working: Mapping[str, Tensor], masters: Mapping[str, Tensor]) -> None:
    """working <- masters, rounded to each tensor's type."""
    copy_(*pairs(working, masters))


def pairs(
    working: Mapping[str, Tensor], masters: Mapping[str, Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Local tensors of `working` beside those of `masters`, without what is one piece of memory."""
    to, of = [], []
    for name, t in working.items():
        here, master = local(t), local(masters[name])
        if here.data_ptr() != master.data_ptr():
            to.append(here)
            of.append(master)
    return to, of


@torch.no_grad()
def copy_(to: list[Tensor], of: list[Tensor]) -> None:
    """to <- of, rounded to each tensor's type. All at once: a model has hundreds of tensors, and
    one by one each costs a launch."""
    if to:
        torch._foreach_copy_(to, of)


def alike(
    target: Mapping[str, Tensor], source: Mapping[str, Tensor]
) -> tuple[list[Tensor], list[Tensor]] | None:
    """Local tensors of both sets, each piece of memory once; None unless all are fp32 and of one
    device, as `lerp_` needs them to average all at once."""
    mine, theirs = [], []
    for name, a in _once(target, None):
        b = _partner(name, a, source)
        if not (a.dtype == b.dtype == torch.float32 and a.device == b.device):
            return None
        mine.append(a)
        theirs.append(b)
    return mine, theirs


@torch.no_grad()
def exchange_(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> None:
    """Swap the contents of two sets, not their storage; b may be in CPU memory.

    Raises:
        ValueError: different types, since a swap through bf16 would lose the fp32 set.
    """
    pairs = [(name, x, _partner(name, x, b)) for name, x in _once(a, None)]
    for name, x, y in pairs:
        if x.dtype != y.dtype:
            raise ValueError(
                f"weights '{name}' are {x.dtype} and {y.dtype}: they cannot be exchanged"
            )
    for _, x, y in pairs:
        kept = x.clone()
        x.copy_(y)
        y.copy_(kept)


@torch.no_grad()
def distance(a: Mapping[str, Tensor], b: Mapping[str, Tensor], total: Total = local_total) -> float:
    """Euclidean distance of two sets over their floating tensors, shared ones once.

    Args:
        a, b: sets with the same names.
        total: sum over the ranks that hold different shards; identity where weights are replicated.
    """
    squares: Tensor | None = None
    for name, x in _once(a, None):
        if not x.is_floating_point():
            continue
        y = _partner(name, x, b).to(device=x.device, dtype=torch.float32)
        piece = (x.float() - y).square().sum()
        squares = piece if squares is None else squares + piece.to(squares.device)
    return 0.0 if squares is None else float(total(squares).sqrt())


def fingerprint(
    source: nn.Module | Mapping[str, Tensor], rounded: torch.dtype | None = None
) -> str:
    """Hash of names, types, shapes and bits: equal only for equal weights.

    Args:
        source: a module (all parameters and persistent buffers, frozen ones too) or a set.
        rounded: type to which floating tensors are rounded before they are hashed: weights that
            were loaded in that type, or in one that holds its numbers and more, then have one hash.
    Returns:
        64 hexadecimal digits (SHA-256); the device does not matter, nor the order of names.
    """
    found = source.state_dict() if isinstance(source, nn.Module) else source
    digest = hashlib.sha256()
    for name, whole in sorted((clean(n), local(t)) for n, t in found.items()):
        t = whole.to(rounded) if rounded is not None and whole.is_floating_point() else whole
        digest.update(f"{name} {t.dtype} {tuple(t.shape)}\n".encode())
        digest.update(t.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _identity(t: Tensor) -> tuple[object, ...]:
    """Equal for two tensors that are one piece of memory, seen alike."""
    if t.numel() == 0:
        return (id(t),)
    return (t.device, t.data_ptr(), t.dtype, t.shape, t.stride())


def _once(
    target: Mapping[str, Tensor], where: Callable[[str], bool] | None
) -> Iterator[tuple[str, Tensor]]:
    """Names and local tensors to write, each piece of memory once: averaging twice is wrong."""
    seen: set[tuple[object, ...]] = set()
    for name, t in target.items():
        if where is not None and not where(name):
            continue
        here = local(t)
        key = _identity(here)
        if key not in seen:
            seen.add(key)
            yield name, here


def _partner(name: str, a: Tensor, source: Mapping[str, Tensor]) -> Tensor:
    if name not in source:
        raise ValueError(f"the other set of weights has no '{name}'")
    b = local(source[name])
    if a.shape != b.shape:
        raise ValueError(
            f"weights '{name}' have shape {tuple(a.shape)} here, {tuple(b.shape)} in the other set"
        )
    return b
