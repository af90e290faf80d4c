"""An average on the device is taken beside what comes next, and equals the one taken at once."""

from __future__ import annotations

import pytest
import torch

from tether.core import weights as w
from tether.models.overlap import Aside

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
STEPS, DECAY = 6, 0.9
SLOW = 20_000_000
"""Cycles, some ten milliseconds."""


def averages() -> tuple[torch.Tensor, torch.Tensor]:
    """(the average that was taken aside, the same at once) of weights that grow by 1 a step."""
    masters = {"a": torch.zeros(2**26, device="cuda"), "b": torch.zeros(3, device="cuda")}
    here, there = w.snapshot(masters), w.snapshot(masters)
    aside, longer = Aside(), torch.cuda._sleep
    for _ in range(STEPS):
        aside.finish()  # masters are about to be written
        torch._foreach_add_(list(masters.values()), 1.0)
        w.lerp_(there, masters, 1 - DECAY)
        if aside._stream is not None:
            with torch.cuda.stream(aside._stream):
                longer(SLOW)  # who does not wait is seen
        aside.start(list(here.values()), list(masters.values()), 1 - DECAY)
    aside.finish()
    torch.cuda.synchronize()
    return here["a"], there["a"]


@pytest.mark.parametrize("waits", [True, False])
def test_it_is_the_average_at_once(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not where the next step does not wait for it, so the wait is tested."""
    if not waits:
        monkeypatch.setattr(Aside, "finish", lambda self: None)
    mine, plain = averages()
    assert torch.equal(mine, plain) == waits
    by_hand = 0.0
    for k in range(STEPS):
        by_hand = DECAY * by_hand + (1 - DECAY) * (k + 1)
    assert float(plain[0]) == pytest.approx(by_hand, rel=1e-5)


def test_the_host_does_not_wait_and_the_stream_does() -> None:
    """A copy launched after `finish` sees the average, although nobody has waited on the host."""
    masters = [torch.ones(2**26, device="cuda")]
    here, aside = [torch.zeros(2**26, device="cuda")], Aside()
    aside.start(here, masters, 0.5)
    assert aside._stream is not None
    with torch.cuda.stream(aside._stream):
        torch.cuda._sleep(SLOW)
    aside.start(here, masters, 0.5)
    torch.cuda.set_sync_debug_mode("error")
    try:
        aside.finish()
        seen = here[0].clone()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert bool((seen == 0.75).all())
