"""The section on the shape of a space: its numbers, and its pictures."""

import numpy as np
from numpy.typing import NDArray

from embedtrain.diagnose import pictures
from embedtrain.diagnose.section import Section
from embedtrain.diagnose.verdicts import Space, judge


def section(space: Space, base: Space | None) -> Section:
    """A model's numbers with their verdicts, beside those of its base."""
    return Section(
        "space",
        "The numbers",
        "How close positives are, how the documents are spread, and how many directions carry them.",
        measures=judge(space, base),
        pictures=_pictures(space, base),
    )


def _pictures(space: Space, base: Space | None) -> list[pictures.Picture]:
    shown = [item for item in (space, base) if item]
    return [
        pictures.similarities(
            [(item.name, item.contrast.positive, item.contrast.random) for item in shown],
            title="How similar positives and random documents are to a query",
            caption="The less the two hills overlap, the easier it is to rank. Where they stand on the scale does "
            "not matter; the gap does.",
        ),
        pictures.spectrum(
            [(item.name, item.spectrum.shares) for item in shown],
            title="How many directions carry the variance",
            caption="Share of the variance held by the strongest components together. A curve that leaps up at "
            "once is a space of few dimensions; the dotted line is an even sphere.",
        ),
    ]


def map_of(
    documents: NDArray[np.float32], queries: NDArray[np.float32], positives: list[list[int]]
) -> pictures.Picture:
    """Documents (n, d) and queries (q, d) on their two strongest principal components, by the documents' PCA.

    Queries are joined to their positives (rows of `documents`). Two of many dimensions: what is apart here is apart, what
    lies together need not be close.
    """
    centre = documents.mean(axis=0, dtype=np.float64)
    centred = documents - centre
    # The eigenvectors of the covariance: quick for any number of documents, and the sign is set, so that bytes repeat.
    values, vectors = np.linalg.eigh(centred.T @ centred)
    axes = vectors[:, ::-1][:, :2]
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    share = float(values[::-1][:2].sum() / max(values.sum(), 1e-12))
    shown = min(len(queries), 60)  # lines of more queries hide the points
    which = "" if shown == len(queries) else f" Of {len(queries):,} queries the first {shown} are drawn."
    return pictures.scatter(
        centred @ axes,
        (queries[:shown] - centre) @ axes,
        positives[:shown],
        title="A map of documents and queries",
        caption=f"The two strongest principal components, {100 * share:.0f} % of the variance; lines join queries to their "
        f"positives. What is apart here is apart; what lies together need not be close.{which}",
    )
