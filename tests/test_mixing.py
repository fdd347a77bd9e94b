"""BM25 and a model as one ranking: scores by hand, and a weight that is chosen where nothing is measured.

Deliberate breaks that turn a test red: scores scaled over all queries, the weight given to the other side, the weight chosen
on the measured split.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import RunCli, write_collection

from embedtrain import metrics, mixing
from embedtrain.bm25 import BM25
from embedtrain.collection import Collection
from embedtrain.config import EvalOptions
from embedtrain.console import silent
from embedtrain.hits import Hits, Ties
from embedtrain.retrieval import Lexical
from embedtrain.searched import Documents
from embedtrain.systems import Questions, system_of

IDS = ["a", "b", "c", "d"]


def hits(*rows: dict[str, float]) -> Hits:
    ordered = [sorted(row.items(), key=lambda item: -item[1]) for row in rows]
    return Hits(
        [np.array([IDS.index(name) for name, _ in row], dtype=np.int64) for row in ordered],
        [np.array([score for _, score in row], dtype=np.float32) for row in ordered],
    )


def test_a_convex_combination_by_hand() -> None:
    # BM25 scaled: a 1, b 0.5, c 0. Model scaled: c 1, b 0.75, d 0; a is not in its list.
    lexical, dense = hits({"a": 12.0, "b": 7.0, "c": 2.0}), hits({"c": 0.9, "b": 0.8, "d": 0.5})
    found = mixing.convex(lexical, dense, 0.6, Ties(IDS), 3)
    assert [IDS[place] for place in found.positions[0]] == ["b", "c", "a"]
    assert found.scores[0].tolist() == pytest.approx([0.4 * 0.5 + 0.6 * 0.75, 0.6, 0.4])


def test_lists_of_one_score_and_of_none() -> None:
    lexical, dense = hits({}, {"a": 3.0}), hits({"b": 0.2, "c": 0.2}, {})
    found = mixing.convex(lexical, dense, 0.25, Ties(IDS), 9)
    assert [[IDS[place] for place in row] for row in found.positions] == [["b", "c"], ["a"]]
    assert [row.tolist() for row in found.scores] == [[0.25, 0.25], [0.75]]


@pytest.mark.parametrize(("right", "weight"), [("c", 0.8), ("a", 0.35), ("b", 0.5)])
def test_the_weight_with_the_best_mean(right: str, weight: float) -> None:
    """a leads up to 0.354, b to 0.753, c from there: the nearest to a half of those that put the right one first."""
    lexical, dense = hits({"a": 10.0, "b": 5.5, "c": 0.0}), hits({"c": 1.0, "b": 0.82, "a": 0.0})
    asked = Questions(["q"], [""], {"q": {right: 1.0}}, 0, {})
    assert mixing.best_weight(lexical, dense, asked, IDS, metrics.parse("RR@10")) == weight


def test_the_weight_is_chosen_without_the_query_itself(tmp_path: Path) -> None:
    """BM25 finds the query's own text first; what is left says that BM25 is right and the model is not."""
    texts = ["red fox den", "red fox", "blue fox", "grey cat"]
    folder = write_collection(
        tmp_path / "place",
        [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(texts)],
        [{"_id": "d0", "text": texts[0]}],
        {"dev": [("d0", "d1", 1)], "test": [("d0", "d1", 1)]},
    )
    collection, options = Collection(folder), EvalOptions()
    asked = Questions.of(collection, "test", None)
    chosen_on = mixing.Mixer.questions_to_choose_on(collection, options)
    index = BM25(collection.corpus, collection.corpus.ids, options)
    lexical = system_of("BM25", index.search(asked.texts, 3), collection.corpus.ids, asked, 2, language="english")
    search = Lexical(index, Documents(collection.corpus)).hits
    mixer = mixing.Mixer.of(lexical, search, collection, asked, chosen_on, options, silent)
    assert mixer.other is not None
    assert [place.tolist() for place in mixer.other[1].positions] == [[1, 2]]


def test_the_command_chooses_on_dev_and_says_so(run_here: RunCli, tmp_path: Path) -> None:
    words = ["red fox", "blue hen", "green owl", "old cow", "young eel", "wild boar"]
    place = write_collection(
        tmp_path / "place",
        [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(words)],
        [{"_id": f"q{n}", "text": text.split()[1]} for n, text in enumerate(words)],
        {"dev": [(f"q{n}", f"d{n}", 1) for n in range(3)], "test": [(f"q{n}", f"d{n}", 1) for n in range(3, 6)]},
    )
    command = ["eval", str(place), "--model", "all-MiniLM-L6-v2", "--hybrid", "--json"]
    done = run_here(*command, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert list(printed["systems"]) == ["base", "hybrid", "hybrid, weighted"]
    # Everything is found by every weight: the one in the middle.
    how = "0.5 of base's scores and 0.5 of BM25's, chosen on dev"
    assert printed["systems"]["hybrid, weighted"]["about"]["fused"] == how
    assert f"hybrid, weighted: {how}" in printed["notes"]
    for split, why in (("dev", "what is measured"), ("train", "not there")):
        flags = ("--split", "dev") if split == "dev" else ("--dev-split", split)
        done = run_here(*command, *flags, "--out", str(tmp_path / split))
        printed = json.loads(done.stdout)
        assert list(printed["systems"]) == ["base", "hybrid"]
        assert any(note.endswith(f"--dev-split {split} is {why}") for note in printed["notes"])
