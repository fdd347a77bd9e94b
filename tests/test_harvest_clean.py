"""Cleaning: what is mended loses no word, what leaves has a reason, what recurs says nothing.

Deliberate breaks that turn a test red: joiners taken out with the other unseen signs; a control character removed in the
place of becoming a blank; accents decomposed; mending without being asked; a query of links kept; the first line of a text
of one line counted as its first line; a line of code taken out as boilerplate; lines counted in documents of one line.
"""

import dataclasses
from collections import Counter

import pytest
from harvested import documents, pairs, queries
from hypothesis import given
from hypothesis import strategies as st

from embedtrain.config import HarvestOptions
from embedtrain.console import silent
from embedtrain.errors import UsageError
from embedtrain.harvest.boilerplate import recurring, take_out
from embedtrain.harvest.clean import MOJIBAKE, Cleaner, copies_first_line
from embedtrain.harvest.draft import Document, Draft


def cleaner(**options: object) -> Cleaner:
    return Cleaner(dataclasses.replace(HarvestOptions(), **options), lambda text: len(text.split()))


@pytest.mark.parametrize(
    ("text", "clean", "changed"),
    [
        ("plain, ready", "plain, ready", {}),
        ("a\u200bb \ufeffc\u00ad", "ab c", {"unseen signs taken out": 1}),
        # Persian "I want" and a family of emoji are written with joiners.
        ("می\u200cخواهم 👩\u200d👧", "می\u200cخواهم 👩\u200d👧", {}),
        ("a\x00b\x07\tc\n", "a b \tc\n", {"control characters made blanks": 1}),
        ("a\x85b\u2028c\r\nd", "a\x85b\u2028c\r\nd", {}),
        ("cafe\u0301", "caf\u00e9", {"accents composed (NFC)": 1}),
        ("it\u00e2\u20ac\u2122s", "it\u00e2\u20ac\u2122s", {MOJIBAKE: 1}),
        ("naïve, 5 €, Grüße", "naïve, 5 €, Grüße", {}),
    ],
)
def test_texts_are_tidied(text: str, clean: str, changed: dict[str, int]) -> None:
    counted: Counter[str] = Counter()
    assert cleaner().tidied(text, counted) == clean
    assert counted == changed
    assert cleaner().tidied(clean, Counter()) == clean


def test_a_wrong_encoding_is_mended_when_asked() -> None:
    counted: Counter[str] = Counter()
    assert cleaner(mend_encoding=True).tidied("it\u00e2\u20ac\u2122s", counted) == "it\u2019s"
    assert counted == {f"mended: {MOJIBAKE}": 1}


@given(st.text())
def test_tidying_twice_changes_nothing_and_keeps_the_letters(text: str) -> None:
    once = cleaner().tidied(text, Counter())
    assert cleaner().tidied(once, Counter()) == once
    letters = [sign for sign in text if sign.isascii() and sign.isalnum()]
    # Composing joins a letter with its accent; nothing else may lose one.
    assert len(letters) >= len([sign for sign in once if sign.isascii() and sign.isalnum()])
    if text.isascii():
        assert letters == [sign for sign in once if sign.isalnum()]


GERMAN = "Das ist ein Satz, der mit vielen Wörtern zeigt, dass er nicht auf Englisch ist und auch nicht sein will."
ENGLISH = (
    "This is one of the sentences that show with all of their words that they are in English and not in German."
)


@pytest.mark.parametrize(
    ("noun", "text", "options", "reason"),
    [
        ("query", "ok", {}, ""),
        ("query", " \u200b", {}, "empty query"),
        ("document", "", {}, "empty document"),
        ("query", "https://example.org/a?b=1  www.example.com", {}, "query of links or signs only"),
        ("document", "!!! ---", {}, "document of links or signs only"),
        ("query", "WWW.Example.com", {}, "query of links or signs only"),
        ("query", "ask@example.org", {}, "query of links or signs only"),
        ("query", "see https://example.org", {}, ""),
        ("query", "ab", {"min_query_characters": 3}, "query under 3 characters"),
        ("document", "a  b", {"min_document_characters": 4}, "document under 4 characters"),
        ("query", "one two three", {"max_query_tokens": 2}, "query over 2 tokens"),
        ("document", "one two three", {"max_document_tokens": 3}, ""),
        ("document", GERMAN, {"only_language": "english"}, "document in another language"),
        ("document", GERMAN, {"only_language": "german"}, ""),
        ("document", ENGLISH, {"only_language": "english"}, ""),
        ("document", "error 0x80070057", {"only_language": "english"}, ""),  # shows no language clearly
    ],
)
def test_reasons_to_leave(noun: str, text: str, options: dict[str, object], reason: str) -> None:
    assert cleaner(**options).against(noun, text) == reason


def test_a_language_that_is_none() -> None:
    with pytest.raises(UsageError, match="--only-language klingon: the languages are "):
        cleaner(only_language="klingon")


@pytest.mark.parametrize(
    ("query", "text", "copied"),
    [
        ("Reset a password", "Reset a password\nOpen the settings.", True),
        ("reset  a password!", "How to reset a password:\nOpen the settings.", True),
        # One of nine words: the line takes the words up, it is no copy of them.
        ("password", "Open the settings and choose a new password there\nThen save.", False),
        ("a", "b a c\nd", True),  # one of three
        ("a", "b a c d\ne", False),
        ("Reset a password", "Reset a password", False),  # no further line
        ("Reset a password", "Reset a password\n \u200b\n", False),
        ("set a password", "reset a password\nx", False),  # words, not letters
        ("...", "...\nx", False),
    ],
)
def test_a_query_that_stands_in_the_first_line(query: str, text: str, copied: bool) -> None:
    assert copies_first_line(query, text) is copied


def test_the_draft_cleans_what_comes_without_judgements() -> None:
    draft = Draft(keep_dropped=True)
    draft.cleaner = cleaner(min_document_characters=3)
    kept = draft.add_weak_document("", "a\u200b document", {})
    assert draft.add_weak_document("", "no", {}) == ""
    for query, document in [("q\x07 1", kept), ("www.example.org", kept), ("q 2", "")]:
        draft.add_weak_pair(query, document, "table")
    two = draft.add_weak_document("", "Title\nand more", {})
    draft.add_weak_pair("title", two, "table")
    draft.add_document("own", Document("", "a\u200b", {}))  # as it is: it was judged as it is
    assert pairs(draft) == [("q  1", "a document")]
    assert draft.dropped == {
        "document under 3 characters": 1,
        "query of links or signs only": 1,
        "query stands in the first line of its document": 1,
    }
    assert draft.changed == {"unseen signs taken out": 1, "control characters made blanks": 1}
    assert documents(draft)["own"].text == "a\u200b"
    rows = list(draft.dropped_rows())
    assert rows[0] == '{"reason": "document under 3 characters", "title": "", "text": "no", "page": ""}'
    assert len(rows) == 3


# -- lines that recur ----------------------------------------------------------------------------------------------

FOOTER = "All rights reserved by the makers of this site."
CODE = 'result = client.describe_instances(Filters=["a"])'


def site(count: int) -> Draft:
    draft = Draft()
    for n in range(count):
        text = f"Text of page {n}, which is its own.\n{CODE}\n{FOOTER}" if n % 2 else f"Text of page {n}.\nMore."
        draft.add_weak_pair(f"query {n}", draft.add_weak_document("", text, {}), "heading")
    draft.add_weak_pair("footer", draft.add_weak_document("", f"{FOOTER}\n{FOOTER.upper()}", {}), "heading")
    return draft


def test_lines_that_recur_are_taken_out_and_told() -> None:
    draft = site(40)
    # It stands in 20 of 40 pages and in one document of nothing else: 21 of 41.
    assert recurring(draft, 0.5, 0) == {FOOTER.casefold(): 21}
    assert recurring(draft, 0.6, 0) == {}
    take_out(draft, 0.5, 0, silent)
    texts = [text for _, text in pairs(draft)]
    assert texts[1] == f"Text of page 1, which is its own.\n{CODE}"  # code recurs because it is needed
    assert texts[0] == "Text of page 0.\nMore."
    assert len(texts) == 40
    assert draft.dropped == {"document of recurring lines only": 1, "pair with a document that was left out": 1}
    assert "footer" not in [query.text for query in queries(draft).values()]
    assert draft.notes == [
        "22 lines that recur across documents were taken out: 'all rights reserved by the makers of this site.' in 21"
    ]
    # Its id is that of the text it has now.
    again = Draft()
    again.add_weak_document("", texts[1], {})
    assert set(documents(again)) < set(documents(draft))


def test_few_documents_have_no_boilerplate() -> None:
    draft = site(18)  # 9 pages and one document: 10 of 19
    take_out(draft, 0.01, 0, silent)
    assert draft.dropped["document of recurring lines only"] == 1
    draft = site(16)
    take_out(draft, 0.01, 0, silent)
    assert not draft.dropped


def test_texts_that_become_one() -> None:
    draft = site(40)
    for n in range(2):
        draft.add_weak_pair(
            f"again {n}", draft.add_weak_document("", f"The same text.\n{FOOTER}"[: None if n else 14], {}), "x"
        )
    before = len(documents(draft))
    take_out(draft, 0.5, 0, silent)
    assert [query for query, text in pairs(draft) if text == "The same text."] == ["again 0", "again 1"]
    assert len(documents(draft)) == before - 2
    assert draft.dropped == {
        "document of recurring lines only": 1,
        "pair with a document that was left out": 1,
        "repeated document": 1,
    }
