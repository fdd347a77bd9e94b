"""Who is whose neighbour: documents that come up for every query, groups of documents, and what training moved.

Neighbours are the nearest by cosine in the exact search, ties broken by id as everywhere.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain.console import opening
from embedtrain.diagnose import pictures, verdicts
from embedtrain.diagnose.clusters import WIDTH, add_clusters
from embedtrain.diagnose.filling import jackknife
from embedtrain.diagnose.geometry import Floats, Vectors, unit
from embedtrain.diagnose.numbers import rounded
from embedtrain.diagnose.section import HEALTHY, WATCH, Measure, Section, Table
from embedtrain.errors import EmbedtrainError
from embedtrain.search import dense

Ints = NDArray[np.int64]

K = 10
# Above 2 the literature speaks of hubs. Few queries give a skewed count by chance alone, which comes on top.
HUBS_COLLAPSED, HUBS_WATCH, HUBS_OF_BASE = 10.0, 2.0, 2.0
# Chance keeps k / (n - 1).
KEPT_WATCH = 0.15

_FEWEST = 2 * K + 1  # documents: with fewer, everything is in every top ten
_ROWS = 10  # of a table
_STREAM = zlib.crc32(b"neighbours")


def top(queries: Vectors, documents: Vectors, ids: Sequence[str], k: int = K) -> Ints:
    """Rows of the k nearest documents of every query, best first: (q, k), or (q, n) where there are fewer."""
    hits = dense(np.asarray(queries), np.asarray(documents), ids, k)
    return np.array(hits.positions, dtype=np.int64).reshape(len(hits), -1)


def around(documents: Vectors, ids: Sequence[str], k: int = K) -> Ints:
    """Rows of the k nearest other documents of every document, best first: (n, k), or (n, n - 1) where fewer."""
    found = top(documents, documents, ids, k + 1)
    own = found == np.arange(len(found))[:, None]
    # One of more than k equal documents may miss itself: then the last is one too many.
    own[~own.any(axis=1), -1] = True
    return found[~own].reshape(len(found), -1)


def skewness(counts: NDArray[Any]) -> float:
    """Skewness of counts (n,): the third standardised moment; 0 where all are equal.

    The hubness of Radovanovic et al. 2010 (JMLR 11), eq. 1.
    """
    values = np.asarray(counts, dtype=np.float64)
    deviations = values - values.mean()
    spread = np.mean(deviations**2)
    return float(np.mean(deviations**3) / spread**1.5) if spread > 1e-12 else 0.0


def skewness_by_chance(queries: int, documents: int, k: int = K) -> float:
    """Skewness of how often each of n documents is drawn when every query draws k of them at random: binomial."""
    share = min(k / documents, 1.0)
    spread = queries * share * (1.0 - share)
    return (1.0 - 2.0 * share) / spread**0.5 if spread > 1e-12 else 0.0


def kept(before: Ints, now: Ints) -> Floats:
    """Share of the neighbours before (n, k) that are neighbours now, row by row: (n,)."""
    if before.shape != now.shape:
        raise EmbedtrainError(f"neighbours {before.shape} and {now.shape} are not of the same texts")
    return np.mean((before[:, :, None] == now[:, None, :]).any(axis=2), axis=1)


def section(
    queries: Vectors,
    documents: Vectors,
    ids: Sequence[str],
    texts: Sequence[str],
    base_queries: Vectors | None,
    base_documents: Vectors | None,
    names: Sequence[str],
    seed: int,
    labels: Sequence[Any] | None = None,
) -> Section:
    """Hubs, clusters and moved texts of a model: queries (q, d), documents (n, d) with their ids and texts.

    `names` are those of the model and, where there is one, of the base. Clusters are those of `labels` (n,), or
    found by k-means in each space. EmbedtrainError for vectors without a direction or numbers that do not match.
    """
    for given, what in ((texts, "texts"), (labels, "labels")):
        if given is not None and len(given) != len(ids):
            raise EmbedtrainError(f"{len(given)} {what} were given for {len(ids)} documents")
    found = Section(
        key="neighbours",
        title="Who is whose neighbour",
        lead=f"What {len(np.asarray(queries)):,} queries find among {len(ids):,} documents, how documents group"
        + (", and what training moved." if base_documents is not None else "."),
    )
    if len(ids) < _FEWEST:
        found.notes.append(
            f"Neighbours say nothing among {len(ids)} documents; at least {_FEWEST} are needed. Raise --sample."
        )
        return found
    now = top(unit(queries), unit(documents), ids)
    before = None
    if base_queries is not None and base_documents is not None:
        before = top(unit(base_queries), unit(base_documents), ids)
    _add_hubs(found, now, before, ids, texts, seed)
    add_clusters(found, documents, base_documents, ids, texts, names, seed, labels)
    if before is not None and base_documents is not None:
        _add_moved(found, now, before, documents, base_documents, ids, texts, names)
    return found


def _add_hubs(
    found: Section,
    now: Ints,
    before: Ints | None,
    ids: Sequence[str],
    texts: Sequence[str],
    seed: int,
) -> None:
    counts = np.bincount(now.ravel(), minlength=len(ids))
    old = None if before is None else np.bincount(before.ravel(), minlength=len(ids))
    value, base = skewness(counts), None if old is None else skewness(old)
    chance = max(skewness_by_chance(len(now), len(ids)), 0.0)
    error = 0.0
    if len(now) > 1:
        by_query = jackknife(now, lambda part: np.array([_skewness_of(part, len(ids))]), (seed, _STREAM, 1))
        error = float(by_query[0])
    verdict = verdicts.rule(value, HUBS_WATCH + chance, HUBS_COLLAPSED + chance, high_is_bad=True)
    order = np.lexsort((np.array(ids), -counts))[:_ROWS]
    hub = int(order[0])
    sentence = (
        f"How often documents are in a top {now.shape[1]} has the skewness {value:.2f} ± {error:.2f}; the most frequent "
        f"one, {ids[hub]}, is there for {100 * counts[hub] / len(now):.0f} % of the queries."
    )
    if verdict != HEALTHY:
        sentence += (
            " A few documents crowd the others out: look at them, mine them as negatives, and use larger batches."
        )
    elif base is not None and value > max(1.0, HUBS_OF_BASE * base, base + 3.0 * error):
        verdict = WATCH
        sentence += f" With the base it is {base:.2f}: training made hubs. Mine them as negatives."
    reference = f"{chance:.2f} by chance; above {HUBS_WATCH + chance:.1f} hubs"
    high = max(HUBS_COLLAPSED + chance, value)
    found.measures.append(
        Measure(
            "hub_skewness", "hub skewness", value, base, reference, verdict, sentence, 0, high, chance, digits=2
        )
    )
    columns = ["document", "queries", *(["with the base"] if old is not None else []), "text"]
    rows = [
        [
            ids[row],
            f"{counts[row]:,}",
            *([f"{old[row]:,}"] if old is not None else []),
            opening(texts[row], WIDTH),
        ]
        for row in order.tolist()
        if counts[row]
    ]
    mean = len(now) * now.shape[1] / len(ids)
    note = f"Of {len(now):,} queries; a document is in {mean:.1f} of their lists on average."
    found.tables.append(Table(f"Documents in most top {now.shape[1]} lists", columns, rows, note))
    found.numbers["hubs"] = {
        "k": int(now.shape[1]),
        "queries": len(now),
        "skewness": rounded(value),
        "error": rounded(error),
        "by_chance": rounded(chance),
        "base_skewness": None if base is None else rounded(base),
        "never_found": rounded(float(np.mean(counts == 0))),
        "most_frequent": [{"id": ids[row], "queries": int(counts[row])} for row in order.tolist()],
    }


def _skewness_of(lists: NDArray[Any], documents: int) -> float:
    return skewness(np.bincount(lists.ravel(), minlength=documents))


def _add_moved(
    found: Section,
    now: Ints,
    before: Ints,
    documents: Vectors,
    base_documents: Vectors,
    ids: Sequence[str],
    texts: Sequence[str],
    names: Sequence[str],
) -> None:
    rows = unit(documents)
    near, former = around(rows, ids), around(unit(base_documents), ids)
    shares, of_queries = kept(former, near), kept(before, now)
    value, asked = float(shares.mean()), float(of_queries.mean())
    error = float(shares.std(ddof=1) / len(shares) ** 0.5)
    chance = near.shape[1] / (len(ids) - 1)
    verdict = WATCH if value < max(KEPT_WATCH, 2.0 * chance) else HEALTHY
    sentence = (
        f"Of the {near.shape[1]} nearest documents of a document {100 * value:.0f} ± {100 * error:.1f} % are the same as "
        f"with the base, and of the {now.shape[1]} best of a query {100 * asked:.0f} %."
    )
    if verdict != HEALTHY:
        sentence += (
            " Little is left of what the base knew: unless the base was no good, use a lower learning rate or "
        )
        sentence += "fewer steps."
    reference = f"1 identical model, {chance:.3f} chance"
    found.measures.append(
        Measure("neighbours_kept", "neighbours kept", value, None, reference, verdict, sentence, 0, 1, 1)
    )
    # Equal shares are told apart by how much nearer the neighbours of now are than the former ones.
    gap = _closeness(rows, near) - _closeness(rows, former)
    order = np.lexsort((np.array(ids), -np.round(gap, 6), shares))[:_ROWS]
    columns = ["document", "kept", "nearest before", "nearest now", "text"]
    moved = [row for row in order.tolist() if shares[row] < 1.0]
    table = [
        [
            ids[row],
            f"{round(shares[row] * near.shape[1])} of {near.shape[1]}",
            ids[former[row, 0]],
            ids[near[row, 0]],
            opening(texts[row], WIDTH),
        ]
        for row in moved
    ]
    if table:
        note = f"Documents that kept the fewest of their {near.shape[1]} nearest documents, from {names[1]} to {names[0]}."
        found.tables.append(Table("Texts that moved most", columns, table, note))
    found.pictures.append(_picture(shares, near.shape[1]))
    found.numbers["kept"] = {
        "k": int(near.shape[1]),
        "documents": rounded(value),
        "error": rounded(error),
        "queries": rounded(asked),
        "by_chance": rounded(chance),
        "moved_most": [{"id": ids[row], "kept": rounded(shares[row])} for row in moved],
    }


def _closeness(rows: Floats, neighbours: Ints) -> Floats:
    """Mean cosine of every row with its neighbours (n, k): (n,)."""
    total = np.zeros(len(rows))
    for column in neighbours.T:
        total += np.einsum("ij,ij->i", rows, rows[column])
    return total / neighbours.shape[1]


def _picture(shares: Floats, k: int) -> pictures.Picture:
    heights = np.bincount(np.round(shares * k).astype(int), minlength=k + 1) / len(shares)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.bar(np.arange(k + 1), 100 * heights, color=pictures.MODEL, alpha=0.6, width=0.85)
        axes.axvline(k * float(shares.mean()), color=pictures.MODEL, linewidth=1.2, linestyle=(0, (3, 2)))
        axes.set_xticks(range(k + 1))
        axes.set_ylim(0, max(5.0, 112 * float(heights.max())))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
        axes.grid(axis="y")
        axes.set_xlabel(f"of the {k} nearest documents kept from the base")

    return pictures.picture(
        "kept",
        "How much of each neighbourhood training kept",
        f"Share of documents by how many of their {k} nearest documents are the same before and after training; the "
        "dashed line is the mean. A hill at 0 is a space built anew.",
        2.6,
        draw,
    )
