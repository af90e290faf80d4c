"""Whole steps of TRL's trainers against ours: one process each on one card, step by step in turn.

    python -m benchmarks.vs_trl --trl-grpo SITE --trl-ppo SITE --tokenizer FOLDER
    python -m benchmarks.render

A SITE is a folder made by `pip install --target SITE trl==VERSION` (1.16 for GRPO, 1.12, the last
one with PPO, for that), put before all others on the path of TRL's processes; without one they use
the installed TRL. Both sides get the same files: SmolLM2-135M's shape with random weights, prompts
of 32 tokens, 64 new tokens, the same reward function. Needs a GPU, or --tiny.

Settings behind the options (`--a.b.c VALUE`) apply to our side of every row.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import ROOT, Results, arguments, command, given, say, spread
from benchmarks.workers import Parent, Worker

ROUNDS = 5
ROWS = ("grpo-hf", "grpo-continuous", "ppo")
WHAT = {
    "grpo-hf": "GRPO, generation with transformers",
    "grpo-continuous": "GRPO, continuous batching of transformers",
    "ppo": "PPO with a critic (trl.experimental.ppo)",
}
TABLES: list[dict[str, Any]] = [
    {
        "title": "Against TRL",
        "rows": ["vs_trl"],
        "columns": {
            "what": "Step",
            "version": "TRL",
            "theirs_s": "TRL, s",
            "theirs_spread_s": "smallest, quartiles, largest",
            "ours_s": "tether, s",
            "ours_spread_s": "smallest, quartiles, largest",
            "ratio": "TRL / tether",
            "ratio_spread": "smallest, quartiles, largest",
            "theirs_gib": "TRL, GiB",
            "ours_gib": "tether, GiB",
            "theirs_tokens": "TRL, tokens a completion",
            "ours_tokens": "tether, tokens a completion",
        },
        "text": "SmolLM2-135M's shape. GRPO: 256 completions of 32 prompts, one optimizer step "
        "from 4 pieces of 64. PPO: 64 completions, 16 optimizer steps (4 epochs of 4 minibatches "
        "of 16). Medians; the ratio is the median over neighbouring steps.",
    },
]
NOTES = (
    "Both sides: bf16 arithmetic (tether: working weights of fp32 masters; TRL's GRPO: autocast "
    "over fp32 weights; TRL's PPO: all weights in bf16), AdamW, no gradient checkpointing (TRL's "
    "default is on), temperature 1, no end of text forced, a reward that takes no time. Warm-up "
    "steps are not counted; a step includes data, log lines and, of tether, the record.",
    "TRL's GRPO here (loss_type grpo, beta 0) has no reference model and, since it generates for "
    "every optimizer step, takes its old log-probs from the forward pass of the update. tether "
    "takes those of its engine and scores one microbatch to check them (batch.old_logprobs: "
    "sampled); drift is measured in evaluations alone, as TRL measures none. Both sides run what "
    "speeds them up: tether compiles layers and records passes (model.compile, model.capture), "
    "which TRL does not offer.",
    "With continuous batching TRL converts the trained weights themselves to bf16, so its masters "
    "are no longer fp32.",
    "TRL's PPO takes old log-probs from generation's logits, scores with reference and value model "
    "and the reward model; that one is replaced by a function of the last token. Policy and critic "
    "train in bf16 weights without fp32 masters: over fp32 weights its generation and scoring "
    "would run in fp32. KL (coefficient 0.05) is in the reward. It is run with one gradient "
    "accumulation step, for with more it takes fewer optimizer steps than minibatches. tether's "
    "values come of one pass of the critic, and it has no KL in the reward.",
)


def prepare(folder: Path, tiny: bool, tokenizer: Path | None) -> None:
    """Model with weights, prompts, and the settings of our side."""
    import torch
    import transformers

    from benchmarks.worlds import World
    from tether.config.settings import dump

    world = World(folder, "tiny" if tiny else "smollm2", tokenizer=tokenizer)
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(world.model)
    auto: Any = transformers.AutoModelForCausalLM
    module = auto.from_config(config, dtype=torch.float32)
    module.save_pretrained(world.model)
    settings = dump(world.settings({"model": {"random_weights": False}}))
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")


def start(side: str, folder: Path, args: argparse.Namespace) -> Worker:
    """side: a row, for TRL's trainer, or ours-ALGORITHM."""
    words = ["-m", "benchmarks.vs_trl", "--worker", side, "--folder", str(folder)]
    words += (["--tiny"] if args.tiny else []) + list(args.settings)
    site = None if side.startswith("ours") else args.trl_ppo if side == "ppo" else args.trl_grpo
    path = [str(site.resolve())] if site else []
    path += [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    quiet = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TQDM_DISABLE": "1"}
    return Worker(side, words, {**quiet, "PYTHONPATH": os.pathsep.join(filter(None, path))})


def in_turn(workers: Sequence[Worker], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Steps of each worker by its name; of those that did not come to an end, none."""
    found: dict[str, list[dict[str, Any]]] = {w.name: [] for w in workers}
    alive = list(workers)
    for _ in range(rounds):
        for w in list(alive):
            message = w.hear() if w.tell("go") else None
            if message is None:
                alive.remove(w)
                found[w.name] = []
                say(f"{w.name}: ended early, exit code {w.end()}")
            else:
                found[w.name].append(message)
    return found


def again(name: str, args: argparse.Namespace) -> str:
    """The command of a row; folders are the reader's own."""
    site = "trl_ppo" if name == "ppo" else "trl_grpo"
    words = [f"--{site.replace('_', '-')}", "SITE"] if getattr(args, site) else []
    words += ["--tokenizer", "FOLDER"] if args.tokenizer else []
    return command("vs_trl", "--only", name, *words, *args.settings)


def row(name: str, version: str, ours: list[Any], theirs: list[Any], again: str) -> dict[str, Any]:
    def of(steps: list[Any], key: str) -> list[float]:
        return [s[key] for s in steps]

    def length(steps: list[Any]) -> float | None:
        known = [x for x in of(steps, "tokens") if x is not None]
        return statistics.mean(known) if known else None

    mine, others = of(ours, "seconds"), of(theirs, "seconds")
    ratios = [b / a for a, b in zip(mine, others, strict=True)]
    return {
        "kind": "vs_trl", "row": name, "what": WHAT[name], "version": version,
        "ours_s": statistics.median(mine), "ours_spread_s": spread(mine),
        "theirs_s": statistics.median(others), "theirs_spread_s": spread(others),
        "ratio": statistics.median(ratios), "ratio_spread": spread(ratios),
        "ours_gib": ours[-1]["peak_gib"], "theirs_gib": theirs[-1]["peak_gib"],
        "ours_tokens": length(ours), "theirs_tokens": length(theirs), "rounds": len(mine),
        "command": again,
    }  # fmt: skip


def compare(algorithm: str, names: list[str], folder: Path, args: argparse.Namespace) -> Any:
    """Rows of one algorithm: our process and one for each of TRL's ways, in turn."""
    workers = [start(side, folder, args) for side in (f"ours-{algorithm}", *names)]
    ready = {w.name: message for w in workers if (message := w.hear())}
    failed = [w.name for w in workers if w.name not in ready]
    say(f"{algorithm}: ready {', '.join(ready) or 'none'}; failed {', '.join(failed) or 'none'}")
    steps = in_turn([w for w in workers if w.name in ready], args.rounds)
    for w in workers:
        w.end()
    ours = steps.get(f"ours-{algorithm}")
    for name in names:
        if ours and (theirs := steps.get(name)):
            yield row(name, ready[name]["version"], ours, theirs, again(name, args))


def parser() -> argparse.ArgumentParser:
    p = arguments("vs_trl", __doc__, ROWS)
    p.add_argument("--trl-grpo", type=Path, metavar="SITE", help="folder with TRL 1.16")
    p.add_argument("--trl-ppo", type=Path, metavar="SITE", help="folder with TRL 1.12")
    p.add_argument("--tokenizer", type=Path, help="folder; default: a word for each id")
    p.add_argument("--rounds", type=int, default=ROUNDS, help="steps of each side")
    p.add_argument("--worker", help=argparse.SUPPRESS)
    p.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return p


def every_row() -> tuple[str, ...]:
    return ROWS


def main(words: Sequence[str] | None = None) -> None:
    args = given(parser(), words)
    if args.worker:
        from benchmarks import sides

        parent = Parent()
        if args.worker.startswith("ours-"):
            algorithm = args.worker.removeprefix("ours-")
            sides.ours(algorithm, args.folder, args.tiny, args.settings, parent)
        sides.theirs(args.worker, args.folder, args.tiny, parent)
    results = Results("vs_trl", args.out, args.commit, TABLES, NOTES, args.keep)
    wanted = [r for r in ROWS if r in (args.only or ROWS)]
    missing = set(wanted)
    with tempfile.TemporaryDirectory() as place:
        prepare(Path(place), args.tiny, args.tokenizer)
        say("model and prompts are written")
        for algorithm in ("grpo", "ppo"):
            if names := [r for r in wanted if r.startswith(algorithm)]:
                for found in compare(algorithm, names, Path(place), args):
                    results.add(found, ROWS)
                    missing.discard(found["row"])
    if missing:
        raise SystemExit(f"failed: {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
