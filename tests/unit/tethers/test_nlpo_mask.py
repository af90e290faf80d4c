"""The mask's rules, its clock and its report, by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.examples import experience
from tether.config.errors import UserError
from tether.core.masking import local
from tether.core.sampling import legal_tokens, pack_bits, set_sizes
from tether.tethers.nlpo_mask import NLPOMask
from tether.tethers.triggers import DriftBudget, Every
from tether.types import Clock, Measured, Move

LOGITS = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]).log()
AT = torch.zeros(2, dtype=torch.long)


def allowed(name: str = "mask", logits: torch.Tensor = LOGITS, **options: Any) -> list[list[bool]]:
    tether = NLPOMask(**options)
    other = torch.zeros_like(logits)  # what must not be read
    views = {"policy": other, "mask": other, "initial": other, "ema": other} | {name: logits}
    found: list[list[bool]] = tether.allow(views, AT).tolist()
    return found


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"top_p": 0.4}, [[1, 0, 0], [0, 0, 1]]),
        ({"top_p": 0.6}, [[1, 1, 0], [0, 0, 1]]),
        ({"top_p": 0.9}, [[1, 1, 1], [0, 1, 1]]),
        ({"top_p": 1.0, "top_k": 2}, [[1, 1, 0], [0, 1, 1]]),
        ({"top_p": 1.0, "min_p": 0.5}, [[1, 1, 0], [0, 0, 1]]),
        ({"top_p": 0.9, "top_k": 1}, [[1, 0, 0], [0, 0, 1]]),  # every rule must agree
        ({"top_p": 0.4, "floor": 2}, [[1, 1, 0], [0, 1, 1]]),
        ({"top_p": 0.4, "floor": 9}, [[1, 1, 1], [1, 1, 1]]),
    ],
    ids=str,
)
def test_rules(options: dict[str, Any], want: list[list[int]]) -> None:
    assert allowed(**options) == [[bool(x) for x in row] for row in want]


@pytest.mark.parametrize(
    ("mask", "name"),
    [("copy", "mask"), ("initial", "initial"), ("policy", "policy"), ("ema", "ema")],
)
def test_the_mask_policy(mask: str, name: str) -> None:
    tether = NLPOMask(mask=mask)
    assert dict(tether.reads()) == {name: "sampling"}
    assert tether.keeps() == (("mask",) if mask == "copy" else ())
    assert allowed(name, mask=mask, top_p=0.4) == [[True, False, False], [False, False, True]]
    # bits may be thrown away only where the same set can be found again within an update
    assert tether.recomputable() == (mask in ("copy", "initial"))


def test_a_users_rule(tmp_path: Path) -> None:
    file = tmp_path / "rules.py"
    file.write_text(
        "import torch\n"
        "def even(logits):\n"
        "    return (torch.arange(logits.shape[-1]) % 2 == 0).expand(len(logits), -1)\n"
        "def none(logits):\n    return torch.zeros_like(logits, dtype=torch.bool)\n"
        "def wrong(logits):\n    return logits\n"
    )
    even = {"top_p": 1.0, "function": f"{file}:even"}
    assert allowed(**even) == [[True, False, True], [True, False, True]]
    assert allowed(**even | {"top_p": 0.9}) == [[True, False, True], [False, False, True]]
    # the floor holds whatever the rule says
    nothing = allowed(top_p=1.0, function=f"{file}:none")
    assert nothing == [[True, False, False], [False, False, True]]
    with pytest.raises(UserError, match=r"must return bool \[2, 3\], not float32 \[2, 3\]"):
        allowed(function=f"{file}:wrong")
    with pytest.raises(UserError, match=r"no name 'odd'|odd"):
        NLPOMask(function=f"{file}:odd")


def moves(tether: NLPOMask, updates: int, steps: int = 2) -> list[int]:
    """Updates after which the copy took the policy in."""
    clock, measured, out = Clock(), Measured(), []
    for u in range(updates):
        measured["drift/kl_initial.exact_nats_per_seq"] = (float(u), u)
        for unit in ("minibatch",) * steps + ("epoch", "update"):
            clock = clock.tick(unit)  # type: ignore[arg-type]
            found = list(tether.after(unit, clock, measured))  # type: ignore[arg-type]
            assert found == [] or (unit == "update" and found == [Move("mask", "policy")])
            out += [clock.update] * len(found)
    return out


def test_the_refresh_clock() -> None:
    assert moves(NLPOMask(refresh=Every(3)), 9) == [3, 6, 9]
    assert moves(NLPOMask(refresh=Every(4, start=1)), 9) == [1, 5, 9]
    # a clock of steps is asked between updates only: sampling and update see one mask
    assert moves(NLPOMask(refresh=Every(5, "minibatch")), 9) == [3, 5, 8]
    assert moves(NLPOMask(refresh=DriftBudget(2.5)), 5) == [4]
    for mask in ("initial", "policy", "ema"):
        assert moves(NLPOMask(mask=mask), 45) == []


def test_only_a_copy_has_a_clock_that_can_be_missed() -> None:
    assert list(NLPOMask(refresh=Every(3)).clocked()) == ["refresh"]
    assert NLPOMask(mask="initial").clocked() == {}
    assert NLPOMask(mask="initial", refresh=None).state_dict() == {"age": 0, "stops": []}


def test_report_counts_refreshes_and_sizes() -> None:
    tether, e = NLPOMask(refresh=Every(2)), experience()
    moves(tether, 5)
    # 8 tokens in a byte; sizes 1, 2, 3 | 4, 5, 6, 7 | 8 on the mask, 8 elsewhere
    sizes = torch.tensor([[1, 2, 3, 8], [4, 5, 6, 7], [8, 8, 8, 8]])
    bits = pack_bits(torch.arange(8) < sizes[..., None])
    assert torch.equal(set_sizes(bits), sizes)
    e = replace(e, rollout=replace(e.rollout, allowed=bits))
    assert tether.report(e, local) == {
        "refreshes": 2.0,
        "mask_age": 1.0,
        "allowed_tokens": (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8) / 8,
    }

    class Again:
        def counts(self) -> torch.Tensor:
            return torch.tensor([10.0, 35.0, 2.0])

    e = replace(e, rollout=replace(e.rollout, allowed=Again()))
    assert NLPOMask(mask="initial").report(e, local) == {
        "allowed_tokens": 3.5,
        "tokens_added": 2.0,
        "tokens_found_again": 10.0,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\]"),
        ({"top_p": 1.1}, r"top_p must be in \(0, 1\]"),
        ({"top_k": -1}, "top_k must be >= 0"),
        ({"min_p": 2.0}, r"min_p must be in \[0, 1\]"),
        ({"floor": 0}, "floor must be at least 1"),
        ({"top_p": 1.0}, "every rule is off"),
        ({"top_p": 1 - 2e-8}, "is 1 in fp32 and would allow every token"),
        ({"min_p": 1e-46}, "min_p 1e-46 is 0 in fp32 and would allow every token"),
        ({"top_k": 5, "floor": 6}, "top_k 5 has no effect: the 6 likeliest tokens are allowed"),
        ({"mask": "initial", "refresh": Every(3)}, "refresh has no effect with mask 'initial'"),
        ({"refresh": None}, "set nlpo_mask.mask initial"),
        ({"mask": "data"}, "'data' is none"),
    ],
    ids=str,
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as e:
        NLPOMask(**options)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"floor": 9},
            "floor 9 would allow every token: the vocabulary has 9 beside the stop tokens",
        ),
        ({"floor": 100}, "floor 100 would allow every token: the vocabulary has 9 "),
        ({"top_k": 9}, "top_k 9 would allow every token: the vocabulary has 9; lower it, or"),
    ],
    ids=str,
)
def test_what_allows_a_whole_vocabulary_is_refused(options: dict[str, Any], message: str) -> None:
    tether = NLPOMask(**options)
    with pytest.raises(UserError, match=message):
        tether.check_vocabulary(9)
    tether.check_vocabulary(101)
    if "floor" in options:  # and it does: the rule is the reason
        assert tether.allow({"mask": torch.randn(4, 9)}, torch.zeros(4)).all()


def test_the_limits_of_fp32_are_where_the_rules_stop_to_act() -> None:
    """A number just inside still leaves a token out, one just outside could leave none out."""
    # fp32 knows no number between: the likeliest has 1 - 2^-24, the other 2^-24
    x = torch.tensor([[1 - 2**-24, 2**-24]], dtype=torch.float32).log()
    inside = NLPOMask(top_p=1 - 2**-24)
    assert inside.allow({"mask": x}, AT).tolist() == [[True, False]]
    far = torch.tensor([[0.0, -150 * math.log(2) + 0.5, -150 * math.log(2) - 0.01]])
    assert [float(p) > 0 for p in far.softmax(-1)[0]] == [True, True, False]
    mask = NLPOMask(top_p=1.0, min_p=2.0**-150)
    assert mask.allow({"mask": far}, AT).tolist() == [[True, True, False]]


def test_the_floor_holds_where_eos_is_forbidden() -> None:
    """EOS alone has more than top_p, and a minimum length forbids it: the likeliest other token."""
    eos = 0
    logits = torch.tensor([[0.95, 0.01, 0.04], [0.2, 0.7, 0.1]]).log()
    tether = NLPOMask(top_p=0.6)
    views = {"policy": logits, "mask": logits}
    stops, at = torch.tensor([eos]), torch.zeros(2, dtype=torch.long)
    tether.meet((eos,))
    first, empty = legal_tokens([tether], views, at, stops, min_new_tokens=1)
    assert first.tolist() == [[False, False, True], [False, True, False]]
    assert not any(e.any() for e in empty)
    later, _ = legal_tokens([tether], views, at + 1, stops, min_new_tokens=1)
    assert later.tolist() == [[True, False, True], [True, True, False]]  # EOS comes on top
