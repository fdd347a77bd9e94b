"""What every format becomes: a page of sections, a section of blocks; and what no page keeps, lists of mere links."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from embedtrain.harvest.identity import query_key

LONGEST_LABEL = 60  # characters; "In this section" over a list of links is a label, a sentence of the text is not
STOPS = (".", "!", "?", "…", "。", "！", "？")  # what ends a sentence

_PIECE = re.compile(r"\s+|\S+")
LABEL = ":ref:"  # before what a link of Sphinx names: an anchor of any page


@dataclass(frozen=True)
class Block:
    """A paragraph, an item of a list, a row of a table, or code: what a document is cut between before it is cut within.

    `tight`: only a line end parts it from the block before, as in a list or a table. `item`: it is of a list.
    `linked`: its words are all links. `head`: the header of its table, for a row below it. `anchors`: what a link may
    name to lead to it.
    """

    text: str
    code: bool = False
    tight: bool = False
    item: bool = False
    linked: bool = False
    head: str = ""
    anchors: tuple[str, ...] = ()

    @property
    def joint(self) -> str:
        """What stands between the block before and this one."""
        return "\n" if self.tight else "\n\n"


class Link(NamedTuple):
    """A link of a line: its words are `text[start:end]`, its target is as the page has it."""

    start: int
    end: int
    target: str


Part = tuple[str, str | None]
"""Words, and the target of the link they are in: empty outside links, None for the end of a line that stays one."""


class Line(NamedTuple):
    """The words of a paragraph, an item, a cell or a heading with links in it, with single blanks between them."""

    text: str
    links: tuple[Link, ...]


@dataclass
class Section:
    """A stretch of a page: the headings over it, its own last, and its text without them.

    `place` says where in the page it stands, where headings do not: "page=3" of a PDF. `anchors`: what a link may name
    to lead to its beginning. `continues`: it goes on with the section before it, on the next page of a PDF.
    """

    headings: tuple[str, ...]
    blocks: list[Block] = field(default_factory=list)
    place: str = ""
    anchors: tuple[str, ...] = ()
    continues: bool = False

    @property
    def text(self) -> str:
        """The blocks as one text."""
        return joined(self.blocks)


@dataclass
class Page:
    """A page: what it says of itself, its sections in order, and its lines with links, those in lists of links too.

    `addresses`: where else it can be found, as it says itself.
    """

    title: str = ""
    description: str = ""
    sections: list[Section] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    addresses: tuple[str, ...] = ()


def joined(blocks: Sequence[Block]) -> str:
    """Blocks as one text, with no white space around it."""
    return "".join(block.joint + block.text for block in blocks).strip()


def _line(parts: Iterable[Part]) -> Line | None:
    """The line that parts are; None where no link has words."""
    shown: list[str] = []
    links: list[Link] = []
    length = 0
    blank = True  # nothing yet, or a blank at the end
    goes_on = False  # the last link is that of the part before
    before: str | None = ""
    for words, target in parts:
        goes_on, before = goes_on and target == before, target
        for single in _PIECE.findall(words):
            if single.isspace():
                if not blank:
                    shown.append(" ")
                    length += 1
                blank = True
                continue
            shown.append(single)
            length += len(single)
            blank = False
            if goes_on:
                links[-1] = links[-1]._replace(end=length)
            elif target:
                links.append(Link(length - len(single), length, target))
                goes_on = True
    return Line("".join(shown).rstrip(), tuple(links)) if links else None


def anchors_of(blocks: Iterable[Block]) -> tuple[str, ...]:
    """All anchors of blocks."""
    return tuple(anchor for block in blocks for anchor in block.anchors)


def groups(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Blocks that belong together: a paragraph alone, a list with all its items, a table with all its rows."""
    group: list[Block] = []
    for block in blocks:
        if group and not block.tight:
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _is_label(group: Sequence[Block]) -> bool:
    text = group[0].text
    if len(group) > 1 or group[0].code or "\n" in text:
        return False
    return text.endswith(":") or (len(text) <= LONGEST_LABEL and not text.endswith(STOPS))


def _without_links(section: Section, dropped: Counter[str]) -> list[Block]:
    """The blocks of a section without lists of mere links and the label over such a list ("Topics").

    Nothing is left where all there is under a heading is links ("Next step").
    """
    if section.headings and section.blocks and all(block.linked for block in section.blocks):
        dropped["section of links"] += 1
        section.anchors += anchors_of(section.blocks)
        return []
    kept: list[list[Block]] = []
    for group in groups(section.blocks):
        if not all(block.linked and block.item for block in group):
            kept.append(group)
            continue
        dropped["list of links"] += 1
        section.anchors += anchors_of(group)
        if kept and _is_label(kept[-1]):
            section.anchors += anchors_of(kept.pop())
            dropped["label of a list of links"] += 1
    return [block for group in kept for block in group]


class Outline:
    """A page in the making: headings and blocks as they come, in the order of the source."""

    def __init__(self, title: str = "", description: str = "") -> None:
        self._page = Page(title, description, [Section(())])
        self._stack: list[tuple[int, str]] = []
        self._anchors: list[str] = []  # of what comes next

    def anchor(self, *names: str) -> None:
        """Add what a link may name to lead to the next heading or block."""
        self._anchors += filter(None, names)

    def line(self, parts: Sequence[Part]) -> None:
        """Add those lines of a paragraph that have links in them."""
        if not any(target for _, target in parts):
            return
        for ends, line in groupby(parts, lambda part: part[1] is None):
            if not ends and (found := _line(line)):
                self._page.lines.append(found)

    def address(self, *addresses: str) -> None:
        """Add where else the page can be found."""
        self._page.addresses += tuple(filter(None, addresses))

    def _taken(self) -> tuple[str, ...]:
        found = tuple(self._anchors)
        self._anchors.clear()
        return found

    def heading(self, level: int, text: str) -> None:
        """Begin a section under a heading of a level from 1.

        The first heading of the page, where it is of level 1, is the title and begins no section, unless the page has
        another title already.
        """
        page = self._page
        names_page = level == 1 and len(page.sections) == 1
        if names_page and (not page.title or query_key(text) == query_key(page.title)):
            page.title = page.title or text
            page.sections[0].anchors += self._taken()
            return
        self._stack = [entry for entry in self._stack if entry[0] < level]
        if text:
            self._stack.append((level, text))
        page.sections.append(Section(tuple(name for _, name in self._stack), anchors=self._taken()))

    def add(self, block: Block) -> None:
        """Add a block to the section that was begun last."""
        if self._anchors:
            block = replace(block, anchors=self._taken() + block.anchors)
        self._page.sections[-1].blocks.append(block)

    def finish(self, dropped: Counter[str]) -> Page:
        """The page, without its lists of links; how many there were is counted."""
        self._page.sections[-1].anchors += self._taken()
        for section in self._page.sections:
            section.blocks = _without_links(section, dropped)
        return self._page
