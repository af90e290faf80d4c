"""SciTLDR: the abstract of a paper and one sentence. Stands in for CNN/DailyMail.

Source: Cachola et al. 2020, arXiv 2004.15011.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.tasks.summarization import ONE_SENTENCE, Summarization


@dataclass(kw_only=True)
class SciTLDR(Summarization):
    """Abstract of a paper -> one sentence, several references in validation and test. Source:
    Cachola et al. 2020, arXiv 2004.15011; decoding as XSum."""

    hub: ClassVar[str] = "allenai/scitldr"
    hub_name: ClassVar[str | None] = "Abstract"
    hub_revision: ClassVar[str | None] = "refs/convert/parquet"
    licence: ClassVar[str] = "Apache-2.0"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("source",), ("target",))
    columns: ClassVar[tuple[str, ...]] = ("document",)
    document: ClassVar[tuple[str, ...]] = ("source",)
    summary: ClassVar[tuple[str, ...]] = ("target",)
    metrics: ClassVar[tuple[str, ...]] = ONE_SENTENCE
    beside: ClassVar[tuple[str, ...]] = ("rouge_lsum",)
    sampling: ClassVar[Mapping[str, Any]] = {"max_new_tokens": 64, "top_k": 50}
    evaluation: ClassVar[Mapping[str, Any]] = {"top_k": 0, "temperature": 0.7}
