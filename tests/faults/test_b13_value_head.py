"""B13: a value head lost on save, or born too loud."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.forked import ranks
from tests.models_for_tests import some_sequences, tiny
from tether.config.errors import UserError
from tether.models.critic import Critic, Kind
from tether.models.scoring import score_all
from tether.models.weight_sets import WeightSets

KINDS: tuple[Kind, ...] = ("separate", "shared", "detached", "frozen")


def trained(kind: Kind, steps: int):  # type: ignore[no-untyped-def]
    lm = tiny("gpt2", sharp=3.0)
    critic = Critic(lm, kind)
    sets = WeightSets(lm, critic)
    s = some_sequences(lm)
    optimizer = torch.optim.Adam([*sets.sets["critic"].values()], lr=1e-2)
    for _ in range(steps):
        _, hidden = lm.forward(s, hidden=True)
        (critic.values(s, hidden) - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return lm, critic, sets, s


def values(lm, critic, s) -> torch.Tensor:  # type: ignore[no-untyped-def]
    return score_all(lm, s, critic=critic).values


def _reload(_: int, folder: str) -> None:
    torch.set_num_threads(1)
    for kind, x in torch.load(Path(folder) / "x.pt", weights_only=True).items():
        lm, critic, sets, s = trained(kind, 0)
        sets.load_state_dict(x["state"])
        assert torch.equal(values(lm, critic, s), x["want"]), kind


def test_values_survive_a_new_process(tmp_path: Path) -> None:
    stored = {}
    for kind in KINDS:
        lm, critic, sets, s = trained(kind, 2)
        want = values(lm, critic, s)
        assert (want != 0).any()
        stored[kind] = {"state": sets.state_dict(), "want": want}
    torch.save(stored, tmp_path / "x.pt")
    ranks(_reload, tmp_path, 1)


def test_a_missing_head_is_an_error() -> None:
    _, _, sets, _ = trained("separate", 0)
    state = sets.state_dict()
    del state["tensors"]["critic/head.weight"]
    with pytest.raises(UserError, match=r"lacks weights 'critic/head.weight'"):
        sets.load_state_dict(state)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_head_is_silent(kind: Kind) -> None:
    lm, critic, _, s = trained(kind, 0)
    assert (values(lm, critic, s) == 0).all()
    _, hidden = lm.forward(s, hidden=True)
    (critic.values(s, hidden) - 1).square().mean().backward()
    moved = [p.grad for p in lm.module.parameters() if p.grad is not None]
    assert all((g == 0).all() for g in moved)  # a zero head sends nothing into a shared trunk


def test_a_plain_export_has_no_wrapper_prefix() -> None:
    _, _, sets, _ = trained("shared", 0)
    assert all(n.startswith("transformer.") for n in sets.sets["policy"])
