"""Groups of documents: how tight each is, and how far from the others."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain.console import opening
from embedtrain.diagnose import verdicts
from embedtrain.diagnose.filling import kappa, resultant
from embedtrain.diagnose.geometry import Floats, Vectors, unit
from embedtrain.diagnose.numbers import rounded
from embedtrain.diagnose.section import HEALTHY, WATCH, Measure, Section, Table
from embedtrain.errors import EmbedtrainError
from embedtrain.topics import topics

Ints = NDArray[np.int64]

# Spread within clusters over that of all documents: 0 when each cluster is one point.
WITHIN_COLLAPSED, WITHIN_WATCH, WITHIN_OF_BASE = 0.02, 0.08, 0.5
# Means of clusters are closer than documents are: what is left of a text without its details.
BETWEEN_COLLAPSED, BETWEEN_WATCH, BETWEEN_RISE = 0.995, 0.98, 0.25

_CLUSTERS = 20
_PER_CLUSTER = 20
WIDTH = 72  # characters of a text in a table that has many columns


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


def add_clusters(
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
            opening(texts[own.typical[place]], WIDTH),
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
