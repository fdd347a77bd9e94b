"""Guards: correlations against scipy, intervals that are paired, and the command with both kinds of guard.

Deliberate breaks that turn a test red: draws of their own for every model (test_the_interval_of_a_difference_...), scores
ranked once before resampling, the base less the model.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, RunCli, write_collection
from scipy import stats
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import pairwise_cos_sim

from embedtrain import guarding
from embedtrain.errors import EmbedtrainError
from embedtrain.models import MINILM, find_model

SENTENCES = [
    (5.0, "A man plays the guitar.", "A man is playing a guitar."),
    (4.6, "The cat sleeps on the sofa.", "A cat is asleep on a couch."),
    (4.2, "Two children run in the park.", "Kids are running through a park."),
    (3.8, "The train is late again.", "Again the train does not come on time."),
    (3.0, "She bought a red car.", "She bought a blue bicycle."),
    (2.6, "The shop opens at nine.", "The shop closes at six."),
    (2.0, "It rains in the mountains.", "It snows at the coast."),
    (1.4, "He cooks soup for dinner.", "He reads a book after dinner."),
    (1.0, "The committee met on Monday.", "The dog barks on Monday."),
    (0.4, "Prices rose last year.", "A bird sits in the tree."),
    (0.2, "The engine needs oil.", "My sister sings well."),
    (0.0, "Water boils at 100 degrees.", "The museum has new paintings."),
]


def write_pairs(path: Path) -> Path:
    lines = ["score\tsentence1\tsentence2", *(f"{score}\t{one}\t{other}" for score, one, other in SENTENCES)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_correlations_are_those_of_scipy() -> None:
    random = np.random.default_rng(0)
    rows = np.round(random.normal(size=(4, 60)), 1)  # with ties
    found = guarding._spearman(rows)
    assert found == pytest.approx([stats.spearmanr(row, rows[-1]).statistic for row in rows[:-1]], abs=1e-12)
    assert guarding._spearman(np.stack([np.ones(9), np.arange(9.0)])).tolist() == [0.0]


def test_the_interval_of_a_difference_is_paired() -> None:
    """Two models that err alike: the difference is known far better than either value; scipy's bootstrap agrees."""
    random = np.random.default_rng(1)
    scores = random.normal(size=300)
    shared = random.normal(size=300)
    similarities = np.stack([scores + shared, scores + shared + 0.2 * random.normal(size=300)])
    drawn = guarding._resampled(similarities, scores, 0)
    own, other = (guarding._percentiles(drawn[:, column]) for column in (0, 1))
    difference = guarding._percentiles(drawn[:, 1] - drawn[:, 0])
    assert difference.high - difference.low < 0.3 * min(own.high - own.low, other.high - other.low)

    def apart(one: np.ndarray, two: np.ndarray, gold: np.ndarray) -> float:
        return float(stats.spearmanr(two, gold).statistic - stats.spearmanr(one, gold).statistic)

    theirs = stats.bootstrap(
        (*similarities, scores),
        apart,
        paired=True,
        vectorized=False,
        n_resamples=1_000,
        method="percentile",
        rng=np.random.default_rng(2),
    ).confidence_interval
    width = theirs.high - theirs.low
    assert (difference.low, difference.high) == pytest.approx((theirs.low, theirs.high), abs=0.15 * width)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["score\tsentence1\tsentence2", "high\ta\tb"],
            r"sts.tsv line 2 has the score 'high'; a number is needed",
        ),
        (["score\tsentence1\tsentence2", "1\ta"], r"line 2 has 2 columns where the header has 3"),
        (["score\tsentence1", "1\ta"], r"line 2 has no column 'sentence2'"),
        (["score\tsentence1\tsentence2", "1\ta\tb"], r"has 1 pairs with 1 different scores; a correlation needs"),
    ],
)
def test_a_file_that_is_no_sts_file(tmp_path: Path, lines: list[str], message: str) -> None:
    path = tmp_path / "sts.tsv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(EmbedtrainError, match=message):
        guarding.read_pairs(path)


def test_a_quotation_mark_is_one_and_tables_are_read_too(tmp_path: Path) -> None:
    rows = [(float(n), f'He said "{n}', f'"{n}" she said') for n in range(12)]
    lines = ["score\tsentence1\tsentence2", *("\t".join(map(str, row)) for row in rows)]
    (tmp_path / "sts.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "sts.jsonl").write_text(
        "".join(json.dumps(dict(zip(guarding.STS_COLUMNS, row, strict=True))) + "\n" for row in rows)
    )
    for name in ("sts.tsv", "sts.jsonl"):
        found = guarding.read_pairs(tmp_path / name)
        assert (found.first[3], found.second[3], found.scores[3]) == ('He said "3', '"3" she said', 3.0)


def test_the_pairs_that_come_with_the_project() -> None:
    found = guarding.read_pairs(ROOT / "recipes" / "data" / "stsb" / "sts-en-test.tsv.gz")
    assert (len(found.scores), found.scores.min(), found.scores.max()) == (625, 0.0, 5.0)
    assert all(found.first)
    assert all(found.second)


def test_base_and_tuned_on_both_kinds_of_guard(run_here: RunCli, tiny: Path, tmp_path: Path) -> None:
    """The same model twice loses nothing; another one has the values that plain sentence-transformers gives."""
    animals = ["the fox", "the hen", "the owl", "the cow", "the eel"]
    write_collection(
        tmp_path / "animals",
        [{"_id": f"d{n}", "title": "", "text": f"{text} lives here"} for n, text in enumerate(animals)],
        [{"_id": f"q{n}", "text": text} for n, text in enumerate(animals)],
        {"held": [(f"q{n}", f"d{n}", 1) for n in range(5)]},
    )
    write_pairs(tmp_path / "sts.tsv")
    source = find_model(MINILM).path
    (tmp_path / "again").symlink_to(source)
    command = [
        "eval",
        str(tiny),
        "--model",
        MINILM,
        "--model",
        "again",
        "--measure",
        "nDCG@10",
        "--guard",
        "animals",
    ]
    command += ["--guard-split", "held", "--guard-sts", "sts.tsv", "--out", "out"]
    wanted = [
        "--require",
        "guard:nDCG@10>=-0.005",
        "--require",
        "guard sts: Spearman mean>=0.7",
        "--max-drop",
        "0.01",
    ]
    done = run_here(*command, *wanted, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    animals_guard, sts_guard = printed["guards"]
    assert (animals_guard["name"], animals_guard["queries"], animals_guard["measure"]) == ("animals", 5, "nDCG@10")
    assert animals_guard["systems"]["again"]["mean"] == 1.0
    assert animals_guard["systems"]["again"]["versus_base"]["difference"] == 0.0
    assert (sts_guard["name"], sts_guard["pairs"]) == ("sts", 12)
    model = SentenceTransformer(str(source), device="cpu")
    one, other = (model.encode([row[side] for row in SENTENCES], convert_to_tensor=True) for side in (1, 2))
    plain = stats.spearmanr(pairwise_cos_sim(one, other).numpy(), [row[0] for row in SENTENCES]).statistic
    assert sts_guard["systems"]["base"]["mean"] == pytest.approx(plain, abs=1e-9)
    assert sts_guard["systems"]["again"]["versus_base"] == {"difference": 0.0, "low": 0.0, "high": 0.0}
    assert [one["met"] for one in printed["requirements"]] == [True] * 4
    # A recipe stands for its seeds here too, so that a drop is not passed over.
    seeds = ["--seeds", "agai[mn]*", "--out", "seeds", "--json"]
    (tmp_path / "again-2").symlink_to(source)
    recipe = run_here(*command[:4], *command[6:-2], *wanted, *seeds, cwd=tmp_path)
    assert recipe.returncode == 0, recipe.stderr
    told = json.loads(recipe.stdout)
    assert told["judged_system"] == "agai[mn]*"
    assert [guard["systems"]["agai[mn]*"]["versus_base"]["difference"] for guard in told["guards"]] == [0.0, 0.0]
    assert len(told["requirements"]) == 4
    shown = run_here(*command, cwd=tmp_path)
    assert "Guards" in shown.stdout
    assert "Spearman of 12" in shown.stdout


def test_names_of_guards_are_unique(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a/x.tsv", "b/x.jsonl", "c/x (2).tsv", "d/x")]
    assert guarding.names_of(paths) == ["x", "x (2)", "x (2) (2)", "x (3)"]


def test_a_guard_of_one_query_has_no_interval_and_loses_nothing() -> None:
    versus = {"difference": -0.1, "low": None, "high": None}
    guard = {
        "name": "g",
        "measure": "P@1",
        "queries": 1,
        "systems": {"tuned": {"mean": 0.5, "versus_base": versus}},
    }
    assert guarding.table([guard])["rows"] == [["g", "tuned", "P@1 of 1", "0.5000", "-0.1000"]]
    assert guarding.sentences([guard]) == []


def test_a_guard_without_the_split_is_an_error(run_here: RunCli, tiny: Path, tmp_path: Path) -> None:
    done = run_here(
        "eval",
        str(tiny),
        "--model",
        MINILM,
        "--guard",
        str(tiny),
        "--guard-split",
        "no",
        "--out",
        "out",
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "no split no" in done.stderr or "has no split" in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
