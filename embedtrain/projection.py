"""A linear layer from a model's vectors to the dimensions of another's, kept: the model lands in the other's space.

So documents may stay in the index that the bigger model made (LEAF, Vujanic and Rueckstiess 2025).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Router

from embedtrain import backbone, console
from embedtrain.companion import Companion
from embedtrain.drawing import Row
from embedtrain.encoder import Encoder
from embedtrain.errors import UsageError
from embedtrain.processes import Processes
from embedtrain.rows import Sources

# Rows whose query and positive the layer is fitted to.
ROWS = 2_048

# Weight of the ridge, as a share of the mean square of a dimension; it matters with fewer texts than dimensions.
RIDGE = 0.01


def towards(
    encoder: Encoder,
    teacher: Encoder,
    sources: Sources,
    rows: Sequence[Row],
    seed: int,
    progress: console.Progress,
    processes: Processes,
) -> tuple[Encoder, str]:
    """The encoder with a layer to the teacher's dimensions, and what was done, in a sentence.

    The layer is fitted to the teacher's vectors of a draw among the rows' texts: training starts near its space, and
    not at random. Raises UsageError where the encoder has routes.
    """
    if isinstance(encoder.model[0], Router):
        raise UsageError(f"--project: model {encoder.source.name} has two towers already; leave the flag out")
    drawn = np.random.default_rng([seed, len(rows)]).permutation(len(rows))[:ROWS].tolist()
    queries = [rows[n].query_id for n in drawn]
    documents = [rows[n].positives[0] for n in drawn]
    # What is done to a model before training is not in the key of stored vectors.
    follow = Companion(encoder, sources, queries, documents, progress, stored=False)
    lead = Companion(teacher, sources, queries, documents, progress)
    own, wanted = (
        np.concatenate([model("query", queries), model("document", documents)]) for model in (follow, lead)
    )
    # A last bit may differ between processes.
    matrix = processes.same(fitted(own, wanted))
    near = closeness(own @ matrix.T, wanted)
    return _behind(encoder, matrix), (
        f"a linear layer to the teacher's {len(matrix):,} dimensions was added and is kept (fitted to {len(own):,} texts, "
        f"mean cosine with the teacher {near:.2f})"
    )


def fitted(own: NDArray[np.float32], wanted: NDArray[np.float32]) -> NDArray[np.float32]:
    """The matrix (T, D) that takes vectors (n, D) nearest to others (n, T) of the same texts, by ridge regression.

    W = V'U (U'U + r I)^-1 for rows U of `own` and V of `wanted`. There is no constant: a model that normalises
    afterwards has vectors of any length before it, and only their direction is taken from here.
    """
    vectors, targets = own.astype(np.float64), wanted.astype(np.float64)
    square = vectors.T @ vectors
    ridge = RIDGE * np.trace(square) / len(square)
    if not ridge:
        raise ValueError("every vector is zero: nothing can be fitted to them")
    found = np.linalg.solve(square + ridge * np.eye(len(square)), vectors.T @ targets).T
    return np.ascontiguousarray(found, np.float32)  # saved as it lies


def closeness(own: NDArray[np.float32], wanted: NDArray[np.float32]) -> float:
    """Mean cosine of the vectors (n, T) of two models, text by text; 0 for a vector of zeros."""
    lengths = np.linalg.norm(own, axis=1) * np.linalg.norm(wanted, axis=1)
    return float(np.mean((own * wanted).sum(1) / np.where(lengths == 0, 1, lengths)))


def _behind(encoder: Encoder, matrix: NDArray[np.float32]) -> Encoder:
    """The encoder with a linear layer (T, D) behind its pooling, before it normalises."""
    modules: list[Any] = list(encoder.model)
    wide, narrow = matrix.shape
    layer = Dense(narrow, wide, bias=False, activation_function=None, init_weight=torch.from_numpy(matrix))
    place = next((n for n, module in enumerate(modules) if isinstance(module, Normalize)), len(modules))
    return backbone.rebuilt(encoder, [*modules[:place], layer, *modules[place:]])
