"""Static models from word vectors or from nothing: averages of a table, saved and trained like any model.

Breaks that turn a test red: the header read as a word; a word with a blank cut at the first one; a repeated word's
last vector taken; special tokens counted; random vectors from the global state; a bad line passed over.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tiny_models import checkpoint

from embedtrain import backbone, static
from embedtrain.encoder import Encoder
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.models import MINILM, find_model

CPU = torch.device("cpu")
GLOVE = "mouse 1 0 0\ncell 0 1 0\n. . . 0 0 1\n, 1 1 1\ncell 9 9 9\n"


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("header", ["", "5 3\n"])
def test_word_vectors_are_averaged(tmp_path: Path, header: str) -> None:
    encoder = static.from_word_vectors(written(tmp_path / "glove.txt", header + GLOVE), CPU)
    assert encoder.notes == [
        "a static model of 5 words in 3 dimensions, texts lower-cased",
        "1 words came again; their first vectors count",
    ]
    # mouse + cell, and a word that is not there, of zeros
    found = encoder.forward(["Mouse cell", "mouse, mouse", "mouse nowhere"], "query")
    expected = [[0.5, 0.5, 0], [1, 1 / 3, 1 / 3], [0.5, 0, 0]]
    assert torch.allclose(found, torch.tensor(expected))
    assert encoder.token_lengths(["Mouse cell"], "query").tolist() == [2]
    assert backbone.is_static(encoder)
    assert encoder.limit("query") == 1 << 20
    told = backbone.describe(encoder)
    assert (told["pooling"], told["length limit"]) == ("mean", "none")


def test_words_keep_their_capitals_where_the_file_has_some(tmp_path: Path) -> None:
    encoder = static.from_word_vectors(written(tmp_path / "w.txt", "Mouse 1 0\nmouse 0 1\n"), CPU)
    assert encoder.forward(["Mouse", "mouse"], "query").tolist() == [[1, 0], [0, 1]]
    assert encoder.notes == ["a static model of 3 words in 2 dimensions, texts as they are written"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("mouse 1 0\ncell 1\n", "line 2 is not a word and 2 numbers"),
        ("mouse 1 0\ncell 1 x\n", "line 2 holds something that is no number"),
        ("mouse 1 nan\n", "line 1 holds a number that is not finite"),
        ("mouse\n", "line 1 is not a word and 1 numbers"),
        ("", "are empty"),
        ("2 3\n", "are empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(EmbedtrainError, match=reason):
        static.from_word_vectors(written(tmp_path / "w.txt", text), CPU)


def test_a_binary_file_and_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"2 3\nmouse \xff\xfe\x00\x80")
    with pytest.raises(EmbedtrainError, match="are no UTF-8 text"):
        static.from_word_vectors(tmp_path / "w.bin", CPU)
    with pytest.raises(EmbedtrainError, match="do not exist"):
        static.from_word_vectors(tmp_path / "nowhere.txt", CPU)


def test_random_vectors_come_from_the_seed() -> None:
    source = find_model(MINILM)
    one, same, other = (static.from_tokenizer(source, 16, seed, CPU) for seed in (1, 1, 2))
    tables = [encoder.model[0].embedding.weight for encoder in (one, same, other)]
    assert tables[0].shape == (30_522, 16)
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])
    assert float(tables[0].detach().std()) == pytest.approx(1, abs=0.01)
    # Pieces of words, and no special tokens.
    assert one.token_lengths(["zero-dimensional biomaterials"], "document").tolist() == [7]
    assert one.notes == [f"a static model of 30,522 random vectors (seed 1) for the tokenizer of {MINILM}"]


def test_it_is_trained_saved_and_loaded_plainly(tmp_path: Path) -> None:
    encoder = static.from_word_vectors(written(tmp_path / "glove.txt", GLOVE), CPU)
    encoder.set_prompts("cell ", None)
    encoder.forward(["mouse"], "query")[0, 2].backward()
    with torch.no_grad():
        for p in encoder.model.parameters():
            p += p.grad
    encoder.save(tmp_path / "saved")
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu", local_files_only=True)
    # cell and mouse have each got half of a step up the third axis.
    assert np.allclose(plain.encode_query(["mouse"]), [[0.5, 0.5, 0.5]])
    again = Encoder.load(find_model(str(tmp_path / "saved")), CPU)
    assert np.allclose(again.encode(["mouse"], "query", stored=False)[:], [[0.5, 0.5, 0.5]])
    assert backbone.is_static(again)


def test_what_needs_layers_is_refused(tmp_path: Path) -> None:
    encoder = static.from_word_vectors(written(tmp_path / "glove.txt", GLOVE), CPU)
    with pytest.raises(UsageError, match=r"--freeze embeddings: model glove\.txt has no transformer layers"):
        backbone.freeze(encoder, "embeddings")
    with pytest.raises(UsageError, match=r"--gradient-checkpointing: model glove\.txt has no transformer layers"):
        backbone.gradient_checkpointing(encoder)
    encoder.save(tmp_path / "saved")
    with pytest.raises(UsageError, match=r"--pooling cls: model .* has no pooling that could be changed"):
        Encoder.load(find_model(str(tmp_path / "saved")), CPU, pooling="cls")
    mlm = find_model(str(checkpoint(tmp_path / "m", "mlm")))
    assert not backbone.is_static(Encoder.load(mlm, CPU, pooling="auto"))


def test_two_static_towers(tmp_path: Path) -> None:
    towers = backbone.two_towers(static.from_word_vectors(written(tmp_path / "glove.txt", GLOVE), CPU))
    assert backbone.is_static(towers)
    with torch.no_grad():
        towers.input_module("query").embedding.weight.mul_(2)
    towers.save(tmp_path / "saved")
    again = Encoder.load(find_model(str(tmp_path / "saved")), CPU)
    assert again.encode(["mouse"], "query", stored=False)[:].tolist() == [[2, 0, 0]]
    assert again.encode(["mouse"], "document", stored=False)[:].tolist() == [[1, 0, 0]]
