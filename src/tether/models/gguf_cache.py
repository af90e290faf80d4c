"""What transformers makes of a GGUF file, kept on disk as ordinary folders.

Reading a GGUF file takes tens of seconds even for a small model, and a study reads one in every
process. The first load leaves its result in

    $TETHER_CACHE, else $XDG_CACHE_HOME/tether, else ~/.cache/tether
        gguf/SHA256-transformersX-ggufY-FORMAT/
            config/                         config.json
            float32/ bfloat16/ float16/     what `save_pretrained` writes

and later ones read that. A type has an entry of its own, since transformers unpacks the blocks of
some architectures in the type that is asked for, and a rounded float32 is another number. An entry
is read back and compared bit for bit before it appears. An empty TETHER_CACHE switches all this
off; a cache that cannot be written is noted as a warning, and the load goes on without it.
"""

from __future__ import annotations

import copy
import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO, TypeVar

import torch
from transformers.utils.hub import cached_file

from tether.config.errors import UserError
from tether.config.run import ModelSettings
from tether.core import weights as w

FORMAT = 1
"""Of an entry; another number leaves the entries of before alone and unread."""
WAIT = 600.0
"""Seconds for which a process waits for another one's conversion before it does its own. The system
lets a dead process's lock go, so this is for one that hangs."""
COMPLETE = "complete.json"
"""Name -> bytes of every other file of an entry."""

T = TypeVar("T")


def config(settings: ModelSettings, convert: Callable[[], Any], read: Callable[[str], Any]) -> Any:
    """The configuration of `settings`, from the cache where it has a GGUF file.

    Args:
        convert: loads it as settings say.
        read: loads it from a folder; raises UserError where it cannot.
    Raises:
        what `convert` raises.
    """

    def named(folder: Path) -> Any:
        found = read(str(folder))
        found.name_or_path = settings.path
        return found

    def save(config: Any, folder: Path) -> None:
        config.save_pretrained(folder)

    return _cached(settings, "config", convert, save, named, lambda c: c.to_dict())


def module(
    settings: ModelSettings,
    dtype: torch.dtype,
    convert: Callable[[], Any],
    read: Callable[[str], Any],
) -> Any:
    """The same for the model with its weights in `dtype`. The `config.json` beside them is that of
    the loaded model, dropout silenced or not: `read` takes the configuration from elsewhere."""

    def named(folder: Path) -> Any:
        found = read(str(folder))
        found.name_or_path = found.config.name_or_path = settings.path
        return found

    part = str(dtype).removeprefix("torch.")
    return _cached(settings, part, convert, _save, named, _content)


def _save(module: Any, folder: Path) -> None:
    """`save_pretrained` of a model, which writes into its configuration, without that. Raises
    OSError also where there is no room in memory to read it back."""
    needed, there = sum(p.nbytes for p in module.parameters()), _available()
    if there is not None and there < needed:
        raise OSError(errno.ENOMEM, f"{there:,} of the {needed:,} bytes to read it back are free")
    live = module.config
    module.config = copy.deepcopy(live)
    try:
        module.save_pretrained(folder)
    finally:
        module.config = live


def _available() -> int | None:
    """Bytes of memory that can be had without swapping; None = the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = next(x for x in lines if x.startswith("MemAvailable:"))
        return int(found.split()[1]) * 1024
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _content(module: Any) -> tuple[Any, ...]:
    """All that a load decides: weights, which of them are one, buffers in no file, generation."""
    return (
        w.fingerprint(module),
        sorted(name for name, _ in module.named_parameters()),
        w.fingerprint(dict(module.named_buffers())),
        module.generation_config.to_dict(),
    )


def _cached(
    settings: ModelSettings,
    part: str,
    convert: Callable[[], T],
    write: Callable[[T, Path], None],
    read: Callable[[Path], T],
    content: Callable[[T], object],
) -> T:
    """`read` of the entry where there is one; else what `convert` gives, and the entry is written
    for the next process, if `content` of what it reads there is the same."""
    folder = _entry(settings, part)
    if folder is None:
        return convert()
    found = _read(folder, read)
    if found is not None:
        return found
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = open(folder.with_name(f".{part}.lock"), "a", encoding="utf-8")  # noqa: SIM115
    except OSError as e:
        _note(settings, e)
        return convert()
    with lock:
        alone = _wait(lock, folder)
        found = _read(folder, read)
        if found is not None:
            return found
        if alone:
            _sweep(folder)
        made = convert()
        try:
            if _entry(settings, part) == folder:  # else another file took its place meanwhile
                _publish(made, folder, write, read, content)
        except Exception as e:  # whatever it was, the model is there
            _note(settings, e)
        return made


def _note(settings: ModelSettings, why: object) -> None:
    what = f"{type(why).__name__}: {why}" if isinstance(why, Exception) else why
    warnings.warn(
        f"{settings.gguf_file} is not kept converted, so the next load takes as long as this one"
        f" ({what}); TETHER_CACHE names the folder of the cache",
        stacklevel=4,
    )


def root() -> Path | None:
    """The cache's folder, None where there is none: TETHER_CACHE is empty, or no home is known."""
    given = os.environ.get("TETHER_CACHE")
    if given == "":
        return None
    place = given or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "tether")
    try:
        return Path(place).expanduser()
    except RuntimeError:
        return None


def _entry(settings: ModelSettings, part: str) -> Path | None:
    """Where a part of the model lies once it is converted; None = not to be cached."""
    place = root()
    if settings.gguf_file is None or place is None:
        return None
    try:
        file = _source(settings)
        if file is None:
            return None
        s = file.stat()
        digest = _sha256(file, (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns))
    except (OSError, ValueError):
        return None  # no such file or repository: the load itself says so
    made_by = "-".join(f"{name}{_version(name)}" for name in ("transformers", "gguf"))
    return place / "gguf" / f"{digest}-{made_by}-{FORMAT}" / part


def _source(settings: ModelSettings) -> Path | None:
    """The file as transformers finds it, in a folder or in a repository (which may be downloaded
    here). None where it alone does not decide what is loaded. Raises OSError, ValueError."""
    if (Path(settings.path) / "adapter_config.json").is_file():
        return None  # transformers goes to the adapter's base
    name = str(settings.gguf_file)
    found = cached_file(settings.path, name, revision=settings.revision)
    if found is None:
        return None
    near = Path(name)
    if near.is_file() and not near.samefile(found):
        return None  # transformers takes the weights of a file in the working directory first
    return Path(found)


@lru_cache(maxsize=8)
def _sha256(file: Path, state: tuple[int, ...]) -> str:
    """Of the content; `state` says that the file is still the one that was hashed."""
    with open(file, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _read(folder: Path, read: Callable[[Path], T]) -> T | None:
    """What the entry holds; None where it is missing, not whole or does not load."""
    if not _whole(folder):
        return None
    try:
        return read(folder)
    except (UserError, OSError) as e:
        warnings.warn(f"{folder} is damaged, so it is written anew ({e})", stacklevel=4)
        with suppress(OSError):  # of a cache that is only read, which is noted in a moment
            (folder / COMPLETE).unlink(missing_ok=True)
        return None


def _whole(folder: Path) -> bool:
    """Whether every file of the entry is there at its full length, for this user to read."""
    try:
        sizes = json.loads((folder / COMPLETE).read_text(encoding="utf-8"))
        files = {folder / name: size for name, size in sizes.items()}
        return all(f.stat().st_size == n and os.access(f, os.R_OK) for f, n in files.items())
    except (OSError, ValueError):
        return False


def _wait(lock: TextIO, folder: Path) -> bool:
    """Until this process has the lock (True), or need not or will not have it (False): the entry is
    whole, the file system knows no locks, or WAIT seconds are over."""
    end = time.monotonic() + WAIT
    while not _whole(folder) and time.monotonic() < end:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.1)
        except OSError:
            return False
    return False


def _sweep(folder: Path) -> None:
    """Remove what killed processes began; only for whom has the lock."""
    for part in folder.parent.glob(f".{folder.name}.*.part"):
        shutil.rmtree(part, ignore_errors=True)


def _publish(
    made: T,
    folder: Path,
    write: Callable[[T, Path], None],
    read: Callable[[Path], T],
    content: Callable[[T], object],
) -> None:
    """Write the entry beside its place and move it there, unless another process has been faster.
    Raises OSError, and ValueError where it does not read back as it was written."""
    part = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.part")
    part.mkdir()
    try:
        write(made, part)
        if content(read(part)) != content(made):
            raise ValueError("what was written does not read back bit for bit")
        files = [p for p in part.rglob("*") if p.is_file()]
        sizes = {str(p.relative_to(part)): p.stat().st_size for p in files}
        (part / COMPLETE).write_text(json.dumps(sizes, indent=2) + "\n", encoding="utf-8")
        mode = (part / COMPLETE).stat().st_mode  # as this user's files are: safetensors' own are
        for file in (*files, part / COMPLETE):  # for nobody else, and a cache may be shared
            file.chmod(mode)
            _flush(file)
        if not _whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            try:
                os.replace(part, folder)
            except OSError:
                if not _whole(folder):  # of another process, this very moment
                    raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _flush(file: Path) -> None:
    """To the disk itself: after a power cut a file may else have its length and no content."""
    with open(file, "rb") as f:
        os.fsync(f.fileno())
