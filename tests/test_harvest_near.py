"""Near-duplicates are found as by comparing all with all, and become one; evaluation sets are found in training sets.

Deliberate breaks that turn a test red: no check of the candidates; a threshold on the estimate; documents with their own ids
merged; the later of two kept; pairs of the one that leaves forgotten; answers compared with the whole corpus of the
evaluation set; exact matches counted as near ones; a near query kept in train.
"""

import json
import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from conftest import SHARED, RunCli, write_collection
from harvested import documents, pairs, qrels, queries
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain.collection import Collection
from embedtrain.console import silent
from embedtrain.duplicates import jaccard, shingles
from embedtrain.errors import UsageError
from embedtrain.harvest import near
from embedtrain.harvest.draft import Document, Draft, Query
from embedtrain.harvest.leaks import check, exclude, shared, side
from embedtrain.harvest.split import components

WORDS = [
    "the",
    "model",
    "reads",
    "a",
    "query",
    "and",
    "finds",
    "the",
    "document",
    "that",
    "answers",
    "it",
    "among",
    "many",
    "others",
    "of",
    "the",
    "corpus",
]


def varied(count: int, seed: int) -> list[str]:
    """Texts of which some are others with a few words changed."""
    generator = random.Random(seed)
    texts: list[str] = []
    for n in range(count):
        if texts and generator.random() < 0.5:
            words = generator.choice(texts).split()
            for _ in range(generator.randrange(4)):
                words[generator.randrange(len(words))] = f"word{n}"
            texts.append(" ".join(words))
        else:
            texts.append(" ".join(generator.choices(WORDS, k=40)))
    return texts


@pytest.mark.parametrize("threshold", [0.7, 0.8, 0.95])
def test_pairs_are_those_of_comparing_all_with_all(threshold: float) -> None:
    texts = varied(160, seed=3)
    sets = [shingles(text) for text in texts]
    every = {(a, b) for a, b in combinations(range(len(texts)), 2) if jaccard(sets[a], sets[b]) >= threshold}
    first, second = near.near_pairs(near.signatures(texts), texts.__getitem__, threshold)
    found = set(zip(first.tolist(), second.tolist(), strict=True))
    assert found <= every
    # What belongs together is joined, though not every pair of it is named.
    leader = near.clusters(first, second, len(texts))
    true = near.clusters(
        *(np.array(part, dtype=np.int64) for part in zip(*sorted(every), strict=True)), len(texts)
    )
    assert len(every) > 15
    assert (leader == true).mean() >= 0.99
    assert len(found) >= 0.5 * len(every)


def test_signatures_do_not_depend_on_what_else_is_there() -> None:
    texts = varied(50, seed=1)
    whole = near.signatures(texts)
    assert whole.shape == (50, near.BANDS)
    assert (near.signatures(texts[20:30]) == whole[20:30]).all()
    assert near.signatures([]).shape == (0, near.BANDS)


def test_an_estimate_of_the_index_is_as_good_as_its_formula_says() -> None:
    # Two sets of 1,000 shingles that share 800 have the index 800 / 1200 = 2/3. A band of 6 rows agrees with the
    # probability (2/3)**6 = 0.0878, one of 21 bands in 1 - (1 - 0.0878)**21 = 0.855 of the cases.
    generator = random.Random(0)
    hits = 0
    for n in range(200):
        letters = [chr(0x4E00 + generator.randrange(20_000)) for _ in range(420)]
        one, two = "".join(letters[:350]), "".join(letters[70:])
        bands = near.signatures([one, two])
        hits += bool((bands[0] == bands[1]).any())
        if n == 0:
            assert abs(jaccard(shingles(one), shingles(two)) - 2 / 3) < 0.01
    assert abs(hits / 200 - 0.855) < 0.08  # three deviations


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_clusters_are_named_by_their_first(joined: list[tuple[int, int]]) -> None:
    first, second = (np.array([pair[side] for pair in joined], dtype=np.int64) for side in (0, 1))
    leader = near.clusters(first, second, 10)
    assert (leader <= np.arange(10)).all()
    assert (leader[leader] == leader).all()
    assert (leader[first] == leader[second]).all()


LONG = "To reset the password, open the settings, choose the account and follow the link that is sent to you by mail. "
OTHER = (
    "Invoices are sent on the first day of each month to the address that stands in the contract of the customer. "
)


def test_near_duplicates_share_one_positive() -> None:
    draft = Draft()
    for query, text in [
        ("q1", LONG * 3),
        ("q2", LONG * 3 + "Done."),
        ("q1", LONG * 3 + "Done."),
        ("q3", OTHER * 3),
    ]:
        draft.add_weak_pair(query, draft.add_weak_document("", text, {}), "table")
    near.merge(draft, 0.9, silent)
    assert sorted(pairs(draft)) == [("q1", LONG * 3), ("q2", LONG * 3), ("q3", OTHER * 3)]
    assert draft.dropped == {"near-duplicate document": 1, "repeated pair": 1}
    assert draft.notes[0].startswith("1 near-duplicates were made one with another document, as 'To reset")
    assert len(documents(draft)) == 2


def test_of_two_grades_of_a_merged_pair_the_higher_stays() -> None:
    draft = Draft()
    for text, grade in [(LONG * 3, 0.0), (LONG * 3 + "Done.", 1.0)]:
        draft.add_weak_pair("q", draft.add_weak_document("", text, {}), "table", grade=grade)
    near.merge(draft, 0.9, silent)
    (judged,) = qrels(draft)["train"].values()
    assert list(judged.values()) == [1.0]


def test_documents_with_their_own_ids_stay_together() -> None:
    draft = Draft()
    for n, text in enumerate([LONG * 3, LONG * 3 + "Done.", OTHER * 3]):
        draft.add_document(f"d{n}", Document("", text, {}))
        draft.add_query(f"q{n}", Query(f"query {n}", {}))
        draft.judge("train", f"q{n}", f"d{n}", 1.0, "here")
    weak = draft.add_weak_document("", LONG * 3 + "Well.", {})
    draft.add_weak_pair("weak", weak, "table")
    near.merge(draft, 0.9, silent)
    assert list(documents(draft)) == ["d0", "d1", "d2"]
    assert pairs(draft)[-1] == ("weak", LONG * 3)
    _, groups = components(draft, draft.pairs("train"))
    assert groups.tolist() == [0, 0, 1, 0]


# -- leaks ---------------------------------------------------------------------------------------------------------

ASKED = "How do I reset the password of an account that I have not used for a long time?"


def measured_on(folder: Path) -> Path:
    return write_collection(
        folder,
        [{"_id": "a", "text": LONG * 3}, {"_id": "b", "text": OTHER * 3}],
        [{"_id": "q", "text": ASKED}, {"_id": "r", "text": "Where do invoices go?"}],
        {"test": [("q", "a", 1), ("q", "b", 0)], "other": [("r", "b", 1)]},
    )


def training() -> Draft:
    draft = Draft()
    for query, text in [
        (ASKED.upper(), "Something else."),  # their query, word for word
        (ASKED.replace("long time", "long, long time"), "Something new."),  # nearly
        ("new query", LONG * 3),  # their answer
        ("newer query", LONG * 3 + "Done."),  # nearly
        ("invoices", OTHER * 3),  # a document of theirs that answers no query of the split test
        ("free query", "Free text."),
    ]:
        draft.add_weak_pair(query, draft.add_weak_document("", text, {}), "table")
    return draft


def test_what_is_measured_on_leaves_train(tmp_path: Path) -> None:
    folder = measured_on(tmp_path / "eval")
    draft = training()
    exclude(draft, [(folder, "test")], silent)
    assert pairs(draft) == [("invoices", OTHER * 3), ("free query", "Free text.")]
    assert draft.dropped == {
        "pair with a query of an excluded collection": 2,
        "pair with an answer of an excluded collection": 2,
        "document that answers a query of an excluded collection": 2,
    }
    assert draft.notes[0] == (
        "eval: 2 of 6 queries (1 word for word, 1 nearly); 2 of 6 documents (1 word for word, 1 nearly) left train"
    )
    assert [query.text for query in queries(draft).values()] == ["invoices", "free query"]
    draft = training()
    exclude(draft, [(folder, "")], silent)
    assert pairs(draft) == [("free query", "Free text.")]


def test_what_left_parts_and_joins_nothing(tmp_path: Path) -> None:
    # The document that leaves is of the page "shared"; nothing that stays is.
    draft = Draft()
    gone = draft.add_weak_document("", LONG * 3, {}, page="shared")
    for n, page in enumerate(["a", "b", "c", "d"]):
        draft.add_weak_pair(
            f"query {n}", draft.add_weak_document("", f"Text of {page}.", {}, page=page), "heading"
        )
    draft.add_weak_document("", "Also of the page.", {}, page="shared")
    draft.add_weak_pair("gone", gone, "heading")
    exclude(draft, [(measured_on(tmp_path / "eval"), "")], silent)
    _, groups = components(draft, draft.pairs("train"))
    assert len(set(groups.tolist())) == 4
    documents_there, members = draft.keys("documents")[0], draft.together()[1]
    assert np.isin(members, documents_there).all()


def test_other_splits_and_documents_with_ids_stay(tmp_path: Path) -> None:
    draft = Draft()
    draft.add_document("own", Document("", LONG * 3, {}))
    for split, query in (("train", "q1"), ("dev", "q2")):
        draft.add_query(query, Query(f"text of {query}", {}))
        draft.judge(split, query, "own", 1.0, "here")
    exclude(draft, [(measured_on(tmp_path / "eval"), "")], silent)
    assert qrels(draft) == {"dev": {"q2": {"own": 1.0}}}
    assert list(documents(draft)) == ["own"]
    assert list(queries(draft)) == ["q1", "q2"]  # they came with ids of their own


@given(st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta"]), max_size=6))
@settings(max_examples=30, deadline=None)
def test_word_for_word_is_a_set(own: list[str]) -> None:
    found = shared(side(own), side(["Beta ?", "delta", "omega"]), 0.0)
    assert found.exact.tolist() == [text in ("beta", "delta") for text in own]
    assert not found.near.any()
    assert [("Beta ?", "delta", "omega")[place] for place in found.like[found.exact]] == [
        {"beta": "Beta ?"}.get(text, text) for text in own if text in ("beta", "delta")
    ]


def test_a_collection_that_nothing_can_leak_from(tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "c", [{"_id": "a", "text": "x"}], [{"_id": "q", "text": "y"}], {})
    with pytest.raises(UsageError, match="has no qrels, so nothing can leak from it"):
        exclude(training(), [(folder, "")], silent)


def test_check_reports_and_ends_with_3(run_here: RunCli, tiny: Path, tmp_path: Path) -> None:
    apart = run_here("harvest", "--check", tiny, "--against", f"{tiny}:test")
    assert apart.returncode == 3, apart.stderr  # claims of the two splits share abstracts
    assert "word for word" in apart.stdout
    said = json.loads(run_here("harvest", "--check", tiny, "--against", f"{tiny}:test", "--json").stdout)
    train, test = (Collection(tiny).positives(split) for split in ("train", "test"))
    own, other = ({d for found in part.values() for d in found} for part in (train, test))
    assert said["documents"]["word_for_word"] == len(own & other)
    assert said["documents"]["total"] == len(own)
    assert said["queries"] == {
        "total": 40,
        "word_for_word": 0,
        "nearly": said["queries"]["nearly"],
        "share": said["queries"]["share"],
    }
    allowed = run_here("harvest", "--check", tiny, "--against", f"{tiny}:test", "--max-leak", "1")
    assert allowed.returncode == 0
    whole = run_here("harvest", "--check", tiny, "--against", tiny)
    assert "100.0% of" in whole.stderr
    assert "leave it out with: embedtrain harvest ... --exclude" in whole.stderr
    for arguments in (["--check", tiny], ["--against", tiny], [tiny, "--check", tiny, "--against", tiny]):
        result = run_here("harvest", *arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert "--check and --against go together" in result.stderr


def test_banking77_repeats_25_of_its_test_texts() -> None:
    if not SHARED.is_dir():
        pytest.skip("the larger collections are not on this machine")
    found = check(SHARED / "banking77", (SHARED / "banking77", "test"), "train")
    # By the words of each: 25 test texts repeat a train text, as SOURCE.md of the collection counts.
    assert found["queries"]["word_for_word"] == 25
    assert found["documents"]["share"] == 1.0  # the 77 intents
