"""A form in headless Chromium: filled in by clicks, closed and resumed, exported, read back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.browser import browse, needs_chromium
from tests.unit.human_study.studies import METHODS, read, study
from tether.studies.human.analyse import analyse
from tether.studies.human.prepare import Prepared
from tether.studies.human.returned import check, read_key, read_sheets

READY, CLOCK = 'data-ready="true"', 10_000
RATER = 'Ann "A", é'

RATE = """<script>
const finish = (name, value) => document.body.setAttribute(name, encodeURIComponent(value));
const wanted = (unit, axis, options) => {
  const asked = document.querySelector("#texts").textContent.match(/Please \\w+ (\\w)/);
  return asked ? asked[1] : options[(unit * 3 + axis) % options.length].value;
};
const answer = (from, to) => {
  for (let unit = from; unit < to; unit++) {
    document.querySelectorAll("#questions fieldset").forEach((set, axis) => {
      const options = [...set.querySelectorAll("input")];
      const value = wanted(unit, axis, options);
      options.find((o) => o.value === value).click();
    });
    if (unit < form.units.length - 1) document.getElementById("next").click();
  }
};
const half = Math.floor(form.units.length / 2);
const address = URL.createObjectURL;
URL.createObjectURL = (blob) => {
  blob.text().then((text) => finish("data-csv", text));
  return address.call(URL, blob);
};
if (!sessionStorage.getItem("second")) {
  sessionStorage.setItem("second", "yes");
  const box = document.getElementById("rater");
  box.value = %RATER%;
  box.dispatchEvent(new Event("input"));
  answer(0, half);
  location.reload();
} else if (state.at === 0 && Number(sessionStorage.getItem("tries")) < 20) {
  // the browser's storage process may be behind the page that was just left
  sessionStorage.setItem("tries", Number(sessionStorage.getItem("tries")) + 1);
  location.reload();
} else {
  finish("data-at", String(state.at) + " " + half);
  finish("data-resumed", document.getElementById("state").textContent);
  finish("data-rater", document.getElementById("rater").value);
  answer(half, form.units.length);
  finish("data-done", document.getElementById("state").textContent);
  document.getElementById("export").click();
}
</script>"""


def rated(page: Path, folder: Path, script: str) -> tuple[dict[str, str], str]:
    """What the script left on the body, and the document."""
    text = page.read_text(encoding="utf-8")
    end = text.rindex("</body>")
    copy = folder / page.name
    copy.write_text(text[:end] + script + text[end:], encoding="utf-8")
    dom, console = browse(copy, folder / "profile", READY, CLOCK)
    assert console == []  # nothing refused by the content policy, no error
    body = re.search(r"<body[^>]*>", dom)
    assert body
    return {k: unquote(v) for k, v in re.findall(r'data-(\w+)="([^"]*)"', body[0])}, dom


def expected(key: dict[str, Any], form: str, options: list[str]) -> dict[tuple[str, str], str]:
    out = {}
    for u, unit in enumerate(key["forms"][form]):
        for a, axis in enumerate(key["axes"]):
            value = options[(u * 3 + a) % len(options)]
            out[unit["id"], axis] = unit["check"]["answer"] if "check" in unit else value
    return out


@needs_chromium
@pytest.mark.parametrize(
    ("kind", "options"), [("likert", list("12345")), ("pairwise", ["A", "equal", "B"])]
)
def test_answers_survive_a_reload_and_round_trip(
    kind: str, options: list[str], tmp_path: Path
) -> None:
    done = study(tmp_path, kind=kind)
    key = read(done)
    script = RATE.replace("%RATER%", "'" + RATER + "'")
    found, dom = rated(done.forms[0], tmp_path, script)
    assert "<title>owned</title>" not in dom
    at, half = found["at"].split()
    assert at == half == str(len(key["forms"]["form-01"]) // 2)
    assert found["resumed"].startswith(f"{half} of 14 are answered.")
    assert found["rater"] == RATER
    assert found["done"].startswith("All 14 are answered.")
    file = tmp_path / "back.csv"
    file.write_bytes(found["csv"].encode())
    (sheet,) = read_sheets([file], read_key(done.key))
    assert sheet.rater == RATER and sheet.form == "form-01"
    assert sheet.answers == expected(key, "form-01", options)
    assert check(sheet, read_key(done.key)).failed == 0
    assert analyse([file], done.key).axes


@needs_chromium
def test_texts_arrive_in_the_browser_as_they_are(tmp_path: Path) -> None:
    done = study(tmp_path)
    key = read(done)
    script = """<script>
const seen = form.units.map((unit, i) => {
  show(i);
  return [document.getElementById("prompt").textContent,
          ...[...document.querySelectorAll("#texts .text")].map((t) => t.textContent)];
});
document.body.setAttribute("data-seen", encodeURIComponent(JSON.stringify(seen)));
</script>"""
    found, dom = rated(done.forms[0], tmp_path, script)

    shown = []
    for unit in key["forms"]["form-01"]:
        if "check" in unit:
            shown.append([unit["check"]["prompt"], *unit["check"]["texts"]])
        else:
            texts = [key["texts"][t] for t in unit["texts"]]
            shown.append([texts[0]["prompt"], *(t["text"] for t in texts)])
    assert json.loads(found["seen"]) == shown
    assert "<b>bold</b>" not in dom


@needs_chromium
def test_a_browser_that_keeps_nothing_says_so(tmp_path: Path) -> None:
    done = study(tmp_path)
    text = done.forms[0].read_text(encoding="utf-8")
    broken = (
        "<script>Object.defineProperty(window, 'localStorage', "
        "{get() { throw new Error('off'); }});</script>"
    )
    page = tmp_path / "form.html"
    page.write_text(text.replace("<main>", broken + "<main>", 1), encoding="utf-8")
    dom, _ = browse(page, tmp_path / "profile", READY, CLOCK)
    assert re.search(r'<p id="warning" role="alert">This browser keeps no answers', dom)


def test_forms_name_no_method_and_reach_no_network(tmp_path: Path) -> None:
    for kind in ("likert", "pairwise"):
        done: Prepared = study(tmp_path / kind, kind=kind)
        for form in done.forms:
            text = form.read_text(encoding="utf-8")
            assert not any(m in text for m in METHODS)
            assert not re.search(r"\b(src|href|action)=", text)
            assert "default-src 'none'" in text and "connect-src" not in text
            assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|https?:", text)
            assert "scores" not in text and '"answer"' not in text and '"check"' not in text
