"""The runs of `imdb_first` again, same seeds: engine `graph`, and what else saves a GPU time.

    python -m benchmarks.imdb_graph --train train.parquet --test test.parquet --root runs \\
        --model HuggingFaceTB/SmolLM2-135M-Instruct --out out
    python -m benchmarks.archive runs benchmarks/records/imdb_graph.tgz --seeds 0 1 2
    python -m benchmarks.collect_imdb_graph benchmarks/records/imdb_graph.tgz --date D --commit C

Needs the stages `base` and `pilot` of `benchmarks.imdb_first` in --root (its words are this
command's words too). PPO, one KL coefficient and Elastic Reset; all six settings of the first study
with `--coefs .003 .01 .03 .1`. Finished runs are skipped and unfinished ones resumed, also when
coefficients or seeds are added.

Beside `RECORDED` everything stays as it was: passes and decoding steps are recorded, not compiled,
since 40 updates do not earn two minutes of compilation. The microbatch stays too: 64 completions
are the whole of a minibatch, so the update has no use for more, and with old log-probs of the
engine one microbatch is what is scored to check them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks import imdb_first
from benchmarks.collect_imdb import flat
from benchmarks.imdb_first import SEEDS, common, pack
from benchmarks.worlds import QUICK
from tether.studies.compare import Setting, Study, run_study

COEF = 0.03
RECORDED = {
    **QUICK,
    "engine": {"kind": "graph", "compile": False},
    "model": {"compile": False, "capture": True},
}
"""What makes a run of this length quick (`benchmarks.worlds`, which has it of longer ones)."""


def quick() -> list[str]:
    """What differs from the first study, as words of the command line."""
    found = flat(RECORDED)
    values = {k: v if isinstance(v, str) else json.dumps(v) for k, v in found.items()}
    return [word for k, v in values.items() for word in (f"--{k}", v)]


def plan(args: argparse.Namespace, root: Path, lr: float) -> Study:
    """One method for each coefficient: the names of runs do not depend on which others there
    are."""
    shared = [*quick(), *common(args, root), "--algorithm.lr", f"{lr:g}"]
    arms: dict[str, Sequence[Setting]] = {"PPO": [("imdb-ppo", shared)]}
    for c in args.coefs:
        arms[f"PPO + KL {c:g}"] = [("imdb-ppo-kl", [*shared, "--tethers.kl.coef", f"{c:g}"])]
    arms["PPO + Elastic Reset"] = [("imdb-elastic-reset", shared)]
    return Study("imdb_graph", root / "graph", arms, [s for s in SEEDS if s < args.seeds])


def every_row() -> list[str]:
    """Runs that the result file has at least."""
    names = ("ppo", f"ppo-kl-{COEF:g}", "ppo-elastic-reset")
    return [f"{name}-seed{s}" for name in names for s in SEEDS]


def parser() -> argparse.ArgumentParser:
    p = imdb_first.parser(__doc__)
    p.set_defaults(coefs=[COEF])
    return p


def main() -> None:
    args = parser().parse_args()
    root: Path = args.root
    lr = float(json.loads((root / "pilot.json").read_text())["lr"])
    args.out.mkdir(parents=True, exist_ok=True)
    run_study(plan(args, root, lr), workers=args.gpus * args.per_device, per_device=args.per_device)
    pack(root, args.out)


if __name__ == "__main__":
    main()
