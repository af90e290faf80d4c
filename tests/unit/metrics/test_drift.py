"""Named gauges from scores, by hand; nothing outside a mask matters (invariant 4)."""

from __future__ import annotations

import math

import pytest
import torch

from tether.metrics.drift import Gauges, on_domains, on_human, own_samples, per_sequence
from tether.types import Scores

MASK = torch.tensor([[True, True, False], [True, False, False]])
POLICY = torch.tensor([[-1.0, -2.0, 9e9], [-0.5, 9e9, 9e9]])
INITIAL = torch.tensor([[-1.5, -2.0, -9e9], [-1.5, -9e9, -9e9]])
EXACT = torch.tensor([[0.2, 0.4, 9e9], [0.6, 9e9, 9e9]])


def scores(
    logprobs: torch.Tensor, exact: torch.Tensor | None = None, entropy: torch.Tensor | None = None
) -> Scores:
    kl = {} if exact is None else {"initial": exact}
    return Scores(logprobs, logprobs, entropy=entropy, exact_kl=kl)


def test_own_samples() -> None:
    got = own_samples(scores(POLICY, EXACT, EXACT * 10), scores(INITIAL), MASK)
    assert got.absent == {}
    assert got.values == pytest.approx(
        {
            "drift/kl_initial.exact_nats_per_seq": 0.6,
            "drift/kl_initial.exact_nats_per_token": 0.4,
            "drift/kl_initial.k1_nats_per_seq": 0.75,
            "drift/kl_initial.k1_nats_per_token": 0.5,
            "policy/entropy_nats_per_token": 4.0,
            "text/perplexity_under_initial": math.exp(5 / 3),
        }
    )
    assert per_sequence(EXACT, MASK).tolist() == pytest.approx([0.6, 0.6])


def test_equal_models_have_no_drift_at_all() -> None:
    same = own_samples(scores(POLICY, EXACT * 0), scores(POLICY), MASK).values
    assert same["drift/kl_initial.exact_nats_per_seq"] == 0.0
    assert same["drift/kl_initial.k1_nats_per_seq"] == 0.0


def test_what_was_not_scored_is_absent_with_its_reason() -> None:
    got = own_samples(scores(POLICY), scores(INITIAL), MASK)
    assert "drift/kl_initial.exact_nats_per_seq" not in got.values
    assert got.absent["drift/kl_initial.exact_nats_per_seq"].startswith("no resident initial")
    assert got.absent["policy/entropy_nats_per_token"] == "entropy was not scored"
    none = own_samples(scores(POLICY, EXACT, EXACT), scores(INITIAL), torch.zeros_like(MASK))
    assert none.absent["drift/kl_initial.exact_nats_per_token"] == "no sampled token"
    assert none.absent["policy/entropy_nats_per_token"] == "no sampled token"
    assert all(math.isfinite(v) for v in none.values.values())


def test_non_finite_values_never_stay() -> None:
    g = Gauges()
    g.put("x", float("nan"))
    g.put("y", None, "why")
    g.put("z", 1.0)
    assert (g.values, g.absent) == ({"z": 1.0}, {"x": "the value is nan", "y": "why"})
    assert (g | Gauges({"x": 2.0})).values == {"z": 1.0, "x": 2.0}


def test_two_ranks_weigh_tokens_not_ranks() -> None:
    """Rank 1 holds row 0, rank 2 row 1; `total` adds the other rank's sums in order."""
    whole = own_samples(scores(POLICY, EXACT, EXACT), scores(INITIAL), MASK).values
    sums: list[list[torch.Tensor]] = [[], []]
    for r in (0, 1):
        row = torch.tensor([r])

        def keep(x: torch.Tensor, r: int = r) -> torch.Tensor:
            sums[r].append(x)
            return x

        own_samples(
            scores(POLICY, EXACT, EXACT).rows(row), scores(INITIAL).rows(row), MASK[row], keep
        )
    other = iter(sums[1])
    row = torch.tensor([0])
    got = own_samples(
        scores(POLICY, EXACT, EXACT).rows(row), scores(INITIAL).rows(row), MASK[row],
        lambda x: x + next(other),
    )  # fmt: skip
    assert got.values == pytest.approx(whole)


def test_human_texts_by_label_and_domain() -> None:
    got = on_human(scores(POLICY, EXACT), MASK, labels=[1, 0])
    assert got.values == pytest.approx(
        {
            "human/nll.nats_per_token": 3.5 / 3,
            "human/perplexity": math.exp(3.5 / 3),
            "human/perplexity.mean_of_texts": (math.exp(1.5) + math.exp(0.5)) / 2,
            "drift/kl_initial_on_human.exact_nats_per_token": 0.4,
            "human/perplexity.label_1": math.exp(1.5),
            "human/perplexity.label_0": math.exp(0.5),
        }
    )
    domains = on_domains({"wiki": (scores(POLICY), MASK), "none": (scores(POLICY), MASK & False)})
    assert domains.values == pytest.approx({"human/perplexity.domain_wiki": math.exp(3.5 / 3)})
    assert list(domains.absent) == ["human/perplexity.domain_none"]
    with pytest.raises(ValueError, match="1 groups for 2 texts"):
        on_human(scores(POLICY), MASK, labels=["a"])
