"""Vectors on disk: what was put in comes out, under its own identity only, broken shards are only misses.

Breaks that turn a test red: the second half of a key not compared, rows counted within a shard only, the order of
a list of rows lost, a shard of another size read, the model's name in the identity, small shards never joined, a
shard's vectors joined in another order than its keys, what is kept twice joined twice, the partial file of a living
writer removed, shards looked for again after a join, a write that a removal hits given up, or tried for ever.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain import cache
from embedtrain import store as store_module
from embedtrain.errors import EmbedtrainError
from embedtrain.store import DESCRIPTION, KEY_BYTES, VectorStore, open_shard, pack, text_key


def identity(name: str) -> dict[str, str]:
    return {"made by": name}


def keys_of(*texts: str) -> np.ndarray:
    return pack(text_key(text) for text in texts)


def look_up(store: VectorStore, *texts: str) -> np.ndarray:
    rows = store.find(keys_of(*texts))
    assert (rows >= 0).all()
    return store.vectors(rows, 4)[:]


def shards(store: VectorStore) -> list[Path]:
    return sorted(store.folder.glob("*.safetensors"))


def test_what_goes_in_comes_out_after_reopening() -> None:
    store = VectorStore(identity("round trip"))
    vectors = np.arange(12, dtype=np.float32).reshape(3, 4)
    store.add(keys_of("a", "b"), vectors[:2])
    store.add(keys_of("c"), vectors[2:])
    for opened in (store, VectorStore(identity("round trip"))):
        assert np.array_equal(look_up(opened, "c", "a", "b", "a"), vectors[[2, 0, 1, 0]])
        assert opened.find(keys_of("d", "a"))[0] == -1
    assert VectorStore(identity("another")).find(keys_of("a")).tolist() == [-1]


def test_the_first_vector_of_a_key_stays() -> None:
    store = VectorStore(identity("twice"))
    for value in (1.0, 2.0):
        store.add(keys_of("a"), np.full((1, 4), value, dtype=np.float32))
    assert look_up(VectorStore(identity("twice")), "a")[0, 0] == 1.0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=6), max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 10)), max_size=12),
)
def test_find_is_a_dictionary(parts: list[list[tuple[int, int]]], asked: list[tuple[int, int]]) -> None:
    """Against a dict; first halves of keys collide on purpose."""
    store = VectorStore(identity("dictionary"))
    store._open()
    known: dict[tuple[int, int], int] = {}
    for part in parts:
        store._loose.append((np.array(part, dtype=np.uint64).reshape(-1, 2), store._rows))
        for key in part:
            known.setdefault(key, store._rows)
            store._rows += 1
        found = store.find(np.array(asked, dtype=np.uint64).reshape(-1, 2))
        assert found.tolist() == [known.get(key, -1) for key in asked]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_vectors_are_indexed_as_arrays_are(sizes: list[int], data: st.DataObject) -> None:
    whole = np.arange(sum(sizes) * 3, dtype=np.float32).reshape(-1, 3)
    blocks = np.split(whole, np.cumsum(sizes)[:-1])
    rows = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=8)), dtype=np.int64)
    vectors, plain = store_module.Vectors(blocks, rows, 3), whole[rows]
    assert (vectors.shape, len(vectors), vectors.dtype) == (plain.shape, len(plain), plain.dtype)
    assert np.array_equal(vectors[:], plain)
    assert np.array_equal(np.asarray(vectors), plain)
    start, stop = data.draw(st.tuples(st.integers(-3, 9), st.integers(-3, 9)))
    assert np.array_equal(vectors[start:stop], plain[start:stop])
    if len(plain):
        some = data.draw(st.lists(st.integers(-len(plain), len(plain) - 1), max_size=6))
        picked = np.array(some, dtype=np.int64)
        assert np.array_equal(vectors[picked], plain[picked])
        assert np.array_equal(vectors[0], plain[0])
    with pytest.raises(IndexError):
        vectors[np.array([len(plain)])]


def test_what_was_read_is_the_reader_s_own() -> None:
    block = np.zeros((4, 2), dtype=np.float32)
    vectors = store_module.Vectors([block], np.arange(4), 2)
    vectors[1:3][:] = 7.0
    assert not block.any()


@pytest.mark.parametrize("damage", ["cut", "header", "longer", "empty", "keys", "numbers"])
def test_a_broken_shard_is_a_miss_and_goes(damage: str) -> None:
    store = VectorStore(identity(f"broken {damage}"))
    store.add(keys_of("a"), np.ones((1, 4), dtype=np.float32))
    store.add(keys_of("b"), np.ones((1, 4), dtype=np.float32))
    shard = shards(store)[0]
    whole = shard.read_bytes()
    broken = {
        "cut": whole[:-4],
        "header": b"\xff" * 8 + whole[8:],
        "longer": whole + b"\0\0\0\0",
        "empty": b"",
        "keys": whole.replace(b'"keys"', b'"kejs"'),
        "numbers": whole.replace(b'"F32"', b'"I32"'),
    }
    shard.write_bytes(broken[damage])
    again = VectorStore(identity(f"broken {damage}"))
    assert again.find(keys_of("a", "b")).tolist() == [-1, 0]
    assert not shard.exists()
    again.add(keys_of("a"), np.zeros((1, 4), dtype=np.float32))
    assert look_up(again, "a", "b")[:, 0].tolist() == [0.0, 1.0]


def test_two_writers_at_once_keep_both() -> None:
    one, other = VectorStore(identity("two")), VectorStore(identity("two"))
    one.add(keys_of("a", "c"), np.full((2, 4), 1, dtype=np.float32))
    other.add(keys_of("b", "c"), np.full((2, 4), 1, dtype=np.float32))
    assert look_up(VectorStore(identity("two")), "a", "b", "c").shape == (3, 4)


def test_what_a_dead_writer_left_goes_and_that_of_a_living_one_stays() -> None:
    store = VectorStore(identity("partial"))
    store.add(keys_of("a"), np.ones((1, 4), dtype=np.float32))
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    dead = store.folder / f".000001-1-00000000.safetensors.{int(gone.stdout)}.partial"
    living = store.folder / f".000001-1-00000000.safetensors.{os.getppid()}.partial"
    for path in (dead, living):
        path.write_bytes(b"half")
    VectorStore(identity("partial"))
    assert not dead.exists()
    assert living.exists()


def test_many_small_shards_are_joined_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MANY", 5)
    monkeypatch.setattr(store_module, "SMALL", 8 * 16)  # bytes: 8 vectors of 4
    monkeypatch.setattr(store_module, "LARGE", 16 * 16)
    store = VectorStore(identity("many"))
    early = None
    for number in range(40):
        # Every third text comes twice: the later one is left out when they are joined.
        texts = [f"text {number}", f"text {number - number % 3}"]
        store.add(keys_of(*texts), np.full((2, 4), number, dtype=np.float32))
        if number == 3:
            early = store.vectors(store.find(keys_of("text 0", "text 3")), 4)
    files = shards(store)
    assert len(files) < 12
    assert sum(len(shard.keys) for path in files if (shard := open_shard(path))) < 50
    texts = [f"text {number}" for number in range(40)]
    for opened in (store, VectorStore(identity("many"))):
        assert look_up(opened, *texts)[:, 0].tolist() == list(range(40))
        assert (np.diff(opened.find(keys_of(*texts))) > 0).all()
    # What was handed out before is read on, though its files are gone.
    assert early is not None
    assert early[:][:, 0].tolist() == [0.0, 3.0]


def clear(store: VectorStore) -> None:
    assert cache.clear([entry for entry in cache.contents() if entry.id == store.folder.name]).stays == []
    assert not store.folder.exists()


def test_what_is_cleared_during_a_run_stays_readable_there_and_the_next_write_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module, "MANY", 3)
    monkeypatch.setattr(store_module, "SMALL", 2 * 16)  # bytes: what was joined is not joined again
    store = VectorStore(identity("cleared"), {"model": "a"})
    texts = [f"text {number}" for number in range(12)]
    for number, text in enumerate(texts):
        store.add(keys_of(text), np.full((1, 4), number, dtype=np.float32))
        if number in (1, 6, 10):
            clear(store)
        assert look_up(store, *texts[: number + 1])[:, 0].tolist() == list(range(number + 1))
    assert (VectorStore(identity("cleared")).find(keys_of(*texts)) >= 0).tolist()[-1]
    assert [entry.model for entry in cache.contents() if entry.id == store.folder.name] == ["a"]


def test_a_write_that_a_removal_hits_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = VectorStore(identity("hit"))
    left = [2]

    @contextlib.contextmanager
    def hit(target: Path) -> Iterator[Path]:
        with atomic_file(target) as temporary:
            if left[0]:
                left[0] -= 1
                shutil.rmtree(store.folder)
            yield temporary

    atomic_file = store_module.atomic.atomic_file
    monkeypatch.setattr(store_module.atomic, "atomic_file", hit)
    store.add(keys_of("a"), np.ones((1, 4), dtype=np.float32))
    assert left == [0]
    assert look_up(VectorStore(identity("hit")), "a").tolist() == [[1, 1, 1, 1]]
    left[0] = 1_000
    with pytest.raises(EmbedtrainError, match="removed as fast as it is written"):
        store.add(keys_of("b"), np.ones((1, 4), dtype=np.float32))


def test_the_name_of_the_model_is_written_down_and_makes_no_difference() -> None:
    one = VectorStore(identity("named"), {"model": "a"})
    one.add(keys_of("a"), np.ones((1, 4), dtype=np.float32))
    assert VectorStore(identity("named"), {"model": "b"}).find(keys_of("a")).tolist() == [0]
    about = json.loads((one.folder / DESCRIPTION).read_text("utf-8"))
    assert (about["model"], about["dimension"]) == ("a", 4)
    assert about["identity"] == {"form": store_module.FORM, "made by": "named"}


def test_adding_nothing_writes_nothing() -> None:
    store = VectorStore(identity("nothing"))
    store.add(keys_of(), np.empty((0, 4), dtype=np.float32))
    assert not store.folder.exists()
    assert store.vectors(store.find(keys_of()), 7).shape == (0, 7)


def test_other_tools_read_a_shard() -> None:
    from safetensors.numpy import load_file

    store = VectorStore(identity("plain"))
    store.add(keys_of("a", "b"), np.arange(8).reshape(2, 4))
    found = load_file(shards(store)[0])
    assert found["keys"][1].tobytes() == text_key("b")
    assert found["vectors"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    shard = open_shard(shards(store)[0])
    assert shard is not None
    assert np.array_equal(shard.vectors, found["vectors"])


@given(st.text(), st.text())
def test_keys_differ_where_texts_do(a: str, b: str) -> None:
    assert len(text_key(a)) == KEY_BYTES
    assert (text_key(a) == text_key(b)) == (a == b)


def test_lone_surrogates_have_a_key() -> None:
    assert text_key("\ud800") != text_key("?")


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ">f4"])
def test_other_precisions_and_layouts_are_stored_as_float32_p25(dtype: type | str) -> None:
    store = VectorStore(identity(f"dtype {dtype}"))
    values = np.asfortranarray(np.arange(16).reshape(2, 8)).astype(dtype)[:, ::2]
    store.add(keys_of("a", "b"), values)
    found = look_up(VectorStore(identity(f"dtype {dtype}")), "a", "b")
    assert found.dtype == np.float32
    assert found.tolist() == [[0, 2, 4, 6], [8, 10, 12, 14]]


def test_a_million_vectors_take_20_bytes_each_and_no_more() -> None:
    store = VectorStore(identity("memory"))
    store._loose.append((np.random.default_rng(0).integers(0, 2**63, (1 << 16, 2), dtype=np.uint64), 0))
    store.find(keys_of("a"))
    assert sum(array.nbytes for array in (store._high, store._low, store._row)) == 20 << 16
