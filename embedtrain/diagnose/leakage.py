"""What an evaluation split shares with the rows that are trained on."""

from collections.abc import Sequence

import numpy as np

from embedtrain.candidates import Ints
from embedtrain.collection import Collection
from embedtrain.config import MineOptions
from embedtrain.console import opening
from embedtrain.diagnose.section import Section, Table, counted, limited, share
from embedtrain.duplicates import BLANK, fingerprint, shingles
from embedtrain.mined import MinedRow

# A query in a hundred that is known by heart lifts a mean over the split by 0.01 at most.
LEAK_LIMIT = 0.01
NEAR = MineOptions().near_duplicate
_BLOCK = 256


def nearly(own: Sequence[str], other: Sequence[str], threshold: float = NEAR) -> Ints:
    """For each text of `other` the place of the first text of `own` that it is nearly the same as; -1 for none. (n,)

    That is, whose shingles have a Jaccard index of `threshold` or more with its own. Every pair is compared: what two
    texts share is the product of two rows of a sparse matrix.
    """
    found = np.full(len(other), -1, dtype=np.int64)
    if not own or not other:
        return found
    from scipy import sparse

    sets = [shingles(text) for text in (*own, *other)]
    sizes = np.array([len(one) for one in sets], dtype=np.int64)
    _, columns = np.unique(np.concatenate(sets), return_inverse=True)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    matrix = sparse.csr_array((np.ones(len(columns), dtype=np.int32), columns, ends))
    mine = matrix[: len(own)].T.tocsr()
    for start in range(0, len(other), _BLOCK):
        shared = (matrix[len(own) + start : len(own) + start + _BLOCK] @ mine).tocoo()
        texts, places = shared.row.astype(np.int64) + start, shared.col.astype(np.int64)
        union = sizes[len(own) + texts] + sizes[places] - shared.data
        holds = shared.data >= threshold * union - 1e-9
        for text, place in sorted(zip(texts[holds].tolist(), places[holds].tolist(), strict=True), reverse=True):
            found[text] = place
    return found


def add_leaks(found: Section, rows: Sequence[MinedRow], collection: Collection, evaluation: str) -> None:
    """What the evaluation split shares with the rows: queries word for word or nearly, and answers."""
    queries, corpus = collection.queries, collection.corpus
    held = collection.positives(evaluation)
    own = [queries.by_id(row.query_id) for row in rows]
    other = [queries.by_id(query) for query in held]
    seen = {fingerprint(text): place for place, text in reversed(list(enumerate(own)))}
    seen.pop(BLANK, None)
    exact = np.array([seen.get(fingerprint(text), -1) for text in other], dtype=np.int64)
    like = np.where(exact >= 0, exact, nearly(own, other))
    near = (like >= 0) & (exact < 0)
    trained = {fingerprint(corpus.by_id(document)) for row in rows for document in row.positive_ids} - {BLANK}
    answered = [any(fingerprint(corpus.by_id(d)) in trained for d in documents) for documents in held.values()]
    same_ids = len(set(held) & {row.query_id for row in rows})
    count, leaked = len(held), int((like >= 0).sum())
    found.numbers["leakage"] = {
        "split": evaluation,
        "queries": count,
        "queries_word_for_word": int((exact >= 0).sum()),
        "queries_nearly": int(near.sum()),
        "queries_of_the_same_id": same_ids,
        "queries_with_an_answer_trained_on": sum(answered),
    }
    advice = "Harvest with --exclude, so that they leave train: a score on them says what was learned by heart."
    if same_ids:
        advice = f"{same_ids:,} are the very queries that are trained on: measure on another split."
    found.measures.append(
        limited(
            "leaked_queries",
            "evaluation queries in train",
            share(leaked, count),
            LEAK_LIMIT,
            f"{counted(leaked, count)} of the {count:,} queries of {evaluation} are trained on, {int(near.sum()):,} of them "
            "nearly word for word.",
            advice,
        )
    )
    table = [
        ["queries trained on, word for word", counted((exact >= 0).sum(), count)],
        ["queries trained on, nearly", counted(near.sum(), count)],
        ["queries with an answer that is a positive in training", counted(sum(answered), count)],
    ]
    # The near ones are worth a look; equal ones say nothing new.
    table += [
        [f"{evaluation}: {opening(other[place], 60)}", f"train: {opening(own[int(like[place])], 60)}"]
        for place in np.flatnonzero(near)[:3].tolist()
    ]
    found.tables.append(
        Table(
            f"What {evaluation} shares with training",
            [f"of {count:,} queries of {evaluation}", "number"],
            table,
            "An answer that training has seen with another question is no leak, but such queries are easier: eval shows "
            "both kinds apart.",
        )
    )
