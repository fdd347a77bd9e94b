"""`eval` through the installed entry point on the tiny collection, and its verdicts on values made up for them.

Deliberate breaks that turn a test red: documents encoded as queries (test_vectors_...), a verdict from the mean
alone (test_a_difference_that_...), the base less the other (test_a_worse_model_...).
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import pytrec_eval
from conftest import RunCli, call, write_collection

from embedtrain import artifacts, trec
from embedtrain.collection import Collection
from embedtrain.comparison import all_pairs, measure_all, verdict_sentences
from embedtrain.encoder import Encoder
from embedtrain.hits import Hits
from embedtrain.metrics import parse
from embedtrain.models import find_model
from embedtrain.reranker import Reranker
from embedtrain.systems import Questions, System, recipe

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
PROMPTS = {"query": "query: ", "document": "passage: "}
SYSTEMS = ["BM25", "base", "prompted", "hybrid", "reranked", "hybrid + teacher"]


@dataclass(frozen=True)
class Done:
    """A folder in which `eval` has run once, with everything: the command and what it printed."""

    folder: Path
    cache: str
    command: list[str]
    printed: dict[str, Any]

    @property
    def out(self) -> Path:
        return self.folder / "results"


@pytest.fixture(scope="module")
def done(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """BM25, the model, a copy of it with prompts, hybrid, and an untrained teacher on top."""
    folder = tmp_path_factory.mktemp("eval")
    source = find_model(MINILM)
    shutil.copytree(source.path, folder / "prompted")
    settings = folder / "prompted" / "config_sentence_transformers.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "prompts": PROMPTS}))
    Reranker.from_encoder(source, seed=0, max_length=64).save(folder / "teacher")
    command = ["eval", str(tiny), "--bm25", "--model", "all-MiniLM-L6-v2", "--model", "./prompted/", "--hybrid"]
    command += ["--rerank", "teacher", "--rerank-depth", "4", "--measure", "nDCG@10", "--measure", "recall@20"]
    command += ["--out", "results", "--precision", "float32", "--json"]  # to be compared to the last digits
    cache = str(folder / "cache")
    result = call(*command, cwd=folder, EMBEDTRAIN_CACHE=cache)
    assert result.returncode == 0, result.stderr
    return Done(folder, cache, command, json.loads(result.stdout))


# The whole command


def test_every_system_is_measured_in_its_order(done: Done) -> None:
    printed = done.printed
    assert printed["stage"] == "eval"
    assert printed["up_to_date"] is False
    assert (printed["split"], printed["queries"], printed["rows"], printed["queries_left_out"]) == (
        "test",
        15,
        15,
        0,
    )
    assert printed["base"] == MINILM
    assert list(printed["systems"]) == SYSTEMS
    assert printed["table"]["columns"] == ["system", "nDCG@10 [95 %]", "recall@20", "vs base", "p (Holm)"]
    assert [row[0] for row in printed["table"]["rows"]] == ["BM25", "base (all-MiniLM-L6-v2)", *SYSTEMS[2:]]
    for name, system in printed["systems"].items():
        for measure in ("nDCG@10", "recall@20"):
            found = system[measure]
            assert 0 <= found["low"] <= found["mean"] <= found["high"] <= 1
            assert ("versus_base" in system) == (name != "base")
            if name != "base":
                versus = system["versus_base"][measure]
                base = printed["systems"]["base"][measure]["mean"]
                assert versus["difference"] == pytest.approx(found["mean"] - base, abs=1e-12)
                assert versus["wins"] + versus["ties"] + versus["losses"] == 15
    # Titles and abstracts cut to 400 characters are easy to find; an evaluation that mixes up ids is near 0.
    assert min(printed["systems"][name]["nDCG@10"]["mean"] for name in SYSTEMS[:4]) > 0.7


def test_the_folder_holds_what_was_printed(done: Done) -> None:
    record = artifacts.require_kind(done.out, "evaluation")
    summary = json.loads((done.out / "summary.json").read_text("utf-8"))
    assert summary == record["summary"]
    assert {key: done.printed[key] for key in summary} == summary
    table = pyarrow.parquet.read_table(done.out / "per_query.parquet")
    assert table.column_names == ["query_id", "system", "measure", "value"]
    rows = table.to_pylist()
    assert len(rows) == 15 * len(SYSTEMS) * 2
    for name in SYSTEMS:
        values = [row["value"] for row in rows if row["system"] == name and row["measure"] == "nDCG@10"]
        assert np.mean(values) == pytest.approx(summary["systems"][name]["nDCG@10"]["mean"], abs=1e-12)
    assert str(done.folder) not in (done.out / "embedtrain.json").read_text("utf-8")


def test_pytrec_eval_measures_the_same_on_the_written_runs(done: Done, tiny: Path) -> None:
    qrels = {q: {d: int(g) for d, g in row.items()} for q, row in Collection(tiny).qrels("test").items()}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.20"})
    files = sorted(path.name for path in (done.out / "runs").iterdir())
    assert files == sorted(
        ["BM25.trec", "base.trec", "prompted.trec", "hybrid.trec", "reranked.trec", "hybrid_+_teacher.trec"]
    )
    for name in SYSTEMS:
        path = done.out / "runs" / f"{name.replace(' ', '_')}.trec"
        # pytrec_eval breaks ties the other way: it is given the ranks.
        run = {q: {d: float(-i) for i, d in enumerate(r.ids)} for q, r in trec.read_run(path).items()}
        theirs = evaluator.evaluate(run)
        for measure, key in (("nDCG@10", "ndcg_cut_10"), ("recall@20", "recall_20")):
            mean = sum(theirs[query][key] for query in theirs) / 15
            assert done.printed["systems"][name][measure]["mean"] == pytest.approx(mean, abs=1e-6)


def test_a_second_run_is_up_to_date_and_prints_the_same(done: Done) -> None:
    again = call(*done.command, cwd=done.folder, EMBEDTRAIN_CACHE=done.cache)
    assert again.returncode == 0, again.stderr
    printed = json.loads(again.stdout)
    assert printed.pop("up_to_date") is True
    assert printed == {key: value for key, value in done.printed.items() if key != "up_to_date"}
    shown = call(*done.command[:-1], cwd=done.folder, EMBEDTRAIN_CACHE=done.cache)
    assert shown.stdout.startswith("eval: up to date: results\n")


def test_the_same_bytes_with_another_hash_seed(done: Done) -> None:
    before = {path.relative_to(done.out): path.read_bytes() for path in done.out.rglob("*") if path.is_file()}
    command = [*done.command, "--force", "--quiet"]
    again = call(*command, cwd=done.folder, EMBEDTRAIN_CACHE=done.cache, PYTHONHASHSEED="4711")
    assert (again.returncode, again.stderr) == (0, "")
    after = {path.relative_to(done.out): path.read_bytes() for path in done.out.rglob("*") if path.is_file()}
    assert before == after


@pytest.mark.parametrize("name", ["base", "prompted"])
def test_vectors_are_those_of_plain_sentence_transformers(done: Done, tiny: Path, name: str) -> None:
    """encode_query and encode_document of the folder, loaded plainly, give the vectors and the scores of eval."""
    from sentence_transformers import SentenceTransformer

    source = find_model(MINILM if name == "base" else str(done.folder / "prompted"))
    plain = SentenceTransformer(str(source.path), device="cpu", local_files_only=True)
    collection = Collection(tiny)
    asked = Questions.of(collection, "test", None)
    texts = list(collection.corpus)
    queries = plain.encode_query(asked.texts, convert_to_numpy=True)
    documents = plain.encode_document(texts, convert_to_numpy=True)
    if name == "prompted":
        assert np.abs(documents - plain.encode(texts, convert_to_numpy=True)).max() > 1e-3
    encoder = Encoder.load(source)
    assert np.abs(encoder.encode(asked.texts, "query")[:] - queries).max() < 1e-6
    assert np.abs(encoder.encode(texts, "document")[:] - documents).max() < 1e-6
    scores = queries @ documents.T
    run = trec.read_run(done.out / "runs" / f"{name}.trec")
    for row, query in enumerate(asked.ids):
        expected = [scores[row, collection.corpus.position[document]] for document in run[query].ids]
        assert run[query].scores == pytest.approx(expected, abs=2e-6)
        assert len(expected) == min(100, len(texts))


# Runs of other people, without a model


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    return write_collection(
        tmp_path / "judged",
        [{"_id": f"d{n}", "title": "", "text": f"word{n}"} for n in range(3)],
        [{"_id": f"q{n}", "text": f"word{n}"} for n in range(3)],
        {"test": [("q0", "d0", 1), ("q1", "d1", 1), ("q2", "d2", 0)]},
    )


def test_a_run_is_compared_with_bm25(judged: Path, run_here: RunCli, tmp_path: Path) -> None:
    (tmp_path / "their.trec").write_text("q0 Q0 d1 1 2 t\nq0 Q0 d0 2 1 t\nq1 Q0 d1 1 1 t\nq5 Q0 d1 1 1 t\n")
    result = run_here(
        "eval", judged, "--bm25", "--run", "their.trec", "--out", "out", "--measure", "RR@3", "--json"
    )
    assert result.returncode == 0, result.stderr
    printed = json.loads(result.stdout)
    assert printed["dropped"] == {"queries without a relevant document": 1}
    assert (printed["queries"], printed["queries_left_out"], printed["base"]) == (2, 1, "BM25")
    assert printed["systems"]["BM25"]["RR@3"]["mean"] == 1.0
    assert printed["systems"]["their.trec"]["RR@3"]["mean"] == 0.75
    versus = printed["systems"]["their.trec"]["versus_base"]["RR@3"]
    assert (versus["wins"], versus["ties"], versus["losses"], versus["p_randomization"]) == (0, 1, 1, 1.0)
    assert printed["table"]["columns"] == ["system", "RR@3 [95 %]", "vs BM25", "p"]
    assert "their.trec: 1 of its queries are not measured: q5" in printed["notes"]
    assert any(
        note.startswith("no difference from BM25 in RR@3 that 2 queries could show") for note in printed["notes"]
    )


def test_one_query_has_no_interval_and_no_p(judged: Path, run_here: RunCli, tmp_path: Path) -> None:
    (tmp_path / "their.trec").write_text("q0 Q0 d0 2 1 t\n")
    result = run_here(
        "eval", judged, "--bm25", "--run", "their.trec", "--out", "out", "--measure", "P@1", "--limit", "1"
    )
    assert result.returncode == 0, result.stderr
    assert [line.split() for line in result.stdout.splitlines() if "their" in line and "1.0000" in line] == [
        ["their.trec", "1.0000", "+0.0000", "-"]
    ]


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (
            ["--bm25", "--measure", "F1@3"],
            2,
            "--measure F1@3: the measures are nDCG@k, MAP@k, RR@k, Recall@k, R-cap@k, P@k, Success@k, hole@k",
        ),
        (["--bm25", "--measure", "P@300"], 2, "--measure P@300 looks at 300 documents a query and --top-k is 100"),
        (["--bm25", "--split", "dev"], 1, "has no split 'dev'; its splits are: test"),
        (["--run", "bad.trec"], 1, "bad.trec line 2 has 3 columns; a run line is: qid Q0 docid rank score tag"),
        (["--run", "none.trec"], 1, "run none.trec does not exist"),
        (["--bm25", "--rerank", "judged"], 1, "model folder judged holds no weights"),
        ([], 2, "nothing to measure; give --model, --bm25 or --run"),
    ],
)
def test_errors_are_sentences_and_leave_nothing(
    judged: Path, run_here: RunCli, tmp_path: Path, args: list[str], code: int, message: str
) -> None:
    (tmp_path / "bad.trec").write_text("q0 Q0 d0 1 1 t\nq0 Q0 d1\n")
    result = run_here("eval", judged, *args, "--out", "out")
    assert result.returncode == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.trec", "judged"]


# Verdicts


def results_of(base: list[float], other: list[float]) -> Any:
    """Systems whose P@1 is `base` and `other` on each query."""
    count = len(base)
    asked = Questions(
        [f"q{n}" for n in range(count)], [""] * count, {f"q{n}": {"yes": 1.0} for n in range(count)}, 0, {}
    )

    def system(name: str, values: list[float]) -> System:
        scores = [np.array([1.0], dtype=np.float32)] * count
        return System(name, Hits([np.array([1 - int(value)]) for value in values], scores), ["yes", "no"], {})

    return measure_all(
        [system("base", base), system("tuned", other)], asked, [parse("P@1")], "base", resamples=10_000, seed=0
    )


def test_a_difference_that_the_set_cannot_show_is_not_called_one() -> None:
    # 3 won, 1 lost of 40: sign flips of 4 differences give 10 / 16.
    base = [1.0] * 20 + [0.0] * 20
    tuned = [0.0] + [1.0] * 22 + [0.0] * 17
    results = results_of(base, tuned)
    assert results["tuned"]["P@1"].versus.p_randomization == 0.625
    (note,) = verdict_sentences(results, "base", 40)
    assert note.startswith("no difference from base in P@1 that 40 queries could show: tuned (+0.0500, 0.")
    # A mean of 0.05 and a deviation of 0.32 are 6.3 deviations apart: 7.85 x 6.3^2 = 315 queries, and a few for t.
    assert note.endswith("could be seen, this one with about 320 queries, 3 won, 36 even, 1 lost)")


def test_a_better_model_is_said_to_be_better() -> None:
    (note,) = verdict_sentences(results_of([0.0] * 40, [1.0] * 12 + [0.0] * 28), "base", 40)
    assert note.startswith("better than base in P@1: tuned (+0.3000 [+0.1")
    assert note.endswith("12 won, 28 even, 0 lost)")


def test_a_worse_model_is_said_to_be_worse() -> None:
    # P61: base .60, tuned .55 on 100 queries, here with every difference a loss.
    results = results_of([1.0] * 60 + [0.0] * 40, [1.0] * 50 + [0.0] * 10 + [1.0] * 5 + [0.0] * 35)
    versus = results["tuned"]["P@1"].versus
    assert versus.difference == pytest.approx(-0.05)
    assert (versus.wins, versus.ties, versus.losses) == (5, 85, 10)
    (note,) = verdict_sentences(results_of([1.0] * 60 + [0.0] * 40, [1.0] * 40 + [0.0] * 60), "base", 100)
    assert note.startswith("worse than base in P@1: tuned (-0.2000 [")
    assert note.endswith("0 won, 80 even, 20 lost)")


# Seeds


def test_a_recipe_has_the_mean_of_its_seeds_and_stands_for_them() -> None:
    count = 40
    asked = Questions(
        [f"q{n}" for n in range(count)], [""] * count, {f"q{n}": {"yes": 1.0} for n in range(count)}, 0, {}
    )

    def system(name: str, right: int) -> System:
        scores = [np.array([1.0], dtype=np.float32)] * count
        return System(
            name, Hits([np.array([0 if n < right else 1]) for n in range(count)], scores), ["yes", "no"], {}
        )

    seeds = [system("tuned-0", 28), system("tuned-1", 30), system("tuned-2", 35)]
    systems = [system("base", 20), *seeds, recipe("tuned-*", seeds, count)]
    results = measure_all(systems, asked, [parse("P@1")], "base", resamples=2_000, seed=0)
    found = results["tuned-*"]["P@1"]
    assert found.values.tolist() == [1.0] * 28 + [2 / 3] * 2 + [1 / 3] * 5 + [0.0] * 5
    # 0.7, 0.75 and 0.875: their standard deviation is 0.0901.
    assert found.mean == pytest.approx((28 + 30 + 35) / 3 / 40)
    assert found.spread == pytest.approx(np.std([0.7, 0.75, 0.875], ddof=1))
    assert found.as_dict()["spread_of_seeds"] == found.spread
    assert found.versus is not None
    assert found.versus.p_holm == found.versus.p_randomization  # a family of one: the seeds are not compared
    assert results["tuned-0"]["P@1"].versus is None
    pairs = all_pairs(results, "P@1", 0, ["tuned-0", "tuned-1", "tuned-2"])
    assert [(one, other) for one, other, _ in pairs] == [("base", "tuned-*")]


def test_seeds_by_a_pattern(run_here: RunCli, tiny: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        (tmp_path / f"tuned-{seed}").symlink_to(find_model(MINILM).path)
    command = ["eval", str(tiny), "--model", MINILM, "--seeds", "tuned-*", "--out", "out"]
    done = run_here(*command, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert list(printed["systems"]) == ["base", "tuned-0", "tuned-1", "tuned-*"]
    assert printed["judged_system"] == "tuned-*"
    found = printed["systems"]["tuned-*"]
    assert found["about"]["seeds"] == ["tuned-0", "tuned-1"]
    assert found["nDCG@10"]["spread_of_seeds"] == 0.0
    assert found["versus_base"]["nDCG@10"]["difference"] == 0.0
    assert [row[0] for row in printed["table"]["rows"]][-1] == "tuned-* (2 seeds)"
    assert "± 0.0000" in printed["table"]["rows"][-1][1]
    assert sorted(path.name for path in (tmp_path / "out" / "runs").iterdir()) == [
        "base.trec",
        "tuned-0.trec",
        "tuned-1.trec",
    ]
    # The same folders named one by one are another evaluation.
    single = run_here(
        *command[:4], "--model", "tuned-0", "--model", "tuned-1", "--out", "out", "--json", cwd=tmp_path
    )
    told = json.loads(single.stdout)
    assert (told["up_to_date"], told["judged_system"]) == (False, "tuned-1")
    mixed = run_here(*command, "--hybrid", cwd=tmp_path)
    assert mixed.returncode == 2
    assert "--seeds measures a recipe by its models alone" in mixed.stderr
    none = run_here("eval", str(tiny), "--model", MINILM, "--seeds", "other-*", "--out", "none", cwd=tmp_path)
    assert (none.returncode, none.stdout) == (2, "")
    assert "--seeds other-*: 0 folders match; a spread needs two models at least" in none.stderr
