"""Rewards are scored in a thread while shapes are met for the first time and recorded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from tests.gpu.test_graph_engine import repeated, write
from tests.models_for_tests import some_sequences, tiny
from tether.config.run import SamplingSettings
from tether.core.gate import beside
from tether.models.scoring import score_all

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@contextmanager
def busy() -> Iterator[None]:
    """A thread that asks the device for memory and waits for it, over and over, as a reward model
    does; what it meets is raised at the end."""
    stop, met = threading.Event(), list[BaseException]()

    def work() -> None:
        size = 0
        try:
            while not stop.is_set():
                with beside():
                    size = size % 50 + 1
                    torch.cuda.empty_cache()  # so that the driver is asked
                    x = torch.empty(size << 20, device="cuda").fill_(1.0)
                    assert float(x[-1]) == 1.0
                    del x
        except BaseException as e:
            met.append(e)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if met:
        raise met[0]


def test_recordings_with_a_busy_thread_beside_them() -> None:
    lm = tiny("llama")
    lm.module.to("cuda", torch.bfloat16)
    lm.capture = True
    with busy():
        for rows in (2, 5, 9, 17, 40):
            write(lm, repeated([5, 6, 7], rows), SamplingSettings(max_new_tokens=4, chunk=rows))
        for length in (5, 20, 40, 60):
            score_all(lm, some_sequences(lm, length, 0).to("cuda"))
    assert len(lm.scratch["recorded"]._shapes) == 4
