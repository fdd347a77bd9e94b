"""Documents ranked by their best passage: by hand, against the obvious loop, and pages of Markdown through the commands.

Deliberate breaks that turn a test red: the last passage taken for the best, passages of other documents kept, no more
passages than documents asked for.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import RunCli, write_collection
from hypothesis import given
from hypothesis import strategies as st

from embedtrain.collection import Collection, Texts
from embedtrain.errors import EmbedtrainError
from embedtrain.hits import Hits
from embedtrain.searched import Documents, Passages
from embedtrain.systems import System

PAGES = ["guide/a.md", "guide/b.md", "guide/c.md"]


def passages_of(folder: Path, pages: list[str]) -> Passages:
    """Passages p0, p1, ... of the pages named, beside a corpus of PAGES."""
    rows = [{"_id": f"p{n}", "title": "", "text": f"passage {n}", "page": page} for n, page in enumerate(pages)]
    chunks = write_collection(folder / "chunks", rows, [{"_id": "q", "text": "none"}], {})
    corpus = [{"_id": page, "title": "", "text": page} for page in PAGES]
    whole = write_collection(folder / "pages", corpus, [{"_id": "q", "text": "none"}], {})
    return Passages(Collection(whole).corpus, chunks, "page")


def hits(places: list[int], scores: list[float]) -> Hits:
    return Hits([np.array(places, dtype=np.int64)], [np.array(scores, dtype=np.float32)])


def test_a_page_has_the_score_of_its_best_passage(tmp_path: Path) -> None:
    searched = passages_of(tmp_path, ["guide/b.md", "guide/a.md", "guide/b.md", "elsewhere.md", "guide/a.md"])
    # Best first: p3 is of no page that is measured, p2 and p0 are of b, p4 and p1 of a.
    found = searched.ranked(hits([3, 2, 4, 0, 1], [0.9, 0.8, 0.8, 0.5, 0.1]), 5)
    # a and b have 0.8 both: by id.
    assert [PAGES[place] for place in found.positions[0]] == ["guide/a.md", "guide/b.md"]
    assert found.scores[0].tolist() == pytest.approx([0.8, 0.8])
    assert [PAGES[place] for place in searched.ranked(hits([0, 1], [0.5, 0.1]), 1).positions[0]] == ["guide/b.md"]
    assert searched.about() == {
        "passages": 5, "column": "page", "passages_of_other_documents": 1, "documents_without_a_passage": 1,
    }  # fmt: skip
    assert searched.said()[1:] == [
        "1 passages are of documents that are not in the corpus and are left out: elsewhere.md",
        "1 documents have no passage and cannot be found",
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=30), st.integers(1, 4))
def test_it_is_the_obvious_loop(rows: list[tuple[int, int]], k: int) -> None:
    searched = Passages.__new__(Passages)
    ids = ["d", "b", "a"]
    from embedtrain.hits import Ties

    searched.ids, searched._ties = ids, Ties(ids)
    searched.texts, searched._cut = Texts.of((("", "", "") for _ in rows), titled=False), False
    searched._of = np.array([place if place < 3 else -1 for place, _ in rows], dtype=np.int64)
    best: dict[str, int] = {}
    for place, score in rows:
        if place < 3:
            best[ids[place]] = max(score, best.get(ids[place], 0))
    expected = sorted(best.items(), key=lambda item: (-item[1], item[0]))[:k]
    order = sorted(range(len(rows)), key=lambda place: -rows[place][1])
    found = searched.ranked(hits(order, [float(rows[place][1]) for place in order]), k)
    named = [ids[place] for place in found.positions[0]]
    assert list(zip(named, found.scores[0].tolist(), strict=True)) == expected


def test_more_passages_than_documents_are_asked_for(tmp_path: Path) -> None:
    searched = passages_of(tmp_path, ["guide/b.md"] * 100)
    assert (searched.depth(3), searched.depth(50)) == (30, 100)
    assert Documents(Collection(tmp_path / "pages").corpus).depth(3) == 3
    system = System("m", hits([1], [0.5]), PAGES, {})
    # Fewer passages than were asked for, or all there are: more documents are not to be had.
    searched.ranked(hits(list(range(29)), [0.5] * 29), 3)
    searched.ranked(hits(list(range(100)), [0.5] * 100), 50)
    assert searched.too_few([system], 2) == []
    searched.ranked(hits(list(range(30)), [0.5] * 30), 3)
    assert searched.too_few([system], 1) == []
    (said,) = searched.too_few([system], 2)
    assert said.startswith("m: the best passages of 1 queries are of fewer than 2 documents")


def test_passages_of_other_pages_only_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbedtrainError, match=r"its column page has other.md.*--passage-column"):
        passages_of(tmp_path, ["other.md"])
    chunks = tmp_path / "chunks"
    with pytest.raises(EmbedtrainError, match="no column 'url'; its columns are: _id, title, text, page"):
        Passages(Collection(tmp_path / "pages").corpus, chunks, "url")


def test_questions_about_pages_are_measured_on_their_chunks(run_here: RunCli, tmp_path: Path) -> None:
    """Each page's answer stands under a heading far below its first words, which speak of the other page's matter."""
    place = tmp_path / "docs" / "guide"
    place.mkdir(parents=True)
    filler = "Nothing of interest is said in this sentence of many words. " * 40
    texts = {}
    for name, word, other in (("a", "badger", "otter"), ("b", "otter", "badger")):
        texts[f"guide/{name}.md"] = (
            f"# Page {name}\n\nThe {other} {other} is for later. {filler}\n\n## Details\n\nA {word} digs. {filler}"
        )
    for name, text in texts.items():
        (tmp_path / "docs" / name).write_text(text, encoding="utf-8")
    questions = write_collection(
        tmp_path / "questions",
        [{"_id": name, "title": "", "text": text} for name, text in texts.items()],
        [{"_id": "q1", "text": "badger digs"}, {"_id": "q2", "text": "otter digs"}],
        {"test": [("q1", "guide/a.md", 1), ("q2", "guide/b.md", 1)]},
    )
    done = run_here("harvest", str(tmp_path / "docs"), "--out", str(tmp_path / "chunks"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["documents"] > 2
    command = ["eval", str(questions), "--bm25", "--measure", "nDCG@1", "--json"]
    done = run_here(*command, "--passages", str(tmp_path / "chunks"), "--out", str(tmp_path / "by-chunk"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["systems"]["BM25"]["nDCG@1"]["mean"] == 1.0
    assert found["documents"] == 2
    assert found["passages"]["documents_without_a_passage"] == 0
    assert any(note.startswith("documents are ranked by their best passage: ") for note in found["notes"])
    run = (tmp_path / "by-chunk" / "runs" / "BM25.trec").read_text("utf-8").splitlines()
    assert sorted({line.split()[2] for line in run}) == ["guide/a.md", "guide/b.md"]
    # Whole pages: the words that stand thrice on the other page win.
    done = run_here(*command, "--out", str(tmp_path / "whole"))
    assert json.loads(done.stdout)["systems"]["BM25"]["nDCG@1"]["mean"] == 0.0

    done = run_here(
        *command, "--passages", str(tmp_path / "chunks"), "--rerank", "x", "--out", str(tmp_path / "o")
    )
    assert done.returncode == 2
    assert "--rerank judges whole documents" in done.stderr
    done = run_here(*command, "--passage-column", "url", "--out", str(tmp_path / "o"))
    assert done.returncode == 2
    assert "--passage-column names a column of --passages" in done.stderr
