"""`tether human-study prepare | analyse | published`: rating forms, and what came back."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tether.cli.actions import Actions, act
from tether.cli.helping import console
from tether.cli.parsing import Parser, positive
from tether.config.errors import UserError
from tether.config.whole_file import write_whole


def human_study(words: list[str]) -> int:
    """The second word says what."""
    actions: Actions = {
        "prepare": (prepare, "blinded, balanced rating forms of completions, and their key"),
        "analyse": (analyse, "agreement, tests and rankings from the forms that came back"),
        "published": (published, "the ratings that the GRUE paper printed, re-checked"),
    }
    return act("human-study", actions, words)


def prepare(words: list[str]) -> int:
    """Forms for people, and the key that stays here."""
    p = Parser(
        "human-study prepare",
        "Rating forms of several methods' completions of the same prompts: one HTML page for each\n"
        "rater, without any method's name, and a key that stays with you. A source is a run\n"
        "folder, its samples.jsonl (@0: the initial model), or JSONL with prompt and completion.",
    )
    p.add_argument("sources", nargs="+", metavar="[METHOD=]PATH[@UPDATE]")
    p.add_argument("--out", type=Path, required=True, help="a new folder")
    p.add_argument("--task", default="", help="name of the task, shown above the forms")
    p.add_argument("--kind", choices=["likert", "pairwise"], default="likert")
    p.add_argument(
        "--axis",
        action="append",
        default=[],
        metavar="NAME=QUESTION",
        help="may be repeated; default: coherence and quality (likert), preference (pairwise)",
    )
    p.add_argument("--points", type=positive, help="of a Likert scale (default 5)")
    p.add_argument("--ends", help="words for 1 and the last point (default: very poor,very good)")
    p.add_argument("--no-equal", action="store_true", help="pairwise: 'equally good' is no answer")
    p.add_argument("--items", type=positive, default=100, help="prompts, at most (default 100)")
    p.add_argument("--raters", type=positive, default=3, help="people for each text (default 3)")
    p.add_argument("--per-form", type=positive, default=50, help="texts or pairs (default 50)")
    p.add_argument("--checks", type=int, default=2, help="attention checks a form (default 2)")
    p.add_argument("--allowed", type=int, default=0, help="failed checks that are forgiven")
    p.add_argument("--instructions", type=Path, default=None, help="a text file for the raters")
    p.add_argument("--seed", type=int, default=0)
    given = p.parse(words)
    _without_effect(given)
    from tether.studies.human.completions import read_completions
    from tether.studies.human.prepare import Design, check
    from tether.studies.human.prepare import prepare as write

    design = Design(
        task=given.task,
        kind=given.kind,
        axes=_axes(given.axis),
        points=given.points or Design.points,
        ends=Design.ends if given.ends is None else _ends(given.ends),
        equal=not given.no_equal,
        items=given.items,
        raters=given.raters,
        per_form=given.per_form,
        checks=given.checks,
        allowed=given.allowed,
        instructions=_text(given.instructions),
        seed=given.seed,
    )
    check(design, given.out)  # before completions are read, of which there may be many
    done = write(read_completions(given.sources), design, given.out)
    out = console()
    what = "texts" if given.kind == "likert" else "pairs"
    low, high = done.per_form
    each = str(low) if low == high else f"{low} to {high}"
    out.print(
        f"{len(done.forms)} forms of {each} {what} and {given.checks} checks: {done.units} {what} "
        f"of {done.items} prompts, each for {given.raters} raters",
        markup=False,
    )
    for note in done.notes:
        out.print(note, style="yellow", markup=False)
    out.print(f"forms for the raters: {done.forms[0].parent}", markup=False, soft_wrap=True)
    out.print(f"key, for nobody else: {done.key}", markup=False, soft_wrap=True)
    return 0


def analyse(words: list[str]) -> int:
    """Tables, human_study.json and human_study.html."""
    p = Parser(
        "human-study analyse",
        "Agreement of raters, analysis of variance with Tukey's HSD, a mixed-effects model, sign\n"
        "tests and Bradley-Terry, and each metric's rank agreement with people.",
    )
    p.add_argument("answers", nargs="+", type=Path, help="exported CSV files, or folders of them")
    p.add_argument("--key", type=Path, required=True, help="key.json of the study")
    p.add_argument("--out", type=Path, default=None, help="default: the folder of the key")
    p.add_argument("--seed", type=int, default=0, help="of the bootstrap intervals")
    p.add_argument("--json", action="store_true", help="print the result as JSON alone")
    given = p.parse(words)
    from tether.reports.human_study import page, parts, summary
    from tether.reports.parts import terminal
    from tether.studies.human.analyse import analyse as run
    from tether.studies.human.analyse import as_json

    folder = given.out or given.key.parent
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give a folder for the report")
    study = run(given.answers, given.key, given.seed)
    files = {"human_study.json": as_json(study), "human_study.html": page(study)}
    for name, text in files.items():
        write_whole(folder / name, text)
    if given.json:
        print(files["human_study.json"], end="")
        return 0
    out = console()
    for part in parts(study):
        out.print(terminal(part))
    for note in (*study.notes, *(f"{a.axis}: {n}" for a in study.axes for n in a.notes)):
        out.print(note, style="yellow", markup=False)
    out.print(summary(study), markup=False)
    for name in files:
        out.print(str(folder / name), markup=False, soft_wrap=True)
    return 0


def published(words: list[str]) -> int:
    """The paper's printed ratings against its claims."""
    p = Parser("human-study published", "The GRUE paper's printed human ratings, re-checked.")
    p.add_argument("--json", action="store_true", help="for programs")
    given = p.parse(words)
    if given.json:
        import json

        from tether.studies.human.analyse import published as found

        print(json.dumps(found(), indent=1))
        return 0
    from tether.reports.human_published import parts
    from tether.reports.parts import terminal

    out = console()
    for part in parts():
        out.print(terminal(part))
    return 0


def _without_effect(given: Namespace) -> None:
    """Raises UserError for an option of the other kind of form."""
    if given.kind == "pairwise":
        for name in ("points", "ends"):
            if getattr(given, name) is not None:
                raise UserError(
                    f"--{name} would have no effect: pairs are not rated on a scale; leave it out, "
                    "or give --kind likert"
                )
    elif given.no_equal:
        raise UserError(
            "--no-equal would have no effect: it is about pairs; leave it out, or give --kind "
            "pairwise"
        )


def _axes(words: list[str]) -> dict[str, str]:
    axes: dict[str, str] = {}
    for word in words:
        name, separator, question = (x.strip() for x in word.partition("="))
        if not separator or not name or not question:
            raise UserError(f"--axis '{word}' is not NAME=QUESTION")
        if name in axes:
            raise UserError(f"--axis {name} is given twice")
        axes[name] = question
    return axes


def _ends(text: str) -> tuple[str, str]:
    words = [t.strip() for t in text.split(",")]
    if len(words) != 2:
        raise UserError(f"--ends '{text}' is not two words: 'very poor,very good'")
    return words[0], words[1]


def _text(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as e:
        raise UserError(f"--instructions {path}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise UserError(
            f"--instructions {path} is not UTF-8 text (byte {e.start}): convert it"
        ) from e
