"""Memory that does not suffice is one clear line, wherever it is met."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from tether.config.errors import OutOfMemory
from tether.config.run import ClassifierSettings, RunSettings

SAID = re.compile(
    r"\b(CUDA|HIP|XPU|MPS)\b.{0,40}\bout of memory|_ALLOC(ATION)?_FAILED|can(no|')t allocate memory"
    r"|not enough memory: you tried|Failed to CUDA \w+ *alloc|"
    r"CUBLAS_STATUS_NOT_INITIALIZED when calling `?cublasCreate",
    re.IGNORECASE | re.DOTALL,
)
"""Of errors of torch, CUDA and its libraries, of which only some have a class of their own."""
ADVICE = re.compile(r"If |See |Search |For debugging|Compile |CUDA kernel errors")
"""How sentences begin behind what was asked for and what there was."""


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return isinstance(error, (RuntimeError, OSError)) and SAID.search(str(error)) is not None


def behind(error: BaseException) -> BaseException | None:
    """The error of memory that an error is, or was raised from: a reward's names the reward."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:  # an error can be raised from itself
        if is_out_of_memory(one):
            return one
        seen.add(id(one))
        one = one.__cause__
    return None


@contextmanager
def enough(settings: RunSettings | ClassifierSettings, mend: Callable[[], str]) -> Iterator[None]:
    """Turns an error of want of memory, of a device or of the machine, into OutOfMemory, which
    names the settings that need less; anything else passes.

    mend: asked when it happens: how to go on, for the end of the line.
    """
    try:
        yield
    except Exception as e:
        if isinstance(e, OutOfMemory) or behind(e) is None:
            raise
        raise OutOfMemory(f"{told(e)}; {_less(settings)}; {mend()}") from e


def told(error: BaseException) -> str:
    """What was asked for and what there was, without the library's advice of several lines."""
    text = " ".join(str(error).split()) or type(error).__name__
    sentences = re.split(r"(?<=\.) (?=[A-Z])", text)
    advice = (i for i, s in enumerate(sentences) if ADVICE.match(s))
    return "out of memory: " + " ".join(sentences[: next(advice, None)])[:400].rstrip(".")


def _less(settings: RunSettings | ClassifierSettings) -> str:
    """The settings that memory goes with, with their values; none of them is another method."""
    of_run = isinstance(settings, RunSettings)
    if isinstance(settings, ClassifierSettings):
        now = {"microbatch": settings.microbatch or settings.batch_size}
    else:
        now = {
            "batch.microbatch": settings.batch.microbatch,
            "sampling.chunk": settings.sampling.chunk,
        }
    words = [f"a smaller --{name} (now {value})" for name, value in now.items() if value > 1]
    if of_run and not settings.model.gradient_checkpointing:
        words.append("--model.gradient_checkpointing true")
    words.append("fewer runs on one device")
    return f"less is needed with {', '.join(words)}"
