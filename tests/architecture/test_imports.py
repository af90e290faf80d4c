"""The import contracts of pyproject.toml hold, and they see what they should."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [str(tool), "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder / "src")},
        check=False,
    )


def test_contracts_are_kept() -> None:
    found = lint(ROOT)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "Contracts: 4 kept, 0 broken." in found.stdout


def test_a_planted_violation_is_caught(tmp_path) -> None:
    import shutil

    ignore = shutil.ignore_patterns("__pycache__", "*.safetensors", "*.gz")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    planted = tmp_path / "src/tether/config/errors.py"
    planted.write_text(planted.read_text() + "\n\ndef late() -> None:\n    import torch\n")
    found = lint(tmp_path)
    assert found.returncode != 0 and "No torch" in found.stdout
