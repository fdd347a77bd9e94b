"""Who is whose neighbour: documents that come up for every query, groups of documents, and what training moved.

Neighbours are the nearest by cosine in the exact search, ties broken by id as everywhere.
"""

import dataclasses
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain.diagnose import pictures, verdicts
from embedtrain.diagnose.data import opening
from embedtrain.diagnose.geometry import Floats, Vectors, unit
from embedtrain.diagnose.numbers import rounded
from embedtrain.diagnose.section import HEALTHY, WATCH, Measure, Section, Table
from embedtrain.diagnose.shape import jackknife, kappa, resultant
from embedtrain.errors import EmbedtrainError
from embedtrain.search import dense
from embedtrain.topics import topics

Ints = NDArray[np.int64]

K = 10
# Above 2 the literature speaks of hubs. Few queries give a skewed count by chance alone, which comes on top.
HUBS_COLLAPSED, HUBS_WATCH, HUBS_OF_BASE = 10.0, 2.0, 2.0
# Spread within clusters over that of all documents: 0 when each cluster is one point.
WITHIN_COLLAPSED, WITHIN_WATCH, WITHIN_OF_BASE = 0.02, 0.08, 0.5
# Means of clusters are closer than documents are: what is left of a text without its details.
BETWEEN_COLLAPSED, BETWEEN_WATCH, BETWEEN_RISE = 0.995, 0.98, 0.25
# Chance keeps k / (n - 1).
KEPT_WATCH = 0.15

_CLUSTERS = 20
_PER_CLUSTER = 20
_FEWEST = 2 * K + 1  # documents: with fewer, everything is in every top ten
_ROWS = 10  # of a table
_WIDTH = 72
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


@dataclasses.dataclass(frozen=True)
class Clusters:
    """Groups of documents: the name and size of each, its resultant length R (tightness) and kappa, the cosine of
    the mean directions of every two (c, c), and the row of the document closest to the mean. The largest first."""

    names: list[str]
    sizes: Ints
    lengths: Floats
    kappas: Floats
    cosines: Floats
    typical: Ints
    alone: int  # documents that are a group of their own, and left out
    whole: float  # resultant length of all the others
    dimension: int

    @classmethod
    def of(cls, documents: Vectors, groups: Sequence[Any]) -> "Clusters":
        """The clusters of documents (n, d) by their groups (n,), which become names; groups of one are left out."""
        rows = unit(documents)
        if len(groups) != len(rows):
            raise EmbedtrainError(f"{len(groups)} labels were given for {len(rows)} documents")
        names, which, counts = np.unique([str(group) for group in groups], return_inverse=True, return_counts=True)
        order = [int(place) for place in np.argsort(-counts, kind="stable") if counts[place] > 1]
        lengths, means, typical = [], [], []
        for place in order:
            members = np.flatnonzero(which == place)
            mean = rows[members].mean(axis=0)
            lengths.append(resultant(rows[members]))
            means.append(mean / max(float(np.linalg.norm(mean)), 1e-12))
            typical.append(int(members[np.argmax(np.round(rows[members] @ mean, 9))]))
        directions = np.array(means).reshape(len(order), rows.shape[1])
        inside = np.isin(which, order)
        return cls(
            names=[str(names[place]) for place in order],
            sizes=counts[order].astype(np.int64),
            lengths=np.array(lengths),
            kappas=np.array([kappa(length, rows.shape[1]) for length in lengths]),
            cosines=directions @ directions.T,
            typical=np.array(typical, dtype=np.int64),
            alone=int(np.count_nonzero(~inside)),
            whole=resultant(rows[inside]) if order else 1.0,
            dimension=rows.shape[1],
        )

    @property
    def kappa(self) -> float:
        """Tightness within: the median over clusters."""
        return float(np.median(self.kappas))

    @property
    def within(self) -> float:
        """Spread within clusters, a mean over documents, over that of all of them: 0 each one point, 1 no clusters.

        The spread of directions is their circular variance about the mean, 1 - R².
        """
        inner = float(np.average(1.0 - self.lengths**2, weights=self.sizes))
        outer = 1.0 - self.whole**2
        return inner / outer if outer > 1e-9 else 1.0

    @property
    def between(self) -> float:
        """Mean cosine of the mean directions of two different clusters."""
        return _between(self.cosines)

    @property
    def between_error(self) -> float:
        """Standard error of `between`: the jackknife over clusters."""
        count = len(self.sizes)
        if count < 3:
            return 0.0
        left = [np.delete(np.arange(count), place) for place in range(count)]
        found = np.array([_between(self.cosines[np.ix_(rows, rows)]) for rows in left])
        return float(np.sqrt((count - 1) / count * np.sum((found - found.mean()) ** 2)))


def _between(cosines: Floats) -> float:
    return float(cosines[np.triu_indices(len(cosines), 1)].mean())


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
    _add_clusters(found, documents, base_documents, ids, texts, names, seed, labels)
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
            opening(texts[row], _WIDTH),
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


def _add_clusters(
    found: Section,
    documents: Vectors,
    base_documents: Vectors | None,
    ids: Sequence[str],
    texts: Sequence[str],
    names: Sequence[str],
    seed: int,
    labels: Sequence[Any] | None,
) -> None:
    given = labels is not None
    if labels is None and len(ids) < 2 * _PER_CLUSTER:
        found.notes.append(f"{len(ids)} documents are too few to look for clusters; raise --sample.")
        return
    own = Clusters.of(documents, _groups(documents, labels, seed))
    base = None
    if base_documents is not None:
        base = Clusters.of(base_documents, _groups(base_documents, labels, seed))
    if len(own.sizes) < 2 or (base is not None and len(base.sizes) < 2):
        found.notes.append(
            "There are no two clusters with two documents each: all are one point, or have one label."
        )
        return
    found.measures.extend([_tightness(own, base), _between_measure(own, base)])
    nearest = own.cosines - 2.0 * np.eye(len(own.sizes))
    close = np.argmax(np.round(nearest, 9), axis=1)
    rows = [
        [
            own.names[place] if given else f"{place + 1}",
            f"{own.sizes[place]:,}",
            f"{own.kappas[place]:,.0f}",
            f"{nearest[place, close[place]]:.2f} ({own.names[close[place]] if given else close[place] + 1})".replace(
                "-", "−"
            ),
            ids[own.typical[place]],
            opening(texts[own.typical[place]], _WIDTH),
        ]
        for place in range(min(len(own.sizes), _CLUSTERS))
    ]
    columns = ["cluster", "documents", "κ", "closest other", "most typical", "text"]
    kind = "The labels given" if given else "k-means on the documents"
    note = (
        f"{kind}; of {names[0]}. κ: how tight a cluster is (von Mises-Fisher); closest other: cosine of the means."
    )
    if len(own.sizes) > _CLUSTERS:
        note += f" The {_CLUSTERS} largest of {len(own.sizes):,}."
    if own.alone:
        note += f" {own.alone:,} documents are in a cluster of their own, and left out."
    found.tables.append(Table("Clusters of documents", columns, rows, note))
    found.numbers["clusters"] = {
        "by": "labels" if given else "k-means",
        "model": _cluster_numbers(own),
        "base": None if base is None else _cluster_numbers(base),
    }


def _groups(documents: Vectors, labels: Sequence[Any] | None, seed: int) -> Sequence[Any]:
    if labels is not None:
        return labels
    rows = unit(documents)
    return topics(rows.astype(np.float32), min(_CLUSTERS, len(rows) // _PER_CLUSTER), seed).tolist()


def _tightness(own: Clusters, base: Clusters | None) -> Measure:
    value, before = own.kappa, base.kappa if base else None
    verdict = verdicts.rule(own.within, WITHIN_WATCH, WITHIN_COLLAPSED, high_is_bad=False)
    low, high = np.quantile(own.kappas, [0.25, 0.75])
    sentence = (
        f"Half of the {len(own.sizes):,} clusters have a κ between {low:,.0f} and {high:,.0f}; {100 * own.within:.0f} % of "
        "the spread of all documents is within clusters."
    )
    if verdict != HEALTHY:
        sentence += (
            " Texts of a cluster can hardly be told apart, which a classifier wants and a search does not: use "
        )
        sentence += "hard negatives from the same cluster, or a higher temperature."
    elif base is not None and own.within < WITHIN_OF_BASE * base.within:
        verdict = WATCH
        sentence += f" With the base it is {100 * base.within:.0f} %: training drew clusters together. Use hard "
        sentence += "negatives from the same cluster."
    whole = kappa(own.whole, own.dimension)
    most = max(2.0 * whole, value, before or 0.0)
    reference = f"κ {whole:,.0f} of all together"
    return Measure(
        "cluster_tightness",
        "tightness of clusters (κ)",
        value,
        before,
        reference,
        verdict,
        sentence,
        0,
        most,
        whole,
        digits=0,
    )


def _between_measure(own: Clusters, base: Clusters | None) -> Measure:
    value, before = own.between, base.between if base else None
    verdict = verdicts.rule(value, BETWEEN_WATCH, BETWEEN_COLLAPSED, high_is_bad=True)
    sentence = f"The means of two clusters have a cosine of {value:.3f} ± {own.between_error:.3f}".replace(
        "-", "−"
    )
    if verdict != HEALTHY:
        sentence += ": topics lie on each other. Raise the temperature, and use larger batches or more negatives."
    elif before is not None and value > before + BETWEEN_RISE:
        verdict = WATCH
        sentence += (
            f", {value - before:.2f} more than with the base: topics moved together. Try larger batches, more "
        )
        sentence += "negatives or fewer steps."
    else:
        sentence += ". It is above that of two documents, as means have no details left."
    reference = "0 unrelated topics, 1 one topic"
    return Measure(
        "cluster_cosine", "cosine between clusters", value, before, reference, verdict, sentence, 0, 1, 0
    )


def _cluster_numbers(clusters: Clusters) -> dict[str, Any]:
    return {
        "count": len(clusters.sizes),
        "within": rounded(clusters.within),
        "between": rounded(clusters.between),
        "between_error": rounded(clusters.between_error),
        "kappa": rounded(clusters.kappa),
        "sizes": clusters.sizes.tolist(),
        "kappas": [rounded(value) for value in clusters.kappas],
    }


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
            opening(texts[row], _WIDTH),
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
