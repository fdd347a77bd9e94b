"""Who stands beside whom, and who may be a negative for whom.

Deliberate breaks that turn a test here red: masks by id instead of text, known positives forgotten, absent columns
counted, draws that depend on the batch a row is in.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedtrain import batching
from embedtrain.batching import Row


def groups(texts: dict[str, str]):
    """A `group` function over ids with these texts; an id without one is its own text."""
    numbers: dict[str, int] = {}
    return lambda document: numbers.setdefault(texts.get(document, document), len(numbers))


def batch(rows: list[Row], texts: dict[str, str] | None = None, negatives: int = 4) -> batching.Batch:
    return batching.make_batch(
        rows, range(len(rows)), negatives=negatives, start=(0,), epoch=0, group=groups(texts or {})
    )


def test_two_rows_with_one_positive_text_do_not_push_each_other_p01() -> None:
    made = batch([Row("q1", ("a",)), Row("q2", ("b",))], {"a": "Titan", "b": "Titan"})
    assert made.mask.tolist() == [[True, False], [False, True]]
    assert made.without_negatives == 2


def test_another_positive_of_the_query_is_no_negative_p02() -> None:
    made = batch([Row("A", ("B", "C")), Row("x", ("C",)), Row("y", ("D",))])
    first = made.documents[made.columns[0, 0]]
    assert first in ("B", "C")
    assert not made.mask[0, 1]
    assert made.mask[0].tolist() == [True, False, True]


def test_ragged_rows_train_as_they_are_p11() -> None:
    rows = [Row("q1", ("p1",), ("n1", "n2")), Row("q2", ("p2",)), Row("q3", ("p3",), ("n3",))]
    made = batch(rows)
    assert made.present.sum(1).tolist() == [3, 1, 2]
    own = [int(made.mask[row, row * 3 : row * 3 + 3].sum()) for row in range(3)]
    assert own == [3, 1, 2]
    # Nothing absent is in any softmax, and all six documents are in every one.
    assert made.mask.sum(1).tolist() == [6, 6, 6]


def test_a_document_in_two_columns_counts_once() -> None:
    rows = [Row("q1", ("p1",), ("n",)), Row("q2", ("p2",), ("n",)), Row("q3", ("p3",), ("copy",))]
    made = batch(rows, {"n": "same", "copy": "same"})
    assert len(made.documents) == 5
    assert made.mask.sum(1).tolist() == [4, 4, 4]


def test_what_the_teacher_took_back_is_masked_for_that_query_only() -> None:
    rows = [Row("q1", ("p1",), ("n1",), not_negatives=("n2",)), Row("q2", ("p2",), ("n2",))]
    made = batch(rows)
    assert made.mask.tolist() == [[True, True, True, False], [True, True, True, True]]


def test_teacher_scores_stand_beside_their_documents() -> None:
    rows = [Row("q1", ("p1",), ("n1", "n2"), teacher={"p1": 3.0, "n1": 1.0, "n2": -1.0})]
    made = batch(rows)
    assert made.teacher is not None
    assert made.teacher.tolist() == [[3.0, 1.0, -1.0]]
    mixed = [*rows, Row("q2", ("p2",))]
    assert batch(mixed).teacher is None


def test_draws_depend_on_seed_epoch_and_row_alone() -> None:
    rows = [Row(f"q{i}", (f"p{i}",), tuple(f"n{i}.{j}" for j in range(9))) for i in range(6)]

    def drawn(members: list[int], epoch: int) -> dict[str, list[str]]:
        made = batching.make_batch(rows, members, negatives=3, start=(1,), epoch=epoch, group=groups({}))
        return {q: [made.documents[c] for c in made.columns[i]] for i, q in enumerate(made.queries)}

    assert drawn([0, 1, 2], 0)["q1"] == drawn([5, 1], 0)["q1"]
    assert drawn([0, 1, 2], 0) != drawn([0, 1, 2], 1)


@pytest.mark.parametrize(("rows", "size", "sizes"), [(33, 32, [17, 16]), (64, 32, [32, 32]), (5, 8, [5])])
def test_no_batch_is_a_small_rest(rows: int, size: int, sizes: list[int]) -> None:
    order = batching.epoch_order(rows, size, (0,), 0)
    assert [len(part) for part in order] == sizes
    assert sorted(np.concatenate(order).tolist()) == list(range(rows))


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 12), min_size=1, max_size=3, unique=True),
            st.lists(st.integers(0, 12), max_size=4, unique=True),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_no_softmax_holds_a_positive_of_its_query_as_negative(drawn: list[tuple[list[int], list[int]]]) -> None:
    # Documents i and i+6 share a text.
    texts = {f"d{i}": f"text {i % 6}" for i in range(13)}
    rows = [
        Row(f"q{n}", tuple(f"d{i}" for i in positives), tuple(f"d{i}" for i in negatives))
        for n, (positives, negatives) in enumerate(drawn)
    ]
    made = batch(rows, texts)
    width = made.columns.shape[1]
    flat = made.columns.reshape(-1)
    for number, row in enumerate(rows):
        forbidden = {texts[document] for document in row.positives}
        seen = []
        for column in np.flatnonzero(made.mask[number]):
            assert made.present.reshape(-1)[column]
            text = texts[made.documents[flat[column]]]
            seen.append(text)
            assert column == number * width or text not in forbidden
        assert len(seen) == len(set(seen))
        # Nothing that may be a negative was left out.
        shown = {texts[made.documents[flat[c]]] for c in np.flatnonzero(made.present.reshape(-1))}
        assert set(seen) == (shown - forbidden) | {texts[made.documents[flat[number * width]]]}


def test_a_batcher_compares_normalised_texts_and_gives_every_row_once() -> None:
    rows = [Row(f"q{i}", (f"d{i}",)) for i in range(7)]
    texts = {"d0": "Titan", "d1": " titan ", **{f"d{i}": f"text {i}" for i in range(2, 7)}}
    made = batching.Batcher(
        rows, batch_size=4, negatives=0, start=batching.stream(0, "finetune"), text_of=texts.__getitem__
    )
    assert made.per_epoch == 2
    for epoch in (0, 1):
        seen = [query for step in range(2) for query in made.batch(epoch, step).queries]
        assert sorted(seen) == [row.query_id for row in rows]
    whole = batching.Batcher(rows, batch_size=7, negatives=0, start=(0,), text_of=texts.__getitem__).batch(0, 0)
    place = {query: index for index, query in enumerate(whole.queries)}
    assert not whole.mask[place["q0"], place["q1"]]
    assert not whole.mask[place["q1"], place["q0"]]


def test_two_stages_with_one_seed_do_not_draw_alike() -> None:
    orders = [
        np.concatenate(batching.epoch_order(50, 8, batching.stream(0, stage), 0)).tolist()
        for stage in ("pretrain", "finetune")
    ]
    assert orders[0] != orders[1]
