"""Tables: every shape gives its pairs, whatever the order of columns; every drop has a reason; errors name the row.

Deliberate breaks that turn a test red: taking columns by position; reading only the first positive; parsing lists in the
column `positive`; neutral as a negative; `label` 0 as a positive; dropping negatives silently where they repeat a positive;
a title column that is the query; scores as weights without a minimum; a naive time in the local zone; numbers as ids;
counting blank lines twice; a row's family decided anew for each row; bad lines that never end the run.
"""

import datetime
import io
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import SHARED, write_collection
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain import readers
from embedtrain.collection import is_blank
from embedtrain.console import silent
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest import tables as table
from embedtrain.harvest.draft import Draft
from embedtrain.harvest.tables import cells
from embedtrain.harvest.tables.lookup import Lookup
from embedtrain.harvest.tables.pairs import Drop, Found, Note, Pair
from embedtrain.harvest.tables.settings import Settings

Rows = Iterable[dict[str, Any]]


def write_rows(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


class Options:
    """The flags of a harvest that a table reads; those that are not given have their defaults."""

    def __init__(self, **flags: Any) -> None:
        self.__dict__ |= flags


def found(path: Path, **flags: Any) -> list[Found]:
    options = Settings.of(Options(**flags))
    lookup = Lookup(Path(options.collection)) if options.collection else None
    return list(table.found(str(path), readers.files(path), options, lookup, silent))


def of_rows(tmp_path: Path, *rows: dict[str, Any], **flags: Any) -> list[Found]:
    return found(write_rows(tmp_path / "t.jsonl", rows), **flags)


def judged(items: list[Found]) -> list[tuple[str, str, float]]:
    """(query, document, grade)"""
    return [(i.query, i.document.text, i.grade) for i in items if isinstance(i, Pair)]


def dropped(items: list[Found]) -> dict[str, int]:
    return Counter(item.reason for item in items if isinstance(item, Drop))


def notes(items: list[Found]) -> list[str]:
    return [item.text for item in items if isinstance(item, Note)]


def refused(tmp_path: Path, *rows: dict[str, Any], match: str, **flags: Any) -> None:
    with pytest.raises(EmbedtrainError, match=match):
        of_rows(tmp_path, *rows, **flags)


# -- shapes ------------------------------------------------------------------------------------------------------

SHAPES: list[tuple[str, dict[str, Any], list[tuple[str, str, float]]]] = [
    ("pairs", {"query": "q", "document": "d"}, [("q", "d", 1)]),
    ("pairs", {"question": "q", "answer": "d"}, [("q", "d", 1)]),
    ("triplets", {"anchor": "q", "positive": "p", "negative": "n"}, [("q", "p", 1), ("q", "n", 0)]),
    (
        "lists",
        {"anchor": "q", "positive": "p", "negative_10": "n10", "negative_2": "n2", "negative_1": "n1"},
        [("q", "p", 1), ("q", "n1", 0), ("q", "n2", 0), ("q", "n10", 0)],
    ),
    (
        "lists",
        {"query": "q", "pos": ["a", "b"], "neg": ["n"], "prompt": "find"},
        [("q", "a", 1), ("q", "b", 1), ("q", "n", 0)],
    ),
    (
        "lists",
        {
            "query_id": "7",
            "query": "q",
            "positive_passages": [{"docid": "1", "title": "", "text": "a"}],
            "negative_passages": [{"docid": "2", "title": "", "text": "n"}],
        },
        [("q", "a", 1), ("q", "n", 0)],
    ),
    ("labelled", {"query": "q", "documents": ["a", "b", "c"], "labels": [2, 0, -1]}, [("q", "a", 2), ("q", "b", 0), ("q", "c", 0)]),
    ("graded", {"query": "q", "document": "d", "label": 0}, [("q", "d", 0)]),
    ("graded", {"query": "q", "document": "d", "relevance": "2"}, [("q", "d", 2)]),
    ("nli", {"premise": "q", "hypothesis": "d", "label": "Contradiction"}, [("q", "d", 0)]),
    ("nli", {"sentence1": "q", "sentence2": "d", "gold_label": "entailment", "label": "x"}, [("q", "d", 1)]),
    ("duplicates", {"id": "3", "question1": "q", "question2": "d", "is_duplicate": "1"}, [("q", "d", 1)]),
    ("duplicates", {"question1": "q", "question2": "d", "is_duplicate": False}, [("q", "d", 0)]),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "row", "expected"), SHAPES)
def test_shapes_are_told_by_names_and_p14_never_by_order(
    tmp_path: Path, shape: str, row: dict[str, Any], expected: list[tuple[str, str, float]]
) -> None:
    turned = dict(reversed(row.items()))
    assert judged(of_rows(tmp_path, row)) == judged(of_rows(tmp_path, turned)) == expected
    assert judged(of_rows(tmp_path, row, shape=shape if shape != "triplets" else "lists")) == expected
    said = [note for note in notes(of_rows(tmp_path, row)) if "recognised" in note]
    assert said == ([] if shape == "pairs" else [f"t.jsonl is recognised as {shape}"])


def test_p14_an_id_first_and_columns_of_no_use(tmp_path: Path) -> None:
    one = of_rows(tmp_path, {"query": "q", "positive": "p"})
    two = of_rows(tmp_path, {"positive": "p", "id": "7", "query": "q"})
    assert judged(one) == judged(two) == [("q", "p", 1)]
    assert notes(two) == ["columns of t.jsonl that are not read: id"]
    refused(
        tmp_path,
        {"query": "q", "positive": "p"},
        {"positive": "p"},
        match=r"t\.jsonl line 2 has no column 'query'",
    )
    refused(
        tmp_path,
        {"q": "q"},
        match="its columns are: q; say which to read with --query-column and --document-column$",
    )
    refused(tmp_path, {"query": "q", "document_id": "7"}, match="if it holds ids, say of what with --texts")


def test_p10_every_positive_is_read(tmp_path: Path) -> None:
    items = of_rows(tmp_path, {"query": "q", "positives": ["a", "b", "c"], "negatives": ["m", "n"]})
    assert judged(items) == [("q", "a", 1), ("q", "b", 1), ("q", "c", 1), ("q", "m", 0), ("q", "n", 0)]
    columns = of_rows(tmp_path, {"q": "q", "x": "a", "y": "b", "z": "n"}, query_column="q", document_column=("x", "y"),
                      negative_column=("z",))  # fmt: skip
    assert judged(columns) == [("q", "a", 1), ("q", "b", 1), ("q", "n", 0)]


def test_p11_lists_of_any_length(tmp_path: Path) -> None:
    rows = [
        {"query": "q1", "positive": "p1", "negatives": ["n1", "n2"]},
        {"query": "q2", "positive": "p2", "negatives": []},
        {"query": "q3", "positive": "p3", "negatives": ["n3"]},
        {"query": "q4", "positive": "p4", "negatives": None},
        {"query": "q5", "positive": "p5"},
        {"query": "q6", "pos": [], "neg": ["n"]},
        {"query": "q7", "pos": ["p7", None, ""], "neg": ["P7", "p7", " p7 "]},
    ]
    items = of_rows(tmp_path, *rows)
    assert judged(items) == [
        ("q1", "p1", 1), ("q1", "n1", 0), ("q1", "n2", 0), ("q2", "p2", 1), ("q3", "p3", 1), ("q3", "n3", 0),
        ("q4", "p4", 1), ("q5", "p5", 1), ("q7", "p7", 1), ("q7", "P7", 0),
    ]  # fmt: skip
    assert dropped(items) == {"row without a positive": 1, "empty document": 2, "negative that is a positive": 2}


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet", "t.arrow"])
def test_lists_in_cells_as_lists_and_as_json(tmp_path: Path, name: str) -> None:
    columns = {
        "query": ["q", "r", "s"],
        "pos": ['["a", "b"]', "[1] is a note", '[ "c"]'],
        "neg": ['["n"]', "[]", ""],
    }
    path = tmp_path / name
    made = pa.table(columns)
    if name == "t.parquet":
        lists = {
            "query": columns["query"],
            "pos": [["a", "b"], ["[1] is a note"], ["c"]],
            "neg": [["n"], [], None],
        }
        pq.write_table(pa.table(lists), path)
    elif name == "t.arrow":
        with pa.ipc.new_stream(path, made.schema) as writer:
            writer.write_table(made)
    else:
        mark = "," if name == "t.csv" else "\t"
        lines = [
            mark.join('"' + str(value).replace('"', '""') + '"' for value in row)
            for row in zip(*columns.values(), strict=True)
        ]
        path.write_text("\n".join([mark.join(columns), *lines]) + "\n", "utf-8")
    assert judged(found(path)) == [
        ("q", "a", 1), ("q", "b", 1), ("q", "n", 0), ("r", "[1] is a note", 1), ("s", "c", 1),
    ]  # fmt: skip


def test_a_text_that_looks_like_a_list_is_a_text_where_a_text_belongs(tmp_path: Path) -> None:
    row = {"query": '["q"]', "positive": '["a"]', "negative": "[]"}
    assert judged(of_rows(tmp_path, row)) == [('["q"]', '["a"]', 1), ('["q"]', "[]", 0)]


@pytest.mark.parametrize("reverse", [False, True])
def test_p89_optional_columns_may_come_late(tmp_path: Path, reverse: bool) -> None:
    rows: list[dict[str, Any]] = [{"query": f"a{n}", "document": f"b{n}", "negatives": None} for n in range(3_000)]
    rows.append({"query": "z", "document": "y", "negatives": ["x"], "note": "n"})
    rows.append({"query": "w", "document": "v"})
    items = found(write_rows(tmp_path / "t.jsonl", rows[::-1] if reverse else rows))
    assert sorted(judged(items)) == sorted(
        [(f"a{n}", f"b{n}", 1.0) for n in range(3_000)] + [("z", "y", 1.0), ("z", "x", 0.0), ("w", "v", 1.0)]
    )
    assert "columns of t.jsonl that are not read: note" in notes(items)
    refused(
        tmp_path,
        *rows[:2],
        {"query": "q", "document": 7},
        match=r"t\.jsonl line 3 column document is int, not text",
    )


def test_rows_of_two_kinds_in_one_file(tmp_path: Path) -> None:
    rows = [{"query": "q", "document": "d"}, {"query": "q", "document": "e", "label": 0}]
    match = r"t\.jsonl line 2 has the columns of graded where .* line 1 has those of pairs; say with --shape"
    refused(tmp_path, *rows, match=match)
    assert judged(of_rows(tmp_path, *rows, shape="pairs")) == [("q", "d", 1), ("q", "e", 1)]


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (
            {"query": "q", "document": "d", "label": "billing"},
            r"column label is 'billing'; a grade .*--shape pairs",
        ),
        ({"query": "q", "document": "d", "label": 0.7}, "not a grade; scores are read with --score-column"),
        ({"question1": "q", "question2": "d", "is_duplicate": 2}, "column is_duplicate is 2, not a grade"),
        (
            {"premise": "q", "hypothesis": "d", "label": 3},
            "column label is 3; entailment, neutral and contradiction",
        ),
        ({"premise": "q", "hypothesis": "d", "label": True}, "column label is True; entailment"),
        ({"query": "q", "documents": ["d"], "labels": [1, 0]}, "column labels has 2 labels for 1 documents"),
        ({"query": "q", "documents": ["d"], "labels": [0.5]}, "holds 0.5, a score; .*--min-score"),
        ({"query": "q", "pos": ["d"], "neg": [], "pos_scores": [1, 2]}, "pos_scores has 2 scores for 1 documents"),
        ({"query": "q", "pos": [{"docid": "1"}], "neg": []}, "is an object without a text; its fields are: docid"),
        ({"query": ["q"], "document": "d"}, "column query is list, not text"),
    ],
)
def test_cells_that_say_nothing_are_errors_that_name_the_row(
    tmp_path: Path, row: dict[str, Any], match: str
) -> None:
    refused(tmp_path, {}, row, match=match) if False else refused(
        tmp_path, row, match=rf"t\.jsonl line 1 .*{match}"
    )


def test_nli_drops_what_says_nothing(tmp_path: Path) -> None:
    rows = [
        {"premise": f"p{n}", "hypothesis": f"h{n}", "label": label}
        for n, label in enumerate([0, "1", 2.0, "ENTAILMENT ", "-", -1, None])
    ]
    items = of_rows(tmp_path, *rows)
    assert judged(items) == [("p0", "h0", 1), ("p2", "h2", 0), ("p3", "h3", 1)]
    assert dropped(items) == {"neutral": 1, "without a gold label": 3}
    assert {item.source for item in items if isinstance(item, Pair)} == {"nli"}


def test_titles(tmp_path: Path) -> None:
    items = of_rows(
        tmp_path, {"query": "q", "document": "d", "title": " t "}, {"query": "r", "document": "e", "title": None}
    )
    assert [item.document[:2] for item in items if isinstance(item, Pair)] == [(" t ", "d"), ("", "e")]
    # title -> abstract: a title that is the query is not its document's as well.
    (pair,) = of_rows(tmp_path, {"title": "t", "abstract": "a"}, query_column="title", document_column="abstract")
    assert isinstance(pair, Pair)
    assert (pair.query, pair.document) == ("t", ("", "a", ""))


def test_queries_of_several_columns(tmp_path: Path) -> None:
    rows = [{"a": "x", "b": " ", "c": "z", "d": "doc"}, {"a": None, "b": "", "c": "", "d": "doc"}]
    items = of_rows(tmp_path, *rows, query_column="a,b,c", document_column="d")
    assert (judged(items), dropped(items)) == ([("x z", "doc", 1)], {"empty query": 1})
    assert judged(of_rows(tmp_path, {"a,b": "x", "d": "y"}, query_column="a,b", document_column="d")) == [
        ("x", "y", 1)
    ]


def test_scored_pairs(tmp_path: Path) -> None:
    rows = [{"query": f"q{n}", "document": f"d{n}", "s": s} for n, s in enumerate([5, "3.5", 3, 1, 0, None])]
    flags: dict[str, Any] = {"score_column": "s", "min_score": 3.0, "weight": 2.0}
    items = of_rows(tmp_path, *rows, **flags)
    weights = [(item.query, item.grade, item.weight) for item in items if isinstance(item, Pair)]
    assert weights == [("q0", 1, 10.0), ("q1", 1, 7.0), ("q2", 1, 6.0)]
    assert dropped(items) == {"score below --min-score": 2, "without a score": 1}
    items = of_rows(tmp_path, *rows, **flags, negatives_below=1.0)
    assert [(item.query, item.weight) for item in items if isinstance(item, Pair) and not item.grade] == [
        ("q4", 2.0)
    ]
    assert dropped(items) == {"score below --min-score": 1, "without a score": 1}
    refused(tmp_path, *rows, score_column="s", match="--score-column needs --min-score")
    refused(tmp_path, *rows, score_column="s", min_score=-1.0, match="line 5 column s is 0: .* must be above 0")
    refused(
        tmp_path, {"query": "q", "document": "d", "s": "high"}, **flags, match="line 1 column s is 'high'; a score"
    )
    pairs = of_rows(tmp_path, {"sentence1": "a", "sentence2": "b", "score": 4}, score_column="score", min_score=4)
    assert judged(pairs) == [("a", "b", 1)]


def test_labels_that_are_scores(tmp_path: Path) -> None:
    row = {"query": "q", "documents": ["a", "b", "c"], "labels": [0.9, 0.5, 0.1]}
    items = of_rows(tmp_path, row, min_score=0.8, negatives_below=0.2)
    assert [(i.document.text, i.grade, i.weight, i.score) for i in items if isinstance(i, Pair)] == [
        ("a", 1, 0.9, 0.9),
        ("c", 0, 1.0, 0.1),
    ]
    assert dropped(items) == {"score below --min-score": 1}


def test_scores_beside_lists_are_checked(tmp_path: Path) -> None:
    row = {"query": "q", "pos": ["a"], "neg": ["b", "c"], "pos_scores": [-0.5], "neg_scores": [-3, -4.25]}
    items = of_rows(tmp_path, row)
    assert [(i.document.text, i.score, i.weight) for i in items if isinstance(i, Pair)] == [
        ("a", -0.5, 1), ("b", -3.0, 1), ("c", -4.25, 1),
    ]  # fmt: skip
    assert any("scores of t.jsonl are checked and not kept" in note for note in notes(items))


# -- time --------------------------------------------------------------------------------------------------------

# 2020-01-31T00:00:00Z is 18,292 days after 1970: 50 years of 365 days, 12 leap days, 30 days. 18,292 * 86,400.
DAY = 1_580_428_800.0


@pytest.fixture
def far_away() -> Iterator[None]:
    """A machine whose clock is five hours behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "EST5")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2020-01-31", DAY),
        ("2020-01-31T01:00:00", DAY + 3_600),
        ("2020-01-31T01:00:00Z", DAY + 3_600),
        ("2020-01-31T01:00:00+02:00", DAY - 3_600),
        ("2020-01-31 00:00:00.5", DAY + 0.5),
        (1_580_428_800, DAY),
        ("1580428800", DAY),
        (1_580_428_800.25, DAY + 0.25),
        (0, 0.0),
        ("-12.5", -12.5),
        (datetime.date(2020, 1, 31), DAY),
        (datetime.datetime(2020, 1, 31), DAY),
        (datetime.datetime(2020, 1, 31, tzinfo=datetime.timezone(datetime.timedelta(hours=1))), DAY - 3_600),
        (None, None),
        ("", None),
    ],
)
def test_moments(far_away: None, value: object, seconds: float | None) -> None:
    assert cells.moment(value, "here") == seconds


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("31.1.2020", "a date as 2020-01-31"),
        ("2020-13-01", "a date as 2020-01-31"),
        ("yesterday", "a date as 2020-01-31"),
        (20200131, "a date or a number of seconds; write dates as 2020-01-31"),
        ("20200131", "a date or a number of seconds"),
        ("2020", "a date or a number of seconds"),
        (1_580_428_800_000, "beyond the year 9999; give seconds"),
        (float("nan"), "is needed"),
        (True, "a date as 2020-01-31"),
        ([1], "a date as 2020-01-31"),
    ],
)
def test_what_is_no_moment(tmp_path: Path, value: object, match: str) -> None:
    with pytest.raises(EmbedtrainError, match=rf"^t line 3 column when is .*{match}"):
        cells.moment(value, "t line 3 column when")


def test_rows_have_a_time(tmp_path: Path) -> None:
    rows = [{"query": "q", "document": "d", "at": "2020-01-31"}, {"query": "r", "document": "d", "at": None}]
    items = of_rows(tmp_path, *rows, time_column="at")
    assert [item.time for item in items if isinstance(item, Pair)] == [DAY, None]
    assert notes(items) == ["1 of 2 rows of t.jsonl have no time"]
    refused(
        tmp_path, {"query": "q", "document": "d"}, time_column="at", match="no column 'at'; .* with --time-column"
    )
    refused(
        tmp_path, {"query": "q", "document": "d", "at": "now"}, time_column="at", match="line 1 column at is 'now'"
    )


# -- ids ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def articles(tmp_path: Path) -> Path:
    rows = [
        {"id": 1, "title": "Login", "text": "Reset it."},
        {"id": "007", "text": "Pay."},
        {"id": "7", "text": " "},
    ]
    return write_rows(tmp_path / "kb.jsonl", rows)


def test_tickets_and_articles_by_id_p83_p84(tmp_path: Path, articles: Path) -> None:
    rows = [
        {"ticket": "cannot log in", "article": 1},
        {"ticket": "bill", "article": ["007", "1"]},
        {"ticket": "lost", "article": "7"},
        *({"ticket": f"t{n}", "article": f"x{n % 4}"} for n in range(5)),
    ]
    items = of_rows(tmp_path, *rows, query_column="ticket", document_column="article", collection=articles)
    assert [(i.query, *i.document) for i in items if isinstance(i, Pair)] == [
        ("cannot log in", "Login", "Reset it.", "1"),
        ("bill", "", "Pay.", "007"),
        ("bill", "Login", "Reset it.", "1"),
    ]
    assert dropped(items) == {"empty document": 1, "unknown document id": 5}
    assert "5 rows of t.jsonl name a document that is not in kb.jsonl: x0, x1, x2, ..." in notes(items)


def test_a_collection_comes_in_whole_under_its_ids(tmp_path: Path, articles: Path) -> None:
    path = write_rows(tmp_path / "t.jsonl", [{"query": "q", "doc_id": 1}, {"query": "r", "doc_id": 1}])
    draft = Draft()
    table.read(path, Options(collection=articles), draft, silent)  # type: ignore[arg-type]
    table.read(write_rows(tmp_path / "u.jsonl", [{"query": "s", "doc_id": "007"}]), Options(collection=articles), draft, silent)  # type: ignore[arg-type]  # fmt: skip
    assert [identifier for _, identifier, _ in draft.documents()] == ["1", "007"]
    assert [(draft.query(q).text, d) for q, d, *_ in draft.judgements("train")] == [
        ("q", "1"),
        ("r", "1"),
        ("s", "007"),
    ]
    assert draft.dropped == {"empty document": 1}
    draft.close()


def test_queries_by_id_come_of_a_folder(tmp_path: Path) -> None:
    folder = write_collection(
        tmp_path / "c",
        [{"_id": "d", "text": "doc"}, {"_id": "e", "text": "other"}],
        [{"_id": "q", "text": "ask"}],
        {},
    )
    items = of_rows(
        tmp_path, {"query_id": "q", "doc_id": "d"}, {"query_id": "x", "doc_id": "d"}, collection=folder
    )
    assert (judged(items), dropped(items)) == ([("ask", "doc", 1)], {"unknown query id": 1})
    assert "1 rows of t.jsonl name a query that is not in c: x" in notes(items)
    (tmp_path / "t.tsv").write_text("query-id\tcorpus-id\tscore\r\nq\td\t1\r\nq\te\t0\r\n")
    assert judged(found(tmp_path / "t.tsv", collection=folder)) == [("ask", "doc", 1), ("ask", "other", 0)]


@pytest.mark.parametrize(
    "content",
    ["q 0 d 1\n", "q\td\t1\n", "query-id\tcorpus-id\tscore\nq\td\t1\n", "q\t0\td\t1\r\n", "\ufeffq Q0 d 1\r\n"],
)
def test_p91_variants_of_qrels(tmp_path: Path, content: str) -> None:
    folder = write_collection(tmp_path / "c", [{"_id": "d", "text": "doc"}], [{"_id": "q", "text": "ask"}], {})
    path = tmp_path / "qrels.tsv"
    path.write_text(content, newline="")
    assert judged(found(path, collection=folder)) == [("ask", "doc", 1)]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("q\td\n", "line 1 has 2 columns; query-id, corpus-id and score are needed"),
        ("q\td\t1\nq\td\thigh\n", "line 2 has the grade 'high'; a number is needed"),
        ("query-id\tcorpus-id\tscore\nq\td\thigh\n", "line 2 column score is 'high'; a grade as 0 or 1"),
    ],
)
def test_p91_qrels_that_are_none(tmp_path: Path, content: str, match: str) -> None:
    folder = write_collection(tmp_path / "c", [{"_id": "d", "text": "doc"}], [{"_id": "q", "text": "ask"}], {})
    (tmp_path / "qrels.tsv").write_text(content)
    with pytest.raises(EmbedtrainError, match=rf"qrels\.tsv {match}"):
        found(tmp_path / "qrels.tsv", collection=folder, shape="qrels")


def test_p86_a_row_number_is_no_id(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('\n{"doc_id":"10","text":"a"}\n{"doc_id":"20","text":"b"}\n')
    assert judged(of_rows(tmp_path, {"query": "a", "doc_id": "20"}, collection=corpus)) == [("a", "b", 1)]


def test_ids_that_are_wrong(tmp_path: Path, articles: Path) -> None:
    flags = {"collection": articles}
    refused(tmp_path, {"query": "q", "doc_id": 1.5}, **flags, match="column doc_id is 1.5; an id is a string")
    refused(
        tmp_path,
        {"query": "q", "doc_id": "1"},
        collection=tmp_path / "no",
        match="no does not exist; check the path",
    )
    write_rows(articles, [{"id": "1", "text": "a"}, {"id": "1", "text": "b"}])
    refused(tmp_path, {"query": "q", "doc_id": "1"}, **flags, match=r"kb\.jsonl line 2: 1 duplicate ids, .*: 1;")
    write_rows(articles, [{"id": "1", "words": "a"}])
    refused(
        tmp_path,
        {"query": "q", "doc_id": "1"},
        **flags,
        match=r"line 1 has no column with texts \(text, .* are: id, words",
    )


# -- MS MARCO's tables -------------------------------------------------------------------------------------------


def test_triples_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "any.tsv"
    path.write_text('what is "rain"\tRain is water "that falls.\tSnow is frozen water.\n' * 2)
    items = found(path)
    assert judged(items)[:2] == [
        ('what is "rain"', 'Rain is water "that falls.', 1),
        ('what is "rain"', "Snow is frozen water.", 0),
    ]
    assert notes(items) == ["any.tsv without a header is recognised as msmarco"]
    path.write_text("query\tpositive\tnegative\nq\tp\tn\n")
    assert judged(found(path)) == [("q", "p", 1), ("q", "n", 0)]
    path.write_text("a\tb\tc\n")
    with pytest.raises(EmbedtrainError, match="is empty; a table needs rows"):
        found(path)
    assert judged(found(path, shape="msmarco")) == [("a", "b", 1), ("a", "c", 0)]


def test_triples_by_id(tmp_path: Path) -> None:
    folder = tmp_path / "marco"
    folder.mkdir()
    (folder / "collection.tsv").write_text('0\tzero "0\n1\tone\n2\ttwo\n')
    (folder / "queries.tsv").write_text("10\task\n")
    path = tmp_path / "qidpidtriples.tsv"
    path.write_text("10\t0\t2\n10\t1\t9\n")
    items = found(path, collection=folder)
    assert judged(items) == [("ask", 'zero "0', 1), ("ask", "two", 0), ("ask", "one", 1)]
    assert dropped(items) == {"unknown document id": 1}
    path.rename(tmp_path / "x.tsv")
    with pytest.raises(
        UsageError, match="three columns of ids or numbers; say what they are: --shape msmarco or qrels"
    ):
        found(tmp_path / "x.tsv", collection=folder)
    assert len(judged(found(tmp_path / "x.tsv", collection=folder, shape="msmarco"))) == 3


# -- files -------------------------------------------------------------------------------------------------------


def test_patterns_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rows(tmp_path / "b.jsonl", [{"query": "b", "document": "d"}])
    write_rows(tmp_path / "a.jsonl", [{"query": "a", "document": "d"}])
    assert judged(found(tmp_path / "*.jsonl")) == [("a", "d", 1), ("b", "d", 1)]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"query,document\nq,d\n")))
    assert judged(found(Path("-"), input_format="csv")) == [("q", "d", 1)]


def test_bad_lines_are_dropped_until_they_are_too_many(tmp_path: Path) -> None:
    good = ['{"query": "q", "document": "d"}'] * 199
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join([*good[:100], "{broken", "", *good[100:]]) + "\n")
    items = found(path)
    assert len(judged(items)) == 199
    assert dropped(items) == {"line that is no row": 1, "blank line": 1}
    (drop,) = [item for item in items if isinstance(item, Drop) and item.reason == "line that is no row"]
    assert drop.row["where"] == f"{path} line 101"
    # 1 of 200 lines is 0.005.
    with pytest.raises(
        EmbedtrainError, match=r"line 101 is not JSON .*\(1 of 200 lines are no rows, more than --max-bad 0\.004\)"
    ):
        found(path, max_bad=0.004)


def test_an_empty_table(tmp_path: Path) -> None:
    refused(tmp_path, match=r"t\.jsonl is empty; a table needs rows")


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        ({"shape": "round"}, "--shape round: auto, pairs, "),
        ({"query_column": "document"}, "name the same column; give two"),
        ({"score_column": "s"}, "--score-column needs --min-score"),
        (
            {"score_column": "s", "min_score": 1.0, "negatives_below": 2.0},
            "--negatives-below 2.0 is above --min-score 1.0",
        ),
        ({"max_pairs_per_class": 0}, "--max-pairs-per-class 0: at least 1"),
        ({"weight": 0.0}, "--weight 0.0: a weight is above 0"),
        ({"max_bad": 1.5}, "--max-bad 1.5: a share"),
    ],
)
def test_flags_that_cannot_be(flags: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        Settings.of(Options(**flags))


def test_a_killed_run_goes_on_and_counts_once(tmp_path: Path) -> None:
    rows = [{"query": f"q{n}", "document": "" if n % 3 == 0 else f"d{n}"} for n in range(30)]
    path = write_rows(tmp_path / "t.jsonl", rows)
    path.write_text(path.read_text().replace("\n", "\n\n"))
    whole = Draft()
    table.read(path, Options(), whole, silent)  # type: ignore[arg-type]

    class Killed(Exception):
        pass

    draft = Draft(tmp_path / "draft")
    items = draft.new

    def half(name: str, found: Iterable[Any]) -> Iterable[Any]:
        for count, item in enumerate(items(name, found), start=1):
            yield item
            if count == 25:
                draft._done(name, count, whole=False)
            if count == 31:
                raise Killed

    draft.new = half  # type: ignore[assignment, method-assign]
    with pytest.raises(Killed):
        table.read(path, Options(), draft, silent)  # type: ignore[arg-type]
    draft.leave()
    again = Draft(tmp_path / "draft")
    table.read(path, Options(), again, silent)  # type: ignore[arg-type]
    assert list(again.judgements("train")) == list(whole.judgements("train"))
    assert (again.dropped, again.notes) == (whole.dropped, whole.notes)
    assert whole.dropped == {"blank line": 30, "empty document": 10}
    for one in (whole, again):
        one.close()


TEXT = st.text(st.sampled_from("aA \u200b[\u2028"), max_size=3)


def by_hand(rows: list[tuple[str, list[str], list[str]]]) -> tuple[list[tuple[str, str, float]], Counter[str]]:
    """The pairs and drops of rows of lists, in an obvious loop."""
    pairs: list[tuple[str, str, float]] = []
    why: Counter[str] = Counter()
    for query, positives, negatives in rows:
        if is_blank(query):
            why["empty query"] += 1
            continue
        kept = [text for text in positives if not is_blank(text)]
        why["empty document"] += len(positives) - len(kept)
        if not kept:
            why["row without a positive"] += not positives
            continue
        pairs += [(query, text, 1.0) for text in kept]
        for text in negatives:
            if is_blank(text):
                why["empty document"] += 1
            elif any(text.split() == other.split() for other in kept):
                why["negative that is a positive"] += 1
            else:
                pairs.append((query, text, 0.0))
    return pairs, +why


@given(st.lists(st.tuples(TEXT, st.lists(TEXT, max_size=3), st.lists(TEXT, max_size=3)), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_every_document_is_a_pair_or_a_drop(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, list[str], list[str]]]
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.jsonl"
    items = found(write_rows(path, [{"query": q, "pos": p, "neg": n} for q, p, n in rows]))
    assert (judged(items), dropped(items)) == by_hand(rows)


def test_questions_and_answers_of_medquad(tmp_path: Path) -> None:
    if not SHARED.is_dir():
        pytest.skip("the larger collections are not on this machine")
    source = SHARED / "medquad"
    items = found(source / "qrels" / "train.tsv", collection=source)
    lines = (source / "qrels" / "train.tsv").read_text().splitlines()
    assert len(judged(items)) == len(lines) - 1  # less the header
    assert not dropped(items)
