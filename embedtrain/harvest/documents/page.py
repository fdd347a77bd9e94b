"""What every format becomes: a page of sections, a section of blocks; and what no page keeps, lists of mere links."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from embedtrain.harvest.identity import query_key

LONGEST_LABEL = 60  # characters; "In this section" over a list of links is a label, a sentence of the text is not
STOPS = (".", "!", "?", "…", "。", "！", "？")  # what ends a sentence


@dataclass(frozen=True)
class Block:
    """A paragraph, an item of a list, a row of a table, or code: what a document is cut between before it is cut within.

    `tight`: only a line end parts it from the block before, as in a list or a table. `item`: it is of a list.
    `linked`: its words are all links. `head`: the header of its table, for a row below it.
    """

    text: str
    code: bool = False
    tight: bool = False
    item: bool = False
    linked: bool = False
    head: str = ""

    @property
    def joint(self) -> str:
        """What stands between the block before and this one."""
        return "\n" if self.tight else "\n\n"


@dataclass
class Section:
    """A stretch of a page: the headings over it, its own last, and its text without them.

    `place` says where in the page it stands, where headings do not: "page=3" of a PDF.
    """

    headings: tuple[str, ...]
    blocks: list[Block] = field(default_factory=list)
    place: str = ""

    @property
    def text(self) -> str:
        """The blocks as one text."""
        return joined(self.blocks)


@dataclass
class Page:
    """A page: what it says of itself, and its sections in order."""

    title: str = ""
    description: str = ""
    sections: list[Section] = field(default_factory=list)


def joined(blocks: Sequence[Block]) -> str:
    """Blocks as one text, with no white space around it."""
    return "".join(block.joint + block.text for block in blocks).strip()


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
        return []
    kept: list[list[Block]] = []
    for group in groups(section.blocks):
        if not all(block.linked and block.item for block in group):
            kept.append(group)
            continue
        dropped["list of links"] += 1
        if kept and _is_label(kept[-1]):
            kept.pop()
            dropped["label of a list of links"] += 1
    return [block for group in kept for block in group]


class Outline:
    """A page in the making: headings and blocks as they come, in the order of the source."""

    def __init__(self, title: str = "", description: str = "") -> None:
        self._page = Page(title, description, [Section(())])
        self._stack: list[tuple[int, str]] = []

    def heading(self, level: int, text: str) -> None:
        """Begin a section under a heading of a level from 1.

        The first heading of the page, where it is of level 1, is the title and begins no section, unless the page has
        another title already.
        """
        page = self._page
        names_page = level == 1 and len(page.sections) == 1
        if names_page and (not page.title or query_key(text) == query_key(page.title)):
            page.title = page.title or text
            return
        self._stack = [entry for entry in self._stack if entry[0] < level]
        if text:
            self._stack.append((level, text))
        page.sections.append(Section(tuple(name for _, name in self._stack)))

    def add(self, block: Block) -> None:
        """Add a block to the section that was begun last."""
        self._page.sections[-1].blocks.append(block)

    def finish(self, dropped: Counter[str]) -> Page:
        """The page, without its lists of links; how many there were is counted."""
        for section in self._page.sections:
            section.blocks = _without_links(section, dropped)
        return self._page
