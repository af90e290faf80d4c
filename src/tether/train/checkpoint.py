"""Checkpoints: atomic, without pickle, found newest complete first, pruned afterwards (B25, B26).

A checkpoint is a folder `update_000040` with `tensors.safetensors`, `state.json` and, written last,
a `COMPLETE` marker that holds the size and SHA-256 of both. It is written under another name in
the same folder and renamed, so a kill or a full disk never damages the one before.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tether.config.errors import UserError
from tether.train.disk import guarded

FORMAT = 1
_TENSOR, _TUPLE, _INTKEYS = "__tensor__", "__tuple__", "__intkeys__"


def _pack(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Nested state -> JSON; tensors go to `tensors` under their path."""
    if isinstance(value, Tensor):
        tensors[path] = value.detach().cpu().contiguous()
        return {_TENSOR: path}
    if isinstance(value, dict):
        packed = {str(k): _pack(v, f"{path}/{k}", tensors) for k, v in value.items()}
        if value and all(isinstance(k, int) for k in value):
            return {_INTKEYS: packed}
        return packed
    if isinstance(value, list | tuple):
        packed_list = [_pack(v, f"{path}/{i}", tensors) for i, v in enumerate(value)]
        return {_TUPLE: packed_list} if isinstance(value, tuple) else packed_list
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"{path}: a {type(value).__name__} cannot be in a checkpoint; keep numbers, text, lists,"
        " mappings or tensors as memory"
    )


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        if _TUPLE in value:
            return tuple(_unpack(v, tensors) for v in value[_TUPLE])
        if _INTKEYS in value:
            return {int(k): _unpack(v, tensors) for k, v in value[_INTKEYS].items()}
        return {k: _unpack(v, tensors) for k, v in value.items()}
    if isinstance(value, list):
        return [_unpack(v, tensors) for v in value]
    return value


def _digest(path: Path) -> str:
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 22):
            h.update(block)
    return h.hexdigest()


def _flush(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """safetensors refuses tensors that share memory; within a state sharing carries nothing."""
    seen: set[int] = set()
    out = {}
    for name, t in tensors.items():
        pointer = t.untyped_storage().data_ptr()
        out[name] = t.clone() if pointer in seen else t
        seen.add(pointer)
    return out


def save_tensors(path: Path, tensors: dict[str, Tensor], run: Path) -> None:
    """One safetensors file, atomically. Raises UserError when the disk is full."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with guarded(path.name, run):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file(_unshared(tensors), part)
            _flush(part)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


def name_of(update: int) -> str:
    return f"update_{update:06d}"


def save(folder: Path, update: int, state: dict[str, Any]) -> Path:
    """Write `folder/update_NNNNNN`; returns its path. An equal one that is complete is kept."""
    final = folder / name_of(update)
    if final.exists() and problem(final) is None:
        return final
    part = folder / f".{final.name}.{os.getpid()}.part"
    with guarded(f"checkpoint {final.name}", folder.parent):
        try:
            _write(part, update, state)
            if final.exists() and problem(final) is not None:
                shutil.rmtree(final, ignore_errors=True)
            try:
                os.rename(part, final)
            except OSError:
                # Another process saved the same update first; two complete ones are equal.
                if problem(final) is not None:
                    raise
            _flush(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return final


def _write(part: Path, update: int, state: dict[str, Any]) -> None:
    """Both files, then the marker; each is on the disk before the next step."""
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    tensors: dict[str, Tensor] = {}
    packed = _pack(state, "", tensors)
    save_file(_unshared(tensors), part / "tensors.safetensors")
    (part / "state.json").write_text(
        json.dumps({"format": FORMAT, "update": update, "state": packed}), encoding="utf-8"
    )
    marker = {}
    for file in ("tensors.safetensors", "state.json"):
        _flush(part / file)
        marker[file] = {"bytes": (part / file).stat().st_size, "sha256": _digest(part / file)}
    (part / "COMPLETE").write_text(json.dumps(marker), encoding="utf-8")
    _flush(part / "COMPLETE")
    _flush(part)


def problem(path: Path) -> str | None:
    """Why a checkpoint cannot be used, or None."""
    marker = path / "COMPLETE"
    if not marker.exists():
        return "it was not completed"
    try:
        files = json.loads(marker.read_text(encoding="utf-8"))
        if set(files) != {"tensors.safetensors", "state.json"}:
            return "its marker is damaged"
        for name, facts in files.items():
            file = path / name
            if not file.exists():
                return f"{name} is missing"
            if file.stat().st_size != facts["bytes"] or _digest(file) != facts["sha256"]:
                return f"{name} is damaged"
    except (ValueError, KeyError, TypeError):
        return "its marker is damaged"
    return None


def found(folder: Path) -> list[Path]:
    """Checkpoint folders, newest first, complete or not."""
    return sorted(folder.glob("update_*"), reverse=True) if folder.exists() else []


def newest(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest usable checkpoint, and a line for each newer one that was skipped."""
    skipped = []
    for path in found(folder):
        if (why := problem(path)) is None:
            return path, skipped
        skipped.append(f"skipped checkpoint {path.name}: {why}")
    return None, skipped


def load(path: Path, device: str | torch.device = "cpu") -> dict[str, Any]:
    """The state as it was saved. Raises UserError for another format."""
    body = json.loads((path / "state.json").read_text(encoding="utf-8"))
    if body.get("format") != FORMAT:
        raise UserError(
            f"{path}: checkpoint format {body.get('format')}, this version reads {FORMAT};"
            " resume with the version that wrote it"
        )
    tensors = load_file(path / "tensors.safetensors", device=str(device))
    state: dict[str, Any] = _unpack(body["state"], tensors)
    return state


def prune(folder: Path, keep: int, update: int) -> Iterator[Path]:
    """Remove all but the newest `keep` complete checkpoints up to `update`, the one just saved,
    what a kill left half-written, and anything newer: resume has skipped it as damaged."""
    name = name_of(update)
    damaged = [p for p in found(folder) if p.name > name or not (p / "COMPLETE").exists()]
    complete = [p for p in found(folder) if p not in damaged]
    for path in (*damaged, *complete[max(keep, 1) :]):
        shutil.rmtree(path, ignore_errors=True)
        yield path
    for part in folder.glob(".*.part"):
        shutil.rmtree(part, ignore_errors=True)
        yield part


def best_updates(folder: Path, agent: str) -> set[int]:
    """Updates whose best copies the checkpoints on disk name (`BestUnderBudget`)."""
    out: set[int] = set()
    for path in found(folder):
        try:
            body = json.loads((path / "state.json").read_text(encoding="utf-8"))
            out |= {int(v[0]) for v in body["state"]["best"][agent].values()}
        except (OSError, ValueError, KeyError, TypeError):
            continue  # damaged: nothing will be resumed from it
    return out
