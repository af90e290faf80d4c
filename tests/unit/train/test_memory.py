"""Memory that does not do: one line, exit status 3, what is saved stands."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runs_for_tests import make_world, settings
from tether.cli import main as command
from tether.config.errors import OUT_OF_MEMORY, OutOfMemory, UserError
from tether.config.run import (
    BatchSettings,
    ClassifierSettings,
    ModelSettings,
    RunSettings,
    SamplingSettings,
)
from tether.config.text_values import write_yaml
from tether.train import run as running
from tether.train.loop import Run
from tether.train.memory import behind, enough, is_out_of_memory

CUDA = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB of "
    "which 1.50 GiB is free. Process 7 has 14.20 GiB memory in use. Of the allocated memory 13.10 "
    "GiB is allocated by PyTorch. If reserved but unallocated memory is large try setting "
    "PYTORCH_ALLOC_CONF=expandable_segments:True. See documentation for Memory Management"
)


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (torch.OutOfMemoryError(CUDA), True),
        (RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
            True,
        ),
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (RuntimeError("unable to mmap 9 bytes from file <x>: Cannot allocate memory (12)"), True),
        (RuntimeError("CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"), True),
        (RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling"), True),
        (RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("NCCL error: Failed to CUDA calloc async 608 bytes"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), True),
        (RuntimeError("[enforce fail] not enough memory: you tried to allocate 9 bytes"), True),
        (RuntimeError("my judge's server answered 500: worker out of memory"), False),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("the plot has run out of memory lane"), False),
        (KeyError("memory"), False),
    ],
)
def test_which_errors_are_of_memory(error: Exception, is_one: bool) -> None:
    assert is_out_of_memory(error) is is_one


def fails_at(update: int) -> Any:
    class Failing(Run):
        def _learn(self, pool: Any) -> None:
            if self.update + 1 == update:
                raise torch.OutOfMemoryError(CUDA)
            super()._learn(pool)

    return Failing


def test_a_run_says_what_was_asked_for_and_what_needs_less(tmp_path: Path) -> None:
    s = settings(make_world(tmp_path / "world"), name="small")
    with pytest.raises(OutOfMemory) as e:
        running.train(s, loop=fails_at(1))
    text = str(e.value)
    assert "Tried to allocate 2.00 GiB" in text and "1.50 GiB is free" in text
    assert "PYTORCH_ALLOC_CONF" not in text and "\n" not in text
    assert text.startswith("out of memory: CUDA out of memory. Tried")
    assert "small is saved yet: start anew with another --name" in text
    assert "a smaller --batch.microbatch (now 4), a smaller --sampling.chunk (now 256)" in text
    assert "--model.gradient_checkpointing true" in text
    assert isinstance(e.value.__cause__, torch.OutOfMemoryError)


def test_what_is_saved_goes_on(tmp_path: Path) -> None:
    s = settings(make_world(tmp_path / "world"), name="later")
    said = r"`tether resume \S+later` goes on after update_000002, with the settings that it has"
    with pytest.raises(OutOfMemory, match=said):
        running.train(s, loop=fails_at(4))
    folder = running.resume(tmp_path / "world" / "runs" / "later")
    assert running.complete(folder)


def test_of_a_reward_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n\ndef large(completions, **_):\n"
        f"    raise torch.OutOfMemoryError({CUDA!r})\n"
    )
    part = {"kind": "function", "function": f"{tmp_path / 'mine.py'}:large"}
    s = settings(make_world(tmp_path / "world"), {"rewards": {"reward": part}}, name="reward")
    with pytest.raises(OutOfMemory, match=r"reward.*Tried to allocate"):
        running.train(s)


def test_status_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tether.config.settings import dump

    s = settings(make_world(tmp_path / "world"), name="status")
    write_yaml(tmp_path / "run.yaml", dump(s))
    monkeypatch.setattr(Run, "_learn", fails_at(1)._learn)
    assert command.main(["train", "--config", str(tmp_path / "run.yaml")]) == OUT_OF_MEMORY
    error = capsys.readouterr().err
    assert error.startswith("tether: ") and error.count("\n") == 1 and "Traceback" not in error


def test_of_a_classifier() -> None:
    said = r"allocate 2.00 GiB.*a smaller --microbatch \(now 32\).*; c$"
    with pytest.raises(OutOfMemory, match=said) as e, enough(ClassifierSettings(), lambda: "c"):
        raise torch.OutOfMemoryError(CUDA)
    assert "checkpointing" not in str(e.value)  # a learned reward keeps its activations


def test_what_it_was_raised_from_counts() -> None:
    def raised() -> None:
        try:
            try:
                raise torch.OutOfMemoryError(CUDA)
            except RuntimeError as e:
                raise UserError("reward a raised an error") from e
        except UserError as e:
            raise UserError("update 4 failed") from e

    with pytest.raises(OutOfMemory), enough(ClassifierSettings(), lambda: "c"):
        raised()
    once = OutOfMemory("out of memory: said")
    with pytest.raises(OutOfMemory) as e, enough(ClassifierSettings(), lambda: "c"):
        raise once from MemoryError()
    assert e.value is once


@pytest.mark.timeout(60)
def test_an_error_that_was_raised_from_itself_passes() -> None:
    """Somebody's reward may write `raise error from error`; two may name each other."""
    one, other = UserError("one"), UserError("other")
    one.__cause__, other.__cause__ = other, one
    itself = UserError("itself")
    itself.__cause__ = itself
    for error in (one, itself):
        assert behind(error) is None
        with pytest.raises(UserError) as e, enough(ClassifierSettings(), lambda: "c"):
            raise error
        assert e.value is error


@pytest.mark.timeout(300)
def test_a_reward_that_refuses_a_completion_ends_the_command_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reward model of pairs does, of one that would lose its beginning."""
    from tether.config.settings import dump

    (tmp_path / "mine.py").write_text(
        "from tether.config.errors import UserError\n\n"
        "def refuses(completions, **_):\n    raise UserError('too long for it')\n"
    )
    part = {"kind": "function", "function": f"{tmp_path / 'mine.py'}:refuses"}
    s = settings(make_world(tmp_path / "world"), {"rewards": {"reward": part}}, name="refused")
    write_yaml(tmp_path / "run.yaml", dump(s))
    assert command.main(["train", "--config", str(tmp_path / "run.yaml")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "tether: too long for it"


def test_what_has_no_smaller_value_is_not_named() -> None:
    least = RunSettings(
        batch=BatchSettings(microbatch=1), sampling=SamplingSettings(chunk=1),
        model=ModelSettings(gradient_checkpointing=True),
    )  # fmt: skip
    with pytest.raises(OutOfMemory) as e, enough(least, lambda: "w"):
        raise RuntimeError("CUDA out of memory. " + "a long word of memory " * 100)
    text = str(e.value)
    assert "less is needed with fewer runs on one device; w" in text
    assert not any(name in text for name in ("microbatch", "chunk", "checkpointing"))
    assert len(text) < 600


def test_other_commands_say_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = running.train(settings(make_world(tmp_path / "world"), name="done", updates=2))
    capsys.readouterr()

    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError(CUDA)

    monkeypatch.setattr("tether.train.build.load_language_model", full)
    assert command.main(["evaluate", str(folder)]) == OUT_OF_MEMORY
    said = capsys.readouterr().err
    assert said.startswith("tether: out of memory: CUDA") and said.count("\n") == 1

    def named(*_: Any, **__: Any) -> None:
        raise UserError("reward a: out of memory") from torch.OutOfMemoryError(CUDA)

    monkeypatch.setattr("tether.train.build.load_language_model", named)
    assert command.main(["evaluate", str(folder)]) == OUT_OF_MEMORY
    assert capsys.readouterr().err == "tether: reward a: out of memory\n"


def test_anything_else_passes() -> None:
    mine = UserError("no column")
    with pytest.raises(UserError) as e, enough(ClassifierSettings(), lambda: "c"):
        raise mine
    assert e.value is mine and not isinstance(e.value, OutOfMemory)
