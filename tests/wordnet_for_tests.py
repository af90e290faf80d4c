"""A WordNet database of one synset, {car, auto}, in the format of wndb(5WN)."""

from __future__ import annotations

from pathlib import Path

HEADER = "  1 WordNet 9.9 Copyright of nobody.  All rights reserved.  \n"


def write_wordnet(folder: Path) -> Path:
    """The twelve files that a reader wants; `lexnames` is left out, as Debian does."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("noun", "verb", "adj", "adv"):
        (folder / f"data.{part}").write_text(HEADER)
        (folder / f"index.{part}").write_text(HEADER)
        (folder / f"{part}.exc").write_text("")
    offset = f"{len(HEADER):08d}"
    with (folder / "data.noun").open("a") as f:
        f.write(f"{offset} 06 n 02 car 0 auto 0 000 | a motor vehicle\n")
    with (folder / "index.noun").open("a") as f:
        f.writelines(f"{word} n 1 0 1 0 {offset}\n" for word in ("auto", "car"))
    return folder
