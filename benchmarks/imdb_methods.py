"""More methods on the base of `imdb_first`: what interpolation and NLPO's mask give there.

    python -m benchmarks.imdb_methods --train train.parquet --test test.parquet --root runs \
        --model HuggingFaceTB/SmolLM2-135M-Instruct --out out

Needs the stages `base` and `pilot` of `benchmarks.imdb_first` in --root (its words are this
command's words too). PPO is run again, since no full weights outlive a run: its last step measures
the weights between the initial and the final ones, on validation prompts.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.imdb_first import SEEDS, common, pack, parser
from tether.studies.compare import Study, run_study

SHARES = (0.0, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)
MASK = {"kind": "nlpo_mask", "top_p": 0.9, "refresh": {"kind": "every", "n": 5, "unit": "update"}}


def main() -> None:
    args = parser(__doc__).parse_args()
    root: Path = args.root
    lr = float(json.loads((root / "pilot.json").read_text())["lr"])
    shared = [*common(args, root), "--algorithm.lr", f"{lr:g}", "--evaluation.test_prompts", "1024"]
    arms = {
        "PPO": [
            ("imdb-ppo", [*shared, "--after.interpolate", "true", "--after.shares",
                          json.dumps(SHARES), "--after.how", '["linear", "slerp"]'])
        ],
        "NLPO": [("imdb-ppo", [*shared, "--tethers.nlpo_mask", json.dumps(MASK)])],
    }  # fmt: skip
    args.out.mkdir(parents=True, exist_ok=True)
    plan = Study("imdb_methods", root / "methods", arms, [s for s in SEEDS if s < args.seeds])
    run_study(plan, workers=args.gpus * args.per_device, per_device=args.per_device)
    pack(root, args.out)


if __name__ == "__main__":
    main()
