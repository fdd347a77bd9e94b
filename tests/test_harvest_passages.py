"""Cutting: no document over the budget, nothing lost between two, and each ends where a reader would end it.

Deliberate breaks that turn a test red: counting one token too many in a text; dropping the last piece; cutting a line of
code; an overlap that repeats half a sentence, or code; ending under a line that announces a list; leaving a rest of one
line; joining sections under two headings, or right under the page; joining past the budget; a table's rows without their
header; an estimate by words alone.
"""

import importlib.util
import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import SHARED
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embedtrain.harvest.documents import markdown, passages
from embedtrain.harvest.documents.page import Block, Page, Section
from embedtrain.harvest.documents.pages import Pages
from embedtrain.harvest.documents.passages import (
    Chunk,
    cut_page,
    estimate_tokens,
    join_short,
    sentences,
    without_code,
)
from embedtrain.models import PACKAGED


def words(text: str) -> int:
    return len(text.split())


def cut(blocks: Sequence[Block], budget: int, overlap: int, count: Callable[[str], int]) -> list[str]:
    return [found.text for found in passages.cut(blocks, budget, overlap, count)]


def squeezed(texts: list[str]) -> str:
    return "".join("".join(texts).split())


WORD = st.text("ab", min_size=2, max_size=4)  # one letter and a full stop are an initial
SENTENCE = st.builds(
    lambda found, end: " ".join(found).capitalize() + end,
    st.lists(WORD, min_size=1, max_size=9),
    st.sampled_from(".:?"),
)
PROSE = st.builds(
    lambda found, gap: gap.join(found), st.lists(SENTENCE, min_size=1, max_size=5), st.sampled_from([" ", "\n"])
)
CODE = st.lists(st.sampled_from(["if x:", "    y = f(1, 2)", "", "z"]), min_size=1, max_size=6).map(
    lambda found: "\n".join([*found, "end"])
)
BLOCK = st.one_of(
    st.builds(Block, PROSE, tight=st.booleans(), item=st.booleans()),
    st.builds(Block, CODE, code=st.just(True), tight=st.booleans()),
)


@given(st.lists(BLOCK, max_size=8), st.integers(1, 20))
@settings(max_examples=300, deadline=None)
@example([Block("Aa aa. Bb bb bb."), Block("Cc:"), Block("Dd dd.", tight=True)], 4)
def test_nothing_is_lost_and_nothing_is_too_long(blocks: list[Block], budget: int) -> None:
    texts = cut(blocks, budget, 0, words)
    assert squeezed(texts) == squeezed([block.text for block in blocks])
    lines = {line.strip() for block in blocks if block.code for line in block.text.split("\n")}
    for text in texts:
        assert words(text) <= budget or text in lines
        assert text == text.strip() != ""
    # A line of code is never cut: each stands whole in one of the texts.
    whole = {line.strip() for text in texts for line in text.split("\n")}
    assert lines - {""} <= whole


STOPPED = st.builds(lambda found: " ".join(found).capitalize() + ".", st.lists(WORD, min_size=1, max_size=9))
PARAGRAPH = st.lists(STOPPED, min_size=1, max_size=5).map(" ".join)


@given(st.lists(st.builds(Block, PARAGRAPH), min_size=1, max_size=6), st.integers(10, 24), st.integers(1, 8))
@settings(max_examples=200, deadline=None)
@example([Block("Aa aa aa aa aa. Aa."), Block("Aa. Aa. Aa. Aa. Aa."), Block("Aa. Aa aa aa aa.")], 10, 1)
def test_an_overlap_is_whole_sentences_of_the_text_before(blocks: list[Block], budget: int, overlap: int) -> None:
    # Each sentence gets a number: of equal ones none can say which was repeated.
    number = itertools.count()
    blocks = [Block(re.sub("[A-Z]", lambda begin: f"{begin[0]}{next(number)}", block.text)) for block in blocks]
    plain, texts = cut(blocks, budget, 0, words), cut(blocks, budget, overlap, words)
    assert texts[0] == plain[0]
    assert all(words(text) <= budget for text in texts)
    everything = [sentence for block in blocks for _, sentence in sentences(block.text)]
    place = 0  # of the first sentence that no text had yet
    for before, text in zip([None, *texts], texts, strict=False):
        found = [sentence for part in text.split("\n\n") for _, sentence in sentences(part)]
        repeated = 0
        while found[repeated:] != everything[place : place + len(found) - repeated]:
            repeated += 1
            assert before is not None
            assert repeated < len(found)
        said = found[:repeated]
        assert sum(map(words, said)) <= overlap
        assert said == everything[place - repeated : place]
        place += len(found) - repeated
    assert place == len(everything)


@given(st.lists(BLOCK, min_size=1, max_size=5), st.integers(2, 12))
@settings(max_examples=100, deadline=None)
def test_a_count_that_is_no_sum_is_kept_to(blocks: list[Block], budget: int) -> None:
    def count(text: str) -> int:  # each text costs two more, each line end one: as of a tokenizer with line ends
        return words(text) + text.count("\n") + 2

    for text in cut(blocks, budget + 4, 0, count):
        assert count(text) <= budget + 4 or len(text.split("\n")) == 1


def test_cuts_by_hand() -> None:
    # 12 words in a budget of 8: the paragraph's end after 6 words is past the half, the sentence's end after 8 fits
    # too, and a paragraph ends more than a sentence.
    first, second = "Aa bb cc dd ee ff.", "Gg hh. Ii jj kk ll."
    assert cut([Block(first), Block(second)], 8, 0, words) == [first, second]
    # The paragraph's end after 2 words of 8 is too early: the second paragraph is cut at its sentence.
    early = [Block("Aa bb."), Block("Cc dd ee. Ff gg hh ii jj kk.")]
    assert cut(early, 8, 0, words) == ["Aa bb.\n\nCc dd ee.", "Ff gg hh ii jj kk."]
    # No text ends under a line that announces a list, nor under its label: 8 words would fit in 10, and 6 are taken.
    steps = [Block("- One two three.", item=True), Block("- Four five six.", item=True, tight=True)]
    for label in ("Do this:", "Doing this"):
        assert cut([Block("Aa bb cc dd. Ee ff."), Block(label), *steps], 10, 0, words) == [
            "Aa bb cc dd. Ee ff.",
            f"{label}\n\n- One two three.\n- Four five six.",
        ]
    # 17 words in a budget of 16, where a rest of one word is under 16 / 8 = 2: it is not left alone.
    eight, rest = "Aa bb cc dd ee ff gg hh.", "Ii jj kk ll mm nn oo xx."
    assert cut([Block(f"{eight} {rest} Qq.")], 16, 0, words) == [eight, f"{rest} Qq."]
    # Words are cut where nothing else can be, and one that is too long stays.
    assert cut([Block("a b c d e")], 2, 0, words) == ["a b", "c d", "e"]
    assert cut([Block("aaaa bb")], 2, 0, len) == ["aaaa", "bb"]
    assert cut([Block("x = 1, 2, 3, 4", code=True)], 3, 0, words) == ["x = 1, 2, 3, 4"]
    assert cut([], 3, 0, words) == []


def test_an_overlap_by_hand() -> None:
    blocks = [Block("Aa bb cc. Dd ee. Ff gg hh."), Block("Ii jj kk. Ll mm.")]
    first, last = "Aa bb cc. Dd ee. Ff gg hh.", "Ii jj kk. Ll mm."
    # The first has 8 words. Of its end, 3 words are a sentence, 5 are two, 8 all of it.
    assert cut(blocks, 9, 2, words) == [first, last]
    assert cut(blocks, 9, 3, words) == cut(blocks, 9, 4, words) == [first, f"Ff gg hh.\n\n{last}"]
    # Two sentences and the first new one are 8 words, and "Ll mm." has room no more: it has a text of its own.
    assert cut(blocks, 9, 5, words)[1:] == ["Dd ee. Ff gg hh.\n\nIi jj kk.", "Ii jj kk. Ll mm."]
    # Room for a new sentence comes first: 5 + 3 words are too many for 7, 3 + 3 are not.
    assert cut(blocks, 7, 5, words)[1] == "Dd ee. Ff gg hh."
    code = [Block("Aa bb cc dd."), Block("e f", code=True), Block("Gg hh ii jj.")]
    assert cut(code, 6, 5, words) == ["Aa bb cc dd.\n\ne f", "Gg hh ii jj."]  # code is not repeated
    assert cut([Block("Aa bb cc dd ee ff")], 4, 2, words) == ["Aa bb cc dd", "ee ff"]  # nor words of a sentence


def test_rows_stand_under_the_header_of_their_table() -> None:
    rows = [Block(f"row {n} | is {n}", tight=True, head="a | b") for n in range(4)]
    texts = cut([Block("a | b"), *rows], 14, 0, words)
    # A header has 3 words, a row 5: two rows under it are 13.
    assert texts == ["a | b\nrow 0 | is 0\nrow 1 | is 1", "a | b\nrow 2 | is 2\nrow 3 | is 3"]
    # A header of more than a quarter of the budget is not said again.
    texts = cut([Block("a | b"), *rows], 10, 0, words)
    assert texts == ["a | b\nrow 0 | is 0", "row 1 | is 1\nrow 2 | is 2", "row 3 | is 3"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("See e.g. Smith et al. 2019, p. 3. Then go.", ["See e.g. Smith et al. 2019, p. 3.", "Then go."]),
        ("Version 1.2.3 is out. It runs.", ["Version 1.2.3 is out.", "It runs."]),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("1. Choose it. 2. Save it.", ["1. Choose it.", "2. Save it."]),
        ("Das ist z. B. Holz. Gut so.", ["Das ist z. B. Holz.", "Gut so."]),
        ("the U.S. economy. next", ["the U.S. economy. next"]),
        ("これは本です。これも。", ["これは本です。", "これも。"]),
        ("One.\nTwo.\n\nThree.  ", ["One.", "Two.", "Three."]),
        ("wait... what? Yes.", ["wait... what?", "Yes."]),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert [sentence for _, sentence in sentences(text)] == expected


@given(st.text('aB .!?\n1。"', max_size=40))
@settings(max_examples=300, deadline=None)
def test_sentences_are_the_text(text: str) -> None:
    found = sentences(text)
    assert "".join(gap + sentence for gap, sentence in found) == text.rstrip()
    assert all(sentence.strip() == sentence != "" and not gap.strip() for gap, sentence in found)


def section(path: str, text: str = "") -> Section:
    return Section(tuple(filter(None, path.split("/"))), [Block(text)] if text else [])


def joined(*sections: Section, budget: int = 80) -> list[tuple[str, str]]:
    """(path, text); of 80 words, a section under 10 is short"""
    found = join_short(sections, budget, words, lambda section: section.headings[-1:] == ("Why?",))
    return [("/".join(section.headings), section.text) for section in found]


def test_short_neighbours_under_one_heading_are_joined() -> None:
    long = " ".join(["long"] * 10)
    assert joined(section("A/B", "b"), section("A/C", "c")) == [("A", "B\n\nb\n\nC\n\nc")]
    assert joined(section("A", "a"), section("A/C", "c"), section("A/D", "d")) == [("A", "a\n\nC\n\nc\n\nD\n\nd")]
    apart: list[list[Section]] = [
        [section("A", "a"), section("B", "b")],  # right under the page
        [section("", "a"), section("B", "b")],
        [section("A/B", "b"), section("C/D", "d")],  # two parents
        [section("A/B", "b"), section("A/B/C/D", "d")],
        [section("A/B", "b"), section("A/C", long)],  # one is not short
        [section("A/B", "b"), section("A/Why?", "c")],  # a question has its answer alone
        [section("A/B", "b"), section("A"), section("A/C", "c")],  # no neighbours
    ]
    for sections in apart:
        assert joined(*sections) == [("/".join(section.headings), section.text) for section in sections]
    # 9 + 1 + 9 + 1 words and so on: four of them are 40 words, and that is the budget; below 9 they are short.
    nine = " ".join(["w"] * 9)
    found = joined(*(section(f"A/{n}", nine) for n in range(9)), budget=80)
    assert [words(text) for _, text in found] == [80, 9]


def test_documents_of_a_page_know_where_they_stood() -> None:
    page = Page(
        "T", "", [Section(()), Section(("A",), [Block("a b. C d. E f.")]), Section((), [Block("x")], "page=2")]
    )
    assert list(cut_page(page, 4, 0, words)) == [
        Chunk((), ""),
        Chunk(("A",), "a b. C d.", 0),
        Chunk(("A",), "E f.", 1),
        Chunk((), "x", 0, "page=2"),
    ]
    assert [chunk.text for chunk in cut_page(page, 0, 0, words)] == ["", "a b. C d. E f.", "x"]


def test_code_can_be_left_out() -> None:
    blocks = [
        Block("a"),
        Block("1", code=True),
        Block("- b", item=True),
        Block("2", code=True, tight=True),
        Block("- c", tight=True),
    ]
    dropped: Counter[str] = Counter()
    page = without_code(Page("T", "", [Section((), blocks)]), dropped)
    assert page.sections[0].text == "a\n\n- b\n- c"
    assert dropped == {"code block": 2}
    first = [Block("1", code=True), Block("b", tight=True)]
    assert without_code(Page("", "", [Section((), [Block("a"), *first])]), dropped).sections[0].text == "a\n\nb"


def test_the_estimate_by_hand() -> None:
    # Read | the | S | 3 | bucket | " | my | Bucket | _ | 12 | 34 | " | . are 13, times 1.1 is 14.3
    assert estimate_tokens('Read the S3 bucket "myBucket_1234".') == 15
    assert estimate_tokens("日本語") == 4  # 3.3
    assert estimate_tokens("") == 0


def test_the_estimate_is_near_what_minilm_counts() -> None:
    if importlib.util.find_spec(PACKAGED[0].module) is None:
        pytest.skip("the packaged model is not installed")
    if not SHARED.is_dir():
        pytest.skip("the guides are not on this machine")
    from tokenizers import Tokenizer

    folder = PACKAGED[0].find()
    assert folder is not None
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    source = SHARED / "aws-docs" / "markdown" / "amazon-kendra-developer-guide.tar.gz"
    ratios = []
    for _, content in list(Pages(source, Counter()))[::4]:
        page = markdown.parse(content.decode(), Counter())
        for chunk in cut_page(page, 256, 0, estimate_tokens):
            if estimate_tokens(chunk.text) >= 128:
                ratios.append(
                    len(tokenizer.encode(chunk.text, add_special_tokens=False).ids) / estimate_tokens(chunk.text)
                )
    ratios.sort()
    assert len(ratios) > 100
    assert 0.9 < ratios[len(ratios) // 2] < 1.02  # the median
    assert ratios[len(ratios) * 19 // 20] < 1.12  # 95 % are at most this much longer
