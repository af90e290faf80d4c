"""Pages in headless Chromium, without name resolution."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium (Debian's package) is not installed"
)


def browse(
    page: Path, profile: Path, ready: str = 'data-charts="drawn"', milliseconds: int = 30_000
) -> tuple[str, list[str]]:
    """The document as the browser leaves it, and its console. ready: what the page's own script
    writes when it has done its work; milliseconds: of the page's clock."""
    done = subprocess.run(
        [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={profile}",
            f"--virtual-time-budget={milliseconds}",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ready in done.stdout, done.stdout[-1000:] or done.stderr[-2000:]
    return done.stdout, [x for x in done.stderr.splitlines() if ":CONSOLE:" in x]
