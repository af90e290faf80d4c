"""Of which metrics less is better, by name: reports say so without importing them."""

from __future__ import annotations

from tether.config.catalog import CATALOG

LESS_IS_BETTER = ("ter", "common_ngram_share", "perplexity", "perplexity_mean_of_texts",
                  "perplexity_joined", "perplexity_by_group")  # fmt: skip
"""Metrics of which less is better: what their classes say, without an import."""


def less_is_better(metric: str) -> bool | None:
    """Of a metric by its name, in whatever case; None for a name that the catalog does not have."""
    name = metric.strip().lower().replace("-", "_")
    return name in LESS_IS_BETTER if name in CATALOG["metric"] else None
