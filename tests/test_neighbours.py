"""Hubs, clusters and moved texts, of spaces whose neighbours are known.

Breaks that turn a test red: a document counted as its own neighbour, limits that forget what chance gives with few
queries, clusters compared by distance from 0, ties broken by row instead of id.
"""

import json
import math

import numpy as np
import pytest

from embedtrain.diagnose import neighbours
from embedtrain.diagnose.clusters import Clusters
from embedtrain.diagnose.filling import kappa
from embedtrain.diagnose.section import COLLAPSED, HEALTHY, WATCH, Measure, Section
from embedtrain.errors import EmbedtrainError

DOCUMENTS, DIMENSION = 300, 48


def normal(rows: int, columns: int = DIMENSION, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns))


def grouped(each: int = 60, noise: float = 0.8) -> np.ndarray:
    """Five topics, one after the other."""
    return np.repeat(normal(5, seed=1), each, axis=0) + noise * normal(5 * each, seed=2)


def look(
    documents: np.ndarray, base: np.ndarray | None = None, queries: np.ndarray | None = None, **keywords: object
) -> Section:
    """Queries beside every second document, unless others are given."""
    ids = [f"d{row}" for row in range(len(documents))]
    beside = 0.5 * normal(len(documents), documents.shape[1], 7)[::2]
    asked = documents[::2] + beside if queries is None else queries
    asked_base = None if base is None else base[::2] + beside
    texts = [f"text  of\n{name}" for name in ids]
    names = ["tuned", "base"][: 1 if base is None else 2]
    return neighbours.section(asked, documents, ids, texts, asked_base, base, names, 0, **keywords)  # type: ignore[arg-type]


def by_key(section: Section) -> dict[str, Measure]:
    return {measure.key: measure for measure in section.measures}


def table(section: Section, title: str) -> list[list[str]]:
    found = [item for item in section.tables if item.title.startswith(title)]
    assert {len(row) for row in found[0].rows} == {len(found[0].columns)}
    return found[0].rows


def test_skewness_by_hand() -> None:
    # Mean 1; deviations -1, -1, -1, 3: second moment 12/4 = 3, third 24/4 = 6; 6 / 3^1.5.
    assert neighbours.skewness(np.array([0, 0, 0, 4])) == pytest.approx(6 / 3**1.5)
    assert neighbours.skewness(np.array([2, 2, 2])) == 0.0


def test_isotropic_hubness_is_about_0_3() -> None:
    ids = [str(row) for row in range(1500)]
    found = neighbours.top(normal(1500, 384, 1), normal(1500, 384, 2), ids)
    value = neighbours.skewness(np.bincount(found.ravel(), minlength=1500))
    assert value == pytest.approx(0.3, abs=0.12)
    assert neighbours.skewness_by_chance(1500, 1500) == pytest.approx(1 / math.sqrt(10), abs=0.01)


def test_chance_of_few_queries() -> None:
    # Every query draws 10 of 1,000 documents: a binomial count, of skewness (1 - 2p) / sqrt(q p (1 - p)).
    drawn = np.random.default_rng(0)
    lists = np.array([drawn.permutation(1000)[:10] for _ in range(100)])
    value = neighbours.skewness(np.bincount(lists.ravel(), minlength=1000))
    assert value == pytest.approx(neighbours.skewness_by_chance(100, 1000), abs=0.15)
    assert neighbours.skewness_by_chance(100, 1000) == pytest.approx(0.98 / math.sqrt(100 * 0.01 * 0.99))


def test_neighbours_of_documents_are_others() -> None:
    # At 0, 10, 20 and 80 degrees.
    angles = np.radians([0, 10, 20, 80])
    points = np.c_[np.cos(angles), np.sin(angles)]
    assert neighbours.around(points, list("abcd"), 2).tolist() == [[1, 2], [0, 2], [1, 0], [2, 1]]
    assert neighbours.around(points, list("cbad"), 2)[1].tolist() == [2, 0], "a tie goes to the lower id"
    same = neighbours.around(np.ones((5, 3)), list("abcde"), 2)
    assert same.tolist() == [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1]]


def test_kept_by_hand() -> None:
    before, now = np.array([[1, 2], [0, 2], [0, 1]]), np.array([[2, 1], [2, 3], [4, 3]])
    assert neighbours.kept(before, now).tolist() == [1.0, 0.5, 0.0]
    with pytest.raises(EmbedtrainError, match="not of the same texts"):
        neighbours.kept(before, now[:2])


def test_an_identical_model_keeps_everything() -> None:
    found = look(grouped(), grouped())
    kept = by_key(found)["neighbours_kept"]
    assert (kept.value, kept.verdict) == (1.0, HEALTHY)
    assert found.numbers["kept"]["queries"] == 1.0
    assert not [item for item in found.tables if item.title.startswith("Texts")]
    assert {measure.verdict for measure in found.measures} == {HEALTHY}
    # A longer vector is the same direction.
    assert by_key(look(3.0 * grouped(), grouped()))["neighbours_kept"].value == 1.0


def test_another_space_keeps_what_chance_does() -> None:
    found = look(normal(DOCUMENTS, seed=5), normal(DOCUMENTS, seed=6))
    kept = by_key(found)["neighbours_kept"]
    assert kept.value == pytest.approx(10 / 299, abs=0.012)
    assert kept.verdict == WATCH
    assert "lower learning rate" in kept.sentence
    assert f"{found.numbers['kept']['error'] * 100:.1f} %" in kept.sentence


def test_texts_that_moved_are_named() -> None:
    moved = grouped()
    moved[[7, 130]] = moved[[200, 10]] + 0.1 * normal(2, seed=8)  # into another topic each
    rows = table(look(moved, grouped()), "Texts that moved")
    assert {rows[0][0], rows[1][0]} == {"d7", "d130"}
    assert rows[0][1] == "0 of 10"
    assert {(row[0], row[3]) for row in rows[:2]} == {("d7", "d200"), ("d130", "d10")}
    assert rows[0][4] in ("text of d7", "text of d130")
    numbers = look(moved, grouped()).numbers["kept"]
    assert 0.9 < numbers["documents"] < 1.0


def test_hubs_are_named_and_judged() -> None:
    queries = normal(150, seed=3)
    documents = normal(DOCUMENTS)
    shared = 0.7 * np.eye(DIMENSION)[0] * math.sqrt(DIMENSION)
    healthy = by_key(look(documents, queries=queries + shared))["hub_skewness"]
    # Queries share a direction, and three documents lie on it.
    documents[[4, 9, 17]] = shared + 0.05 * normal(3, seed=4)
    found = look(documents, queries=queries + shared)
    hubs = by_key(found)["hub_skewness"]
    assert hubs.value > 5
    assert hubs.verdict != HEALTHY
    assert hubs.value > healthy.value
    assert {row[0] for row in table(found, "Documents in most")[:3]} == {"d4", "d9", "d17"}
    assert table(found, "Documents in most")[0][1] == "150"
    assert found.numbers["hubs"]["most_frequent"][0]["queries"] == 150
    assert "100 % of the queries" in hubs.sentence


def test_few_queries_are_no_hubs() -> None:
    # 8 queries: nearly every document is in no list, and chance alone gives a skewness of about 2.
    found = by_key(look(normal(DOCUMENTS), queries=normal(8, seed=3)))["hub_skewness"]
    assert found.value > 1.5
    assert found.verdict == HEALTHY


def test_hubs_that_training_made() -> None:
    base = normal(DOCUMENTS)
    queries = normal(DOCUMENTS // 2, seed=3) + 2.0 * np.eye(DIMENSION)[0]
    tuned = base + np.outer(np.random.default_rng(1).exponential(1.0, DOCUMENTS), np.eye(DIMENSION)[0])
    ids = [str(row) for row in range(DOCUMENTS)]
    found = neighbours.section(queries, tuned, ids, ids, normal(150, seed=3), base, ["tuned", "base"], 0)
    hubs = by_key(found)["hub_skewness"]
    assert hubs.base is not None
    assert 2 * hubs.base < hubs.value < 10
    assert hubs.verdict == WATCH
    assert table(found, "Documents in most")[0][2].isdigit()


def test_clusters_by_hand() -> None:
    # Group a: 0 and 90 degrees, mean length sqrt(.5) at 45; group b: three times 180 degrees. c is alone.
    points = [[1, 0], [0, 1], [-1, 0], [-2, 0], [-3, 0], [1, 1]]
    found = Clusters.of(points, ["a", "a", "b", "b", "b", "c"])
    assert found.names == ["b", "a"]
    assert found.sizes.tolist() == [3, 2]
    assert found.alone == 1
    assert found.lengths == pytest.approx([1.0, math.sqrt(0.5)])
    # R (d - R^2) / (1 - R^2) = sqrt(.5) (2 - .5) / .5
    assert found.kappas[1] == pytest.approx(3 * math.sqrt(0.5))
    assert found.between == pytest.approx(-math.sqrt(0.5))
    # The five have the mean (-2, 1) / 5, R^2 = 1/5; 1 - R^2 is 0 within b and 1/2 within a: 2/5 of 1/2 over 4/5.
    assert found.within == pytest.approx(0.25)
    assert found.typical.tolist() == [2, 0]


def test_k_means_finds_the_topics() -> None:
    found = look(grouped(noise=0.5))
    by_label = look(grouped(noise=0.5), labels=["ab"[row // 150] if row else "b" for row in range(300)])
    assert by_label.numbers["clusters"]["by"] == "labels"
    assert [row[0] for row in table(by_label, "Clusters")] == ["b", "a"]
    assert by_label.numbers["clusters"]["model"]["sizes"] == [151, 149]
    assert found.numbers["clusters"]["model"]["count"] == 15
    true = look(grouped(noise=0.5), labels=[row // 60 for row in range(300)])
    assert true.numbers["clusters"]["model"]["sizes"] == [60] * 5
    # Length 1 + .25: R² is 4/5, and the means of topics are as far apart as five random directions.
    assert true.numbers["clusters"]["model"]["kappa"] == pytest.approx(kappa(math.sqrt(0.8), DIMENSION), rel=0.1)
    assert abs(true.numbers["clusters"]["model"]["between"]) < 0.15
    assert true.numbers["clusters"]["model"]["between_error"] > 0


def test_clusters_that_are_points_are_a_collapse() -> None:
    labels = [row // 60 for row in range(300)]
    assert by_key(look(grouped(), labels=labels))["cluster_tightness"].verdict == HEALTHY
    points = by_key(look(grouped(noise=0.02), labels=labels))["cluster_tightness"]
    assert points.verdict == COLLAPSED
    assert "hardly be told apart" in points.sentence
    drawn = by_key(look(grouped(noise=0.35), grouped(), labels=labels))["cluster_tightness"]
    assert drawn.verdict == WATCH
    assert drawn.base is not None
    assert drawn.value > drawn.base


def test_clusters_that_lie_on_each_other() -> None:
    shared = np.eye(DIMENSION)[0] * math.sqrt(DIMENSION)
    labels = [row // 60 for row in range(300)]
    assert by_key(look(grouped() + shared, labels=labels))["cluster_cosine"].verdict == HEALTHY
    assert by_key(look(grouped() + shared, grouped(), labels=labels))["cluster_cosine"].verdict == WATCH
    assert by_key(look(grouped() + 30 * shared, labels=labels))["cluster_cosine"].verdict == COLLAPSED


def test_one_point_has_no_clusters_and_finite_numbers() -> None:
    found = look(np.ones((100, 8)), queries=np.ones((50, 8)))
    assert by_key(found)["hub_skewness"].verdict != HEALTHY
    assert "cluster_tightness" not in by_key(found)
    assert any("no two clusters" in note for note in found.notes)
    json.dumps(found.numbers, allow_nan=False)


def test_few_documents_have_no_neighbourhoods() -> None:
    found = look(normal(20), normal(20))
    assert (found.measures, found.tables) == ([], [])
    assert "at least 21" in found.notes[0]
    assert 0 < by_key(look(normal(21), normal(21, seed=5)))["neighbours_kept"].value < 1


def test_numbers_must_match() -> None:
    with pytest.raises(EmbedtrainError, match="2 labels were given for 300 documents"):
        look(grouped(), labels=[1, 2])
    ids = [str(row) for row in range(300)]
    with pytest.raises(EmbedtrainError, match="299 document vectors"):
        neighbours.section(normal(5), normal(299), ids, ids, None, None, ["model"], 0)


def test_the_same_input_gives_the_same_bytes() -> None:
    moved = grouped() + 0.4 * normal(300, seed=9)
    first, second = look(moved, grouped()), look(moved, grouped())
    assert first == second
    assert first.pictures[0].key == "kept"
    json.dumps(first.numbers, allow_nan=False)
