"""Who may be a negative for whom, and the batches of a run.

Deliberate breaks that turn a test here red: masks by id instead of text, known positives forgotten, absent columns
counted, an explicit negative hidden by a group, another row's column kept for a text that the row shows itself,
the clashes of query_mask taken one way only, the diagonal of reverse_mask left out, the rows of an epoch drawn
from the step instead of the epoch, a curriculum that ends with the first epoch.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import batch_masks

from embedtrain import batching
from embedtrain.batching import Row
from embedtrain.drawing import Chosen, Mix
from embedtrain.ordering import Mixing


def number(texts: dict[str, str]):
    """A `number` function over ids with these texts; an id without one is its own text."""
    numbers: dict[str, int] = {}
    return lambda document: numbers.setdefault(texts.get(document, document), len(numbers))


def batch(rows: list[Row], texts: dict[str, str] | None = None, **options) -> batching.Batch:
    """The batch of rows that show their first positive and all negatives."""
    numbers = number(texts or {})
    return batching.make_batch(
        [Chosen(row, row.positives[0], row.negatives) for row in rows],
        number=numbers,
        query_numbers=[numbers(row.query_id) for row in rows],
        **options,
    )


def batcher(rows: list[Row], texts: dict[str, str] | None = None, **options) -> batching.Batcher:
    texts = texts or {}
    options = {"batch_size": 4, "negatives": 4, "start": (0, 0)} | options
    return batching.Batcher(rows, text_of=lambda document: texts.get(document, document), **options)


def losses(scores: list[list[float]], mask: np.ndarray, scale: float = 20.0) -> list[float]:
    """-log softmax of the positive of each row, one document a row."""
    found = []
    for i, row in enumerate(scores):
        shown = [math.exp(scale * s) for s, there in zip(row, mask[i], strict=True) if there]
        found.append(math.log(sum(shown)) - scale * row[i])
    return found


def test_two_rows_with_one_positive_text_do_not_push_each_other_p01_p49() -> None:
    made = batch([Row("q1", ("a",)), Row("q2", ("b",))], {"a": "Titan", "b": "Titan"})
    assert made.mask.tolist() == [[True, False], [False, True]]
    assert made.without_negatives == 2
    assert losses([[0.9, 0.9], [0.8, 0.8]], made.mask) == [0.0, 0.0]
    # Three rows, the first two with one positive: 0.0000022 with the mask, 0.4621 without.
    scores = [[0.9, 0.9, 0.1], [0.8, 0.8, 0.2], [0.1, 0.1, 0.9]]
    made = batch([Row("q1", ("a",)), Row("q2", ("b",)), Row("q3", ("c",))], {"a": "Titan", "b": "Titan"})
    assert np.mean(losses(scores, made.mask)) == pytest.approx(2.2e-6, abs=1e-7)
    assert np.mean(losses(scores, np.ones((3, 3), dtype=bool))) == pytest.approx(0.4621, abs=1e-4)
    # Of six pairs of a row and another text, the first two rows lose none: "Titan" is one text. (3 * (2 - 1) = 3.)
    assert made.offered == 3
    assert made.masked_share == 0.0
    # Nor may the queries of one document be each other's negatives, in either direction.
    assert made.query_mask.tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    assert made.reverse_mask.tolist() == [[True, False, True], [False, True, True], [True, True, True]]


def test_another_positive_of_the_query_is_no_negative_p02() -> None:
    made = batch([Row("A", ("B", "C")), Row("x", ("C",)), Row("y", ("D",))])
    assert made.mask.tolist() == [[True, False, True], [True, True, True], [True, True, True]]
    assert made.positives.tolist() == [[True, True, False], [False, True, False], [False, False, True]]
    # One query unrolled into two rows: 0 with the other positive masked, 1.1269 for the second without.
    rows = batching.guarded([Row("A", ("B",)), Row("a ", ("C",))], str)
    assert [row.not_negatives for row in rows] == [("C",), ("B",)]
    made = batcher(rows, query_text_of=str).batch(0, 0)
    scores = [[0.8, 0.7], [0.8, 0.7]]
    assert losses(scores, made.mask) == [0.0, 0.0]
    assert np.mean(losses(scores, np.ones((2, 2), dtype=bool))) == pytest.approx(1.1269, abs=1e-4)
    assert made.query_mask.sum() == 0


def test_a_row_is_not_filled_up_p04() -> None:
    made = batcher([Row("q", ("p",), ("n",))], negatives=3).batch(0, 0)
    assert made.columns.shape == (1, 2)
    assert made.negatives_each == 1
    assert math.log1p(math.exp((0.2 - 0.8) / 0.1)) == pytest.approx(0.00248, abs=1e-5)


def test_ragged_rows_train_as_they_are_p11() -> None:
    rows = [Row("q1", ("p1",), ("n1", "n2")), Row("q2", ("p2",)), Row("q3", ("p3",), ("n3",))]
    made = batch(rows)
    assert made.present.sum(1).tolist() == [3, 1, 2]
    assert made.negative.tolist() == [[False, True, True], [False, False, False], [False, True, False]]
    # Nothing absent is in any softmax, and all six documents are in every one.
    assert made.mask.sum(1).tolist() == [6, 6, 6]
    alone = batch(rows, in_batch=False)
    assert alone.mask.sum(1).tolist() == [3, 1, 2]
    assert alone.without_negatives == 1
    assert alone.masked_share == 0.0
    assert alone.query_mask.sum() == 0
    assert alone.reverse_mask.sum() == 3


def test_smaller_batches_have_fewer_negatives_and_say_so_p41() -> None:
    rows = [Row(f"q{i}", (f"p{i}",)) for i in range(4)]
    scores = [[0.9, 0.1, 0.2, 0.3], [0.2, 0.8, 0.1, 0.4], [0.3, 0.2, 0.7, 0.1], [0.1, 0.5, 0.2, 0.6]]
    whole, half = batch(rows), batch(rows[:2])
    assert (whole.negatives_each, half.negatives_each) == (3, 1)
    assert np.mean(losses(scores, whole.mask)) == pytest.approx(0.03200, abs=1e-5)
    halves = losses([row[:2] for row in scores[:2]], half.mask) + losses(
        [row[2:] for row in scores[2:]], half.mask
    )
    assert np.mean(halves) == pytest.approx(0.000087, abs=1e-6)
    assert batch(rows[:1]).without_negatives == 1


def test_a_document_in_two_columns_counts_once_and_a_row_shows_its_own() -> None:
    rows = [Row("q1", ("p1",), ("n",)), Row("q2", ("p2",), ("n",)), Row("q3", ("p3",), ("copy",))]
    made = batch(rows, {"n": "same", "copy": "same"})
    assert len(made.documents) == 5
    assert made.mask.sum(1).tolist() == [4, 4, 4]
    assert made.negative[:, 1].all()
    assert [made.mask[i, 1::2].tolist() for i in range(3)] == np.eye(3, dtype=bool).tolist()


def test_what_the_teacher_took_back_is_masked_for_that_query_only() -> None:
    rows = [Row("q1", ("p1",), ("n1",), not_negatives=("n2",)), Row("q2", ("p2",), ("n2",))]
    made = batch(rows)
    assert made.mask.tolist() == [[True, True, True, False], [True, True, True, True]]
    assert made.masked_share == pytest.approx(1 / 6)


def test_a_negative_with_the_words_of_a_positive_or_of_the_query_is_none() -> None:
    rows = [Row("q1", ("p1", "p2"), ("copy", "echo", "n")), Row("q2", ("p3",))]
    made = batch(rows, {"copy": "p2", "echo": "q1"})
    assert made.negative[0].tolist() == [False, False, False, True]
    assert made.mask[0].tolist() == [True, False, False, True, True, False, False, False]


def test_documents_of_a_positives_group_are_no_negatives_but_explicit_ones_stay() -> None:
    groups = {"p1": "page", "n1": "page", "n2": "page", "p2": "page", "p3": "other"}
    rows = [
        Row("q1", ("p1",), ("n1", "n2"), explicit=("n2",)),
        Row("q2", ("p2",)),
        Row("q3", ("p3",), ("n1",)),
    ]
    made = batch(rows, group_of=lambda document: groups.get(document, ""))
    assert made.negative.tolist() == [[False, False, True], [False, False, False], [False, True, False]]
    assert made.explicit.tolist() == [[False, False, True], [False, False, False], [False, False, False]]
    # Columns: p1 n1 n2, p2 - -, p3 n1 -.
    assert made.mask.astype(int).tolist() == [
        [1, 0, 1, 0, 0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0, 0, 1, 0, 0],
        [1, 0, 1, 1, 0, 0, 1, 1, 0],
    ]
    # The first two queries have positives of one group.
    assert made.query_mask.astype(int).tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]


def test_further_positives_stand_behind_the_negatives() -> None:
    row = Row("q", ("a", "b", "c"), ("n",), teacher={"a": 3.0, "b": 2.0, "n": -1.0}, label=7)
    made = batching.make_batch(
        [Chosen(row, "b", ("n",), ("c", "a")), Chosen(Row("x", ("d",)), "d", ())],
        number=number({}),
        query_numbers=[-1, -2],
    )
    assert [made.documents[place] for place in made.columns[0]] == ["b", "n", "c", "a"]
    assert made.present.tolist() == [[True] * 4, [True, False, False, False]]
    assert made.negative.tolist() == [[False, True, False, False], [False] * 4]
    assert made.mask[0].astype(int).tolist() == [1, 1, 0, 0, 1, 0, 0, 0]
    assert made.positives[0].astype(int).tolist() == [1, 0, 1, 1, 0, 0, 0, 0]
    assert made.teacher is not None
    np.testing.assert_array_equal(made.teacher, np.array([[2, -1, np.nan, 3], [np.nan] * 4], dtype=np.float32))
    assert made.labels is not None
    assert made.labels.tolist() == [7, -1]
    bare = batch([Row("x", ("d",))])
    assert bare.teacher is None
    assert bare.labels is None


IDS = st.integers(0, 12)


@given(
    st.lists(
        st.tuples(
            st.lists(IDS, min_size=1, max_size=4, unique=True),
            st.lists(IDS, max_size=4, unique=True),
            st.lists(IDS, max_size=3, unique=True),
            st.integers(0, 4),
            st.integers(1, 3),
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
    st.booleans(),
)
def test_the_masks_are_those_of_the_obvious_loop(drawn, grouped: bool, in_batch: bool) -> None:
    # Documents i and i+6 share a text, and so do queries 0 and 2; query 3 says what document 5 says.
    texts = {f"d{i}": f"text {i % 6}" for i in range(13)} | {"q0": "who", "q2": "who", "q3": "text 5"}
    # By id, so that a text can stand in two groups.
    groups = {f"d{i}": f"group {i % 5}" if i % 5 < 2 else "" for i in range(13)} if grouped else {}
    chosen = []
    for n, (positives, negatives, others, picked, shown) in enumerate(drawn):
        ids = [tuple(f"d{i}" for i in part) for part in (positives, negatives, others)]
        row = Row(f"q{n}", ids[0], ids[1], ids[2], explicit=ids[1][:picked])
        chosen.append(Chosen(row, ids[0][0], ids[1], ids[0][1:shown]))
    numbers = number(texts)
    made = batching.make_batch(
        chosen,
        number=numbers,
        query_numbers=[numbers(one.row.query_id) for one in chosen],
        group_of=lambda document: groups.get(document, ""),
        in_batch=in_batch,
    )
    wanted = batch_masks(
        chosen,
        lambda document: texts[document],
        lambda query: texts.get(query, query),
        lambda document: groups.get(document, ""),
        in_batch,
    )
    for name, table in wanted.items():
        np.testing.assert_array_equal(getattr(made, name), np.array(table), err_msg=name)
    # What the losses rest on.
    size, width = made.columns.shape
    assert made.mask[np.arange(size), np.arange(size) * width].all()
    assert made.positives[np.arange(size), np.arange(size) * width].all()
    assert not (made.mask & made.positives).sum(1).max() > 1
    assert not (made.negative & ~made.present).any()
    assert not (made.explicit & ~made.negative).any()
    assert 0.0 <= made.masked_share <= 1.0


def test_a_batcher_compares_normalised_texts_and_gives_every_row_once() -> None:
    rows = [Row(f"q{i}", (f"d{i}",)) for i in range(7)]
    texts = {"d0": "Titan", "d1": " titan "}
    made = batcher(rows, texts, negatives=0, start=batching.stream(0, "finetune"))
    assert made.per_epoch == 2
    for epoch in (0, 1):
        seen = [query for step in range(2) for query in made.batch(epoch, step).queries]
        assert sorted(seen) == [row.query_id for row in rows]
    whole = batcher(rows, texts, batch_size=7).batch(0, 0)
    place = {query: index for index, query in enumerate(whole.queries)}
    assert not whole.mask[place["q0"], place["q1"]]
    assert not whole.mask[place["q1"], place["q0"]]


def test_queries_without_texts_are_told_apart_by_id_alone() -> None:
    made = batcher([Row("q", ("a",)), Row("Q", ("b",)), Row("q", ("c",))]).batch(0, 0)
    same = [[made.queries[i] == made.queries[j] for j in range(3)] for i in range(3)]
    assert not (made.query_mask & np.array(same)).any()
    assert made.query_mask.sum() == 3  # q, q: each against Q; Q against the first q


def test_what_was_asked_when_the_run_stopped_is_asked_when_it_goes_on_p63() -> None:
    rows = [Row(str(i), (f"p{i}",), tuple(f"n{i}.{j}" for j in range(9))) for i in range(10)]

    def log(first: int, last: int) -> list[tuple[list[str], list[str]]]:
        made = batcher(rows, batch_size=2, negatives=3)
        assert made.per_epoch == 5
        found = [made.batch(step // 5, step % 5) for step in range(first, last)]
        return [(one.queries, one.documents) for one in found]

    whole = log(0, 15)
    assert log(0, 7) + log(7, 15) == whole
    seen = [query for queries, _ in whole for query in queries]
    assert sorted(seen) == sorted(str(i) for i in range(10) for _ in range(3))
    assert seen[:10] != seen[10:20]


def test_rows_that_share_a_positive_or_a_query_come_into_different_batches() -> None:
    # 40 rows, two for every document and, shifted by one, two for every query text.
    rows = [Row(f"q{i}", (f"d{i // 2}",)) for i in range(40)]
    options = {"batch_size": 8, "separate": True, "query_text_of": lambda query: str((int(query[1:]) + 1) // 2)}
    made = batcher(rows, **options)
    for epoch in range(3):
        assert made.order(epoch).clashes == 0
        for step in range(made.per_epoch):
            one = made.batch(epoch, step)
            assert len(one.queries) == len(one.documents) == 8
            assert one.mask.all()
            assert one.query_mask.sum() == 56
    together = batcher(rows, **(options | {"separate": False}))
    assert not all(together.batch(0, step).mask.all() for step in range(5))


def test_a_repeated_row_draws_anew_and_stands_in_another_batch() -> None:
    rows = [Row("rare", ("a", "b", "c"), tuple(f"n{j}" for j in range(40)), source="rare")] + [
        Row(f"q{i}", (f"p{i}",), source="many") for i in range(11)
    ]
    made = batcher(rows, separate=True, mixing=Mixing(weights={"rare": 1.0, "many": 3.0}), query_text_of=str)
    order = made.order(0)
    assert (order.repeated, order.waiting, order.clashes) == (2, 2, 0)
    shown = [made.batch(0, step) for step in range(made.per_epoch)]
    rare = [one for one in shown if "rare" in one.queries]
    assert len(rare) == 3
    places = [one.queries.index("rare") for one in rare]
    found = [[one.documents[c] for c in one.columns[i]] for one, i in zip(rare, places, strict=True)]
    assert sorted(part[0] for part in found) == ["a", "b", "c"]
    assert len({tuple(part[1:]) for part in found}) == 3


def test_a_curriculum_runs_over_all_epochs() -> None:
    scores = {f"n{j}": float(j) for j in range(8)}
    rows = [Row(f"q{i}", (f"p{i}",), tuple(scores), scores=scores) for i in range(8)]
    made = batcher(rows, curriculum="linear", epochs=3)

    def hard(epoch: int, step: int) -> int:
        one = made.batch(epoch, step)
        shown = [one.documents[place] for row in one.columns for place in row[1:]]
        return sum(scores[document] > 3 for document in shown)

    # Four rows a batch with four of eight negatives each: from none of the harder half at step 0 to all at step 5.
    assert hard(0, 0) == 0
    assert 0 < hard(1, 0) < hard(2, 0) < hard(2, 1) == 16


def test_a_mix_without_mined_negatives_has_none_and_one_without_the_batch_only_those() -> None:
    rows = [Row(f"q{i}", (f"p{i}",), (f"n{i}",)) for i in range(4)]
    assert batcher(rows, mix=Mix(True, 0.0)).batch(0, 0).mask.shape == (4, 4)
    assert batcher(rows, mix=Mix(False, 1.0)).batch(0, 0).mask.sum(1).tolist() == [2, 2, 2, 2]
