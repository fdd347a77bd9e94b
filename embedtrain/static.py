"""Static embedding models to start from: a table of token vectors, from word vectors in a text file or random."""

import re
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel

from embedtrain.artifacts import file_sha256
from embedtrain.encoder import Encoder, default_device
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.models import ModelSource

UNKNOWN = "[UNK]"
_HEADER = re.compile(r"\d+ \d+")  # word2vec's first line: words and dimension; GloVe has none


def from_word_vectors(path: Path, device: torch.device | None = None) -> Encoder:
    """A static model of a text file of word vectors: a word and its numbers a line, as word2vec and GloVe write them.

    Its tokenizer is the list of words, on words and runs of signs; texts are lower-cased where no word of the file
    has a capital. Words that are not in it share one vector, of zeros at first. A word that comes twice keeps its
    first vector, counted in `notes`. Raises EmbedtrainError with the line for what is no such file.
    """
    words, vectors, repeated = _read(path)
    if UNKNOWN not in words:
        words[UNKNOWN] = len(words)
        vectors = np.concatenate([vectors, np.zeros((1, vectors.shape[1]), dtype=np.float32)])
    tokenizer = Tokenizer(WordLevel(words, unk_token=UNKNOWN))
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    lower = not any(any(c.isupper() for c in word) for word in words if word != UNKNOWN)
    if lower:
        steps.append(normalizers.Lowercase())
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    source = ModelSource(path, path.name, file_sha256(path))
    cased = "lower-cased" if lower else "as they are written"
    note = f"a static model of {len(words):,} words in {vectors.shape[1]} dimensions, texts {cased}"
    notes = [note] + ([f"{repeated:,} words came again; their first vectors count"] if repeated else [])
    return _encoder(tokenizer, vectors, source, device, notes)


def from_tokenizer(
    source: ModelSource, dimension: int, seed: int = 0, device: torch.device | None = None
) -> Encoder:
    """A static model of random vectors for the tokenizer (tokenizer.json) of a model, standard normal from `seed`.

    That is PyTorch's own start for a table of embeddings, and the one static-retrieval-mrl-en-v1 was trained from.
    """
    path = source.path / "tokenizer.json"
    if not path.is_file():
        raise EmbedtrainError(
            f"model {source.name} has no tokenizer.json to start a static model from; give another"
        )
    if dimension < 1:
        raise UsageError(f"a static model of {dimension} dimensions cannot be made; give 1 or more")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    # Ids may have gaps: the table reaches to the last one.
    size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    vectors = np.random.default_rng(seed).standard_normal((size, dimension), dtype=np.float32)
    note = f"a static model of {size:,} random vectors (seed {seed}) for the tokenizer of {source.name}"
    return _encoder(tokenizer, vectors, source, device, [note])


def _encoder(
    tokenizer: Tokenizer,
    vectors: NDArray[np.float32],
    source: ModelSource,
    device: torch.device | None,
    notes: list[str],
) -> Encoder:
    module = StaticEmbedding(tokenizer, embedding_weights=torch.from_numpy(vectors))
    model = SentenceTransformer(
        modules=[module], device=str(device or default_device()), similarity_fn_name="cosine"
    )
    model.eval()
    encoder = Encoder(model, source)
    encoder.notes = notes
    return encoder


def _read(path: Path) -> tuple[dict[str, int], NDArray[np.float32], int]:
    """Words with their rows, vectors (n, d), and how many lines repeated a word."""
    if not path.is_file():
        raise EmbedtrainError(f"word vectors {path} do not exist; give a text file of word2vec or GloVe")
    words: dict[str, int] = {}
    rows: list[NDArray[np.float32]] = []
    repeated = dimension = 0
    with path.open(encoding="utf-8", errors="strict", newline="\n") as file:
        try:
            for number, line in enumerate(file, 1):
                text = line.rstrip("\r\n ")
                if number == 1 and _HEADER.fullmatch(text):
                    dimension = int(text.split(" ")[1])
                    continue
                dimension = dimension or len(text.split(" ")) - 1
                # From the right: a word may hold blanks (". . ." in GloVe 840B).
                parts = text.rsplit(" ", dimension)
                if dimension < 1 or len(parts) != dimension + 1 or not parts[0]:
                    raise EmbedtrainError(
                        f"{path} line {number} is not a word and {max(dimension, 1)} numbers; give a text file of "
                        "word2vec or GloVe"
                    )
                if parts[0] in words:
                    repeated += 1
                    continue
                words[parts[0]] = len(rows)
                rows.append(_numbers(parts[1:], path, number))
        except UnicodeDecodeError as error:
            raise EmbedtrainError(
                f"word vectors {path} are no UTF-8 text (a binary word2vec file?); convert them to its text format"
            ) from error
    if not rows:
        raise EmbedtrainError(f"word vectors {path} are empty; give a text file of word2vec or GloVe")
    return words, np.stack(rows), repeated


def _numbers(parts: list[str], path: Path, number: int) -> NDArray[np.float32]:
    try:
        row = np.array(parts, dtype=np.float32)
    except ValueError as error:
        raise EmbedtrainError(f"{path} line {number} holds something that is no number; mend the line") from error
    if not np.isfinite(row).all():
        raise EmbedtrainError(f"{path} line {number} holds a number that is not finite; mend the line")
    return row
