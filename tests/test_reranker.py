"""The cross-encoder: order of scores, pairs of any length, batches that change nothing, scores kept on disk.

Breaks that turn a test red: which side is cut decided by the longest query of a chunk, chunks by length, the head
over all pairs of a chunk at once.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from embedtrain import inference
from embedtrain.errors import EmbedtrainError
from embedtrain.models import MINILM, ModelSource, find_model
from embedtrain.reranker import Pair, Reranker

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


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_neighbours_change_not_a_bit_of_a_kept_score_p34(
    teacher: Reranker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, precision: str
) -> None:
    # So no decision on a score can depend on what was scored beside it, in whatever format and by whatever margin.
    teacher.save(tmp_path / "teacher")
    judge = Reranker.load(find_model(str(tmp_path / "teacher")), wanted=precision)
    judge.max_length = 256
    assert judge.precision == precision
    # Words of query and document: of pairs on both sides of 192 tokens, where attention on a CPU takes larger blocks,
    # of pairs that are cut, and of queries that leave less than a quarter, so that both sides are cut.
    words = [(1, 4), (1, 5), (5, 50), (20, 160), (3, 185), (3, 190), (3, 200), (150, 400), (195, 300), (230, 40)]
    pairs = [("vitamin " * query, "word " * document) for query, document in words]

    def by_themselves() -> list[float]:
        return [float(judge.score([pair], stored=False)[0]) for pair in pairs]

    alone = by_themselves()
    for budget in (300, 1_000, 100_000):
        monkeypatch.setattr(inference, "CPU_TOKENS", budget)
        if inference.sizes_matter(judge.device):  # chunks have one size, and the budget is part of it
            if budget > 1_000:
                continue
            alone = by_themselves()
        assert judge.score(pairs[::-1], stored=False)[::-1].tolist() == alone


def test_the_longest_query_of_a_chunk_cuts_no_other_pair(teacher: Reranker) -> None:
    # Of the first pair only the document may be cut, of the second both: 96 - 3 - 24 = 69 tokens are left to a query.
    pairs = [("vitamin " * words, "word " * 300) for words in (60, 88, 60)]
    with torch.inference_mode():
        alone = [float(teacher.forward([pair])[0]) for pair in pairs]
        together = teacher.forward(pairs).tolist()
    assert np.abs(np.subtract(alone, together)).max() < 1e-5
    assert abs(alone[0] - alone[1]) > 1e-4


def sides(judge: Reranker, query: str, document: str) -> tuple[int, int]:
    """Tokens of query and document that the model sees of a pair, without the three around them."""
    ids = judge.features([(query, document)])["input_ids"][0].tolist()
    first, last = (place for place, token in enumerate(ids) if token == judge.model.tokenizer.sep_token_id)
    return first - 1, last - first - 1


def test_the_document_is_cut_before_the_query_p32(teacher: Reranker) -> None:
    judge = Reranker(teacher.model, teacher.source, 512)
    pair = ("vitamin " * 260, "word " * 500)
    assert sides(judge, *pair) == (260, 249)
    found = judge.cut([pair, pair])
    assert (found.pairs, found.documents, found.queries, found.longest) == (1, 1, 0, 763)
    assert str(found) == "1 documents and 0 queries of 1 pairs at 512 tokens, longest 763"
    # More than three quarters of the limit, and still whole; whole too beside a document that is as short as this.
    assert sides(judge, "vitamin " * 477, "word " * 500) == (477, 32)
    assert sides(judge, "vitamin " * 500, "word " * 5) == (500, 5)
    # Only what would leave the document nothing is cut, from the end.
    assert sides(judge, "vitamin " * 600, "word " * 500) == (477, 32)
    assert sides(judge, "vitamin " * 600, "word " * 5) == (504, 5)
    found = judge.cut([("vitamin " * 600, "word " * 5)])
    assert (found.documents, found.queries) == (0, 1)
    ids = judge.features([("cells " + "vitamin " * 600, "word")])["input_ids"][0]
    assert ids[1] == judge.model.tokenizer("cells")["input_ids"][1]


def test_a_pair_that_fits_is_not_cut(teacher: Reranker) -> None:
    assert sides(teacher, "vitamin " * 90, "word " * 3) == (90, 3)
    assert sides(teacher, "vitamin " * 2, "word " * 91) == (2, 91)
    assert teacher.cut([("vitamin " * 90, "word " * 3), (QUERY, "Cells.")]).documents == 0


def test_scores_are_kept_for_this_teacher_and_this_length(
    teacher: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(QUERY, f"document number {n}") for n in range(3)]
    first = teacher.score(pairs)
    calls: list[int] = []
    padded = teacher.padded

    def watch(chunk: list[Pair], width: int) -> dict[str, Any]:
        calls.append(len(set(chunk)))  # it may be filled up with copies
        return padded(chunk, width)

    monkeypatch.setattr(teacher, "padded", watch)
    assert np.array_equal(teacher.score(pairs), first)
    assert calls == []
    teacher.score([*pairs, (QUERY, "a new document")])
    assert calls == [1]
    other = Reranker(teacher.model, ModelSource(Path("x"), "x", "another hash"), 96)
    monkeypatch.setattr(other, "padded", watch)
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


def test_a_head_that_is_not_in_the_checkpoint_p33(teacher: Reranker, tmp_path: Path) -> None:
    teacher.save(tmp_path / "whole")
    assert Reranker.load(find_model(str(tmp_path / "whole"))).score([(QUERY, "Cells.")]) == pytest.approx(
        teacher.score([(QUERY, "Cells.")]), abs=1e-5
    )
    weights = load_file(tmp_path / "whole" / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("classifier.")}
    assert len(kept) == len(weights) - 2
    save_file(kept, tmp_path / "whole" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EmbedtrainError, match=r"no trained head: classifier\.bias, classifier\.weight are not in"):
        Reranker.load(find_model(str(tmp_path / "whole")))


def test_bfloat16_keeps_scores_apart_p29(teacher: Reranker, tmp_path: Path) -> None:
    teacher.save(tmp_path / "whole")
    judge = Reranker.load(find_model(str(tmp_path / "whole")), wanted="bfloat16")
    assert judge.precision == "bfloat16"
    inner = judge.model.model
    assert next(inner.base_model.parameters()).dtype == torch.bfloat16
    assert inner.classifier.weight.dtype == torch.float32
    pairs = [(QUERY, f"{document} {n}") for n in range(10) for document in DOCUMENTS[:3]]
    found, exact = judge.score(pairs), teacher.score(pairs)
    assert found.dtype == np.float32
    assert np.abs(found - exact).max() < 0.05 * float(exact.std()) + 0.01
    # A head in bfloat16 has 8 bits: of logits like these next to all would be numbers of three digits.
    assert (found.view(np.uint32) & 0xFFFF).any()


def test_a_logit_head_tells_seven_from_nine_in_bfloat16_p29(teacher: Reranker, tmp_path: Path) -> None:
    teacher.save(tmp_path / "whole")
    judge = Reranker.load(find_model(str(tmp_path / "whole")), wanted="bfloat16")
    with torch.no_grad():
        judge.model.model.classifier.weight.zero_()
        scores = []
        for logit in (7.0, 9.0, 9.01):
            judge.model.model.classifier.bias.fill_(logit)
            scores.append(float(judge.score([(QUERY, "Cells.")], stored=False)[0]))
    assert scores == pytest.approx([7.0, 9.0, 9.01], abs=1e-6)
