"""KL as a loss descends KL(policy || reference): exactly on three tokens, off-policy too; and over
many samples of a model, next to the exact gradient. Source: arXiv 2506.09477; fault B11."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.runs_for_tests import REWARDS, agent_of, collected, gradients, make_world, settings
from tether.core.kl import kl_exact, kl_k3
from tether.models.scoring import log_distribution
from tether.tethers.kl_loss import KLLoss
from tether.types import Experience, Minibatch, Rollout, Scores, Sequences, Targets

LOGITS = [0.4, -0.2, 0.1]
Q = torch.tensor([0.2, 0.3, 0.5])
TRUE = [0.27714, -0.08891, -0.18823]
"""Gradient of KL(softmax(LOGITS) || Q) with respect to the logits (fault B11)."""
POLICY = torch.tensor(LOGITS).softmax(-1)
OTHER = torch.tensor([0.1, 0.6, 0.3])


def three_tokens(mu: Tensor, writer: str = "policy") -> Minibatch:
    """Each token of the vocabulary as a sequence, weighed by its probability under the writer: the
    weighted sum is the mean over the writer's samples, without noise."""
    ones = torch.ones(3, 1, dtype=torch.bool)
    sequences = Sequences(ones.long(), ones, torch.arange(3)[:, None], ones)
    rollout = Rollout(
        sequences, ones, torch.arange(3), torch.arange(3), ones[:, 0], logprobs=mu.log()[:, None],
        writer=writer,
    )  # fmt: skip
    old = mu if writer == "policy" else POLICY
    e = Experience(
        rollout,
        torch.zeros(3),
        torch.zeros(3, 1),
        Scores(old.log()[:, None], old.log()[:, None]),
        {"initial": Scores(Q.log()[:, None], Q.log()[:, None])},
    )
    return Minibatch(e, Targets(torch.zeros(3, 1), None, ones), mu[:, None])


def gradient(tether: KLLoss, mb: Minibatch) -> list[float]:
    logits = torch.tensor(LOGITS, requires_grad=True)
    logp = logits.log_softmax(-1)
    each = kl_exact(logp, Q.log()).expand(3)[:, None]
    fresh = Scores(logp[:, None], logp[:, None], exact_kl={"initial": each})
    tether.loss(mb, fresh).loss.backward()
    assert logits.grad is not None
    return logits.grad.tolist()  # type: ignore[no-any-return]


def test_on_policy_the_gradient_is_the_true_one() -> None:
    assert gradient(KLLoss(1.0), three_tokens(POLICY)) == pytest.approx(TRUE, abs=1e-5)
    assert gradient(KLLoss(0.5), three_tokens(POLICY)) == pytest.approx(
        [x / 2 for x in TRUE], abs=1e-5
    )


@pytest.mark.parametrize("writer", ["policy", "ema"])
def test_off_policy_too(writer: str) -> None:
    """Samples of another distribution (an older policy, another set): the weight r corrects it."""
    assert gradient(KLLoss(1.0), three_tokens(OTHER, writer)) == pytest.approx(TRUE, abs=1e-5)


def test_exact_needs_no_samples() -> None:
    exact = KLLoss(1.0, estimator="exact")
    for mu in (POLICY, OTHER):
        assert gradient(exact, three_tokens(mu)) == pytest.approx(TRUE, abs=1e-5)


def test_the_record_shows_an_unbiased_kl() -> None:
    want = float(kl_exact(POLICY.log(), Q.log()))
    for mu in (POLICY, OTHER):
        logp = torch.tensor(LOGITS).log_softmax(-1)[:, None]
        out = KLLoss(1.0).loss(three_tokens(mu), Scores(logp, logp))
        assert float(out.metrics["kl_initial.k3_nats_per_token"]) == pytest.approx(want, abs=1e-6)


def test_weighed_k3_has_this_very_gradient() -> None:
    """r k3 differentiated through r as well, token by token; plain k3 has another one."""
    mb = three_tokens(OTHER)
    for i in range(3):
        one = replace(mb, weights=torch.where(torch.arange(3) == i, 1.0, 0.0)[:, None])
        logits = torch.tensor(LOGITS, requires_grad=True)
        logp = logits.log_softmax(-1)[i]
        ((logp - OTHER[i].log()).exp() * kl_k3(logp - Q[i].log())).backward()
        assert logits.grad is not None
        assert gradient(KLLoss(1.0), one) == pytest.approx(logits.grad.tolist(), abs=1e-6)


# ---- a model, many samples


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("kl_loss"), rows=260, layers=1)


BATCH = {
    "batch": {"prompts": 256, "microbatch": 64},
    "sampling": {"max_new_tokens": 8},
    "algorithm": {"kind": "ppo", "minibatches": 1, "group_size": 4},
    "rewards": {"reward": {"kind": "function", "function": f"{REWARDS}:low"}},
}


def drifted(world: Path, kind: dict[str, object] | None):  # type: ignore[no-untyped-def]
    tethers = {} if kind is None else {"kl_loss": {"kind": "kl_loss", "coef": 1.0, **kind}}
    agent = agent_of(settings(world, BATCH, tethers=tethers))
    rng = torch.Generator().manual_seed(3)
    for p in agent.sets.sets["policy"].values():
        p.data.add_(0.03 * torch.randn(p.shape, generator=rng))
    agent.sets.publish("policy")
    agent.version = 1
    return agent


def added(world: Path, kind: dict[str, object]) -> Tensor:
    """What the tether adds to the policy's gradient, flat."""
    out = []
    for k in (kind, None):
        agent = drifted(world, k)
        g = gradients(agent, collected(agent))
        out.append(torch.cat([v.flatten() for n, v in g.items() if n.startswith("policy/")]))
    return out[0] - out[1]


def test_over_many_samples_next_to_autograd_of_the_exact_kl(world: Path) -> None:
    """What autograd says of the exact KL along the same 8,000 tokens: `exact` is that, `k2` near it
    (cosine .95; the fewer the tokens, the lower)."""
    agent = drifted(world, None)
    e = collected(agent)
    s, mask = e.rollout.sequences, e.mask
    with agent.lm.updating(), agent.sets.beside("initial") as initial:
        kl = kl_exact(log_distribution(agent.lm, s), log_distribution(initial, s).detach())
        (torch.where(mask, kl, 0.0).sum() / mask.sum()).backward()
    true = torch.cat([p.grad.flatten() for p in agent.sets.sets["policy"].values()])
    exact, sampled = added(world, {"estimator": "exact"}), added(world, {})
    assert int(mask.sum()) > 7000
    assert float(torch.cosine_similarity(exact, true, 0)) > 0.9999
    assert float((exact - true).norm() / true.norm()) < 1e-4
    assert float(torch.cosine_similarity(sampled, true, 0)) > 0.93
