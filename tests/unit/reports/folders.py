"""Synthetic run folders, written with the product's own record lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import yaml

from tether.records import DRIFT, EvalPoint, line, point_line


def point(update: int, drift: float, reward: float, **other: object) -> EvalPoint:
    base = EvalPoint(
        agent="policy",
        update=update,
        policy_version=update,
        split="validation",
        side="",
        common=True,
        weights="live",
        policy="exported",
        prompts=64,
        reward=reward,
        reward_se=0.01,
        drift={DRIFT: drift},
    )
    return replace(base, **other)  # type: ignore[arg-type]


def write_run(
    folder: Path,
    method: str,
    seed: int,
    points: Sequence[EvalPoint],
    *,
    finished: bool = True,
    samples: Sequence[dict[str, object]] = (),
    events: Sequence[int] = (),
) -> Path:
    folder.mkdir(parents=True)
    lines = [
        line("start", config="c0ffee12", method=method, seed=seed, agents=["policy"], notes=[])
    ]
    last = 0
    for p in points:
        if p.update > last and p.split == "validation":
            lines += [
                line("update", agent="policy", update=u, policy_version=u - 1, metrics={})
                for u in range(last + 1, p.update + 1)
            ]
            last = p.update
        if p.side == "after" and p.update in events:
            lines.append(
                line("event", agent="policy", update=p.update, reason="every 4 updates", moves=[])
            )
        lines.append(point_line(p))
    if finished:
        lines.append(line("end", updates=last, counts={}, notes=[]))
    (folder / "record.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "config.yaml").write_text(
        yaml.safe_dump({"job": "policy", "name": folder.name, "method": method, "seed": seed})
    )
    (folder / "environment.json").write_text(
        json.dumps({"versions": {"torch": "2.13.0"}, "device": "cpu", "command": "tether compare"})
    )
    if samples:
        text = "".join(json.dumps(s, ensure_ascii=False) + "\n" for s in samples)
        (folder / "samples.jsonl").write_text(text, encoding="utf-8")
    return folder


def sample(update: int, row: int, completion: str, **other: object) -> dict[str, object]:
    return {
        "update": update,
        "side": "",
        "split": "validation",
        "agent": "policy",
        "row": row,
        "prompt": f"The film {row}",
        "completion": completion,
        "score": 0.5 + update / 100,
        "scores": {"sentiment": 0.5},
        "judges": {},
        "drift_nats": update / 2,
        **other,
    }


def curve(
    drift: Callable[[int], float], reward: Callable[[int], float], updates: Sequence[int]
) -> list[EvalPoint]:
    return [point(u, drift(u), reward(u)) for u in updates]


def as_dict(p: EvalPoint) -> dict[str, object]:
    return asdict(p)
