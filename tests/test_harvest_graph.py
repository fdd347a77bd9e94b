"""Citations: what cites finds what is cited, by the citing text or by its title; the rest is counted.

Deliberate breaks that turn a test red: target -> source; the source's text as the query; a document that cites itself kept;
unknown ids dropped without a count; a blank citing text as a query.
"""

import json
from pathlib import Path

import pytest
from test_harvest_table import dropped, found, notes, write_rows

from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest.tables.pairs import Found, Pair


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    rows = [
        {"_id": "1", "title": "On cats", "text": "They purr."},
        {"_id": "2", "title": "", "text": "No title."},
        {"_id": "3", "title": "On dogs", "text": "They bark."},
        {"_id": "4", "title": " ", "text": ""},
    ]
    return write_rows(tmp_path / "papers.jsonl", rows)


def pairs(items: list[Found]) -> list[tuple[str, str, str]]:
    return [(item.query, item.document.id, item.source) for item in items if isinstance(item, Pair)]


def test_citations_by_hand(tmp_path: Path, papers: Path) -> None:
    rows = [
        {"source": 1, "target": "3", "text": "As dogs do [3], cats"},
        {"source": "1", "target": "2", "text": " "},
        {"target": "1", "source": "3"},
        {"source": "2", "target": "1"},
        {"source": "2", "target": "1", "text": "cats [1]"},
        {"source": "3", "target": "3", "text": "myself"},
        {"source": "1", "target": "9"},
        {"source": "8", "target": "1"},
        {"source": "8", "target": "1", "text": "from elsewhere"},
        {"source": "1", "target": "4"},
    ]
    items = found(write_rows(tmp_path / "t.jsonl", rows), collection=papers)
    assert pairs(items) == [
        ("As dogs do [3], cats", "3", "citation"),
        ("On cats", "2", "citation"),
        ("On dogs", "1", "citation"),
        ("cats [1]", "1", "citation"),
        ("from elsewhere", "1", "citation"),
    ]
    assert dropped(items) == {
        "citing document without a title": 1,
        "document that cites itself": 1,
        "unknown document id": 2,
        "empty document": 1,
    }
    assert "t.jsonl is recognised as graph" in notes(items)
    assert "2 rows of t.jsonl name a document that is not in papers.jsonl: 9, 8" in notes(items)


def test_other_names_time_and_weight(tmp_path: Path, papers: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("year,cited,citing\n1970-01-01T00:00:09Z,3,1\n")
    flags = {
        "shape": "graph",
        "query_column": "citing",
        "document_column": "cited",
        "time_column": "year",
        "weight": 2.0,
    }
    (pair, *_) = found(path, collection=papers, **flags)
    assert isinstance(pair, Pair)
    assert (pair.query, pair.document, pair.time, pair.weight) == (
        "On cats",
        ("On dogs", "They bark.", "3"),
        9.0,
        2.0,
    )


def test_a_graph_needs_texts(tmp_path: Path, papers: Path) -> None:
    path = write_rows(tmp_path / "t.jsonl", [{"source": "1", "target": "2"}])
    with pytest.raises(UsageError, match="a graph holds ids; say of what with --texts"):
        found(path, shape="graph")
    path.write_text(json.dumps({"source": "1"}) + "\n")
    with pytest.raises(EmbedtrainError, match=r"t\.jsonl line 1 has no column 'target'"):
        found(path, shape="graph", collection=papers)
    path.write_text(json.dumps({"source": None, "target": "1"}) + "\n")
    with pytest.raises(EmbedtrainError, match=r"t\.jsonl line 1 column source is None; an id is a string"):
        found(path, collection=papers)
