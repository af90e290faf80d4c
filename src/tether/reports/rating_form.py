"""A rating form: one self-contained page that works offline, keeps the answers in the browser's
local storage, and exports them as CSV.

Texts reach the document only as text nodes, out of a JSON element that nothing can close.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from tether.reports.inline import inline_json
from tether.reports.rating_form_style import CSS, SCRIPT

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
"""Content security: only what is inside the file; no request of any kind."""
COLUMNS = ("study", "form", "rater", "position", "unit", "axis", "value", "seconds")
"""Columns of the exported CSV: a line for each unit and axis; `value` is empty without an answer,
`seconds` is the time that the unit was in view."""


def form_page(form: Mapping[str, Any]) -> str:
    """The whole file.

    Args:
        form: `study`, `form` (names), `task`, `instructions`, `axes` ([{name, question}]),
            `options` (what can be answered), `ends` (words for the first and last option of a
            scale, or none), `units` ([{id, prompt, texts}]: one text to rate or two to compare).
    """
    content = {**form, "columns": list(COLUMNS)}
    title = " - ".join(t for t in (form["task"], form["form"]) if t)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='robots' content='noindex'>"
        f"<title>{escape(title)}</title><style>{CSS}</style></head><body><main>\n"
        f"<header><h1>{escape(title)}</h1><p id='instructions'></p>"
        "<p id='warning' role='alert' hidden></p>"
        "<label>Your name or code <input id='rater' maxlength='80' autocomplete='off'></label>"
        "</header>\n"
        "<section aria-live='polite'><p class='sub' id='progress'></p>"
        "<h2>Prompt</h2><blockquote id='prompt'></blockquote><div id='texts'></div>"
        "<div id='questions'></div></section>\n"
        "<nav><button id='back' type='button'>Back</button>"
        "<button id='next' type='button'>Next</button>"
        "<button id='open' type='button'>Next without an answer</button>"
        "<button id='export' type='button'>Export answers (CSV)</button></nav>"
        "<p class='sub' id='state' role='status'></p>\n</main>\n"
        f"<script type='application/json' id='form'>{inline_json(content)}</script>\n"
        f"<script>{SCRIPT}</script>\n</body></html>\n"
    )
