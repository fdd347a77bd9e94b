"""Plain text and PDF: paragraphs, titles that are told from texts, pages without their running lines.

Deliberate breaks that turn a test red: a title that is a sentence, or all there is; taking off a line that recurs twice,
or in the middle of a page; reading an encrypted file as empty; a page number that counts from 0; hyphens of line ends
kept; a broken file that is skipped; a bookmark's heading left in its text; a circle of bookmarks followed for ever.
"""

import io
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.documents import pdf, text
from embedtrain.harvest.documents.pages import parse


@pytest.mark.parametrize(
    ("source", "title", "paragraphs"),
    [
        ("Title\n\nOne\nline.\n\n \n\nTwo.", "Title", ["One\nline.", "Two."]),
        ("Title\n=====\n\nOne.", "Title", ["One."]),
        ("A sentence.\n\nOne.", "", ["A sentence.", "One."]),
        ("Two\nlines\n\nOne.", "", ["Two\nlines", "One."]),
        ("Alone", "", ["Alone"]),
        ("x" * 101 + "\n\nOne.", "", ["x" * 101, "One."]),
        ("x" * 100 + "\n\nOne.", "x" * 100, ["One."]),
        ("How so?\r\n\r\nOne.\f\fTwo.", "How so?", ["One.", "Two."]),
        ("One.\n\n-----\n\nTwo.", "", ["One.", "Two."]),
        ("  indented\n\nOne.", "indented", ["One."]),
        ("", "", []),
    ],
)
def test_paragraphs_and_titles(source: str, title: str, paragraphs: list[str]) -> None:
    page = text.parse(source, Counter())
    assert page.title == title
    assert [block.text for section in page.sections for block in section.blocks] == paragraphs


@given(st.text("ab. \n\t", max_size=60))
@settings(max_examples=200, deadline=None)
def test_no_word_is_lost(source: str) -> None:
    page = text.parse(source, Counter())
    assert "".join((page.title + "".join(section.text for section in page.sections)).split()) == "".join(
        source.split()
    )


Marked = tuple[str, int, int | None]  # words of a bookmark, its page from 0, the bookmark that it is below


def document(
    *pages: str,
    title: str = "",
    password: str = "",
    bookmarks: Sequence[Marked] = (),
    spoil: Callable[[list[Any]], None] = lambda entries: None,
) -> bytes:
    """A PDF of one font, each line of a page under the one before; `spoil` may change the entries of its outline."""
    from pypdf import PdfWriter
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for words in pages:
        page = writer.add_blank_page(595, 842)
        stream = DecodedStreamObject()
        lines = "".join(f"({line}) Tj 0 -14 Td\n" for line in words.split("\n")) if words else ""
        stream.set_data(f"BT /F1 12 Tf 72 770 Td\n{lines}ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    entries: list[Any] = []
    for words, number, above in bookmarks:
        entries.append(
            writer.add_outline_item(
                title=words, page_number=number, parent=None if above is None else entries[above]
            )
        )
    spoil([entry.get_object() for entry in entries])
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt("" if password == "owner" else password, password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def test_a_pdf_by_hand() -> None:
    parts = ("Cats", "Dogs", "Cows", "Hens")
    bodies = [f"{name} tell how to lay\nout their docu-\nment, as {name} do." for name in parts]
    pages = [f"The Manual\n{body}\nPage {number} of 4" for number, body in enumerate(bodies, start=1)]
    pages[2] = ""
    dropped: Counter[str] = Counter()
    page = pdf.parse(document(*pages, title="The Manual"), dropped)
    assert page.title == "The Manual"
    assert [(section.headings, section.place, section.text) for section in page.sections] == [
        ((), f"page={number}", f"{name} tell how to lay\nout their document, as {name} do.")
        for number, name in ((1, "Cats"), (2, "Dogs"), (4, "Hens"))
    ]
    assert dropped == {"PDF page without a text": 1, "running line of a PDF page": 6}


def test_bookmarks_are_headings() -> None:
    pages = (
        "A preface stands here.\n1. Cats of\nthe house\nCats eat.\n1.1  Food\nThey like fish.",
        "And they like milk.",
        "They like meat.\nA history\n",
        "No heading is here.\n2 Dogs\nDogs run.\nThe end",
    )
    marked: list[Marked] = [
        ("Cats of the house", 0, None),
        ("Food", 0, 0),
        ("A history", 2, None),
        ("Early days", 3, 2),
        ("Dogs", 3, None),
        ("Page 4", 3, None),
        ("4", 3, None),
        ("The end", 3, None),
    ]
    dropped: Counter[str] = Counter()
    page = pdf.parse(document(*pages, title="Animals", bookmarks=marked), dropped)
    food = ("Cats of the house", "Food")
    assert [
        (found.place, found.headings, found.text, found.continues, found.anchors) for found in page.sections
    ] == [
        ("page=1", (), "A preface stands here.", False, ("page=1",)),
        ("page=1", food[:1], "Cats eat.", False, ()),
        ("page=1", food, "They like fish.", False, ()),
        ("page=2", food, "And they like milk.", True, ("page=2",)),
        ("page=3", food, "They like meat.", True, ("page=3",)),
        ("", ("A history",), "", False, ()),
        ("page=4", ("A history", "Early days"), "No heading is here.", False, ("page=4",)),
        ("page=4", ("Dogs",), "Dogs run.", False, ()),
        ("", ("The end",), "", False, ()),
    ]
    assert dropped == {"PDF bookmark without words": 2, "PDF bookmark whose words are not on its page": 1}


def test_a_heading_and_its_bookmark_may_be_numbered_or_not() -> None:
    for line, words in (
        ("2.1 ASN.1 syntax", "ASN.1 syntax"),
        ("A guide", "2.1 A guide"),
        ("Chapter 2  Cats", "Cats"),
        ("CATS", "IV. Cats"),
    ):
        marked: list[Marked] = [(words, 0, None)]
        page = pdf.parse(document(f"Before.\n{line}\nAfter.", bookmarks=marked), Counter())
        assert [(found.headings, found.text) for found in page.sections] == [((), "Before."), ((words,), "After.")]


def test_bookmarks_that_cannot_be_used_do_not_stop_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    from pypdf.generic import ArrayObject, NameObject, NullObject, NumberObject

    def circle(entries: list[Any]) -> None:
        entries[1][NameObject("/Next")] = entries[0].indirect_reference

    def own_child(entries: list[Any]) -> None:
        entries[1][NameObject("/First")] = entries[0].indirect_reference

    def nowhere(entries: list[Any]) -> None:
        for name in ("/A", "/Dest"):
            entries[1].pop(name, None)

    def broken(entries: list[Any]) -> None:
        entries[1][NameObject("/Next")] = NumberObject(7)

    def gone(entries: list[Any]) -> None:
        for name in ("/A", "/Dest"):
            entries[1].pop(name, None)
        entries[1][NameObject("/Dest")] = ArrayObject([NullObject(), NameObject("/Fit")])

    marked: list[Marked] = [("Cats", 0, None), ("Dogs", 0, None)]
    for spoil, reason, headings in (
        (circle, "bookmarks of a PDF that lead in a circle", [()]),
        (own_child, "bookmarks of a PDF that lead in a circle", [()]),
        (broken, "bookmarks of a PDF that cannot be read", [()]),
        (nowhere, "PDF bookmark that leads to no page", [("Cats",)]),
        (gone, "PDF bookmark that leads to no page", [("Cats",)]),
    ):
        dropped: Counter[str] = Counter()
        page = pdf.parse(document("Cats\nCats eat. Dogs run.", bookmarks=marked, spoil=spoil), dropped)
        assert [found.headings for found in page.sections] == headings
        assert dropped == {reason: 1}
    assert capfd.readouterr() == ("", "")


def test_running_lines_by_hand() -> None:
    dropped: Counter[str] = Counter()
    head = ["Head\nOne\nstays", "Head\nTwo\nstays", "Three\nHead\nx\ny\nz\nw\nv"]
    # Three of three pages have "Head" among their outer lines; on the last it stands under a line that stays.
    assert pdf.without_running_lines(head, dropped) == ["One\nstays", "Two\nstays", "Three\nHead\nx\ny\nz\nw\nv"]
    assert dropped == {"running line of a PDF page": 2}
    twice = ["Head\nOne", "Head\nTwo"]
    assert pdf.without_running_lines(twice, dropped) == twice  # two pages show nothing
    inside = [f"a{n}b\nc{n}d\ne{n}f\nSame\ng{n}h\ni{n}j\nk{n}l".replace(str(n), "xyz"[n]) for n in range(3)]
    assert pdf.without_running_lines(inside, dropped) == inside


def test_what_cannot_be_read_is_counted_or_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    dropped: Counter[str] = Counter()
    assert pdf.parse(document("A secret.", password="key"), dropped).sections == []
    assert pdf.parse(document("", "", title="Scan"), dropped).sections == []
    # With no password to read it, anyone may.
    assert pdf.parse(document("A text.", password="owner"), dropped).sections[0].text == "A text."
    assert dropped == {"encrypted PDF": 1, "PDF without a text (scanned?)": 1}
    whole = document("A text.")
    for content in (b"", b"%PDF-1.4 no more", whole[: len(whole) // 3], b"text"):
        with pytest.raises(
            EmbedtrainError, match=r"^docs: page a\.pdf is no whole PDF \(.+\); make it again or take it out$"
        ):
            parse(Path("docs"), "a.pdf", content, Counter())
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(
        EmbedtrainError, match=r"page a\.pdf needs pypdf to be read; run: pip install embedtrain\[pdf\]$"
    ):
        parse(Path("docs"), "a.pdf", whole, Counter())
    assert capfd.readouterr() == ("", "")


def test_text_that_is_not_utf_8_is_an_error() -> None:
    assert parse(Path("d"), "a.txt", "\ufeffcafé".encode(), Counter()).sections[0].text == "café"
    for name in ("a.txt", "a.rst"):
        with pytest.raises(EmbedtrainError, match=rf"^d: page {name} is not UTF-8 text; convert it to UTF-8$"):
            parse(Path("d"), name, b"caf\xe9", Counter())
