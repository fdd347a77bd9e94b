"""Losses that bring the student to a teacher, a cross-encoder or a bigger bi-encoder; each gives one value a row (B,).

A row for which the teacher has said nothing gives 0 and no gradient; it still counts in the mean over rows, so that
the weight of a row does not hang on which rows stand beside it.
"""

import torch
from torch import Tensor

from embedtrain.losses.inputs import Inputs, in_blocks, normalized, row_scores, wide
from embedtrain.losses.settings import Settings


def _teacher(inputs: Inputs, settings: Settings, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The teacher's scores over its temperature, 0 where unknown, and where they are known. (B, K) twice

    Standardised: (z - mean) / deviation over the known scores of the row (Sun et al. 2024, "Logit Standardization
    in Knowledge Distillation", alg. 1); a row of equal scores becomes zeros.
    """
    if inputs.teacher is None:
        raise ValueError("the loss needs teacher scores")
    known = inputs.present & ~inputs.teacher.isnan()
    scores = torch.where(known, inputs.teacher.detach(), 0).to(dtype)
    if settings.standardize:
        count = known.sum(1, keepdim=True).clamp(min=1)
        scores = torch.where(known, scores - scores.sum(1, keepdim=True) / count, 0)
        deviation = (scores.square().sum(1, keepdim=True) / count).sqrt()
        scores = scores / deviation.masked_fill(deviation == 0, 1)
    return scores / settings.teacher_temperature, known


def kl(inputs: Inputs, settings: Settings) -> Tensor:
    """Divergence of the student's softmax over the row's own documents from the teacher's. (B,)

    sum_j p_j (log p_j - log q_j), p of the teacher, q of the student, over the documents that the teacher has
    scored (Hinton et al. 2015; Ren et al. 2021, RocketQAv2). Not multiplied by the temperature squared: the
    student's temperature is also that of its search, not a softening of both sides.
    """
    student = row_scores(inputs) / settings.temperature
    target, known = _teacher(inputs, settings, student.dtype)
    # A softmax over nothing is NaN: rows that the teacher does not know are computed whole, then left out.
    hidden = ~known & known.any(1, keepdim=True)
    q = student.masked_fill(hidden, float("-inf")).log_softmax(1)
    p = target.masked_fill(hidden, float("-inf")).log_softmax(1)
    # Unknown columns have probability 0 in both; their -inf - -inf must not reach the sum.
    return torch.where(known, p.exp() * torch.where(known, p - q, 0), 0).sum(1)


def margin_mse(inputs: Inputs, settings: Settings) -> Tensor:
    """Mean squared difference between the student's and the teacher's margins, positive over the others. (B,)

    Hofstätter et al. 2020; the student's margins are divided by the temperature, which brings cosines to
    the scale of logits. A row of the positive alone gives 0.
    """
    student = row_scores(inputs) / settings.temperature
    target, known = _teacher(inputs, settings, student.dtype)
    both = known[:, 1:] & known[:, :1]
    errors = (student[:, :1] - student[:, 1:]) - (target[:, :1] - target[:, 1:])
    return torch.where(both, errors, 0).square().sum(1) / both.sum(1).clamp(min=1)


def _vectors(inputs: Inputs, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    if inputs.teacher_queries is None or inputs.teacher_documents is None:
        raise ValueError("the loss needs the vectors of a teacher")
    documents = inputs.teacher_documents.detach().to(dtype)
    # Whatever stands in an absent place, NaN too, must not reach a sum.
    return inputs.teacher_queries.detach().to(dtype), documents.masked_fill(~inputs.present[..., None], 0)


def cosine(inputs: Inputs, settings: Settings) -> Tensor:
    """1 - cosine of the student's and the teacher's vector of a text, averaged over the row's texts. (B,)

    The row's query and its present documents (Kim et al. 2023, EmbedDistill, with the cosine; the student
    learns the teacher's space, as LEAF's does). Both must have the same length; `projection` sees to it.
    """
    queries, documents = wide(inputs.queries), wide(inputs.documents)
    teacher_queries, teacher_documents = _vectors(inputs, queries.dtype)
    if teacher_queries.shape[1] != queries.shape[1]:
        raise ValueError(unequal(queries.shape[1], teacher_queries.shape[1]))
    query = 1 - (normalized(queries) * normalized(teacher_queries)).sum(-1)
    document = 1 - (normalized(documents) * normalized(teacher_documents)).sum(-1)
    total = query + torch.where(inputs.present, document, 0).sum(1)
    return total / (1 + inputs.present.sum(1))


def unequal(student: int, teacher: int) -> str:
    """The sentence that refuses `cosine` between vectors of different length."""
    return (
        f"--loss cosine: the model has {student} dimensions and the teacher {teacher}, which no cosine compares; add "
        "--project, a layer to the teacher's dimensions, or use --loss score, which compares similarities"
    )


def score(inputs: Inputs, settings: Settings) -> Tensor:
    """Mean squared difference of the student's and the teacher's similarities of the query to the batch. (B,)

    Over every present column, masked or not: the teacher says how relevant a false negative is (Kim et al. 2023,
    EmbedDistill, score matching, with squares; similarities of the bigger bi-encoder as it compares them). Any two lengths.
    """
    return in_blocks(_score, inputs, settings, inputs.rows * inputs.width)


def _score(inputs: Inputs, settings: Settings, rows: slice) -> Tensor:
    queries = wide(inputs.queries)[rows]
    teacher_queries, teacher_documents = _vectors(inputs, queries.dtype)
    wanted = teacher_queries[rows] @ teacher_documents.flatten(0, 1).T
    present = inputs.present.flatten()
    errors = torch.where(present, queries @ inputs.columns().T - wanted, 0)
    return errors.square().sum(1) / present.sum()
