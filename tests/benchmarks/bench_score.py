"""Scoring: pairs of SciFact, a cross-encoder of MiniLM's size, 256 tokens: ours and `CrossEncoder.predict` as it comes.

    python tests/benchmarks/bench_score.py [--pairs 4000] [--rounds 3] [--json]

Claims and BM25's candidates for them, texts of all lengths; the head is random, which changes no time. Every run is a
process of its own, loading and a first small batch outside the time; each round has other pairs, the same for both
sides. Ours runs in what `--precision auto` gives here; where that is bfloat16, `predict` is given it too, in a row of its
own, and the Spearman correlation with float32 is one. A last row is a second policy over a scored artifact beside
scoring it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from figures import Row, beside, finish, in_process
from scipy.stats import spearmanr

SCIFACT = Path(__file__).parents[2] / "recipes" / "data" / "scifact"
LENGTH = 256
DEPTH = 40  # candidates of a claim


def teacher_in(folder: Path) -> Path:
    """A cross-encoder with a fresh head, made once."""
    from embedtrain.models import MINILM, find_model
    from embedtrain.reranker import Reranker

    if not folder.exists():
        Reranker.from_encoder(find_model(MINILM), seed=0, max_length=LENGTH).save(folder)
    return folder


def pairs_of(count: int, seed: int) -> list[tuple[str, str]]:
    """Claims drawn from a seed with BM25's candidates, `count` pairs."""
    from embedtrain.bm25 import BM25
    from embedtrain.collection import Collection
    from embedtrain.config import MineOptions

    collection = Collection(SCIFACT)
    queries = list(collection.queries)
    drawn = np.random.default_rng(seed).permutation(len(queries))[: -(-count // DEPTH)].tolist()
    asked = [queries[place] for place in drawn]
    found = BM25(collection.corpus, collection.corpus.ids, MineOptions()).search(asked, DEPTH)
    pairs = [
        (query, collection.corpus[int(place)])
        for query, places in zip(asked, found.positions, strict=True)
        for place in places
    ]
    return pairs[:count]


def run_side(side: str, count: int, seed: int, folder: Path, out: Path) -> None:
    """Score a sample in this process; print seconds and the precision, and keep the scores."""
    import torch

    from embedtrain.models import find_model
    from embedtrain.reranker import Reranker

    pairs = pairs_of(count, seed)
    precision = "float32"
    if side in ("ours", "float32"):
        judge = Reranker.load(find_model(str(folder)), wanted="auto" if side == "ours" else "float32")
        precision = judge.precision

        def score(pairs: Any) -> Any:
            return judge.score(pairs, stored=False)
    else:
        from sentence_transformers import CrossEncoder

        kind = {"model_kwargs": {"dtype": torch.bfloat16}} if side == "bfloat16" else {}
        model = CrossEncoder(str(folder), local_files_only=True, **kind)

        def score(pairs: Any) -> Any:
            return model.predict(pairs, show_progress_bar=False)

    score(pairs[:8])
    start = time.perf_counter()
    scores = score(pairs)
    seconds = time.perf_counter() - start
    np.save(out, np.asarray(scores, dtype=np.float64))
    print(json.dumps({"seconds": seconds, "precision": precision}))


def run(side: str, count: int, seed: int, folder: Path, name: Path) -> dict[str, Any]:
    """Score a sample in a process of its own."""
    out = name / f"{side}.npy"
    found = in_process(
        __file__, "--side", side, "--pairs", count, "--seed", seed, "--teacher", folder, "--out", out
    )
    return {**found, "scores": np.load(out)}


def second_policy(name: Path, folder: Path, queries: int) -> Row:
    """Scoring a mined artifact, and judging its scores once more: `score-teacher` both times, as it is run."""

    def timed(*args: object) -> float:
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "embedtrain", *map(str, args), "--quiet"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "EMBEDTRAIN_CACHE": str(name / "cache")},
        )
        if done.returncode:
            sys.exit(done.stderr)
        return time.perf_counter() - start

    mined, scored = name / "mined.parquet", name / "scored.parquet"
    timed("mine", SCIFACT, "--retriever", "bm25", "--limit", queries, "--out", mined)
    flags = ("--collection", SCIFACT, "--trust")
    first = timed(
        *(
            "score-teacher",
            mined,
            *flags,
            "--teacher",
            folder,
            "--candidates",
            DEPTH,
            "--policy",
            "keep",
            "--out",
            scored,
        )
    )
    again = timed("score-teacher", scored, *flags, "--policy", "drop", "--out", name / "again.parquet")
    share = 100 * again / first
    work = f"a second policy on the scores of {queries:,} queries, {DEPTH} candidates and more each (the whole command)"
    # Lower is better here: the share of the time that scoring took.
    return Row(work, "scoring them", share, 2.0, "%", 2.0 / share, 1.0, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--pairs", type=int, default=4_000, help="pairs a round [default: 4,000]")
    parser.add_argument("--rounds", type=int, default=3, help="rounds [default: 3]")
    parser.add_argument("--side", choices=["ours", "float32", "other", "bfloat16"], help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--teacher", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        run_side(arguments.side, arguments.pairs, arguments.seed, arguments.teacher, arguments.out)
        return 0
    from embedtrain.precision import resolve

    native = resolve("auto") == "bfloat16"
    sides = ["ours", "other", *(["bfloat16"] if native else [])]
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    agreement, precision = 1.0, ""
    with tempfile.TemporaryDirectory() as temporary:
        name = Path(temporary)
        folder = teacher_in(name / "teacher")
        for seed in range(arguments.rounds):
            scores: dict[str, Any] = {}
            for side in sides if seed % 2 == 0 else sides[::-1]:
                found = run(side, arguments.pairs, seed, folder, name)
                seconds[side].append(found["seconds"])
                scores[side] = found["scores"]
                precision = found["precision"] if side == "ours" else precision
            exact = run("float32", arguments.pairs, seed, folder, name)["scores"] if native else scores["other"]
            agreement = min(agreement, float(spearmanr(scores["ours"], exact).statistic))
        last = second_policy(name, folder, max(2, arguments.pairs // DEPTH))
    work = (
        f"score {arguments.pairs:,} pairs of SciFact, cross-encoder of MiniLM's size, {LENGTH} tokens, {precision}"
    )
    rows = [
        beside(
            work,
            f"CrossEncoder.predict, {what}",
            seconds["ours"],
            seconds[side],
            amount=arguments.pairs,
            unit="pairs/s",
            least=least,
        )
        for side, what, least in (("other", "defaults", 2.0), ("bfloat16", "bfloat16", 1.2))
        if side in sides
    ]
    against = "our float32" if native else "CrossEncoder.predict"
    rows.append(
        Row(f"{work}: Spearman correlation", against, agreement, 1.0, "", agreement, 0.999, arguments.rounds)
    )
    return finish([*rows, last], arguments.json, "torch", "sentence-transformers", "transformers")


if __name__ == "__main__":
    sys.exit(main())
