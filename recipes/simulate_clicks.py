"""What `recipes/clicks.mk` needs besides embedtrain: a click log of a known truth, and how much was recovered.

python recipes/simulate_clicks.py simulate SOURCE --sessions 200000 --out LOG.jsonl
python recipes/simulate_clicks.py compare SOURCE LOG.jsonl HARVESTED

The user: queries are drawn by Zipf's law from those with a relevant document; BM25 ranks the documents; on each
page neighbours change places by chance, and some pages are shuffled. The result at rank k is looked at with chance
1 / k ** eta; what is looked at is clicked with one chance where the qrels call it relevant, with another where
they do not.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from embedtrain.bm25 import BM25
from embedtrain.collection import Collection
from embedtrain.config import LexicalOptions
from embedtrain.console import silent
from embedtrain.harvest.clicks.options import ClickOptions
from embedtrain.harvest.clicks.rows import Log, read_log
from embedtrain.harvest.clicks.verdicts import believe
from embedtrain.harvest.draft import Draft
from embedtrain.harvest.identity import query_key
from embedtrain.harvest.tables.lookup import Lookup

BLOCK = 10_000  # sessions drawn together


def truth(collection: Collection) -> dict[str, set[str]]:
    """The relevant documents of every query that has one, over all splits, by what makes two queries the same."""
    found: dict[str, set[str]] = {}
    for split in collection.splits:
        for query, documents in collection.positives(split).items():
            found.setdefault(query_key(collection.queries.by_id(query)), set()).update(documents)
    return found


def pages(orders: np.ndarray, swap: float, shuffle: float, random: np.random.Generator) -> np.ndarray:
    """Rankings (sessions, depth) with neighbours swapped from the top down by chance, and some shuffled whole."""
    for rank in range(orders.shape[1] - 1):
        rows = np.flatnonzero(random.random(len(orders)) < swap)
        orders[rows, rank], orders[rows, rank + 1] = orders[rows, rank + 1], orders[rows, rank]
    rows = np.flatnonzero(random.random(len(orders)) < shuffle)
    orders[rows] = random.permuted(orders[rows], axis=1)
    return orders


def simulate(source: Path, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Write the log, one JSON object a line: session, query, document, position, clicked."""
    collection = Collection(source)
    relevant = truth(collection)
    random = np.random.default_rng(options.seed)
    # Two queries of the same words would be one query with a longer list of relevant documents.
    texts = {query_key(text): text for text in (collection.queries[n] for n in range(len(collection.queries)))}
    queries = [texts[key] for key in relevant]
    queries = [queries[place] for place in random.permutation(len(queries))]  # the first is the most frequent
    hits = BM25(collection.corpus, collection.corpus.ids, LexicalOptions()).search(queries, options.depth)
    whole = [place for place, found in enumerate(hits.positions) if len(found) == options.depth]
    queries = [queries[place] for place in whole]
    results = np.array([hits.positions[place] for place in whole])
    ids = collection.corpus.ids
    right = np.array(
        [
            [ids[place] in relevant[query_key(query)] for place in row]
            for query, row in zip(queries, results, strict=True)
        ]
    )
    share = 1 / np.arange(1, len(queries) + 1) ** options.zipf
    looked = 1 / np.arange(1, options.depth + 1) ** options.eta
    clicks = 0
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="utf-8", newline="\n") as lines:
        for start in range(0, options.sessions, BLOCK):
            count = min(BLOCK, options.sessions - start)
            drawn = random.choice(len(queries), size=count, p=share / share.sum())
            orders = np.tile(np.arange(options.depth), (count, 1))
            orders = pages(orders, options.swap, options.shuffle, random)
            chance = np.where(right[drawn[:, None], orders], options.relevant, options.noise) * looked
            clicked = random.random(chance.shape) < chance
            clicks += int(clicked.sum())
            for row in range(count):
                query = json.dumps(queries[drawn[row]], ensure_ascii=False)
                for rank in range(options.depth):
                    document = json.dumps(ids[results[drawn[row], orders[row, rank]]], ensure_ascii=False)
                    lines.write(
                        f'{{"session": "s{start + row}", "query": {query}, "document": {document}, '
                        f'"position": {rank + 1}, "clicked": {int(clicked[row, rank])}}}\n'
                    )
    return {
        "sessions": options.sessions,
        "impressions": options.sessions * options.depth,
        "clicks": clicks,
        "queries": len(queries),
        "queries_with_too_few_results": len(hits) - len(whole),
        "relevant_among_results": int(right.sum()),
    }


def by_click_rate(log: Log, number: int, least: int) -> list[tuple[str, str]]:
    """The `number` pairs of highest click rate among those clicked `least` times; of equal ones the more shown."""
    counts = log.counts
    starts = np.flatnonzero(np.diff(counts.pair, prepend=-1))
    shown = np.add.reduceat(counts.shown, starts, dtype=np.int64)
    clicked = np.add.reduceat(counts.clicked, starts, dtype=np.int64)
    places = np.lexsort((np.arange(len(starts)), -shown, -clicked / shown))
    places = places[clicked[places] >= least][:number]
    query, document = counts.query[starts][places], counts.document[starts][places]
    return [(query_key(log.texts[q]), log.ids[d]) for q, d in zip(query, document, strict=True)]


def compare(source: Path, path: Path, harvested: Path, eta: float) -> dict[str, Any]:
    """How much of the truth the harvested qrels hold, and how near the propensities of the log come to the user's.

    Recall is over the relevant documents that the log shows; those with a mean rank of 3 or more are `low`, where
    the ranker does not say itself that they are relevant.
    """
    relevant = truth(Collection(source))
    draft = Draft()
    log = read_log(path, ClickOptions(), draft, Lookup(source), draft.drop, silent)
    counts = log.counts
    starts = np.flatnonzero(np.diff(counts.pair, prepend=-1))
    mean_rank = np.bincount(counts.pair, counts.rank * counts.shown) / np.bincount(counts.pair, counts.shown)
    shown = zip(counts.query[starts].tolist(), counts.document[starts].tolist(), mean_rank.tolist(), strict=True)
    there = {(query_key(log.texts[q]), log.ids[d]): rank for q, d, rank in shown}
    there = {pair: rank for pair, rank in there.items() if pair[1] in relevant[pair[0]]}
    found = Collection(harvested)
    positives: list[tuple[str, str]] = []
    negatives: list[tuple[str, str]] = []
    for split in found.splits:
        for query, documents in found.qrels(split).items():
            key = query_key(found.queries.by_id(query))
            for document, grade in documents.items():
                (positives if grade > 0 else negatives).append((key, document))

    def figures(pairs: list[tuple[str, str]]) -> dict[str, float]:
        right = [pair for pair in pairs if pair in there]
        return {
            "pairs": len(pairs),
            "precision": round(len(right) / max(1, len(pairs)), 4),
            "recall": round(len(right) / max(1, len(there)), 4),
            "low": sum(there[pair] >= 3 for pair in right),
        }

    ranks = np.arange(1, int(counts.rank.max()) + 1)
    true = 1 / ranks**eta
    values = believe(log, ClickOptions()).propensities
    rate = np.bincount(counts.rank, counts.clicked)[1:] / np.bincount(counts.rank, counts.shown)[1:]
    return {
        "relevant pairs in the log": {"pairs": len(there), "low": sum(rank >= 3 for rank in there.values())},
        "harvested": figures(positives),
        "click rate": figures(by_click_rate(log, len(positives), 1)),
        "click rate, 2 clicks": figures(by_click_rate(log, len(positives), 2)),
        "negatives": {
            "pairs": len(negatives),
            "not_relevant": round(1 - sum(pair in there for pair in negatives) / max(1, len(negatives)), 4),
        },
        "propensities": {
            "by_rank": [round(float(value), 4) for value in values],
            "mean_error": round(float(np.abs(values - true).mean()), 4),
            "largest_error": round(float(np.abs(values - true).max()), 4),
            "mean_error_of_click_rates": round(float(np.abs(rate / rate[0] - true).mean()), 4),
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    simulating = commands.add_parser("simulate")
    simulating.add_argument("source", type=Path)
    simulating.add_argument("--out", type=Path, required=True)
    simulating.add_argument("--sessions", type=int, default=200_000)
    simulating.add_argument("--depth", type=int, default=10)
    simulating.add_argument("--zipf", type=float, default=0.8)
    simulating.add_argument("--swap", type=float, default=0.3, help="chance that neighbours change places")
    simulating.add_argument("--shuffle", type=float, default=0.02, help="share of pages that are shuffled")
    simulating.add_argument("--relevant", type=float, default=0.7, help="chance of a click on what is relevant")
    simulating.add_argument("--noise", type=float, default=0.05, help="chance of a click on what is not")
    simulating.add_argument("--seed", type=int, default=0)
    comparing = commands.add_parser("compare")
    comparing.add_argument("source", type=Path)
    comparing.add_argument("log", type=Path)
    comparing.add_argument("harvested", type=Path)
    for command in (simulating, comparing):
        command.add_argument("--eta", type=float, default=1.0, help="looked at: 1 / rank ** eta")
    arguments = parser.parse_args()
    if arguments.command == "simulate":
        print(json.dumps(simulate(arguments.source, arguments.out, arguments)))
        return 0
    for name, value in compare(arguments.source, arguments.log, arguments.harvested, arguments.eta).items():
        print(f"{name:<28}{json.dumps(value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
