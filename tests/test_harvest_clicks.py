"""Click logs: what becomes a positive, what a negative, what stays unknown, and that nothing is lost on the way.

Deliberate breaks that turn a test red: counting what stands below the last click as skipped; parting the rows of
sessions that come mixed; ranks that keep counting from 0; a block of the tally that forgets what was there; a
weight that is the raw click rate; a cap that keeps the first; taking queries for ids where one of the first 1,000
is none; dropping an unknown id without a word; counting drops again after a kill; a simulated log that depends on
anything but its arguments.
"""

import csv
import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from conftest import ROOT, SHARED, write_collection
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain.collection import Collection
from embedtrain.console import silent
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest import clicks
from embedtrain.harvest.clicks import log as click_log
from embedtrain.harvest.clicks import rows as click_rows
from embedtrain.harvest.clicks.log import Columns, Counts, Impression, Tally, count, recognise_columns, skipped
from embedtrain.harvest.clicks.options import ClickOptions, parse_propensities
from embedtrain.harvest.clicks.verdicts import beyond_cap
from embedtrain.harvest.draft import Draft

Event = tuple[str, str, str, int, int]  # session, query, document, position, clicked
NAMES = ("session", "query", "document", "position", "clicked")


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def events(path: Path, rows: list[Event]) -> Path:
    return jsonl(path, [dict(zip(NAMES, row, strict=True)) for row in rows])


def harvested(source: Path, **options: Any) -> Draft:
    draft = Draft(keep_dropped=True)
    clicks.read(source, ClickOptions(**options), draft, silent)  # type: ignore[arg-type]
    return draft


def pairs(draft: Draft) -> list[tuple[str, str, float, str, float]]:
    """(query, document's text, grade, source, weight to 4 digits)"""
    return [
        (draft.query(query).text, draft.document(document).text, grade, source, round(weight, 4))
        for query, document, grade, source, weight in draft.judgements("train")
    ]


def counts_of(path: Path, rows: list[dict[str, Any]]) -> Path:
    return jsonl(path, rows)


COUNTS = [
    {"query": "red apple", "document": "an apple that is red", "impressions": 20, "clicks": 18},
    {"query": "red apple", "document": "a pear", "impressions": 20, "clicks": 0},
    {"query": "pear", "document": "an apple that is red", "impressions": 20, "clicks": 2},
    {"query": "pear", "document": "a quince", "impressions": 20, "clicks": 1},
]


def test_counts_by_hand(tmp_path: Path) -> None:
    # All pairs weigh alike. m = 21/80; c**2 - c = 18 * 17 + 2 = 308; e**2 - s = 380 a pair. rho = (308 - 4 * 380 *
    # m**2) / (4 * 380 * m (1 - m)) = 203.2625 / 294.2625, so a + b = 0.4477 and a = 0.1175. The first: (0.1175 +
    # 18) / (0.4477 + 20) = 0.8860, surely above m. The third: its 2 of 20 are surely below 0.5.
    draft = harvested(jsonl(tmp_path / "log.jsonl", COUNTS))
    assert pairs(draft) == [("red apple", "an apple that is red", 1.0, "click", 0.886)]
    assert draft.dropped == {
        "pair clicked under --min-clicks times": 1,
        "pair whose relevance is not surely above --min-relevance": 1,
    }
    assert "no negatives: counts do not say what stood above a click; --negatives-below makes some" in draft.notes
    assert "the log has no positions: click rates are not corrected for them" in draft.notes
    assert any("mean 0.2625, which weighs as much as 0.4 impressions" in note for note in draft.notes)
    assert draft.count("documents") == 3

    # The pear's upper end is that of Beta(0.1175, 20.33), 0.053; the query "pear" has no positive.
    assert len(pairs(harvested(tmp_path / "log.jsonl", negatives_below=0.05))) == 1
    draft = harvested(tmp_path / "log.jsonl", negatives_below=0.056, weight=2.0)
    assert pairs(draft) == [
        ("red apple", "an apple that is red", 1.0, "click", 1.7721),
        ("red apple", "a pear", 0.0, "skip", 2.0),
    ]
    # The lower end of Beta(18.12, 2.33) is 0.721.
    assert pairs(harvested(tmp_path / "log.jsonl", min_relevance=0.715))
    assert not harvested(tmp_path / "log.jsonl", min_relevance=0.727).count("pairs")


def test_given_propensities_correct_what_is_shown_low(tmp_path: Path) -> None:
    # The same 6 clicks of 20 at rank 3 and at rank 1: where one in five looks at rank 3, that is 6 of about 4
    # looks.
    rows = [
        {"query": "q one", "document": "top one", "position": 1, "impressions": 20, "clicks": 6},
        {"query": "q one", "document": "low one", "position": 3, "impressions": 20, "clicks": 6},
        {"query": "q one", "document": "nothing here", "position": 2, "impressions": 40, "clicks": 1},
    ]
    log = jsonl(tmp_path / "log.jsonl", rows)
    plain = {text: weight for _, text, _, _, weight in pairs(harvested(log, min_relevance=0.05))}
    assert plain["top one"] == plain["low one"]
    draft = harvested(log, min_relevance=0.05, propensities="1:1,3:0.2")
    right = {text: weight for _, text, _, _, weight in pairs(draft)}
    assert right["low one"] > 2 * right["top one"]
    # Rank 2 on a line of logarithms: log 0.2 * log 2 / log 3 = log 0.3622.
    assert "propensities by rank, as given and read off between: 1:1.000, 2:0.362, 3:0.200" in draft.notes


def test_skips_by_hand() -> None:
    page = {3: (30, True), 1: (10, False), 2: (20, True), 4: (40, False)}
    assert list(skipped(page)) == [(10, 1)]
    assert not list(skipped({1: (10, False), 2: (20, False)}))
    assert not list(skipped({0: (10, True), 1: (20, False)}))


def page(session: str, query: str, clicked: int, documents: str = "ABC") -> list[Event]:
    return [(session, query, f"text {name}", rank, int(rank == clicked)) for rank, name in enumerate(documents, 1)]


def test_shown_above_a_click_and_skipped(tmp_path: Path) -> None:
    # A is skipped twice for "q x" and clicked never; B once; C is below or is the click. "q y" skips A twice and
    # clicks nothing surely: min_clicks is 3.
    rows = page("1", "q x", 3, "ABC") + page("2", "Q  x", 2, "ACB") + page("3", "q x", 1, "CBA")
    rows += page("4", "q y", 2) + page("5", "q y", 2)
    draft = harvested(events(tmp_path / "log.jsonl", rows), min_clicks=3, min_relevance=0.1)
    assert [(q, d, grade, source) for q, d, grade, source, _ in pairs(draft)] == [
        ("q x", "text A", 0.0, "skip"),
        ("q x", "text C", 1.0, "click"),
    ]
    assert draft.dropped["skipped pair of a query without a positive"] == 1
    assert len(pairs(harvested(tmp_path / "log.jsonl", min_clicks=3, min_relevance=0.1, min_skips=3))) == 1
    both = harvested(tmp_path / "log.jsonl", min_clicks=3, min_relevance=0.1, min_skips=1)
    assert [d for _, d, grade, _, _ in pairs(both) if not grade] == ["text A", "text B"]


def test_a_page_is_a_session_and_a_query_however_its_rows_come(tmp_path: Path) -> None:
    rows = page("1", "q x", 3) + page("2", "q x", 3)
    straight = skips(rows)
    assert straight == {("A", 2), ("B", 2)}
    assert skips([row for two in zip(rows[:3], rows[3:], strict=True) for row in two]) == straight
    assert skips(rows[::-1]) == straight
    # One session asks twice: a position that comes again begins another page.
    assert skips(page("1", "q x", 3) + page("1", "q x", 1)) == {("A", 1), ("B", 1)}
    # Another query in between does not part a session's page.
    assert skips([rows[0], ("1", "q y", "text A", 1, 0), *rows[1:3]]) == {("A", 1), ("B", 1)}


def test_without_sessions_a_page_is_a_run_with_rising_positions() -> None:
    rows = page("", "q x", 3) + page("", "q x", 1) + page("", "q y", 2)
    assert skips(rows, session=None) == {("A", 2), ("B", 1)}
    # The second page is cut before its click: A of the first stays unknown.
    assert skips([rows[0], ("", "q x", "text C", 1, 1)], session=None) == set()


def skips(rows: list[Event], session: str | None = "session") -> set[tuple[str, int]]:
    """(document's letter, times skipped) over all queries"""
    names = {name: place for place, name in enumerate(dict.fromkeys(row[2] for row in rows))}
    queries = {name: place for place, name in enumerate(dict.fromkeys(row[1] for row in rows))}
    found = count(
        [
            Impression(queries[query], names[text], rank, 1, clicked, at if session else None)
            for at, query, text, rank, clicked in rows
        ],
        Columns("q", "d", "c", position="p", session=session),
    )
    letters = [name[-1] for name in names]
    total: Counter[str] = Counter()
    for document, times in zip(found.document.tolist(), found.skipped.tolist(), strict=True):
        total[letters[document]] += times
    return {(letter, times) for letter, times in total.items() if times}


def test_more_open_pages_than_are_held_lose_skips_and_make_none_up(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = page("1", "q x", 3) + page("2", "q x", 3)
    mixed = [row for two in zip(rows[:3], rows[3:], strict=True) for row in two]
    monkeypatch.setattr(click_log, "_OPEN", 1)
    assert skips(mixed) == set()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2**32 - 1]), st.sampled_from([0, 7, 2**32 - 1]), st.integers(0, 3),
            st.integers(1, 3), st.integers(0, 1), st.integers(0, 1), st.integers(0, 9),
        ),
        min_size=1, max_size=60,
    ),
    st.integers(1, 7),
)  # fmt: skip
def test_the_tally_adds_up_what_a_dictionary_does(rows: list[tuple[int, ...]], block: int) -> None:
    expected: dict[tuple[int, int, int], list[int]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(click_log, "_FLUSH", block)
        tally = Tally(timed=True)
        for query, document, rank, *values in rows:
            tally.add(query, document, rank, *values[:3], float(values[3]))
            sums = expected.setdefault((query, document, rank), [0, 0, 0, 10])
            sums[:] = *(a + b for a, b in zip(sums, values[:3], strict=False)), min(sums[3], values[3])
        found = tally.counts()
    assert found.since is not None
    columns = (found.query, found.document, found.rank, found.shown, found.clicked, found.skipped, found.since)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == [
        (*key, *expected[key]) for key in sorted(expected)
    ]


def test_bytes_of_a_triple_and_a_count_that_is_too_large() -> None:
    tally = Tally(timed=False)
    for document in range(1000):
        tally.add(1, document % 500, 1, 1, 0, 0, 0.0)
    found = tally.counts()
    # query 4, document 4, rank 2, shown 4, clicked 4, skipped 4
    assert sum(column.nbytes for column in vars(found).values() if column is not None) == 22 * 500
    tally.add(1, 1, 1, 2**32 - 2, 0, 0, 0.0)
    with pytest.raises(EmbedtrainError, match="more than 4,294,967,295 shown at one rank"):
        tally.counts()


def test_pairs_are_numbered_without_gaps() -> None:
    def column(*values: int) -> np.ndarray:
        return np.array(values, dtype=np.uint32)

    zeros = column(0, 0, 0, 0, 0)
    ranks = column(1, 2, 1, 1, 1).astype(np.uint16)
    found = Counts(column(0, 0, 0, 2, 3), column(1, 1, 4, 4, 4), ranks, zeros, zeros, zeros, None)
    assert found.pair.tolist() == [0, 0, 1, 2, 3]


def test_the_cap_keeps_the_most_relevant() -> None:
    document = np.array([5, 5, 5, 2, 5, 2])
    relevance = np.array([0.5, 0.9, 0.7, 0.1, 0.7, 0.2])
    ids = ["qa", "qb", "qd", "qe", "qc", "qf"]
    # Of document 5: 0.9, then 0.7 of qc before 0.7 of qd, then 0.5. Document 2 has two.
    assert beyond_cap(document, relevance, ids, 2).tolist() == [True, False, True, False, False, False]
    assert beyond_cap(document, relevance, ids, 1).tolist() == [True, False, True, True, True, False]
    assert not beyond_cap(document[:0], relevance[:0], [], 1).size


def test_popular_documents_are_capped_and_said(tmp_path: Path) -> None:
    rows = [
        {"query": f"query {n}", "document": "the start page", "impressions": 20, "clicks": 10 + n}
        for n in range(5)
    ] + [{"query": "query 0", "document": "another page", "impressions": 1000, "clicks": 1}]
    log = jsonl(tmp_path / "log.jsonl", rows)
    draft = harvested(log, max_queries_per_document=2, min_relevance=0.1)
    assert [query for query, *_ in pairs(draft)] == ["query 3", "query 4"]
    assert draft.dropped["pair beyond --max-queries-per-document"] == 3
    assert any(note.startswith("3 positives of popular documents are left out") for note in draft.notes)
    assert len(pairs(harvested(log, max_queries_per_document=0, min_relevance=0.1))) == 5


def write_csv(path: Path, rows: list[dict[str, Any]], delimiter: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        table.writeheader()
        table.writerows(rows)


FORMATS: dict[str, Callable[[Path, list[dict[str, Any]]], Any]] = {
    "jsonl": jsonl,
    "csv": lambda path, rows: write_csv(path, rows, ","),
    "tsv": lambda path, rows: write_csv(path, rows, "\t"),
    "parquet": lambda path, rows: pa.parquet.write_table(pa.Table.from_pylist(rows), path),
}


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_and_other_spellings(format: str, tmp_path: Path) -> None:
    rows = page("1", "q x", 3) + page("2", "q x", 3) + page("3", "q x", 3)
    names = ("Request-ID", "search_term", "result", "rank", "is_clicked")
    path = tmp_path / f"log.{format}"
    FORMATS[format](path, [dict(zip(names, row, strict=True)) | {"device": "phone"} for row in rows])
    draft = harvested(path)
    assert [(d, grade) for _, d, grade, _, _ in pairs(draft)] == [
        ("text A", 0.0),
        ("text B", 0.0),
        ("text C", 1.0),
    ]
    assert draft.notes[0] == (
        f"log.{format} is a log of events; columns: query 'search_term', document 'result', clicked 'is_clicked', "
        "position 'rank', session 'Request-ID'"
    )
    assert f"columns of log.{format} that are not read: device" in draft.notes
    assert any("too few clicked pairs were shown at several positions" in note for note in draft.notes)


def test_columns_by_flag_and_those_that_are_missing() -> None:
    rows = [{"q": "a", "query": "b", "doc": "c", "click": 1}]
    assert recognise_columns(rows, {"query": "q"}, "log").query == "q"
    assert recognise_columns(rows, {}, "log").query == "query"
    with pytest.raises(
        EmbedtrainError, match=r"log has no column 'place'; its columns are: q, query, doc, click; .*--pos"
    ):
        recognise_columns(rows, {"position": "place"}, "log")
    with pytest.raises(EmbedtrainError, match=r"no column that says the clicked; .* --clicked-column"):
        recognise_columns([{"query": 1, "document": 2}], {}, "log")


@pytest.mark.parametrize("value", [True, "true", "1", 1, 1.0, " TRUE "])
def test_ways_to_say_that_it_was_clicked(value: Any) -> None:
    assert click_log.as_clicked(value, "here", "c")
    said = "0" if isinstance(value, str) else type(value)(0)
    assert not click_log.as_clicked(said, "here", "c")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clicked": 2}, "line 2 column clicked is 2; 1 or 0, true or false is needed"),
        ({"clicked": None}, "line 2 column clicked is None; 1 or 0"),
        ({"position": "first"}, "line 2 column position is 'first'; a whole number"),
        ({"position": 1.5}, "line 2 column position is 1.5; a whole number"),
        ({"position": -1}, "line 2 column position is -1; a whole number"),
        ({"position": 70_000}, "line 2 column position is 70000; positions under 65,535"),
        ({"document": 7}, "line 2 is 7, not text; where it holds ids, say with --texts"),
        ({"time": "soon"}, "line 2 is 'soon'; a date"),
    ],
)
def test_cells_that_are_not_what_their_column_holds(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    row = {"query": "q x", "document": "text A", "position": 1, "clicked": 1, "time": 5}
    log = jsonl(tmp_path / "log.jsonl", [row, row | change])
    with pytest.raises(EmbedtrainError, match=message):
        harvested(log)


def test_counts_that_are_not(tmp_path: Path) -> None:
    row = {"query": "q x", "document": "text A", "impressions": 4, "clicks": 9}
    empty = row | {"impressions": 0, "clicks": 0}
    draft = harvested(jsonl(tmp_path / "log.jsonl", [row, empty]), min_relevance=0.1)
    assert "1 rows of log.jsonl have more clicks than impressions; all of these were clicked" in draft.notes
    assert draft.dropped["row without an impression"] == 1
    with pytest.raises(EmbedtrainError, match="line 1 column impressions is None; a whole number"):
        harvested(jsonl(tmp_path / "log.jsonl", [row | {"impressions": None}]))
    with pytest.raises(EmbedtrainError, match="has a click in column 'clicks' \\(1 rows, 4 impressions\\)"):
        harvested(jsonl(tmp_path / "log.jsonl", [row | {"clicks": 0}]))
    with pytest.raises(EmbedtrainError, match="is empty; a click log needs rows"):
        harvested(jsonl(tmp_path / "log.jsonl", []))


def test_rows_that_say_nothing_are_dropped_and_counted(tmp_path: Path) -> None:
    good = {"query": "q x", "document": "text A", "position": 0, "clicked": 1}
    rows = [
        good,
        good,
        good | {"query": " "},
        good | {"document": None},
        good | {"position": None},
        good | {"query": None},
    ]
    log = jsonl(tmp_path / "log.jsonl", rows)
    log.write_text(log.read_text() + "\nno row\n")
    draft = harvested(log, min_relevance=0.1, max_bad=0.2)
    assert draft.dropped == {
        "empty query": 2,
        "empty document": 1,
        "impression without a position": 1,
        "blank line": 1,
        "line that is no row": 1,
    }
    assert pairs(draft)[0][:3] == ("q x", "text A", 1.0)
    wheres = [json.loads(row).get("where", "") for row in draft.dropped_rows()]
    assert f"{log} line 4" in wheres
    with pytest.raises(
        EmbedtrainError, match=r"line 8 is not JSON .*1 of 7 lines are no rows, more than --max-bad 0.01"
    ):
        harvested(log)


def test_positions_from_0_are_ranks_from_1(tmp_path: Path) -> None:
    rows = page("1", "q x", 3) + page("2", "q x", 3)
    first = harvested(events(tmp_path / "a.jsonl", rows), propensities="1:1,2:0.5,3:0.25")
    lower = [(s, q, d, rank - 1, c) for s, q, d, rank, c in rows]
    assert pairs(harvested(events(tmp_path / "b.jsonl", lower), propensities="1:1,2:0.5,3:0.25")) == pairs(first)


def test_the_time_of_a_pair_is_when_it_is_first_shown(tmp_path: Path) -> None:
    times = ["1970-01-01T00:01:40Z", 50, None]
    rows = [{"query": "q x", "document": "text A", "clicked": 1, "time": time} for time in times]
    rows += [{"query": "q x", "document": "text B", "clicked": 1, "time": None}] * 3
    draft = harvested(jsonl(tmp_path / "log.jsonl", rows), min_relevance=0.1)
    assert draft.pairs().time.tolist()[0] == 50
    assert np.isnan(draft.pairs().time[1])


@pytest.fixture
def known(tmp_path: Path) -> Path:
    corpus = [{"_id": f"{n}", "title": f"title {n}", "text": f"body of {n}"} for n in range(5)]
    corpus.append({"_id": "blank", "title": "", "text": " "})
    queries = [{"_id": f"q{n}", "text": f"question {n}"} for n in range(3)]
    return write_collection(tmp_path / "known", corpus, queries, {})


def row_of(query: str, document: Any, clicked: int = 1) -> dict[str, Any]:
    return {"query_id": query, "doc_id": document, "clicked": clicked}


def test_documents_and_queries_are_ids_of_a_collection(known: Path, tmp_path: Path) -> None:
    rows = (
        [row_of("q1", 3)] * 4
        + [row_of("q2", "3", 0)] * 4
        + [row_of("q1", name) for name in ("x", "blank", "x", "y")]
    )
    draft = harvested(jsonl(tmp_path / "log.jsonl", rows), collection=str(known))
    assert [(q, d, grade) for q, d, grade, _, _ in pairs(draft)] == [("question 1", "body of 3", 1.0)]
    assert draft.count("documents") == 5  # all of the collection but the blank one
    assert draft.document("3").title == "title 3"
    assert draft.dropped == {"empty document": 1, "unknown document id": 3, "impression of an empty document": 1}
    assert "log.jsonl names a document that is not in known: x, y" in draft.notes
    assert "column 'query_id' of log.jsonl holds query ids of known" in draft.notes


def test_one_query_that_is_no_id_makes_all_of_them_texts(
    known: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(click_rows, "_FIRST", 4)
    rows = [row_of("q1", "1")] * 3 + [row_of("other", "1")]
    draft = harvested(jsonl(tmp_path / "log.jsonl", rows), collection=str(known), min_relevance=0.1)
    assert [q for q, *_ in pairs(draft)] == ["q1"]
    # Beyond the first rows an unknown one is dropped.
    rows = [row_of("q1", "1")] * 4 + [row_of("other", "1")]
    draft = harvested(jsonl(tmp_path / "log.jsonl", rows), collection=str(known), min_relevance=0.1)
    assert [q for q, *_ in pairs(draft)] == ["question 1"]
    assert draft.dropped["unknown query id"] == 1
    assert "log.jsonl names a query that is not in known: other" in draft.notes


def test_documents_that_look_like_ids_are_said(tmp_path: Path) -> None:
    draft = harvested(jsonl(tmp_path / "log.jsonl", [row_of("q x", "d17")] * 3), min_relevance=0.1)
    assert any("has two words; if they are ids, say with --texts of what" in note for note in draft.notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_clicks": 0}, "--min-clicks 0: at least 1"),
        ({"min_skips": 0}, "--min-skips 0: at least 1"),
        ({"max_queries_per_document": -1}, "--max-queries-per-document -1: 1 or more, or 0"),
        ({"min_relevance": 1.0}, "--min-relevance 1.0: a relevance from 0 to below 1"),
        ({"negatives_below": 0.0}, "--negatives-below 0.0: a relevance between 0 and 1"),
        ({"negatives_below": 0.3, "min_relevance": 0.2}, "--negatives-below 0.3 is above --min-relevance 0.2"),
        ({"weight": 0.0}, "--weight 0.0: a weight is above 0"),
        ({"max_bad": 1.0}, "--max-bad 1.0: a share"),
        ({"query_column": "a,b"}, "--query-column a,b: a click log has one such column"),
        ({"propensities": "1:1,2:x"}, "--propensities 1:1,2:x: '2:x' is no RANK:SHARE"),
        ({"propensities": "1:1"}, "--propensities needs positions, and .*log.jsonl has none; .*--position-column"),
    ],
)
def test_flags_that_cannot_be(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        harvested(jsonl(tmp_path / "log.jsonl", COUNTS), **options)


def test_propensities_by_flag() -> None:
    assert parse_propensities("3:0.5, 1:1.0") == {1: 1.0, 3: 0.5}
    for text in ("0:1", "1:0", "1:1.1", "1:1,1:0.5", "1", ",", "1:nan"):
        with pytest.raises(UsageError, match="--propensities"):
            parse_propensities(text)


def rows_of(draft: Draft) -> tuple[Any, ...]:
    return list(draft.judgements("train")), draft.dropped, draft.notes, list(draft.dropped_rows())


def test_what_was_killed_goes_on_and_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for n in range(30) for session in "12" for row in page(f"{session}{n}", f"query {n}", 3)]
    rows += [*page("last", "query 7", 1, "XYZ"), ("none", " ", "text A", 1, 0)]
    log = events(tmp_path / "log.jsonl", rows)
    whole = harvested(log)
    assert whole.dropped == {"pair clicked under --min-clicks times": 1, "empty query": 1}

    monkeypatch.setattr("embedtrain.harvest.ledger._LOOK", 1)
    monkeypatch.setattr("embedtrain.harvest.ledger._SECONDS", 0.0)
    add, left = Draft.add_weak_pair, [40]

    def strike(self: Draft, *args: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        add(self, *args)

    monkeypatch.setattr(Draft, "add_weak_pair", strike)
    draft = Draft(tmp_path / "draft", keep_dropped=True)
    with pytest.raises(KeyboardInterrupt):
        clicks.read(log, ClickOptions(), draft, silent)  # type: ignore[arg-type]
    del draft
    monkeypatch.setattr(Draft, "add_weak_pair", add)
    again = Draft(tmp_path / "draft", keep_dropped=True)
    assert 0 < again.count("pairs") < whole.count("pairs")
    clicks.read(log, ClickOptions(), again, silent)  # type: ignore[arg-type]
    assert rows_of(again) == rows_of(whole)
    clicks.read(log, ClickOptions(), again, silent)  # type: ignore[arg-type]
    assert rows_of(again) == rows_of(whole)
    again.close()


# -- the recipe
# ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recipe() -> Any:
    spec = importlib.util.spec_from_file_location("simulate_clicks", ROOT / "recipes" / "simulate_clicks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["simulate_clicks"] = module
    spec.loader.exec_module(module)
    return module


def run_recipe(recipe: Any, monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["simulate_clicks.py", *map(str, arguments)])
    assert recipe.main() == 0


def as_collection(draft: Draft, folder: Path) -> Path:
    judged = [(query, document, int(grade)) for query, document, grade, *_ in draft.judgements("train")]
    corpus = [{"_id": i, "title": d.title, "text": d.text} for _, i, d in draft.documents()]
    queries = [{"_id": i, "text": q.text} for _, i, q in draft.queries()]
    return write_collection(folder, corpus, queries, {"train": judged})


def test_pages_by_hand(recipe: Any) -> None:
    orders = np.tile(np.arange(4), (3, 1))
    random = np.random.default_rng(0)
    assert recipe.pages(orders.copy(), 0.0, 0.0, random).tolist() == orders.tolist()
    # Every neighbour swapped from the top down takes the first to the end.
    assert recipe.pages(orders.copy(), 1.0, 0.0, random).tolist() == [[1, 2, 3, 0]] * 3
    shuffled = recipe.pages(orders.copy(), 0.0, 1.0, random)
    assert np.sort(shuffled).tolist() == orders.tolist()
    assert shuffled.tolist() != orders.tolist()


def test_a_simulated_log_is_recovered(
    recipe: Any, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, again = tmp_path / "log.jsonl", tmp_path / "again.jsonl"
    monkeypatch.setattr(recipe, "BLOCK", 1_000)
    for out in (log, again):
        run_recipe(recipe, monkeypatch, "simulate", tiny, "--sessions", 4_000, "--seed", 3, "--out", out)
    assert log.read_bytes() == again.read_bytes()
    run_recipe(recipe, monkeypatch, "simulate", tiny, "--sessions", 10, "--seed", 4, "--out", again)
    assert not log.read_bytes().startswith(again.read_bytes())
    first = json.loads(log.read_text().splitlines()[0])
    assert list(first) == list(NAMES)
    said = json.loads(capsys.readouterr().out.splitlines()[0])
    assert said["impressions"] == 40_000

    folder = as_collection(harvested(log, collection=str(tiny)), tmp_path / "harvested")
    found = recipe.compare(tiny, log, folder, 1.0)
    assert found["harvested"]["precision"] > 0.95
    assert found["harvested"]["recall"] > 0.8
    assert found["harvested"]["precision"] >= found["click rate"]["precision"]
    assert found["negatives"]["not_relevant"] > 0.97
    assert found["propensities"]["mean_error"] < 0.03 < 0.1 < found["propensities"]["mean_error_of_click_rates"]
    run_recipe(recipe, monkeypatch, "compare", tiny, log, folder)
    assert "propensities" in capsys.readouterr().out


@pytest.mark.skipif(not (SHARED / "squad-small").is_dir(), reason="needs shared/data/squad-small")
def test_ids_of_squad_small(tmp_path: Path) -> None:
    source = SHARED / "squad-small"
    collection = Collection(source)
    judged = list(collection.positives("dev").items())[:50]
    others = collection.corpus.ids[:2]
    rows = []
    for query, (document,) in judged:
        text = collection.queries.by_id(query)
        rows += [(f"{query}-{n}", text, name, rank, int(name == document))
                 for n in range(3) for rank, name in enumerate([*others, document], 1)]  # fmt: skip
    draft = harvested(events(tmp_path / "log.jsonl", rows), collection=str(source))
    assert draft.count("documents") == len(collection.corpus)
    found = {(draft.query(q).text, d) for q, d, grade, *_ in draft.judgements("train") if grade > 0}
    assert found == {(collection.queries.by_id(query), document) for query, (document,) in judged}
    assert sum(grade == 0 for _, _, grade, *_ in draft.judgements("train")) == 100
