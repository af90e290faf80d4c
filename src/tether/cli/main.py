"""The command `tether`: finds the command's file, prints errors as one line, gives exit codes.

0 done; 1 a check failed; 2 a mistake in what the user gave; 3 out of memory; 130, 143 interrupted
and saved. Nothing here imports torch, nor does a command before it needs it.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from types import FrameType

from tether.config.errors import OUT_OF_MEMORY, OutOfMemory, Terminated, UserError
from tether.config.nearest import unknown
from tether.records import Damaged

COMMANDS: dict[str, tuple[str, str]] = {
    "quickstart": ("tether.cli.studies:quickstart", "three methods on a bundled model, offline"),
    "train": ("tether.cli.train:train", "train by a recipe or a configuration file"),
    "resume": ("tether.cli.train:resume", "go on with an interrupted run"),
    "compare": ("tether.cli.studies:compare", "methods x seeds, resumable, with plots"),
    "frontier": ("tether.cli.studies:frontier", "reward against drift of finished runs"),
    "baselines": ("tether.cli.after:baselines", "best-of-n, oracle frontier of the initial model"),
    "interpolate": ("tether.cli.after:interpolate", "weights between a run's initial and final"),
    "reward-model": (
        "tether.cli.reward_model:reward_model",
        "train and average reward models, sample pairs",
    ),
    "merge": ("tether.cli.after:merge", "one model from several runs of one initial model"),
    "evaluate": ("tether.cli.runs:evaluate", "reward and drift of a run's weights"),
    "generate": ("tether.cli.runs:generate", "completions of a run's weights"),
    "grue": ("tether.cli.grue:grue", "the benchmark of seven tasks: run, report"),
    "human-study": ("tether.cli.human_study:human_study", "rating forms for people; what they say"),
    "list": ("tether.cli.listing:show_list", "algorithms, tethers, rewards, recipes..."),
    "recipes": ("tether.cli.listing:recipes", "show NAME: as YAML; eject NAME DIR: as files"),
    "import-rl4lms": ("tether.cli.importing:import_rl4lms", "an RL4LMs YAML file as a run.yaml"),
    "schema": ("tether.cli.listing:schema", "JSON schema of run.yaml, for editors"),
    "doctor": ("tether.cli.doctor:doctor", "versions, devices, a recipe's memory plan"),
}
"""command -> (module:function taking its words and returning an exit code, summary)."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What a disk without room says, where a write knows no name."""


def main(words: list[str] | None = None) -> int:
    """Run one command; never raises for a user's mistake."""
    words = list(sys.argv[1:] if words is None else words)
    try:
        return _run(words)
    except UserError as e:
        print(f"tether: {e}", file=sys.stderr)
        return OUT_OF_MEMORY if isinstance(e, OutOfMemory) or _memory(e) else 2
    except KeyboardInterrupt:
        print("tether: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe went away: nothing more to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except Damaged as e:
        print(f"tether: {e}", file=sys.stderr)
        return 2
    except OSError as e:
        if e.errno in FULL and e.filename is None:
            print(f"tether: cannot write: {e.strerror}; make room", file=sys.stderr)
            return 2
        if e.filename is None or not e.strerror:
            raise
        # a path that the user gave (or the disk behind it), wherever it was met
        print(f"tether: cannot use '{e.filename}': {e.strerror}", file=sys.stderr)
        return 2
    except Exception as e:
        from tether.train.signals import Interrupted

        if isinstance(e, Interrupted):
            print(f"tether: {e}", file=sys.stderr)
            return e.code
        if said := _memory(e):
            print(f"tether: {said}", file=sys.stderr)
            return OUT_OF_MEMORY
        raise


def _memory(error: Exception) -> str:
    """What an error says of want of memory; empty where it is of anything else."""
    if "torch" not in sys.modules:  # then none of a device
        return ""
    from tether.train import memory

    return memory.told(error) if memory.behind(error) is not None else ""


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        from tether.cli.helping import root_help

        root_help(COMMANDS)
        return 0
    if words[0] in ("-V", "--version"):
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(version("tether-rl"))
        except PackageNotFoundError:
            print("not installed (run from a source folder)")
        return 0
    command, *rest = words
    if command not in COMMANDS:
        raise unknown("command", command, COMMANDS, "")
    module, function = COMMANDS[command][0].split(":")
    code: int = getattr(importlib.import_module(module), function)(rest)
    return code


def _terminated(signum: int, frame: FrameType | None) -> None:
    print("tether: terminated", file=sys.stderr)
    raise Terminated(128 + signum)


def _open_streams() -> None:
    """A standard stream that the caller closed would be the number of the next file or socket that
    is opened, and what is meant for it would go there."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one


def entry() -> None:
    """Console script."""
    _open_streams()
    signal.signal(signal.SIGTERM, _terminated)  # outside an update there is nothing to save
    sys.exit(main())
