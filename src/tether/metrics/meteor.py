"""METEOR by nltk: words aligned exactly, by stem and by WordNet synonym, with a fragmentation
penalty.

    P = m / words of the text, R = m / words of the reference, m = aligned words
    F = P R / (alpha P + (1 - alpha) R),   1 / F = alpha / R + (1 - alpha) / P
    METEOR = F (1 - gamma (chunks / m)^beta); of several references the best

Source: Lavie and Agarwal 2007 with nltk's parameters (alpha .9, beta 3, gamma .5), those that HF
`evaluate` and so RL4LMs use; nltk.translate.meteor_score. Another METEOR than version 1.5
(Denkowski and Lavie 2014, Java), which has other parameters and a paraphrase table: numbers of the
two differ by up to ten points (B40). nltk looks a word's synonyms up among the stems that are left:
`car` meets `auto`, and not `automobile`, whose stem is no word. Kept: the numbers are nltk's.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from tether.config.errors import UserError
from tether.metrics.base import Metric, Row, Scored, installed, missing
from tether.metrics.words import sentences

_FILES = ("index.noun", "data.noun", "index.verb", "data.verb", "index.adj", "data.adj",
          "index.adv", "data.adv", "noun.exc", "verb.exc", "adj.exc", "adv.exc")  # fmt: skip
_GROUPS = (
    (3, "adj.all adj.pert"),
    (4, "adv.all"),
    (1, "noun.Tops noun.act noun.animal noun.artifact noun.attribute noun.body noun.cognition "
        "noun.communication noun.event noun.feeling noun.food noun.group noun.location "
        "noun.motive noun.object noun.person noun.phenomenon noun.plant noun.possession "
        "noun.process noun.quantity noun.relation noun.shape noun.state noun.substance noun.time"),
    (2, "verb.body verb.change verb.cognition verb.communication verb.competition "
        "verb.consumption verb.contact verb.creation verb.emotion verb.motion verb.perception "
        "verb.possession verb.social verb.stative verb.weather"),
    (3, "adj.ppl"),
)  # fmt: skip
"""Lexicographer files of WordNet 3.0 (man page lexnames(5WN)): Debian's package leaves the file out
and nltk's reader wants it."""


@dataclass
class Meteor(Metric):
    """METEOR (nltk): alignment of words with stems and WordNet synonyms."""

    wordnet: str = ""
    """Folder of WordNet's database (index.noun, data.noun ...). Empty: where nltk looks for
    corpora/wordnet, then /usr/share/wordnet."""
    synonyms: bool = True
    """Off: exact words and stems only. Needs no WordNet; another number, as the signature says."""
    alpha: float = 0.9
    """Weight of recall in the harmonic mean of recall and precision, whose weight is 1 - alpha: .9
    counts recall nine times, as in the first METEOR (Banerjee and Lavie 2005, 10 P R / (R + 9 P));
    1 is recall alone, 0 precision alone."""
    beta: float = 3.0
    """Exponent of the fragmentation penalty."""
    gamma: float = 0.5
    """Largest fragmentation penalty."""

    name: ClassVar[str] = "meteor"
    package: ClassVar[str] = "nltk"
    beside: ClassVar[tuple[str, ...]] = ("wordnet",)
    seconds_per_1000: ClassVar[float] = 15.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._wordnet: Any = None
        self._score: Any = None
        self._words: Any = None

    @property
    def version(self) -> str:
        """nltk and WordNet: both decide the number."""
        if not self.synonyms:
            return f"{installed(self.package)}, no WordNet"
        self.prepare()
        return f"{installed(self.package)}, WordNet {self._wordnet.version}"

    def check(self) -> None:
        if not (0 <= self.alpha <= 1 and 0 <= self.gamma <= 1 and self.beta >= 0):
            raise UserError(
                f"meteor: alpha {self.alpha:g} and gamma {self.gamma:g} must be in [0, 1], beta "
                f"{self.beta:g} at least 0"
            )
        self.prepare()

    def prepare(self) -> None:
        if self._score is not None:
            return
        try:
            from nltk.tokenize import NLTKWordTokenizer
            from nltk.translate.meteor_score import meteor_score
        except ImportError as e:
            raise missing(self.name, self.package, "pip install nltk") from e
        self._wordnet = _synonyms(self._folder()) if self.synonyms else _NoSynonyms()
        split = NLTKWordTokenizer().tokenize
        self._words = lru_cache(maxsize=20_000)(
            lambda text: tuple(w for s in sentences(text) for w in split(s))
        )
        self._score = meteor_score

    def _folder(self) -> Path:
        import nltk.data

        if self.wordnet:
            places = [Path(self.wordnet).expanduser()]
        else:
            places = [Path(p) / "corpora" / "wordnet" for p in nltk.data.path]
            places.append(Path("/usr/share/wordnet"))
        for place in places:
            if all((place / name).is_file() for name in _FILES):
                return place.resolve()
            packed = place.with_name(place.name + ".zip")
            if packed.is_file():
                raise UserError(f"meteor: {packed} is packed; unzip it where it lies")
        where = self.wordnet or "nltk's folders and /usr/share/wordnet"
        raise UserError(
            f"meteor needs WordNet's database and finds none in {where}: apt install wordnet-base, "
            "or python -m nltk.downloader wordnet, or name its folder in "
            "`wordnet`, or measure exact words and stems only with synonyms: false"
        )

    def score(self, rows: Sequence[Row]) -> Sequence[Scored]:
        self.prepare()
        return [(self._one(r),) for r in rows]

    def _one(self, row: Row) -> float:
        text = self._words(row.text)
        if not text:
            return 0.0
        return float(
            self._score(
                [self._words(x) for x in row.references], text, wordnet=self._wordnet,
                alpha=self.alpha, beta=self.beta, gamma=self.gamma,
            )
        )  # fmt: skip


@lru_cache(maxsize=4)
def _synonyms(folder: Path) -> _Synonyms:
    """One reader of a folder for the whole process: it takes seconds to load."""
    import warnings

    import nltk.data
    from nltk.corpus.reader import WordNetCorpusReader

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        def open(self, file: str) -> Any:
            if file == "lexnames" and not (folder / file).is_file():
                return io.StringIO(_lexnames())
            return super().open(file)

        def map_wn(self, version: str = "wordnet") -> None:
            """A map to other languages, for which nltk reads its own copy of WordNet."""

    if str(folder) not in nltk.data.path:
        nltk.data.path.append(str(folder))  # nltk opens nothing outside these
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its multilingual part
            return _Synonyms(Reader(str(folder), None))
    except Exception as e:
        raise UserError(
            f"meteor: {folder} is not a WordNet database that nltk can read ({e})"
        ) from e


class _Synonyms:
    """The one method of WordNet's reader that METEOR calls. Remembered by word, since most of the
    time goes into it, and locked: the reader moves about in open files."""

    def __init__(self, reader: Any) -> None:
        self.version = str(reader.get_version())
        lock = threading.Lock()

        @lru_cache(maxsize=200_000)
        def synsets(word: str) -> Any:
            with lock:
                return reader.synsets(word)

        self.synsets = synsets


class _NoSynonyms:
    version = "none"

    def synsets(self, word: str) -> list[Any]:
        return []


def _lexnames() -> str:
    pairs = [(name, pos) for pos, names in _GROUPS for name in names.split()]
    return "".join(f"{i:02d}\t{name}\t{pos}\n" for i, (name, pos) in enumerate(pairs))
