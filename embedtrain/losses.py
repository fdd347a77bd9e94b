"""Every objective as a pure function of embeddings, masks and teacher scores; each gives one value a row.

Shapes: queries (B, D); documents (B, 1+N, D) with the positive in column 0; mask (B, B*(1+N)) boolean, True where
a document of the batch (row-major) may stand in that row's softmax; present (B, 1+N) boolean, True where the row
has a document in that column; teacher (B, 1+N), raw logits. Scores are scaled first, then masked with -inf.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from embedtrain.errors import UsageError

NAMES = ("infonce", "kl", "margin-mse")
NEEDS_TEACHER = ("kl", "margin-mse")


def parse(text: str) -> dict[str, float]:
    """Parse a weighted sum, as `infonce:0.2,kl:1.0`, into {name: weight}; a weight left out is 1.

    Raises UsageError for an unknown name, a weight that is no number above 0, a repeated name.
    """
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.strip().partition(":")
        if name not in NAMES:
            raise UsageError(f"--loss {text}: {name!r} is no loss; the losses are {', '.join(NAMES)}")
        if name in weights:
            raise UsageError(f"--loss {text}: {name} stands twice")
        try:
            weights[name] = float(weight) if weight else 1.0
        except ValueError as error:
            raise UsageError(f"--loss {text}: {weight!r} is no number") from error
        if not weights[name] > 0:
            raise UsageError(f"--loss {text}: the weight of {name} must be above 0")
    return weights


def _check(queries: Tensor, documents: Tensor) -> tuple[int, int]:
    if queries.ndim != 2 or documents.ndim != 3:
        raise ValueError(
            f"queries (B, D) and documents (B, 1+N, D) are needed, not {queries.shape}, {documents.shape}"
        )
    if documents.shape[0] != queries.shape[0] or documents.shape[2] != queries.shape[1]:
        raise ValueError(
            f"queries {tuple(queries.shape)} and documents {tuple(documents.shape)} do not fit together"
        )
    return documents.shape[0], documents.shape[1]


def _check_mask(name: str, mask: Tensor, shape: tuple[int, int]) -> None:
    if mask.dtype != torch.bool or tuple(mask.shape) != shape:
        raise ValueError(f"{name} must be boolean {shape}, not {mask.dtype} {tuple(mask.shape)}")


def _wide(vectors: Tensor) -> Tensor:
    # exp overflows half precision above 11; a temperature of 0.01 brings cosines to 100.
    return vectors.float() if vectors.dtype in (torch.float16, torch.bfloat16) else vectors


def infonce(queries: Tensor, documents: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of the positive among all unmasked documents of the batch. (B,)

    -log(exp(s_i+/t) / sum_j exp(s_ij/t)): van den Oord et al. 2018 (CPC), eq. 4. A row whose other columns are
    all masked gives 0. Raises ValueError when a positive is masked.
    """
    rows, columns = _check(queries, documents)
    _check_mask("mask", mask, (rows, rows * columns))
    targets = torch.arange(rows, device=queries.device) * columns
    if not bool(mask[torch.arange(rows, device=mask.device), targets].all()):
        raise ValueError("the mask hides a positive")
    logits = _wide(queries) @ _wide(documents).reshape(rows * columns, -1).T / temperature
    logits = logits.masked_fill(~mask, float("-inf"))
    return torch.nn.functional.cross_entropy(logits, targets, reduction="none")


def row_scores(queries: Tensor, documents: Tensor) -> Tensor:
    """Similarity of each query to its own documents. (B, 1+N)"""
    _check(queries, documents)
    return torch.einsum("bd,bnd->bn", _wide(queries), _wide(documents))


def kl(
    queries: Tensor,
    documents: Tensor,
    present: Tensor,
    teacher: Tensor,
    temperature: float,
    teacher_temperature: float = 1.0,
) -> Tensor:
    """Divergence of the student's softmax over the row's own documents from the teacher's. (B,)

    sum_j p_j (log p_j - log q_j), p of the teacher, q of the student (Hinton et al. 2015; RocketQAv2, eq. 5).
    """
    shape = _check(queries, documents)
    _check_mask("present", present, shape)
    if tuple(teacher.shape) != shape:
        raise ValueError(f"teacher must be {shape}, not {tuple(teacher.shape)}")
    hidden = float("-inf")
    student = (row_scores(queries, documents) / temperature).masked_fill(~present, hidden).log_softmax(1)
    target = (teacher / teacher_temperature).masked_fill(~present, hidden).log_softmax(1)
    # Absent columns have probability 0 in both; their -inf - -inf must not reach the sum.
    difference = torch.where(present, target - student, torch.zeros_like(student))
    return (target.exp() * difference).sum(1)


def margin_mse(queries: Tensor, documents: Tensor, present: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Mean squared difference between the student's and the teacher's margins, positive over negative. (B,)

    Hofstätter et al. 2020, eq. 6; the student's margins are divided by the temperature, which brings cosines to
    the scale of logits. A row without negatives gives 0.
    """
    shape = _check(queries, documents)
    _check_mask("present", present, shape)
    if tuple(teacher.shape) != shape:
        raise ValueError(f"teacher must be {shape}, not {tuple(teacher.shape)}")
    student = row_scores(queries, documents) / temperature
    errors = (student[:, :1] - student[:, 1:]) - (teacher[:, :1] - teacher[:, 1:])
    negatives = present[:, 1:]
    squares = torch.where(negatives, errors, torch.zeros_like(errors)).square()
    return squares.sum(1) / negatives.sum(1).clamp(min=1)


def listwise(scores: Tensor, present: Tensor) -> Tensor:
    """Cross-entropy of the positive (column 0) in the softmax over its row. scores, present (B, 1+N) -> (B,)

    The loss of cross-encoders trained on groups (Gao et al. 2021, "Rethink Training of BERT Rerankers", eq. 4).
    """
    _check_mask("present", present, (scores.shape[0], scores.shape[1]))
    targets = torch.zeros(len(scores), dtype=torch.long, device=scores.device)
    hidden = _wide(scores).masked_fill(~present, float("-inf"))
    return torch.nn.functional.cross_entropy(hidden, targets, reduction="none")


def combined(
    weights: Mapping[str, float],
    queries: Tensor,
    documents: Tensor,
    mask: Tensor,
    present: Tensor,
    teacher: Tensor | None,
    *,
    temperature: float,
    teacher_temperature: float,
) -> dict[str, Tensor]:
    """Each named loss as its mean over rows, unweighted, as {name: scalar}."""
    parts: dict[str, Tensor] = {}
    for name in weights:
        if name == "infonce":
            parts[name] = infonce(queries, documents, mask, temperature).mean()
            continue
        if teacher is None:
            raise ValueError(f"{name} needs teacher scores")
        if name == "kl":
            values = kl(queries, documents, present, teacher, temperature, teacher_temperature)
        else:
            values = margin_mse(queries, documents, present, teacher, temperature)
        parts[name] = values.mean()
    return parts
