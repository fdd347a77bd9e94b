"""Masks by score: likely false negatives out of a softmax, by the model's own scores or by a guide model's.

Every function turns True into False and nothing else, gives a new mask, and never hides a row's own positive.
Which of the row's own columns are beyond the rule the caller says in `own` (B, K): `batch.explicit` protects the
negatives picked by hand and lets the rule judge mined ones, `batch.present` protects all of the row's own.
"""

import torch
from torch import Tensor


def hide_above(mask: Tensor, scores: Tensor, limit: Tensor) -> Tensor:
    """`mask` (B, C) without the entries whose score lies above their row's limit (B,).

    A score on the limit stays, and so does one that is not known (NaN).
    """
    if mask.dtype != torch.bool or scores.shape != mask.shape or limit.shape != mask.shape[:1]:
        raise ValueError(
            f"a boolean mask (B, C), scores (B, C), limits (B,) are needed, not {mask.dtype} {tuple(mask.shape)}, "
            f"{tuple(scores.shape)}, {tuple(limit.shape)}"
        )
    return mask & ~(scores > limit[:, None])


def by_margin(mask: Tensor, scores: Tensor, own: Tensor, margin: float) -> Tensor:
    """Hide document j from row i where s_ij > s_i+ + margin. mask, scores (B, B*K), own (B, K) -> (B, B*K)

    The factor m_ij of Qwen3 Embedding's loss (Zhang et al. 2025), with margin 0.1 on cosines. There it judges a
    row's own negatives too (`own` is `batch.explicit`); with `batch.present` only those of the batch are.
    The same rule for other masks: `hide_above(query_mask, s_qq, s_own + margin)`.
    """
    return _beside_own(mask, hide_above(mask, scores, own_scores(scores, own) + margin), own)


def by_guide(
    mask: Tensor, guide_scores: Tensor, own: Tensor, margin: float = 0.0, *, relative: bool = False
) -> Tensor:
    """Hide document j from row i where the guide has g_ij > g_i+ - margin.

    relative: > g_i+ - margin * |g_i+|. GISTEmbed (Solatorio 2024), which judges mined negatives as well (`own` is
    `batch.explicit`), with the margins of sentence-transformers' GISTEmbedLoss.
    """
    positive = own_scores(guide_scores, own)
    limit = positive - margin * positive.abs() if relative else positive - margin
    return _beside_own(mask, hide_above(mask, guide_scores, limit), own)


def own_scores(scores: Tensor, own: Tensor) -> Tensor:
    """The scores of the rows' own positives, column 0 of each row's K. scores (B, B*K), own (B, K) -> (B,)"""
    rows, width = own.shape
    if own.dtype != torch.bool or scores.shape != (rows, rows * width):
        raise ValueError(
            f"own must be boolean (B, K) for scores (B, B*K), not {own.dtype} {tuple(own.shape)} for "
            f"{tuple(scores.shape)}"
        )
    return scores.reshape(rows, rows, width).diagonal(dim1=0, dim2=1)[0]


def _beside_own(mask: Tensor, hidden: Tensor, own: Tensor) -> Tensor:
    """`hidden`, with the positive and the columns `own` of each row as they are in `mask`."""
    rows, width = own.shape
    kept = own.clone()
    kept[:, 0] = True
    index = torch.arange(rows, device=mask.device)
    found = hidden.clone()
    blocks = found.view(rows, rows, width)
    blocks[index, index] = torch.where(kept, mask.view(rows, rows, width)[index, index], blocks[index, index])
    return found
