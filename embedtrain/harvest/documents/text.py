"""Plain text to paragraphs: what an empty line parts is a block, and a short first line alone is the title."""

import re
from collections import Counter

from embedtrain.harvest.documents.page import Block, Outline, Page

_LONGEST_TITLE = 100  # characters; a line of print has 60 to 80
_EMPTY_LINE = re.compile(r"\n[ \t\f\v]*(?:\n[ \t\f\v]*)*\n")
_UNDERLINE = re.compile(r"[=\-*~#_]{3,}\Z")  # under a title, or a rule between paragraphs
_SENTENCE_END = (".", "!", ":", ";", ",", "。", "…")


def paragraphs(source: str) -> list[str]:
    """What stands between empty lines; line ends within stay, since they may part the lines of a table or a poem."""
    parts = (
        part.strip("\n").rstrip() for part in _EMPTY_LINE.split(source.replace("\r\n", "\n").replace("\f", "\n\n"))
    )
    return [part for part in parts if part.strip() and not _UNDERLINE.match(part.strip())]


def _title(paragraph: str) -> str:
    """The title that a first paragraph is; empty where it is a text. A line of signs under a title is none of it."""
    lines = [line.strip() for line in paragraph.strip().split("\n")]
    if len(lines) == 2 and _UNDERLINE.match(lines[1]):
        lines.pop()
    is_title = len(lines) == 1 and len(lines[0]) <= _LONGEST_TITLE and not lines[0].endswith(_SENTENCE_END)
    return lines[0] if is_title else ""


def parse(source: str, dropped: Counter[str]) -> Page:
    """One section of paragraphs. The first is the title where it is one short line with no full stop and others follow."""
    found = paragraphs(source)
    title = _title(found[0]) if len(found) > 1 else ""
    outline = Outline(title)
    for text in found[1:] if title else found:
        outline.add(Block(text))
    return outline.finish(dropped)
