"""What a model is looked at with: a seeded sample of documents, and queries with their positives."""

import dataclasses
import zlib

import numpy as np

from embedtrain.collection import Collection
from embedtrain.config import DiagnoseOptions
from embedtrain.diagnose import geometry
from embedtrain.diagnose.verdicts import Space
from embedtrain.duplicates import normalised
from embedtrain.errors import EmbedtrainError

_STREAM = zlib.crc32(b"diagnose")


@dataclasses.dataclass(frozen=True)
class Probe:
    """What is encoded: documents (rows), the rows of the random sample, queries, and their positives as rows."""

    documents: list[int]  # corpus positions
    sample: list[int]
    queries: list[str]
    positives: list[list[int]]
    dropped: dict[str, int]

    @property
    def pairs(self) -> int:
        """Number of positive pairs."""
        return sum(len(rows) for rows in self.positives)


def draw(collection: Collection, options: DiagnoseOptions) -> Probe:
    """The seeded sample of documents, and the queries of the split (as many at most) with all their positives.

    Blank texts are left out: they would all be one vector. Raises EmbedtrainError where too few remain.
    """
    corpus = collection.corpus
    random = np.random.default_rng([options.seed, _STREAM])
    filled = [index for index in range(len(corpus)) if normalised(corpus.text(index))]
    if len(filled) < 3:
        raise EmbedtrainError(f"{collection.path} has {len(filled)} documents with text; at least 3 are needed")
    drawn = sorted(filled[i] for i in random.permutation(len(filled))[: options.sample].tolist())
    dropped = {
        "empty documents": len(corpus) - len(filled),
        "documents not in the sample": len(filled) - len(drawn),
    }
    judged = collection.qrels(options.split)
    wanted = collection.positives(options.split)
    dropped["queries without a positive"] = len(judged) - len(wanted)
    queries = list(wanted)[: options.limit]
    dropped["query beyond --limit"] = len(wanted) - len(queries)
    usable = {q: [corpus.position[d] for d in wanted[q]] for q in queries}
    empty = set(range(len(corpus))) - set(filled)
    usable = {q: kept for q, rows in usable.items() if (kept := [row for row in rows if row not in empty])}
    dropped["queries whose positives are empty"] = len(queries) - len(usable)
    chosen = sorted(random.permutation(len(usable))[: options.sample].tolist())
    queries = [list(usable)[i] for i in chosen]
    dropped["queries not in the sample"] = len(usable) - len(queries)
    if not queries:
        raise EmbedtrainError(
            f"split {options.split} of {collection.path} has no query with a positive; choose another --split"
        )
    documents = sorted({*drawn, *(row for query in queries for row in usable[query])})
    row_of = {position: row for row, position in enumerate(documents)}
    return Probe(
        documents,
        [row_of[position] for position in drawn],
        queries,
        [[row_of[position] for position in usable[query]] for query in queries],
        {reason: count for reason, count in dropped.items() if count},
    )


def look(name: str, queries: np.ndarray, documents: np.ndarray, probe: Probe, seed: int) -> Space:
    """The numbers of one model: queries (q, d) and documents (n, d) as the probe orders them."""
    sample = documents[probe.sample]
    asked = np.repeat(np.arange(len(queries)), [len(rows) for rows in probe.positives])
    answers = [row for rows in probe.positives for row in rows]
    return Space(
        name=name,
        dimension=documents.shape[1],
        documents=len(sample),
        alignment=geometry.alignment(queries[asked], documents[answers]),
        uniformity=geometry.uniformity(sample),
        cosine=geometry.Spread.of(geometry.pair_cosines(sample, seed=(seed, _STREAM, 1))),
        contrast=geometry.Contrast.of(queries, documents, probe.positives, probe.sample),
        spectrum=geometry.Spectrum.of(sample),
        rank_me=geometry.rank_me(sample),
    )
