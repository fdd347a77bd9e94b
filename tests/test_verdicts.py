"""Verdicts on spaces whose state is known: even, clustered, collapsed, flat, shuffled; with and without a base.

Breaks that turn a test red: a high cosine counted as a fault by itself, a collapse hidden by a perfect alignment,
a base that is not looked at.
"""

import dataclasses

import numpy as np
import pytest

from embedtrain.diagnose import verdicts
from embedtrain.diagnose.probe import Probe, look
from embedtrain.diagnose.section import COLLAPSED, HEALTHY, WATCH, overall
from embedtrain.diagnose.verdicts import Space

DIMENSION, DOCUMENTS = 96, 400


def space(documents: np.ndarray, queries: np.ndarray, name: str = "model") -> Space:
    """Query i has document i as its positive; every document is in the sample."""
    everything = list(range(len(documents)))
    probe = Probe(everything, everything, [str(i) for i in everything], [[i] for i in everything], {})
    return look(name, queries, documents, probe, seed=0)


def vectors(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((DOCUMENTS, DIMENSION))


def near(documents: np.ndarray, noise: float = 0.8) -> np.ndarray:
    return documents + noise * np.random.default_rng(9).standard_normal(documents.shape)


def by_key(found: Space, base: Space | None = None) -> dict[str, verdicts.Measure]:
    return {measure.key: measure for measure in verdicts.judge(found, base)}


def worst(found: Space, base: Space | None = None) -> str:
    return overall(verdicts.judge(found, base))[0]


def test_an_even_space_is_healthy() -> None:
    assert worst(space(vectors(), near(vectors()))) == HEALTHY


def test_a_high_cosine_alone_is_no_fault() -> None:
    # A shared direction of length 14 beside 96 of length 1: random cosine about 0.67, all differences kept.
    shared = np.zeros(DIMENSION)
    shared[0] = 14.0
    found = space(vectors() + shared, near(vectors()) + shared)
    measures = by_key(found)
    assert 0.6 < measures["random_cosine"].value < 0.75
    assert overall(list(measures.values()))[0] == HEALTHY
    assert "no fault in itself" in measures["random_cosine"].sentence


def test_collapse_to_one_direction() -> None:
    # P60: everything is similar to everything, while positives look perfect.
    shared = np.zeros(DIMENSION)
    shared[0] = 1000.0
    found = space(vectors() + shared, near(vectors()) + shared)
    measures = by_key(found)
    assert measures["random_cosine"].value > 0.99
    assert measures["random_cosine"].verdict == COLLAPSED
    assert measures["uniformity"].verdict == COLLAPSED
    assert measures["alignment"].value < 0.01
    verdict, sentence = overall(list(measures.values()))
    assert verdict == COLLAPSED
    assert "random-pair cosine" in sentence


def test_four_texts_of_the_case() -> None:
    # P60, as reported: four unrelated texts, collapsed and healthy.
    alike = np.array([[1, 0], [1, 0.01], [1, -0.01], [1, 0.005]])
    assert by_key(space(alike, alike))["random_cosine"].verdict == COLLAPSED
    every_way = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    measures = by_key(space(every_way, every_way))
    assert measures["random_cosine"].value == pytest.approx(-1 / 3)
    assert {measure.verdict for measure in measures.values()} == {HEALTHY}


def test_all_vectors_equal() -> None:
    same = np.ones((20, 8))
    measures = by_key(space(same, same))
    assert measures["random_cosine"].verdict == COLLAPSED
    assert measures["separation"].verdict == COLLAPSED
    assert measures["alignment"].verdict == COLLAPSED, "0 is perfect only where random pairs are not at 0 too"
    assert all(np.isfinite(measure.value) for measure in measures.values())


def test_few_dimensions() -> None:
    basis, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((DIMENSION, 4)))
    flat = vectors()[:, :4] @ basis.T
    measures = by_key(space(flat, near(flat, 0.02)))
    assert measures["rank_me"].verdict == COLLAPSED
    assert measures["components_95"].verdict == COLLAPSED


def test_fifty_of_768_components_are_the_alarm() -> None:
    # The field's rule of thumb for a suspected collapse.
    healthy = space(vectors(), near(vectors()))
    shares = np.r_[np.full(50, 0.95 / 50), np.full(718, 0.05 / 718)]
    suspect = dataclasses.replace(healthy, dimension=768, documents=2000, spectrum=type(healthy.spectrum)(shares))
    found = by_key(suspect)["components_95"]
    assert (found.value, found.verdict) == (50, WATCH)


def test_queries_that_find_nothing() -> None:
    measures = by_key(space(vectors(), vectors(5)))
    assert measures["separation"].value == pytest.approx(0.5, abs=0.05)
    assert measures["separation"].verdict == COLLAPSED
    assert measures["alignment"].verdict == COLLAPSED
    assert measures["rank_me"].verdict == HEALTHY


def test_changes_from_the_base() -> None:
    base = space(vectors(), near(vectors()), "base")
    shared = np.zeros(DIMENSION)
    shared[0] = 7.0
    pulled = space(vectors() + shared, near(vectors()) + shared)
    assert worst(pulled) == HEALTHY
    found = by_key(pulled, base)["random_cosine"]
    assert found.verdict == WATCH
    assert found.base == pytest.approx(base.cosine.mean)
    assert "more than with the base" in found.sentence
    assert worst(base, base) == HEALTHY

    flatter = dataclasses.replace(base, rank_me=0.5 * base.rank_me)
    assert by_key(flatter, base)["rank_me"].verdict == WATCH
    assert by_key(flatter)["rank_me"].verdict == HEALTHY
    lost = dataclasses.replace(base, contrast=dataclasses.replace(base.contrast, separation=0.9))
    assert by_key(lost, base)["separation"].verdict == WATCH
    assert by_key(lost)["separation"].verdict == HEALTHY


def test_the_worst_verdict_counts() -> None:
    measures = verdicts.judge(space(vectors(), near(vectors())))
    mixed = [dataclasses.replace(measures[0], verdict=WATCH, sentence="Look here."), *measures[1:]]
    assert overall(mixed) == (WATCH, "Something to look at: positives above random. Look here.")
    mixed[1] = dataclasses.replace(measures[1], verdict=COLLAPSED, sentence="Gone.")
    assert overall(mixed) == (COLLAPSED, "Collapsed: alignment. Gone.")


def test_numbers_are_written_with_a_minus_sign() -> None:
    measures = by_key(space(vectors(), near(vectors())))
    assert measures["uniformity"].shown(-2.5) == "−2.500"
    assert measures["components_95"].shown(1234) == "1,234"
