"""Vectors on disk: what was put in comes out, under its own identity only, broken shards are only misses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedtrain.store import KEY_BYTES, VectorStore, text_key


def test_what_goes_in_comes_out_after_reopening() -> None:
    store = VectorStore("round trip")
    vectors = np.arange(12, dtype=np.float32).reshape(3, 4)
    keys = [text_key(text) for text in ("a", "b", "c")]
    store.add(keys[:2], vectors[:2])
    store.add(keys[2:], vectors[2:])
    again = VectorStore("round trip")
    for key, vector in zip(keys, vectors, strict=True):
        found = again.get(key)
        assert found is not None
        assert np.array_equal(found, vector)
    assert VectorStore("another identity").get(keys[0]) is None


def test_a_broken_shard_is_a_miss_and_goes() -> None:
    store = VectorStore("broken")
    key = text_key("a")
    store.add([key], np.ones((1, 4), dtype=np.float32))
    shard = next(store.folder.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:20])
    assert VectorStore("broken").get(key) is None
    assert not shard.exists()


def test_adding_nothing_writes_nothing() -> None:
    store = VectorStore("nothing")
    store.add([], np.empty((0, 4), dtype=np.float32))
    assert not store.folder.exists()


@given(st.text(), st.text())
def test_keys_differ_where_texts_do(a: str, b: str) -> None:
    assert len(text_key(a)) == KEY_BYTES
    assert (text_key(a) == text_key(b)) == (a == b)


def test_lone_surrogates_have_a_key() -> None:
    assert text_key("\ud800") != text_key("?")


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_other_precisions_are_stored_as_float32(dtype: type) -> None:
    store = VectorStore(f"dtype {dtype.__name__}")
    store.add([text_key("a")], np.full((1, 4), 0.5, dtype=dtype))
    found = VectorStore(f"dtype {dtype.__name__}").get(text_key("a"))
    assert found is not None
    assert found.dtype == np.float32
