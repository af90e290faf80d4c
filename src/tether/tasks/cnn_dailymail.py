"""CNN/DailyMail 3.0.0: a news article and its highlights.

Source: Hermann et al. 2015, arXiv 1506.03340; See et al. 2017, arXiv 1704.04368.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.tasks.summarization import Summarization


@dataclass(kw_only=True)
class CNNDailyMail(Summarization):
    """News article -> its highlights, one a line. Source: allenai/RL4LMs@97df0bd."""

    hub: ClassVar[str] = "abisee/cnn_dailymail"
    hub_name: ClassVar[str | None] = "3.0.0"
    licence: ClassVar[str] = "Apache-2.0 scripts; texts (c) CNN and Daily Mail"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("article",), ("highlights",))
    columns: ClassVar[tuple[str, ...]] = ("document",)
    document: ClassVar[tuple[str, ...]] = ("article",)
    summary: ClassVar[tuple[str, ...]] = ("highlights",)
    sampling: ClassVar[Mapping[str, Any]] = {
        "max_new_tokens": 100,
        "min_new_tokens": 49,
        "top_k": 50,
    }
    evaluation: ClassVar[Mapping[str, Any]] = {"top_k": 0, "temperature": 0.7}
