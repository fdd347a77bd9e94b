"""Dense top-k by exact search over vectors that may lie on disk."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info, threadpool_limits

from embedtrain.console import Progress, silent
from embedtrain.errors import EmbedtrainError
from embedtrain.hits import Hits, Ties
from embedtrain.nearest import Nearest, OnDevice, moved
from embedtrain.vectors import as_float32, check_finite, divided, exact_scores, lengths_of, pairs_at_once

if TYPE_CHECKING:  # only a search on a device needs it
    import torch

# Queries and documents that are looked at together, on a CPU and on a GPU.
BLOCK = (512, 16_384)
GPU_BLOCK = (2_048, 65_536)

Item = TypeVar("Item")


class Exact:
    """Documents (m, d) of any float type, in memory or on disk, for exact search.

    For `cosine` both sides are divided by their lengths here, whatever they were; `dot` is the bare inner product.
    Blocks are multiplied in float32, which is fast and depends on their shape in the last bits; whatever that error
    leaves in doubt is kept, and only what is kept is scored, compared and reported, each pair on its own in float64
    (`vectors.pair_scores`). So `block`, which bounds memory (queries and documents at a time), never changes the result.
    """

    def __init__(
        self,
        documents: Any,
        ids: Sequence[str],
        similarity: str = "cosine",
        *,
        block: tuple[int, int] | None = None,
        device: "torch.device | None" = None,
    ) -> None:
        """Look at every document once. `device`: where PyTorch multiplies the blocks; NumPy does it without one.

        Raises EmbedtrainError for vectors that are no numbers, and wrong shapes.
        """
        if similarity not in ("cosine", "dot"):
            raise EmbedtrainError(f"similarity {similarity!r} is not known; cosine and dot are")
        if len(ids) != len(documents):
            raise EmbedtrainError(f"{len(documents)} document vectors were given for {len(ids)} documents")
        self.similarity = similarity
        self.documents = documents
        self.ties = Ties(ids)
        self._device = device
        steps = block or (BLOCK if device is None or device.type == "cpu" else GPU_BLOCK)
        self._query_step, self._document_step = max(1, steps[0]), max(1, steps[1])
        self._lengths = np.empty(len(documents), dtype=np.float64)
        for start in range(0, len(documents), self._document_step):
            part = slice(start, start + self._document_step)
            self._lengths[part] = lengths_of(as_float32(documents[part]))
        check_finite(self._lengths, "document")

    def search(self, queries: Any, k: int, progress: Progress = silent) -> Hits:
        """The k nearest documents of every query (n, d)."""
        documents, count = self.documents, len(self.documents)
        if count and len(queries) and queries.shape[1] != documents.shape[1]:
            raise EmbedtrainError(
                f"query vectors have {queries.shape[1]} dimensions and document vectors {documents.shape[1]}; "
                "both must come from the same model"
            )
        if not min(k, count) or not len(queries):
            return Hits.nothing(len(queries))
        longest = 1.0 if self.similarity == "cosine" else float(self._lengths.max())
        nearest = Nearest if self._device is None else OnDevice
        parts: list[Nearest] = []
        for at in range(0, len(queries), self._query_step):
            vectors = as_float32(queries[at : at + self._query_step])
            lengths = lengths_of(vectors)
            check_finite(lengths, "query")
            parts.append(nearest(vectors, lengths, min(k, count), self.similarity, longest))
        progress("search the vectors", 0, count, "")
        with _Workers(len(parts) if self._device is None else 1) as workers:
            for start in range(0, count, self._document_step):
                right = as_float32(documents[start : start + self._document_step])
                if self.similarity == "cosine":
                    right = divided(right, self._lengths[start : start + self._document_step])
                looked_at = right if self._device is None else moved(right, self._device)
                workers.each(methodcaller("look", looked_at, start), parts)
                progress("search the vectors", min(start + self._document_step, count), count, "")
            return Hits.joined(workers.each(self._best, parts))

    def _best(self, part: Nearest) -> Hits:
        found = []
        rows, places, counts, doubtful = part.candidates()
        at = 0
        for queries in _together(counts, pairs_at_once(self.documents)):
            size = int(counts[queries].sum())
            own = slice(at, at + size)
            right = as_float32(self.documents[places[own]])
            lengths = part.lengths[rows[own]] * self._lengths[places[own]]
            exact = exact_scores(part.vectors[queries], counts[queries].tolist(), right, self.similarity, lengths)
            found.append(self.ties.best_of_each(self.ties.keys(exact, places[own]), counts[queries], part.k))
            at += size
        hits = Hits.joined(found)
        for row in doubtful.tolist():
            hits.positions[row], hits.scores[row] = self._one_by_one(part, row)
        return hits

    def _one_by_one(self, part: Nearest, row: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The k best of all documents for a query that has more equals than are held."""
        keys, step = np.empty(0, dtype=np.uint64), pairs_at_once(self.documents)
        for start in range(0, len(self.documents), step):
            right = as_float32(self.documents[start : start + step])
            lengths = part.lengths[row] * self._lengths[start : start + step]
            exact = exact_scores(part.vectors[[row]], [len(right)], right, self.similarity, lengths)
            keys = np.concatenate([keys, self.ties.keys(exact, start + np.arange(len(exact)))])
            if len(keys) > part.k:
                keys = np.partition(keys, len(keys) - part.k)[len(keys) - part.k :]
        return self.ties.best(keys, part.k)


def dense(
    queries: Any,
    documents: Any,
    ids: Sequence[str],
    k: int,
    *,
    similarity: str = "cosine",
    progress: Progress = silent,
    block: tuple[int, int] | None = None,
    device: "torch.device | None" = None,
) -> Hits:
    """The k nearest documents of every query, exactly: queries (n, d), documents (m, d). See `Exact`."""
    return Exact(documents, ids, similarity, block=block, device=device).search(queries, k, progress)


def _together(counts: NDArray[np.int64], most: int) -> list[slice]:
    """Neighbouring queries whose counts add up to `most` at most, or single ones."""
    parts, start, total = [], 0, 0
    for query, count in enumerate(counts.tolist()):
        if query > start and total + count > most:
            parts.append(slice(start, query))
            start, total = query, 0
        total += count
    return [*parts, slice(start, len(counts))] if len(counts) else []


def _threads() -> int:
    """How many threads a matrix product has here (OMP_NUM_THREADS and the like bound it)."""
    return max(
        (library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"), default=1
    )


class _Workers:
    """Does the same for several parts, side by side on as many threads as matrix products use here.

    Products are given one thread each meanwhile, so that what surrounds them is shared out, too.
    """

    def __init__(self, parts: int) -> None:
        count = min(parts, _threads()) if parts > 1 else 1
        self._pool = ThreadPoolExecutor(count) if count > 1 else None
        self._limits = threadpool_limits(limits=1, user_api="blas") if self._pool else None

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)
        if self._limits:
            self._limits.restore_original_limits()

    def each(self, work: Callable[[Item], Any], parts: Sequence[Item]) -> list[Any]:
        """What `work` gives for every part, in their order."""
        return [work(part) for part in parts] if self._pool is None else list(self._pool.map(work, parts))
