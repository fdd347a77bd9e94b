"""A BEIR folder as an object: ids are strings everywhere, and what does not fit together is refused.

Deliberate breaks that turn a test red: taking the last column as the grade whatever the header says; keeping the
last of repeated ids; joining a missing title; letting dangling ids pass.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embedtrain.collection import Collection, is_blank, join_title, judgements, split_files, table_files
from embedtrain.duplicates import BLANK, fingerprint
from embedtrain.errors import EmbedtrainError


def make(folder: Path, corpus: str, queries: str, **qrels: str) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(corpus, "utf-8")
    (folder / "queries.jsonl").write_text(queries, "utf-8")
    for split, text in qrels.items():
        (folder / "qrels" / f"{split}.tsv").write_text(text, "utf-8")
    return folder


CORPUS = '{"_id": "d1", "title": "t", "text": "a"}\n{"_id": "d2", "text": "b"}\n'
QUERIES = '{"_id": "q1", "text": "q"}\n'


def test_p83_integer_and_text_ids_meet(tmp_path: Path) -> None:
    folder = make(tmp_path / "c", '{"_id": 1, "text": "a"}\n', '{"_id": 7, "text": "a"}\n', test="7\t1\t1\n")
    collection = Collection(folder)
    assert collection.qrels("test") == {"7": {"1": 1.0}}
    assert collection.corpus.by_id("1") == "a"


def test_p85_repeated_ids_are_refused_with_an_example(tmp_path: Path) -> None:
    corpus = '{"_id": "d1", "text": "cat"}\n{"_id": "d1", "text": "dog"}\n{"_id": "d2", "text": "cow"}\n'
    with pytest.raises(EmbedtrainError, match=r"1 repeated ids in its corpus: d1;"):
        Collection(make(tmp_path / "c", corpus, QUERIES))


def test_p86_a_judgement_means_an_id_not_a_row(tmp_path: Path) -> None:
    corpus = '\n{"_id": "10", "text": "a"}\n{"_id": "20", "text": "b"}\n'
    collection = Collection(make(tmp_path / "c", corpus, '{"_id": "q", "text": "a"}\n', train="q\t20\t1\n"))
    (positive,) = collection.positives("train")["q"]
    assert collection.corpus.by_id(positive) == "b"


def test_p58_titles_that_are_missing_empty_or_null(tmp_path: Path) -> None:
    rows = [
        {"_id": "1", "text": "b"},
        {"_id": "2", "title": None, "text": "b"},
        {"_id": "3", "title": "", "text": "b"},
        {"_id": "4", "title": "t", "text": "b"},
        {"_id": "5", "title": "t", "text": ""},
    ]
    folder = make(tmp_path / "c", "".join(json.dumps(row) + "\n" for row in rows), QUERIES)
    corpus = Collection(folder).corpus
    assert list(corpus) == ["b", "b", "b", "t b", "t"]
    assert corpus[4:2:-1] == ["t", "t b"]
    assert (corpus.title(3), corpus.body(3), corpus.title(0)) == ("t", "b", "")
    assert join_title("", "") == ""


@pytest.mark.parametrize(
    "text",
    [
        "q1 0 d1 1\n",
        "q1\tQ0\td1\t1\n",
        "q1\td1\t1\n",
        "q1 d1 1\n",
        "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
        "\nquery-id\tcorpus-id\tscore\r\nq1\td1\t1\r\n",
        "query-id corpus-id score\nq1 d1 1\n",
        "query-id\tcorpus-id\tscore\tsource\nq1\td1\t1\ttitle\n",
        "qid\titer\tdocid\trel\nq1\t0\td1\t1\n",
        "\ufeffquery-id\tcorpus-id\tscore\nq1\td1\t1\n\n",
    ],
)
def test_p91_variants_of_qrels(tmp_path: Path, text: str) -> None:
    collection = Collection(make(tmp_path / "c", CORPUS, QUERIES, test=text))
    assert collection.qrels("test") == {"q1": {"d1": 1.0}}


def test_a_query_called_query_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("query\tscore\t1\n", "utf-8")
    assert list(judgements(path)) == [(1, ("query", "score", 1.0))]


def test_ids_with_blanks_stay_whole_between_tabs(tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("my query\t my doc\t2\n", "utf-8")
    assert list(judgements(path)) == [(1, ("my query", " my doc", 2.0))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q1\td1\t1\nq1\td1\n", r"test\.tsv line 2 has 2 columns; query-id, corpus-id and score are needed"),
        ("q1\td1\t1\nq1\td2\thigh\n", r"test\.tsv line 2 has the grade 'high'; a number is needed"),
        ("q1\td1\tnan\n", r"test\.tsv line 1 has the grade 'nan'"),
        ("query-id\tcorpus-id\tscore\tsource\nq1\td1\t1\n", r"test\.tsv line 2 has 3 columns"),
        ("q1\td1\t1\nq1\td1\t2\n", r"test\.tsv line 2 judges query q1 and document d1 a second time"),
        ("query-id\tcorpus-id\tscore\n", r"test\.tsv is empty; a split needs judgements"),
        ("q1\tdX\t1\nq1\tdY\t1\nq1\td1\t1\n", r"2 document ids are not in the corpus: dX, dY;"),
        (
            "".join(f"q1\tx{n}\t1\n" for n in range(5)),
            r"5 document ids are not in the corpus: x0, x1, x2, \.\.\.;",
        ),
        ("q9\td1\t1\n", r"1 query ids are not in the queries: q9;"),
    ],
)
def test_qrels_that_cannot_be(tmp_path: Path, text: str, message: str) -> None:
    collection = Collection(make(tmp_path / "c", CORPUS, QUERIES, test=text))
    with pytest.raises(EmbedtrainError, match=message):
        collection.qrels("test")


def test_the_same_judgement_twice_is_one(tmp_path: Path) -> None:
    collection = Collection(make(tmp_path / "c", CORPUS, QUERIES, test="q1\td1\t1\nq1\td1\t1\n"))
    assert collection.qrels("test") == {"q1": {"d1": 1.0}}


def test_positives_have_a_grade_above_zero(tmp_path: Path) -> None:
    queries = QUERIES + '{"_id": "q2", "text": "r"}\n'
    collection = Collection(make(tmp_path / "c", CORPUS, queries, test="q1 d1 0\nq1 d2 2\nq2 d1 -1\n"))
    assert collection.positives("test") == {"q1": ["d2"]}


def test_a_split_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    collection = Collection(make(tmp_path / "c", CORPUS, QUERIES, test="q1 d1 1\n", dev="q1 d1 1\n"))
    assert collection.splits == ["dev", "test"]
    with pytest.raises(EmbedtrainError, match=r"has no split 'train'; its splits are: dev, test"):
        collection.qrels("train")


def test_parquet_and_jsonl_are_the_same_collection(tmp_path: Path) -> None:
    plain = Collection(make(tmp_path / "a", CORPUS, QUERIES, test="q1\td1\t1\n"))
    folder = tmp_path / "b"
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": "d1", "title": "t", "text": "a"}, {"_id": "d2", "title": None, "text": "b"}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "corpus.parquet")
    pq.write_table(pa.Table.from_pylist([{"_id": "q1", "text": "q"}]), folder / "queries.parquet")
    qrels = [{"query-id": "q1", "corpus-id": "d1", "score": 1}]
    pq.write_table(pa.Table.from_pylist(qrels), folder / "qrels" / "test.parquet")
    packed = Collection(folder)
    assert packed.corpus.ids == plain.corpus.ids
    assert list(packed.corpus) == list(plain.corpus)
    assert packed.qrels("test") == plain.qrels("test")


def test_shards_are_one_corpus_in_order(tmp_path: Path) -> None:
    folder = make(tmp_path / "c", CORPUS, QUERIES)
    (folder / "corpus.jsonl").unlink()
    for number in (2, 1, 3):
        row = json.dumps({"_id": f"d{number}", "text": "x"})
        (folder / f"corpus-0000{number}-of-00003.jsonl").write_text(row + "\n", "utf-8")
    assert Collection(folder).corpus.ids == ["d1", "d2", "d3"]
    (folder / "corpus-00002-of-00003.jsonl").unlink()
    with pytest.raises(EmbedtrainError, match=r"has 2 files for its corpus .*all shards of one set, are needed"):
        Collection(folder)


def test_two_spellings_of_one_table_or_split_are_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "c", CORPUS, QUERIES, test="q1 d1 1\n")
    (folder / "qrels" / "._test.tsv").write_bytes(b"\0")  # what a Mac leaves behind is no split
    assert list(split_files(folder)) == ["test"]
    (folder / "qrels" / "test.parquet").write_bytes(b"")
    with pytest.raises(EmbedtrainError, match=r"two files for the split 'test': test\.parquet and test\.tsv"):
        split_files(folder)
    (folder / "corpus.csv").write_text("_id,text\n", "utf-8")
    with pytest.raises(EmbedtrainError, match="has 2 files for its corpus"):
        table_files(folder, "corpus")


@pytest.mark.parametrize(
    ("corpus", "queries", "message"),
    [
        ("", QUERIES, r"the corpus of .* is empty; a collection needs documents"),
        ('{"_id": "d1"}\n', QUERIES, r"corpus\.jsonl line 1 has no column 'text'; its columns are: _id"),
        ('{"id": "d1", "text": "a"}\n', QUERIES, r"line 1 has no column '_id'; its columns are: id, text"),
        ('{"_id": null, "text": "a"}\n', QUERIES, r"line 1 column _id is None; an id is a string"),
        ('{"_id": "d1", "text": 5}\n', QUERIES, r"line 1 column text is int, not text"),
        (CORPUS, '{"_id": "q1", "text": "a"}\nnonsense\n', r"queries\.jsonl line 2 is not JSON"),
    ],
)
def test_tables_that_cannot_be(tmp_path: Path, corpus: str, queries: str, message: str) -> None:
    with pytest.raises(EmbedtrainError, match=message):
        Collection(make(tmp_path / "c", corpus, queries))


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(EmbedtrainError, match=r"corpus\.jsonl is a file where a collection folder is needed"):
        Collection(file)
    with pytest.raises(EmbedtrainError, match="does not exist; make one with: embedtrain harvest"):
        Collection(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(EmbedtrainError, match=r"has no corpus\.parquet or corpus\.jsonl"):
        Collection(tmp_path / "empty")


@pytest.mark.parametrize(
    ("text", "blank"),
    [
        ("", True),
        (" \n\u00a0\u3000\u200b\ufeff\u00ad\x00\x1c", True),
        ("\u180e\u061c\U000e0020", True),  # format characters: a separator, a mark of direction, a tag
        ("a", False),
        ("?", False),
        ("\u0301", False),
    ],
)
def test_blank_means_the_same_to_harvest_and_to_mine(text: str, blank: bool) -> None:
    assert is_blank(text) is blank
    assert (fingerprint(text) == BLANK) is blank
