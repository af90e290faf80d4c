"""The records of a study as one small file, so that its tables can be computed again.

    python -m benchmarks.archive RECORDS benchmarks/records/imdb_first.tgz --seeds 0 1
    python -m benchmarks.collect_imdb benchmarks/records/imdb_first.tgz --date D --commit C

Numbers and settings only, and `notes.json` beside the runs of a study: what a person adds, since no
record says it. No sample, no text of one, and of a path what another machine has too. The same
records give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tether.config.text_values import read_yaml, write_yaml

FILES = (
    "record.jsonl", "timing.jsonl", "config.yaml", "environment.json", "results.json", "pilot.json",
    "notes.json",
)  # fmt: skip
STUDIES = ("study", "graph")
"""Folders of runs of which the seeds that were asked for are kept."""
PRIVATE = ("command", "folder", "host")
"""Keys of environment.json that say where a run was, not what it was."""


def portable(value: Any) -> Any:
    """Paths without the folders of one machine."""
    if isinstance(value, dict):
        return {k: portable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [portable(v) for v in value]
    if isinstance(value, str) and value.startswith("/"):
        parts = Path(value).parts
        made = [i for i, p in enumerate(parts) if p.startswith("imdb-")]
        return "/".join(("runs", *parts[made[0] :])) if made else parts[-1]
    return value


def _members(folder: Path, seeds: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    for file in sorted(p for p in folder.rglob("*") if p.name in FILES):
        run = file.parent
        if run.parent.name in STUDIES:
            config = read_yaml(run / "config.yaml")
            if int(config["seed"]) not in seeds:
                continue
        name = file.relative_to(folder).as_posix()
        if file.name == "environment.json":
            found = json.loads(file.read_text(encoding="utf-8"))
            kept = {k: v for k, v in found.items() if k not in PRIVATE}
            yield name, json.dumps(portable(kept), indent=1, sort_keys=True).encode()
        elif file.name == "config.yaml":
            with tempfile.TemporaryDirectory() as place:
                written = Path(place) / "config.yaml"
                write_yaml(written, portable(read_yaml(file)))
                yield name, written.read_bytes()
        else:
            yield name, file.read_bytes()


def archive(folder: Path, out: Path, seeds: Sequence[int]) -> int:
    """Write the archive; the number of its files."""
    buffer, count = io.BytesIO(), 0
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in _members(folder, seeds):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
            count += 1
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(gzip.compress(buffer.getvalue(), 9, mtime=0))
    return count


def main(words: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m benchmarks.archive")
    p.add_argument("records", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("--seeds", type=int, nargs="+", required=True)
    given = p.parse_args(words)
    count = archive(given.records, given.out, given.seeds)
    print(f"wrote {given.out}: {count} files, {given.out.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
