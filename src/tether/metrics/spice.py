"""SPICE: F1 of the scene graphs that a parser reads out of text and references.

Source: Anderson et al. 2016, "SPICE: Semantic Propositional Image Caption Evaluation". An adapter
over pycocoevalcap, which runs the authors' Java program and, left alone, downloads Stanford CoreNLP
3.6.0 on first use. Here nothing is downloaded: the two jars must lie in its folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tether.config.errors import UserError
from tether.metrics.base import Metric, Row, Scored, missing

_JARS = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")


@dataclass
class Spice(Metric):
    """SPICE F1, English only; 0 for an empty text. Starts a Java program for every call."""

    name: ClassVar[str] = "spice"
    package: ClassVar[str] = "pycocoevalcap"
    seconds_per_1000: ClassVar[float] = 600.0

    def check(self) -> None:
        library = self._library()
        if shutil.which("java") is None:
            raise UserError("spice needs Java (8 or newer) on the PATH: apt install default-jre")
        lib = Path(library.__file__).parent / "lib"
        if not all((lib / jar).is_file() for jar in _JARS):
            raise UserError(
                f"spice needs Stanford CoreNLP 3.6.0 ({' and '.join(_JARS)}) in {lib}: python -c "
                "'from pycocoevalcap.spice.get_stanford_models import *; get_stanford_models()' "
                "fetches them"
            )

    def _library(self) -> Any:
        try:
            from pycocoevalcap.spice import spice
        except ImportError as e:
            raise missing(self.name, self.package, "pip install pycocoevalcap") from e
        return spice

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        self.check()
        full = [i for i, r in enumerate(rows) if r.text.strip()]
        out: list[Scored] = [(0.0,)] * len(rows)
        if full:
            references = {i: list(rows[i].references) for i in full}
            texts = {i: [rows[i].text] for i in full}
            _, each = self._library().Spice().compute_score(references, texts)
            for i, found in zip(sorted(full), each, strict=True):
                value = float(found["All"]["f"])
                out[i] = (value if value == value else 0.0,)  # NaN: no proposition on either side
        return out
