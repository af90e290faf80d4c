"""Seeds are functions of counters: (run, agent, stream, update, ...). No RNG state is ever saved.

Equal keys give equal streams in every process and after every resume; whoever wants a stream of
its own on each rank (sampling) puts the rank into the key (B28).
"""

from __future__ import annotations

import hashlib

import torch

Key = tuple["int | str | bool | Key", ...]


def _text(part: object) -> str:
    if isinstance(part, bool | int | str):
        return f"{type(part).__name__}:{part}"
    if isinstance(part, tuple | list):
        return "(" + ",".join(_text(x) for x in part) + ")"
    raise TypeError(f"a seed key holds numbers, text and tuples of them, not {part!r}")


def seed_of(*key: object) -> int:
    """A number in [0, 2^63) that depends on every part of the key and on nothing else."""
    digest = hashlib.blake2b(_text(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator(*key: object, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of its own for this key; the global one is not touched."""
    return torch.Generator(device=device).manual_seed(seed_of(*key))
