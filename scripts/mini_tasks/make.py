"""Write the miniature task sets of src/tether/tasks/mini: 64 rows in the schema of each of the
seven tasks, from templates of our own. No text of any dataset is in them.

    python scripts/mini_tasks/make.py            # write
    python scripts/mini_tasks/make.py --check    # exit 1 where a file is not what this would write

40 rows train, 12 validate, 12 test (column `split`). The same script gives the same bytes.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from talk import DIALOGUES, STORY, TRANSLATION
from texts import FILMS, REPORTS, SCENES, TABLES
from words import Words

FOLDER = Path(__file__).resolve().parents[2] / "src" / "tether" / "tasks" / "mini"
ROWS = {"train": 40, "validation": 12, "test": 12}
Row = dict[str, Any]


def imdb(rng: random.Random) -> Row:
    """text, label: a review of an invented film; 1 praises, 0 blames."""
    label = rng.randrange(2)
    w = Words(rng)
    verdicts = FILMS["good" if label else "bad"]
    first, last = rng.sample(verdicts["close"], 2)
    middle = rng.sample(verdicts["middle"], 3)
    opening = rng.choice(FILMS["plain"]["open"])
    plot = rng.choice(FILMS["plain"]["plot"])
    sentences = [opening, plot, *middle, first, last]
    return {"text": w.filled(" ".join(sentences)), "label": label}


def commongen(rng: random.Random) -> Row:
    """concepts, references: a scene and its sentences; each has all concepts."""
    scene = rng.choice(SCENES)
    w = Words(rng, scene["slots"])
    references = [w.filled(t) for t in scene["sentences"]]
    concepts = [w.filled(c) for c in scene["concepts"]]
    rng.shuffle(concepts)
    return {"concepts": concepts, "references": references}


def cnn_dailymail(rng: random.Random) -> Row:
    """article, highlights, id: a report of a small town, and three lines of it."""
    report = rng.choice(REPORTS)
    w = Words(rng, report["slots"])
    article = w.filled(" ".join(report["article"]))
    highlights = w.filled("\n".join(report["highlights"]))
    return {"article": article, "highlights": highlights, "id": f"{rng.getrandbits(160):040x}"}


def totto(rng: random.Random) -> Row:
    """A table in which three cells of one row are highlighted, and two sentences about them."""
    kind, page = rng.choice(TABLES), Words(rng)
    header = kind["header"]
    body = []
    for name in rng.sample(kind["names"], 5):
        w = Words(rng)
        body.append([name, *(w.filled(c) for c in kind["cells"])])
    at, third = rng.randrange(len(body)), rng.randrange(2, len(header))
    table = [
        [{"value": v, "is_header": r == 0, "column_span": 1, "row_span": 1} for v in row]
        for r, row in enumerate([header, *body])
    ]
    title = page.filled(kind["page"])
    facts = dict(zip(header, body[at], strict=True)) | {"page": title}
    sentences = [t for column, t in kind["sentences"] if column == header[third]]
    return {
        "table_page_title": title,
        "table_section_title": kind["section"],
        "table_section_text": "",
        "table": table,
        "highlighted_cells": [[at + 1, c] for c in (0, 1, third)],
        "overlap_subset": "False",
        "sentence_annotations": [{"final_sentence": s.format(**facts)} for s in sentences],
    }


def iwslt17(rng: random.Random) -> Row:
    """translation: an English sentence and its German translation, clause by clause."""
    subject = rng.choice(TRANSLATION["subjects"])
    number = subject["number"]
    verb = rng.choice(TRANSLATION["verbs"])
    thing = rng.choice(TRANSLATION["objects"][verb["takes"]])
    time, place = rng.choice(TRANSLATION["times"]), rng.choice(TRANSLATION["places"])
    en = f"{subject['en']} {verb['en'][number]} {thing['en']} {place['en']}"
    en = f"{time['en']}, {en}." if time["first"] else f"{en} {time['en']}."
    # a German main clause has its verb second, whatever stands first
    if time["first"]:
        de = f"{time['de']} {verb['de'][number]} {subject['de']} {thing['de']} {place['de']}."
    else:
        de = f"{subject['de']} {verb['de'][number]} {time['de']} {thing['de']} {place['de']}."
    return {"translation": {"en": _capital(en), "de": _capital(de)}}


def narrativeqa(rng: random.Random) -> Row:
    """question, answers, summary: a short tale and a question that it answers."""
    w = Words(rng, STORY["slots"])
    summary = w.filled(" ".join(rng.choice(part) for part in STORY["parts"]))
    question, answers = rng.choice(STORY["questions"])
    return {
        "document": {"summary": {"text": summary}},
        "question": {"text": w.filled(question)},
        "answers": [{"text": w.filled(a)} for a in answers],
    }


def dailydialog(rng: random.Random) -> Row:
    """dialog, act, emotion: seven utterances; acts 1 inform, 2 question, 3 directive, 4
    commissive; emotions 0 none, 4 happiness, 5 sadness, 6 surprise."""
    talk = rng.choice(DIALOGUES)
    w = Words(rng, talk["slots"])
    turns = [(w.filled(rng.choice(texts)), act, mood) for texts, act, mood in talk["turns"]]
    dialog, acts, moods = (list(x) for x in zip(*turns, strict=True))
    return {"dialog": dialog, "act": acts, "emotion": moods}


TASKS: dict[str, Callable[[random.Random], Row]] = {
    f.__name__: f
    for f in (imdb, commongen, cnn_dailymail, totto, iwslt17, narrativeqa, dailydialog)
}


def key(row: Row) -> str:
    """What no two rows of a set may share: the input, without what is measured on it."""
    if "concepts" in row:
        return " ".join(sorted(row["concepts"]))
    if "dialog" in row:
        return " ".join(row["dialog"][:5])
    if "translation" in row:
        return str(row["translation"]["en"])
    return json.dumps([row.get(k) for k in ("text", "article", "table", "document", "question")])


def lines(name: str) -> bytes:
    """The 64 rows of one task as JSON lines."""
    rng = random.Random(f"tether mini {name}")
    rows: dict[str, Row] = {}
    tries = 0
    while len(rows) < sum(ROWS.values()):
        row = TASKS[name](rng)
        rows.setdefault(key(row), row)
        tries += 1
        if tries > 10_000:
            raise SystemExit(f"{name}: only {len(rows)} different rows; add to its templates")
    splits = [s for s, n in ROWS.items() for _ in range(n)]
    out = [{"split": s, **r} for s, r in zip(splits, rows.values(), strict=True)]
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in out).encode()


def packed(content: bytes) -> bytes:
    return gzip.compress(content, 9, mtime=0)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def main(arguments: list[str]) -> int:
    stale = []
    for name in TASKS:
        content, path = lines(name), FOLDER / f"{name}.jsonl.gz"
        if arguments == ["--check"]:
            if not path.is_file() or gzip.decompress(path.read_bytes()) != content:
                stale.append(path.name)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(packed(content))
            print(f"{path.name}: {len(content)} bytes, {path.stat().st_size} packed")
    if stale:
        print(f"stale: {', '.join(stale)}; run python scripts/mini_tasks/make.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
