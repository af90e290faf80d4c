"""report.html: one self-contained page. Nothing in it reaches the network, and every text that
came from a model, a dataset or a configuration is escaped.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import vl_convert

from tether.reports import baselines
from tether.reports.encodings import IN_COLOUR
from tether.reports.inline import inline_json
from tether.reports.methods import Study
from tether.reports.runs import Run, settings
from tether.reports.samples import Prompt, Sample
from tether.reports.style import CSS, SCRIPT
from tether.reports.tables import Cell, judges, resets, results
from tether.reports.wording import conclusion, interval_note

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)
"""Content security: only what is inside the file. Vega compiles its expressions (unsafe-eval)."""


def page(study: Study, charts: dict[str, dict[str, Any]], prompts: Sequence[Prompt]) -> str:
    """The whole file.

    Args:
        charts: element id -> Vega-Lite dict.
        prompts: offered one at a time.
    """
    title = study.plan.name or ", ".join(m.name for m in study.methods)
    hint = (
        f"At most {IN_COLOUR} methods are in colour at first; click a legend entry to show or hide "
        "one."
        if len(study.methods) > IN_COLOUR
        else "Click a legend entry to show or hide a method. Point at a mark for its run."
    )
    head, rows = results(study)
    parts = [
        f"<p class='lead' id='conclusion'>{escape(conclusion(study))}</p>",
        *(f"<p class='note'>{escape(n)}</p>" for n in study.notes),
        f"<figure><div id='frontier'></div><figcaption>{hint}</figcaption></figure>",
        _samples(prompts),
        "<h2>Results</h2>",
        f"<p class='sub'>{escape(_about(study))}</p>",
        _table(head, rows, "results"),
        _optional(resets(study), "Recovery after resets", "resets"),
        _optional(judges(study), "Judges (never a reward)", "judges"),
        _optional(baselines.table(study), "Without training", "baselines"),
        _optional(baselines.waste(study), "Drift beyond the oracle", "waste"),
        "<h2>Over the updates</h2><figure><div id='history'></div></figure>",
        _provenance(study),
    ]
    return document(title, "\n".join(p for p in parts if p), charts)


def document(title: str, body: str, charts: dict[str, dict[str, Any]]) -> str:
    """A self-contained page around `body` (HTML), which has an element for each chart.

    Args:
        charts: element id -> Vega-Lite dict.
    """
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)} - tether</title><style>{CSS}</style></head><body><main>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n</main>\n"
        f"<script>{_bundle()}</script>\n"
        f"<script type='application/json' id='charts'>{inline_json(charts)}</script>\n"
        f"<script>{SCRIPT}</script>\n</body></html>\n"
    )


@functools.cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    code: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub lacks the default
    # a string constant of the library would end the element; the escape is the same string
    return code.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _about(study: Study) -> str:
    area = (
        " Area: mean over all budgets up to its end of (reward - initial) / (1 - initial)."
        if study.areas
        else ""
    )
    return (
        f"Reward on {study.split} prompts of the best validation checkpoint within each drift "
        f"budget (nats per completion).{area} {interval_note(study)}"
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[Cell]], name: str) -> str:
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td>{escape(c.main)}" + (f"<small>{escape(c.small)}</small>" if c.small else "")
            + "</td>"
            for c in row
        )
        + "</tr>"
        for row in rows
    )  # fmt: skip
    return (
        f"<div class='wide'><table id='{name}'><thead><tr>{top}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _optional(table: tuple[list[str], list[list[Cell]]] | None, title: str, name: str) -> str:
    return "" if table is None else f"<h2>{escape(title)}</h2>{_table(*table, name)}"


def _samples(prompts: Sequence[Prompt]) -> str:
    if not prompts:
        return ""
    options = "".join(
        f"<option value='{i}'>{escape(_line(p.text))}</option>" for i, p in enumerate(prompts)
    )
    blocks = "".join(
        f"<section class='prompt' data-prompt='{i}'{'' if i == 0 else ' hidden'}>"
        f"<blockquote>{escape(p.text)}</blockquote><div class='cards'>"
        + ("" if p.before is None else _card(p.before, "before"))
        + "".join(_card(s, "after") for s in p.after)
        + "</div></section>"
        for i, p in enumerate(prompts)
    )
    return (
        "<h2>One prompt, all methods</h2><p class='sub'><label>Prompt "
        f"<select id='prompts'>{options}</select></label></p>{blocks}"
    )


def _card(sample: Sample, kind: str) -> str:
    where = (
        "before training"
        if kind == "before"
        else f"after update {sample.update}, seed {sample.seed}"
    )
    facts = [] if sample.score is None else [f"reward {sample.score:.3f}"]
    if sample.drift is not None:
        facts.append(f"{sample.drift:.1f} nats")
    return (
        f"<article class='{kind}'><h3>{escape(sample.method)}</h3>"
        f"<p class='meta'>{where}<br>{escape(', '.join(facts))}</p>"
        f"<p class='text'>{escape(sample.completion)}</p></article>"
    )


def _line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 80 else flat[:79] + "…"


def _provenance(study: Study) -> str:
    runs = study.runs
    cells = [
        [
            Cell(r.name),
            Cell(r.method),
            Cell(str(r.seed)),
            Cell(str(r.updates)),
            Cell(_state(r)),
            Cell(str(r.start.get("config", ""))),
        ]
        for r in runs
    ]
    seen: dict[str, None] = {}
    for r in runs:
        for key, value in _flat(r.environment):
            seen.setdefault(f"{key}: {value}")
    facts = "".join(f"<li>{escape(x)}</li>" for x in list(seen)[:80])
    config = settings(runs[0])
    shown = json.dumps(config, indent=1, ensure_ascii=False, default=str) if config else ""
    return (
        "<h2>Provenance</h2>"
        + _table(["Run", "Method", "Seed", "Updates", "State", "Config hash"], cells, "runs")
        + (f"<details><summary>Versions, device, command</summary><ul>{facts}</ul></details>")
        + (
            f"<details><summary>Configuration of {escape(runs[0].name)}</summary>"
            f"<pre>{escape(shown)}</pre></details>"
            if shown
            else ""
        )
    )


def _state(run: Run) -> str:
    if run.failed:
        return f"failed: {run.failed}"
    return "finished" if run.finished else "not finished"


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [x for k, v in value.items() for x in _flat(v, f"{prefix}{k}.")]
    if isinstance(value, list):
        return [(prefix.rstrip("."), " ".join(str(v) for v in value))]
    return [(prefix.rstrip("."), str(value))]
