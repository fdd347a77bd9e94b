"""Gradients of token tables, sparse while a step's chunks are added up.

A chunk touches a few thousand rows of a table of tens of thousands. Dense, every chunk would clear and add a gradient
of the whole table, 47 MB for MiniLM: about 25 ms a chunk on one thread.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

# Smaller tables (positions, token types) are as quick dense.
LARGE = 4_096


def _large(model: nn.Module) -> list[nn.Embedding | nn.EmbeddingBag]:
    return [
        module
        for module in model.modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag)
        and module.weight.requires_grad
        and module.num_embeddings >= LARGE
        and module.max_norm is None
        and not module.scale_grad_by_freq
    ]


@contextmanager
def tables(model: nn.Module) -> Iterator[None]:
    """Within, backward passes give large tables sparse gradients; `to_dense` ends that for those that are there."""
    changed = [module for module in _large(model) if not module.sparse and _sole_use(model, module)]
    for module in changed:
        module.sparse = True
    try:
        yield
    finally:
        for module in changed:
            module.sparse = False


def _sole_use(model: nn.Module, table: nn.Embedding | nn.EmbeddingBag) -> bool:
    """Whether no other module has the table's weights too, as a tied output layer does: its gradient is dense."""
    return sum(p is table.weight for module in model.modules() for p in module.parameters(recurse=False)) == 1


def to_dense(model: nn.Module) -> None:
    """Turn the sparse gradients of a step into dense ones, each once."""
    for module in _large(model):
        gradient = module.weight.grad
        if gradient is not None and gradient.is_sparse:
            module.weight.grad = gradient.coalesce().to_dense()
