"""The consistency filter: a weak pair stays where its document is near the top for its query, among a sample.

Wang et al., Text Embeddings by Weakly-Supervised Contrastive Pre-training (2022), section 3.1, keep a pair whose document is
among the first 2 of a million; here the judge is BM25, a model, or both, and both must agree.
"""

from collections.abc import Sequence

import numpy as np

from embedtrain.collection import Texts
from embedtrain.console import Progress
from embedtrain.harvest import changes
from embedtrain.harvest.draft import JUDGED, TRAIN, Draft
from embedtrain.harvest.finders import check_names, found_again, open_finders
from embedtrain.harvest.split import units
from embedtrain.tokens import AUTO


def parse(text: str) -> list[str]:
    """The judges that `bm25`, the name of a model, or several with commas stand for; UsageError for anything else."""
    names = [name.strip() for name in text.split(",")]
    check_names(names, "--consistency")
    return names


def keep_consistent(
    draft: Draft, judges: Sequence[str], k: int, sample: int, seed: int, progress: Progress
) -> None:
    """Take out weak pairs of train that not every judge finds in the first k; the kept share of each source is told.

    Documents are dealt out into parts of about `sample` by a stable hash, and each pair is judged in its document's part.
    """
    pairs = draft.pairs(TRAIN)
    weak = (pairs.source != draft.name("source", JUDGED)) & (pairs.grade > 0)
    numbers = draft.keys("documents")[0]
    parts = -(-len(numbers) // sample)
    part_of = (units(draft, "documents", numbers, seed, "consistency") * parts).astype(np.int64)
    of_pair = part_of[np.searchsorted(numbers, pairs.document)]
    kept = np.ones(len(pairs.p), dtype=bool)
    for part in range(parts):
        chosen = np.flatnonzero(weak & (of_pair == part))
        if not len(chosen):
            continue
        documents = numbers[part_of == part]
        named = zip(draft.ids("documents", documents), documents.tolist(), strict=True)
        texts = Texts.of(((identifier, "", draft.text("documents", n)) for identifier, n in named), titled=False)
        places = np.searchsorted(documents, pairs.document[chosen])
        asked = [draft.text("queries", n) for n in pairs.query[chosen].tolist()]
        kept[chosen] = found_again(
            list(zip(asked, places.tolist(), strict=True)),
            open_finders(judges, texts, AUTO, progress),
            k,
            "all",
            progress,
        )
    names = {number: name for name, number in draft.names("source").items()}
    for source in np.unique(pairs.source[weak]).tolist():
        own = weak & (pairs.source == source)
        draft.notes.append(
            f"consistent by {' and '.join(judges)} (top {k}): {int(kept[own].sum()):,} of {int(own.sum()):,} pairs of "
            f"{names[source]} ({kept[own].mean():.1%})"
        )
    changes.remove_pairs(draft, pairs.p[~kept], "pair that is not consistent")
    changes.forget_unasked(draft)
