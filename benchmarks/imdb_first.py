"""The first study on IMDB: PPO, PPO + KL and PPO + Elastic Reset, three seeds each, on one node.

    python -m benchmarks.imdb_first --train train.parquet --test test.parquet --root runs \
        --model HuggingFaceTB/SmolLM2-135M-Instruct --out out

Stages, each skipped where its result exists: `base` (review model and classifier as adapters, and
the judge), `pilot` (learning rate, on pilot seed 1000 and validation prompts only), `study`. The
rule of the pilot is written here, before any result: of the learning rates below, the smallest
whose validation reward has risen by at least PILOT_RISE after PILOT_UPDATES updates; if none has,
the largest.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from tether.records import read_points
from tether.studies.compare import Study, run_study

LEARNING_RATES = (1e-5, 2e-5, 4e-5)
PILOT_RISE, PILOT_UPDATES, PILOT_SEED = 0.15, 12, 1000
KL_COEFS = (0.003, 0.01, 0.03, 0.1)
SEEDS = (0, 1, 2)
PACKED = (
    *(f"**/{n}.jsonl" for n in ("record", "timing", "samples")),
    *("**/config.yaml", "**/environment.json", "**/results.json", "pilot.json"),
    *("study/*.json", "methods/*.json", "graph/*.json"),
    *("*/adapter/*.json", "*/classifier/classifier.json"),
)
LORA = ["--model.lora.rank", "8", "--model.lora.alpha", "16"]


def words(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Command-line words for the model and for the data."""
    model = ["--model.path", args.model]
    if args.gguf:
        model += ["--model.gguf_file", args.gguf]
    if args.tokenizer:
        model += ["--model.tokenizer", args.tokenizer]
    data = ["--data.path", args.train, "--data.test", args.test]
    return model, [*data, *(["--data.validation", args.validation] if args.validation else [])]


def tether(command: list[str], log: Path, gpu: str) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    env = os.environ | {"CUDA_VISIBLE_DEVICES": gpu}
    with open(log, "ab") as f:
        return subprocess.Popen(
            [sys.executable, "-m", "tether", *command], stdout=f, stderr=f, env=env
        )


def base(args: argparse.Namespace, root: Path, out: Path) -> None:
    model, data = words(args)
    wanted = {
        "imdb-supervised/adapter": ["train", "imdb-supervised", *model, *data, *LORA,
            "--algorithm.lr", "3e-4", "--batch.microbatch", "64", "--updates", "100",
            "--evaluation.every", "100", "--evaluation.prompts", "64", "--sampling.chunk", "64",
            "--checkpoint.every", "0"],
        "imdb-classifier/classifier": ["train", "imdb-classifier", *model, *data, *LORA,
            "--lr", "3e-4"],
        "imdb-judge/judge.json": ["train", "imdb-judge", *data],
    }  # fmt: skip
    running = []
    for gpu, (target, command) in enumerate(wanted.items()):
        if not (root / target).exists():
            log = out / f"{target.split('/')[0]}.log"
            running.append(
                (target, tether([*command, "--root", str(root)], log, str(gpu % args.gpus)))
            )
    for target, process in running:
        if process.wait():
            raise SystemExit(f"{target} failed: see its log in {out}")


def common(args: argparse.Namespace, root: Path) -> list[str]:
    model, data = words(args)
    return [
        *model, *data, "--model.adapter", str(root / "imdb-supervised/adapter"),
        "--rewards.reward.path", str(root / "imdb-classifier/classifier"),
        "--rewards.reward.output", "probability",
        "--judges.tfidf.path", str(root / "imdb-judge/judge.json"),
        "--batch.microbatch", "64", "--sampling.chunk", "512", "--algorithm.epochs", "2",
        "--evaluation.human_rows", "128", "--checkpoint.export", "false",
        *(["--evaluation.domains.wikitext", args.domain] if args.domain else []),
        *args.extra.split(),
    ]  # fmt: skip


def pilot(args: argparse.Namespace, root: Path, out: Path) -> float:
    chosen = root / "pilot.json"
    if chosen.exists():
        return float(json.loads(chosen.read_text())["lr"])
    running = []
    for gpu, lr in enumerate(LEARNING_RATES):
        name = f"pilot-{lr:g}"
        command = [
            "train", "imdb-ppo", "--root", str(root), "--name", name, *common(args, root),
            "--seed", str(PILOT_SEED), "--algorithm.lr", f"{lr:g}", "--updates", str(PILOT_UPDATES),
            "--evaluation.every", str(PILOT_UPDATES), "--evaluation.prompts", "512",
            "--evaluation.test_prompts", "0", "--evaluation.human_rows", "0",
            "--checkpoint.every", "0",
        ]  # fmt: skip
        running.append((lr, name, tether(command, out / f"{name}.log", str(gpu % args.gpus))))
    rises = {}
    for lr, name, process in running:
        if process.wait() == 0:
            points = read_points(root / name / "record.jsonl")
            rises[lr] = points[-1].reward - points[0].reward
    enough = [lr for lr, rise in sorted(rises.items()) if rise >= PILOT_RISE]
    lr = enough[0] if enough else max(rises)
    chosen.write_text(json.dumps({"lr": lr, "rise": {f"{k:g}": v for k, v in rises.items()}}))
    return lr


def plan(args: argparse.Namespace, root: Path, lr: float) -> Study:
    shared = [*common(args, root), "--algorithm.lr", f"{lr:g}"]
    arms = {
        "PPO": [("imdb-ppo", shared)],
        "PPO + KL": [("imdb-ppo-kl", [*shared, "--tethers.kl.coef", f"{c:g}"]) for c in args.coefs],
        "PPO + Elastic Reset": [("imdb-elastic-reset", shared)],
    }
    seeds = [s for s in SEEDS if s < args.seeds]
    return Study("imdb_first", root / "study", arms, seeds)


def study(args: argparse.Namespace, root: Path, lr: float) -> list[Path]:
    return run_study(
        plan(args, root, lr), workers=args.gpus * args.per_device, per_device=args.per_device
    )


def pack(root: Path, out: Path) -> None:
    """Records of everything, and the adapters of the base, for `benchmarks.collect`."""
    with tarfile.open(out / "records.tgz", "w:gz") as tar:
        for pattern in PACKED:
            for file in root.glob(pattern):
                tar.add(file, file.relative_to(root))
    for source, name in (
        ("imdb-supervised/adapter", "supervised"),
        ("imdb-classifier/classifier", "classifier"),
    ):
        file = root / source / "adapter_model.safetensors"
        if file.exists():
            shutil.copy(file, out / f"{name}.safetensors")


def parser(description: str | None) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--model", required=True, help="folder or hub id of SmolLM2-135M-Instruct")
    p.add_argument("--gguf", help="GGUF file in that folder")
    p.add_argument("--tokenizer", help="folder of its tokenizer, with --gguf")
    p.add_argument("--train", required=True)
    p.add_argument("--test", required=True)
    p.add_argument("--validation", help="file of validation texts; default: held out of --train")
    p.add_argument("--domain", help="text file of another domain")
    p.add_argument("--root", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--gpus", type=int, default=1)
    p.add_argument("--per-device", type=int, default=3)
    p.add_argument("--coefs", type=float, nargs="*", default=list(KL_COEFS))
    p.add_argument("--extra", default="", help="more overrides for every policy run (a rehearsal)")
    p.add_argument("--seeds", type=int, default=len(SEEDS))
    return p


def main() -> None:
    args = parser(__doc__).parse_args()
    args.root.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    clock = time.perf_counter()

    def stage(name: str) -> None:
        print(f"{time.perf_counter() - clock:7.0f} s  {name}", flush=True)

    base(args, args.root, args.out)
    stage("base")
    lr = pilot(args, args.root, args.out)
    stage(f"pilot: lr {lr:g}")
    pack(args.root, args.out)
    study(args, args.root, lr)
    stage("study")
    pack(args.root, args.out)


if __name__ == "__main__":
    main()
