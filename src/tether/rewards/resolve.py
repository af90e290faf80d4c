"""`file.py:function`, `module:function` or TRL's dotted `pkg.mod.function` -> the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tether.config.catalog import load_object
from tether.config.errors import UserError


def resolve(name: str) -> Callable[..., Any]:
    """The callable that `name` names; the current folder is importable.

    Raises UserError (missing file, failing import, no such name, not callable), with the original
    exception chained.
    """
    address = name
    if ":" not in name:
        place, _, attribute = name.rpartition(".")
        if not place or not attribute or attribute == "py":
            raise UserError(
                f"reward function {name!r}: write file.py:function, module:function or "
                "pkg.mod.function"
            )
        address = f"{place}:{attribute}"
    try:
        found = load_object(address, f"reward function {name!r}")
    except UserError:
        raise
    except Exception as error:  # a lazy module may import on attribute access
        raise UserError(
            f"reward function {name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not callable(found):
        raise UserError(f"reward function {name!r} is {type(found).__name__}, not callable")
    return found  # type: ignore[no-any-return]
