"""Small batches for the tests of the losses."""

from typing import Any

import torch
from torch import Tensor

from embedtrain.losses import Inputs, Settings

Numbers = list[list[float]]


def plain(queries: Tensor, documents: Tensor, **changes: Any) -> Inputs:
    """A batch where nothing is masked and every document but column 0 is a negative; `changes` replace fields."""
    rows, width, _ = documents.shape
    own = torch.zeros(rows, rows * width, dtype=torch.bool)
    own[torch.arange(rows), torch.arange(rows) * width] = True
    negative = torch.ones(rows, width, dtype=torch.bool)
    negative[:, 0] = False
    fields: dict[str, Any] = {
        "present": torch.ones(rows, width, dtype=torch.bool),
        "negative": negative,
        "mask": torch.ones(rows, rows * width, dtype=torch.bool),
        "positives": own,
        "query_mask": ~torch.eye(rows, dtype=torch.bool),
        "reverse_mask": torch.ones(rows, rows, dtype=torch.bool),
    }
    return Inputs(queries, documents, **(fields | changes))


def from_scores(scores: Numbers, **changes: Any) -> Inputs:
    """Queries and positives alone whose dot products are exactly `scores` (B, B)."""
    matrix = torch.tensor(scores, dtype=torch.float64)
    return plain(matrix, torch.eye(len(scores), dtype=torch.float64)[:, None, :], **changes)


def one_row(scores: list[float], **changes: Any) -> Inputs:
    """One query whose own documents have exactly these scores, the positive first."""
    queries = torch.tensor([scores], dtype=torch.float64)
    return plain(queries, torch.eye(len(scores), dtype=torch.float64)[None], **changes)


def random_batch(seed: int, rows: int = 4, width: int = 3, size: int = 6) -> Inputs:
    """Unit vectors, ragged rows, a further positive in row 0, some columns masked, labels and teachers of all kinds.

    Absent columns are masked; row 1 has nothing but its positive, and all of its columns are masked.
    """
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    def chance(share: float, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=draw) < share

    unit = torch.nn.functional.normalize
    places = torch.arange(rows)
    present = chance(0.8, rows, width)
    present[:, 0] = True
    present[0] = True
    present[1, 1:] = False
    negative = present.clone()
    negative[:, 0] = False
    negative[0, 1] = False
    positives = chance(0.15, rows, rows * width) & present.flatten()
    positives[1] = False
    positives[0, 1] = True
    positives[places, places * width] = True
    mask = chance(0.7, rows, rows * width) & present.flatten() & ~positives
    mask[1] = False
    mask[places, places * width] = True
    query_mask = chance(0.7, rows, rows)
    query_mask.fill_diagonal_(False)
    reverse_mask = chance(0.7, rows, rows)
    reverse_mask.fill_diagonal_(True)
    teacher = 3 * normal(rows, width)
    teacher[~present] = float("nan")
    teacher[2, 1:] = float("nan")
    teacher_documents = unit(normal(rows, width, size), dim=-1)
    teacher_documents[~present] = float("nan")
    return Inputs(
        unit(normal(rows, size), dim=-1),
        unit(normal(rows, width, size), dim=-1),
        present=present,
        negative=negative,
        mask=mask,
        positives=positives,
        query_mask=query_mask,
        reverse_mask=reverse_mask,
        labels=torch.tensor([0, 1, 0, -1, -1, 1])[places % 6],
        teacher=teacher,
        teacher_queries=unit(normal(rows, size), dim=-1),
        teacher_documents=teacher_documents,
    )


# Settings that turn everything on that the losses have.
BUSY = {
    "infonce": Settings(0.3, directions=("q2d", "d2q", "q2q", "d2d"), hardness=2.0),
    "multi-infonce": Settings(0.3, hardness=2.0),
    "siglip": Settings(0.3, siglip_scale=4.0, siglip_bias=-1.0),
    "triplet": Settings(0.3, margin=0.9),
    "supcon": Settings(0.3),
    "margin-mse": Settings(0.3, teacher_temperature=2.0, standardize=True),
    "kl": Settings(0.3, teacher_temperature=2.0, standardize=True),
    "cosine": Settings(0.3),
    "score": Settings(0.3),
}
