"""XSum: an article of the BBC and one sentence. Stands in for CNN/DailyMail where that is absent.

Source: Narayan et al. 2018, arXiv 1808.08745.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.tasks.summarization import ONE_SENTENCE, Summarization


@dataclass(kw_only=True)
class XSum(Summarization):
    """BBC article -> one sentence. Source: Narayan et al. 2018; decoding as CNN/DailyMail, without
    its least length: references have 21 words on average."""

    hub: ClassVar[str] = "EdinburghNLP/xsum"
    hub_revision: ClassVar[str | None] = "refs/convert/parquet"
    licence: ClassVar[str] = "none for the data; texts (c) BBC; research only"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("document",), ("summary", "target"))
    columns: ClassVar[tuple[str, ...]] = ("document",)
    document: ClassVar[tuple[str, ...]] = ("document",)
    summary: ClassVar[tuple[str, ...]] = ("summary", "target")
    metrics: ClassVar[tuple[str, ...]] = ONE_SENTENCE
    beside: ClassVar[tuple[str, ...]] = ("rouge_lsum",)
    sampling: ClassVar[Mapping[str, Any]] = {"max_new_tokens": 64, "top_k": 50}
    evaluation: ClassVar[Mapping[str, Any]] = {"top_k": 0, "temperature": 0.7}
