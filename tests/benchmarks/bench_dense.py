"""Dense mining, vectors given: top 100, filters, the result written; ours and `mine_hard_negatives`, two ways.

    python tests/benchmarks/bench_dense.py [--queries 20000] [--documents 100000] [--json]

Every run is a process of its own, which says how long the work took (loading of libraries and vectors outside it) and
how far its memory rose meanwhile. The settings are the same on all sides: window 100, at most 95 % of the positive's
score, 7 negatives, the 7 best; what the other side does not have (near-duplicates, BM25) is off. `--alone` runs ours only.
Needs the package `datasets`, which `mine_hard_negatives` returns.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from figures import Row, finish

DIMENSION = 384
K = 100
NEGATIVES = 7
SIDES = {"default": "mine_hard_negatives, defaults", "faiss": "mine_hard_negatives, use_faiss"}


def prepare(folder: Path, queries: int, documents: int) -> None:
    """Clustered unit vectors, a positive for each query near it, and a collection with their texts."""
    import pyarrow as pa
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    centres = rng.standard_normal((2000, DIMENSION), dtype=np.float32)
    vectors = np.lib.format.open_memmap(folder / "documents.npy", "w+", np.float32, (documents, DIMENSION))
    for start in range(0, documents, 50_000):
        count = min(50_000, documents - start)
        part = centres[rng.integers(0, 2000, count)] + rng.standard_normal((count, DIMENSION), dtype=np.float32)
        vectors[start : start + count] = part / np.linalg.norm(part, axis=1, keepdims=True)
    positives = rng.permutation(documents)[:queries]
    asked = vectors[positives] + 0.05 * rng.standard_normal((queries, DIMENSION), dtype=np.float32)
    np.save(folder / "queries.npy", (asked / np.linalg.norm(asked, axis=1, keepdims=True)).astype(np.float32))
    np.save(folder / "positives.npy", positives)
    collection = folder / "collection"
    (collection / "qrels").mkdir(parents=True)
    texts = {
        "_id": [f"d{n}" for n in range(documents)],
        "text": [f"document number {n}" for n in range(documents)],
    }
    pyarrow.parquet.write_table(pa.table(texts), collection / "corpus.parquet")
    texts = {"_id": [f"q{n}" for n in range(queries)], "text": [f"query number {n}" for n in range(queries)]}
    pyarrow.parquet.write_table(pa.table(texts), collection / "queries.parquet")
    judged = {"query-id": texts["_id"], "corpus-id": [f"d{n}" for n in positives], "score": [1] * queries}
    pyarrow.parquet.write_table(pa.table(judged), collection / "qrels" / "train.parquet")


def ours(folder: Path) -> Any:
    """The stage itself, with an encoder that reads the given vectors."""
    from embedtrain import mine
    from embedtrain.artifacts import Claim, Input
    from embedtrain.config import MineOptions
    from embedtrain.console import silent

    given = {
        role: np.load(folder / f"{name}.npy", mmap_mode="r")
        for role, name in (("query", "queries"), ("document", "documents"))
    }
    encoder = SimpleNamespace(
        similarity="cosine",
        prompts={},
        source=SimpleNamespace(name="given"),
        encode=lambda texts, role, progress=None: given[role],
    )
    options = MineOptions(retrievers=("dense",), top_k=K, negatives=NEGATIVES, near_duplicate=0.0)
    out = folder / "mined.parquet"
    path = folder / "collection"

    def work() -> None:
        claim = Claim(
            out, kind="mined", stage="mine", options=options, inputs=[Input.of("collection", path)], force=True
        )
        mine.mine(claim, options, path, [encoder], silent)

    return work


def theirs(folder: Path, *, use_faiss: bool) -> Any:
    """`mine_hard_negatives` with a model that gives the vectors of the texts it knows."""
    import sentence_transformers.util as util
    import torch
    from datasets import Dataset

    queries, documents = np.load(folder / "queries.npy"), np.load(folder / "documents.npy")
    positives = np.load(folder / "positives.npy")

    def number(text: str) -> int:
        return int(text.rpartition(" ")[2])

    model = SimpleNamespace(
        device=torch.device("cpu"),
        model_card_data=SimpleNamespace(base_model="given"),
        encode_query=lambda texts, **_: queries[[number(text) for text in texts]],
        encode_document=lambda texts, **_: documents[[number(text) for text in texts]],
        similarity=util.cos_sim,
        similarity_pairwise=util.pairwise_cos_sim,
        get_embedding_dimension=lambda: DIMENSION,
    )
    asked = [f"query number {n}" for n in range(len(queries))]
    corpus = [f"document number {n}" for n in range(len(documents))]
    pairs = Dataset.from_dict({"query": asked, "document": [corpus[n] for n in positives]})

    def work() -> None:
        found = util.mine_hard_negatives(
            pairs,
            model,
            corpus=corpus,
            range_max=K,
            relative_margin=0.05,
            num_negatives=NEGATIVES,
            output_format="n-tuple",
            output_scores=True,
            use_faiss=use_faiss,
            verbose=False,
        )
        found.to_parquet(folder / "theirs.parquet")

    return work


def run_side(side: str, folder: Path) -> None:
    """One run in this process; prints seconds and megabytes as JSON."""
    work = ours(folder) if side == "ours" else theirs(folder, use_faiss=side == "faiss")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "rise": (peak - before) / 1024, "peak": peak / 1024}))


def measured(side: str, folder: Path) -> dict[str, float]:
    """One run in a fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, "--side", side, "--folder", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    if done.returncode:
        sys.exit(f"{side} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="run ours only and print what it took")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        run_side(arguments.side, arguments.folder)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, arguments.queries, arguments.documents)
        work = f"dense, {arguments.queries:,} queries x {arguments.documents:,} documents x {DIMENSION}, top {K}"
        if arguments.alone:
            took = measured("ours", folder)
            print(
                f"{work}: {took['seconds']:.1f} s, memory rose by {took['rise']:,.0f} MB to {took['peak']:,.0f} MB"
            )
            return 0
        found: dict[str, list[dict[str, float]]] = {side: [] for side in ("ours", *SIDES)}
        for number in range(arguments.rounds):
            for side in list(found)[:: 1 if number % 2 == 0 else -1]:
                found[side].append(measured(side, folder))

        def median(side: str, key: str) -> float:
            return statistics.median(run[key] for run in found[side])

        rows = [
            Row(
                work,
                SIDES[side],
                arguments.queries / median("ours", "seconds"),
                arguments.queries / median(side, "seconds"),
                "queries/s",
                statistics.median(
                    other["seconds"] / own["seconds"]
                    for own, other in zip(found["ours"], found[side], strict=True)
                ),
                2.0,
                arguments.rounds,
            )
            for side in SIDES
        ]
        memory = [median(side, "rise") for side in ("ours", "default")]
        rows.append(
            Row(f"{work}: memory", SIDES["default"], *memory, "MB", memory[1] / memory[0], 5.0, arguments.rounds)
        )
        return finish(rows, arguments.json, "numpy", "torch", "sentence-transformers", "faiss-cpu")


if __name__ == "__main__":
    sys.exit(main())
