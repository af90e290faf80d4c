"""`tether evaluate RUN`, `tether generate RUN`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from tether.cli.helping import console
from tether.cli.parsing import Parser, positive
from tether.config.errors import UserError

if TYPE_CHECKING:
    from tether.records import EvalPoint


def run_folder(text: str) -> Path:
    """A folder that holds a run. Raises UserError."""
    folder = Path(text)
    if not (folder / "config.yaml").is_file():
        raise UserError(f"{folder} is not the folder of a run: it holds no config.yaml")
    return folder


def evaluate(words: list[str]) -> int:
    """Print the evaluation point of a run's final weights."""
    p = Parser("evaluate", "Reward and drift of a run's weights, on fresh samples.")
    p.add_argument("run", help="folder of the run")
    p.add_argument("--split", choices=["validation", "test"], default="validation")
    p.add_argument("--prompts", type=positive, default=None, help="default: as in the run")
    p.add_argument("--json", action="store_true", help="one JSON object a line")
    given = p.parse(words)
    folder = run_folder(given.run)
    from tether.train.run import evaluate_run

    for point in evaluate_run(folder, split=given.split, prompts=given.prompts):
        if given.json:
            from tether.records import point_line

            print(point_line(point))
        else:
            _show(point)
    return 0


def _show(point: EvalPoint) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    table.add_column(f"{point.policy}, {point.prompts} {point.split} prompts")
    table.add_column("value", justify="right")
    table.add_row("reward", f"{point.reward:.4f} ± {point.reward_se:.4f} (standard error)")
    for group in (point.scores, point.judges, point.drift, point.metrics):
        for name, value in group.items():
            table.add_row(name, "absent" if value is None else f"{value:.4f}")
    console().print(table)


def generate(words: list[str]) -> int:
    """Print completions of a run's weights."""
    p = Parser("generate", "Completions of a run's weights for your prompts.")
    p.add_argument("run", help="folder of the run, or of a model")
    p.add_argument("prompt", nargs="*", help="prompts; or --file")
    p.add_argument("--file", type=Path, default=None, help="text file, a prompt a line")
    p.add_argument("-n", "--number", type=positive, default=1, help="completions a prompt")
    p.add_argument("--max-new-tokens", type=positive, default=None, help="default: as in the run")
    p.add_argument("--temperature", type=float, default=None, help="default: as in the run")
    p.add_argument("--greedy", action="store_true", help="the likeliest token each time")
    p.add_argument("--seed", type=int, default=0)
    given = p.parse(words)
    if not Path(given.run).is_dir():
        raise UserError(f"there is no folder '{given.run}'")
    if given.temperature is not None and not 0 < given.temperature < math.inf:
        raise UserError("--temperature must be greater than 0; --greedy decodes greedily")
    prompts = [*given.prompt, *(_lines(given.file) if given.file else [])]
    if not prompts:
        raise UserError("generate needs a prompt: tether generate RUN 'a prompt', or --file FILE")
    from tether.train.run import generate as run

    written = run(
        Path(given.run),
        prompts,
        given.number,
        max_new_tokens=given.max_new_tokens,
        temperature=given.temperature,
        greedy=given.greedy,
        seed=given.seed,
    )
    out = console()
    for prompt, completions in zip(prompts, written, strict=True):
        for completion in completions:
            out.print(prompt, end="", style="dim", markup=False, soft_wrap=True)
            out.print(completion, markup=False, soft_wrap=True)
            out.print("")
    return 0


def _lines(file: Path) -> list[str]:
    if not file.is_file():
        raise UserError(f"there is no file '{file}' of prompts")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise UserError(f"{file} is not UTF-8 text (byte {e.start}): convert it") from e
    return [line for line in text.splitlines() if line.strip()]
