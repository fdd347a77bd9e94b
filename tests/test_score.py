"""`score-teacher` as users run it: several teachers, policies over kept scores, calibration, reviews, and mistrust.

Breaks that turn a test red: scores shuffled by teacher, a policy that loads a model, labels that are not inputs, a
calibration measured on what it was fitted to, a teacher upside down that is believed.
"""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import RunCli, call, write_collection

from embedtrain import teachers
from embedtrain.collection import Collection
from embedtrain.encoder import Encoder
from embedtrain.errors import EmbedtrainError
from embedtrain.mined import MinedRow, read_mined
from embedtrain.models import MINILM, find_model
from embedtrain.negatives import SELECTED
from embedtrain.reranker import Reranker

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def place(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny collection mined, two untrained cross-encoders and one upside down."""
    folder = tmp_path_factory.mktemp("score")
    mine = ("mine", tiny, "--out", folder / "mined.parquet", "--top-k", "8", "--negatives", "3", "--quiet")
    assert call(*mine, cwd=folder).returncode == 0
    for seed in (0, 1):
        Reranker.from_encoder(find_model(MINILM), seed=seed, max_length=64).save(folder / f"teacher{seed}")
    return folder


def scored(
    run: RunCli, place: Path, tiny: Path, out: Path, *flags: str | Path
) -> tuple[dict[str, Any], list[MinedRow]]:
    """Run the stage; what it printed as JSON, and its rows. Random teachers are to be trusted by name."""
    done = run(
        "score-teacher", place / "mined.parquet", "--collection", tiny, "--trust", "--json", "--out", out, *flags
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), read_mined(out)


def scores_of(rows: list[MinedRow]) -> dict[tuple[str, str], float]:
    return {
        (row.query_id, document): score
        for row in rows
        for document, score in zip(
            [*row.positive_ids, *row.candidate_ids],
            [*(row.positive_teacher or ()), *(row.candidate_teacher or ())],
            strict=True,
        )
        if score is not None
    }


def test_raw_logits_of_those_asked_for(run_here: RunCli, place: Path, tiny: Path, tmp_path: Path) -> None:
    exact = ("--teacher", place / "teacher0", "--precision", "float32")
    told, rows = scored(run_here, place, tiny, tmp_path / "s.parquet", *exact)
    assert told["scale"] == "logit"
    found = scores_of(rows)
    judge = Reranker.load(find_model(str(place / "teacher0")))
    collection = Collection(tiny)
    pairs = [(collection.queries.by_id(query), collection.corpus.by_id(document)) for query, document in found]
    assert np.abs(judge.score(pairs, stored=False) - np.array(list(found.values()))).max() < 1e-5
    for row in rows:
        assert [score is not None for score in row.candidate_teacher or ()] == [
            why == SELECTED for why in row.reason
        ]
    first, more = scored(
        run_here, place, tiny, tmp_path / "n.parquet", "--teacher", place / "teacher0", "--candidates", "5"
    )
    everything, _ = scored(
        run_here, place, tiny, tmp_path / "a.parquet", "--teacher", place / "teacher0", "--candidates", "all"
    )
    assert told["pairs"] < first["pairs"] < everything["pairs"]
    ranks = [
        rank
        for row in more
        for rank, score, why in zip(row.candidate_ranks, row.candidate_teacher or (), row.reason, strict=True)
        if score is None and why != SELECTED
    ]
    assert min(rank for rank in ranks if rank is not None) == 6


def test_a_second_policy_needs_no_teacher(run_here: RunCli, place: Path, tiny: Path, tmp_path: Path) -> None:
    flags = ("--teacher", place / "teacher0", "--candidates", "all")
    _, first = scored(run_here, place, tiny, tmp_path / "s.parquet", *flags, "--policy", "keep")
    again = ("score-teacher", "s.parquet", "--collection", tiny, "--trust", "--json", "--policy", "mask")
    done = run_here(*again, "--out", "again.parquet")
    assert done.returncode == 0, done.stderr
    masked = read_mined(tmp_path / "again.parquet")
    _, straight = scored(run_here, place, tiny, tmp_path / "m.parquet", *flags, "--policy", "mask")
    assert masked == straight
    assert scores_of(masked) == scores_of(first)
    assert any("mask" in (row.verdict or ()) for row in masked)
    done = run_here("score-teacher", place / "mined.parquet", "--collection", tiny, "--out", "none.parquet")
    assert done.returncode == 2
    assert "has no scores yet; name who gives them: --teacher" in done.stderr


def test_the_miners_choice_survives_two_policies(
    run_here: RunCli, place: Path, tiny: Path, tmp_path: Path
) -> None:
    flags = ("--teacher", place / "teacher0", "--candidates", "all")
    dropped, rows = scored(run_here, place, tiny, tmp_path / "d.parquet", *flags, "--drop-margin", "0.01")
    assert dropped["negatives_dropped"] > 0
    # Others took the places that were free.
    assert any(
        used and why != SELECTED for row in rows for used, why in zip(row.selected, row.reason, strict=True)
    )
    done = run_here(
        "score-teacher", "d.parquet", "--collection", tiny, "--policy", "keep", "--trust", "--out", "k.parquet"
    )
    assert done.returncode == 0, done.stderr
    mined = read_mined(place / "mined.parquet")
    assert [row.negatives for row in read_mined(tmp_path / "k.parquet")] == [row.negatives for row in mined]


def test_several_teachers_keep_their_columns(run_here: RunCli, place: Path, tiny: Path, tmp_path: Path) -> None:
    names = [place / "teacher0", place / "teacher1", MINILM]
    flags = [flag for name in names for flag in ("--teacher", name)]
    kinds = [flag for kind in ("cross", "cross", "bi") for flag in ("--teacher-kind", kind)]
    told, rows = scored(run_here, place, tiny, tmp_path / "s.parquet", *flags, *kinds)
    assert told["scale"] == "standardised"
    alone = []
    for number, (name, kind) in enumerate(zip(names, ("cross", "cross", "bi"), strict=True)):
        _, one = scored(
            run_here, place, tiny, tmp_path / f"{number}.parquet", "--teacher", name, "--teacher-kind", kind
        )
        alone.append(scores_of(one))
        for both, single in zip(rows, one, strict=True):
            assert both.teachers[number] == (single.positive_teacher, single.candidate_teacher)
    together = scores_of(rows)
    # By the definition: mean over teachers of (score - mean) / deviation over the distinct pairs.
    collection = Collection(tiny)
    for key, value in list(together.items())[:10]:
        parts = []
        for single in alone:
            texts = {(q, collection.corpus.by_id(d)): score for (q, d), score in single.items()}
            values = np.array(list(texts.values()))
            parts.append((single[key] - values.mean()) / values.std())
        assert value == pytest.approx(np.mean(parts), abs=1e-3)


def test_a_bi_encoder_gives_similarities(run_here: RunCli, place: Path, tiny: Path, tmp_path: Path) -> None:
    exact = ("--teacher", MINILM, "--teacher-kind", "bi", "--precision", "float32")
    told, rows = scored(run_here, place, tiny, tmp_path / "s.parquet", *exact)
    assert told["scale"] == "similarity"
    assert "saturated" not in told["teacher"]
    encoder, collection = Encoder.load(find_model(MINILM), torch.device("cpu")), Collection(tiny)
    (query, document), score = next(iter(scores_of(rows).items()))
    one = encoder.encode([collection.queries.by_id(query)], "query", stored=False)[0]
    other = encoder.encode([collection.corpus.by_id(document)], "document", stored=False)[0]
    assert score == pytest.approx(float(one @ other), abs=1e-5)
    done = run_here(
        *("score-teacher", place / "mined.parquet", "--collection", tiny, "--out", "x.parquet"),
        *("--teacher", MINILM, "--teacher-kind", "bi", "--drop-above", "0.9", "--trust"),
    )
    assert done.returncode == 2
    assert "a similarity score is none; add --calibrate platt" in done.stderr
    assert "encode" not in done.stderr  # it is said before any work


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--policy", "burn"], "--policy burn: keep, drop, promote, mask are the choices"),
        (["--sample", "best"], "--sample best: rank, stratified"),
        (["--candidates", "some"], "--candidates some: give selected, all, or a number of ranks"),
        (["--calibrate", "isotonic"], "--calibrate isotonic: temperature, platt"),
        (["--drop-above", "2"], "--drop-above 2: it is a probability"),
        (["--keep-below", "0.5"], "give both"),
        (["--teacher-kind", "bi", "--teacher-kind", "cross"], "--teacher-kind is given 2 times for 1 teachers"),
        (["--teacher-kind", "tri"], "--teacher-kind tri: cross and bi"),
        (["--teacher-kind", "bi", "--max-length", "64"], "--max-length counts query and document together"),
    ],
)
def test_bad_flags_are_said_before_any_scoring(
    run_here: RunCli, place: Path, tiny: Path, tmp_path: Path, flags: list[str], said: str
) -> None:
    done = run_here(
        *("score-teacher", place / "mined.parquet", "--collection", tiny, "--out", "x.parquet"),
        *("--teacher", place / "teacher0", *flags),
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "x.parquet").exists()


def lengthy(folder: Path, *, judged: bool) -> Path:
    """A collection in which the right document is the one that repeats a word most; 40 queries, judged pairs if asked."""
    documents, queries, qrels = [], [], []
    for number in range(40):
        queries.append({"_id": f"q{number}", "text": f"apple number{number}"})
        for repeats in range(1, 6):
            words = " ".join(["apple"] * repeats + [f"number{number}"] * 2)
            documents.append(
                {"_id": f"d{number}-{repeats}", "text": f"{words} story{repeats} part{number}{repeats}"}
            )
        qrels.append((f"q{number}", f"d{number}-5", 1))
        if judged:
            qrels.append((f"q{number}", f"d{number}-1", 0))
    write_collection(folder, documents, queries, {"train": qrels})
    return folder


class Counting:
    """A teacher whose logit is the number of times a document says apple."""

    logits = True

    def __init__(self, sign: float = 1.0) -> None:
        self._sign = sign

    def score(self, pairs: Any, progress: Any) -> Any:
        return np.array([self._sign * document.count("apple") - 3.0 for _, document in pairs], dtype=np.float32)

    def cut(self, pairs: Any) -> str:
        return "nothing"


@pytest.fixture
def counted(tmp_path: Path, run_here: RunCli, place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that mines `lengthy` and scores it with a teacher of our making, through the command."""

    def run(*flags: str | Path, judged: bool = False, sign: float = 1.0) -> Any:
        collection = tmp_path / ("judged" if judged else "plain")
        if not collection.exists():
            lengthy(collection, judged=judged)
        mine = (
            "mine",
            collection,
            "--retriever",
            "bm25",
            "--negatives",
            "3",
            "--top-k",
            "5",
            "--out",
            "m.parquet",
        )
        assert run_here(*mine).returncode == 0
        monkeypatch.setattr(teachers, "load", lambda *args: Counting(sign))
        return run_here(
            *("score-teacher", "m.parquet", "--teacher", place / "teacher0", "--force"),
            *("--candidates", "all", "--out", "s.parquet", *flags),
        )

    return run


def test_a_teacher_upside_down_is_not_believed(counted: Any, tmp_path: Path) -> None:
    done = counted(sign=-1.0)
    assert done.returncode == 1
    assert "ranks negatives above positives more often than not on these rows (AUC 0.00)" in done.stderr
    assert "--trust" in done.stderr
    assert not (tmp_path / "s.parquet").exists()
    done = counted("--trust", sign=-1.0)
    assert done.returncode == 0, done.stderr
    assert "use its scores with care" in done.stdout


def test_a_good_teacher_is_shown_by_its_numbers(counted: Any) -> None:
    done = counted("--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["teacher"]["auc"] == told["teacher"]["positive_first"] == 1.0
    assert told["teacher"]["nDCG@10_teacher"] == 1.0
    assert told["negatives_dropped"] == 0
    assert told["estimated_false_negatives"] == {"rate": 0.0, "low": 0.0, "high": 0.0}
    assert told["rows_where_a_negative_beats_the_positives"] == 0
    assert sum(int(row[2]) for row in told["table"]["rows"]) == 160


def test_what_lies_near_the_positive_goes_and_is_counted(counted: Any, tmp_path: Path) -> None:
    done = counted("--drop-margin", "1.5", "--json")
    told = json.loads(done.stdout)
    rows = read_mined(tmp_path / "s.parquet")
    # The document with four of five apples is suspected in every row; the others take its place.
    for row in rows:
        number = row.query_id[1:]
        assert f"d{number}-4" not in row.negatives
        assert sorted(row.negatives) == [f"d{number}-{repeats}" for repeats in (1, 2, 3)]
    assert told["negatives_after"] == told["negatives_before"] == 120
    rate = told["estimated_false_negatives"]
    assert rate["low"] <= rate["rate"] <= rate["high"]
    assert rate["rate"] == pytest.approx(told["negatives_dropped"] / 120, abs=1e-4)
    told = json.loads(counted("--drop-margin", "1.5", "--policy", "promote", "--json").stdout)
    rows = read_mined(tmp_path / "s.parquet")
    assert [row.promoted for row in rows] == [[f"d{row.query_id[1:]}-4"] for row in rows]


def test_probabilities_are_fitted_to_labels(counted: Any, tmp_path: Path) -> None:
    done = counted("--calibrate", "platt")
    assert done.returncode == 1
    assert "documents judged not relevant" in done.stderr
    assert "and 0 are there" in done.stderr
    done = counted("--calibrate", "platt", "--drop-above", "0.9", "--keep-below", "0.1", "--json", judged=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    fitted = told["calibration"]
    assert fitted["labels"] + fitted["held_out"] == 80
    # A logit of -2 was never right and one of 2 always: the fit says so more firmly than the teacher.
    assert fitted["slope"] > 1
    assert fitted["error_after"] < fitted["error_before"]
    assert sum(part["pairs"] for part in told["calibration_curve"]) == fitted["held_out"]
    shown = counted("--calibrate", "platt", judged=True).stdout
    assert f"slope {fitted['slope']:.4g}" in shown
    rows = read_mined(tmp_path / "s.parquet")
    assert all(
        score in (-2.0, -1.0, 0.0, 1.0, 2.0) for row in rows for score in row.candidate_teacher or () if score
    )
    assert told["negatives_dropped"] > 0
    judged = [row.reason[row.candidate_ids.index(f"d{row.query_id[1:]}-1")] for row in rows]
    assert set(judged) == {"judged not relevant"}


def test_a_persons_word_beats_the_teachers(counted: Any, tmp_path: Path) -> None:
    done = counted("--drop-margin", "1.5", "--review", "review.csv")
    assert done.returncode == 0, done.stderr
    assert "review.csv: 0 doubtful negatives" in done.stdout  # nothing lies above a positive here
    review = tmp_path / "labels.csv"
    with review.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["query_id", "document_id", "label"])
        table.writerows(
            [["q1", "d1-4", "negative"], ["q1", "d1-2", "Positive"], ["q2", "d2-4", ""], ["q9", "x", "no"]]
        )
    done = counted("--drop-margin", "1.5", "--labels", review, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert any(
        "1 labels are of pairs that are not among these candidates, or of known positives" in note
        for note in told["notes"]
    )
    assert told["dropped"] == {"pair without a label": 1}
    rows = {row.query_id: row for row in read_mined(tmp_path / "s.parquet")}
    assert "d1-4" in rows["q1"].negatives
    assert rows["q1"].promoted == ["d1-2"]
    assert "d2-4" not in rows["q2"].negatives


def test_the_review_shows_the_most_confident(run_here: RunCli, place: Path, tiny: Path, tmp_path: Path) -> None:
    review = tmp_path / "review.csv"
    flags = ("--teacher", place / "teacher0", "--candidates", "all", "--review", review)
    _, rows = scored(run_here, place, tiny, tmp_path / "s.parquet", *flags)
    with review.open(encoding="utf-8", newline="") as file:
        shown = list(csv.DictReader(file))
    assert 0 < len(shown) <= 20
    margins = [float(line["teacher"]) - float(line["lowest_positive"]) for line in shown]
    assert margins == sorted(margins, reverse=True)
    assert min(margins) > 0
    best = max(
        score - min(row.positive_teacher or ())
        for row in rows
        for score, why in zip(row.candidate_teacher or (), row.reason, strict=True)
        if score is not None and why in ("selected", "eligible")
    )
    assert margins[0] == pytest.approx(best, abs=2e-4)
    collection = Collection(tiny)
    assert shown[0]["document"] == collection.corpus.by_id(shown[0]["document_id"])
    # Its own columns are read back, and up to date or not it is written where it is asked for.
    text = review.read_text("utf-8").replace(
        f"{shown[0]['document_id']},,", f"{shown[0]['document_id']},positive,", 1
    )
    (tmp_path / "labelled.csv").write_text(text, "utf-8")
    _, again = scored(run_here, place, tiny, tmp_path / "l.parquet", *flags, "--labels", tmp_path / "labelled.csv")
    row = next(row for row in again if row.query_id == shown[0]["query_id"])
    assert shown[0]["document_id"] in row.promoted
    with review.open(encoding="utf-8", newline="") as file:
        left = [(line["query_id"], line["document_id"]) for line in csv.DictReader(file)]
    assert (shown[0]["query_id"], shown[0]["document_id"]) not in left
    assert (shown[1]["query_id"], shown[1]["document_id"]) in left


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["q1,d1,maybe"], "line 2: label 'maybe' is none of positive, yes, 1, negative, no, 0"),
        (["q1,d1,yes", "q1,d1,no"], "line 3: query q1 and document d1 were labelled the other way before"),
        ([",d1,yes"], "line 2: query_id is ''"),
    ],
)
def test_labels_that_cannot_be_read(counted: Any, tmp_path: Path, lines: list[str], said: str) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("\n".join(["query_id,document_id,label", *lines]) + "\n", "utf-8")
    done = counted("--labels", file)
    assert done.returncode == 1
    assert said in done.stderr


def test_a_teacher_that_says_the_same_of_all_is_left_out() -> None:
    pairs = [("a", "b"), ("a", "c"), ("a", "b")]
    with pytest.raises(EmbedtrainError, match="teacher x gives every pair the same score"):
        teachers.standardised(np.ones(3, np.float32), pairs, "x")
    # The repeated pair counts once: mean 2, deviation 1.
    assert teachers.standardised(np.array([1, 3, 1], np.float32), pairs, "x").tolist() == [-1, 1, -1]


def test_another_teacher_sees_what_the_first_one_took(
    run_here: RunCli, place: Path, tiny: Path, tmp_path: Path
) -> None:
    names = [flag for n in (0, 1) for flag in ("--teacher", place / f"teacher{n}")]
    _, first = scored(run_here, place, tiny, tmp_path / "a.parquet", *names, "--candidates", "all")
    assert any("drop" in (row.verdict or ()) for row in first)
    done = run_here(
        *("score-teacher", "a.parquet", "--collection", tiny, "--trust", "--teacher", place / "teacher1"),
        *("--policy", "keep", "--out", "b.parquet"),
    )
    assert done.returncode == 0, done.stderr
    again, mined = read_mined(tmp_path / "b.parquet"), read_mined(place / "mined.parquet")
    for row, before in zip(again, mined, strict=True):
        assert row.teachers == []
        scores = dict(zip(row.candidate_ids, row.candidate_teacher or (), strict=True))
        assert all(scores[document] is not None for document in before.negatives)
        assert row.negatives == before.negatives


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--candidates", "all"], "--candidates is for scoring"),
        (["--precision", "float32"], "--precision is for scoring"),
        (["--max-length", "64"], "--max-length is for scoring"),
    ],
)
def test_flags_of_scoring_need_a_teacher(
    run_here: RunCli, place: Path, tiny: Path, flags: list[str], said: str
) -> None:
    done = run_here("score-teacher", place / "mined.parquet", "--collection", tiny, *flags, "--out", "x.parquet")
    assert done.returncode == 2
    assert said in done.stderr


def test_a_review_never_replaces_labels(counted: Any, tmp_path: Path) -> None:
    review = tmp_path / "review.csv"
    assert counted("--review", review).returncode == 0
    text = "query_id,document_id,label\nq1,d1-4,negative\n"
    review.write_text(text, "utf-8")
    for flags, said in (
        (("--review", review), "holds labels, which would be lost"),
        (("--review", review, "--labels", review), "is also the file of --labels"),
    ):
        done = counted(*flags)
        assert done.returncode == 2
        assert said in done.stderr
        assert review.read_text("utf-8") == text
    assert counted("--review", tmp_path / "next.csv", "--labels", review).returncode == 0
