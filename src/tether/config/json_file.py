"""JSON files that the library wrote and that something else may have cut or changed since."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tether.config.errors import UserError


def digest(content: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_mapping(file: Path, mend: str, *keys: str) -> dict[str, Any]:
    """The object of a file that has at least these keys.

    mend: what to do where it is anything else. Raises UserError.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise UserError(f"{file} is damaged ({e}): {mend}") from e
    if not isinstance(found, dict):
        raise UserError(f"{file} is damaged (it holds no object): {mend}")
    lost = next((k for k in keys if k not in found), None)
    if lost is not None:
        raise UserError(f"{file} is damaged (it lacks '{lost}'): {mend}")
    return found
