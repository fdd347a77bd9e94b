"""Topics of vectors.

Deliberate breaks that turn a test here red: the seed not handed on, numbers with gaps.
"""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from embedtrain.topics import topics


def blobs(count: int, each: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(count, 8)) * 10
    return np.repeat(centres, each, axis=0).astype(np.float32) + rng.normal(size=(count * each, 8)).astype(
        np.float32
    )


def test_what_lies_together_is_one_topic() -> None:
    found = topics(blobs(4, 30), 4, seed=0).reshape(4, 30)
    assert (found == found[:, :1]).all()
    assert sorted(found[:, 0].tolist()) == [0, 1, 2, 3]


def test_the_seed_decides_and_the_number_of_threads_does_not() -> None:
    vectors = np.random.default_rng(1).normal(size=(6_000, 16)).astype(np.float32)
    first = topics(vectors, 30, seed=0)
    with threadpool_limits(limits=2):
        assert (topics(vectors, 30, seed=0) == first).all()
    assert (topics(vectors, 30, seed=1) != first).any()


def test_fewer_different_vectors_than_topics() -> None:
    found = topics(np.repeat(np.eye(3, dtype=np.float32), 4, axis=0), 8, seed=0)
    assert len(set(found.tolist())) == found.max() + 1 == 3
    many = topics(np.repeat(np.eye(3, dtype=np.float32), 2_000, axis=0), 8, seed=0)
    assert sorted(set(many.tolist())) == list(range(many.max() + 1))
    with pytest.raises(ValueError, match="one topic at least"):
        topics(np.zeros((3, 2), dtype=np.float32), 0, seed=0)
