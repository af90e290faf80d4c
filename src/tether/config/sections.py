"""Whether the sections of a mapping of settings are mappings, before it is whole.

`parse` says all that is wrong with the settings of a run. What is read of a layer before, to find
out which layers there are, needs its sections to be what they are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tether.config.describe import settings_description
from tether.config.errors import UserError
from tether.config.parts import Place
from tether.config.types_as_text import DictType, PartType, SettingsType, resolve, without_none


def check_sections(mapping: Mapping[str, Any], where: str) -> None:
    """Settings of a run, some or all. Raises UserError for a section, or a part of the run, that is
    neither a mapping nor one of the short forms; unknown keys are left to `parse`. `after` may be
    null: it asks for nothing."""
    sections = {k: v for k, v in mapping.items() if k != "after" or v is not None}
    _check(SettingsType("RunSettings"), sections, Place("", where))


def _check(hint: Any, value: Any, place: Place) -> None:
    one = without_none(hint)
    short: tuple[type, ...] = ()
    if isinstance(one, PartType):
        short = (str,)  # the name of a kind
    elif isinstance(one, DictType):
        short = (list, tuple, type(None))  # a list of parts; null drops all
    elif not isinstance(one, SettingsType):
        return
    if (value is None and one is not hint) or isinstance(value, short):
        return
    if not isinstance(value, Mapping):
        raise UserError(f"{place} must be a mapping of settings, not {value!r:.60}")
    if isinstance(one, SettingsType):
        fields = settings_description(one.name)["fields"]
        for key, below in value.items():
            if key in fields:
                _check(resolve(fields[key]["type"]), below, place.at(key))
