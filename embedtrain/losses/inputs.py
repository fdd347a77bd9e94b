"""What every loss is given: the vectors of a whole batch with who may stand beside whom."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from embedtrain.losses.settings import Settings

# Scores held at once by a loss over the whole batch: 256 MiB of float32.
BLOCK = 1 << 26


@dataclass(frozen=True)
class Inputs:
    """One batch, B rows of K documents; the B*K columns of the batch are its documents row by row.

    Where a row has no document (`present` False) its vector may be anything finite. Raises ValueError for a
    wrong shape or type, and where masks contradict each other: a hidden or missing positive, a row's own query
    among its negatives, a negative that is not present.
    """

    queries: Tensor  # (B, D), normalised already where the model compares by cosine
    documents: Tensor  # (B, K, D); column 0 is the drawn positive; others negatives or further positives
    present: Tensor  # (B, K) bool: the row has a document there
    negative: Tensor  # (B, K) bool: it is one of the row's own negatives
    mask: Tensor  # (B, B*K) bool: the column may stand in row i's query->document softmax; own positive True
    positives: Tensor  # (B, B*K) bool: the column shows a known positive of query i, one column a text
    query_mask: Tensor  # (B, B) bool: query j may be a negative of query i; diagonal False
    reverse_mask: Tensor  # (B, B) bool: query j may stand in the softmax of row i's positive; diagonal True
    labels: Tensor | None = None  # (B,) int64: class of each query, -1 unknown
    teacher: Tensor | None = None  # (B, K) raw logits, NaN where the teacher has said nothing
    teacher_queries: Tensor | None = None  # (B, T), normalised already where the teacher compares by cosine
    teacher_documents: Tensor | None = None  # (B, K, T)

    def __post_init__(self) -> None:
        if self.queries.ndim != 2 or self.documents.ndim != 3:
            raise ValueError(
                "queries (B, D) and documents (B, K, D) are needed, "
                f"not {tuple(self.queries.shape)} and {tuple(self.documents.shape)}"
            )
        rows, width, size = self.documents.shape
        if tuple(self.queries.shape) != (rows, size) or not rows or not width:
            raise ValueError(
                f"queries {tuple(self.queries.shape)} and documents {(rows, width, size)} do not fit together"
            )
        for name, shape in {
            "present": (rows, width),
            "negative": (rows, width),
            "mask": (rows, rows * width),
            "positives": (rows, rows * width),
            "query_mask": (rows, rows),
            "reverse_mask": (rows, rows),
        }.items():
            found = getattr(self, name)
            if found.dtype != torch.bool or tuple(found.shape) != shape:
                raise ValueError(f"{name} must be boolean {shape}, not {found.dtype} {tuple(found.shape)}")
        if self.labels is not None and (self.labels.dtype != torch.int64 or tuple(self.labels.shape) != (rows,)):
            raise ValueError(f"labels must be int64 {(rows,)}, not {self.labels.dtype} {tuple(self.labels.shape)}")
        if self.teacher is not None and tuple(self.teacher.shape) != (rows, width):
            raise ValueError(f"teacher must be {(rows, width)}, not {tuple(self.teacher.shape)}")
        if (self.teacher_queries is None) != (self.teacher_documents is None):
            raise ValueError("teacher_queries and teacher_documents come together or not at all")
        if self.teacher_queries is not None and self.teacher_documents is not None:
            found = tuple(self.teacher_documents.shape)
            if self.teacher_queries.ndim != 2 or found != (rows, width, self.teacher_queries.shape[1]):
                raise ValueError(
                    f"teacher_queries {tuple(self.teacher_queries.shape)} and teacher_documents {found} "
                    f"do not fit {rows} rows of {width} documents"
                )
        self._check_masks()

    def _check_masks(self) -> None:
        own = self.own(slice(None))[:, None]
        rules = {
            "a row has no positive in column 0": self.present[:, 0].all(),
            "a row's positive is one of its negatives": ~self.negative[:, 0].any(),
            "a negative is not present": ~(self.negative & ~self.present).any(),
            "the mask hides a positive": self.mask.gather(1, own).all(),
            "positives leave out a row's own positive": self.positives.gather(1, own).all(),
            "query_mask lets a query be its own negative": ~self.query_mask.diagonal().any(),
            "reverse_mask hides a row's own query": self.reverse_mask.diagonal().all(),
        }
        # One look at the device for all of them.
        for sentence, kept in zip(rules, torch.stack(list(rules.values())).tolist(), strict=True):
            if not kept:
                raise ValueError(sentence)

    @property
    def rows(self) -> int:
        """B."""
        return self.documents.shape[0]

    @property
    def width(self) -> int:
        """K: documents of a row."""
        return self.documents.shape[1]

    def own(self, rows: slice) -> Tensor:
        """The column of each row's positive among the batch's. (rows,) int64"""
        return torch.arange(self.rows, device=self.documents.device)[rows] * self.width

    def columns(self) -> Tensor:
        """The documents of the batch as one matrix, at least float32. (B*K, D)"""
        return wide(self.documents).flatten(0, 1)

    def prefix(self, size: int, *, teacher: bool) -> "Inputs":
        """The same batch with vectors cut to their first `size` numbers and normalised again.

        `teacher` cuts the teacher's vectors too where they are as long as the student's. Raises ValueError where
        vectors are shorter than `size`.
        """
        names = ["queries", "documents"]
        if teacher and self.teacher_queries is not None and self.teacher_queries.shape[1] == self.queries.shape[1]:
            names += ["teacher_queries", "teacher_documents"]
        cut: dict[str, Tensor] = {}
        for name in names:
            vectors: Tensor = getattr(self, name)
            if size > vectors.shape[-1]:
                raise ValueError(f"{name} have {vectors.shape[-1]} dimensions; a prefix of {size} is longer")
            cut[name] = normalized(wide(vectors)[..., :size])
        return replace(self, **cut)


def wide(vectors: Tensor) -> Tensor:
    """At least float32: exp overflows half precision above 11, and a temperature of 0.01 makes cosines 100."""
    return vectors.float() if vectors.dtype in (torch.float16, torch.bfloat16) else vectors


def normalized(vectors: Tensor) -> Tensor:
    """Vectors of length 1 along the last dimension; a zero vector stays zero, with a finite gradient."""
    lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / lengths.masked_fill(lengths == 0, 1)


def row_scores(inputs: Inputs) -> Tensor:
    """Similarity of each query to its own documents, unscaled. (B, K)"""
    return torch.einsum("bd,bkd->bk", wide(inputs.queries), wide(inputs.documents))


def blocks(rows: int, columns: int) -> list[slice]:
    """Cut rows so that no more than BLOCK scores are held at once."""
    step = max(1, BLOCK // max(1, columns))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def in_blocks(
    function: Callable[[Inputs, Settings, slice], Tensor], inputs: Inputs, settings: Settings, columns: int
) -> Tensor:
    """`function` over all rows; where the scores of a batch are too many at once, block by block.

    Each block's scores are then computed again on the way back instead of kept: a batch of 16,384 with 5
    documents a row would hold 5 GiB of scores, and several copies. Value and gradient do not change.
    """
    cut = blocks(inputs.rows, columns)
    if len(cut) == 1:
        return function(inputs, settings, cut[0])
    return torch.cat(
        [
            checkpoint(function, inputs, settings, rows, use_reentrant=False, preserve_rng_state=False)
            for rows in cut
        ]
    )
