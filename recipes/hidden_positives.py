"""What `recipes/false-negatives.mk` needs besides embedtrain: hide positives, count them among negatives, compare arms.

python recipes/hidden_positives.py hide SOURCE --split train --seed 0 --out COLLECTION
python recipes/hidden_positives.py count COLLECTION MINED SCORED
python recipes/hidden_positives.py compare RESULTS [RESULTS ...]
"""

import argparse
import csv
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

from embedtrain import denoise, statistics
from embedtrain.collection import Collection
from embedtrain.mined import read_mined
from embedtrain.negatives import ELIGIBLE, SELECTED

MEASURE = "nDCG@10"
RESAMPLES = 10_000


def hide(
    source: Path,
    split: str,
    seed: int,
    out: Path,
    queries_kept: int | None = None,
    documents_kept: int | None = None,
) -> dict[str, Any]:
    """A copy of a collection in which every query with several positives has lost half of them, rounded down.

    Queries with several positives are the split `train`, what they lost is `hidden`; the others, of which nothing can
    be hidden, are `single`. Where the split is `test`, half of its queries are the test; else that is the source's own.
    A large collection is made smaller by a draw that is the same for every seed: so many queries of each split, and
    what is judged for any of them with other documents up to so many.
    """
    collection = Collection(source)
    rng = np.random.default_rng(seed)
    judged = {query: dict(documents) for query, documents in collection.qrels(split).items()}
    queries = [query for query, documents in judged.items() if any(grade > 0 for grade in documents.values())]
    test = (
        {query: judged[query] for query in queries if rng.random() < 0.5}
        if split == "test"
        else collection.qrels("test")
    )
    if queries_kept is not None:
        same = np.random.default_rng(0)
        several = [query for query in queries if sum(grade > 0 for grade in judged[query].values()) > 1]
        others = sorted(set(queries) - set(several))
        kept = {*_some(several, queries_kept, same), *_some(others, 4 * queries_kept, same)}
        queries = [query for query in queries if query in kept]
        test = {query: test[query] for query in _some(list(test), 2 * queries_kept, same)}
    train: dict[str, dict[str, float]] = {}
    hidden: dict[str, dict[str, float]] = {}
    single: dict[str, dict[str, float]] = {}
    for query in queries:
        if split == "test" and query in test:
            continue
        positives = [document for document, grade in judged[query].items() if grade > 0]
        if len(positives) == 1:
            single[query] = judged[query]
            continue
        lost = {positives[place] for place in rng.permutation(len(positives))[: len(positives) // 2]}
        train[query] = {document: grade for document, grade in judged[query].items() if document not in lost}
        hidden[query] = {document: judged[query][document] for document in sorted(lost)}
    if not train:
        sys.exit(f"no query of the split {split} of {source} has two positives, so nothing can be hidden")
    if out.resolve() == source.resolve() or source.resolve().is_relative_to(out.resolve()):
        sys.exit(f"--out {out} would replace the source; name another folder")
    shutil.rmtree(out, ignore_errors=True)
    (out / "qrels").mkdir(parents=True)
    for file in source.iterdir():
        if file.is_file() and file.name.startswith(
            "queries" if documents_kept is not None else ("corpus", "queries")
        ):
            shutil.copy(file, out / file.name)
    if documents_kept is not None:
        named = {
            document for qrels in (train, hidden, single, test) for found in qrels.values() for document in found
        }
        others = [document for document in collection.corpus.ids if document not in named]
        wanted = named.union(_some(others, max(0, documents_kept - len(named)), np.random.default_rng(1)))
        with (out / "corpus.jsonl").open("w", encoding="utf-8") as lines:
            for document in collection.corpus.ids:
                if document in wanted:
                    row = {"_id": document, "text": collection.corpus.by_id(document)}
                    lines.write(json.dumps(row, ensure_ascii=False) + "\n")
    for name, qrels in (("train", train), ("hidden", hidden), ("single", single), ("test", test)):
        if not qrels:
            continue
        with (out / "qrels" / f"{name}.tsv").open("w", encoding="utf-8", newline="") as lines:
            table = csv.writer(lines, delimiter="\t", lineterminator="\n")
            table.writerow(["query-id", "corpus-id", "score"])
            table.writerows(
                [q, d, f"{grade:g}"] for q, documents in qrels.items() for d, grade in documents.items()
            )
    return {
        "train_queries": len(train),
        "single_queries": len(single),
        "test_queries": len(test),
        "hidden_positives": sum(map(len, hidden.values())),
    }


def _some(items: list[str], count: int, rng: np.random.Generator) -> list[str]:
    """So many of the items at most, drawn, in their order."""
    return [items[place] for place in sorted(rng.permutation(len(items))[:count].tolist())]


def count(collection: Path, mined: Path, scored: Path) -> dict[str, Any]:
    """How many hidden positives stand among the mined negatives, and how well the teacher's default rule finds them.

    Precision and recall are over the candidates that the teacher scored and that no label speaks for.
    """
    hidden = {query: set(documents) for query, documents in Collection(collection).qrels("hidden").items()}
    negatives = found = 0
    for row in read_mined(mined):
        negatives += len(row.negatives)
        found += len(hidden.get(row.query_id, set()) & set(row.negatives))
    suspected = right = there = 0
    for row in read_mined(scored):
        verdicts = denoise.verdicts(row, denoise.Rules(), denoise.DROP)
        wanted = hidden.get(row.query_id, set())
        for document, score, verdict in zip(row.candidate_ids, row.candidate_teacher or (), verdicts, strict=True):
            if score is not None and row.reason[row.candidate_ids.index(document)] in (SELECTED, ELIGIBLE):
                suspected += verdict == denoise.DROP
                right += verdict == denoise.DROP and document in wanted
                there += document in wanted
    return {
        "negatives": negatives,
        "hidden_among_them": found,
        "share": round(found / max(1, negatives), 4),
        "hidden_among_scored": there,
        "suspected": suspected,
        "precision": round(right / suspected, 4) if suspected else None,
        "recall": round(right / there, 4) if there else None,
    }


def compare(results: list[Path]) -> list[dict[str, Any]]:
    """Every system of several evaluations, one a seed: its mean, and its difference from the one called naive.

    A query's values are averaged over the seeds that asked it; intervals are BCa bootstrap intervals over queries.
    """
    values: dict[str, dict[str, list[float]]] = {}
    by_seed: dict[str, list[float]] = {}
    for folder in results:
        found: dict[str, dict[str, float]] = {}
        for row in pyarrow.parquet.read_table(folder / "per_query.parquet").to_pylist():
            if row["measure"] == MEASURE:
                found.setdefault(Path(row["system"]).name, {})[row["query_id"]] = row["value"]
        for name, of_queries in found.items():
            by_seed.setdefault(name, []).append(round(float(np.mean(list(of_queries.values()))), 4))
            for query, value in of_queries.items():
                values.setdefault(name, {}).setdefault(query, []).append(value)
    if "naive" not in values:
        sys.exit(f"no system is called naive: {', '.join(values)}")
    queries = sorted(values["naive"])
    means = {name: np.array([np.mean(one[query]) for query in queries]) for name, one in values.items()}
    rows = []
    for name, mean in means.items():
        draws = [statistics.bootstrap_means(one[:, None], RESAMPLES, 0)[:, 0] for one in (mean, means["naive"])]
        versus = statistics.compare(mean, means["naive"], *draws, 0)
        ends = versus.interval
        rows.append(
            {
                "system": name,
                "mean": round(float(mean.mean()), 4),
                "by_seed": by_seed[name],
                "difference": round(versus.difference, 4),
                "low": None if ends is None else round(ends.low, 4),
                "high": None if ends is None else round(ends.high, 4),
                "p": versus.p_randomization,
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    hiding = commands.add_parser("hide")
    hiding.add_argument("source", type=Path)
    hiding.add_argument("--split", default="train")
    hiding.add_argument("--seed", type=int, default=0)
    hiding.add_argument(
        "--queries", type=int, help="train on so many, 4 times as many single ones, 2 times for the test"
    )
    hiding.add_argument("--documents", type=int, help="keep so many, those that are judged among them")
    hiding.add_argument("--out", type=Path, required=True)
    counting = commands.add_parser("count")
    counting.add_argument("paths", type=Path, nargs=3)
    comparing = commands.add_parser("compare")
    comparing.add_argument("results", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "hide":
        print(
            json.dumps(
                hide(
                    arguments.source,
                    arguments.split,
                    arguments.seed,
                    arguments.out,
                    arguments.queries,
                    arguments.documents,
                )
            )
        )
    elif arguments.command == "count":
        print(json.dumps(count(*arguments.paths)))
    else:
        for row in compare(arguments.results):
            ends = "" if row["low"] is None else f" [{row['low']:+.4f}, {row['high']:+.4f}]"
            seeds = " ".join(f"{value:.4f}" for value in row["by_seed"])
            print(f"{row['system']:<12} {row['mean']:.4f}   {row['difference']:+.4f}{ends}   by seed {seeds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
