"""What judges pairs of query and document, behind one face: a cross-encoder, or a bi-encoder that is bigger than ours."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from embedtrain import console
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.models import find_encoder, find_model

if TYPE_CHECKING:  # they take seconds to import, and stored scores are judged anew without them
    from embedtrain.encoder import Encoder
    from embedtrain.reranker import Cut, Pair, Reranker

CROSS, BI = "cross", "bi"
KINDS = (CROSS, BI)


class Teacher(Protocol):
    """Pairs in, one score each out, in their order."""

    logits: bool  # whether a sigmoid makes probabilities of the scores

    def score(self, pairs: Sequence["Pair"], progress: console.Progress) -> NDArray[np.float32]:
        """Raw scores (n,) of pairs; higher is more relevant."""

    def cut(self, pairs: Sequence["Pair"]) -> "Cut":
        """What of distinct pairs is too long for it."""


def check_kind(kind: str) -> None:
    """Raise UsageError for a kind of teacher there is none of."""
    if kind not in KINDS:
        raise UsageError(f"--teacher-kind {kind}: {' and '.join(KINDS)} are the kinds")


def load(name: str, kind: str, max_length: int | None, precision: str) -> Teacher:
    """The teacher of a folder or hub name; EmbedtrainError for a model of another kind.

    `max_length` is that of a pair and acts on a cross-encoder alone.
    """
    from embedtrain.encoder import Encoder
    from embedtrain.reranker import Reranker

    if kind == CROSS:
        return _Cross(Reranker.load(find_model(name), max_length, wanted=precision))
    return _Bi(Encoder.load(find_encoder(name), wanted=precision))


class _Cross:
    """A cross-encoder."""

    logits = True

    def __init__(self, reranker: "Reranker") -> None:
        self._reranker = reranker

    def score(self, pairs: Sequence["Pair"], progress: console.Progress) -> NDArray[np.float32]:
        return np.asarray(self._reranker.score(pairs, progress), dtype=np.float32)

    def cut(self, pairs: Sequence["Pair"]) -> "Cut":
        return self._reranker.cut(pairs)


class _Bi:
    """A bi-encoder: the similarity of its vectors, by its own measure."""

    logits = False

    def __init__(self, encoder: "Encoder") -> None:
        self._encoder = encoder

    def score(self, pairs: Sequence["Pair"], progress: console.Progress) -> NDArray[np.float32]:
        sides: list[tuple[Any, NDArray[np.int64]]] = []
        for role, texts in (("query", [query for query, _ in pairs]), ("document", [text for _, text in pairs])):
            distinct = {text: place for place, text in enumerate(dict.fromkeys(texts))}
            vectors = self._encoder.encode(list(distinct), role, progress)  # type: ignore[arg-type]
            sides.append((vectors, np.array([distinct[text] for text in texts], dtype=np.int64)))
        found = np.empty(len(pairs), dtype=np.float32)
        for start in range(0, len(pairs), 4_096):
            one, other = (vectors[places[start : start + 4_096]] for vectors, places in sides)
            scores = (one * other).sum(1)
            if self._encoder.similarity == "cosine":
                lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
                scores = scores / np.where(lengths == 0, 1, lengths)
            found[start : start + 4_096] = scores
        return found

    def cut(self, pairs: Sequence["Pair"]) -> "Cut":
        from embedtrain.reranker import Cut

        distinct = list(dict.fromkeys(pairs))
        queries, documents = (dict.fromkeys(pair[side] for pair in distinct) for side in (0, 1))
        lengths = {
            role: self._encoder.token_lengths(list(texts), role)  # type: ignore[arg-type]
            for role, texts in (("query", queries), ("document", documents))
        }
        limits = {role: self._encoder.limit(role) for role in lengths}  # type: ignore[arg-type]
        over = {
            role: {text for text, length in zip(texts, lengths[role], strict=True) if length > limits[role]}
            for role, texts in (("query", queries), ("document", documents))
        }
        return Cut(
            len(distinct),
            sum(document in over["document"] for _, document in distinct),
            sum(query in over["query"] for query, _ in distinct),
            int(max((found.max(initial=0) for found in lengths.values()), default=0)),
            max(limits.values()),
        )


def standardised(scores: NDArray[np.float32], pairs: Sequence["Pair"], name: str) -> NDArray[np.float32]:
    """Scores less their mean, over their standard deviation, both over the distinct pairs.

    Raises EmbedtrainError for a teacher that gives every pair the same.
    """
    distinct = list({pair: place for place, pair in enumerate(pairs)}.values())
    values = scores[distinct].astype(np.float64)
    deviation = float(values.std())
    if not deviation:
        raise EmbedtrainError(f"teacher {name} gives every pair the same score; leave it out")
    return ((scores - values.mean()) / deviation).astype(np.float32)
