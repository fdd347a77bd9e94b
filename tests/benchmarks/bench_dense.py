"""Dense mining, vectors given: top 100, filters, the result written; ours and `mine_hard_negatives`, two ways.

    python tests/benchmarks/bench_dense.py [--queries 20000] [--documents 100000] [--json]

Every run is a process of its own, which says how long the work took (loading of libraries and vectors outside it) and
how far its memory rose meanwhile. The settings are the same on all sides: window 100, at most 95 % of the positive's
score, 7 negatives, the 7 best; what the other side does not have (near-duplicates, BM25) is off. `--alone` runs ours only.
Needs the package `datasets`, which `mine_hard_negatives` returns.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from figures import NEGATIVES, PEER, K, Row, beside, finish, in_process, measured

DIMENSION = 384
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
        precision="float32",
        gpu=None,
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
        found = util.mine_hard_negatives(pairs, model, corpus=corpus, use_faiss=use_faiss, **PEER)
        found.to_parquet(folder / "theirs.parquet")

    return work


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
        side, folder = arguments.side, arguments.folder
        work = ours(folder) if side == "ours" else theirs(folder, use_faiss=side == "faiss")
        print(json.dumps(measured(work)))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, arguments.queries, arguments.documents)
        work = f"dense, {arguments.queries:,} queries x {arguments.documents:,} documents x {DIMENSION}, top {K}"

        def run(side: str) -> dict[str, float]:
            return in_process(__file__, "--side", side, "--folder", folder)

        if arguments.alone:
            took = run("ours")
            rise, peak = took["rise"], took["peak"]
            print(f"{work}: {took['seconds']:.1f} s, memory rose by {rise:,.0f} MB to {peak:,.0f} MB")
            return 0
        found: dict[str, list[dict[str, float]]] = {side: [] for side in ("ours", *SIDES)}
        for number in range(arguments.rounds):
            for side in list(found)[:: 1 if number % 2 == 0 else -1]:
                found[side].append(run(side))

    def every(side: str, key: str) -> list[float]:
        return [run[key] for run in found[side]]

    rows = [
        beside(
            work,
            against,
            every("ours", "seconds"),
            every(side, "seconds"),
            amount=arguments.queries,
            unit="queries/s",
            least=2.0,
        )
        for side, against in SIDES.items()
    ]
    own, other = statistics.median(every("ours", "rise")), statistics.median(every("default", "rise"))
    rows.append(Row(f"{work}: memory", SIDES["default"], own, other, "MB", other / own, 5.0, arguments.rounds))
    return finish(rows, arguments.json, "numpy", "torch", "sentence-transformers", "faiss-cpu")


if __name__ == "__main__":
    sys.exit(main())
