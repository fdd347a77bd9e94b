"""A step of a bi-encoder's training: a batch of ids becomes chunks of texts, vectors, a loss and gradients."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from embedtrain import chunks, gradcache, losses, masking, sparse
from embedtrain.batching import Batch, Batcher
from embedtrain.encoder import Encoder, Role
from embedtrain.inference import token_budget
from embedtrain.loop import StepResult
from embedtrain.processes import Processes
from embedtrain.tokenised import Tokenised
from embedtrain.workers import Workers, side_by_side

# What a chunk costs besides its tokens, in tokens: the time of its small operations, or of its launches on a GPU.
CPU_CHUNK = 48
GPU_CHUNK = 2_048

# vectors(role, ids) gives vectors (n, T) that another model made of texts.
Vectors = Callable[[Role, Sequence[str]], NDArray[np.float32]]


@dataclasses.dataclass(frozen=True)
class Masking:
    """Which documents of other rows are taken for unlabelled positives of a query, by scores."""

    margin: float | None = None  # hidden above the positive's own score by more than this (Qwen3-Embedding: 0.1)
    guide: Vectors | None = None  # hidden where a guide model ranks them above the positive (GISTEmbed)
    guide_margin: float = 0.0


@dataclasses.dataclass(frozen=True)
class _TextChunk:
    """Texts of one role that pass through the model together, and their places among all of that role."""

    role: Role
    ids: list[str]
    places: NDArray[np.int64]


class Steps:
    """`steps(epoch, step, scale)` adds the gradient of a step's loss, times `scale`, to the parameters.

    The loss is that of the whole batch, whatever the number of chunks and of processes. A batch whose tokens fit
    `graph_tokens` a process keeps the graphs of its chunks; a larger one is encoded twice (see gradcache). None: graphs
    are kept always, for models that keep next to nothing (static embeddings).
    """

    def __init__(
        self,
        encoder: Encoder,
        batcher: Batcher,
        objective: losses.Objective,
        *,
        texts: dict[Role, Callable[[str], str]],
        limits: dict[Role, int | None],
        seed: int,
        graph_tokens: int | None,
        precision: str = "float32",
        masks: Masking | None = None,
        teacher_vectors: Vectors | None = None,
        processes: Processes | None = None,
    ) -> None:
        self._encoder = encoder
        self.batcher = batcher
        self._objective = objective
        self._seed = seed
        self._graph_tokens = graph_tokens
        self._masks = masks or Masking()
        self._teacher_vectors = teacher_vectors
        self._processes = processes or Processes()
        count = self._processes.count
        self._workers = Workers(side_by_side(encoder.device, encoder.model, encoder.settings, count))
        self._unit = encoder.similarity == "cosine"
        self._texts = {role: Tokenised(encoder, role, limits[role], texts[role]) for role in limits}
        self.precision = precision
        self.per_epoch = batcher.per_epoch

    def _cut(self, ids: list[str], role: Role) -> tuple[list[_TextChunk], dict[str, float]]:
        """Chunks of the texts of a role, short beside short, and what there is to count of them."""
        lengths, whole = self._texts[role].measure(ids)
        device = self._encoder.device
        cut = chunks.cheapest(lengths, token_budget(device), CPU_CHUNK if device.type == "cpu" else GPU_CHUNK)
        noun = "queries" if role == "query" else "documents"
        counts: dict[str, float] = {
            noun: len(ids),
            f"{noun}_cut": int((whole > lengths).sum()),
            "tokens": int(lengths.sum()),
            "padded": int(sum(len(places) * int(lengths[places[0]]) for places in cut)),
        }
        return [_TextChunk(role, [ids[i] for i in places], places) for places in cut], counts

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self._encoder.device.type, dtype=getattr(torch, self.precision))

    def _encode(self, chunk: _TextChunk) -> Tensor:
        features = self._texts[chunk.role].features(chunk.ids)
        with self._autocast():
            return self._encoder.forward_features(features, chunk.role)

    def _inputs(self, batch: Batch, queries: Tensor, documents: Tensor) -> losses.Inputs:
        """The tensors a loss reads, from the vectors (B, D) and (U, D) of a batch; masks by score applied."""
        if self._unit:
            queries = nn.functional.normalize(queries, dim=1)
            documents = nn.functional.normalize(documents, dim=1)
        device = queries.device

        def there(array: NDArray[Any] | None) -> Any:
            return None if array is None else torch.from_numpy(array).to(device)

        own = documents[there(batch.columns)]
        rows, width = batch.columns.shape
        allowed = self._allowed(batch, queries, own)
        # Query j and the positive of row i: what is no negative one way round is none the other way round.
        pairs = allowed[:, ::width]
        alone = allowed.view(rows, rows, width).diagonal(dim1=0, dim2=1).T
        taught: dict[str, Tensor] = {}
        if self._teacher_vectors is not None:
            found = self._teacher_vectors("document", batch.documents)
            taught = {
                "teacher_queries": there(self._teacher_vectors("query", batch.queries)),
                "teacher_documents": there(found[batch.columns]),
            }
        return losses.Inputs(
            queries=queries,
            documents=own,
            present=there(batch.present),
            negative=there(batch.negative) & alone,
            mask=there(batch.mask) & allowed,
            positives=there(batch.positives),
            query_mask=there(batch.query_mask) & pairs & pairs.T,
            reverse_mask=there(batch.reverse_mask) & pairs.T,
            labels=there(batch.labels),
            teacher=there(batch.teacher),
            **{"teacher_queries": None, "teacher_documents": None, **taught},
        )

    @torch.no_grad()
    def _allowed(self, batch: Batch, queries: Tensor, documents: Tensor) -> Tensor:
        """Which document of the batch no rule on scores takes for a positive of which query. (B, B*K)"""
        rows, width = batch.columns.shape
        mask = torch.ones(rows, rows * width, dtype=torch.bool, device=queries.device)
        if self._masks.margin is not None:
            scores = queries @ documents.reshape(-1, documents.shape[-1]).T
            own = torch.from_numpy(batch.present).to(mask.device)
            mask = masking.by_margin(mask, scores, own, self._masks.margin)
        if self._masks.guide is not None:
            guided = torch.from_numpy(self._masks.guide("query", batch.queries)).to(mask.device)
            judged = torch.from_numpy(self._masks.guide("document", batch.documents)).to(mask.device)
            columns = torch.from_numpy(batch.columns.reshape(-1)).to(mask.device)
            own = torch.from_numpy(batch.explicit).to(mask.device)
            mask = masking.by_guide(mask, guided @ judged[columns].T, own, self._masks.guide_margin)
        return mask

    def __call__(self, epoch: int, step: int, scale: float = 1.0) -> StepResult:
        batch = self.batcher.batch(epoch, step)
        query_chunks, query_counts = self._cut(batch.queries, "query")
        document_chunks, document_counts = self._cut(batch.documents, "document")
        cut = [*query_chunks, *document_chunks]
        numbers = {
            name: query_counts.get(name, 0) + document_counts.get(name, 0)
            for name in (*query_counts, *document_counts)
        }

        def loss(outputs: list[Tensor]) -> Tensor:
            queries = _in_order(outputs[: len(query_chunks)], query_chunks)
            documents = _in_order(outputs[len(query_chunks) :], document_chunks)
            inputs = self._inputs(batch, queries, documents)
            settings = self._objective.settings()
            value, parts = self._objective(inputs, settings)
            numbers.update(losses.curve(inputs, settings))
            if len(parts) > 1:
                numbers.update({name: float(part.detach()) for name, part in parts.items()})
            if isinstance(settings.temperature, Tensor):
                numbers["temperature"] = float(settings.temperature.detach())
            return value

        with sparse.tables(self._encoder.model):
            value = self._gradients(epoch, step, scale, cut, loss, numbers)
        return StepResult(value, numbers, batch.queries)

    def _gradients(
        self,
        epoch: int,
        step: int,
        scale: float,
        cut: list[_TextChunk],
        loss: Callable[[list[Tensor]], Tensor],
        numbers: dict[str, float],
    ) -> Tensor:
        return gradcache.step(
            self._encode,
            cut,
            [len(chunk.ids) for chunk in cut],
            loss,
            parameters=self._encoder.model.parameters(),
            seed=(self._seed, epoch, step),
            cached=self._graph_tokens is not None
            and numbers["padded"] > self._graph_tokens * self._processes.count,
            scale=scale,
            processes=self._processes,
            workers=self._workers,
            finish=lambda: sparse.to_dense(self._encoder.model),
        )


def _in_order(outputs: list[Tensor], cut: list[_TextChunk]) -> Tensor:
    """Join the outputs of chunks and put their rows back in the order of the texts."""
    places = torch.from_numpy(np.concatenate([chunk.places for chunk in cut]))
    return torch.cat(outputs)[torch.argsort(places).to(outputs[0].device)]
