"""BM25 on SciFact, 5,183 documents and all 1,109 queries, top 100: ours, rank-bm25, and bm25s used directly.

    python tests/benchmarks/bench_bm25.py [--json]

From query texts to ranked documents. All sides index the same tokens and cut queries into tokens with the same
tokeniser, within the time; building the index is outside it. Before anything is timed, scores are compared.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import rank_bm25
from figures import Row, compare, finish

from embedtrain.bm25 import BM25
from embedtrain.collection import Collection
from embedtrain.config import LexicalOptions

SCIFACT = Path(__file__).parents[2] / "recipes" / "data" / "scifact"
OPTIONS = LexicalOptions()
K = 100


def direct(backend: str, documents: list[list[str]]) -> Callable[[list[list[str]]], tuple[Any, Any]]:
    """bm25s as its manual has it, with our parameters."""
    engine = bm25s.BM25(k1=OPTIONS.k1, b=OPTIONS.b, method="lucene", backend=backend)
    engine.index(documents, show_progress=False)
    return lambda queries: engine.retrieve(queries, k=K, show_progress=False)


def reference(documents: list[list[str]]) -> Callable[[list[list[str]]], list[Any]]:
    """rank-bm25 as its manual has it: every score, then the best of them."""
    engine = rank_bm25.BM25Okapi(documents, k1=OPTIONS.k1, b=OPTIONS.b)
    return lambda queries: [np.argsort(engine.get_scores(query))[::-1][:K] for query in queries]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--limit", type=int, help="use the first N queries only")
    parser.add_argument("--rounds", type=int, default=15, help="rounds against bm25s [default: 15]")
    parser.add_argument("--slow-rounds", type=int, default=3, help="rounds against rank-bm25 [default: 3]")
    arguments = parser.parse_args()
    collection = Collection(SCIFACT)
    texts = collection.corpus
    questions = [collection.queries.by_id(query) for query in collection.queries.ids][: arguments.limit]
    ours = BM25(texts, collection.corpus.ids, OPTIONS)
    documents = [ours.tokenize(text) for text in texts]
    tokens = [ours.tokenize(text) for text in questions]
    backends = ["numpy", *(["numba"] if bm25s.NUMBA_AVAILABLE else [])]
    sides = {f"bm25s used directly, {name} backend": direct(name, documents) for name in backends}
    hits = ours.search(questions, K)
    for name, side in sides.items():
        _, scores = side(tokens)  # compiles, too
        for mine, theirs in zip(hits.scores, scores, strict=True):
            if not np.array_equal(mine, theirs[theirs > 0]):
                sys.exit(f"{name} gives other scores: {mine[:3]} here, {theirs[:3]} there")
    work = f"BM25, {len(texts):,} documents, {len(questions):,} queries, top {K}"

    def row(
        against: str, side: Callable[[list[list[str]]], object], least: float, rounds: int, repeats: int
    ) -> Row:
        return compare(
            work,
            against,
            lambda: ours.search(questions, K),
            lambda: side([ours.tokenize(text) for text in questions]),
            amount=len(questions),
            unit="queries/s",
            least=least,
            rounds=rounds,
            repeats=repeats,
        )

    rows = [row("rank-bm25", reference(documents), 100, arguments.slow_rounds, 20)]
    rows += [row(name, side, 0.9, arguments.rounds, 1) for name, side in sides.items()]
    extra = ["numba"] if bm25s.NUMBA_AVAILABLE else []
    return finish(rows, arguments.json, "numpy", "scipy", "bm25s", "rank-bm25", *extra)


if __name__ == "__main__":
    sys.exit(main())
