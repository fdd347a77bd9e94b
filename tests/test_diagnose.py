"""The sample, the numbers of a space, and the command on a real collection with a real model.

Breaks that turn a test red: a positive left out of what is encoded, a draw that depends on hash order, an empty
document in the sample.
"""

import json
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from conftest import RunCli, call_here, write_collection
from safetensors.numpy import load_file, save_file
from test_report import assert_self_contained

from embedtrain import artifacts, console, diagnose, metrics
from embedtrain.artifacts import Claim, Input
from embedtrain.collection import Collection
from embedtrain.config import DiagnoseOptions, EvalOptions
from embedtrain.diagnose import geometry, mined_similarities, rankings
from embedtrain.diagnose.probe import draw, look
from embedtrain.encoder import Encoder
from embedtrain.errors import EmbedtrainError
from embedtrain.mined import MinedRow, read_mined
from embedtrain.models import MINILM, find_model
from embedtrain.negatives import ELIGIBLE, KNOWN_POSITIVE, SELECTED

SCRIPT = "<script>alert('x')</script>"


@pytest.fixture
def small(tmp_path: Path) -> Collection:
    documents = [{"_id": f"d{i}", "title": "", "text": f"text {i}"} for i in range(30)]
    documents[4] = {"_id": "d4", "title": "", "text": " \u200b "}  # nothing to be seen
    queries = [{"_id": f"q{i}", "text": f"query {i}"} for i in range(8)]
    judged = [("q0", "d0", 1), ("q0", "d9", 2), ("q1", "d1", 1), ("q1", "d2", 0), ("q2", "d2", 0), ("q3", "d4", 1)]
    judged += [("q4", "d29", 1), ("q5", "d28", 1)]
    return Collection(write_collection(tmp_path / "small", documents, queries, {"test": judged}))


def test_everything_is_drawn_where_there_is_room(small: Collection) -> None:
    probe = draw(small, DiagnoseOptions(sample=100))
    assert len(probe.documents) == 29, "the empty one is left out"
    assert probe.sample == list(range(29))
    assert probe.queries == ["q0", "q1", "q4", "q5"]
    positives = [[small.corpus.ids[probe.documents[row]] for row in rows] for rows in probe.positives]
    assert positives == [["d0", "d9"], ["d1"], ["d29"], ["d28"]]
    assert probe.pairs == 5
    # q2 has grade 0 only; q3 only the empty document.
    assert probe.dropped == {
        "empty documents": 1,
        "queries without a positive": 1,
        "queries whose positives are empty": 1,
    }


def test_positives_are_encoded_even_outside_the_sample(small: Collection) -> None:
    probe = draw(small, DiagnoseOptions(sample=10))
    assert len(probe.sample) == 10
    assert probe.dropped["documents not in the sample"] == 19
    ids = {small.corpus.ids[position] for position in probe.documents}
    assert ids >= {"d0", "d9", "d1", "d29", "d28"}
    assert len(probe.documents) <= 15
    assert probe.documents == sorted(set(probe.documents))


def test_the_draw_is_seeded(small: Collection) -> None:
    first, again, other = (draw(small, DiagnoseOptions(sample=10, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert [first.documents[row] for row in first.sample] != [other.documents[row] for row in other.sample]


def test_limit_counts_queries(small: Collection) -> None:
    probe = draw(small, DiagnoseOptions(sample=100, limit=2))
    assert probe.queries == ["q0", "q1"]
    assert probe.dropped["query beyond --limit"] == 3


def test_a_split_without_positives(tmp_path: Path) -> None:
    documents = [{"_id": str(i), "text": "text"} for i in range(5)]
    judged = {"test": [("q", "0", 0)]}
    folder = write_collection(tmp_path / "none", documents, [{"_id": "q", "text": "query"}], judged)
    with pytest.raises(EmbedtrainError, match="no query with a positive; choose another --split"):
        draw(Collection(folder), DiagnoseOptions())


def test_too_few_documents(tmp_path: Path) -> None:
    documents = [{"_id": str(i), "text": "text" if i < 2 else ""} for i in range(5)]
    judged = {"test": [("q", "0", 1)]}
    folder = write_collection(tmp_path / "few", documents, [{"_id": "q", "text": "query"}], judged)
    with pytest.raises(EmbedtrainError, match="2 documents with text"):
        draw(Collection(folder), DiagnoseOptions())


def test_numbers_of_a_space(small: Collection) -> None:
    probe = draw(small, DiagnoseOptions(sample=12))
    random = np.random.default_rng(0)
    queries = random.standard_normal((len(probe.queries), 16)).astype(np.float32)
    documents = random.standard_normal((len(probe.documents), 16)).astype(np.float32)
    space = look("m", queries, documents, probe, seed=0)
    pairs = [(q, row) for q, rows in enumerate(probe.positives) for row in rows]
    assert space.alignment == pytest.approx(
        geometry.alignment([queries[q] for q, _ in pairs], [documents[d] for _, d in pairs])
    )
    assert space.contrast.positive == pytest.approx(
        1 - np.array([geometry.alignment([queries[q]], [documents[d]]) / 2 for q, d in pairs]), abs=1e-6
    )
    sample = documents[probe.sample]
    assert space.uniformity == pytest.approx(geometry.uniformity(sample))
    assert space.cosine.count == 12 * 11 // 2
    assert (space.documents, space.dimension, space.directions) == (12, 16, 11)
    assert len(space.spectrum.variances) == 11


# ---------------------------------------------------------------------------------------------------------------
# The command, on a real collection with a real model and one whose last layer was shaken a little.


def shaken(folder: Path) -> Path:
    """A copy of the packaged model with noise in its last layer: another model of the same form."""
    shutil.copytree(find_model(MINILM).path, folder)
    weights = load_file(folder / "model.safetensors")
    random = np.random.default_rng(0)
    for name in sorted(weights):
        if "layer.5." in name and weights[name].ndim == 2:
            weights[name] += 0.01 * random.standard_normal(weights[name].shape, dtype=np.float32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def evaluation(folder: Path, collection: Path) -> Path:
    """An evaluation as `eval` writes it, with a system whose name is trouble."""
    systems = {
        "BM25": {"nDCG@10": {"mean": 0.68, "low": 0.63, "high": 0.72}, "Recall@100": {"mean": 0.9}, "about": {}},
        SCRIPT: {"nDCG@10": {"mean": 0.7, "low": None, "high": None}, "about": {"mean": "x"}},
    }
    table = {"columns": ["system", "nDCG@10 [95 %]"], "rows": [["BM25", "0.68"], [SCRIPT, "0.70"]]}
    claim = Claim(
        folder,
        kind="evaluation",
        stage="eval",
        options=EvalOptions(bm25=True),
        inputs=[Input.of("collection", collection)],
    )
    folder.mkdir()
    claim.write_folder(folder, rows=15, dropped={}, summary={"systems": systems, "table": table, "notes": ["so"]})
    return folder


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    """A folder with a collection whose text is trouble, two models' worth of input, and an evaluation."""
    folder = tmp_path_factory.mktemp("diagnose")
    shutil.copytree(tiny, folder / "collection")
    for name, row in (
        ("corpus", {"_id": SCRIPT, "title": SCRIPT, "text": SCRIPT}),
        ("queries", {"_id": SCRIPT, "text": SCRIPT}),
    ):
        with (folder / "collection" / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    with (folder / "collection" / "qrels" / "test.tsv").open("a", encoding="utf-8") as file:
        file.write(f"{SCRIPT}\t{SCRIPT}\t1\n")
    shaken(folder / "tuned")
    evaluation(folder / "evaluation", folder / "collection")
    return folder


COMMAND = ["diagnose", "tuned", "--collection", "collection", "--against", MINILM, "--eval", "evaluation"]
COMMAND += ["--sample", "25", "--out", "report"]


def test_the_command(work: Path, run_cli: RunCli) -> None:
    done = run_cli(*COMMAND, cwd=work)
    assert done.returncode == 0, done.stderr
    assert "verdict" in done.stdout
    assert "random-pair cosine" in done.stdout
    assert sorted(path.name for path in (work / "report").iterdir()) == [
        "diagnose.json",
        "embedtrain.json",
        "report.html",
    ]
    html = (work / "report" / "report.html").read_text("utf-8")
    page = assert_self_contained(html)
    assert len(page.named("svg")) == 7
    assert "<script" not in html
    assert SCRIPT in page.text, "names of systems are shown as they are"
    for text in ("tuned", MINILM, "by eval: bm25 yes, seed 0", "--against", "documents not in the sample"):
        assert text in page.text
    numbers = json.loads((work / "report" / "diagnose.json").read_text("utf-8"))
    _check_numbers(numbers)
    record = artifacts.require_kind(work / "report", "report")
    assert record["rows"] == 25
    assert record["summary"]["report"] == "report.html"
    assert record["summary"]["table"]["columns"] == ["measure", "base", "model", "reference", "verdict"]
    assert [item["role"] for item in record["inputs"]] == ["collection", "model", "base", "evaluation"]
    assert str(work) not in html + json.dumps(record), "no path of this machine"


def _check_numbers(numbers: dict[str, Any]) -> None:
    assert numbers["verdict"] in ("healthy", "watch"), numbers["sentence"]
    assert {measure["key"] for measure in numbers["measures"]} >= {
        "separation",
        "alignment",
        "random_cosine",
        "uniformity",
        "components_95",
        "first_component",
        "rank_me",
        "participation_ratio",
    }
    assert all(measure["sentence"] for measure in numbers["measures"])
    assert all(measure["base"] is not None for measure in numbers["measures"][:8])
    base = numbers["base"]
    assert base["separation"] > 0.9, "a working model finds its positives"
    assert base["positive_pairs"]["mean"] > base["random_query_document_pairs"]["mean"] + 0.3
    assert base["alignment"] == pytest.approx(2 - 2 * base["positive_pairs"]["mean"], abs=1e-5)
    assert -3.99 < base["uniformity"] < -2.5
    assert base["random_document_pairs"]["count"] == 25 * 24 // 2
    assert sum(base["variance_shares"]) == pytest.approx(1.0, abs=1e-4)
    assert numbers["model"]["rank_me"] <= 25


def test_the_same_bytes_again(work: Path, run_cli: RunCli) -> None:
    before = {path.name: path.read_bytes() for path in (work / "report").iterdir()}
    again = run_cli(*COMMAND, "--quiet", cwd=work)
    assert again.returncode == 0
    assert "up to date" in again.stdout
    forced = run_cli(*COMMAND, "--force", "--json", cwd=work, PYTHONHASHSEED="7")
    assert forced.returncode == 0, forced.stderr
    assert {path.name: path.read_bytes() for path in (work / "report").iterdir()} == before
    result = json.loads(forced.stdout)
    assert result["report"] == "report.html"
    assert result["table"]["rows"]


def alone(work: Path, out: str, options: DiagnoseOptions) -> Path:
    """Run the stage itself, without a base, on the collection."""
    collection = work / "collection"
    inputs = [Input.of("collection", collection), find_model(MINILM).as_input()]
    claim = Claim(work / out, kind="report", stage="diagnose", options=options, inputs=inputs)
    diagnose.diagnose(claim, options, collection, diagnose.Subject(MINILM))
    return claim.out


def test_without_a_base(work: Path) -> None:
    folder = alone(work, "alone", DiagnoseOptions(sample=25))
    numbers = json.loads((folder / "diagnose.json").read_text("utf-8"))
    assert numbers["base"] is None
    assert numbers["verdict"] == "healthy", "the published model is not accused"
    page = assert_self_contained((folder / "report.html").read_text("utf-8"))
    assert len(page.named("svg")) == 5
    columns = artifacts.require_kind(folder, "report")["summary"]["table"]["columns"]
    assert columns == ["measure", "model", "reference", "verdict"]


def test_wrong_input_leaves_nothing_behind(work: Path, run_cli: RunCli) -> None:
    wrong = run_cli(*COMMAND[:-1], "other", "--eval", "collection", cwd=work)
    assert wrong.returncode == 1
    assert "embedtrain eval" in wrong.stderr
    with pytest.raises(EmbedtrainError, match="its splits are: test, train"):
        alone(work, "other", DiagnoseOptions(split="dev"))
    assert not list(work.glob("*other*"))


# ---------------------------------------------------------------------------------------------------------------
# What else is looked at: the data, the temperature, an evaluation's runs.


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    """A folder with a collection, what was mined of it, an evaluation of the base with BM25, and the whole report."""
    folder = tmp_path_factory.mktemp("looked")
    shutil.copytree(tiny, folder / "collection")
    for command in (
        ["mine", "collection", "--retriever", "bm25", "--negatives", "4", "--out", "mined.parquet"],
        ["eval", "collection", "--bm25", "--model", MINILM, "--out", "results"],
        ["diagnose", MINILM, "--collection", "collection", "--eval", "results", "--mined", "mined.parquet"]
        + ["--temperature-lab", "--out", "report"],
    ):
        done = call_here(*command, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def test_every_part_is_on_the_page(looked: Path) -> None:
    html = (looked / "report" / "report.html").read_text("utf-8")
    page = assert_self_contained(html)
    for title in ("The numbers", "How the space is filled", "Temperature lab", "The data", "Where it fails"):
        assert title in page.text
    numbers = json.loads((looked / "report" / "diagnose.json").read_text("utf-8"))
    assert {"shape", "neighbours", "temperature_lab", "data", "lengths", "failures"} <= set(numbers["sections"])
    assert "--mined mined.parquet" in page.text
    assert "--temperature-lab" in page.text


def test_where_it_fails_is_counted_from_the_runs(looked: Path) -> None:
    numbers = json.loads((looked / "report" / "diagnose.json").read_text("utf-8"))
    evaluated = json.loads((looked / "results" / "summary.json").read_text("utf-8"))
    assert numbers["sections"]["failures"]
    found = rankings.of(looked / "results", MINILM, Collection(looked / "collection"))
    assert not isinstance(found, str)
    ids = Collection(looked / "collection").corpus.ids
    for name, hits in (("base", found.model), ("BM25", found.lexical)):
        mean = metrics.score_run(hits, ids, found.questions.qrels, "nDCG@10").mean()
        assert mean == pytest.approx(evaluated["systems"][name]["nDCG@10"]["mean"], abs=1e-9)


def test_runs_of_another_collection_say_nothing(looked: Path, tmp_path: Path) -> None:
    shutil.copytree(looked / "collection", tmp_path / "changed")
    with (tmp_path / "changed" / "corpus.jsonl").open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({"_id": "new", "text": "one more"}) + "\n")
    said = rankings.of(looked / "results", MINILM, Collection(tmp_path / "changed"))
    assert isinstance(said, str)
    assert "another collection" in said


def test_what_an_evaluation_does_not_say(looked: Path) -> None:
    said = rankings.of(looked / "results", "another", Collection(looked / "collection"))
    assert isinstance(said, str)
    assert "did not measure another" in said


def test_data_are_looked_at_without_a_model(looked: Path, run_here: RunCli) -> None:
    done = run_here(
        "diagnose", "--collection", "collection", "--mined", "mined.parquet", "--out", "data", cwd=looked
    )
    assert done.returncode == 0, done.stderr
    numbers = json.loads((looked / "data" / "diagnose.json").read_text("utf-8"))
    assert numbers["model"] is None
    assert list(numbers["sections"]) == ["data"]
    assert artifacts.require_kind(looked / "data", "report")["rows"] == len(read_mined(looked / "mined.parquet"))


def test_rows_are_audited_where_no_split_is_measured_on(looked: Path, tmp_path: Path, run_here: RunCli) -> None:
    shutil.copytree(looked / "collection", tmp_path / "collection")
    (tmp_path / "collection" / "qrels" / "test.tsv").unlink()
    mined = ["mine", "collection", "--retriever", "bm25", "--out", "m.parquet"]
    assert run_here(*mined).returncode == 0
    done = run_here("diagnose", "--collection", "collection", "--mined", "m.parquet", "--out", "report")
    assert done.returncode == 0, done.stderr
    html = (tmp_path / "report" / "report.html").read_text("utf-8")
    assert "<h1>m.parquet</h1>" in html


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        ({"temperature": "0.05 (scale 20)"}, 0.05),
        ({"temperature": "0.05 (scale 20)", "learned": {"temperature": 0.031}}, 0.031),
        ({}, None),
    ],
)
def test_the_temperature_in_use(summary: dict[str, Any], expected: float | None) -> None:
    assert diagnose._temperature({"summary": summary}) == expected


def test_a_gate_on_the_verdict(looked: Path, run_here: RunCli) -> None:
    command = ["diagnose", "--collection", "collection", "--mined", "mined.parquet", "--out", "data"]
    watched = run_here(*command, "--fail-on", "watch", cwd=looked)  # so few queries are one to watch
    assert watched.returncode == 3
    assert "the verdict is watch" in watched.stderr
    assert run_here(*command, "--fail-on", "collapsed", cwd=looked).returncode == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "name a model to look at, or rows to audit"),
        (("--mined", "mined.parquet", "--against", MINILM), "--against is about a model"),
        ((MINILM, "--temperature-lab"), "name MODEL and --mined"),
        ((MINILM, "--fail-on", "healthy"), "watch and collapsed are the choices"),
    ],
)
def test_flags_that_do_not_go_together(looked: Path, run_here: RunCli, flags: tuple[str, ...], said: str) -> None:
    done = run_here("diagnose", *flags, "--collection", "collection", "--out", "no", cwd=looked)
    assert done.returncode == 2
    assert said in done.stderr


def test_suspects_by_the_model_itself() -> None:
    encoder = Encoder.load(find_model(MINILM))
    texts = {"p": "a cat sat on the mat", "n": "a cat sat on the mat.", "f": "stock markets fell on monday"}
    rows = [
        MinedRow(
            "q",
            ["p"],
            ["n", "f", "p"],
            [1, 2, 3],
            ["bm25"] * 3,
            [True] * 2 + [False],
            [SELECTED, ELIGIBLE, KNOWN_POSITIVE],
        )
    ]
    found = mined_similarities.of(encoder, rows, cast(Any, _Pair(texts)), 10, 0, console.silent)
    assert len(found.candidates[0]) == 2
    assert found.suspected[0].tolist() == [True, False]
    assert found.candidates[0][0] > 0.9 * found.positives[0]
    assert not found.by_teacher


class _Pair:
    """As much of a collection as similarities are asked of."""

    def __init__(self, texts: dict[str, str]) -> None:
        class Named:
            def __init__(self, texts: dict[str, str]) -> None:
                self.by_id = texts.__getitem__

        self.queries, self.corpus = Named({"q": "where did the cat sit"}), Named(texts)
