"""`tether frontier`: what is printed and where the files go."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.reports.folders import point, write_run
from tether.config.errors import UserError
from tether.studies.frontier import main


def runs(folder: Path, seeds: int) -> None:
    for s in range(seeds):
        for name, gain in (("PPO [bold]", 0.2), ("KL", 0.1)):
            points = [point(0, 0.0, 0.5), point(4, 3.0, 0.5 + gain + s / 100)]
            write_run(folder / f"{name[:2]}{s}", name, s, points)


def printed(folder: Path, out: Path | None = None, **other: object) -> str:
    text = io.StringIO()
    main([folder], out, console=Console(file=text, width=80), **other)  # type: ignore[arg-type]
    return text.getvalue()


def test_table_conclusion_and_paths(tmp_path: Path) -> None:
    runs(tmp_path, 3)
    text = printed(tmp_path)
    assert "PPO [bold]" in text  # markup in a name is text
    for value in ("0.700", "0.710", "0.720", "0.600"):
        assert value in text
    assert "3 seeds carry no verdict" in " ".join(text.split())
    assert all(str(tmp_path / f) in text for f in ("report.html", "frontier.png"))


def test_another_folder_and_other_budgets(tmp_path: Path) -> None:
    runs(tmp_path, 1)
    text = printed(tmp_path, tmp_path / "new" / "place", budgets=(2.0, 3.0))
    assert (tmp_path / "new" / "place" / "frontier.svg").is_file()
    assert "Within 3 nats" in text and "16" not in text.split("Area")[0]


def test_from_five_seeds_the_terminal_shows_intervals(tmp_path: Path) -> None:
    runs(tmp_path, 5)
    text = printed(tmp_path)
    assert "±.020" in text  # t(.975, 4) * .0158 / sqrt(5)


def test_errors_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no runs"):
        main([tmp_path])
    (tmp_path / "file").write_text("")
    runs(tmp_path / "study", 1)
    with pytest.raises(UserError, match="is a file"):
        main([tmp_path / "study"], tmp_path / "file")
