"""Vectors that another model makes of the texts of training: a guide that judges, a teacher that is followed."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from embedtrain import console
from embedtrain.encoder import Encoder, Role
from embedtrain.rows import Sources


class Companion:
    """`companion(role, ids)` gives vectors (n, T) float32, of length 1 where its model compares by cosine.

    All texts are encoded at the start, and kept on disk by what made them unless `stored` is False.
    """

    def __init__(
        self,
        encoder: Encoder,
        sources: Sources,
        queries: Iterable[str],
        documents: Iterable[str],
        progress: console.Progress,
        *,
        stored: bool = True,
    ) -> None:
        self._unit = encoder.similarity == "cosine"
        self._places = {}
        self._vectors = {}
        roles: tuple[tuple[Role, Iterable[str]], ...] = (("query", queries), ("document", documents))
        for role, ids in roles:
            distinct = list(dict.fromkeys(ids))
            text_of = sources.query if role == "query" else sources.document
            self._places[role] = {identifier: place for place, identifier in enumerate(distinct)}
            self._vectors[role] = encoder.encode([text_of(i) for i in distinct], role, progress, stored=stored)

    def __call__(self, role: Role, ids: Sequence[str]) -> NDArray[np.float32]:
        places = np.array([self._places[role][identifier] for identifier in ids], dtype=np.int64)
        found = self._vectors[role][places].astype(np.float32)
        if self._unit:
            lengths = np.linalg.norm(found, axis=1, keepdims=True)
            found /= np.where(lengths == 0, 1, lengths)
        return found
