"""The written files: sizes, escaping, no network, and what a browser draws."""

from __future__ import annotations

import csv
import html
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.browser import browse, needs_chromium
from tests.unit.reports.folders import point, sample, write_run
from tether.reports.page import inline_json
from tether.reports.write import HTML_LIMIT, Written, write_report

NASTY = "good </script><script>document.title='owned'</script> <!-- \" ' & \u2028 <b>bold</b>"


def runs(folder: Path, methods: list[str], seeds: int = 3) -> None:
    for m, name in enumerate(methods):
        for s in range(seeds):
            points = [point(0, 0.0, 0.5)]
            for u in range(2, 13, 2):
                drift, reward = 0.4 * u * (m + 1), 0.5 + 0.02 * u + 0.004 * s - 0.01 * m
                if u == 8 and m == 1:
                    points.append(point(u, drift, reward, side="before", common=False))
                    points.append(point(u, drift / 4, 0.6, side="after"))
                else:
                    points.append(point(u, drift, reward))
            samples = [sample(u, row, f"{NASTY} {u}") for u in (0, 6, 12) for row in range(3)]
            write_run(folder / f"m{m}-seed{s}", name, s, points, samples=samples, events=(8,))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("study")
    runs(folder, ["PPO", 'PPO + "KL" </script>', "Elastic <Reset>"])
    return write_report([folder])


class Page(HTMLParser):
    """Tags, attributes and texts, as a browser's parser splits them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [f"{k}={v}" for k, v in attrs if k in ("src", "href", "srcset", "action")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_four_files(written: Written) -> None:
    assert [p.name for p in written.paths] == [
        "report.html",
        "frontier.png",
        "frontier.svg",
        "frontier.csv",
    ]
    assert written.png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert written.svg.read_text().startswith("<svg")
    assert 500_000 < written.html.stat().st_size <= HTML_LIMIT
    assert not list(written.html.parent.glob("*.part"))


def test_texts_are_escaped(written: Written) -> None:
    text = written.html.read_text()
    page = Page(text)
    assert page.tags.count("script") == 3  # the bundle, the data, ours: none from a sample
    assert "b" not in page.tags
    shown = [t for t in page.texts if t.startswith("good </script>")]
    # three prompts: the initial model and three methods each
    assert len(shown) == 12 and all(t.startswith(NASTY) for t in shown)
    assert html.escape('PPO + "KL" </script>') in text


def test_nothing_reaches_the_network(written: Written) -> None:
    text = written.html.read_text()
    page = Page(text)
    assert page.addresses == []
    assert "default-src 'none'" in text and "connect-src" not in text
    assert not {"link", "img", "iframe", "object", "base"} & set(page.tags)
    assert not re.search(r"@import|url\(", re.search(r"<style>(.*?)</style>", text, re.S)[1])  # type: ignore[index]


def test_inline_json_cannot_close_its_element() -> None:
    value = {"a": NASTY, "b": [1.5, None]}
    text = inline_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


def test_before_and_after_of_every_method(written: Written) -> None:
    text = written.html.read_text()
    assert text.count("<article class='before'>") == 3
    assert text.count("<article class='after'>") == 9
    assert "after update 12, seed 0" in text and "after update 6" not in text


def test_vega_lite_accepts_both_charts_without_warning(
    written: Written, capfd: pytest.CaptureFixture[str]
) -> None:
    import vl_convert

    from tether.reports import charts
    from tether.reports.history import history
    from tether.reports.points import rows

    for spec in (charts.frontier(written.study, rows(written.study)), history(written.study)):
        vl_convert.vegalite_to_svg(spec, show_warnings=True)
    assert "WARN" not in capfd.readouterr().err


def test_the_svg_draws_every_point_of_the_csv(written: Written) -> None:
    assert drawn(written.svg.read_text()) == expected(written.csv)


def test_more_than_four_methods_are_grey_until_picked(tmp_path: Path) -> None:
    runs(tmp_path, [f"method {i}" for i in range(6)], seeds=1)
    files = write_report([tmp_path])
    svg = files.svg.read_text()
    marks = svg[svg.index("checkpoints_marks") :]
    marks = marks[: marks.index("</g>")]
    colours = re.findall(r'fill="(#[0-9a-fA-F]{6}|rgb[^"]*)"', marks)
    assert len(colours) == 42 and len(set(colours)) == 5
    assert sum(c.upper() == "#C4C7CC" for c in colours) == 14


def test_bands_only_from_five_seeds(tmp_path: Path, written: Written) -> None:
    band = re.compile(r'class="mark-area role-mark bands_marks"')
    assert not band.search(written.svg.read_text())
    runs(tmp_path, ["PPO"], seeds=5)
    assert len(band.findall(write_report([tmp_path]).svg.read_text())) == 1


def test_a_single_run_folder_gets_its_own_report(tmp_path: Path) -> None:
    runs(tmp_path, ["PPO"], seeds=1)
    files = write_report([tmp_path / "m0-seed0"])
    assert files.html == tmp_path / "m0-seed0" / "report.html"
    assert "one method alone" in files.html.read_text()


def test_reports_never_reach_torch(written: Written) -> None:
    folder = written.html.parent
    code = (
        "import sys; from pathlib import Path; from tether.reports.write import write_report; "
        f"write_report([Path({str(folder)!r})], Path({str(folder / 'again')!r})); "
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    src = Path(__file__).resolve().parents[3] / "src"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(src)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def expected(file: Path) -> dict[str, int]:
    with open(file, newline="") as f:
        table = list(csv.DictReader(f))
    return {
        "checkpoints": sum(r["checkpoint"] == "true" for r in table),
        "resets_before": sum(r["reset"] == "before" for r in table),
        "resets_after": sum(r["reset"] == "after" for r in table),
    }


def drawn(markup: str) -> dict[str, int]:
    """Symbols in each named layer of a drawn chart."""
    found = {}
    for layer in ("checkpoints", "resets_before", "resets_after"):
        group = re.search(rf'<g class="[^"]*\b{layer}_marks".*?</g>', markup, re.S)
        found[layer] = 0 if group is None else group[0].count("<path ")
    return found


@needs_chromium
def test_a_browser_draws_every_point_of_the_csv(written: Written, tmp_path: Path) -> None:
    dom, console = browse(written.html, tmp_path / "profile")
    assert console == []  # no warning of Vega, nothing refused by the content policy
    assert "<title>owned</title>" not in dom
    counts = expected(written.csv)
    # 3 methods x 3 seeds x 7 common evaluations; one method resets once in each of 3 seeds
    assert counts == {"checkpoints": 63, "resets_before": 3, "resets_after": 3}
    assert drawn(dom[dom.rindex('id="frontier"') :]) == counts


CLICK = """<script>
const waiting = setInterval(() => {
  if (!document.body.dataset.charts) return;
  clearInterval(waiting);
  const grey = () => [...document.querySelectorAll("#frontier .checkpoints_marks path")]
    .filter((p) => p.getAttribute("fill").toUpperCase() === "#C4C7CC").length;
  const before = grey();
  const entry = [...document.querySelectorAll("#frontier text")]
    .find((t) => t.textContent === "method 5");
  const at = entry.getBoundingClientRect();
  entry.dispatchEvent(new MouseEvent("click",
    {bubbles: true, clientX: at.x + 2, clientY: at.y + 2}));
  setTimeout(() => document.body.setAttribute("data-grey", before + " " + grey()), 1000);
}, 100);
</script>"""


@needs_chromium
def test_a_click_on_the_legend_colours_a_grey_method(tmp_path: Path) -> None:
    runs(tmp_path, [f"method {i}" for i in range(6)], seeds=1)
    page = write_report([tmp_path]).html
    text = page.read_text()
    end = text.rindex("</body>")
    page.write_text(text[:end] + CLICK + text[end:])
    dom, _ = browse(page, tmp_path / "profile")
    assert 'data-grey="14 7"' in dom  # 2 grey methods of 7 points, then 1
