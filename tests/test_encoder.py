"""The encoder gives what plain sentence-transformers gives, whatever stands beside a text, prompts applied once."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from embedtrain import inference
from embedtrain.encoder import Encoder
from embedtrain.errors import EmbedtrainError
from embedtrain.models import MINILM, ModelSource, find_model

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


def test_vectors_are_those_of_sentence_transformers(minilm: Encoder) -> None:
    ours = minilm.encode(TEXTS, "document", stored=False)
    theirs = minilm.model.encode_document(TEXTS)
    assert ours.dtype == np.float32
    assert ours.shape == (5, 384)
    assert np.abs(ours - theirs).max() < 1e-6
    assert np.array_equal(ours[0], ours[3])


def test_neighbours_change_nothing_p51(minilm: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = np.concatenate([minilm.encode([text], "query", stored=False) for text in TEXTS])
    for budget in (300, 2_048, 100_000):
        monkeypatch.setattr(inference, "CPU_TOKENS", budget)
        together = minilm.encode(TEXTS, "query", stored=False)
        assert np.abs(alone - together).max() < 1e-6


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
        queries = fresh.encode(["a"], "query", stored=False)
        fresh.encode(["b"], "document", stored=False)
        assert seen == ["query: a", "passage: b"]
        assert np.abs(queries - minilm.model.encode_query(["a"])).max() < 1e-6
        assert np.abs(queries - minilm.model.encode(["a"], prompt="")).max() > 1e-3
    finally:
        minilm.model.prompts = prompts


def test_a_second_call_reads_the_store_and_another_prompt_does_not(minilm: Encoder) -> None:
    texts = ["stored text one", "stored text two"]
    first = minilm.encode(texts, "document")
    calls: list[int] = []
    watched = Encoder(minilm.model, minilm.source)
    forward = watched.forward

    def count(chunk, role, max_length=None):
        calls.append(len(chunk))
        return forward(chunk, role, max_length)

    watched.forward = count  # type: ignore[method-assign]
    assert np.array_equal(watched.encode(texts, "document"), first)
    assert calls == []
    watched.encode([*texts, "a new text"], "document")
    assert calls == [1]
    prompts = dict(minilm.model.prompts)
    try:
        watched.set_prompts(None, "passage: ")
        assert not np.allclose(watched.encode(texts, "document"), first, atol=1e-3)
    finally:
        minilm.model.prompts = prompts


def test_two_models_never_share_a_vector_p66(minilm: Encoder) -> None:
    first = minilm.encode(["one text"], "document")
    other = Encoder(minilm.model, ModelSource(minilm.source.path, minilm.source.name, "another hash"))
    with torch.no_grad():
        weight = next(minilm.model.parameters())
        kept = weight.clone()
        weight.mul_(1.5)
        try:
            second = other.encode(["one text"], "document")
        finally:
            weight.copy_(kept)
    assert not np.allclose(first, second, atol=1e-4)


def test_lengths_are_counted_before_the_cut_p54(minilm: Encoder) -> None:
    lengths = minilm.token_lengths(TEXTS, "document")
    assert lengths.tolist()[:3] == [3, lengths[1], 402]
    assert int((lengths > minilm.max_length).sum()) == 1


def test_encoding_leaves_training_mode_as_it_was_p57(minilm: Encoder) -> None:
    minilm.model.train()
    try:
        first = minilm.encode(["a"], "query", stored=False)
        assert minilm.model.training
        assert np.array_equal(first, minilm.encode(["a"], "query", stored=False))
    finally:
        minilm.model.eval()


def test_saved_folder_loads_plainly_with_its_prompts(minilm: Encoder, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    prompts = dict(minilm.model.prompts)
    fresh = Encoder(minilm.model, minilm.source)
    try:
        fresh.set_prompts("q: ", "d: ")
        fresh.save(tmp_path / "model")
        expected = fresh.encode(["some text"], "document", stored=False)
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
