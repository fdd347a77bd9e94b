"""Steps of a real model: the loss is that of plain encoding and the obvious formula, and training on it learns.

Deliberate breaks that turn a test here red: queries encoded as documents, vectors left in the order of their lengths,
the cached path encoding other texts, rows paired with other rows' documents, masks by score not applied.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from embedtrain import backbone, batching, loop, losses
from embedtrain.batching import Row
from embedtrain.collection import Collection
from embedtrain.config import FinetuneOptions
from embedtrain.console import silent
from embedtrain.encoder import Encoder
from embedtrain.models import MINILM, find_model
from embedtrain.steps import Masking, Steps
from embedtrain.tokenised import Tokenised

torch.set_num_threads(1)
CPU = torch.device("cpu")


def load() -> Encoder:
    return Encoder.load(find_model(MINILM), CPU)


def pairs(tiny: Path) -> tuple[Collection, list[Row]]:
    collection = Collection(tiny)
    positives = collection.positives("train")
    others = list(collection.corpus.ids)
    rows = [
        Row(query, tuple(documents), tuple(d for d in others[n : n + n % 4] if d not in documents))
        for n, (query, documents) in enumerate(positives.items())
    ]
    return collection, rows


def steps_of(
    encoder: Encoder,
    collection: Collection,
    rows: list[Row],
    *,
    batch_size: int = 8,
    tokens: int = 24,
    **more: object,
) -> Steps:
    objective = more.pop("objective", None) or losses.Objective(
        {"infonce": 1.0}, losses.Settings(temperature=0.05)
    )
    batcher = batching.Batcher(
        rows,
        batch_size=batch_size,
        negatives=3,
        start=batching.stream(0, "test"),
        text_of=collection.corpus.by_id,
        query_text_of=collection.queries.by_id,
    )
    return Steps(
        encoder,
        batcher,
        objective,  # type: ignore[arg-type]
        texts={"query": collection.queries.by_id, "document": collection.corpus.by_id},
        limits={"query": tokens, "document": tokens},
        seed=0,
        **{"graph_tokens": 1_000_000, **more},  # type: ignore[arg-type]
    )


def gradients(encoder: Encoder, steps: Steps) -> tuple[float, dict[str, torch.Tensor]]:
    encoder.model.zero_grad()
    result = steps(0, 0)
    found = {n: p.grad.clone() for n, p in encoder.model.named_parameters() if p.grad is not None}
    return float(result.loss), found


def test_the_loss_is_that_of_plain_encoding_and_the_obvious_loop(tiny: Path) -> None:
    collection, rows = pairs(tiny)
    encoder = load()
    steps = steps_of(encoder, collection, rows)
    batch = steps.batcher.batch(0, 0)
    encoder.model.max_seq_length = 24
    queries = encoder.model.encode_query([collection.queries.by_id(q) for q in batch.queries])
    documents = encoder.model.encode_document([collection.corpus.by_id(d) for d in batch.documents])
    total = 0.0
    for row, vector in enumerate(queries):
        scores = documents[batch.columns.reshape(-1)] @ vector / 0.05
        own = row * batch.columns.shape[1]
        shown = np.exp(scores[batch.mask[row]] - scores[own])
        total += float(np.log(shown.sum()))
    result = steps(0, 0)
    assert float(result.loss) == pytest.approx(total / len(queries), abs=1e-5)
    assert result.rows == batch.queries
    assert result.numbers["queries"] == 8
    assert result.numbers["documents"] == len(batch.documents)
    assert result.numbers["tokens"] <= result.numbers["padded"]


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_cached_equals_plain(tiny: Path, rate: float) -> None:
    collection, rows = pairs(tiny)
    encoder = load()
    loop.set_dropout(encoder.model, rate)
    plain = gradients(encoder, steps_of(encoder, collection, rows, graph_tokens=1_000_000))
    cached = gradients(encoder, steps_of(encoder, collection, rows, graph_tokens=1))
    assert cached[0] == pytest.approx(plain[0], abs=1e-6)
    assert cached[1].keys() == plain[1].keys()
    for name, gradient in cached[1].items():
        assert torch.allclose(gradient, plain[1][name], atol=1e-5), name


def test_gradient_checkpointing_changes_nothing_p44(tiny: Path) -> None:
    collection, rows = pairs(tiny)
    encoder = load()
    loop.set_dropout(encoder.model, 0.1)
    plain = gradients(encoder, steps_of(encoder, collection, rows))
    assert backbone.gradient_checkpointing(encoder) == 6
    for tokens in (1, 1_000_000):
        found = gradients(encoder, steps_of(encoder, collection, rows, graph_tokens=tokens))
        assert found[0] == pytest.approx(plain[0], abs=1e-5)
        for name, gradient in found[1].items():
            assert torch.allclose(gradient, plain[1][name], atol=1e-5), name


def test_texts_are_tokenised_once_and_as_encoding_does(tiny: Path) -> None:
    collection, _ = pairs(tiny)
    encoder = load()
    encoder.set_prompts(None, "passage: ")
    asked: list[str] = []

    def text_of(identifier: str) -> str:
        asked.append(identifier)
        return collection.corpus.by_id(identifier)

    texts = Tokenised(encoder, "document", 16, text_of)
    ids = list(collection.corpus.ids[:9])
    read, whole = texts.measure(ids)
    assert read.max() == 16
    assert (whole > 16).any()
    for part in (ids[:4], ids[4:], ids):
        expected = encoder.features([collection.corpus.by_id(i) for i in part], "document", 16)
        found = texts.features(part)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(found[name], value), name
    assert sorted(asked) == sorted(ids)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_is_near_float32(tiny: Path, precision: str) -> None:
    collection, rows = pairs(tiny)
    encoder = load()
    exact = gradients(encoder, steps_of(encoder, collection, rows, batch_size=4, tokens=12))
    half = gradients(encoder, steps_of(encoder, collection, rows, batch_size=4, tokens=12, precision=precision))
    assert half[0] != exact[0]
    assert half[0] == pytest.approx(exact[0], rel=0.1)
    together = [torch.cat([g.reshape(-1) for _, g in sorted(found[1].items())]) for found in (exact, half)]
    assert float(nn.functional.cosine_similarity(*together, dim=0)) > 0.98
    assert all(g.dtype == torch.float32 for g in half[1].values())


def test_a_guide_and_a_margin_take_candidates_away(tiny: Path) -> None:
    collection, rows = pairs(tiny)
    encoder = load()
    plain = steps_of(encoder, collection, rows)(0, 0).numbers["candidates"]
    # A margin of -2 hides every document of another row; its own negatives stay.
    margin = steps_of(encoder, collection, rows, masks=Masking(margin=-2.0))(0, 0).numbers["candidates"]
    batch = steps_of(encoder, collection, rows).batcher.batch(0, 0)
    own = [batch.mask[i].reshape(8, -1)[i].sum() for i in range(8)]
    assert margin == pytest.approx(np.mean(own))
    assert margin < plain

    def guide(role: str, ids: Sequence[str]) -> NDArray[np.float32]:
        # One direction for all: everything ties with the positive, and a tie stays.
        return np.ones((len(ids), 2), dtype=np.float32)

    tied = steps_of(encoder, collection, rows, masks=Masking(guide=guide))(0, 0).numbers["candidates"]
    assert tied == plain
    strict = Masking(guide=guide, guide_margin=0.5)
    assert steps_of(encoder, collection, rows, masks=strict)(0, 0).numbers["candidates"] == 1


def test_what_a_guide_hides_is_hidden_in_every_direction(tiny: Path) -> None:
    collection, rows = pairs(tiny)
    rows = [Row(row.query_id, row.positives, row.negatives) for row in rows]

    def guide(role: str, ids: Sequence[str]) -> NDArray[np.float32]:
        return np.ones((len(ids), 2), dtype=np.float32)

    both = losses.Settings(temperature=0.05, directions=("q2d", "d2q", "q2q", "d2d"), margin=2.0)
    for masks, least in ((Masking(), 0.1), (Masking(guide=guide, guide_margin=0.5), None)):
        for name in ("infonce", "triplet"):
            steps = steps_of(load(), collection, rows, masks=masks, objective=losses.Objective({name: 1.0}, both))
            value = float(steps(0, 0).loss)
            # Everything is hidden: each positive stands alone, and nothing is pushed away.
            assert value > least if least else value == pytest.approx(0.0, abs=1e-6), name


def test_prompts_are_put_before_every_text_once_p55(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collection, rows = pairs(tiny)
    encoder = load()
    encoder.set_prompts("query: ", "passage: ")
    seen: dict[str, list[str]] = {"query": [], "document": []}
    tokenizer = encoder.model.tokenizer
    called = type(tokenizer).__call__

    def spy(self: object, texts: list[str], *args: object, **more: object) -> object:
        texts = [texts] if isinstance(texts, str) else texts
        kind = "query" if all(text.startswith("query: ") for text in texts) else "document"
        seen[kind] += [text for text in texts if text != "query: " and text != "passage: "]  # measured alone
        return called(self, texts, *args, **more)

    monkeypatch.setattr(type(tokenizer), "__call__", spy)
    steps_of(encoder, collection, rows)(0, 0)
    assert len(set(seen["query"])) == 8
    for kind, prompt in (("query", "query: "), ("document", "passage: ")):
        assert seen[kind]
        assert all(text.startswith(prompt) and not text.startswith(prompt * 2) for text in seen[kind])


def accuracy(encoder: Encoder, collection: Collection, rows: list[Row]) -> float:
    """Share of queries nearer to their document than to any other row's."""
    queries = encoder.encode([collection.queries.by_id(r.query_id) for r in rows], "query", stored=False)[:]
    texts = [collection.corpus.by_id(r.positives[0]) for r in rows]
    documents = encoder.encode(texts, "document", stored=False)[:]
    return float(((queries @ documents.T).argmax(1) == np.arange(len(rows))).mean())


def learn(tiny: Path, tmp_path: Path, rows: list[Row], epochs: float) -> tuple[Encoder, loop.Curve, Collection]:
    collection = Collection(tiny)
    encoder = load()
    encoder.model.max_seq_length = 24  # measured on what it was trained on
    options = FinetuneOptions(learning_rate=2e-4, epochs=epochs, warmup=0.0)
    steps = steps_of(encoder, collection, rows)
    curve = loop.run(
        encoder.model,
        steps,
        options,  # type: ignore[arg-type]
        what="learn",
        steps_per_epoch=steps.per_epoch,
        workspace=tmp_path / "work",
        progress=silent,
    )
    return encoder, curve, collection


def test_a_few_pairs_are_learned_by_heart(tiny: Path, tmp_path: Path) -> None:
    # Queries are paired with wrong documents: only training on these very pairs can bring them together.
    positives = Collection(tiny).positives("train")
    owner = {documents[0]: query for query, documents in reversed(positives.items())}
    documents = list(owner)[:8]
    queries = [owner[document] for document in documents]
    rows = [Row(q, (documents[(i + 1) % 8],)) for i, q in enumerate(queries)]
    encoder, curve, collection = learn(tiny, tmp_path, rows, epochs=25)
    assert (curve.steps[0]["loss"] or 0) > 2.0
    assert curve.last_loss < 0.05
    assert accuracy(encoder, collection, rows) == 1.0


def test_shuffled_labels_do_not_beat_chance_elsewhere(tiny: Path, tmp_path: Path) -> None:
    # Trained on wrong pairs of eight queries, the model does not find the right documents of those queries.
    positives = Collection(tiny).positives("train")
    owner = {documents[0]: query for query, documents in reversed(positives.items())}
    documents, queries = list(owner)[8:16], [owner[document] for document in list(owner)[8:16]]
    rows = [Row(query, (documents[(i + 1) % 8],)) for i, query in enumerate(queries)]
    right = [Row(query, (documents[i],)) for i, query in enumerate(queries)]
    encoder, _, collection = learn(tiny, tmp_path, rows, epochs=25)
    assert accuracy(encoder, collection, right) <= 2 / 8
