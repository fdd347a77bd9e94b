"""Token counts that are kept between runs, and what a model does not read."""

import pytest

from embedtrain import truncation
from embedtrain.encoder import Encoder
from embedtrain.models import MINILM, find_model

TEXTS = ["Mouse cell", "", "zero-dimensional biomaterials", "Mouse cell", "word " * 300]


@pytest.fixture(scope="module")
def minilm() -> Encoder:
    return Encoder.load(find_model(MINILM))


def test_counts_are_those_of_the_tokenizer(minilm: Encoder) -> None:
    expected = minilm.token_lengths(TEXTS, "document").tolist()
    assert truncation.token_counts(minilm, TEXTS, "document").tolist() == expected
    assert truncation.cut(minilm, TEXTS, "document") == 1
    assert truncation.token_counts(minilm, [], "document").tolist() == []


def test_a_text_is_counted_once(minilm: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    lengths = minilm.token_lengths
    monkeypatch.setattr(minilm, "token_lengths", lambda texts, role: counted.extend(texts) or lengths(texts, role))
    first = truncation.token_counts(minilm, ["one new text", "one new text"], "document")
    again = truncation.token_counts(minilm, ["one new text", "and another"], "document")
    assert counted == ["one new text", "and another"]
    assert first[0] == first[1] == again[0]


def test_another_prompt_is_counted_anew(minilm: Encoder) -> None:
    before = truncation.token_counts(minilm, ["Mouse cell"], "query")
    prompted = Encoder.load(find_model(MINILM))
    prompted.set_prompts("search query: ", None)
    assert truncation.token_counts(prompted, ["Mouse cell"], "query") == before + 3
