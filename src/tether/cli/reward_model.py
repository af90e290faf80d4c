"""`tether reward-model ...`: train, average, sample pairs, read forms, study the label budget."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path

from tether.cli.actions import Actions, act
from tether.cli.helping import console
from tether.cli.parsing import Parser, positive
from tether.cli.train import divide
from tether.cli.train import train as train_by_settings
from tether.config.checks import check_complete
from tether.config.compose import compose
from tether.config.errors import UserError
from tether.config.folder import refuse_taken, run_folder
from tether.config.run import ClassifierSettings
from tether.config.settings import dump, fingerprint
from tether.config.text_values import read_yaml, to_yaml

RECIPE = "reward-model"


def reward_model(words: list[str]) -> int:
    """The second word says what."""
    actions: Actions = {
        "train": (train, "from pairs (Bradley-Terry) or labels; --seeds N for an ensemble"),
        "average": (average, "the weights of several as one model (WARM)"),
        "pairs": (pairs, "sample pairs from two runs or models, judged or as a form for people"),
        "read": (read_form, "a form that people filled in, as pairs to train on"),
        "budget": (budget, "how many labels a reward needs, against more demonstrations"),
    }
    return act("reward-model", actions, words)


def train(words: list[str]) -> int:
    """`tether train reward-model` under its own name, with `--seeds N` beside."""
    seeds, rest = _seeds(words)
    if "-h" in rest or "--help" in rest:
        name, files, _, _ = divide([w for w in rest if w not in ("-h", "--help")])
        code = train_by_settings(rest if name or files else [RECIPE, *rest])
        console().print("--seeds N: the seeds 0 to N - 1, one after another; complete ones are "
                        "skipped", markup=False)  # fmt: skip
        return code
    name, files, dry, overrides = divide(rest)
    settings = compose(name if name or files else RECIPE, files, overrides)
    if not isinstance(settings, ClassifierSettings):
        raise UserError(f"'{name or files[0]}' is a policy run: tether train")
    check_complete(settings)
    wanted = [settings]
    if seeds is not None and settings.seed and _names_seed(overrides):
        raise UserError(
            f"--seed {settings.seed} cannot have an effect: --seeds {seeds} trains the seeds 0 to "
            f"{seeds - 1}; leave one of them out"
        )
    if seeds is not None:
        base = settings.name.removesuffix(f"-seed{settings.seed}")
        wanted = [replace(settings, seed=i, name=f"{base}-seed{i}") for i in range(seeds)]
    if dry:
        print("---\n".join(to_yaml(dump(s)) for s in wanted), end="")
        return 0
    for s in wanted:
        if not (seeds is not None and _complete(s)):
            refuse_taken(s)
    from tether.cli.progress import showing
    from tether.train.run import train as run

    for s in wanted:
        folder = run_folder(s)
        if seeds is not None and _complete(s):
            print(f"complete already: {folder}")
            continue
        with showing() as (_, say):
            folder = run(s, say=say)
        print(f"done: {folder}")
    return 0


def _seeds(words: list[str]) -> tuple[int | None, list[str]]:
    p = Parser("reward-model train", "", add_help=False)
    p.add_argument("--seeds", type=positive, default=None)
    found, rest = p.parse_known_args(words)
    return found.seeds, rest


def _names_seed(overrides: list[str]) -> bool:
    """Whether the command line says the seed: one of a file belongs to the run it was of."""
    return any(w == "--seed" or w.startswith("--seed=") for w in overrides)


def _complete(settings: ClassifierSettings) -> bool:
    folder = run_folder(settings)
    same = (folder / "config.yaml").is_file() and fingerprint(
        read_yaml(folder / "config.yaml")
    ) == fingerprint(settings)
    return same and (folder / "results.json").is_file()


def average(words: list[str]) -> int:
    """One model from several runs of one start."""
    p = Parser(
        "reward-model average",
        "The weights of several reward models as one (WARM), measured on their held-out rows.\n"
        "The runs must have begun with the same weights: one --start_seed, several --seed.",
    )
    p.add_argument("runs", nargs="+", type=Path, help="folders of complete runs")
    p.add_argument("--out", type=Path, required=True, help="a new folder")
    p.add_argument("--weights", type=_numbers, default=None, help="one a run; default: equal")
    given = p.parse(words)
    from tether.train.reward_average import average as run

    print(f"done: {run(given.runs, given.out, weights=given.weights)}")
    return 0


def pairs(words: list[str]) -> int:
    """Pairs from two sources."""
    p = Parser(
        "reward-model pairs",
        "Completions of the same prompts by two runs or models (A and B may be one): judged by\n"
        "simulated raters into --out, or written to --form for people. Nothing is overwritten.",
    )
    p.add_argument("a", help="run, folder of a model, or hub id")
    p.add_argument("b", help="the same, or another")
    p.add_argument("--out", type=Path, default=None, help="PAIRS.jsonl of judged pairs")
    p.add_argument("--form", type=Path, default=None, help="FORM.csv or .jsonl for people")
    p.add_argument("--data", default=None, help="prompts; default: those that the run A trains on")
    p.add_argument("--column", default="prompt", help="of the prompts in --data")
    p.add_argument("--prompts", type=positive, default=128)
    p.add_argument("--per-prompt", type=positive, default=1, help="pairs of each prompt")
    p.add_argument("--max-new-tokens", type=positive, default=None, help="default: as in the run")
    p.add_argument("--temperature", type=float, default=None, help="default: as in the run")
    p.add_argument("--seed", type=int, default=0, help="of prompts, sampling and raters")
    p.add_argument("--filter", default=None, help="reward: keep pairs where both reach --least")
    p.add_argument("--least", type=float, default=1.0)
    spec = "REWARD as for --reward, or '{kind: ..., noise: .5}'; may be repeated"
    p.add_argument("--rater", action="append", default=[], metavar="NAME=REWARD", help=spec)
    noise = "temperature of the raters' choices, in units of their reward; 0 = none"
    p.add_argument("--noise", type=float, default=1.0, help=noise)
    given = p.parse(words)
    if given.temperature is not None and not 0 < given.temperature < math.inf:
        raise UserError("--temperature must be greater than 0")
    from tether.studies.pairs import Sampling, collect

    names = ("a", "b", "data", "column", "prompts", "per_prompt", "max_new_tokens", "temperature",
             "seed", "filter", "least")  # fmt: skip
    chosen = Sampling(**{k: getattr(given, k) for k in names})
    collect(chosen, out=given.out, form=given.form, raters=given.rater, noise=given.noise)
    return 0


def read_form(words: list[str]) -> int:
    """A filled-in form as pairs."""
    p = Parser("reward-model read", "A form that people filled in, as pairs to train on.")
    p.add_argument("form", type=Path, help="FORM.csv or .jsonl, its .key.json beside it")
    p.add_argument("--out", type=Path, required=True, help="PAIRS.jsonl")
    given = p.parse(words)
    from tether.studies.pairs import free, pairs_text, write
    from tether.studies.raters import read_form as read

    free([given.out])
    rows, counts = read(given.form)
    if not rows and counts["ties"]:
        raise UserError(
            f"{given.form} holds no preference: every answer is a tie ({counts['ties']}), and a "
            "tie is no pair to train on; have further pairs rated"
        )
    if not rows:
        raise UserError(f"{given.form} holds no preference yet: fill in the column choice")
    write({given.out: pairs_text(rows)})
    print(f"{given.out}: pairs {len(rows)}, ties {counts['ties']}, "
          f"unanswered {counts['unanswered']}")  # fmt: skip
    return 0


def budget(words: list[str]) -> int:
    """Labels against demonstrations."""
    p = Parser(
        "reward-model budget",
        "Reward models of several shares of the labels, RL with each, and supervised training\n"
        "with more demonstrations; score and drift of all of them. Called again, it goes on.\n"
        "--rl.KEY, --supervised.KEY and --reward_model.KEY override the file.",
    )
    p.add_argument("study", type=Path, help="study.yaml (docs: reward_models)")
    p.add_argument("--folder", type=Path, default=None, help="default: as in the file")
    p.add_argument("--seeds", type=positive, default=None, help="default: as in the file")
    p.add_argument("--workers", type=positive, default=None, help="default: one a core or device")
    p.add_argument("--per-device", type=positive, default=1, help="runs that share one GPU")
    p.add_argument("--retry", action="store_true", help="repeat runs that failed")
    p.add_argument("--dry-run", action="store_true", help="check, print the plan and stop")
    from tether.cli.studies import own_words

    own, overrides = own_words(p, words)
    given = p.parse(own)
    from tether.studies.budget import main, read_budget

    found = read_budget(given.study, overrides)
    if given.folder is not None:
        found = replace(found, folder=given.folder)
    if given.seeds is not None:
        found = replace(found, seeds=range(given.seeds))
    return main(
        found,
        workers=given.workers,
        per_device=given.per_device,
        retry=given.retry,
        dry=given.dry_run,
    )


def _numbers(text: str) -> list[float]:
    try:
        return [float(t) for t in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no list of numbers: 1,1,2") from None
