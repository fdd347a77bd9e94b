"""Encoding: documents of SciFact, MiniLM, 256 tokens: ours and `SentenceTransformer.encode` as it comes, one thread each.

    python tests/benchmarks/bench_encode.py [--documents 600] [--rounds 3] [--json]

Every run is a process of its own; loading and a first small batch are outside the time. The two runs of a round encode the
same sample of documents, each round another one, so that no shape of an earlier round is known. Ours runs in what
`--precision auto` gives here: bfloat16 where it is native, and then its cosine to float32 is a row too. Where it is
float32, the largest difference to the other side's vectors must be below 1e-5.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from figures import Row, beside, finish, in_process

SCIFACT = Path(__file__).parents[2] / "recipes" / "data" / "scifact"
OTHER = "SentenceTransformer.encode, defaults"
THREADS = "1"


def run_side(side: str, count: int, seed: int, out: Path) -> None:
    """Encode a sample in this process; print seconds, tokens and the precision, and keep the vectors."""
    import torch

    from embedtrain.collection import Collection
    from embedtrain.encoder import Encoder
    from embedtrain.models import MINILM, find_model

    torch.set_num_threads(int(THREADS))
    corpus = Collection(SCIFACT).corpus
    places = np.random.default_rng(seed).permutation(len(corpus))
    texts, few = [corpus[place] for place in places[:count]], [corpus[place] for place in places[-8:]]
    source = find_model(MINILM)
    if side == "ours":
        encoder = Encoder.load(source, wanted="auto")

        def encode(texts: Any) -> Any:
            return encoder.encode(texts, "document", stored=False)[:]
    else:
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(source.path), local_files_only=True)

        def encode(texts: Any) -> Any:
            return model.encode(list(texts), show_progress_bar=False)

    encode(few)
    start = time.perf_counter()
    vectors = encode(texts)
    seconds = time.perf_counter() - start
    np.save(out, vectors)
    print(json.dumps({"seconds": seconds, "precision": encoder.precision if side == "ours" else "float32"}))


def run(side: str, count: int, seed: int, out: Path) -> dict[str, Any]:
    """Encode a sample in a process of its own."""
    command = (__file__, "--side", side, "--documents", count, "--seed", seed, "--out", out)
    found = in_process(*command, OMP_NUM_THREADS=THREADS, TOKENIZERS_PARALLELISM="false")
    return {**found, "vectors": np.load(out)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--documents", type=int, default=600, help="documents a round [default: 600]")
    parser.add_argument("--rounds", type=int, default=3, help="rounds [default: 3]")
    parser.add_argument("--side", choices=["ours", "other"], help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        run_side(arguments.side, arguments.documents, arguments.seed, arguments.out)
        return 0
    seconds: dict[str, list[float]] = {"ours": [], "other": []}
    cosine, difference, precision = 1.0, 0.0, ""
    with tempfile.TemporaryDirectory() as name:
        for seed in range(arguments.rounds):
            vectors: dict[str, Any] = {}
            for side in ("ours", "other") if seed % 2 == 0 else ("other", "ours"):
                found = run(side, arguments.documents, seed, Path(name) / f"{side}.npy")
                seconds[side].append(found["seconds"])
                vectors[side] = found["vectors"].astype(np.float64)
                precision = found["precision"] if side == "ours" else precision
            ours, other = vectors["ours"], vectors["other"]
            lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(other, axis=1)
            cosine = min(cosine, float(((ours * other).sum(axis=1) / lengths).min()))
            difference = max(difference, float(np.abs(ours - other).max()))
    if precision == "float32" and difference > 1e-5:
        sys.exit(f"the two sides differ by {difference}")
    work = f"encode {arguments.documents:,} documents of SciFact, MiniLM, 256 tokens, one thread, {precision}"
    rows = [
        beside(
            work,
            OTHER,
            seconds["ours"],
            seconds["other"],
            amount=arguments.documents,
            unit="documents/s",
            least=2.0,
        )
    ]
    if precision == "bfloat16":
        rows.append(
            Row(f"{work}: lowest cosine", "float32", cosine, 1.0, "cosine", cosine, 0.999, arguments.rounds)
        )
    return finish(rows, arguments.json, "torch", "sentence-transformers", "transformers")


if __name__ == "__main__":
    sys.exit(main())
