"""export: every format holds what the collection and its mined rows hold, and comes back through `harvest` as the same.

Deliberate breaks that turn a test red: only the first positive; masked or dropped candidates as negatives; promoted ones left
out; titles left out, or joined twice; rows with too few negatives kept; scores of the wrong document; tabs and line ends in
MS MARCO's tables; a header in them; row groups without a bound; a folder without its record; a file half written.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import SCIFACT, write_collection
from hypothesis import given, settings
from hypothesis import strategies as st
from test_harvest_table import found

from embedtrain import exchange, readers
from embedtrain.artifacts import Claim, Input, content_sha256, read_record
from embedtrain.collection import Collection, join_title
from embedtrain.config import ExportOptions
from embedtrain.console import silent
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.exchange import Exported, export
from embedtrain.harvest.tables.pairs import Pair
from embedtrain.mined import MinedRow, to_table

Triple = tuple[str, str, float]
ENDING = {
    "triplets": ".parquet",
    "tuples": ".parquet",
    "lists": ".parquet",
    "flagembedding": ".jsonl",
    "tevatron": ".jsonl",
}


def artifact(path: Path, collection: Path, rows: list[MinedRow]) -> Path:
    """Mined rows as an artifact of a collection; scored where they have verdicts."""
    kind: Any = "scored" if rows[0].verdict is not None else "mined"
    claim = Claim(
        path, kind=kind, stage="test", options=ExportOptions(), inputs=[Input.of("collection", collection)]
    )
    claim.write_table(to_table(rows, kind), dropped={}, summary={})
    return path


def row(query: str, positives: list[str], negatives: list[str], others: list[str], **more: Any) -> MinedRow:
    candidates = [*negatives, *others]
    count = len(candidates)
    return MinedRow(
        query,
        positives,
        candidates,
        list(range(1, count + 1)),
        ["bm25"] * count,
        [True] * len(negatives) + [False] * len(others),
        ["selected"] * len(negatives) + ["eligible"] * len(others),
        {"bm25": [float(-n) for n in range(count)]},
        {"bm25": list(range(1, count + 1))},
        {"bm25": [1.0] * len(positives)},
        **more,
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    corpus = [{"_id": f"d{n}", "title": "T" if n % 2 else "", "text": f"text {n}"} for n in range(8)]
    queries = [{"_id": f"q{n}", "text": f"ask {n}"} for n in range(3)]
    qrels = {"train": [("q0", "d0", 2), ("q0", "d1", 1), ("q0", "d2", 0), ("q1", "d3", 1), ("q2", "d4", 0)]}
    return write_collection(
        tmp_path_factory.mktemp("small") / "c", corpus, queries, {**qrels, "test": [("q1", "d3", 1)]}
    )


MINED = [row("q0", ["d0", "d1"], ["d5", "d6"], ["d7"]), row("q1", ["d3"], ["d2"], [])]
SCORED = [
    row(
        "q0",
        ["d0"],
        ["d5", "d6", "d7", "d1"],
        ["d2"],
        positive_teacher=[2.5],
        candidate_teacher=[-1.25, 3.0, 2.0, 4.0, None],
        verdict=["keep", "drop", "mask", "promote", "keep"],
    ),
    row("q1", ["d3"], ["d2"], [], positive_teacher=[1.0], candidate_teacher=[0.5], verdict=["keep"]),
]


@pytest.fixture(scope="module")
def mined(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return artifact(tmp_path_factory.mktemp("mined") / "m.parquet", small, MINED)


@pytest.fixture(scope="module")
def scored(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return artifact(tmp_path_factory.mktemp("scored") / "s.parquet", small, SCORED)


def written(
    collection: Path, artifact: Path | None, out: Path, **options: Any
) -> tuple[list[dict[str, Any]], Exported]:
    made = export(Collection(collection), artifact, out, ExportOptions(**options), silent)
    return [row for _, row in readers.rows(out)], made


# -- each format by hand -----------------------------------------------------------------------------------------


def test_triplets(small: Path, mined: Path, tmp_path: Path) -> None:
    rows, made = written(small, mined, tmp_path / "t.parquet", to="triplets")
    # 2 positives * 2 negatives, and 1 * 1.
    assert [tuple(row.values()) for row in rows] == [
        ("ask 0", "text 0", "T text 5"), ("ask 0", "text 0", "text 6"),
        ("ask 0", "T text 1", "T text 5"), ("ask 0", "T text 1", "text 6"),
        ("ask 1", "T text 3", "text 2"),
    ]  # fmt: skip
    assert list(rows[0]) == ["query", "positive", "negative"]
    assert (made.rows, made.dropped) == (5, {})
    judged, told = written(small, None, tmp_path / "j.jsonl", to="triplets")
    assert [row["negative"] for row in judged] == ["text 2", "text 2"]
    assert told.dropped == {"query without a negative": 1, "query without a positive": 1}


def test_tuples(small: Path, mined: Path, tmp_path: Path) -> None:
    rows, made = written(small, mined, tmp_path / "t.parquet", to="tuples", negatives=2)
    assert rows == [
        {"query": "ask 0", "positive": text, "negative_1": "T text 5", "negative_2": "text 6"}
        for text in ("text 0", "T text 1")
    ]
    assert (made.dropped, made.notes) == ({"positive with fewer than 2 negatives": 1}, ["2 negatives a row"])
    rows, made = written(small, mined, tmp_path / "u.parquet", to="tuples", negatives=1)
    assert (len(rows), made.dropped) == (3, {"negative beyond --negatives": 1})
    # One query has two negatives, another one: of numbers as common the smaller.
    assert written(small, mined, tmp_path / "v.parquet", to="tuples")[0] == rows
    rows, made = written(small, mined, tmp_path / "w.jsonl", to="tuples", ragged=True)
    assert [row["negatives"] for row in rows] == [["T text 5", "text 6"]] * 2 + [["text 2"]]
    pairs, _ = written(small, None, tmp_path / "x.parquet", to="tuples", negatives=0)
    assert [tuple(row) for row in pairs] == [("query", "positive")] * 3


def test_lists(small: Path, scored: Path, tmp_path: Path) -> None:
    rows, _ = written(small, None, tmp_path / "l.parquet", to="lists")
    assert rows[0] == {"query": "ask 0", "documents": ["text 0", "T text 1", "text 2"], "labels": [2, 1, 0]}
    assert pq.read_schema(tmp_path / "l.parquet").field("labels").type == pa.list_(pa.int64())
    rows, made = written(small, scored, tmp_path / "s.parquet", to="lists", labels="scores")
    assert rows[0] == {
        "query": "ask 0",
        "documents": ["text 0", "T text 1", "T text 5"],
        "labels": [2.5, 4.0, -1.25],
    }
    assert made.dropped == {}


def test_flagembedding(small: Path, mined: Path, scored: Path, tmp_path: Path) -> None:
    rows, _ = written(small, mined, tmp_path / "m.jsonl", to="flagembedding")
    assert rows[1] == {"query": "ask 1", "pos": ["T text 3"], "neg": ["text 2"]}
    rows, _ = written(small, scored, tmp_path / "s.jsonl", to="flagembedding")
    assert rows == [
        {"query": "ask 0", "pos": ["text 0", "T text 1"], "neg": ["T text 5"], "pos_scores": [2.5, 4.0], "neg_scores": [-1.25]},
        {"query": "ask 1", "pos": ["T text 3"], "neg": ["text 2"], "pos_scores": [1.0], "neg_scores": [0.5]},
    ]  # fmt: skip


def test_tevatron(small: Path, mined: Path, tmp_path: Path) -> None:
    rows, _ = written(small, mined, tmp_path / "t.jsonl", to="tevatron")
    assert rows[1] == {
        "query_id": "q1",
        "query": "ask 1",
        "positive_passages": [{"docid": "d3", "title": "T", "text": "text 3"}],
        "negative_passages": [{"docid": "d2", "title": "", "text": "text 2"}],
    }


def test_msmarco(small: Path, mined: Path, tmp_path: Path) -> None:
    made = export(Collection(small), mined, tmp_path / "m", ExportOptions(to="msmarco"), silent)
    lines = {path.name: path.read_text().splitlines() for path in (tmp_path / "m").iterdir()}
    assert lines["collection.tsv"][:2] == ["d0\ttext 0", "d1\tT text 1"]
    assert lines["queries.tsv"] == ["q0\task 0", "q1\task 1", "q2\task 2"]
    assert lines["qrels.tsv"] == ["q0\t0\td0\t1", "q0\t0\td1\t1", "q1\t0\td3\t1"]
    assert lines["triples.tsv"] == ["q0\td0\td5", "q0\td0\td6", "q0\td1\td5", "q0\td1\td6", "q1\td3\td2"]
    assert (made.rows, made.notes) == (8, ["titles of 4 documents were put in front of their texts"])
    export(Collection(small), None, tmp_path / "j", ExportOptions(to="msmarco"), silent)
    assert (tmp_path / "j" / "qrels.tsv").read_text().splitlines()[:3] == [
        "q0\t0\td0\t2",
        "q0\t0\td1\t1",
        "q0\t0\td2\t0",
    ]
    assert not (tmp_path / "j" / "triples.tsv").exists()


def test_beir_is_a_collection_with_its_record(small: Path, tmp_path: Path) -> None:
    collection = Collection(small)
    options = ExportOptions(to="beir")
    claim = Claim(
        tmp_path / "b", kind="collection", stage="export", options=options, inputs=[collection.as_input()]
    )
    made = export(collection, None, tmp_path / "b", options, silent, claim=claim)
    again = Collection(tmp_path / "b")
    assert (list(again.corpus), again.corpus.ids) == (list(collection.corpus), collection.corpus.ids)
    assert list(again.queries) == list(collection.queries)
    assert {split: again.qrels(split) for split in again.splits} == {
        s: collection.qrels(s) for s in collection.splits
    }
    record = read_record(tmp_path / "b") or {}
    assert (record["stage"], record["rows"], made.rows) == ("export", 8, 8)
    assert Claim(
        tmp_path / "b", kind="collection", stage="export", options=options, inputs=[collection.as_input()]
    ).up_to_date


# -- round trips -------------------------------------------------------------------------------------------------


def pairs_of(source: Path, **flags: Any) -> set[Triple]:
    """(query, title and text, grade) of what harvest reads."""
    return {
        (item.query, join_title(*item.document[:2]), item.grade)
        for item in found(source, **flags)
        if isinstance(item, Pair)
    }


def expected(collection: Collection, rows: list[MinedRow]) -> set[Triple]:
    """The same of mined rows, in an obvious loop."""
    return {
        (collection.queries.by_id(row.query_id), collection.corpus.by_id(document), grade)
        for row in rows
        for grade, documents in ((1.0, [*row.positive_ids, *row.promoted]), (0.0, row.negatives))
        for document in documents
    }


@pytest.fixture(scope="module")
def real(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[MinedRow]]:
    """Rows of the tiny collection, three negatives each, with scores and all verdicts."""
    collection = Collection(tiny)
    rows = []
    for number, (query, positives) in enumerate(collection.positives("train").items()):
        others = [d for d in collection.corpus.ids if d not in collection.qrels("train")[query]]
        chosen = [others[(7 * number + step) % len(others)] for step in range(6)]
        scores = [number / 8 - step for step in range(6)]
        verdict = ["keep", "keep", "keep", "drop", "mask", "keep" if number % 5 else "promote"]
        rows.append(
            row(query, positives, chosen, [], positive_teacher=[number + 0.1] * len(positives), candidate_teacher=scores,
                verdict=verdict if number % 5 else verdict[:5] + ["promote"])
        )  # fmt: skip
        if number % 5:  # a candidate that was never selected
            rows[-1].selected[5] = False
    return artifact(tmp_path_factory.mktemp("real") / "s.parquet", tiny, rows), rows


@pytest.mark.parametrize(
    ("options", "out"),
    [
        ({"to": "triplets"}, "t.parquet"),
        ({"to": "triplets"}, "t.jsonl"),
        ({"to": "tuples", "negatives": 3}, "t.parquet"),
        ({"to": "tuples"}, "t.jsonl"),
        ({"to": "tuples", "ragged": True}, "t.parquet"),
        ({"to": "lists"}, "t.parquet"),
        ({"to": "flagembedding"}, "t.jsonl"),
        ({"to": "tevatron"}, "t.jsonl"),
    ],
)
def test_every_file_comes_back_the_same(
    tiny: Path, real: tuple[Path, list[MinedRow]], tmp_path: Path, options: dict[str, Any], out: str
) -> None:
    artifact, rows = real
    _, made = written(tiny, artifact, tmp_path / out, **options)
    assert not made.dropped
    truth = expected(Collection(tiny), rows)
    assert Counter(grade for *_, grade in truth)[0.0] == 3 * len(rows)
    assert pairs_of(tmp_path / out) == truth


@pytest.mark.parametrize("with_rows", [True, False])
def test_msmarco_comes_back_the_same(
    tiny: Path, real: tuple[Path, list[MinedRow]], tmp_path: Path, with_rows: bool
) -> None:
    artifact, rows = real
    collection = Collection(tiny)
    export(collection, artifact if with_rows else None, tmp_path / "m", ExportOptions(to="msmarco"), silent)
    flags = {"collection": tmp_path / "m"}
    if with_rows:
        assert pairs_of(tmp_path / "m" / "triples.tsv", **flags) == expected(collection, rows)
        truth = {pair for pair in expected(collection, rows) if pair[2]}
    else:
        truth = {
            (collection.queries.by_id(q), collection.corpus.by_id(d), grade)
            for q, judged in collection.qrels("train").items()
            for d, grade in judged.items()
        }
    assert pairs_of(tmp_path / "m" / "qrels.tsv", **flags) == truth


def test_scores_come_back_the_same(tiny: Path, real: tuple[Path, list[MinedRow]], tmp_path: Path) -> None:
    artifact, rows = real
    written(tiny, artifact, tmp_path / "f.jsonl", to="flagembedding")
    collection = Collection(tiny)
    stored = {row["query_id"]: row for _, row in readers.rows(artifact)}
    truth = set()
    for mined in rows:
        query, kept = collection.queries.by_id(mined.query_id), stored[mined.query_id]
        teacher = dict(zip(mined.candidate_ids, kept["candidate_teacher"], strict=True))
        teacher |= dict(zip(mined.positive_ids, kept["positive_teacher"], strict=True))
        for document in (*mined.positive_ids, *mined.promoted, *mined.negatives):
            truth.add((query, collection.corpus.by_id(document), teacher[document]))
    items = found(tmp_path / "f.jsonl")
    assert {(i.query, i.document.text, i.score) for i in items if isinstance(i, Pair)} == truth


def test_scifact_through_beir_and_back(tmp_path: Path) -> None:
    collection = Collection(SCIFACT)
    export(collection, None, tmp_path / "b", ExportOptions(to="beir"), silent)
    again = Collection(tmp_path / "b")
    assert list(again.corpus) == list(collection.corpus)
    assert {split: again.qrels(split) for split in again.splits} == {
        s: collection.qrels(s) for s in collection.splits
    }


NASTY = st.text(st.sampled_from("a\t\r\n\x85\u2028\u2029\ufeff\"'\\,[]{} \x0b\x1cß"), max_size=12)


@given(st.lists(NASTY, min_size=6, max_size=6), st.lists(NASTY, min_size=2, max_size=2), st.booleans())
@settings(max_examples=12, deadline=None)
def test_no_text_is_changed_on_the_way(
    tmp_path_factory: pytest.TempPathFactory, documents: list[str], queries: list[str], titled: bool
) -> None:
    home = tmp_path_factory.mktemp("nasty")
    corpus = [
        {"_id": f"d{n}", "title": f"{text}t" if titled else "", "text": f"{text}{n}"}
        for n, text in enumerate(documents)
    ]
    asked = [{"_id": f"q{n}", "text": f"{text}{n}?"} for n, text in enumerate(queries)]
    place = write_collection(home / "c", corpus, asked, {"train": [("q0", "d0", 1), ("q1", "d1", 1)]})
    rows = [row("q0", ["d0", "d5"], ["d2", "d3"], []), row("q1", ["d1"], ["d4", "d2"], [])]
    mined = artifact(home / "m.parquet", place, rows)
    collection = Collection(place)
    truth = expected(collection, rows)
    for to, ending in ENDING.items():
        export(collection, mined, home / f"{to}{ending}", ExportOptions(to=to), silent)
        assert pairs_of(home / f"{to}{ending}") == truth, to
    export(collection, mined, home / "marco", ExportOptions(to="msmarco"), silent)
    plain = {(re.sub(r"[\t\r\n]", " ", q), re.sub(r"[\t\r\n]", " ", d), grade) for q, d, grade in truth}
    assert pairs_of(home / "marco" / "triples.tsv", collection=home / "marco") == plain
    export(collection, None, home / "beir", ExportOptions(to="beir"), silent)
    assert list(Collection(home / "beir").corpus) == list(collection.corpus)
    assert list(Collection(home / "beir").queries) == list(collection.queries)


def test_changed_texts_are_counted(tmp_path: Path) -> None:
    corpus = [{"_id": "a", "text": "one\ttwo\nthree"}, {"_id": "b", "text": "x"}]
    place = write_collection(tmp_path / "c", corpus, [{"_id": "q", "text": "y\r"}], {"train": [("q", "a", 1)]})
    made = export(Collection(place), None, tmp_path / "m", ExportOptions(to="msmarco"), silent)
    assert made.notes == [
        "tabs and line ends of 1 documents became blanks",
        "tabs and line ends of 1 queries became blanks",
    ]
    assert (tmp_path / "m" / "collection.tsv").read_bytes() == b"a\tone two three\nb\tx\n"


# -- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "out", "artifact", "match"),
    [
        ({"to": "xml"}, "x", "mined", "--to xml: beir, msmarco, triplets, .* are the formats"),
        ({"to": "beir"}, "x", "mined", "--to beir writes what was judged, not what was mined"),
        ({"to": "tuples"}, "x.csv", "mined", "tuples is a file that ends in .parquet or .jsonl"),
        ({"to": "tevatron"}, "x.parquet", "mined", "tevatron is a file that ends in .jsonl"),
        (
            {"to": "lists", "labels": "scores"},
            "x.parquet",
            "mined",
            "--labels scores needs --to lists and a scored",
        ),
        (
            {"to": "lists", "labels": "ranks"},
            "x.parquet",
            "scored",
            "--labels ranks: grades, scores are the labels",
        ),
        ({"to": "triplets", "negatives": 2}, "x.parquet", "mined", "--ragged and --negatives are of --to tuples"),
        ({"to": "tuples", "negatives": -1}, "x.parquet", "mined", "--negatives -1: 0 or more"),
        (
            {"to": "tuples"},
            "there.parquet",
            "mined",
            "there.parquet exists; choose another --out, or write over it",
        ),
        ({"to": "msmarco"}, "folder", "mined", "folder exists; choose another --out"),
        ({"to": "tuples"}, "folder.parquet", "mined", "folder.parquet is a folder"),
        (
            {"to": "tuples", "negatives": 9},
            "x.parquet",
            "mined",
            r"nothing is left to export as tuples \(positive with fewer",
        ),
        (
            {"to": "triplets", "split": "test"},
            "x.parquet",
            None,
            "query without a negative 1.; negatives are mined with",
        ),
        ({"to": "lists", "split": "dev"}, "x.parquet", None, "has no split 'dev'; its splits are: test, train"),
        ({"to": "lists"}, "x.parquet", "strange", "names the document d99, which is not in"),
        ({"to": "lists"}, "x.parquet", "small", "is a .*; make a mined|is not an artifact of embedtrain"),
    ],
)
def test_errors_leave_nothing(
    request: pytest.FixtureRequest,
    small: Path,
    tmp_path: Path,
    options: dict[str, Any],
    out: str,
    artifact: str | None,
    match: str,
) -> None:
    (tmp_path / "there.parquet").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.parquet").mkdir()
    path = request.getfixturevalue(artifact) if artifact else None
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(EmbedtrainError, match=match):
        export(Collection(small), path, tmp_path / out, ExportOptions(**options), silent)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "there.parquet").read_text() == "mine"


@pytest.fixture(scope="module")
def strange(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return artifact(tmp_path_factory.mktemp("strange") / "m.parquet", small, [row("q0", ["d0"], ["d99"], [])])


def test_an_id_that_no_tsv_can_hold(tmp_path: Path) -> None:
    place = write_collection(tmp_path / "c", [{"_id": "a\tb", "text": "x"}], [{"_id": "q", "text": "y"}], {})
    with pytest.raises(EmbedtrainError, match=r"'a\\tb' cannot stand in a TSV file; choose another format"):
        export(Collection(place), None, tmp_path / "m", ExportOptions(to="msmarco"), silent)
    assert not (tmp_path / "m").exists()


def test_the_same_input_gives_the_same_bytes_and_force_writes_over(
    small: Path, mined: Path, tmp_path: Path
) -> None:
    for to, ending in ENDING.items():
        for name in ("one", "two"):
            export(
                Collection(small), mined, tmp_path / f"{name}{ending}", ExportOptions(to=to), silent, force=True
            )
        assert content_sha256(tmp_path / f"one{ending}") == content_sha256(tmp_path / f"two{ending}")


def test_a_file_is_whole_or_absent(
    small: Path, mined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = exchange.Export.triplets

    def broken(self: exchange.Export) -> Iterator[dict[str, Any]]:
        for count, row in enumerate(real(self)):
            if count == 3:
                raise RuntimeError
            yield row

    monkeypatch.setattr(exchange.Export, "triplets", broken)
    with pytest.raises(RuntimeError):
        export(Collection(small), mined, tmp_path / "t.jsonl", ExportOptions(to="triplets"), silent)
    assert list(tmp_path.iterdir()) == []


# -- others read it ----------------------------------------------------------------------------------------------


def test_importing_it_loads_no_torch() -> None:
    script = "import sys, embedtrain.exchange, embedtrain.harvest.tables; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_datasets_opens_the_parquet_files(small: Path, scored: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    for to in ("triplets", "tuples", "lists"):
        written(small, scored, tmp_path / f"{to}.parquet", to=to)
        rows = datasets.load_dataset(
            "parquet", data_files=str(tmp_path / f"{to}.parquet"), cache_dir=str(tmp_path / "cache")
        )
        assert list(rows["train"]) == [row for _, row in readers.rows(tmp_path / f"{to}.parquet")]


def test_one_step_of_sentence_transformers(tiny: Path, real: tuple[Path, list[MinedRow]], tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    import torch
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tiny_models import checkpoint

    written(tiny, real[0], tmp_path / "t.parquet", to="tuples", negatives=3)
    rows = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "t.parquet"), cache_dir=str(tmp_path / "cache"), split="train"
    )
    assert rows.column_names == ["query", "positive", "negative_1", "negative_2", "negative_3"]
    module = Transformer(str(checkpoint(tmp_path / "bert", "bert")))
    model = SentenceTransformer(modules=[module, Pooling(module.get_embedding_dimension())], device="cpu")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "out"), max_steps=1, per_device_train_batch_size=4, use_cpu=True, report_to="none", save_strategy="no",
        disable_tqdm=True, learning_rate=0.1, dataloader_pin_memory=False,
    )  # fmt: skip
    seen: list[int] = []
    loss = MultipleNegativesRankingLoss(model)
    forward = loss.forward
    loss.forward = lambda features, labels: seen.append(len(list(features))) or forward(features, labels)
    trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss)
    assert trainer.train().training_loss > 0
    assert seen == [5]  # query, positive and three negatives
    assert any(not torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """60,000 triplets of two texts of 2,000 characters (360 MB) out of a small collection, within 150 MB."""
    corpus = [{"_id": f"d{n}", "text": f"{n} " + "x" * 2_000} for n in range(302)]
    queries = [{"_id": f"q{n}", "text": f"ask {n}"} for n in range(200)]
    place = write_collection(tmp_path / "c", corpus, queries, {"train": [("q0", "d0", 1)]})
    rows = [row(f"q{n}", ["d0"], [f"d{m}" for m in range(2, 302)], []) for n in range(200)]
    artifact(tmp_path / "m.parquet", place, rows)
    script = f"""
import resource, sys
from pathlib import Path
from embedtrain.collection import Collection
from embedtrain.console import silent
from embedtrain.exchange import ExportOptions, export
place = Path({str(tmp_path)!r})
collection = Collection(place / "c")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
made = export(collection, place / "m.parquet", place / "t.parquet", ExportOptions(to="triplets"), silent)
print(made.rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    count, megabytes = map(int, made.stdout.split())
    assert count == 60_000
    assert megabytes < 150


def test_p90_texts_have_64_bit_offsets_and_bounded_row_groups(tmp_path: Path) -> None:
    corpus = [{"_id": f"d{n}", "text": f"{n} " + "x" * 1_000_000} for n in range(3)]
    judged = [(f"q{n}", "d0", 1) for n in range(70)]
    queries = [{"_id": f"q{n}", "text": f"ask {n}"} for n in range(70)]
    place = write_collection(tmp_path / "c", corpus, queries, {"train": judged})
    export(Collection(place), None, tmp_path / "t.parquet", ExportOptions(to="tuples"), silent)
    assert pq.read_schema(tmp_path / "t.parquet").field("positive").type == pa.large_string()
    assert pq.read_metadata(tmp_path / "t.parquet").num_row_groups == 3  # 32 million characters each, at most


def test_jsonl_is_one_object_a_line(small: Path, mined: Path, tmp_path: Path) -> None:
    written(small, mined, tmp_path / "t.jsonl", to="tevatron")
    content = (tmp_path / "t.jsonl").read_bytes()
    assert content.endswith(b"\n")
    assert b"\r" not in content
    assert [json.loads(line)["query_id"] for line in content.split(b"\n")[:-1]] == ["q0", "q1"]


def test_usage_errors_are_usage_errors(small: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        exchange.check(ExportOptions(to="beir"), tmp_path / "b", mined=True, scored=False)
