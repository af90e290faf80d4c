"""Fixed human texts of the drift gauges: in domain (with labels) and of other domains."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tether.config.errors import UserError
from tether.config.run import DataSettings, EvaluationSettings
from tether.metrics.perplexity import answered_texts, halved_texts, whole_texts
from tether.models.language_model import LanguageModel
from tether.tasks.reading import read, utf8
from tether.tasks.task import Task
from tether.types import Sequences


@dataclass(frozen=True)
class HumanText:
    """`domain`: prompt + reference of validation rows (an encoder-decoder model reads the one and
    predicts the other); `others`: name -> texts."""

    domain: Sequences | None
    labels: list[Any] | None
    others: dict[str, Sequences]


def load_human(
    lm: LanguageModel, task: Task | None, data: DataSettings, settings: EvaluationSettings
) -> HumanText:
    """At most `human_rows` texts each, `human_tokens` long. Absent where the data have none."""
    n, limit = settings.human_rows, settings.human_tokens
    if lm.max_positions is not None:
        limit = min(limit, lm.max_positions - 1)  # one position is the start's
    start = getattr(lm.tokenizer, "bos_token_id", None)
    domain, labels = None, None
    if n and task is not None and task.references is not None:
        prompts, references = task.prompts[:n], task.references[:n]
        if lm.seq2seq:
            domain, kept = answered_texts(prompts, references, lm.pad, limit)
        else:
            rows = [p + r for p, r in zip(prompts, references, strict=True)]
            domain, kept = whole_texts(rows, start, lm.pad, limit)
        if data.label is not None:
            labels = [task.columns[data.label][i] for i in kept]
    others = {}
    for name, path in settings.domains.items() if n else ():
        ids = [lm.tokenizer(t)["input_ids"] for t in _texts(Path(path), name)[:n]]
        if lm.seq2seq:
            others[name], _ = halved_texts(ids, lm.pad, limit, lm.encoder_positions)
        else:
            others[name], _ = whole_texts(ids, start, lm.pad, limit)
    return HumanText(domain, labels, others)


def check_domains(settings: EvaluationSettings) -> None:
    """Raises UserError for texts of other domains that cannot be read."""
    for name, path in settings.domains.items() if settings.human_rows else ():
        _texts(Path(path), name)


def _texts(path: Path, name: str) -> list[str]:
    """Paragraphs of a text file, or the `text` column of a dataset file."""
    where = f"evaluation.domains.{name}"
    if not path.exists():
        raise UserError(f"{where}: there is no file {path}")
    if path.name.endswith((".txt", ".txt.gz")):
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8-sig") as f:
            texts = [t.strip() for t in f.read().split("\n") if len(t.split()) >= 8]
    else:
        try:
            table = read(DataSettings(path=str(path)), "train")
        except UserError as e:
            raise UserError(f"{where}: {str(e).removeprefix('data.path ')}") from e
        if "text" not in table:
            raise UserError(f"{where}: {path} has no column 'text' but {sorted(table)}")
        texts = list(table["text"])
        for row, text in enumerate(texts, 1):
            if not isinstance(text, str):
                raise UserError(
                    f"{where}: row {row} of {path} holds {text!r:.60} in the column 'text', "
                    "expected text"
                )
            try:
                utf8(text, row, "text")
            except UserError as e:
                raise UserError(f"{where}: {e}") from e
    if not texts:
        raise UserError(f"{where}: {path} holds no text of at least 8 words")
    return texts
