"""`tether merge`: several runs from one initial model become one model (WARP's last two stages).

    d_m = w_m - initial          d = slerp of the d_m          w = initial + share * d

Source: Rame et al. 2024 (WARP, arXiv 2406.16768, section 3): stage 1, the average as anchor, is a
tether (`ema_anchor`) of the runs that are merged; stages 2 and 3 are here. The result is a plain
model folder, so it can be the `--model` of the next iteration.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from tether.config.errors import UserError
from tether.config.run import RunSettings
from tether.config.settings import fingerprint as settings_hash
from tether.config.settings import method_of
from tether.core.weights import WeightSet, fingerprint, lerp_, snapshot, trainable
from tether.models import lora
from tether.models.export import export
from tether.models.interpolation import Merge, angle, merged
from tether.models.language_model import LanguageModel
from tether.models.loading import load_beside, load_language_model
from tether.models.weight_sets import WeightSets
from tether.train.after_weights import (
    environment,
    finished,
    has_weights,
    last_checkpoint,
    load_final,
)

PROVENANCE = "merge.json"


@dataclass(frozen=True)
class _Source:
    """One run: its settings, where it began and where it ended, as whole weights in fp32."""

    folder: Path
    settings: RunSettings
    initial: WeightSet
    final: WeightSet


def merge(
    folders: Sequence[str | Path],
    out: str | Path,
    *,
    how: Merge = "slerp",
    weights: Sequence[float] | None = None,
    share: float = 1.0,
) -> dict[str, Any]:
    """Writes `out`, a `save_pretrained` folder with `merge.json`, and returns what that says.

    Adapters are merged into their base first, so runs with and without LoRA can be mixed.
    Args:
        folders: finished runs from one initial model.
        how: slerp (an angle for each tensor), slerp_global (one for all) or linear.
        weights: one a run, above 0; default: equal.
        share: LITI: 1 = the merged weights, 0 = the initial ones.
    Raises:
        UserError: `out` exists, a run has no weights, or the runs are not of one initial model.
    """
    paths, target = [Path(f) for f in folders], Path(out)
    _check(paths, target, weights, share)
    settings = [finished(p) for p in paths]
    for path, s in zip(paths, settings, strict=True):
        has_weights(path, s)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    lm = _initial(paths[0], settings[0])
    first = snapshot(trainable(lm.module))
    sources = [
        _source(p, s, first if i == 0 else None, lm)
        for i, (p, s) in enumerate(zip(paths, settings, strict=True))
    ]
    for other in sources[1:]:
        _alike(sources[0], other)
    result = merged(how, first, [s.final for s in sources], weights, share)
    lerp_(trainable(lm.module), result)
    stored = snapshot(trainable(lm.module))  # as the dtype rounds it
    facts = _facts(sources, stored, how, weights, share)
    export(lm, None, target)
    text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    (target / PROVENANCE).write_text(text, encoding="utf-8")
    return facts


def _check(paths: Sequence[Path], out: Path, weights: Sequence[float] | None, share: float) -> None:
    if not paths:
        raise UserError("merge needs at least one run")
    if len({p.resolve() for p in paths}) < len(paths):
        raise UserError("merge: a run is named twice; give it more weight instead")
    if weights is not None and len(weights) != len(paths):
        raise UserError(f"merge: {len(weights)} weights for {len(paths)} runs; give one a run")
    if weights is not None and not all(0 < w < math.inf for w in weights):
        raise UserError("merge: weights must be above 0; leave a run out instead")
    if weights is not None and not math.isfinite(sum(weights)):
        raise UserError("merge: the weights have no finite sum; give smaller ones")
    if not 0 <= share <= 1:
        raise UserError(f"merge: the share is {share:g}, must be from 0 to 1")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is not empty; choose another folder")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UserError(f"cannot write {out}: {e.strerror}; choose another folder") from e
    if not os.access(out.parent, os.W_OK):
        raise UserError(f"cannot write {out}: no permission in {out.parent}; choose another folder")


def _initial(folder: Path, s: RunSettings) -> LanguageModel:
    """The model a run began with, without its adapter, on the CPU in the dtype of the run."""
    dtype = environment(folder).get("model", {}).get("dtype", s.model.dtype)
    model = replace(s.model, lora=None, device="cpu", dtype=dtype)
    return load_language_model(model, seed=s.seed, stop=s.sampling.stop)


def _source(
    folder: Path, s: RunSettings, initial: WeightSet | None, beside: LanguageModel
) -> _Source:
    start = initial if initial is not None else snapshot(trainable(_initial(folder, s).module))
    if last_checkpoint(folder, s) is None:
        return _Source(folder, s, start, _exported(folder / "policy", beside))
    dtype = environment(folder).get("model", {}).get("dtype", s.model.dtype)
    model = replace(s.model, device="cpu", dtype=dtype)
    lm = load_language_model(model, seed=s.seed, stop=s.sampling.stop)
    sets = WeightSets(lm)
    load_final(folder, s, lm, sets)
    if not lora.is_adapted(lm.module):
        return _Source(folder, s, start, snapshot(sets.sets["policy"]))
    whole = trainable(lora.merged_copy(lm.module))
    return _Source(folder, s, start, snapshot({n: t for n, t in whole.items() if n in start}))


def _exported(folder: Path, beside: LanguageModel) -> WeightSet:
    try:
        return snapshot(trainable(load_beside(str(folder), beside).module))
    except UserError as e:
        raise UserError(str(e).removeprefix("model.path: ")) from e


def _alike(a: _Source, b: _Source) -> None:
    """Raises UserError unless both runs have one architecture and began with one model."""
    shapes = [{n: tuple(t.shape) for n, t in s.initial.items()} for s in (a, b)]
    if shapes[0] != shapes[1]:
        raise UserError(f"{a.folder} and {b.folder} are runs of unlike models; merge runs of one")
    for s in (a, b):
        if {n: tuple(t.shape) for n, t in s.final.items()} != shapes[0]:
            raise UserError(f"{s.folder}: its weights are not of the model in its config.yaml")
    odd = next((n for n, t in a.initial.items() if not torch.equal(t, b.initial[n])), None)
    if odd is not None:
        raise UserError(
            f"{a.folder} and {b.folder} began with different weights ({odd!r} differs): a merge "
            "averages what each run added to one initial model"
        )


def _facts(
    sources: Sequence[_Source],
    result: WeightSet,
    how: Merge,
    weights: Sequence[float] | None,
    share: float,
) -> dict[str, Any]:
    """Where the merged weights come from, by name and hash; no path."""
    given = [1.0] * len(sources) if weights is None else list(weights)
    initial = sources[0].initial
    tasks = [{n: t - initial[n] for n, t in s.final.items()} for s in sources]
    return {
        "how": how,
        "share": share,
        "runs": [
            {
                "name": s.folder.resolve().name,
                "method": method_of(s.settings),
                "seed": s.settings.seed,
                "config": settings_hash(s.settings),
                "weight": w / sum(given),
                "weights": fingerprint(s.final),
            }
            for s, w in zip(sources, given, strict=True)
        ],
        "angles": [[round(angle(a, b), 6) if a is not b else 0.0 for b in tasks] for a in tasks],
        "initial": fingerprint(initial),
        "result": fingerprint(result),
    }
