"""Multi30k: captions of photographs, English and German. Stands in for IWSLT17 and WMT16.

Source: Elliott et al. 2016, arXiv 1605.00459.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tether.tasks.translation import Translation


@dataclass(kw_only=True)
class Multi30k(Translation):
    """Image captions, English -> German. Source: Elliott et al. 2016, arXiv 1605.00459; defaults as
    IWSLT17, with shorter completions: captions have 13 words on average."""

    hub: ClassVar[str] = "bentrevett/multi30k"
    files: ClassVar[Mapping[str, tuple[str, ...]]] = {"test": ("test2016",)}
    licence: ClassVar[str] = "non-commercial research (Flickr30k terms)"
    sampling: ClassVar[Mapping[str, Any]] = {"max_new_tokens": 48, "top_k": 10}
