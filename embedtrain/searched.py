"""What is searched when documents are ranked: themselves, or the passages they were cut into.

Judgements often name whole pages, while what is indexed are chunks of them. A document's score then is that of its best
passage (MaxP; Dai and Callan, SIGIR 2019, section 3).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain.collection import Collection, Texts
from embedtrain.errors import EmbedtrainError, first_three
from embedtrain.hits import Hits, Ties
from embedtrain.systems import System

# Passages that are looked for where one document is wanted: pages of long guides fill the first places with their own.
_DEEPER = 10


class Documents:
    """The documents of a corpus, each as it is. `texts` are searched, `ids` are ranked."""

    noun = "documents"

    def __init__(self, corpus: Texts) -> None:
        self.texts = corpus
        self.ids: Sequence[str] = corpus.ids

    def depth(self, k: int) -> int:
        """How many hits to ask a search for where k documents are wanted."""
        return k

    def ranked(self, hits: Hits, k: int) -> Hits:
        """The documents of a search's hits, at most k a query; positions count in `ids`."""
        return hits


class Passages(Documents):
    """The documents of a corpus by their passages, which are the documents of another collection.

    A column of that collection's corpus says which document each was cut from; harvested pages have it as `page`.
    Raises EmbedtrainError where no passage is of any document of the corpus, or the column is not there.
    """

    noun = "passages"

    def __init__(self, corpus: Texts, path: Path, column: str) -> None:
        super().__init__(corpus)
        found = Collection(path)
        self.texts = found.corpus
        names = found.corpus_column(column)
        self._of: NDArray[np.int64] = np.array([corpus.position.get(name, -1) for name in names], dtype=np.int64)
        self._strange = sorted({name for name, place in zip(names, self._of, strict=True) if place < 0})
        known = np.unique(self._of[self._of >= 0])
        if not len(known):
            raise EmbedtrainError(
                f"no passage of {path} is of a document that is measured: its column {column} has "
                f"{first_three(names)}, and the documents are {first_three(list(corpus.ids))}; name the column with "
                "--passage-column"
            )
        self._path, self._column = path, column
        self._without = len(corpus) - len(known)
        self._ties = Ties(self.ids)
        self._cut = False  # whether a search may have found more passages than it was asked for

    def depth(self, k: int) -> int:
        """How many passages to ask for: what is best among them is exact for as many documents as they are of."""
        return min(_DEEPER * k, len(self.texts))

    def ranked(self, hits: Hits, k: int) -> Hits:
        """Documents by the score of their best passage; passages of other documents leave."""
        asked = self.depth(k)
        self._cut |= asked < len(self.texts) and any(len(found) >= asked for found in hits.positions)
        positions, scores = [], []
        for found, values in zip(hits.positions, hits.scores, strict=True):
            documents = self._of[found]
            inside = documents >= 0
            named, first = np.unique(documents[inside], return_index=True)  # hits stand best first
            best, score = self._ties.best(self._ties.keys(values[inside][first], named), k)
            positions.append(best)
            scores.append(score)
        return Hits(positions, scores)

    def about(self) -> dict[str, Any]:
        """What is to be said of it, as plain values."""
        return {
            "passages": len(self.texts),
            "column": self._column,
            "passages_of_other_documents": int((self._of < 0).sum()),
            "documents_without_a_passage": self._without,
        }

    def said(self) -> list[str]:
        """The same as sentences."""
        said = [f"documents are ranked by their best passage: {len(self.texts):,} passages of {self._path}"]
        if strange := int((self._of < 0).sum()):
            said.append(
                f"{strange:,} passages are of documents that are not in the corpus and are left out: "
                f"{first_three(self._strange)}"
            )
        if self._without:
            said.append(f"{self._without:,} documents have no passage and cannot be found")
        return said

    def too_few(self, systems: Sequence[System], deepest: int) -> list[str]:
        """Sentences on systems whose passages are of fewer documents than the largest cutoff looks at.

        There are none where every search found all the passages that there are for it.
        """
        found: list[str] = []
        if not self._cut:
            return found
        for system in systems:
            short = sum(len(places) < deepest for places in system.hits.positions)
            if short and "seeds" not in system.about and "run" not in system.about:
                found.append(
                    f"{system.name}: the best passages of {short:,} queries are of fewer than {deepest} documents; a "
                    "larger --top-k looks at more"
                )
        return found
