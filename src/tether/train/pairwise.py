"""A reward model from pairs: one score a text, fitted so that the chosen one scores higher.

    minimise  mean over pairs of  -log sigmoid(s(chosen) - s(rejected) - margin)

Both texts of a pair are in one forward pass. A prompt that is too long loses its beginning; a
completion never does without being counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tether.analysis.reward_models import pair_report
from tether.config.errors import UserError
from tether.config.run import ClassifierSettings
from tether.core.preferences import bradley_terry_loss
from tether.models.classifier import TextClassifier
from tether.models.classifier_loading import save_classifier
from tether.tasks.preferences import Pair, Pairs
from tether.train.head_fit import fit, part_of, start_classifier

Say = Callable[[str], None]


def train_pairs(
    settings: ClassifierSettings, found: dict[str, Pairs], target: Path, say: Say
) -> dict[str, Any]:
    """Fits, measures and writes the folder `target`; returns the results."""
    found = {**found, "train": _share(found["train"], settings)}
    classifier = start_classifier(settings, ["score"])
    found = {k: fitted(classifier, p, settings) for k, p in found.items()}
    empty = next((k for k, p in found.items() if not len(p)), None)
    if empty is not None:
        raise UserError(
            f"data: every pair of {empty} has a completion of more than {classifier.room} tokens; "
            "raise max_tokens, or set pairs.too_long to cut"
        )
    train = found["train"]
    say(f"{len(train)} training pairs")
    _fit(classifier, train.pairs, settings, say)
    held = {k: p for k, p in found.items() if k != "train"}
    results: dict[str, Any] = {}
    scores: dict[str, dict[str, float]] = {}
    for name, pairs in held.items():
        results[name], scores[name] = evaluate_pairs(classifier, pairs.pairs, settings)
    classifier.notes |= {"kind": "pairs", "scores": scores}
    save_classifier(classifier, target)
    results["scores"] = scores
    results["notes"] = {k: p.notes for k, p in found.items()}
    results["train_rows"] = len(train)
    return results


def _share(found: Pairs, settings: ClassifierSettings) -> Pairs:
    """The training pairs that are used; the others are noted."""
    used = found.pairs[part_of(len(found), settings.half, settings.share)]
    left = len(found) - len(used)
    return Pairs(used, found.notes | ({"not_in_half_or_share": left} if left else {}))


def fitted(classifier: TextClassifier, pairs: Pairs, settings: ClassifierSettings) -> Pairs:
    """What fits into `max_tokens`: pairs with a longer completion are refused, dropped or kept, as
    the settings say; cut prompts are counted."""
    long = set(classifier.beyond([p.chosen for p in pairs.pairs]))
    long |= set(classifier.beyond([p.rejected for p in pairs.pairs]))
    how, notes = settings.pairs.too_long, dict(pairs.notes)
    if long and how == "error":
        p = pairs.pairs[min(long)]
        n = max(classifier.lengths([p.chosen, p.rejected]))
        raise UserError(
            f"data: a completion of row {p.row} has {n} tokens, the reward model reads "
            f"{classifier.room}: raise max_tokens (the backbone has {classifier.max_tokens} in "
            "use), or set pairs.too_long to drop or cut"
        )
    kept = [p for i, p in enumerate(pairs.pairs) if i not in long or how == "cut"]
    if long:
        notes["dropped_too_long" if how == "drop" else "completions_cut"] = len(long)
    cut = len(classifier.beyond([t for p in kept for t in p.texts if p.prompt]))
    if cut:
        notes["texts_cut"] = cut
    return Pairs(kept, notes)


def evaluate_pairs(
    classifier: TextClassifier, pairs: Sequence[Pair], settings: ClassifierSettings
) -> tuple[dict[str, Any], dict[str, float]]:
    """The report on one set of pairs, and mean and standard deviation of all its scores."""
    texts = [p.texts for p in pairs]
    chosen, rejected = (
        classifier.logits([t[k] for t in texts], batch_size=64)[:, 0].double() for k in (0, 1)
    )
    report = pair_report(
        chosen.numpy(),
        rejected.numpy(),
        classifier.lengths([p.chosen for p in pairs]),
        classifier.lengths([p.rejected for p in pairs]),
        bins=settings.bins,
    )
    both = torch.cat([chosen, rejected])
    moments = {"mean": float(both.mean()), "std": float(both.std(correction=0))}
    return report, {**moments, "completions": len(both)}


def _fit(
    classifier: TextClassifier, pairs: Sequence[Pair], settings: ClassifierSettings, say: Say
) -> None:
    rows = [
        classifier.encode([p.texts[k] for p in pairs], max_tokens=classifier.max_tokens)
        for k in (0, 1)
    ]
    margins = [p.margin for p in pairs]

    def draw(index: list[int], _: torch.Generator) -> list[int]:
        return index

    def losses(index: Sequence[int]) -> Tensor:
        ids, mask = classifier.batch([side[i] for side in rows for i in index])
        chosen, rejected = classifier.forward(ids, mask)[:, 0].chunk(2)
        margin = torch.tensor([margins[i] for i in index], device=chosen.device)
        return bradley_terry_loss(chosen, rejected, margin)

    fit(classifier.module, len(pairs), settings, draw, losses, say)
