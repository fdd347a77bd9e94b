"""harvest: what is there becomes a collection; every drop is counted, every error is a sentence, nothing half remains.

Deliberate breaks that turn a test red: ids from row numbers; titles left in front of their texts; `dict` order by hash;
sampling by position; letting `--documents` drop judged documents; writing to --out itself instead of beside it.
"""

import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import SCIFACT, SHARED, RunCli, write_collection
from harvested import documents, draft_of, pairs, qrels, queries, sources
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain import readers
from embedtrain.collection import Collection
from embedtrain.config import HarvestOptions
from embedtrain.console import silent
from embedtrain.errors import EmbedtrainError
from embedtrain.harvest import beir, recognise, titles, writing
from embedtrain.harvest import tables as table
from embedtrain.harvest.draft import Document, Draft, Query
from embedtrain.harvest.identity import document_id, query_id, without_copy
from embedtrain.harvest.split import cut, limit_queries, sample_documents

OPTIONS = HarvestOptions()


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def read_table(path: Path, **options: Any) -> Draft:
    draft = Draft()
    table.read(path, HarvestOptions(**options), draft, silent)
    return draft


def read_beir(path: Path) -> Draft:
    draft = Draft()
    beir.read(path, OPTIONS, draft, silent)
    return draft


# -- tables ------------------------------------------------------------------------------------------------------


def test_p94_the_same_query_for_several_documents(tmp_path: Path) -> None:
    rows = [
        {"query": "What is it?", "document": "a"},
        {"query": "what is it? ", "document": "b"},
        {"query": "What is it?", "document": "a"},
    ]
    draft = read_table(write_rows(tmp_path / "pairs.jsonl", rows))
    (judged,) = qrels(draft)["train"].values()
    assert [draft.document(document).text for document in judged] == ["a", "b"]
    assert [query.text for query in queries(draft).values()] == ["What is it?"]
    assert draft.dropped == {"repeated pair": 1}


def test_p92_texts_in_which_nothing_is_seen(tmp_path: Path) -> None:
    corpus = [("d1", ""), ("d2", "   "), ("d3", "\u200b"), ("d4", "real")]
    folder = write_collection(
        tmp_path / "c",
        [{"_id": i, "text": text} for i, text in corpus],
        [{"_id": "q1", "text": "q"}, {"_id": "q2", "text": "r"}, {"_id": "q3", "text": "\t\ufeff"}],
        {"train": [("q1", "d1", 1), ("q2", "d4", 1), ("q3", "d4", 1)]},
    )
    draft = read_beir(folder)
    assert list(documents(draft)) == ["d4"]
    assert qrels(draft) == {"train": {"q2": {"d4": 1.0}}}
    assert draft.dropped == {
        "empty document": 3,
        "empty query": 1,
        "judgement of an empty document": 1,
        "judgement of an empty query": 1,
    }


def test_blank_rows_of_a_table_are_counted(tmp_path: Path) -> None:
    rows = [
        {"query": "", "document": "a"},
        {"query": None, "document": "a"},
        {"query": "q", "document": " \u200b"},
        {"query": "A b", "document": "a  B"},
        {"query": "q", "document": "a"},
    ]
    draft = read_table(write_rows(tmp_path / "pairs.jsonl", rows))
    assert pairs(draft) == [("q", "a")]
    assert draft.dropped == {"empty query": 2, "empty document": 1, "query is its document": 1}


def test_ids_are_hashes_of_texts_whatever_the_order_of_rows(tmp_path: Path) -> None:
    rows = [{"query": f"q{n}", "document": f"d{n % 3}", "title": f"t{n % 2}"} for n in range(12)]
    one = read_table(write_rows(tmp_path / "a.jsonl", rows))
    two = read_table(write_rows(tmp_path / "b.jsonl", [{"query": "new", "document": "fresh"}, *rows[::-1]]))
    assert queries(one).keys() < queries(two).keys()
    assert documents(one).items() < documents(two).items()
    assert len(documents(one)) == 6  # three texts under two titles: six documents
    # By hand: printf '%s' 'is it?' | sha256sum | cut -c -20
    assert query_id(" Is  it? ") == "q0e139a2ccf11d31b2c84"
    assert document_id("a", "b c") == document_id("", "a b  c") != document_id("", "A b c")


@pytest.mark.parametrize("name", ["p.csv", "p.tsv", "p.parquet", "p.jsonl", "p.jsonl.gz"])
def test_tables_of_every_format_and_other_column_names(tmp_path: Path, name: str) -> None:
    rows = [
        {"ask": "how, then?", "reply": 'a "b"', "head": "H", "votes": "3"},
        {"ask": "wer?", "reply": "Ü\u2028x", "head": "", "votes": "1"},
    ]
    path = tmp_path / name
    if name == "p.parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif "jsonl" in name:
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    else:
        mark = "," if name == "p.csv" else "\t"
        quoted = [['"' + value.replace('"', '""') + '"' for value in row.values()] for row in rows]
        lines = [mark.join(line) for line in [list(rows[0]), *quoted]]
        path.write_text("\r\n".join(lines) + "\r\n", "utf-8-sig", newline="")
    draft = read_table(path, query_column="ask", document_column="reply", title_column="head")
    assert pairs(draft) == [("how, then?", 'a "b"'), ("wer?", "Ü\u2028x")]
    assert [document.title for document in documents(draft).values()] == ["H", ""]
    assert draft.notes == [f"columns of {name} that are not read: votes"]


def test_p89_optional_columns_may_come_late(tmp_path: Path) -> None:
    plain = [{"query": f"q{n}", "document": f"d{n}", "title": None} for n in range(500)]
    late = {"query": "z", "document": "y", "title": "t", "note": "n"}
    one = read_table(write_rows(tmp_path / "a.jsonl", [*plain, late]))
    two = read_table(write_rows(tmp_path / "b.jsonl", [late, *plain]))
    assert documents(one) == documents(two)
    assert qrels(one) == qrels(two)


# -- titles ------------------------------------------------------------------------------------------------------


def test_titles_become_queries_and_leave_their_documents(tmp_path: Path) -> None:
    corpus = [
        {"_id": "1", "title": "Cats", "text": "They purr."},
        {"_id": "2", "title": "", "text": "No title."},
        {"_id": "3", "title": "Nothing here", "text": " "},
        {"_id": "4", "title": "Cats", "text": "They  purr."},
        {"_id": "5", "title": "Dogs", "text": "dogs. They bark."},
        {"_id": "6", "title": "Dogs", "text": "Dogs bark."},
        {"_id": "7", "title": "Only", "text": "Only"},
    ]
    draft = Draft()
    titles.read(write_collection(tmp_path / "c", corpus, [], {}), OPTIONS, draft, silent)
    assert pairs(draft) == [("Cats", "They purr."), ("Dogs", "They bark."), ("Dogs", "Dogs bark.")]
    assert {document.title for document in documents(draft).values()} == {""}
    assert [document.extra["origin"] for document in documents(draft).values()] == ["1", "5", "6"]
    assert draft.dropped == {"document without a title": 1, "document without a text": 2, "repeated pair": 1}
    assert {source for _, _, source in sources(draft)} == {"title"}


@pytest.mark.parametrize(
    ("query", "text", "left"),
    [
        ("Layout", "Layout: a layout is", "a layout is"),
        ("Layout", "# no", "# no"),
        ("Layout", "LAYOUT\n\nA layout is", "A layout is"),
        ("Layout", "Layouts are", "Layouts are"),
        ("Layout", "Layout strings are", "Layout strings are"),
        ("Is it so?", "Is it so? It is.", "It is."),
        ("Layout.", "Layout. More", "More"),
        ("Layout", "  Layout - more", "more"),
        ("Layout", "Layout", ""),
        ("Layout", "Layout\nLayout: more", "more"),
        ("Layout", "Layout.html is", "Layout.html is"),
        ("?", "?", "?"),
        ("", "text", "text"),
    ],
)
def test_a_copied_query_is_cut_and_a_sentence_is_not(query: str, text: str, left: str) -> None:
    assert without_copy([query], text) == left


# -- BEIR folders ------------------------------------------------------------------------------------------------


def test_p85_duplicate_ids(tmp_path: Path) -> None:
    corpus = [{"_id": "d1", "text": "cat"}, {"_id": "d1", "text": "dog"}, {"_id": "d2", "text": "cow"}]
    folder = write_collection(tmp_path / "c", corpus, [], {})
    with pytest.raises(EmbedtrainError, match=r"1 duplicate ids, each with different document texts: d1;"):
        read_beir(folder)
    corpus[1]["text"] = "cat"
    draft = read_beir(write_collection(tmp_path / "same", corpus, [{"_id": "q", "text": "x"}] * 2, {}))
    assert list(documents(draft)) == ["d1", "d2"]
    assert draft.dropped == {"repeated document": 1, "repeated query": 1}


def test_p83_p84_p86_ids_are_texts_and_never_rows(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        '\n{"_id": 10, "text": "a"}\n{"_id": "20", "text": "b"}\n{"_id": "020", "text": "c"}\n'
        '{"_id": 9007199254740993, "text": "d"}\n{"_id": "1e5", "text": "e"}\n',
        "utf-8",
    )
    (folder / "queries.jsonl").write_text('{"_id": 7, "text": "a"}\n', "utf-8")
    (folder / "qrels" / "train.tsv").write_text("7\t20\t1\n7\t9007199254740993\t1\n", "utf-8")
    draft = read_beir(folder)
    assert list(documents(draft)) == ["10", "20", "020", "9007199254740993", "1e5"]
    assert pairs(draft) == [("a", "b"), ("a", "d")]
    assert draft.dropped == {"blank line": 1}


def test_the_same_id_in_two_sources(tmp_path: Path) -> None:
    for name, text in (("one", "cat"), ("two", "cat"), ("three", "dog")):
        rows = [{"_id": "d", "text": text}]
        write_collection(tmp_path / name, rows, [{"_id": "q", "text": "x"}], {"test": [("q", "d", 1)]})
    draft = read_beir(tmp_path / "one")
    beir.read(tmp_path / "two", OPTIONS, draft, silent)
    assert draft.dropped == {"repeated document": 1, "repeated query": 1, "repeated judgement": 1}
    with pytest.raises(EmbedtrainError, match="1 duplicate ids"):
        beir.read(tmp_path / "three", OPTIONS, draft, silent)


IDS = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), min_size=1, max_size=8)
TEXTS = st.text(max_size=30).map(lambda text: "x" + text)
EXTRAS = st.fixed_dictionaries({}, optional={"url": st.text(max_size=5), "meta": st.none() | st.text(max_size=5)})


def test_what_was_judged_outweighs_what_was_made() -> None:
    document, query = Document("", "Cats purr.", {}), Query("cats", {})
    for grade in (0.0, 2.0):
        before = draft_of({"d": document}, {query_id("cats"): query}, {"train": {query_id("cats"): {"d": grade}}})
        before.add_weak_pair("cats", "d", "click")
        after = Draft()
        after.add_document("d", document)
        after.add_weak_pair("cats", "d", "click", weight=0.5, grade=1.0)
        after.judge("train", query_id("cats"), "d", grade, "here")
        for draft in (before, after):
            assert qrels(draft) == {"train": {query_id("cats"): {"d": grade}}}
            assert sources(draft) == [("cats", "Cats purr.", "judged")]
            assert draft.pairs().weight.tolist() == [1.0]
            assert draft.dropped == {"repeated pair": 1}


def test_a_click_outweighs_a_skip() -> None:
    for grades in ((0.0, 1.0), (1.0, 0.0)):
        draft = draft_of({"d": Document("", "Cats purr.", {})}, {})
        for grade in grades:
            draft.add_weak_pair("cats", "d", "click" if grade else "skip", grade=grade)
        assert qrels(draft) == {"train": {query_id("cats"): {"d": 1.0}}}
        assert sources(draft) == [("cats", "Cats purr.", "click")]


def write_draft(draft: Draft, folder: Path, format: str) -> Path:
    folder.mkdir()
    writing.write(draft, folder, format)
    return folder


@given(
    documents=st.dictionaries(
        IDS, st.builds(Document, st.text(max_size=9), TEXTS, EXTRAS), min_size=1, max_size=6
    ),
    queries=st.dictionaries(IDS, st.builds(Query, TEXTS, EXTRAS), min_size=1, max_size=6),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_jsonl_to_parquet_to_jsonl_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    documents: dict[str, Document],
    queries: dict[str, Query],
    data: st.DataObject,
) -> None:
    grades = st.integers(-1, 3).map(float)
    judged = st.dictionaries(st.sampled_from(list(documents)), grades, min_size=1)
    qrels = data.draw(st.dictionaries(st.sampled_from(list(queries)), judged, min_size=1))
    home = tmp_path_factory.mktemp("trip")
    first = write_draft(draft_of(documents, queries, {"test": qrels}), home / "first", "jsonl")
    packed = write_draft(read_beir(first), home / "packed", "parquet")
    second = write_draft(read_beir(packed), home / "second", "jsonl")
    names = ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"]
    texts = [[readers.rows(folder / name) for name in names[:2]] for folder in (first, second)]
    for one, two in zip(*texts, strict=True):
        # A column that only some rows have is null in the others after Parquet: ids and texts are what must not move.
        own = ("_id", "title", "text")
        assert [[row.get(k) for k in own] for _, row in one] == [[row.get(k) for k in own] for _, row in two]
    assert (first / names[2]).read_bytes() == (second / names[2]).read_bytes()
    assert Collection(packed).qrels("test") == qrels
    if not any(row.extra for row in [*documents.values(), *queries.values()]):
        assert [(first / n).read_bytes() for n in names] == [(second / n).read_bytes() for n in names]


def test_columns_of_the_users_own_are_kept(tmp_path: Path) -> None:
    extras = [{}, {"metadata": {}, "url": None}, {"metadata": {"year": 2020}, "url": "u"}, {"metadata": None}]
    corpus = [{"_id": str(n), "text": "t"} | extra for n, extra in enumerate(extras)]
    draft = read_beir(write_collection(tmp_path / "c", corpus, [{"_id": "q", "text": "x", "who": "me"}], {}))
    folder = write_draft(draft, tmp_path / "out", "parquet")
    kept = pq.read_table(folder / "corpus.parquet")
    assert kept.column_names == ["_id", "title", "text", "metadata", "url"]
    assert kept["metadata"].to_pylist() == [None, "{}", '{"year": 2020}', None]
    assert kept["url"].to_pylist() == [None, None, "u", None]
    assert pq.read_table(folder / "queries.parquet")["who"].to_pylist() == ["me"]
    plain = write_draft(draft, tmp_path / "plain", "jsonl")
    assert [row.get("metadata") for _, row in readers.rows(plain / "corpus.jsonl")] == [
        None,
        {},
        {"year": 2020},
        None,
    ]


def test_ids_that_no_tsv_can_hold_are_refused(tmp_path: Path) -> None:
    draft = draft_of({"a\tb": Document("", "x", {})}, {"q": Query("x", {})}, {"test": {"q": {"a\tb": 1.0}}})
    write_draft(draft, tmp_path / "packed", "parquet")
    assert Collection(tmp_path / "packed").qrels("test") == {"q": {"a\tb": 1.0}}
    with pytest.raises(EmbedtrainError, match="cannot stand in a TSV file; choose another format"):
        write_draft(draft, tmp_path / "plain", "jsonl")


def test_p90_texts_have_64_bit_offsets_and_bounded_row_groups(tmp_path: Path) -> None:
    text = "x" * 1_000_000
    draft = draft_of({str(n): Document("", text, {}) for n in range(100)}, {"q": Query("x", {})})
    path = write_draft(draft, tmp_path / "c", "parquet") / "corpus.parquet"
    assert pq.read_schema(path).field("text").type == pa.large_string()
    assert pq.read_metadata(path).num_row_groups == 4  # 32 million characters each, at most
    assert sum(1 for _ in readers.rows(path)) == 100


@pytest.mark.slow
def test_p90_a_text_column_over_2_gb(tmp_path: Path) -> None:
    text = "x" * 1_000_000
    draft = draft_of({str(n): Document("", text, {}) for n in range(2_200)}, {"q": Query("x", {})})
    path = write_draft(draft, tmp_path / "c", "parquet") / "corpus.parquet"
    assert sum(len(row["text"]) for _, row in readers.rows(path)) == 2_200_000_000


# -- what a smaller collection keeps -----------------------------------------------------------------------------


def numbered(count: int, total: int) -> Draft:
    half = count // 2
    return draft_of(
        {f"d{n}": Document("", f"document {n}", {}) for n in range(total)},
        {f"q{n}": Query(f"query {n}", {}) for n in range(count)},
        {
            "test": {f"q{n}": {f"d{n}": 1.0} for n in range(half)},
            "train": {f"q{n}": {f"d{n}": 1.0, f"d{n + 1}": 0.0} for n in range(half, count)},
        },
    )


def test_limit_keeps_the_first_queries_of_each_split() -> None:
    draft = numbered(10, 30)
    draft.add_query("unjudged", Query("nobody judged me", {}))
    limit_queries(draft, 2)
    assert {name: list(judged) for name, judged in qrels(draft).items()} == {
        "test": ["q0", "q1"],
        "train": ["q5", "q6"],
    }
    assert list(queries(draft)) == ["q0", "q1", "q5", "q6"]
    assert draft.dropped == {"query beyond --limit": 7}


def test_documents_keeps_the_judged_and_a_sample_that_stays() -> None:
    judged = {f"d{n}" for n in range(11)}
    kept = []
    for total in (200, 300):
        draft = numbered(10, total)
        sample_documents(draft, 60, seed=1)
        assert len(documents(draft)) == 60
        assert judged <= documents(draft).keys()
        assert draft.dropped == {"document outside the sample": total - 60}
        assert list(documents(draft)) == sorted(documents(draft), key=lambda name: int(name[1:]))
        kept.append(documents(draft).keys() - judged)
    # With 100 more documents, about a third of the sample makes room, and no more; by position nearly all would.
    assert len(kept[0] & kept[1]) > 20
    other = numbered(10, 200)
    sample_documents(other, 60, seed=2)
    assert documents(other).keys() - judged != kept[0]


def test_documents_never_drops_what_is_judged() -> None:
    with pytest.raises(
        EmbedtrainError, match=r"--documents 10: 11 documents are judged and must stay; give at least 11"
    ):
        sample_documents(numbered(10, 30), 10, seed=0)
    draft = numbered(10, 8 + 3)
    sample_documents(draft, 50, seed=0)
    assert len(documents(draft)) == 11


# -- the command -------------------------------------------------------------------------------------------------


def test_scifact_from_the_command_line(run_cli: RunCli, tmp_path: Path) -> None:
    result = run_cli("harvest", SCIFACT, "--out", "c", "--split", "dev=0.2", "--json", "-q")
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert (said["kind"], said["documents"], said["rows"]) == ("beir", 5183, 5183)
    assert said["queries"]["test"] == 300
    assert said["queries"]["train"] + said["queries"]["dev"] == 809
    assert said["pairs"]["test"] == 339
    assert 100 < said["queries"]["dev"] < 220
    collection = Collection(tmp_path / "c")
    assert collection.splits == ["dev", "test", "train"]
    source = Collection(SCIFACT)
    assert collection.corpus.ids == source.corpus.ids
    assert list(collection.corpus) == list(source.corpus)
    assert collection.qrels("test") == source.qrels("test")
    assert {**collection.qrels("train"), **collection.qrels("dev")} == source.qrels("train")
    again = run_cli("harvest", SCIFACT, "--out", "c", "--split", "dev=0.2")
    assert again.stdout.startswith("harvest: up to date: c\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


def test_a_small_collection_is_the_same_whatever_the_hash_seed(
    run_cli: RunCli, tiny: Path, tmp_path: Path
) -> None:
    contents = []
    for hash_seed in ("1", "2"):
        out = tmp_path / f"c{hash_seed}"
        arguments = (
            "--split",
            "dev=0.3",
            "--limit",
            "10",
            "--documents",
            "60",
            "--format",
            "jsonl",
            "--seed",
            "5",
        )
        result = run_cli("harvest", tiny, "--out", out, *arguments, PYTHONHASHSEED=hash_seed)
        assert result.returncode == 0, result.stderr
        contents.append({path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()})
    assert contents[0] == contents[1]
    collection = Collection(tmp_path / "c1")
    assert len(collection.corpus) == 60
    assert [len(collection.qrels(split)) for split in ("dev", "test", "train")] == [10, 10, 10]
    kept = {Path(name) for name in ("corpus.jsonl", "queries.jsonl", "embedtrain.json")}
    assert contents[0].keys() == kept | {Path("qrels") / f"{split}.tsv" for split in ("dev", "test", "train")}


def test_several_kinds_in_one_run(run_cli: RunCli, tiny: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "pairs.jsonl", [{"query": "q", "document": "d", "title": "t"}])
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# Cats\n\nThey purr all day long.\n")
    result = run_cli("harvest", tiny, "pairs.jsonl", "docs", "--out", "c", "--json")
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert said["kind"] == "beir + table + markdown"
    assert said["sources"] == {"table": 1, "title": 1}
    assert [note for note in said["notes"] if note.startswith("recognised")] == [
        "recognised as beir: tiny",
        "recognised as table: pairs.jsonl",
        "recognised as markdown: docs",
    ]
    rows = [row for _, row in readers.rows(tmp_path / "c" / "qrels" / "train.parquet")]
    assert Counter(row["source"] for row in rows)["judged"] == len(rows) - 2
    assert rows[-1]["query-id"] == query_id("cats")
    assert len(Collection(tmp_path / "c").qrels("train")) == len(Collection(tiny).qrels("train")) + 2


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_weak_pairs_say_where_they_come_from(run_cli: RunCli, tiny: Path, tmp_path: Path, format: str) -> None:
    result = run_cli("harvest", tiny, "--kind", "titles", "--format", format, "--out", "c")
    assert result.returncode == 0, result.stderr
    (path,) = (tmp_path / "c" / "qrels").iterdir()
    rows = [row for _, row in readers.rows(path)]
    assert list(rows[0]) == ["query-id", "corpus-id", "score", "source"]
    assert {row["source"] for row in rows} == {"title"}
    collection = Collection(tmp_path / "c")
    for query, positives in collection.positives("train").items():
        for document in positives:
            text = collection.corpus.by_id(document)
            assert not text.casefold().startswith(collection.queries.by_id(query).casefold())
    assert sum(map(len, collection.qrels("train").values())) == len(rows)


def test_kinds_are_recognised(tmp_path: Path, tiny: Path) -> None:
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "docs" / "corpus-notes.md").write_text("# a")
    (tmp_path / "pairs.csv").write_text("query,document\n")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.md", "# a")
        archive.writestr("b.html", "<p>b</p>")
    (tmp_path / "log.csv").write_text("query,url,rank,clicked\nq,u,1,0\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.docx").write_bytes(b"")
    assert recognise(tiny) == "beir"
    assert recognise(tmp_path / "docs") == "markdown"
    assert recognise(tmp_path / "docs" / "corpus-notes.md") == "markdown"
    assert recognise(tmp_path / "a.zip") == "documents"
    assert recognise(tmp_path / "log.csv") == "clicks"
    assert recognise(tmp_path / "pairs.csv") == "table"
    for name in ("empty", "a.docx"):
        with pytest.raises(EmbedtrainError, match=f"cannot tell what .*{name} is: .*; give --kind or convert it"):
            recognise(tmp_path / name)


ERRORS: list[tuple[str, list[str], int, str]] = [
    ("no such path", ["nowhere"], 1, "source nowhere does not exist; check the path"),
    ("empty file", ["empty.jsonl"], 1, "empty.jsonl is empty; a table needs rows"),
    ("not JSON", ["broken.jsonl"], 1, "broken.jsonl line 2 is not JSON"),
    ("no column", ["pairs.jsonl", "--query-column", "question"], 1, "its columns are: query, document"),
    ("no column in CSV", ["pairs.csv"], 1, "its columns are: q, document; say which to read with --query-column"),
    ("dangling", ["dangling"], 1, "4 document ids are not in the corpus: x0, x1, x2, ...;"),
    ("no pairs", ["blank.jsonl"], 1, "no documents are left of blank.jsonl (empty document 1)"),
    ("no pages", ["--kind", "markdown", "dangling"], 1, "dangling holds no Markdown pages"),
    ("a file for a folder", ["--kind", "beir", "pairs.jsonl"], 1, "pairs.jsonl is no folder"),
    ("unknown kind", ["pairs.jsonl", "--kind", "docx"], 2, "--kind docx: auto, beir, table, clicks, titles, "),
    ("unknown format", ["pairs.jsonl", "--format", "csv"], 2, "--format csv: parquet, jsonl are the formats"),
    ("bad share", ["pairs.jsonl", "--split", "dev=2"], 2, "'dev=2' is no NAME=SHARE"),
    ("no room", ["pairs.jsonl", "--split", "dev=0.5"], 1, "would leave"),
    ("same column", ["pairs.jsonl", "--query-column", "document"], 2, "name the same column"),
    ("small sample", ["tiny", "--documents", "3"], 2, "--documents 3: "),
    ("split that is there", ["tiny", "--split", "test=0.2"], 2, "the source has a split test already"),
    ("below a file", ["pairs.jsonl", "--out", "pairs.csv/c"], 1, "cannot write to pairs.csv: pairs.csv is a file"),
    ("in /proc", ["pairs.jsonl", "--out", "/proc/nowhere/c"], 1, "cannot write to /proc/nowhere: "),
    (
        "inside the source",
        ["dangling", "--out", "dangling/c"],
        2,
        "--out dangling/c lies inside the source dangling",
    ),
    ("not ours", ["pairs.jsonl", "--out", "dangling"], 2, "--out dangling exists and was not made by embedtrain"),
    ("no such option", ["pairs.jsonl", "--colour", "red"], 2, "No such option: --colour"),
    ("not a number", ["pairs.jsonl", "--limit", "0"], 2, "'--limit'"),
]


@pytest.mark.parametrize(("arguments", "code", "sentence"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS])
def test_errors_are_a_sentence_and_leave_nothing(
    run_cli: RunCli, tiny: Path, tmp_path: Path, arguments: list[str], code: int, sentence: str
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "broken.jsonl").write_text('{"query": "q", "document": "d"}\n{"query": \n')
    (tmp_path / "pairs.csv").write_text("q,document\na,b\n")
    write_rows(tmp_path / "pairs.jsonl", [{"query": "q", "document": "d"}])
    write_rows(tmp_path / "blank.jsonl", [{"query": "q", "document": " "}])
    judged = [("q", "d", 1), *(("q", f"x{n}", 1) for n in range(4))]
    write_collection(
        tmp_path / "dangling", [{"_id": "d", "text": "t"}], [{"_id": "q", "text": "q"}], {"test": judged}
    )
    (tmp_path / "tiny").symlink_to(tiny)
    before = sorted(tmp_path.rglob("*"))
    out = [] if "--out" in arguments else ["--out", "new/c"]
    result = run_cli("harvest", *arguments, *out, "-q")
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr.startswith("error: ")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_an_error_of_a_stage_that_reads_a_collection(run_cli: RunCli, tiny: Path, tmp_path: Path) -> None:
    assert run_cli("harvest", tiny, "--out", "c", "-q").returncode == 0
    before = sorted(tmp_path.rglob("*"))
    wrong = run_cli("score-teacher", "c", "--teacher", "t", "--out", "s.parquet")
    assert wrong.returncode == 1
    assert "c is a collection artifact where a mined or scored one is needed" in wrong.stderr
    assert "embedtrain mine COLLECTION --out mined.parquet" in wrong.stderr
    missing = run_cli("mine", "nowhere", "--out", "m.parquet")
    assert (missing.returncode, missing.stderr) == (
        1,
        "error: collection nowhere does not exist; check the path\n",
    )
    weightless = run_cli("mine", "c", "--model", "c", "--out", "m.parquet")
    assert weightless.returncode == 1
    assert "error: model folder c holds no weights" in weightless.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    for format in ("parquet", "jsonl"):
        command = ["harvest", str(SCIFACT), "--out", "new/c", "--format", format, "-q"]
        result = subprocess.run(
            [sys.executable, "-m", "embedtrain", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            preexec_fn=small_files,
            check=False,
        )
        assert (result.returncode, result.stdout) == (1, "")
        assert "error: the disk is full or a limit on file size is reached" in result.stderr
        assert list(tmp_path.iterdir()) == []


# Runs the command and sends itself a signal at a chosen moment of the writing.
STRUCK = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start what stands behind with it ignored
from embedtrain.harvest import writing
whole = writing.write
def half(draft, folder, format):
    if MOMENT == "before":
        os.kill(os.getpid(), SIGNAL)
    whole(draft, folder, format)
    os.kill(os.getpid(), SIGNAL)
import embedtrain.harvest
embedtrain.harvest.write = half
from embedtrain.cli import main
sys.argv = ["embedtrain", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_struck_in_the_middle_nothing_looks_whole(
    run_cli: RunCli, tiny: Path, tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    script = STRUCK.replace("MOMENT", repr(moment)).replace("SIGNAL", str(int(number)))
    for old in (False, True):
        if old:
            assert run_cli("harvest", tiny, "--out", "c", "--limit", "3", "-q").returncode == 0
        struck = subprocess.run(
            [sys.executable, "-c", script, "harvest", str(tiny), "--out", "c", "-q"],
            cwd=tmp_path,
            env=dict(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )
        assert struck.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
        names = {path.name for path in tmp_path.iterdir()}
        hidden = {name for name in names if name.startswith(".")}
        assert names - hidden == ({"c"} if old else set())
        # Of what was read nothing is lost: the same command goes on from there.
        assert len([name for name in hidden if name.startswith(".c.work-")]) == 1
        if number == signal.SIGINT:
            assert len(hidden) == 1
            assert "interrupted" in struck.stderr
        if old:
            assert len(Collection(tmp_path / "c").queries) == 6
    assert run_cli("harvest", tiny, "--out", "c", "-q").returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    assert len(Collection(tmp_path / "c").queries) == 55


@pytest.mark.parametrize(
    ("name", "documents", "queries"),
    [
        ("banking77", 77, {"test": 3_080, "train": 10_003}),
        ("squad-small", 4_802, {"dev": 4_479, "test": 6_091, "train": 12_340}),
        ("medquad", 15_809, {"dev": 1_387, "liveqa": 86, "test": 1_403, "train": 11_508}),
    ],
)
def test_other_real_collections(name: str, documents: int, queries: dict[str, int]) -> None:
    if not SHARED.is_dir():
        pytest.skip("the larger collections are not on this machine")
    draft = read_beir(SHARED / name)
    assert draft.count("documents") == documents
    assert {split: len(judged) for split, judged in qrels(draft).items()} == queries
    cut(draft, {"held": 0.1}, seed=0)
    assert 0 < len(qrels(draft)["held"]) < 0.25 * queries["train"]
