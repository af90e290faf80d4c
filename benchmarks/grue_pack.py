"""What the real runs of the benchmark need, as packed folders of few megabytes.

    python -m benchmarks.grue_pack --data ../shared/data --wordnet /usr/share/wordnet --out .grue \\
        --gguf SmolLM2-135M-Instruct.Q4_1.gguf --tokenizer smollm2-tokenizer \\
        --sentiment imdb-classifier

`--out` is a folder that is never committed: the sets have licences of their own. It gets:

    t5/       sets of CommonGen, FairytaleQA and Multi30k; texts and tokenizer for the denoising;
              WordNet
    smollm2/  sets of IMDB, DailyDialog, SciTLDR and DART; pairs of turns with their intent; the
              sentiment classifier; the model's tokenizer; WordNet
    gguf/     the model's weights

Splits are whole where that is small; of IMDB the rows that `IMDB_ROWS` says, drawn with a fixed
seed; of DART's validation file, which alone is at hand, a fixed part each, no two of them with a
subject in common. `pack-NAME.json` in each archive has the sha256 of every file. The denoising
reads no validation or test row of any task: what is equal to one, in whatever set, is left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.denoising import train_tokenizer
from benchmarks.parts import PIECE, cut, packed, sha256

SPLITS = {
    "commongen": {"train": "train", "validation": "dev", "test": "test"},
    "fairytaleqa": {"train": "train", "validation": "val", "test": "test"},
    "multi30k": {"train": "train", "validation": "val", "test": "test2016"},
    "imdb": {"train": "train", "validation": "train", "test": "test"},
    "dailydialog": {"train": "train", "validation": "validation", "test": "test"},
    "scitldr": {"train": "train", "validation": "dev", "test": "test"},
    "dart": {"train": "dev", "validation": "dev", "test": "dev"},
}
"""Task -> our split -> the file's name."""
GROUPS = {
    "t5": ("commongen", "fairytaleqa", "multi30k"),
    "smollm2": ("imdb", "dailydialog", "scitldr", "dart"),
}
"""Model -> its tasks."""
COLUMNS = {
    "commongen": ("concepts", "references"),
    "fairytaleqa": ("question", "answers", "context"),
    "multi30k": ("en", "de"),
    "imdb": ("text", "label"),
    "dailydialog": ("utterances", "act", "emotion"),
    "scitldr": ("source", "target"),
    "dart": ("tripleset", "targets"),
}
IMDB_ROWS = {"train": 14_000, "validation": 1_000, "test": 1_500}
"""Of its training set the first go to validation, the next to training."""
DART_ROWS = {"validation": 300, "test": 600}
"""At least, of the one file at hand; the others are for training."""
INTENTS = {"train": 24_000, "validation": 2_000}
"""Pairs of turns for the classifier of intents."""
WORDNET = [
    f"{kind}.{part}" for part in ("noun", "verb", "adj", "adv") for kind in ("index", "data")
]
WORDNET += [f"{part}.exc" for part in ("noun", "verb", "adj", "adv")]
"""Files of its database that METEOR reads."""
VOCABULARY = 12_100
TOKENIZER_TEXTS = 200_000
"""Texts that the merges are counted on."""
QUICK_ROWS = 300


def rows_of(data: Path, task: str, split: str) -> list[dict[str, Any]]:
    """Rows of a split with the columns that the task reads; of IMDB and DART a fixed part."""
    import pyarrow.parquet

    file = data / task / f"{SPLITS[task][split]}.parquet"
    table = pyarrow.parquet.read_table(file, columns=list(COLUMNS[task]))
    rows: list[dict[str, Any]] = table.to_pylist()
    if task == "imdb":
        random.Random(0).shuffle(rows)
        first = IMDB_ROWS["validation"] if split == "train" else 0
        rows = rows[first : first + IMDB_ROWS[split]]
    if task == "dart":
        rows = by_subject(rows)[split]
    return rows


def by_subject(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Sets of triples by split, those that are linked by their subjects in one of them: of one
    restaurant or person a model must not have read other sets. Whole links, in a fixed random
    order, go to test and validation until those have enough."""
    link: dict[str, str] = {}

    def first(subject: str) -> str:
        while link.setdefault(subject, subject) != subject:
            subject = link[subject]
        return subject

    for row in rows:
        for triple in row["tripleset"]:
            link[first(triple[0])] = first(row["tripleset"][0][0])
    linked: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        linked.setdefault(first(row["tripleset"][0][0]), []).append(row)
    found: dict[str, list[dict[str, Any]]] = {split: [] for split in (*DART_ROWS, "train")}
    order = list(linked.values())
    random.Random(0).shuffle(order)
    for group in order:
        split = next((s for s, n in DART_ROWS.items() if len(found[s]) < n), "train")
        found[split] += group
    return found


def whole(value: Any) -> list[str]:
    """One text; what lies in a list is joined by spaces."""
    return [" ".join(value) if isinstance(value, list) else str(value)]


def column(data: Path, file: str, *names: str) -> Iterator[tuple[str, ...]]:
    """Texts of one or several columns, row by row; lists are joined by spaces."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(data / file, columns=list(names))
    for row in table.to_pylist():
        found = [row[n] for n in names]
        yield tuple(text for value in found for text in whole(value))


def apart(value: Sequence[str]) -> list[str]:
    """Each entry of a list is a text."""
    return list(value)


TEXTS: dict[str, dict[str, Callable[[Any], list[str]]]] = {
    "commongen": {"references": apart},
    "fairytaleqa": {"context": whole},
    "multi30k": {"en": whole, "de": whole},
    "imdb": {"text": whole},
    "dailydialog": {"utterances": whole},
    "scitldr": {"source": whole, "target": whole},
    "dart": {"targets": apart},
}
"""Columns of a task that must not be read before it is measured on them -> the texts in a value."""


def held_out(data: Path) -> dict[str, set[str]]:
    """Task -> texts of its validation and test rows."""
    found: dict[str, set[str]] = {}
    for task, columns in TEXTS.items():
        rows = (r for split in ("validation", "test") for r in rows_of(data, task, split))
        texts = (t for row in rows for name, read in columns.items() for t in read(row[name]))
        found[task] = {plain(t) for t in texts} - {""}
    return found


def plain(text: str) -> str:
    """Without line breaks of HTML, spaces single."""
    return " ".join(text.replace("<br />", " ").split())


def denoising_texts(data: Path) -> list[str]:
    """What the small T5 reads: training texts of its tasks and other texts at hand. Tatoeba's pairs
    stand side by side, so that it sees what the two languages have to do with each other. A row
    with a text that is one of `held_out` is left out, and so is a story around one."""
    held = held_out(data)
    contexts = held["fairytaleqa"]
    stories = (plain(s) for (s,) in column(data, "fairytaleqa/stories_train.parquet", "text"))
    rows: list[tuple[str, ...]] = []
    rows += column(data, "tatoeba/en_de.parquet", "en", "de")
    rows += column(data, "multi30k/train.parquet", "en")
    rows += column(data, "multi30k/train.parquet", "de")
    for row in rows_of(data, "commongen", "train"):
        rows += [(r,) for r in row["references"]]
    for story in stories:
        if not any(c in story for c in contexts):
            rows += [(piece,) for piece in _pieces(story)]
    rows += column(data, "europarl_en_fr/train_60k.parquet", "en")
    rows += column(data, "imdb/train.parquet", "text")
    rows += column(data, "stackexchange_pairs/questions.parquet", "question")
    rows += column(data, "dailydialog/train.parquet", "utterances")
    rows += column(data, "scitldr/train.parquet", "source", "target")
    # DialogSum is no part of it: some of its dialogues are DailyDialog's, in other words
    unseen = set().union(*held.values())
    parts = ([plain(t) for t in row] for row in rows)
    kept = dict.fromkeys(plain(" ".join(p)) for p in parts if unseen.isdisjoint(p))
    texts = [t for t in kept if t and t not in unseen]
    random.Random(0).shuffle(texts)
    return texts


def _pieces(story: str, words: int = 150) -> Iterator[str]:
    found = story.split()
    for at in range(0, len(found), words):
        yield " ".join(found[at : at + words])


def intents(data: Path, split: str) -> list[dict[str, Any]]:
    """Pairs of turns as the metric of intents reads them, and the act of the second."""
    rows = []
    for row in rows_of(data, "dailydialog", split):
        said = [u.strip() for u in row["utterances"]]
        for before, now, act in zip(said, said[1:], row["act"][1:], strict=False):
            rows.append({"text": f"{before} {now}", "label": str(act)})
    random.Random(0).shuffle(rows)
    return rows[: INTENTS[split]]


def write_rows(file: Path, rows: Iterable[Any]) -> None:
    """JSON lines, gzip; the same rows give the same bytes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def write_tasks(data: Path, folder: Path, group: str, quick: bool) -> None:
    for task in GROUPS[group]:
        for split in SPLITS[task]:
            rows = rows_of(data, task, split)
            write_rows(
                folder / "data" / task / f"{split}.jsonl.gz", rows[: QUICK_ROWS if quick else None]
            )
    if group == "smollm2":
        for split in INTENTS:
            rows = intents(data, split)
            write_rows(
                folder / "data" / "intents" / f"{split}.jsonl.gz",
                rows[: QUICK_ROWS if quick else None],
            )


def wordnet(source: Path, folder: Path) -> None:
    """What METEOR reads of it."""
    (folder / "wordnet").mkdir(parents=True, exist_ok=True)
    for name in WORDNET:
        shutil.copyfile(source / name, folder / "wordnet" / name)


def sentiment(source: Path, folder: Path) -> None:
    """The classifier of `benchmarks.imdb_first`, whose note then names this study's folders."""
    target = folder / "models" / "imdb-classifier"
    target.mkdir(parents=True, exist_ok=True)
    note = json.loads((source / "classifier.json").read_text(encoding="utf-8"))
    note["backbone"] |= {"path": "models/smollm2", "tokenizer": "models/smollm2-tokenizer"}
    (target / "classifier.json").write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(source / "adapter_model.safetensors", target / "adapter_model.safetensors")


def finish(folder: Path, out: Path, name: str, piece: int = PIECE) -> None:
    """List the files, write the archive, tell its size."""
    files = sorted(f for f in folder.rglob("*") if f.is_file())
    listed = {f.relative_to(folder).as_posix(): sha256(f) for f in files}
    note = folder / f"pack-{name}.json"
    note.write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    preset = None if name == "gguf" else 9  # quantised weights hardly shrink
    made = cut(packed(folder, [*files, note], preset), out / name, name, piece)
    size = sum(p.stat().st_size for p in made)
    print(f"{name}: {len(files)} files, {size:,} bytes in {len(made)} pieces", flush=True)


def main(words: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m benchmarks.grue_pack", description="see the module")
    p.add_argument("--data", type=Path, required=True, help="folder of the sets")
    p.add_argument("--wordnet", type=Path, required=True, help="folder of WordNet's database")
    p.add_argument("--gguf", type=Path, help="SmolLM2's weights")
    p.add_argument("--tokenizer", type=Path, help="folder of SmolLM2's tokenizer")
    p.add_argument("--sentiment", type=Path, help="classifier/ of the first study on IMDB")
    p.add_argument("--only", nargs="+", choices=("t5", "smollm2", "gguf"))
    p.add_argument("--quick", action="store_true", help="few rows (a rehearsal)")
    p.add_argument("--out", type=Path, required=True)
    given = p.parse_args(words)
    wanted = given.only or ("t5", "smollm2", "gguf")
    for name in wanted:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            if name in GROUPS:
                write_tasks(given.data, folder, name, given.quick)
                wordnet(given.wordnet, folder)
            if name == "t5":
                texts = denoising_texts(given.data)[: 4000 if given.quick else None]
                write_rows(folder / "data" / "denoising.jsonl.gz", texts)
                made = train_tokenizer(
                    texts[:TOKENIZER_TEXTS], 2_100 if given.quick else VOCABULARY
                )
                made.save_pretrained(folder / "models" / "t5-tokenizer")
            elif name == "smollm2":
                if given.tokenizer:
                    shutil.copytree(given.tokenizer, folder / "models" / "smollm2-tokenizer")
                if given.sentiment:
                    sentiment(given.sentiment, folder)
            elif given.gguf is None:
                p.error("gguf needs --gguf FILE")
            else:
                target = folder / "models" / "smollm2" / given.gguf.name
                target.parent.mkdir(parents=True)
                shutil.copyfile(given.gguf, target)
            finish(folder, given.out, name, 3 * PIECE if name == "gguf" else PIECE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
