"""Which positives and negatives of a row are drawn.

Deliberate breaks that turn a test here red: draws that depend on the batch a row is in, always the first positive,
a walk that does not move on by one (two positives, two shown: the first would stay first), an easy half drawn at
the end of a curriculum, progress ignored, a negative without a score taken for a hard one.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedtrain.drawing import Chosen, Drawing, Mix, Row, difficulty, parse_mix, stream
from embedtrain.errors import EmbedtrainError, UsageError


def drawing(rows: list[Row], negatives: int = 3, **options) -> Drawing:
    return Drawing(rows, start=stream(1, "finetune"), negatives=negatives, **options)


def choose(
    made: Drawing, members: list[int], epoch: int = 0, turn: int = 0, progress: float = 0.0
) -> list[Chosen]:
    return made.choose(epoch, np.array(members), np.full(len(members), turn), progress)


ROWS = [Row(f"q{i}", (f"p{i}",), tuple(f"n{i}.{j}" for j in range(9))) for i in range(6)]


def test_draws_depend_on_seed_epoch_row_and_turn_alone() -> None:
    made = drawing(ROWS)
    assert choose(made, [0, 1, 2])[1] == choose(made, [5, 1])[1]
    assert choose(made, [0, 1])[1] == choose(drawing(ROWS[:2]), [1])[0]
    first = choose(made, [1])
    assert first != choose(made, [1], epoch=1)
    assert first != choose(made, [1], turn=1)
    other = Drawing(ROWS, start=stream(1, "pretrain"), negatives=3)
    assert choose(made, [0, 1, 2]) != choose(other, [0, 1, 2])


def test_negatives_are_distinct_and_in_the_order_of_the_row() -> None:
    for epoch in range(5):
        for one in choose(drawing(ROWS), list(range(6)), epoch):
            assert len(one.negatives) == 3
            assert list(one.negatives) == sorted(one.negatives)


def test_every_negative_comes_up() -> None:
    made = drawing(ROWS)
    seen = Counter(document for epoch in range(300) for document in choose(made, [0], epoch)[0].negatives)
    # 300 draws of 3 out of 9: 100 of each, standard deviation 8.2.
    assert len(seen) == 9
    assert all(60 < count < 140 for count in seen.values())


@given(st.integers(1, 7), st.integers(1, 5), st.integers(0, 20))
def test_in_as_many_epochs_as_it_has_positives_a_row_trains_on_each_once_p10(
    count: int, shown: int, seed: int
) -> None:
    positives = tuple(f"p{i}" for i in range(count))
    made = Drawing([Row("x", ("y",)), Row("q", positives)], start=(seed, 0), negatives=0, positives=shown)
    epochs = [choose(made, [1], epoch)[0] for epoch in range(count)]
    assert sorted(one.positive for one in epochs) == sorted(positives)
    for one in epochs:
        both = [one.positive, *one.further]
        assert len(set(both)) == len(both) == min(count, shown)
    # No later than needed: shown at a time, so ceil(count / shown) epochs show them all.
    early = epochs[: -(-count // shown)]
    assert {document for one in early for document in (one.positive, *one.further)} == set(positives)


def test_rows_begin_at_different_positives() -> None:
    rows = [Row(f"q{i}", ("a", "b", "c", "d")) for i in range(400)]
    seen = Counter(one.positive for one in choose(drawing(rows), list(range(400))))
    # 100 of each, standard deviation 8.7.
    assert all(60 < seen[document] < 140 for document in "abcd")


HARD = Row("q", ("p",), tuple("abcdefgh"), scores=dict(zip("abcdefgh", (8, 7, 6, 5, 4, 3, 2, 1), strict=True)))


@pytest.mark.parametrize("curriculum", ["linear", "stepped"])
def test_a_curriculum_goes_from_the_easy_half_to_the_hard_half(curriculum: str) -> None:
    made = drawing([HARD], negatives=4, curriculum=curriculum)
    assert choose(made, [0], progress=0.0)[0].negatives == tuple("efgh")
    assert choose(made, [0], progress=1.0)[0].negatives == tuple("abcd")
    middle = [choose(made, [0], epoch, progress=0.5)[0].negatives for epoch in range(20)]
    assert all(len(set(part) & set("abcd")) == 2 for part in middle)
    assert len(set(middle)) > 1


def test_the_share_of_hard_negatives_is_right_on_average() -> None:
    made = drawing([HARD], negatives=2, curriculum="linear")
    hard = [len(set(choose(made, [0], epoch, progress=0.3)[0].negatives) & set("abcd")) for epoch in range(500)]
    assert np.mean(hard) == pytest.approx(0.6, abs=0.1)


def test_difficulty_by_progress() -> None:
    assert [difficulty("linear", p) for p in (-1.0, 0.0, 0.25, 1.0, 2.0)] == [0.0, 0.0, 0.25, 1.0, 1.0]
    assert [difficulty("stepped", p) for p in (0.0, 0.33, 0.34, 0.66, 0.67, 1.0)] == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]


def test_one_half_makes_up_for_the_other_and_unknown_scores_are_easy() -> None:
    made = drawing([HARD], negatives=6, curriculum="linear")
    assert set(choose(made, [0], progress=0.0)[0].negatives) >= set("efgh")
    assert len(choose(made, [0], progress=0.0)[0].negatives) == 6
    row = Row("q", ("p",), ("a", "b", "c", "d"), scores={"b": -5.0, "d": -6.0})
    one = drawing([row], negatives=2, curriculum="linear")
    assert choose(one, [0], progress=1.0)[0].negatives == ("b", "d")
    assert choose(one, [0], progress=0.0)[0].negatives == ("a", "c")


def test_a_curriculum_without_scores_is_refused() -> None:
    with pytest.raises(EmbedtrainError, match="'q0' has none"):
        drawing(ROWS, curriculum="linear")
    with pytest.raises(UsageError, match="none, linear, stepped"):
        drawing(ROWS, curriculum="steep")
    drawing(ROWS, negatives=9, curriculum="linear")  # there is nothing to choose


def test_a_mix_gives_a_share_of_the_rows_their_negatives() -> None:
    rows = [Row(f"q{i}", (f"p{i}",), ("n",)) for i in range(400)]
    made = drawing(rows, mined=0.75)
    counts = [sum(len(one.negatives) for one in choose(made, list(range(400)), epoch)) for epoch in (0, 1)]
    assert all(260 < count < 340 for count in counts)  # 300, standard deviation 8.7
    assert choose(made, list(range(400)), 0) != choose(made, list(range(400)), 1)
    assert not any(one.negatives for one in choose(drawing(rows, mined=0.0), list(range(400))))


@pytest.mark.parametrize(
    ("text", "mix"),
    [
        ("in-batch,mined", Mix(True, 1.0)),
        ("mined", Mix(False, 1.0)),
        (" in-batch", Mix(True, 0.0)),
        ("mined:3, in-batch:1", Mix(True, 0.75)),
    ],
)
def test_mixes_are_read(text: str, mix: Mix) -> None:
    assert parse_mix(text) == mix


@pytest.mark.parametrize(
    "text", ["", "random", "mined,mined", "mined:0,in-batch:1", "mined:x,in-batch:1", "mined:2"]
)
def test_other_mixes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--mix"):
        parse_mix(text)


def test_rows_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="no positive"):
        Row("q", ())
    with pytest.raises(ValueError, match="explicit"):
        Row("q", ("p",), ("n",), explicit=("m",))
    with pytest.raises(ValueError, match="cannot be drawn"):
        drawing(ROWS, positives=0)
