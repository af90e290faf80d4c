"""environment.json: everything about a run that is not a number of it."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from tether.config.run import ClassifierSettings, RunSettings
from tether.config.settings import fingerprint

PACKAGES = ("tether-rl", "torch", "transformers", "peft", "datasets", "safetensors", "numpy")


def write_environment(
    folder: Path, settings: RunSettings | ClassifierSettings, **facts: Any
) -> None:
    """Versions, device, threads, command and hash of the settings, and `facts` beside them."""
    cuda = torch.cuda.is_available()
    everything = {
        "versions": {n: _version(n) for n in PACKAGES} | {"python": platform.python_version()},
        "device": torch.cuda.get_device_name(0) if cuda else platform.machine(),
        "threads": torch.get_num_threads(),
        "command": sys.argv,
        "config": fingerprint(settings),
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        **facts,
    }
    (folder / "environment.json").write_text(
        json.dumps(everything, indent=1, default=str) + "\n", encoding="utf-8"
    )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
