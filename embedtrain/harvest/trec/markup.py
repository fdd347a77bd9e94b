"""Elements of TREC's SGML, which is no XML: tags that nobody closes, entities that nobody declares."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from embedtrain import readers

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_BREAK = re.compile(r"</?(?:p|br|para)(?:\s[^<>]*)?/?>", re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][\w:.-]*(?:\s[^<>]*)?/?>")
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]\w*);")
_DECLARATION = re.compile(r"<[?!][^<>]*>")  # <?xml version="1.0"?>, <!DOCTYPE ...>
_SHOWN = 3
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
# Entities of the Federal Register (TREC disks 2 and 4) that HTML does not know, or knows as something else.
_OWN = {"&blank;": " ", "&hyph;": "-"}


class Element(NamedTuple):
    """An element, or what stands outside of all of them; `line` is where it starts."""

    line: int
    attributes: str
    content: str
    inside: bool = True
    closed: bool = True


def inside(path: Path, name: str, stray: list[str]) -> Iterator[Element]:
    """Yield the <name> elements of a file; `stray` gets the numbers of the first lines with text outside of them.

    Raises EmbedtrainError as `elements` does.
    """
    for element in elements(path, name):
        if element.inside:
            yield element
        elif len(stray) <= _SHOWN:
            stray.append(str(element.line))


def elements(path: Path, name: str) -> Iterator[Element]:
    """Yield every <name> element of a file, and text outside of them; one at a time is in memory.

    An element that another one or the end of the file cuts off is not `closed`. Raises EmbedtrainError for a file that
    is not UTF-8 text, or not whole.
    """
    tag = re.compile(rf"<(?P<end>/?){name}(?P<attributes>\s[^<>]*)?>", re.IGNORECASE)
    start, attributes = 0, ""
    parts: list[str] = []
    for number, line in readers.lines(path):
        place = 0
        for match in tag.finditer(line):
            parts.append(line[place : match.start()])
            place = match.end()
            closes = bool(match["end"])
            yield from _element(start, attributes, parts, closed=closes, line=number)
            parts = []
            start, attributes = (0, "") if closes else (number, match["attributes"] or "")
        parts.append(line[place:] + "\n")
        if not start:
            yield from _element(0, "", parts, closed=True, line=number)
            parts = []
    yield from _element(start, attributes, parts, closed=False, line=start)


def _element(start: int, attributes: str, parts: list[str], *, closed: bool, line: int) -> Iterator[Element]:
    content = "".join(parts)
    if start:
        yield Element(start, attributes, content, closed=closed)
    elif plain(_DECLARATION.sub("", content)):
        yield Element(line, "", content, inside=False)


def _character(match: re.Match[str]) -> str:
    return _OWN.get(match[0].lower()) or html.unescape(match[0])


def plain(content: str) -> str:
    """The text of an element: paragraphs set apart by lines, other tags and comments taken out, entities resolved."""
    text = _TAG.sub("", _BREAK.sub("\n", _COMMENT.sub("", content)))
    lines = "\n".join(line.rstrip() for line in _ENTITY.sub(_character, text).split("\n"))
    return _BLANK_LINES.sub("\n\n", lines).strip()


def in_one_line(content: str) -> str:
    """The text of an element with single blanks."""
    return " ".join(plain(content).split())
