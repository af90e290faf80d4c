"""`tether doctor [RECIPE]`: versions, devices, who owns the name `tether`, and a memory plan."""

from __future__ import annotations

import importlib.metadata as metadata
import os
import platform
import sys
from pathlib import Path

from tether.cli.helping import console
from tether.cli.train import divide
from tether.config.compose import compose
from tether.config.errors import UserError
from tether.config.run import RunSettings

PACKAGES = ("torch", "transformers", "accelerate", "peft", "datasets", "pydantic", "numpy")
OPTIONAL = ("trl", "scikit-learn", "tensorboard", "wandb", "gguf")
OURS = "tether-rl"


def other_owners() -> list[str]:
    """Installed distributions, other than ours, that bring a top-level package `tether`."""
    owners = metadata.packages_distributions().get("tether", [])
    return sorted({o for o in owners if o.lower().replace("_", "-") != OURS})


def doctor(words: list[str]) -> int:
    """Exit 1 where something stands in the way of a run."""
    if "-h" in words or "--help" in words:
        out = console()
        out.print(
            "usage: tether doctor [RECIPE] [--config FILE] [--a.b.c VALUE ...]\n", markup=False
        )
        out.print("Versions, devices, and what a recipe needs in memory before it starts.")
        return 0
    name, files, _, overrides = divide(words)
    settings = compose(name, files, overrides) if name or files or overrides else None
    bad = _versions() + _ownership() + _devices()
    if settings is not None:
        bad += _plan(settings)
    return 1 if bad else 0


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _versions() -> int:
    out = console()
    out.print(f"python {platform.python_version()}, {OURS} {_version(OURS) or 'not installed'}")
    missing = [p for p in PACKAGES if _version(p) is None]
    out.print(", ".join(f"{p} {_version(p) or 'MISSING'}" for p in PACKAGES), markup=False)
    out.print(
        "optional: " + ", ".join(f"{p} {_version(p) or 'not installed'}" for p in OPTIONAL),
        markup=False,
    )
    for package in missing:
        out.print(f"problem: {package} is not installed: pip install {package}", markup=False)
    return len(missing)


def _ownership() -> int:
    import tether

    out = console()
    bad = other_owners()
    for owner in bad:
        out.print(
            f"problem: the distribution '{owner}' also owns the import name tether: "
            f"pip uninstall {owner}, then pip install --force-reinstall {OURS}",
            markup=False,
        )
    here = Path(tether.__file__ or "").parent
    out.print(f"import tether: {here}", markup=False)
    return len(bad)


def _devices() -> int:
    out = console()
    try:
        import torch
    except ImportError as e:
        out.print(f"problem: torch cannot be imported: {e}", markup=False)
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    out.print(f"cpu: {cores} cores, torch uses {torch.get_num_threads()} threads")
    for i in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(i)
        out.print(
            f"cuda:{i}: {torch.cuda.get_device_name(i)}, {free / 1e9:.1f} of {total / 1e9:.1f} GB "
            f"free, bfloat16 {'yes' if torch.cuda.is_bf16_supported() else 'no'}",
            markup=False,
        )
    if torch.cuda.device_count() == 0:
        out.print("no accelerator: runs use the cpu in float32")
    return 0


def _plan(settings: object) -> int:
    """Print the memory plan of a policy run against the free memory of its device."""
    if not isinstance(settings, RunSettings):
        raise UserError("doctor plans the memory of policy runs; a classifier needs about half")
    from rich.table import Table

    from tether.cli.memory import plan, shape_of, size
    from tether.models.loading import resolve_device, resolve_dtype

    if not settings.model.path:
        raise UserError("no model: give --model HUB_ID_OR_FOLDER")
    device = resolve_device(settings.model.device)
    dtype = str(resolve_dtype(settings.model.dtype, device)).removeprefix("torch.")
    rows = plan(settings, shape_of(settings.model), dtype)
    table = Table(box=None, header_style="bold")
    table.add_column("memory of")
    table.add_column("size", justify="right")
    table.add_column("where")
    table.add_column("why")
    for row in rows:
        table.add_row(row.what, size(row.bytes), row.where, row.why)
    out = console()
    out.print(f"\nplan for {settings.name} on {device} in {dtype}", markup=False)
    out.print(table)
    need = sum(r.bytes for r in rows if r.where == "device")
    free = free_memory(str(device))
    out.print(f"together {size(need)}; free on {device}: {size(free)}", markup=False)
    if need > free:
        out.print(
            "problem: it does not fit; smaller --batch.microbatch, --sampling.chunk, "
            "--critic.kind detached or --model.lora.rank 16 need less",
            markup=False,
        )
        return 1
    return 0


def free_memory(device: str) -> int:
    """Bytes that a new process could have."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    if sys.platform == "linux":
        with open("/proc/meminfo", encoding="ascii") as f:
            for line in f:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
