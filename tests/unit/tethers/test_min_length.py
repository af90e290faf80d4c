"""Minimum length through the `allow` seam."""

import pytest
import torch

from tether.config.errors import UserError
from tether.core.logprobs import log_softmax
from tether.core.sampling import pack_bits, unpack_bits
from tether.tethers.min_length import MinLength

LOGITS = {"policy": torch.zeros(4, 5)}
POSITION = torch.tensor([0, 1, 2, 3])


def test_by_hand() -> None:
    tether = MinLength(tokens=2)
    tether.meet((1, 4))
    allowed = tether.allow(LOGITS, POSITION)
    assert allowed[:, [0, 2, 3]].all()
    assert allowed[:, 1].tolist() == allowed[:, 4].tolist() == [False, False, True, True]
    assert dict(tether.reads()) == {"policy": "sampling"}
    assert tether.decides_stops, "else the house would make EOS legal again"


def test_own_stop_ids_stand() -> None:
    tether = MinLength(2, stop_ids=(3,))
    tether.meet((1,))
    assert tether.allow(LOGITS, POSITION)[0].tolist() == [True, True, True, False, True]


def test_the_stored_set_gives_the_same_log_probs_in_scoring() -> None:
    """What was sampled under the rule is scored under it: one of four tokens, then one of five."""
    tether = MinLength(2)
    tether.meet((1,))
    allowed = unpack_bits(pack_bits(tether.allow(LOGITS, POSITION)), 5)
    logp = log_softmax(LOGITS["policy"], 1.0, allowed)
    assert logp[0, 0].exp().item() == pytest.approx(1 / 4)
    assert logp[3, 0].exp().item() == pytest.approx(1 / 5)


def test_refusals() -> None:
    with pytest.raises(UserError, match="tokens must be at least 1"):
        MinLength(0)
    with pytest.raises(UserError, match=r"set min_length.stop_ids"):
        MinLength(2).allow(LOGITS, POSITION)
