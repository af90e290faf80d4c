"""What Ramamurthy et al. (arXiv 2210.01241 v2) print for the tasks of the real runs or for those
that they stand for: means over 5 seeds where there are several, on the paper's models and splits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PAPER = "Ramamurthy et al., arXiv 2210.01241 v2"
DATE = "2022-11-01"


@dataclass(frozen=True)
class Published:
    """One table of the paper."""

    task: str
    """The paper's task."""
    table: str
    columns: Sequence[str]
    """Our names of its metrics."""
    rows: Mapping[str, Sequence[float]]
    differs: str = ""
    """What makes its numbers another quantity than ours."""


TABLES: Mapping[str, Published] = {
    "imdb": Published(
        "IMDB",
        "table 5",
        ("classifier", "perplexity", "msttr", "distinct_1", "distinct_2"),
        {
            "zero-shot": (0.489, 32.171, 0.682, 0.042, 0.294),
            "supervised": (0.539, 35.472, 0.682, 0.047, 0.312),
            "ppo": (0.605, 33.497, 0.666, 0.043, 0.287),
            "nlpo": (0.637, 32.667, 0.677, 0.044, 0.288),
            "supervised+ppo": (0.617, 34.078, 0.672, 0.047, 0.308),
            "supervised+nlpo": (0.645, 33.191, 0.656, 0.049, 0.300),
        },
        "GPT-2, DistilBERT as the classifier, perplexity over joined texts; at the target KL that "
        "the paper picked for each method (.5 for PPO, 1.0 for NLPO). Distinct-n falls as the "
        "number of texts grows; ours is of at most 500, so the two cannot be compared.",
    ),
    "commongen": Published(
        "CommonGen",
        "table 12",
        ("rouge_2", "rouge_l", "meteor", "cider_d", "coverage"),
        {
            "zero-shot": (0.016, 0.264, 0.203, 6.200, 0.9107),
            "supervised": (0.215, 0.438, 0.321, 16.385, 0.9448),
            "ppo": (0.091, 0.308, 0.220, 7.251, 0.7972),
            "nlpo": (0.110, 0.332, 0.235, 8.669, 0.8201),
            "supervised+ppo": (0.234, 0.450, 0.327, 16.797, 0.9769),
            "supervised+nlpo": (0.231, 0.449, 0.326, 16.574, 0.9737),
        },
        "t5-base, the later CommonGen of 67,389 training sentences, beam search; its METEOR and "
        "CIDEr are the leaderboard's, other implementations than ours. Its CIDEr is on another "
        "scale: ours cannot pass 10. Rows of the METEOR reward.",
    ),
    "fairytaleqa": Published(
        "NarrativeQA",
        "table 28",
        ("rouge_1", "rouge_l", "rouge_l_max", "bleu", "meteor"),
        {
            "zero-shot": (0.095, 0.084, 0.117, 0.009, 0.095),
            "supervised": (0.378, 0.367, 0.581, 0.209, 0.099),
            "ppo": (0.099, 0.087, 0.122, 0.010, 0.099),
            "nlpo": (0.102, 0.089, 0.124, 0.010, 0.100),
            "supervised+ppo": (0.380, 0.371, 0.585, 0.229, 0.090),
            "supervised+nlpo": (0.398, 0.393, 0.589, 0.240, 0.096),
        },
        "Another task: NarrativeQA, t5-base and UnifiedQA, summaries of books and films, beam "
        "search. ROUGE-L is that of the best answer here, and so is ROUGE-L max.",
    ),
    "multi30k": Published(
        "IWSLT17 English-German",
        "table 30",
        ("sacre_bleu", "chrf", "ter", "meteor"),
        {
            "zero-shot": (0.308, 0.577, 0.573, 0.445),
            "supervised": (0.337, 0.593, 0.538, 0.461),
            "ppo": (0.296, 0.575, 0.583, 0.448),
            "nlpo": (0.299, 0.578, 0.578, 0.450),
            "supervised+ppo": (0.332, 0.596, 0.542, 0.465),
            "supervised+nlpo": (0.346, 0.593, 0.535, 0.471),
        },
        "Another task: talks instead of captions, and t5-base was trained to translate. PPO there "
        "on SacreBLEU, NLPO on the supervised model on TER; the reward of the other two rows is "
        "not known here; beam search.",
    ),
    "dailydialog": Published(
        "DailyDialog",
        "table 33",
        ("rouge_1", "meteor", "sacre_bleu", "intent_accuracy"),
        {
            "zero-shot": (0.157, 0.191, 0.066, 0.427),
            "supervised": (0.162, 0.186, 0.064, 0.437),
            "ppo": (0.168, 0.221, 0.085, 0.474),
            "nlpo": (0.169, 0.221, 0.087, 0.490),
            "supervised+ppo": (0.169, 0.198, 0.071, 0.455),
            "supervised+nlpo": (0.171, 0.205, 0.074, 0.458),
        },
        "GPT-2 and a RoBERTa that knows four intents; its METEOR averages over earlier episodes.",
    ),
    "scitldr": Published(
        "CNN/DailyMail",
        "table 17",
        ("rouge_1", "rouge_2", "rouge_l", "rouge_lsum", "meteor", "bleu"),
        {
            "zero-shot": (0.372, 0.145, 0.247, 0.311, 0.256, 0.077),
            "supervised": (0.411, 0.177, 0.276, 0.343, 0.309, 0.108),
            "ppo": (0.410, 0.182, 0.283, 0.349, 0.276, 0.095),
            "supervised+ppo": (0.426, 0.194, 0.293, 0.361, 0.316, 0.125),
            "supervised+nlpo": (0.429, 0.194, 0.293, 0.361, 0.319, 0.124),
        },
        "Another task: three sentences of a news article instead of one of an abstract, and "
        "t5-base was trained to summarise. PPO there on ROUGE-1, the last two on METEOR.",
    ),
    "dart": Published(
        "ToTTo",
        "table 23",
        ("sacre_bleu", "parent"),
        {
            "zero-shot": (0.036, 0.116),
            "supervised": (0.457, 0.583),
            "ppo": (0.144, 0.356),
            "nlpo": (0.102, 0.329),
            "supervised+ppo": (0.469, 0.595),
            "supervised+nlpo": (0.474, 0.596),
        },
        "Another task: highlighted cells of tables instead of triples, t5-base, beam search. PPO "
        "and NLPO there on METEOR, the last two on PARENT.",
    ),
}
"""Our task -> what the paper has of it, or of the task that it stands for."""
