"""Pairs of pages: what finds what, and that no document begins with its query.

Deliberate breaks that turn a test red: a title for every document of a section; a heading for its fourth, or for a piece of code; a question with
the page's title before it; "How it works" as a question; an adjacent pair over two pages; documents without words;
an opening that is left in its rest; `--pairs` that lets anything through; a resumed run that reads a page twice; pages of
two sources kept together for their name; a heading for each page of a PDF that it goes on over.
"""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest
from conftest import SHARED
from harvested import triples

from embedtrain.config import PageOptions
from embedtrain.console import silent
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest import documents as page_pairs
from embedtrain.harvest.documents import PAIRS, add_page, check, has_words
from embedtrain.harvest.documents.page import Block, Page, Section
from embedtrain.harvest.documents.questions import question
from embedtrain.harvest.draft import Draft
from embedtrain.harvest.split import components


def words(text: str) -> int:
    return len(text.split())


def page(*sections: tuple[str, str], description: str = "") -> Page:
    """A page called Cats of (heading, paragraphs)."""
    found = [
        Section((heading,) if heading else (), [Block(part) for part in text.split("\n\n")])
        for heading, text in sections
    ]
    return Page("Cats", description, found)


def made(source: Page, **options: object) -> Draft:
    draft = Draft()
    add_page("a.md", source, draft, PageOptions(**options), words)  # type: ignore[arg-type]
    return draft


FIRST, SECOND, THIRD, FOURTH = (
    f"They {word} all day and they {word} all night." for word in ("eat", "run", "purr", "hide")
)


def test_a_section_that_is_cut() -> None:
    long = page(
        ("", f"{FIRST}\n\n{SECOND}"),
        ("Life", "\n\n".join([FIRST[:-1] + "!", SECOND, THIRD, FOURTH])),
        description="Of cats.",
    )
    draft = made(long, chunk_tokens=10)
    # The title announces the page and finds its first document alone; the heading finds three of its four.
    assert triples(draft) == [
        ("title", "Cats", FIRST),
        ("description", "Of cats.", FIRST),
        ("heading", "Cats: Life", FIRST[:-1] + "!"),
        ("heading", "Cats: Life", SECOND),
        ("heading", "Cats: Life", THIRD),
    ]
    assert draft.dropped == {"pair of a heading beyond its first 3 documents": 1}
    assert draft.count("documents") == 5  # the fourth is there to be found by others; the second is one text
    assert made(long, chunk_tokens=0).count("pairs") == 3


def test_a_heading_finds_no_piece_of_code() -> None:
    code = "\n".join(["for each of the cats that you have", "    feed the cat that is there now"])
    source = Page("Cats", "", [Section(("Care",), [Block(FIRST), Block(code, code=True)])])
    draft = made(source, chunk_tokens=9)
    assert triples(draft)[1:] == [("heading", "Cats: Care", FIRST)]
    assert draft.dropped == {"pair of a heading with a later piece of code": 2}
    assert draft.count("documents") == 3


def test_questions_stand_alone() -> None:
    source = page(("", FIRST), ("Why do they purr?", SECOND), ("Why?", THIRD))
    assert triples(made(source))[1:] == [
        ("faq", "Why do they purr?", SECOND),
        ("heading", "Cats: Why?", THIRD),
    ]
    assert triples(made(source, pairs="heading")) == [
        ("heading", "Cats: Why do they purr?", SECOND),
        ("heading", "Cats: Why?", THIRD),
    ]
    assert triples(made(source, pairs="faq")) == [("faq", "Why do they purr?", SECOND)]


def test_openings() -> None:
    source = page(("", f"{FIRST} {SECOND}\n\n{THIRD}"), ("Life", FOURTH))
    draft = made(source, pairs="opening", chunk_tokens=0)
    assert triples(draft) == [("opening", FIRST, f"{SECOND}\n\n{THIRD}")]
    assert draft.dropped == {"section without a first sentence and more": 1}
    assert draft.count("documents") == 3  # two sections, and the rest of one
    groups, documents = draft.together()
    assert (len(set(groups.tolist())), len(documents)) == (1, 3)


def test_adjacent_documents_are_of_one_page() -> None:
    draft = Draft()
    options = PageOptions(pairs="adjacent")
    add_page("a.md", page(("", FIRST), ("Life", SECOND)), draft, options)
    add_page("b.md", page(("", THIRD)), draft, options)
    parts = [Section((), [Block(text)], place) for text, place in ((FOURTH, "page=1"), (FIRST[::-1], "page=2"))]
    add_page("c.pdf", Page("", "", parts), draft, options)
    assert triples(draft) == [("adjacent", FIRST, SECOND)]


def test_pages_of_a_pdf_are_groups() -> None:
    parts = [Section((), [Block(text)], place) for text, place in ((FIRST, "page=1"), (SECOND, "page=2"))]
    draft = made(Page("Cats", "", parts))
    assert [document.extra for _, _, document in draft.documents()] == [
        {"page": "a.md#page=1", "heading_path": ""},
        {"page": "a.md#page=2", "heading_path": ""},
    ]
    assert triples(draft) == [("title", "Cats", FIRST)]
    groups, _ = draft.together()
    assert len(set(groups.tolist())) == 2


def test_a_heading_that_goes_on_over_pages_of_a_pdf_finds_its_first_documents() -> None:
    parts = [
        Section(("Life",), [Block(text)], f"page={number}", continues=number > 1)
        for number, text in enumerate((FIRST, SECOND, THIRD, FOURTH), start=1)
    ]
    draft = made(Page("Cats", "", [*parts, Section(("Death",), [Block(FIRST[::-1])], "page=4")]), pairs="heading")
    assert triples(draft) == [
        ("heading", "Cats: Life", FIRST),
        ("heading", "Cats: Life", SECOND),
        ("heading", "Cats: Life", THIRD),
        ("heading", "Cats: Death", FIRST[::-1]),
    ]
    assert draft.dropped == {"pair of a heading beyond its first 3 documents": 1}
    assert [document.extra["page"] for _, _, document in draft.documents()][2] == "a.md#page=3"


def test_self_gives_a_text_twice() -> None:
    class Any(Draft):
        """A draft that lets a query be its document."""

        def add_weak_pair(self, query: str, document: str, source: str, *_: object, **__: object) -> None:
            said.append((source, query, self.document(document).text))

    said: list[tuple[str, str, str]] = []
    add_page("a.md", page(("", FIRST), ("Life", SECOND)), Any(), PageOptions(pairs="self"))
    assert said == [("self", FIRST, FIRST), ("self", SECOND, SECOND)]


def test_what_is_no_document_is_counted() -> None:
    kinds = {
        "Short": "See details.",
        "Empty": "",
        "Numbers": "17288409, 17798953, 18273830, 18607546\n17811429, 17205719, 20506699, 17816865",
        "List": "This thing has the following parts:",
        "Key": "MIIDIjCCAougAwIBAgIJAKnL4UEDMN/gMA0GCSqGSIb3DQEBBQUAMGoxCzAJBgNV",
        "Copy": f"Copy\n\n{FIRST}",
    }
    draft = made(page(*kinds.items()))
    assert triples(draft) == [("title", "Cats", FIRST), ("heading", "Cats: Copy", FIRST)]
    assert draft.dropped == {
        "section under 20 characters": 1,
        "heading without a text": 1,
        "document without words": 2,
        "line that announces what is not there": 1,
    }


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("Cats purr loudly.", True),
        ('{"a": 1, "b": "two", "c": null}', True),  # "two" in quotes, a, b, c
        ('"awsRegion":"us-east-1","eventSource":"aws:s3"', False),
        ("GET /2018-10-31/layers/Name HTTP/1.1", False),
        ("import a\nfrom b import c", True),
        ("cat cat cat cat", False),
        ("猫は一日中寝ているのが好きです。", True),
        ("Кошка спит весь день.", True),
        ("", False),
    ],
)
def test_words(text: str, has: bool) -> None:
    assert has_words(text) is has


@pytest.mark.parametrize(
    "heading",
    [
        "What is a cat",
        "How do I install it?",
        "How to install a module",
        "Which regions are supported",
        "Can I use my own key",
        "Why does it fail",
        "When should I use AWS Lambda?",
        "Wie kann ich kündigen",
        "Was bedeutet der Fehler",
        "Kann ich den Vertrag ändern",
        "Comment changer la langue",
        "Est-ce que le service est gratuit",
        "Quelle est la durée",
        "¿Cómo instalo el programa?",
        "Cómo instalar el programa",
        "Por qué falla",
        "これは何ですか？",
    ],
)
def test_questions(heading: str) -> None:
    assert question(heading) == heading


@pytest.mark.parametrize(
    "heading",
    [
        "How it works",
        "When to use",
        "What's new",
        "Why?",
        "Installation",
        "Can opener",
        "Wie immer",
        "Como instalar",
        "Was zu tun ist",
        "",
    ],
)
def test_no_questions(heading: str) -> None:
    assert question(heading) == ""


@pytest.mark.parametrize("numbering", ["Q: ", "Q3. ", "1. ", "2.1 ", "Frage 4: "])
def test_the_number_of_a_question_is_no_part_of_it(numbering: str) -> None:
    assert question(f"{numbering}What is a cat?") == "What is a cat?"
    assert question("3 cats or what is it?") == "cats or what is it?"  # a number may go that should stay


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"pairs": "title,body"},
            r"--pairs title,body: name each of these at most once and one at least: title, ",
        ),
        ({"pairs": ""}, r"--pairs : name each of these"),
        ({"pairs": "title,title"}, r"--pairs title,title: name each"),
        ({"code": "no"}, r"--code no: keep and drop are the choices"),
        ({"chunk_tokens": -1}, r"--chunk-tokens -1: give a number of tokens, or 0 to keep sections whole"),
        ({"chunk_overlap": 129}, r"--chunk-overlap 129: give 0 to 128, half of --chunk-tokens"),
        ({"chunk_tokens": 0, "chunk_overlap": 1}, r"--chunk-overlap 1: give 0 to 0"),
    ],
)
def test_options_that_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(PageOptions(**options))  # type: ignore[arg-type]


def test_all_pairs_can_be_named() -> None:
    assert check(PageOptions(pairs=" , ".join(PAIRS))) == PAIRS
    assert check(PageOptions()) == ("title", "description", "heading", "faq")


def write_pages(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.md").write_text(f"# Cats\n\n{FIRST}\n\n```\nint main\n```\n")
    (folder / "b.html").write_text(f"<title>Dogs</title><p>{SECOND}<nav>x</nav>")
    (folder / "c.rst").write_text(f"Cows\n====\n\n{THIRD}\n")
    (folder / "d.txt").write_text(f"Hens\n\n{FOURTH}\n")
    return folder


def test_all_formats_of_a_folder(tmp_path: Path) -> None:
    draft = Draft()
    page_pairs.read(write_pages(tmp_path / "docs"), PageOptions(code="drop"), draft, silent)
    assert triples(draft) == [
        ("title", "Cats", FIRST),
        ("title", "Dogs", SECOND),
        ("title", "Cows", THIRD),
        ("title", "Hens", FOURTH),
    ]
    assert draft.dropped == {"code block": 1, "html nav": 1}
    alone = Draft()
    page_pairs.read(tmp_path / "docs", PageOptions(), alone, silent, "rst")
    assert triples(alone) == [("title", "Cows", THIRD)]
    (tmp_path / "docs" / "e.md").write_bytes(b"\xff")
    with pytest.raises(EmbedtrainError, match=r"docs: page e\.md is not UTF-8 text; convert it to UTF-8$"):
        page_pairs.read(tmp_path / "docs", PageOptions(), Draft(), silent)


def test_pages_of_two_sources_may_have_one_name(tmp_path: Path) -> None:
    for name, first, second in (("one", FIRST, SECOND), ("two", THIRD, FOURTH), ("three", FIRST, SECOND)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text(f"# {name}\n\n{first}\n\n## Life\n\n{second}")

    def read(*names: str) -> tuple[Draft, int]:
        draft = Draft()
        for name in names:
            page_pairs.read(tmp_path / name, PageOptions(), draft, silent)
        return draft, len(set(components(draft, draft.pairs())[1].tolist()))

    draft, groups = read("one", "two")
    assert (groups, len(set(draft.together()[0].tolist()))) == (2, 2)
    assert {document.extra["page"] for _, _, document in draft.documents()} == {"a.md"}
    # What is really the same page is one all the same, by its texts.
    assert read("one", "three")[1] == 1


def test_a_killed_run_goes_on_and_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = write_pages(tmp_path / "docs")
    whole = Draft()
    page_pairs.read(docs, PageOptions(), whole, silent)
    monkeypatch.setattr("embedtrain.harvest.ledger._LOOK", 1)
    monkeypatch.setattr("embedtrain.harvest.ledger._SECONDS", -1.0)
    seen: list[str] = []
    real = page_pairs.parse

    def dies(source: Path, name: str, content: bytes, dropped: Counter[str]) -> Page:
        seen.append(name)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return real(source, name, content, dropped)

    monkeypatch.setattr(page_pairs, "parse", dies)
    killed = Draft(tmp_path / "draft.sqlite")
    with pytest.raises(KeyboardInterrupt):
        page_pairs.read(docs, PageOptions(), killed, silent)
    killed.leave()
    again = Draft(tmp_path / "draft.sqlite")
    page_pairs.read(docs, PageOptions(), again, silent)
    assert seen == ["a.md", "b.html", "c.rst", "c.rst", "d.txt"]
    assert triples(again) == triples(whole)
    assert (again.dropped, again.notes) == (whole.dropped, whole.notes)


def test_a_guide_gives_the_same_pairs_each_time() -> None:
    if not SHARED.is_dir():
        pytest.skip("the guides are not on this machine")
    source = SHARED / "aws-docs" / "markdown" / "aws-transit-gateway-guide.tar.gz"
    hashes = set()
    for _ in range(2):
        draft = Draft()
        page_pairs.read(source, PageOptions(chunk_overlap=32), draft, silent)
        found = triples(draft)
        hashes.add(hashlib.sha256(json.dumps(found).encode()).hexdigest())
    assert len(hashes) == 1
    assert len(found) > 100
    for _, query, text in found:
        assert text.splitlines()[0].casefold().rstrip(".:") != query.casefold()
