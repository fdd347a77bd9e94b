"""--memory: how it is read, what it bounds, and that it changes no result.

Deliberate breaks that turn a test red: a GB of 2^30 bytes, the machine's memory where a container has less, block sizes
that ignore the allowed size, texts of a large corpus kept in memory.
"""

import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from conftest import write_collection

from embedtrain import collection, memory, mine
from embedtrain.collection import Collection
from embedtrain.config import MineOptions
from embedtrain.console import silent
from embedtrain.errors import UsageError


def test_sizes() -> None:
    assert memory.parse("4GB") == 4 * 10**9
    assert memory.parse("1.5 gib") == 3 * 2**29
    assert memory.parse("512M") == 512 * 10**6
    assert memory.parse("20000000") == 20_000_000


@pytest.mark.parametrize("text", ["", "much", "-4GB", "4GBs", "GB", "4 G B"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match=r"a size is needed, as 4GB or 512MB"):
        memory.parse(text)


def test_too_little() -> None:
    with pytest.raises(UsageError, match=r"--memory 1MB is too little"):
        memory.parse("1MB")


def test_a_container_has_what_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    assert memory.container([limit]) is None
    limit.write_text("max\n")
    assert memory.container([limit, tmp_path / "none"]) is None
    limit.write_text("50000000\n")
    assert memory.container([tmp_path / "none", limit]) == 50_000_000
    monkeypatch.setattr(memory, "container", lambda: 10**18)
    assert memory.machine() < 10**18
    monkeypatch.setattr(memory, "container", lambda: 50_000_000)
    assert memory.allowed("") == 12_500_000
    assert memory.allowed("1GB") == 10**9


@pytest.mark.parametrize("dimension", [1, 64, 384, 4096])
@pytest.mark.parametrize("size", [10**7, 10**8, 10**9, 10**11])
def test_blocks_fit(size: int, dimension: int) -> None:
    queries, documents = memory.search_block(size, dimension)
    assert documents == 16 or 16 * dimension * documents <= size / 8
    assert queries == 16 or 4 * queries * min(documents, 4096) <= size / 16
    assert 1 <= memory.chosen_together(size, 100) <= memory.CHOSEN
    assert 1 <= memory.searched_together(size, 100, dimension) <= memory.SEARCHED
    assert memory.chosen_together(size, 10**9) == 1


class Given:
    """An encoder that has the vectors already: those of the queries come first."""

    similarity = "cosine"
    precision = "float32"
    gpu = None
    source = SimpleNamespace(name="given")
    prompts = MappingProxyType({})

    def __init__(self, vectors: np.ndarray, queries: int) -> None:
        self._vectors = {"query": vectors[:queries], "document": vectors[queries:]}

    def encode(self, texts: Sequence[str], role: str, progress: object = None) -> np.ndarray:
        return self._vectors[role]


def test_less_memory_is_used_and_changes_nothing(tmp_path: Path) -> None:
    """600 queries x 100 candidates at 512 bytes are 31 MB; 10 MB of allowed memory choose 97 queries at a time."""
    documents = [{"_id": f"d{n}", "text": f"text {n}"} for n in range(3000)]
    queries = [{"_id": f"q{n}", "text": f"question {n}"} for n in range(600)]
    write_collection(tmp_path / "c", documents, queries, {"train": [(f"q{n}", f"d{n}", 1) for n in range(600)]})
    source = Collection(tmp_path / "c")
    encoder = Given(np.random.default_rng(0).normal(size=(3600, 32)).astype(np.float32), 600)
    options = MineOptions(retrievers=("dense",), top_k=100)
    chosen, _ = mine.read_queries(source, "train", None)
    peaks, found = [], []
    for allowed in (10**7, 10**9):
        choice = mine.Choice(source, chosen, options)
        blocks = mine.retrieve(source, chosen, options, [encoder], silent, allowed).blocks(choice, silent)
        tables = []
        tracemalloc.start()
        try:
            tables = [choice.table(block) for block in blocks]  # Arrow's memory is not Python's: it is not traced
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        found.append(pa.concat_tables(tables).combine_chunks())
    assert found[0] == found[1]
    assert peaks[0] < 10**7
    assert peaks[0] < peaks[1] / 2


def test_texts_of_a_large_corpus_lie_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"_id": f"d{n}", "title": f"Title {n}" if n % 3 else "", "text": "word " * 50} for n in range(10_000)]
    write_collection(tmp_path / "c", rows, [{"_id": "q", "text": "word"}], {"train": [("q", "d7", 1)]})
    whole = list(Collection(tmp_path / "c").corpus)
    monkeypatch.setattr(collection, "_IN_MEMORY", 1 << 20)
    before = pa.total_allocated_bytes()
    source = Collection(tmp_path / "c")
    assert pa.total_allocated_bytes() - before < 1 << 20  # 2.6 MB of texts
    assert list(source.corpus) == whole
    assert source.corpus[-1] == whole[-1]
    assert source.corpus.by_id("d4096") == whole[4096]
    assert source.corpus.title(4096) == "Title 4096"
    assert source.corpus.body(9_999) == "word " * 50
    with pytest.raises(IndexError):
        source.corpus[10_000]
