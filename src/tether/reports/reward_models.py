"""A reward model's report as lines of text: what `results.json` holds, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SETS = ("validation", "test")
_BIAS = {
    "winner_longer": "the winner is longer",
    "accuracy_longer_won": "accuracy where the longer one won",
    "accuracy_shorter_won": "accuracy where the shorter one won",
    "accuracy_of_length": 'accuracy of "the longer one wins"',
    "model_prefers_longer": "the model prefers the longer one",
    "accuracy_longer_half": "accuracy on the longer half",
    "accuracy_shorter_half": "accuracy on the shorter half",
    "pearson": "correlation of score and length",
    "label_pearson": "correlation of label and length",
}


def told(results: Mapping[str, Any]) -> list[str]:
    """Lines for each set of a results.json."""
    out: list[str] = []
    for name in _SETS:
        if name in results:
            out += _set(name, results[name])
    return out


def _set(name: str, found: Mapping[str, Any]) -> list[str]:
    head = [f"accuracy {_number(found['accuracy'])}"]
    if "auc" in found:
        head.append(f"AUC {_number(found['auc'])}")
    if "calibration" not in found:
        return [f"{name}, {found['rows']} rows: {', '.join(head)}"]
    calibration, bias = found["calibration"], found["length_bias"]
    head.append(f"calibration error {_number(calibration['ece'])}")
    out = [f"{name}, {found['rows']} rows: {', '.join(head)}"]
    out.append("  confidence   rows   said   right")
    for b in calibration["bins"]:
        if b["rows"]:
            span = f"{b['low']:.2f}-{b['high']:.2f}"
            said, right = _number(b["confidence"]), _number(b["accuracy"])
            out.append(f"  {span}  {b['rows']:7d}   {said}   {right}")
    out += [f"  {words}: {_number(bias[k])}" for k, words in _BIAS.items() if k in bias]
    return out


def _number(value: float | None) -> str:
    return "absent" if value is None else f"{value:.3f}"
