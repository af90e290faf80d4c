"""IWSLT 2017: talks of TED, English and German.

Source: Cettolo et al. 2017 (IWSLT).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tether.tasks.translation import Translation


@dataclass(kw_only=True)
class IWSLT17(Translation):
    """TED talks, English -> German. Source: allenai/RL4LMs@97df0bd."""

    hub: ClassVar[str] = "IWSLT/iwslt2017"
    hub_name: ClassVar[str | None] = "iwslt2017-de-en"
    hub_revision: ClassVar[str | None] = "refs/convert/parquet"
    files: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "validation": ("iwslt17_validation",),
        "test": ("iwslt17_test",),
    }
    licence: ClassVar[str] = "CC BY-NC-ND 4.0 (TED): non-commercial, no derivatives"
