"""Sections to documents of a bounded length: cut between paragraphs, else items and rows, else sentences, else words.

Lengths are in tokens, by whatever function counts them; `estimate_tokens` needs no model.
"""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from embedtrain.harvest.documents.page import (
    LONGEST_LABEL,
    STOPS,
    Block,
    Page,
    Section,
    anchors_of,
    groups,
    joined,
)

Count = Callable[[str], int]

# A section is short below this share of the budget (32 of 256 tokens: a sentence or two). It says too little to be told
# from the short sections beside it, while a longer one is worth a document of its own under its own heading.
SHORT = 1 / 8
_LARGEST_HEAD = 1 / 4  # of the budget: a longer header of a table is not repeated over each part of it
_FULL = 1 / 2  # a document ends before a paragraph that does not fit only where it is at least this full

# Characters of scripts without spaces; the parts of Words, wordsLikeThis and ACRONYMS; other letters; digits; signs.
_TOKEN = re.compile(
    r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
    r"|[A-Z]?[a-zà-öø-ÿ]{1,10}|[A-Z]{1,3}|[^\W\d_]{1,3}|\d{1,2}|[^\w\s]|_"
)
# Tokens of MiniLM's tokenizer for each of them, in 256 tokens of aws-docs: prose 1.06 (5 to 95 %: 1.01 to 1.12),
# code 1.10 (1.01 to 1.22). A little too many is better than a text that the model does not read to its end.
TOKENS_EACH = 1.1

_ABBREVIATION = re.compile(
    r"(?:\A|[\s(\[\"'“„])(?:[^\W\d_]|e\.g|i\.e|etc|vs|cf|al|approx|resp|incl|nos?|nr|figs?|eqs?|sec|ch|vol|pp|eds?|drs?|mrs?|"
    r"ms|prof|st|jr|sr|inc|ltd|co|corp|z\.\s?b|d\.\s?h|u\.\s?a|bzw|ca|evtl|ggf|usw|p\.\s?ej|sra|dra|mme)\.\Z",
    re.IGNORECASE,
)
_LONGEST_ABBREVIATION = 10
_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s)|[。！？]+[」』”’）]*")
_NOT_A_SENTENCE = re.compile(r"\s*(?:\d+|[-*•])?[.)]?\s*\Z")  # "1." of a numbered list
_LOWER = re.compile(r"\s+[a-zß-öø-ÿ]")
_LINE = re.compile(r"[^\n]*\S[^\n]*")
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Chunk:
    """A stretch of a section that becomes a document: the headings over it, its text, its number within the section.

    `place` is where in the page it stands, where headings do not say it ("page=3" of a PDF). `fragment`: it is a later
    part of one block of code, and nothing else. `anchors`: what a link may name to lead to it.
    """

    headings: tuple[str, ...]
    text: str
    part: int = 0
    place: str = ""
    fragment: bool = False
    anchors: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Piece:
    text: str
    joint: str  # the white space before it
    level: int  # what ends before it: 0 a paragraph, list, table or code; 1 an item or row; 2 a sentence or line; 3 a word
    sentence: bool  # it is whole, and words
    tokens: int
    head: str = ""  # the header of the table that it is a row of
    anchors: tuple[str, ...] = ()  # of a block that it begins


class Cut(NamedTuple):
    """A text that was cut out of blocks, and the anchors of those that begin in it."""

    text: str
    anchors: tuple[str, ...]


def estimate_tokens(text: str) -> int:
    """How many tokens a WordPiece tokenizer makes of a text, about: its words and signs, times `TOKENS_EACH`."""
    return math.ceil(len(_TOKEN.findall(text)) * TOKENS_EACH)


def sentences(text: str) -> list[tuple[str, str]]:
    """(white space before it, sentence) of each sentence; together they are the text without the white space at its end.

    A full stop ends none after an abbreviation, a single letter or a list's number, and before a lower-case letter.
    """
    found: list[tuple[str, str]] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        end = match.end()
        if _NOT_A_SENTENCE.match(text[start:end]) or _LOWER.match(text, end):
            continue
        if match[0] == "." and _ABBREVIATION.search(text[max(start, end - _LONGEST_ABBREVIATION) : end]):
            continue
        found.append(_parted(text[start:end]))
        start = end
    if text[start:].strip():
        found.append(_parted(text[start:].rstrip()))
    return found


def _parted(text: str) -> tuple[str, str]:
    words = text.lstrip()
    return text[: len(text) - len(words)], words


def _matches(pattern: re.Pattern[str], text: str) -> list[tuple[str, str]]:
    """(what stands before it, match) of each match."""
    found, start = [], 0
    for match in pattern.finditer(text):
        found.append((text[start : match.start()], match[0]))
        start = match.end()
    return found


def _pieces(blocks: Sequence[Block], budget: int, count: Count) -> Iterator[_Piece]:
    """What a document may be cut between, each piece within the budget unless nothing in it can be cut."""
    for group in groups(blocks):
        for place, block in enumerate(group):
            parts = _matches(_LINE, block.text) if block.code else sentences(block.text)
            for number, (gap, part) in enumerate(parts):
                joint, level = (gap, 2) if number else (block.joint, min(place, 1))
                tokens = count(part)
                anchors = () if number else block.anchors
                if block.code or tokens <= budget:
                    yield _Piece(part, joint, level, not block.code, tokens, block.head, anchors)
                    continue
                for nth, (space, word) in enumerate(_matches(_WORD, part)):
                    if nth:
                        yield _Piece(word, space, 3, False, count(word))
                    else:
                        yield _Piece(word, joint, level, False, count(word), anchors=anchors)


def _text(pieces: Sequence[_Piece], head: str = "") -> str:
    text = "".join(piece.joint + piece.text for piece in pieces).strip()
    return f"{head}\n{text}" if head else text


def _head(piece: _Piece, budget: int, count: Count) -> str:
    """What stands above a text that begins with a row: the header of its table, where there is room for it."""
    fits = (
        piece.head and count(piece.head) <= _LARGEST_HEAD * budget and count(_text([piece], piece.head)) <= budget
    )
    return piece.head if fits else ""


def _end(
    pieces: Sequence[_Piece], sums: Sequence[int], first: int, start: int, head: str, budget: int, count: Count
) -> int:
    """The most pieces from `first` on that fit, at least to behind `start`."""
    room = budget - count(head) if head else budget
    end = max(bisect_right(sums, sums[first] + room) - 1, start + 1)
    # Tokens of a text may be more than those of its pieces.
    while end > start + 1 and count(_text(pieces[first:end], head)) > budget:
        end -= 1
    return end


def _announces(piece: _Piece, following: _Piece) -> bool:
    """Whether a piece says what comes next: it ends with a colon, or is a label ("To install it") over a list or code."""
    if not piece.sentence:
        return False
    is_paragraph = piece.level == following.level == 0
    return piece.text.endswith(":") or (
        is_paragraph and len(piece.text) <= LONGEST_LABEL and not piece.text.endswith(STOPS)
    )


def _best_cut(pieces: Sequence[_Piece], sums: Sequence[int], first: int, start: int, end: int, budget: int) -> int:
    """Where to cut between start and end: late enough, where the most ends, and not under a line that announces more."""
    places = [place for place in range(start + 1, end + 1) if sums[place] - sums[first] >= _FULL * budget]

    def cost(place: int) -> tuple[bool, bool, int, int]:
        leaves_a_rest = sums[-1] - sums[place] < SHORT * budget
        return leaves_a_rest, _announces(pieces[place - 1], pieces[place]), pieces[place].level, -place

    return min(places, key=cost, default=end)


def _overlapping(pieces: Sequence[_Piece], sums: Sequence[int], first: int, cut: int, overlap: int) -> int:
    """From where the next document repeats what stands before the cut: whole sentences, items or rows, no code."""
    begin = cut
    while begin - 1 > first and pieces[begin - 1].sentence and sums[cut] - sums[begin - 1] <= overlap:
        begin -= 1
    return begin


def cut(blocks: Sequence[Block], budget: int, overlap: int, count: Count) -> list[Cut]:
    """Cut blocks into texts of at most `budget` tokens; each repeats up to `overlap` tokens of the one before it.

    Where a text must end it ends, in its second half, after a paragraph, list, table or code; else after an item or
    row; else after a sentence or a line of code; else after a word. A line of code and a word are never cut, however
    long. A text that begins within a table begins with the header of it. But for these, and without an overlap, the
    texts hold what the blocks hold and nothing else, white space between them apart.
    """
    whole = joined(blocks)
    if count(whole) <= budget:
        return [Cut(whole, anchors_of(blocks))] if whole else []
    pieces = list(_pieces(blocks, budget, count))
    sums = [0, *accumulate(piece.tokens for piece in pieces)]
    texts: list[Cut] = []
    first = start = 0  # of a text, and of what is new in it
    while True:
        while (
            first < start and count(_text(pieces[first : start + 1], _head(pieces[first], budget, count))) > budget
        ):
            first += 1
        head = _head(pieces[first], budget, count)
        end = _end(pieces, sums, first, start, head, budget, count)
        place = end if end == len(pieces) else _best_cut(pieces, sums, first, start, end, budget)
        anchors = tuple(anchor for piece in pieces[start:place] for anchor in piece.anchors)
        texts.append(Cut(_text(pieces[first:place], head), anchors))
        if place == len(pieces):
            return texts
        first, start = _overlapping(pieces, sums, first, place, overlap), place


def without_code(page: Page, dropped: Counter[str]) -> Page:
    """A page without its code blocks, counted."""
    sections = []
    for section in page.sections:
        kept: list[Block] = []
        for group in groups(section.blocks):
            words = [block for block in group if not block.code]
            kept += [replace(block, tight=place > 0) for place, block in enumerate(words)]
        gone = [block for block in section.blocks if block.code]
        if gone:
            dropped["code block"] += len(gone)
        sections.append(replace(section, blocks=kept, anchors=section.anchors + anchors_of(gone)))
    return replace(page, sections=sections)


def _parent(run: Sequence[Section]) -> tuple[str, ...]:
    """The heading path right above sections, which may be that of the first itself; empty where there is none."""
    own = run[0].headings
    for parent in (own, own[:-1]):
        if all(section.headings[:-1] == parent for section in run[1:]):
            return parent
    return ()


def join_short(
    sections: Sequence[Section], budget: int, count: Count, alone: Callable[[Section], bool]
) -> Iterator[Section]:
    """Sections, with short neighbours under one heading joined up to the budget, each under its heading as a line.

    Short is below `SHORT` of the budget. Sections right under the page are never joined, nor those that `alone` names or
    that go on with the one before.
    """
    run: list[Section] = []
    total = 0
    for section in sections:
        tokens = count(section.text)
        is_short = 0 < tokens < SHORT * budget and not section.continues and not alone(section)
        added = tokens + count(section.headings[-1]) if section.headings else tokens
        if run and not (is_short and total + added <= budget and _parent([*run, section])):
            yield _joined(run)
            run, total = [], 0
        if is_short:
            run.append(section)
            total += added
        else:
            yield section
    if run:
        yield _joined(run)


def _joined(run: Sequence[Section]) -> Section:
    if len(run) == 1:
        return run[0]
    parent = _parent(run)
    blocks: list[Block] = []
    anchors: tuple[str, ...] = ()
    for section in run:
        if section.headings != parent:
            blocks.append(Block(section.headings[-1], anchors=section.anchors))
        else:
            anchors += section.anchors
        blocks += section.blocks
    return Section(parent, blocks, run[0].place, anchors)


def cut_page(
    page: Page, budget: int, overlap: int, count: Count, alone: Callable[[Section], bool] = lambda section: False
) -> Iterator[Chunk]:
    """The documents of a page in order; a budget of 0 leaves its sections as they are.

    A section without a text gives one empty chunk, so that it can be counted.
    """
    sections = join_short(page.sections, budget, count, alone) if budget else page.sections
    part = -1
    for section in sections:
        whole = Cut(section.text, anchors_of(section.blocks))
        texts = cut(section.blocks, budget, overlap, count) if budget else [whole]
        code = [block.text for block in section.blocks if block.code]
        own = section.anchors
        part = part if section.continues else -1
        for text, anchors in texts or [Cut("", whole.anchors)]:
            part += 1
            fragment = part > 0 and any(text in block for block in code)
            yield Chunk(section.headings, text, part, section.place, fragment, own + anchors)
            own = ()
