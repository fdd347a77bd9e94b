"""The model card: a header the hub reads, how to load, lineage, settings, results and the base model's licence.

Breaks that turn a test red: the licence left out; a local folder given as the hub's base model; a header that is no
YAML; a card that names the machine's folder.
"""

import types
from pathlib import Path
from typing import Any

import yaml

from embedtrain import card
from embedtrain.artifacts import Input
from embedtrain.card import Base
from embedtrain.models import MINILM, ModelSource, find_model

ABOUT = {"pooling": "mean", "query prompt": "'query: '"}
SUMMARY = {"rows": 40, "kept_epoch": 2, "notes": ["one note"]}


def claim(kind: str = "model") -> Any:
    inputs = [Input("collection", Path("/home/me/data"), "data", "ab" * 32)]
    return types.SimpleNamespace(kind=kind, stage="finetune", inputs=inputs, options={"epochs": 3}, seed=7)


def header(text: str) -> dict[str, Any]:
    start, front, _ = text.split("---\n", 2)
    assert start == ""
    return yaml.safe_load(front)


def test_a_card_says_all_that_made_the_model() -> None:
    base = Base.of(find_model(MINILM))
    text = card.model_card(claim(), SUMMARY, base=base, about=ABOUT, results={"nDCG@10 (dev)": 0.71})
    assert header(text) == {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["embedtrain", "sentence-transformers"],
        "license": "apache-2.0",
        "base_model": MINILM,
    }
    for line in (
        "# model made by `embedtrain finetune`",
        'model = SentenceTransformer("PATH")',
        "queries = model.encode_query([",
        "- pooling: mean",
        "- query prompt: 'query: '",
        f"- collection: data (sha256 {'ab' * 6})",
        "- kept epoch: 2",
        "- one note",
        ' "epochs": 3,',
        ' "seed": 7',
        "- nDCG@10 (dev): 0.71",
        f"The weights were trained from {MINILM}, whose card names the licence apache-2.0.",
    ):
        assert line in text.splitlines() or line in text, line
    assert "/home/me" not in text
    assert "\n\n\n" not in text


def test_a_teachers_card_needs_none_of_it() -> None:
    text = card.model_card(claim("teacher"), {"rows": 3})
    assert header(text)["pipeline_tag"] == "text-ranking"
    assert "CrossEncoder" in text
    assert "Licence" not in text


def written(folder: Path, text: str) -> ModelSource:
    folder.mkdir()
    (folder / "README.md").write_text(text, "utf-8")
    return ModelSource(folder, f"runs/{folder.name}", "0")


def test_the_base_of_the_base_is_passed_on(tmp_path: Path) -> None:
    """A folder here is no model of the hub: the card names the one its own base's card names."""
    first = card.model_card(claim(), SUMMARY, base=Base.of(find_model(MINILM)))
    base = Base.of(written(tmp_path / "first", first))
    assert not base.hub
    found = header(card.model_card(claim(), SUMMARY, base=base))
    assert (found["license"], found["base_model"]) == ("apache-2.0", MINILM)
    text = written(tmp_path / "second", "---\nlicense: other\nlicense_name: gemma\nbase_model: [a/b]\n---\n")
    assert Base.of(text).header == {"license": "other", "license_name": "gemma", "base_model": "a/b"}
    assert "names the licence gemma" in Base.of(text).licence


def test_a_card_without_a_licence_says_so(tmp_path: Path) -> None:
    for number, text in enumerate(
        ("", "# no header", "---\na: [1\n---\n", "---\njust text\n---\n", "---\nno end")
    ):
        base = Base.of(written(tmp_path / str(number), text))
        assert base.said == {}
        assert (
            base.licence == f"The card of runs/{number}, from whose weights these were trained, names no licence."
        )
    assert Base.of(ModelSource(tmp_path, "nowhere", "0")).header == {}
