"""The cross-encoder: order of scores, pairs of any length, batches that change nothing, scores kept on disk.

Breaks that turn a test red: which side is cut decided by the longest query of a chunk, chunks by length, the head
over all pairs of a chunk at once.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from embedtrain import inference
from embedtrain.errors import EmbedtrainError
from embedtrain.models import MINILM, ModelSource, find_model
from embedtrain.reranker import Reranker, doubts

QUERY = "Does vitamin D prevent influenza?"
DOCUMENTS = ["A trial of vitamin D.", "word " * 300, "Cells.", "A trial of vitamin D."]


@pytest.fixture(scope="module")
def teacher() -> Reranker:
    torch.set_num_threads(1)
    return Reranker.from_encoder(find_model(MINILM), seed=3, max_length=96)


def test_one_pair_gives_a_list_of_one_p30(teacher: Reranker) -> None:
    assert teacher.score([(QUERY, DOCUMENTS[0])]).shape == (1,)
    assert teacher.score([]).shape == (0,)


def test_scores_stand_in_the_order_of_the_pairs_p31(teacher: Reranker) -> None:
    pairs = [(QUERY, document) for document in DOCUMENTS]
    scores = teacher.score(pairs)
    assert np.array_equal(teacher.score(pairs[::-1]), scores[::-1])
    assert scores[0] == scores[3]
    assert len(set(scores[:3].tolist())) == 3


def test_neighbours_change_nothing_p34(teacher: Reranker) -> None:
    with torch.inference_mode():
        alone = [float(teacher.forward([(QUERY, document)])[0]) for document in DOCUMENTS]
        together = teacher.forward([(QUERY, document) for document in DOCUMENTS]).tolist()
    assert np.abs(np.subtract(alone, together)).max() < 1e-4


def test_neighbours_change_not_a_bit_of_a_kept_score(teacher: Reranker, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Reranker(teacher.model, teacher.source, 256)
    # Words of query and document: of pairs on both sides of 192 tokens, where attention on a CPU takes larger blocks,
    # of pairs that are cut, and of queries that leave less than a quarter, so that both sides are cut.
    words = [(1, 4), (1, 5), (5, 50), (20, 160), (3, 185), (3, 190), (3, 200), (150, 400), (195, 300), (230, 40)]
    pairs = [("vitamin " * query, "word " * document) for query, document in words]
    alone = [float(judge.score([pair], stored=False)[0]) for pair in pairs]
    for budget in (300, 100_000):
        monkeypatch.setattr(inference, "CPU_TOKENS", budget)
        assert judge.score(pairs[::-1], stored=False)[::-1].tolist() == alone


def test_the_longest_query_of_a_chunk_cuts_no_other_pair(teacher: Reranker) -> None:
    # 62 and 90 of 96 tokens with their frame: of the first pair only the document may be cut, of the second both.
    pairs = [("vitamin " * words, "word " * 300) for words in (60, 88, 60)]
    with torch.inference_mode():
        alone = [float(teacher.forward([pair])[0]) for pair in pairs]
        together = teacher.forward(pairs).tolist()
    assert np.abs(np.subtract(alone, together)).max() < 1e-5
    assert abs(alone[0] - alone[1]) > 1e-4


def test_only_the_document_is_cut_p32(teacher: Reranker, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    preprocess = teacher.model.preprocess

    def spy(*args, **kwargs):
        seen.append(preprocess(*args, **kwargs))
        return seen[-1]

    monkeypatch.setattr(teacher.model, "preprocess", spy)
    query = "vitamin " * 60  # 62 tokens with its frame: more than half of the 96
    with torch.inference_mode():
        teacher.forward([(query, "word " * 300)])
    ids = seen[0]["input_ids"][0]
    assert len(ids) == 96
    # Everything up to the first separator is the query: its 60 words and the opening token.
    assert int((ids == 102).nonzero()[0]) == 61


def test_scores_are_kept_for_this_teacher_and_this_length(
    teacher: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(QUERY, f"document number {n}") for n in range(3)]
    first = teacher.score(pairs)
    calls: list[int] = []
    forward = teacher.forward
    monkeypatch.setattr(
        teacher, "forward", lambda chunk, width=0: calls.append(len(chunk)) or forward(chunk, width=width)
    )
    assert np.array_equal(teacher.score(pairs), first)
    assert calls == []
    teacher.score([*pairs, (QUERY, "a new document")])
    assert calls == [1]
    other = Reranker(teacher.model, ModelSource(Path("x"), "x", "another hash"), 96)
    monkeypatch.setattr(
        other, "forward", lambda chunk, width=0: calls.append(len(chunk)) or forward(chunk, width=width)
    )
    other.score(pairs)
    assert sum(calls[1:]) == 3


def test_a_model_in_training_neither_reads_nor_fills_the_store(teacher: Reranker) -> None:
    pairs = [(QUERY, "a document scored while training")]
    before = teacher.score(pairs)
    weight = teacher.model.model.classifier.weight
    with torch.no_grad():
        kept = weight.clone()
        weight.mul_(3.0)
        try:
            assert teacher.score(pairs, stored=False) != before
            unseen = [(QUERY, "another document scored while training")]
            trained = teacher.score(unseen, stored=False)
        finally:
            weight.copy_(kept)
    assert teacher.score(pairs) == before
    assert teacher.score(unseen) != trained


def test_a_split_between_query_and_document_is_part_of_the_key(teacher: Reranker) -> None:
    scores = teacher.score([("a b", "c"), ("a", "b c")])
    assert scores[0] != scores[1]


def test_the_head_comes_from_the_seed_and_leaves_the_global_state_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one, two, three = (Reranker.from_encoder(find_model(MINILM), seed=seed, max_length=96) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    weights = [model.model.model.classifier.weight for model in (one, two, three)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_an_encoder_is_no_teacher_p33() -> None:
    with pytest.raises(EmbedtrainError, match="head would be random"):
        Reranker.load(find_model(MINILM))


def test_a_teacher_worse_than_the_retriever_is_doubted() -> None:
    doubt = doubts({"teacher": 0.63, "retriever": 0.88})
    assert doubt is not None
    assert "0.63 against 0.88" in doubt
    assert doubts({"teacher": 0.9, "retriever": 0.88}) is None
    assert doubts(None) is None
