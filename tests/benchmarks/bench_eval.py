"""Evaluation: measures beside pytrec_eval, a ranking beside sentence-transformers' evaluator, and the whole command.

    python tests/benchmarks/bench_eval.py [--queries 10000] [--results 1000] [--documents 5183] [--json]

Measures: made-up runs without ties over 100,000 documents, 10 graded ones a query; pytrec_eval gets its dictionaries ready made,
ours its arrays, and both give nDCG@10, MAP@100 and Recall@1000 a query, which must agree.
Evaluator: SciFact's 300 test claims and its documents by MiniLM's vectors, which both sides are given: search and the 15
values that the evaluator gives by default; ours are per query.
Command: `embedtrain eval` of SciFact with MiniLM, its vectors in the store, the whole process. The store is the one that
EMBEDTRAIN_CACHE names, and is filled first where it has no vectors: minutes on two cores.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from figures import Row, compare, finish

SCIFACT = Path(__file__).parents[2] / "recipes" / "data" / "scifact"
MEASURES = {"nDCG@10": "ndcg_cut.10", "MAP@100": "map_cut.100", "Recall@1000": "recall.1000"}
CUTOFFS = (1, 3, 5, 10)
EVALUATOR = [
    "nDCG@10",
    "RR@10",
    "MAP@100",
    *(f"{name}@{k}" for name in ("Success", "P", "Recall") for k in CUTOFFS),
]


def made_up(
    queries: int, results: int, seed: int
) -> tuple[Any, list[str], dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    """Hits, ids, qrels, and the same run as dictionaries, without ties: each side has its own rule for those."""
    from embedtrain.hits import Hits

    random = np.random.default_rng(seed)
    count = 100_000
    ids = [f"d{number:06}" for number in range(count)]
    positions = [random.choice(count, results, replace=False) for _ in range(queries)]
    scores = [
        np.sort(random.random(results).astype(np.float32))[::-1] - np.arange(results, dtype=np.float32)
        for _ in positions
    ]
    qrels = {}
    for number, found in enumerate(positions):
        judged = [*found[random.integers(0, results, 5)].tolist(), *random.integers(0, count, 5).tolist()]
        qrels[f"q{number}"] = {
            ids[place]: int(grade) for place, grade in zip(judged, random.integers(0, 4, 10), strict=True)
        }
        qrels[f"q{number}"][ids[judged[0]]] = 1
    run = {
        f"q{number}": dict(zip([ids[place] for place in found.tolist()], values.tolist(), strict=True))
        for number, (found, values) in enumerate(zip(positions, scores, strict=True))
    }
    return Hits(positions, scores), ids, qrels, run


def measures(queries: int, results: int, rounds: int) -> list[Row]:
    """Ours and pytrec_eval on the same run."""
    import pytrec_eval

    from embedtrain import metrics

    hits, ids, qrels, run = made_up(queries, results, 0)
    parsed = [metrics.parse(name) for name in MEASURES]
    found: dict[str, Any] = {}

    def ours() -> None:
        graded = metrics.grade(hits, ids, qrels)
        found["ours"] = {str(measure): measure.of(graded) for measure in parsed}

    def theirs() -> None:
        found["theirs"] = pytrec_eval.RelevanceEvaluator(qrels, set(MEASURES.values())).evaluate(run)

    work = f"{len(MEASURES)} measures of {queries:,} queries x {results:,} results"
    row = compare(
        work,
        "pytrec_eval, its dictionaries ready",
        ours,
        theirs,
        amount=queries,
        unit="queries/s",
        least=10.0,
        rounds=rounds,
    )
    for name, key in MEASURES.items():
        other = [found["theirs"][query][key.replace(".", "_")] for query in qrels]
        if not np.allclose(found["ours"][name], other, atol=1e-6):
            sys.exit(f"{name} differs from pytrec_eval's")
    return [row, within(work, queries / row.ours, 2.0, rounds)]


def within(work: str, seconds: float, limit: float, rounds: int) -> Row:
    """A row for a time that is not to be passed."""
    return Row(work, "the time it may take", seconds, limit, "s", limit / seconds, 1.0, rounds)


class Given:
    """A model whose vectors are there already, as far as the evaluator asks it."""

    similarity_fn_name = "cosine"
    model_card_data = None

    def __init__(self, queries: Any) -> None:
        from sentence_transformers.util import cos_sim

        self.similarity = cos_sim
        self._queries = queries

    def encode_query(self, *_: Any, **__: Any) -> Any:
        return self._queries


def evaluator(documents: int, rounds: int) -> Row:
    """Ours and InformationRetrievalEvaluator on vectors of SciFact."""
    import torch
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    from embedtrain import metrics, search
    from embedtrain.collection import Collection
    from embedtrain.encoder import Encoder
    from embedtrain.models import MINILM, find_model

    collection = Collection(SCIFACT)
    positives = collection.positives("test")
    wanted = [d for found in positives.values() for d in found]
    ids = list(dict.fromkeys([*wanted, *collection.corpus.ids]))[:documents]
    encoder = Encoder.load(find_model(MINILM))
    vectors = encoder.encode([collection.corpus.by_id(document) for document in ids], "document")
    queries = encoder.encode([collection.queries.by_id(query) for query in positives], "query")
    qrels = {query: dict.fromkeys(found, 1.0) for query, found in positives.items()}
    parsed = [metrics.parse(name) for name in EVALUATOR]
    found: dict[str, Any] = {}

    def ours() -> None:
        hits = search.dense(queries, vectors, ids, 100, similarity="cosine")
        graded = metrics.grade(hits, ids, qrels)
        found["ours"] = {str(measure): measure.of(graded) for measure in parsed}

    other = InformationRetrievalEvaluator(
        dict.fromkeys(positives, ""),
        dict.fromkeys(ids, ""),
        {q: set(d) for q, d in positives.items()},
        write_csv=False,
    )
    given, held = Given(torch.from_numpy(queries[:])), torch.from_numpy(vectors[:])
    other.score_functions = {"cosine": given.similarity}

    def theirs() -> None:
        found["theirs"] = other.compute_all_metrics(given, corpus_embeddings=held)["cosine"]

    row = compare(
        f"search and {len(EVALUATOR)} measures, SciFact, {len(positives)} queries, {len(ids):,} documents",
        "InformationRetrievalEvaluator, same vectors",
        ours,
        theirs,
        amount=len(positives),
        unit="queries/s",
        least=2.0,
        rounds=rounds,
        repeats=5,
    )
    if abs(found["ours"]["nDCG@10"].mean() - found["theirs"]["ndcg@k"][10]) > 1e-6:
        sys.exit("nDCG@10 differs from the evaluator's")
    return row


def command(rounds: int, collection: Path) -> Row:
    """The whole command, its vectors stored."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        call = [sys.executable, "-m", "embedtrain", "eval", collection, "--model", "all-MiniLM-L6-v2", "--quiet"]
        for number in range(rounds + 1):
            start = time.perf_counter()
            done = subprocess.run(
                [*map(str, call), "--out", f"{folder}/{number}"], capture_output=True, text=True, check=False
            )
            if done.returncode:
                sys.exit(done.stderr)
            seconds.append(time.perf_counter() - start)
    return within(
        f"eval of {collection.name} with stored vectors, the whole process", median(seconds[1:]), 6.0, rounds
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--results", type=int, default=1_000)
    parser.add_argument("--documents", type=int, default=5_183)
    parser.add_argument(
        "--collection", type=Path, default=SCIFACT, help="for the whole command [default: SciFact]"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_args()
    rows = [
        *measures(arguments.queries, arguments.results, arguments.rounds),
        evaluator(arguments.documents, arguments.rounds),
        command(arguments.rounds, arguments.collection),
    ]
    return finish(rows, arguments.json, "numpy", "pytrec_eval-terrier", "sentence-transformers", "torch")


if __name__ == "__main__":
    sys.exit(main())
