"""Dense top-k by an approximate index of faiss, for corpora where exact search is too slow; its recall is measured.

How hard the index looks is not guessed: it is doubled until a seeded sample of the queries finds what exact search
finds, to a wanted share. What is found is scored again exactly and put in the one order (see `search`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from embedtrain import memory
from embedtrain.console import Progress, silent, size
from embedtrain.errors import UsageError
from embedtrain.hits import Hits
from embedtrain.search import Exact
from embedtrain.vectors import as_float32, directions, pair_scores

EXACT = "exact"
KINDS = (EXACT, "ivf", "hnsw")

# Below this many documents exact search is as fast, and an index cannot be trained well.
FEWEST = 10_000
WANTED_RECALL = 0.98
SAMPLE = 200
_BLOCK = 65_536
_QUERIES = 1_024
# faiss warns below 39 training vectors a list and uses 256 at most (ClusteringParameters).
_LEAST_PER_LIST, _MOST_PER_LIST = 39, 256
_LINKS, _CONSTRUCTION = 32, 100  # of HNSW: M and efConstruction (Malkov and Yashunin 2018, section 4.1)


def check_index(kind: str) -> None:
    """Raise UsageError for a kind of index there is none of."""
    if kind not in KINDS:
        raise UsageError(f"--index {kind}: {', '.join(KINDS)} are the kinds")


def recall(found: Hits, truth: Hits) -> float:
    """Share of the documents of `truth` that `found` has for the same query."""
    shared = sum(len(np.intersect1d(a, b)) for a, b in zip(found.positions, truth.positions, strict=True))
    return shared / max(1, sum(len(part) for part in truth.positions))


def _ready(rows: Any, similarity: str) -> NDArray[np.float32]:
    """Vectors as faiss wants them: float32 in C order, of length 1 for cosine."""
    rows = as_float32(rows)
    return directions(rows) if similarity == "cosine" else rows


class _Index:
    """One faiss index over all documents, and the knob for how hard it looks."""

    def __init__(self, kind: str, documents: Any, similarity: str, seed: int, progress: Progress) -> None:
        count, dimension = len(documents), int(documents.shape[1])
        self._set: Callable[[int], None]
        self._engine: Any
        if kind == "ivf":
            lists = max(1, min(round(4 * count**0.5), count // _LEAST_PER_LIST))
            coarse = faiss.IndexFlatIP(dimension)
            self._engine = faiss.IndexIVFFlat(coarse, dimension, lists, faiss.METRIC_INNER_PRODUCT)
            self._engine.cp.seed = seed % 2**31
            self._train(documents, lists, similarity, seed)
            self.first, self.last = min(4, lists), lists
            self._set = lambda value: setattr(self._engine, "nprobe", value)
        else:
            self._engine = faiss.IndexHNSWFlat(dimension, _LINKS, faiss.METRIC_INNER_PRODUCT)
            self._engine.hnsw.efConstruction = _CONSTRUCTION
            self.first, self.last = 64, count
            self._set = lambda value: setattr(self._engine.hnsw, "efSearch", value)
        threads = faiss.omp_get_max_threads()
        if kind == "hnsw":  # insertions that run side by side link differently every time
            faiss.omp_set_num_threads(1)
        progress(f"build the {kind} index", 0, count, "")
        try:
            for start in range(0, count, _BLOCK):
                self._engine.add(_ready(documents[start : start + _BLOCK], similarity))
                progress(f"build the {kind} index", min(start + _BLOCK, count), count, "")
        finally:
            faiss.omp_set_num_threads(threads)

    def _train(self, documents: Any, lists: int, similarity: str, seed: int) -> None:
        wanted = min(len(documents), lists * _MOST_PER_LIST)
        chosen = np.sort(np.random.default_rng([seed, 3]).permutation(len(documents))[:wanted])
        self._engine.train(_ready(documents[chosen], similarity))

    def look(self, queries: NDArray[np.float32], k: int, effort: int) -> NDArray[np.int64]:
        """Positions (n, k) of neighbours, -1 where there are fewer."""
        self._set(effort)
        return self._engine.search(queries, k)[1]


class Approximate:
    """Documents in a faiss index that looks as hard as the wanted recall of exact search takes, on these queries."""

    def __init__(
        self,
        kind: str,
        exact: Exact,
        queries: Any,
        k: int,
        *,
        seed: int = 0,
        progress: Progress = silent,
    ) -> None:
        self._exact = exact
        self._index = _Index(kind, exact.documents, exact.similarity, seed, progress)
        chosen = np.sort(np.random.default_rng([seed, 4]).permutation(len(queries))[:SAMPLE])
        asked = as_float32(queries[chosen])
        truth = exact.search(asked, k, progress)
        last = self._index.last
        self._effort = min(max(self._index.first, k if kind == "hnsw" else 1), last)
        while (measured := recall(self._found(asked, k), truth)) < WANTED_RECALL and self._effort < last:
            self._effort = min(2 * self._effort, last)
        knob = "nprobe" if kind == "ivf" else "efSearch"
        self._what = f"search the {kind} index"
        self.said = (
            f"{kind}, {knob} {self._effort}, recall {measured:.4f} of exact search on {len(chosen)} queries"
        )

    def search(self, queries: Any, k: int, progress: Progress = silent) -> Hits:
        """The k nearest documents of every query, as far as the index finds them."""
        found = []
        progress(self._what, 0, len(queries), "")
        for start in range(0, len(queries), _QUERIES):
            found.append(self._found(as_float32(queries[start : start + _QUERIES]), k))
            progress(self._what, min(start + _QUERIES, len(queries)), len(queries), "")
        return Hits.joined(found)

    def _found(self, queries: NDArray[np.float32], k: int) -> Hits:
        similarity, ties = self._exact.similarity, self._exact.ties
        found = self._index.look(_ready(queries, similarity), k, self._effort)
        row, column = np.nonzero(found >= 0)
        places = found[row, column]
        scores = pair_scores(queries, self._exact.documents, row, places, similarity=similarity)
        return ties.best_of_each(ties.keys(scores, places), np.bincount(row, minlength=len(queries)), k)


def open_index(
    kind: str,
    queries: Any,
    documents: Any,
    ids: Sequence[str],
    k: int,
    *,
    similarity: str = "cosine",
    allowed: int | None = None,
    device: Any = None,
    seed: int = 0,
    progress: Progress = silent,
) -> tuple[Exact | Approximate, dict[str, Any]]:
    """What searches the documents as asked for, and facts: which search it is, with what effort, and its recall.

    The recall is measured on a sample of `queries`. A small corpus is searched exactly whatever was asked for.
    `allowed`: bytes of memory; `device`: a GPU that the exact search runs on. Raises UsageError for an unknown kind,
    and for an index that needs more memory.
    """
    check_index(kind)
    dimension = int(documents.shape[1]) if len(documents) else 0
    block = memory.search_block(allowed, dimension) if device is None else None
    exact = Exact(documents, ids, similarity, block=block, device=device)
    if kind == EXACT:
        return exact, {}
    if len(documents) < FEWEST:
        return exact, {"index": f"exact: {len(documents):,} documents are few"}
    each = 4 * dimension + (8 if kind == "ivf" else 8 * _LINKS + 16)
    if allowed is not None and len(documents) * each > allowed:
        raise UsageError(
            f"--index {kind} holds all vectors in memory, {size(len(documents) * each)} of them, and "
            f"{size(allowed)} are allowed; give more with --memory, or leave --index out: exact search "
            "reads them from disk"
        )
    found = Approximate(kind, exact, queries, k, seed=seed, progress=progress)
    return found, {"index": found.said}
