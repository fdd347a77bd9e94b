"""Mining 1,000 queries of SciFact whole, from texts to the artifact: ours, cold and with vectors kept, and `mine_hard_negatives`.

    python tests/benchmarks/bench_mine.py [--documents 5183] [--queries 1000] [--json]

Every run is a process of its own; the model is loaded before its time starts. The settings are the same on both sides: MiniLM,
window 100, at most 95 % of the positive's score, 7 negatives, the 7 best; what the other side does not have (near-duplicates,
BM25) is off. The other side has no store: its second run takes as long as its first.
Needs the package `datasets`, which `mine_hard_negatives` returns.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from figures import NEGATIVES, PEER, K, beside, finish, in_process, measured

SCIFACT = Path(__file__).parents[2] / "recipes" / "data" / "scifact"
OTHER = "mine_hard_negatives, same settings"


def prepare(folder: Path, documents: int, queries: int) -> None:
    """SciFact with the claims of both splits, the first of them that have a positive among the documents."""
    import pyarrow as pa
    import pyarrow.parquet

    from embedtrain.collection import Collection

    source = Collection(SCIFACT)
    judged = {split: source.positives(split) for split in source.splits}
    wanted = [d for positives in judged.values() for found in positives.values() for d in found]
    kept = list(dict.fromkeys([*wanted, *source.corpus.ids]))[:documents]
    pairs = [
        (query, document)
        for positives in judged.values()
        for query, found in positives.items()
        for document in found[:1]
        if document in set(kept)
    ][:queries]
    (folder / "qrels").mkdir(parents=True)
    corpus = {"_id": kept, "text": [source.corpus.by_id(document) for document in kept]}
    asked = {"_id": [q for q, _ in pairs], "text": [source.queries.by_id(q) for q, _ in pairs]}
    qrels = {"query-id": asked["_id"], "corpus-id": [d for _, d in pairs], "score": [1] * len(pairs)}
    for table, name in ((corpus, "corpus"), (asked, "queries"), (qrels, "qrels/train")):
        pyarrow.parquet.write_table(pa.table(table), folder / f"{name}.parquet")


def ours(folder: Path) -> Callable[[], object]:
    """The stage itself."""
    from embedtrain import mine
    from embedtrain.artifacts import Claim, Input
    from embedtrain.config import MineOptions
    from embedtrain.console import silent
    from embedtrain.encoder import Encoder
    from embedtrain.models import MINILM, find_model

    encoder = Encoder.load(find_model(MINILM))
    options = MineOptions(retrievers=("dense",), top_k=K, negatives=NEGATIVES, near_duplicate=0.0)
    source = [Input.of("collection", folder)]

    def work() -> None:
        out = folder.parent / "mined.parquet"
        claim = Claim(out, kind="mined", stage="mine", options=options, inputs=source, force=True)
        mine.mine(claim, options, folder, [encoder], silent)

    return work


def theirs(folder: Path) -> Callable[[], object]:
    """`mine_hard_negatives` as its manual has it."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import mine_hard_negatives

    from embedtrain.collection import Collection
    from embedtrain.models import MINILM, find_model

    model = SentenceTransformer(str(find_model(MINILM).path), local_files_only=True)
    source = Collection(folder)
    positives = source.positives("train")
    asked = [source.queries.by_id(query) for query in positives]
    right = [source.corpus.by_id(found[0]) for found in positives.values()]
    pairs = Dataset.from_dict({"query": asked, "document": right})
    corpus = list(source.corpus)

    def work() -> None:
        found = mine_hard_negatives(pairs, model, corpus=corpus, **PEER)
        found.to_parquet(folder.parent / "theirs.parquet")

    return work


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=5_183)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--side", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        work = (ours if arguments.side == "ours" else theirs)(arguments.folder)
        print(json.dumps(measured(work)))
        return 0
    seconds: dict[str, list[float]] = {"cold": [], "warm": [], "theirs": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "collection"
        prepare(folder, arguments.documents, arguments.queries)
        for number in range(arguments.rounds):
            cache = str(Path(name) / f"cache-{number}")
            for side in ("ours", "theirs") if number % 2 == 0 else ("theirs", "ours"):
                for kind in ("cold", "warm") if side == "ours" else ("theirs",):
                    took = in_process(__file__, "--side", side, "--folder", folder, EMBEDTRAIN_CACHE=cache)
                    seconds[kind].append(took["seconds"])
    work = f"mine {arguments.queries:,} queries of SciFact, {arguments.documents:,} documents"
    about = {"amount": arguments.queries, "unit": "queries/s"}
    rows = [
        beside(f"{work}, cold", OTHER, seconds["cold"], seconds["theirs"], least=2.0, **about),
        beside(f"{work}, warm store", "cold", seconds["warm"], seconds["cold"], least=10.0, **about),
    ]
    return finish(rows, arguments.json, "torch", "sentence-transformers", "transformers")


if __name__ == "__main__":
    sys.exit(main())
