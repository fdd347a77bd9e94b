"""The encoder gives what plain sentence-transformers gives, whatever stands beside a text, prompts applied once.

Breaks that turn a test red: chunks by length, padded to the longest; the filling of a chunk kept as vectors; chunks
not filled; role, prompt, length, precision or weights left out of the identity; vectors written in the order in which
they were computed; texts copied whole; duplicates encoded twice; what was done before an interruption not written;
padding beyond the length limit; bfloat16 through the pooling; dropout left on; a prompt applied twice; chunks one after
another on two cores.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save

from embedtrain import cache, inference, precision, store
from embedtrain.encoder import Encoder
from embedtrain.errors import EmbedtrainError
from embedtrain.models import MINILM, ModelSource, find_model
from embedtrain.store import Vectors, VectorStore

TEXTS = [
    "a",
    "Zero-dimensional biomaterials show inductive properties.",
    "word " * 400,
    "a",
    "Cells of the immune system " * 20,
]


@pytest.fixture(scope="module")
def minilm() -> Encoder:
    torch.set_num_threads(1)
    return Encoder.load(find_model(MINILM))


# Of 2 to more than 256 tokens, on both sides of 192, where attention on a CPU takes larger blocks.
MANY = [
    " ".join(f"cell {n}" for n in range(k)) for k in (0, 1, 3, 5, 30, 49, 63, 70, 90, 93, 94, 95, 96, 120, 200)
]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMBEDTRAIN_CACHE", str(tmp_path / "own"))
    return tmp_path / "own"


def test_vectors_are_those_of_sentence_transformers(minilm: Encoder) -> None:
    vectors = minilm.encode(TEXTS, "document", stored=False)
    assert isinstance(vectors, Vectors)
    ours = vectors[:]
    theirs = minilm.model.encode_document(TEXTS)
    assert ours.dtype == np.float32
    assert ours.shape == (5, 384)
    assert np.abs(ours - theirs).max() < 1e-6
    assert np.array_equal(ours[0], ours[3])


def test_neighbours_change_not_a_bit_p51(minilm: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = np.concatenate([minilm.encode([text], "query", stored=False)[:] for text in MANY])
    assert np.isfinite(alone).all()
    plain = minilm.model.encode_query(MANY)
    assert np.abs(alone - plain).max() < 1e-6
    for budget, texts in ((300, MANY), (2_048, MANY[::-1]), (100_000, MANY)):
        monkeypatch.setattr(inference, "CPU_TOKENS", budget)
        together = minilm.encode(texts, "query", stored=False)[:]
        assert np.array_equal(together if texts is MANY else together[::-1], alone)


def test_chunks_that_are_filled_up_change_not_a_bit(minilm: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = minilm.encode(MANY[3:9], "query", stored=False)[:]
    monkeypatch.setattr(inference, "CPU_TOKENS", 512)
    monkeypatch.setattr(inference, "sizes_matter", lambda device: True)
    sizes: dict[int, set[int]] = {}
    forward = minilm.forward_features

    def watch(features: dict[str, Any], role: Any) -> torch.Tensor:
        rows, width = features["input_ids"].shape
        sizes.setdefault(width, set()).add(rows)
        return forward(features, role)

    monkeypatch.setattr(minilm, "forward_features", watch)
    assert np.array_equal(minilm.encode(MANY[3:9], "query", stored=False)[:], alone)
    assert sizes
    assert all(found == {max(1, 512 // width)} for width, found in sizes.items())


def test_chunks_side_by_side_change_not_a_bit(minilm: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two threads two chunks are worked on at a time: each waits here for another."""
    monkeypatch.setattr(inference, "CPU_TOKENS", 256)
    alone = minilm.encode(MANY[1:9], "query", stored=False)[:]
    both = threading.Barrier(2, timeout=60)
    forward = minilm.forward_features
    threads: list[int] = []

    def watch(features: dict[str, Any], role: Any) -> torch.Tensor:
        if len(threads) < 2:
            threads.append(threading.get_ident())
            both.wait()
        return forward(features, role)

    monkeypatch.setattr(minilm, "forward_features", watch)
    torch.set_num_threads(2)
    try:
        assert np.array_equal(minilm.encode(MANY[1:9], "query", stored=False)[:], alone)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert len(set(threads)) == 2


def test_what_the_store_had_changes_not_a_bit(
    minilm: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name, before in (("empty", []), ("some", MANY[2:14:3]), ("other neighbours", MANY[:2] + TEXTS)):
        monkeypatch.setenv("EMBEDTRAIN_CACHE", str(tmp_path / name))
        minilm.encode(before, "document")
        found.append(minilm.encode(MANY, "document")[:].tobytes())
    assert found[0] == found[1] == found[2]


class Lazy(Sequence[str]):
    """Texts that are made when they are read, by position only."""

    def __init__(self, texts: list[str]) -> None:
        self.texts, self.reads = texts, [0] * len(texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: Any) -> Any:
        assert isinstance(index, int)
        self.reads[index] += 1
        return self.texts[index]


def test_texts_are_read_a_window_at_a_time_and_lie_in_their_order(
    minilm: Encoder, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "CPU_WINDOW", 4)
    windows: list[int] = []
    lengths = minilm.token_lengths
    monkeypatch.setattr(
        minilm, "token_lengths", lambda texts, role: windows.append(len(texts)) or lengths(texts, role)
    )
    texts = Lazy([*MANY[:6], MANY[2], *MANY[6:9]])
    vectors = minilm.encode(texts, "document")
    assert windows == [4, 4, 1]
    # Once for its key and once to be encoded; the seventh is known by then.
    assert texts.reads == [2] * 6 + [1] + [2] * 3
    kept = VectorStore(minilm.identity("document"))
    rows = kept.find(store.pack(store.text_key(text) for text in MANY[:9]))
    assert rows.tolist() == list(range(9))
    assert len(list(kept.folder.glob("*.safetensors"))) == 3
    assert np.array_equal(vectors[2], vectors[6])
    assert np.array_equal(minilm.encode(list(texts.texts), "document", stored=False)[:], vectors[:])


def test_what_is_done_is_kept_when_it_is_interrupted(
    minilm: Encoder, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def progress(what: str, done: int, total: int, note: str = "") -> None:
        calls.append(done)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(inference, "CPU_TOKENS", 200)
    with pytest.raises(KeyboardInterrupt):
        minilm.encode(MANY[:9], "document", progress)
    kept = VectorStore(minilm.identity("document"))
    assert (kept.find(store.pack(map(store.text_key, MANY[:9]))) >= 0).sum() == calls[-1] > 0
    notes: list[str] = []
    minilm.encode(MANY[:9], "document", lambda what, done, total, note="": notes.append(f"{done}/{total} {note}"))
    assert notes[0] == f"0/{9 - calls[-1]} ({calls[-1]} more were in the cache)"


def test_clearing_the_cache_meanwhile_changes_nothing(
    minilm: Encoder, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "CPU_WINDOW", 3)
    minilm.encode(MANY[:2], "document")
    cleared: list[int] = []

    def clear(what: str, done: int, total: int, note: str = "") -> None:
        cleared.append(sum(entry.vectors for entry in cache.contents()))
        cache.clear(cache.contents())

    found = minilm.encode(MANY, "document", clear)
    assert cleared[0] == 2
    assert sum(cleared) > 6
    assert np.array_equal(found[:], minilm.encode(MANY, "document", stored=False)[:])


SCRIPT = """
import sys
import torch
torch.set_num_threads(1)
from embedtrain import inference
from embedtrain.encoder import Encoder
from embedtrain.models import MINILM, find_model
inference.CPU_WINDOW = 8
texts = [" ".join(f"word {k} {n}" for n in range(3 + 17 * k % 40)) for k in range(80)]
progress = lambda what, done, total, note="": print(done, total, flush=True)
vectors = Encoder.load(find_model(MINILM)).encode(texts, "document", progress)
open(sys.argv[1], "wb").write(vectors[:].tobytes())
"""


def test_killed_while_encoding_it_goes_on_to_the_same_bytes_p64(tmp_path: Path) -> None:
    def start(cache: str, out: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path / out)],
            env={**os.environ, "EMBEDTRAIN_CACHE": str(tmp_path / cache)},
            stdout=subprocess.PIPE,
            text=True,
        )

    killed = start("killed", "a")
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "killed").rglob("*.safetensors"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "a").exists()
    again, _ = start("killed", "a").communicate()
    whole, _ = start("whole", "b").communicate()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert len((tmp_path / "b").read_bytes()) == 80 * 384 * 4
    assert whole.splitlines()[0] == "0 80"
    # At least the two shards that were seen were not computed again.
    assert int(again.splitlines()[0].split()[1]) <= 64


def test_prompts_are_applied_exactly_once_p55(minilm: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    tokenizer = minilm.model.tokenizer
    original = type(tokenizer).__call__

    def spy(self, text, *args, **kwargs):
        if kwargs.get("truncation") not in (False, None):
            # The prompt alone is tokenised too, for its length.
            seen.extend(one for one in text if one not in ("query: ", "passage: "))
        return original(self, text, *args, **kwargs)

    monkeypatch.setattr(type(tokenizer), "__call__", spy)
    fresh = Encoder(minilm.model, minilm.source)
    prompts = dict(minilm.model.prompts)
    try:
        fresh.set_prompts("query: ", "passage: ")
        queries = fresh.encode(["a"], "query", stored=False)[:]
        fresh.encode(["b"], "document", stored=False)
        # A chunk may be filled up with copies of its first text.
        assert list(dict.fromkeys(seen)) == ["query: a", "passage: b"]
        assert np.abs(queries - minilm.model.encode_query(["a"])).max() < 1e-6
        assert np.abs(queries - minilm.model.encode(["a"], prompt="")).max() > 1e-3
    finally:
        minilm.model.prompts = prompts


def test_a_second_call_reads_the_store_and_another_prompt_does_not(minilm: Encoder) -> None:
    texts = ["stored text one", "stored text two"]
    first = minilm.encode(texts, "document")[:]
    calls: list[int] = []
    watched = Encoder(minilm.model, minilm.source)
    padded = watched.padded

    def count(chunk, role, max_length=None, *, width=0):
        calls.append(len(set(chunk)))  # it may be filled up with copies
        return padded(chunk, role, max_length, width=width)

    watched.padded = count  # type: ignore[method-assign]
    assert np.array_equal(watched.encode(texts, "document")[:], first)
    assert calls == []
    watched.encode([*texts, "a new text"], "document")
    assert calls == [1]
    prompts = dict(minilm.model.prompts)
    try:
        watched.set_prompts(None, "passage: ")
        assert not np.allclose(watched.encode(texts, "document")[:], first, atol=1e-3)
    finally:
        minilm.model.prompts = prompts


def copied(source: Path, folder: Path) -> Path:
    """A model folder whose files can be replaced one by one."""
    for path in source.rglob("*"):
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            target.symlink_to(path)
    return folder


def replace(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


def test_two_local_models_never_share_a_vector_p66(own_cache: Path, tmp_path: Path) -> None:
    """Of one name: the same weights with other pooling, other weights, and other weights under the same path."""
    plain = find_model(MINILM).path
    folders = [copied(plain, tmp_path / place / "model") for place in ("a", "b", "c")]
    pooling = folders[1] / "1_Pooling" / "config.json"
    text = pooling.read_text("utf-8").replace(
        '"pooling_mode_mean_tokens": true', '"pooling_mode_mean_tokens": false'
    )
    replace(pooling, text.replace('"pooling_mode_cls_token": false', '"pooling_mode_cls_token": true').encode())
    tensors = load_file(folders[2] / "model.safetensors")
    name = next(name for name in tensors if name.endswith("embeddings.LayerNorm.weight"))
    content = save({**tensors, name: tensors[name] * 1.5})
    replace(folders[2] / "model.safetensors", content)

    def vector(folder: Path) -> tuple[Encoder, np.ndarray]:
        encoder = Encoder.load(find_model(str(folder)))
        return encoder, encoder.encode(["one text"], "document")[0]

    found = [vector(folder) for folder in folders]
    assert len({encoder.source.name for encoder, _ in found}) == 1
    replace(folders[0] / "model.safetensors", content)
    found.append(vector(folders[0]))
    for number, (_, one) in enumerate(found):
        for _, other in found[:number]:
            same = np.array_equal(one, other)
            assert same == (one is found[3][1] and other is found[2][1])
    # What was overwritten is the third model to the byte: these two do share.
    assert len(list((own_cache / "vectors").iterdir())) == 3


def test_whatever_changes_a_vector_changes_its_identity(minilm: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [minilm.identity("document"), minilm.identity("query")]
    other = Encoder(minilm.model, ModelSource(minilm.source.path, minilm.source.name, "another hash"))
    seen.append(other.identity("document"))
    seen.append(Encoder(minilm.model, minilm.source, "bfloat16").identity("document"))
    monkeypatch.setitem(minilm.prompts, "document", "passage: ")
    seen.append(minilm.identity("document"))
    monkeypatch.setattr(minilm.model, "max_seq_length", 64)
    seen.append(minilm.identity("document"))
    monkeypatch.setattr(torch, "__version__", "0")
    seen.append(minilm.identity("document"))
    assert len({str(sorted(map(str, one.items()))) for one in seen}) == len(seen)
    assert not any(minilm.source.name in str(one) for one in seen)


def test_another_length_never_meets_an_old_vector(minilm: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    text = [MANY[-1]]
    long = minilm.encode(text, "document")[:]
    monkeypatch.setattr(minilm.model, "max_seq_length", 60)  # not a multiple of 8: padding must stop there
    widths: list[int] = []
    padded = minilm.padded

    def watch(texts: Sequence[str], role: Any, max_length: int | None = None, *, width: int = 0) -> dict[str, Any]:
        widths.append(width)
        return padded(texts, role, max_length, width=width)

    monkeypatch.setattr(minilm, "padded", watch)
    short = minilm.encode(text, "document")[:]
    assert widths == [60]
    assert np.abs(short - minilm.model.encode_document(text)).max() < 1e-6
    assert not np.allclose(long, short, atol=1e-3)


def test_bfloat16_is_near_and_kept_apart(minilm: Encoder) -> None:
    encoder = Encoder.load(find_model(MINILM), wanted="bfloat16")
    assert encoder.precision == "bfloat16"
    exact, rough = (model.encode(MANY, "document")[:] for model in (minilm, encoder))
    assert rough.dtype == np.float32
    assert not np.array_equal(exact, rough)
    cosines = (exact * rough).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(rough, axis=1)
    assert cosines.min() > 0.999
    # Pooling and division by the length are done in float32.
    assert np.abs(np.linalg.norm(rough, axis=1) - 1).max() < 1e-6
    assert np.array_equal(rough, encoder.encode(MANY, "document", stored=False)[:])


def test_auto_is_float32_where_the_cpu_has_no_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "bf16_flags", lambda cpuinfo: [])
    assert Encoder.load(find_model(MINILM), wanted="auto").precision == "float32"
    monkeypatch.setattr(precision, "bf16_flags", lambda cpuinfo: ["amx_bf16"])
    encoder = Encoder.load(find_model(MINILM), wanted="auto")
    assert encoder.precision == "bfloat16"
    assert next(encoder.model[0].parameters()).dtype == torch.bfloat16


def test_lengths_are_counted_before_the_cut_p54(minilm: Encoder) -> None:
    lengths = minilm.token_lengths(TEXTS, "document")
    assert lengths.tolist()[:3] == [3, lengths[1], 402]
    assert int((lengths > minilm.max_length).sum()) == 1


def test_encoding_leaves_training_mode_as_it_was_p57(minilm: Encoder) -> None:
    minilm.model.train()
    try:
        first = minilm.encode(["a"], "query", stored=False)[:]
        assert minilm.model.training
        assert np.array_equal(first, minilm.encode(["a"], "query", stored=False)[:])
    finally:
        minilm.model.eval()


def test_saved_folder_loads_plainly_with_its_prompts(minilm: Encoder, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    prompts = dict(minilm.model.prompts)
    fresh = Encoder(minilm.model, minilm.source)
    try:
        fresh.set_prompts("q: ", "d: ")
        fresh.save(tmp_path / "model")
        expected = fresh.encode(["some text"], "document", stored=False)[:]
    finally:
        minilm.model.prompts = prompts
    plain = SentenceTransformer(str(tmp_path / "model"))
    assert plain.prompts["query"] == "q: "
    assert np.abs(plain.encode_document(["some text"]) - expected).max() < 1e-6


def test_a_broken_folder_is_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(find_model(MINILM).path, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(EmbedtrainError, match="cannot be loaded"):
        Encoder.load(find_model(str(folder)))
    (folder / "modules.json").unlink()
    with pytest.raises(EmbedtrainError, match="its pooling is not known"):
        Encoder.load(find_model(str(folder)))
