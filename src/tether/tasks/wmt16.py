"""WMT 2016: news, English and German.

Source: Bojar et al. 2016 (WMT).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tether.tasks.translation import Translation


@dataclass(kw_only=True)
class WMT16(Translation):
    """News, English -> German. Source: Bojar et al. 2016; RL4LMs has the pool without a
    configuration: defaults as IWSLT17."""

    hub: ClassVar[str] = "wmt/wmt16"
    hub_name: ClassVar[str | None] = "de-en"
    licence: ClassVar[str] = "mixed, see the WMT16 pages; research"
