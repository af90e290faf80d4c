"""Named sets: masters, moves, swaps, residents, checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.models_for_tests import byte_tokenizer, some_sequences, take_gradients, tiny, tiny_module
from tether.config.errors import UserError
from tether.models.critic import Critic
from tether.models.language_model import LanguageModel
from tether.models.scoring import score_all
from tether.models.weight_sets import WeightSets
from tether.types import Move, Until


def flat(weights: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([t.detach().float().flatten() for t in weights.values()])


def nudge(sets: WeightSets, by: float = 0.01, name: str = "policy") -> None:
    with torch.no_grad():
        for t in sets.sets[name].values():
            t.add_(by)
    sets.publish(name)


def low(kind: str = "gpt2") -> LanguageModel:
    lm = tiny(kind, sharp=3.0)
    lm.module.to(torch.bfloat16)
    return lm


def test_an_average_that_nobody_runs_is_taken_aside_where_the_device_can(
    tiny_gpt2: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy itself is moved at once; and whoever writes masters waits first."""
    sets, came = WeightSets(tiny_gpt2), []

    class Device:
        is_cuda = True

    class Noted:
        def start(self, *_: object) -> None:
            came.append("aside")

        def finish(self) -> None:
            came.append("waits")

    sets.declare("ema")
    monkeypatch.setattr(sets, "_aside", Noted())
    monkeypatch.setattr(sets, "_alike", lambda move: ([Device()], [Device()]))
    monkeypatch.setattr(torch, "_foreach_lerp_", lambda *_: came.append("at once"))
    sets.apply([Move("ema", "policy", 0.25)])
    assert came == ["waits", "aside"]
    came.clear()
    sets._lerp(Move("policy", "ema", 0.25))
    sets.settle()
    assert came == ["waits", "at once", "waits"]


def test_fp32_parameters_are_their_own_masters(tiny_gpt2: LanguageModel) -> None:
    sets = WeightSets(tiny_gpt2)
    live = dict(tiny_gpt2.module.named_parameters())
    assert all(t is live[n] for n, t in sets.sets["policy"].items())
    assert "lm_head.weight" not in sets.sets["policy"]  # tied: one tensor, once


def test_bf16_has_fp32_masters_that_collect_small_steps() -> None:
    lm = low()
    sets = WeightSets(lm)
    name, master = next(iter(sets.sets["policy"].items()))
    working = sets.working["policy"][name]
    assert master.dtype == torch.float32 and working.dtype == torch.bfloat16
    with torch.no_grad():
        master.fill_(1.0)
        for _ in range(100):
            master.sub_(0.0001)
            sets.publish("policy")
    assert working.flatten()[0].item() == 0.98828125  # bf16(.99); steps in bf16 would leave 1.0
    sets.verify()
    with torch.no_grad():
        working.add_(1.0)
    with pytest.raises(RuntimeError, match="not the masters' rounded"):
        sets.verify()


def test_gradients_go_to_the_masters() -> None:
    lm = low()
    sets = WeightSets(lm)
    lm.forward(some_sequences(lm))[0].float().square().mean().backward()
    take_gradients(sets)
    for n, t in sets.sets["policy"].items():
        assert t.grad is not None and t.grad.dtype == torch.float32
        assert sets.working["policy"][n].grad is None


@pytest.mark.parametrize("make", (tiny, low))
def test_moves_are_executed_counted_and_published(make) -> None:  # type: ignore[no-untyped-def]
    lm = make()
    sets = WeightSets(lm)
    sets.declare("ema")
    start = flat(sets.sets["initial"])
    nudge(sets)
    sets.apply([Move("ema", "policy", 0.25), Move("ema", "policy", 0.25)])
    torch.testing.assert_close(flat(sets.sets["ema"]), start + 0.01 * (1 - 0.75**2))
    sets.apply([Move("policy", "ema"), Move("ema", "initial")])
    torch.testing.assert_close(flat(sets.sets["policy"]), start + 0.01 * (1 - 0.75**2))
    assert torch.equal(flat(sets.sets["ema"]), start)
    assert torch.equal(flat(sets.sets["initial"]), start)
    assert sets.counts == {"ema<-policy": 2, "policy<-ema": 1, "ema<-initial": 1}
    sets.verify()


def test_a_move_can_be_limited_to_some_parameters(tiny_gpt2: LanguageModel) -> None:
    sets = WeightSets(tiny_gpt2)
    nudge(sets)
    sets.apply([Move("policy", "initial", where=lambda n: n.startswith("transformer.h.0"))])
    for n, t in sets.sets["policy"].items():
        assert torch.equal(t, sets.sets["initial"][n]) == n.startswith("transformer.h.0")


def test_wrong_moves_are_refused(tiny_gpt2: LanguageModel) -> None:
    sets = WeightSets(tiny_gpt2)
    for move, message in (
        (Move("initial", "policy"), "'initial' are never moved"),
        (Move("policy", "ema"), "no set of weights 'ema'"),
        (Move("policy", "initial", Until("kl", 1.0)), "must be given a number"),
    ):
        with pytest.raises(ValueError, match=message):
            sets.apply([move])
    with (
        pytest.raises(RuntimeError, match="while 'initial' is swapped in"),
        sets.swapped_in("initial"),
    ):
        sets.apply([Move("policy", "initial")])


@pytest.mark.parametrize("device", (None, "cpu"))
@pytest.mark.parametrize("kind", ("gpt2", "t5"))
@pytest.mark.parametrize("make", (tiny, low))
def test_a_swap_runs_the_other_weights_and_comes_back(make, kind, device) -> None:  # type: ignore[no-untyped-def]
    lm = make(kind)
    sets, s = WeightSets(lm, copies=device), some_sequences(lm)
    home = score_all(lm, s).logprobs
    nudge(sets, 0.05)
    away, before = score_all(lm, s).logprobs, flat(sets.sets["policy"])
    where = {n: t.data_ptr() for n, t in sets.working["policy"].items()}
    assert not torch.equal(home, away)
    with sets.swapped_in("initial") as live:
        assert live is lm and torch.equal(score_all(live, s).logprobs, home)
    with pytest.raises(KeyError), sets.swapped_in("initial"):
        raise KeyError
    assert torch.equal(score_all(lm, s).logprobs, away)
    assert torch.equal(flat(sets.sets["policy"]), before)
    assert where == {n: t.data_ptr() for n, t in sets.working["policy"].items()}
    with sets.beside("initial") as twin:
        assert twin is not lm and torch.equal(score_all(twin, s).logprobs, home)


def test_a_resident_follows_its_set_and_costs_nothing_in_fp32(tiny_gpt2: LanguageModel) -> None:
    sets, s = WeightSets(tiny_gpt2), some_sequences(tiny_gpt2)
    sets.declare("mask", resident=True)
    mine = {t.data_ptr() for t in sets.sets["mask"].values()}
    assert {p.data_ptr() for p in sets.residents["mask"].module.parameters()} == mine
    nudge(sets)
    sets.apply([Move("mask", "policy")])
    want = score_all(tiny_gpt2, s).logprobs
    assert torch.equal(score_all(sets.residents["mask"], s).logprobs, want)


def test_a_bf16_resident_is_rounded_from_its_fp32_set() -> None:
    lm = low()
    sets, s = WeightSets(lm), some_sequences(lm)
    sets.declare("mask", resident=True)
    nudge(sets)
    sets.apply([Move("mask", "policy")])
    got = score_all(sets.residents["mask"], s).logprobs
    assert torch.equal(got, score_all(lm, s).logprobs)


def test_buffers_travel_with_their_set() -> None:
    lm = tiny("gpt2")
    lm.module.register_buffer("steps", torch.tensor(3))
    lm.module.register_buffer("running", torch.tensor([0.5]))
    sets = WeightSets(lm)
    sets.declare("ema")
    lm.module.steps.fill_(9)
    lm.module.running.fill_(2.0)
    sets.apply([Move("ema", "policy", 0.1)])
    assert sets.buffers["ema"]["steps"].item() == 9  # copied: an integer has no average
    assert sets.buffers["ema"]["running"].item() == 2.0
    sets.apply([Move("policy", "initial")])
    assert (lm.module.steps.item(), lm.module.running.item()) == (3, 0.5)
    with sets.swapped_in("ema") as live:
        assert live.module.steps.item() == 9
    assert lm.module.steps.item() == 3
    state = sets.state_dict()
    lm.module.steps.fill_(1)
    sets.load_state_dict(state)
    assert lm.module.steps.item() == 3


@pytest.mark.parametrize("make", (tiny, low))
def test_state_goes_out_and_in_bit_for_bit(make) -> None:  # type: ignore[no-untyped-def]
    lm = make()
    sets = WeightSets(lm, Critic(lm))
    sets.declare("ema", resident=True)
    nudge(sets)
    nudge(sets, 0.3, "critic")
    sets.apply([Move("ema", "policy", 0.3)])
    state = sets.state_dict()
    assert all(isinstance(t, torch.Tensor) for t in state["tensors"].values())
    fresh_lm = make()
    fresh = WeightSets(fresh_lm, Critic(fresh_lm))
    fresh.declare("ema", resident=True)
    addresses = [t.data_ptr() for t in fresh.sets["policy"].values()]
    fresh.load_state_dict(state)
    for name in sets.sets:
        assert torch.equal(flat(sets.sets[name]), flat(fresh.sets[name]))
    assert addresses == [t.data_ptr() for t in fresh.sets["policy"].values()]
    assert fresh.counts == {"ema<-policy": 1}
    fresh.verify()
    s = some_sequences(lm)
    for a, b in ((lm, fresh_lm), (sets.residents["ema"], fresh.residents["ema"])):
        assert torch.equal(score_all(a, s).logprobs, score_all(b, s).logprobs)


def test_a_checkpoint_of_something_else_is_refused(tiny_gpt2: LanguageModel) -> None:
    sets = WeightSets(tiny_gpt2)
    state = sets.state_dict()
    sets.declare("ema")
    with pytest.raises(UserError, match="lacks weights 'ema/"):
        sets.load_state_dict(state)
    state = sets.state_dict()
    name = next(iter(state["tensors"]))
    state["tensors"][name] = torch.zeros(1)
    with pytest.raises(UserError, match=f"'{name}' have shape"):
        sets.load_state_dict(state)
    other = WeightSets(tiny("gpt2"))
    with pytest.raises(UserError, match="has the unknown weights 'ema/"):
        other.load_state_dict(sets.state_dict())


def test_a_set_can_start_as_another_models_weights(tmp_path: Path) -> None:
    tiny_module("gpt2", seed=5).save_pretrained(tmp_path / "other")
    byte_tokenizer().save_pretrained(tmp_path / "other")
    lm = tiny("gpt2")
    sets, s = WeightSets(lm), some_sequences(lm)
    sets.declare("sft", source=str(tmp_path / "other"))
    want = score_all(tiny("gpt2", seed=5), s).logprobs
    with sets.swapped_in("sft") as live:
        torch.testing.assert_close(score_all(live, s).logprobs, want)
    sets.apply([Move("sft", "policy", 0.1)])  # it is a set like any other


def test_a_source_of_another_shape_is_a_resident_that_never_moves(tmp_path: Path) -> None:
    tiny_module("llama", seed=5).save_pretrained(tmp_path / "other")
    tiny_module("llama", seed=5, vocab=100).save_pretrained(tmp_path / "small")
    lm = tiny("gpt2")
    sets, s = WeightSets(lm), some_sequences(lm)
    sets.declare("sft", source=str(tmp_path / "other"), resident=True)
    want = score_all(tiny("llama", seed=5), s).logprobs
    with sets.swapped_in("sft") as other:
        torch.testing.assert_close(score_all(other, s).logprobs, want)
    with pytest.raises(ValueError, match="another model's weights"):
        sets.apply([Move("policy", "sft")])
    with pytest.raises(UserError, match="have a vocabulary of 100, the policy 259"):
        sets.declare("tiny", source=str(tmp_path / "small"))


def test_nothing_to_train_is_refused(tiny_gpt2: LanguageModel) -> None:
    tiny_gpt2.module.requires_grad_(False)
    with pytest.raises(UserError, match="no trainable parameter"):
        WeightSets(tiny_gpt2)
