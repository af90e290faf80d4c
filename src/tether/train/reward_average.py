"""`tether reward-model average`: the weights of several reward models as one (WARM).

    w = sum_m a_m w_m,  sum_m a_m = 1

One model, one forward pass, instead of an ensemble; it keeps what the runs have in common. This
works for runs that began with the same weights, the new head included (`start_seed`), and differ in
the order of the rows or in settings.

Source: Rame et al. 2024 (WARM), arXiv 2401.12187, section 3. Of adapters the whole weights are
averaged (base + scaled BA), since the average of A and B apart is another function.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from tether.config.errors import UserError
from tether.config.run import ClassifierSettings
from tether.config.settings import dump, fingerprint, read
from tether.config.text_values import write_yaml
from tether.core import weights as w
from tether.models import lora
from tether.models.classifier import TextClassifier
from tether.models.classifier_loading import load_classifier, save_classifier
from tether.models.dropout import FACT
from tether.models.interpolation import between
from tether.models.language_model import core_of
from tether.reports.reward_models import told
from tether.rewards.class_names import shown
from tether.tasks.preferences import load_pairs
from tether.train.classifier import MODEL, RESULTS, evaluate_classes, write_results
from tether.train.labelled import held_out
from tether.train.pairwise import evaluate_pairs, fitted

Say = Callable[[str], None]
PROVENANCE = "average.json"


def average(
    folders: Sequence[str | Path],
    out: str | Path,
    *,
    weights: Sequence[float] | None = None,
    say: Say = print,
) -> Path:
    """Writes `out`: `classifier/`, results.json on the runs' held-out rows, average.json.

    Args:
        folders: complete runs of `tether reward-model train` from one start, on the same data.
        weights: one a run, above 0, of any sum; default: equal.
    Raises:
        UserError: `out` is taken, a run is unfinished, or the runs do not belong together.
    """
    paths, target = [Path(f) for f in folders], Path(out)
    shares = _shares(paths, weights)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} exists and is not empty; choose another folder: --out FOLDER")
    settings = [_settings(p) for p in paths]
    _alike(paths, settings)
    whole, so_far, model = None, 0.0, None
    initial = ""
    for path, share in zip(paths, shares, strict=True):
        member = load_classifier(str(path), device="cpu", dtype="float32")
        start = member.notes.get("initial")
        if whole is not None and start != initial:
            raise UserError(
                f"{paths[0]} and {path} began with different weights; average runs with one "
                "--start_seed (the new head, and a new adapter, are drawn from it)"
            )
        if model is not None and member.labels != model.labels:
            raise UserError(
                f"{paths[0]} and {path} have their classes in different orders, "
                f"{shown(model.labels)} and {shown(member.labels)}: train one of them again"
            )
        tensors = _whole(member)
        so_far += share
        initial = str(start)
        if whole is None or model is None:
            model, whole = member, tensors
        else:
            whole = between("linear", whole, tensors, share / so_far)
    assert model is not None and whole is not None
    result = _plain(model, whole)
    facts = _facts(paths, settings, shares, initial, whole)
    part = target.with_name(f".{target.name}.partial")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        results = _measured(result, settings[0])
        save_classifier(result, part / MODEL)
        write_yaml(part / "config.yaml", dump(settings[0]))
        text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
        (part / PROVENANCE).write_text(text, encoding="utf-8")
        write_results(part, results)
        if target.exists():
            target.rmdir()
        os.replace(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    for line in told(results):
        say(line)
    return target


def _shares(paths: Sequence[Path], weights: Sequence[float] | None) -> list[float]:
    if len(paths) < 2:
        raise UserError("an average needs two or more runs of `tether reward-model train`")
    if len({p.resolve() for p in paths}) < len(paths):
        raise UserError("a run is named twice; give it more weight instead: --weights 2,1")
    given = [1.0] * len(paths) if weights is None else list(weights)
    if len(given) != len(paths):
        raise UserError(f"{len(given)} weights for {len(paths)} runs; give one a run")
    if not all(0 < x < math.inf for x in given):
        raise UserError("weights must be above 0; leave a run out instead")
    if not math.isfinite(sum(given)):
        raise UserError(f"weights add up to {sum(given)}: give smaller ones, e.g. --weights 2,1")
    return given


def _settings(folder: Path) -> ClassifierSettings:
    if not (folder / RESULTS).is_file() or not (folder / MODEL).is_dir():
        raise UserError(
            f"{folder} is no complete run of `tether reward-model train`: it has no {MODEL}/ and "
            f"{RESULTS}"
        )
    found = read(folder)
    if not isinstance(found, ClassifierSettings):
        raise UserError(f"{folder} is a policy run, not a reward model; see `tether merge`")
    return found


def _alike(paths: Sequence[Path], settings: Sequence[ClassifierSettings]) -> None:
    """The same task and held-out rows: else a member was trained on what the average is tested
    on."""
    for path, s in zip(paths[1:], settings[1:], strict=True):
        for key in ("kind", "data", "pairs"):
            if getattr(s, key) != getattr(settings[0], key):
                raise UserError(
                    f"{paths[0]} and {path} differ in {key}: average runs of one task on one set "
                    "of data"
                )


def _whole(member: TextClassifier) -> w.WeightSet:
    """All weights in fp32, an adapter merged into its base."""
    if lora.is_adapted(member.module):
        member.module = lora.plain(member.module)
    return {n: p.detach().float().clone() for n, p in core_of(member.module).named_parameters()}


def _plain(model: TextClassifier, whole: w.WeightSet) -> TextClassifier:
    live = dict(core_of(model.module).named_parameters())
    if live.keys() != whole.keys():
        raise UserError("the reward models have different architectures; average runs of one")
    with torch.no_grad():
        for n, p in live.items():
            p.copy_(whole[n])
    return TextClassifier(
        model.module,
        model.tokenizer,
        max_tokens=model.max_tokens,
        labels=model.labels,
        facts={k: v for k, v in model.facts.items() if k == FACT},
        notes={k: v for k, v in model.notes.items() if k in ("kind", "initial")},
    )


def _measured(model: TextClassifier, settings: ClassifierSettings) -> dict[str, Any]:
    results: dict[str, Any] = {}
    if settings.kind == "pairs":
        scores: dict[str, dict[str, float]] = {}
        for name, pairs in load_pairs(settings.data, settings.pairs).items():
            if name != "train":
                kept = fitted(model, pairs, settings).pairs
                results[name], scores[name] = evaluate_pairs(model, kept, settings)
        results["scores"] = model.notes["scores"] = scores
        return results
    for name, (texts, classes) in held_out(settings).items():
        odd = next((c for c in classes if c not in model.labels), None)
        if odd is not None:
            raise UserError(
                f"data.label: the class {odd!r} of {name} is none of the runs', which have "
                f"{shown(model.labels)}: train them again on these data"
            )
        results[name] = evaluate_classes(model, texts, classes, settings)
    return results


def _facts(
    paths: Sequence[Path],
    settings: Sequence[ClassifierSettings],
    shares: Sequence[float],
    initial: str,
    whole: w.WeightSet,
) -> dict[str, Any]:
    """Where the weights come from, by name and hash; no path."""
    return {
        "runs": [
            {
                "name": p.resolve().name,
                "seed": s.seed,
                "config": fingerprint(s),
                "weight": x / sum(shares),
            }
            for p, s, x in zip(paths, settings, shares, strict=True)
        ],
        "initial": initial,
        "result": w.fingerprint(whole),
    }
