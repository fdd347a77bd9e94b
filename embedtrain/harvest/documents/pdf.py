"""PDF to sections, cut at its pages and bookmarks, through pypdf; what stands at the head and foot of most pages is taken off."""

import io
import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.documents.page import Block, Page, Section
from embedtrain.harvest.documents.text import paragraphs

if TYPE_CHECKING:
    from pypdf import PdfReader

# A line is a header or footer where it is among the outer lines of at least this many pages and this share of them.
_OUTER_LINES = 3
_FEWEST_PAGES = 3
_SHARE = 0.5
_NUMBER = re.compile(r"\d+")
_HYPHEN = re.compile(r"(?<=[^\W\d_])-\n(?=[a-zà-öø-ÿ])")
_WORD = re.compile(r"\w")
# What a file that is not as it should be may make of pypdf, besides its own errors.
_BROKEN = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, OSError)
# A bookmark that says where it is and not what is there: "Page 3", "12".
_ONLY_A_NUMBER = re.compile(r"\W*(?:page|p|seite|folie|slide)?\W*\d+\W*", re.IGNORECASE)
_NUMBERING = re.compile(
    r"\s*(?:(?:chapter|part|section|appendix|kapitel|teil|anhang)\s+)?(?:\d+|[A-Z]|[IVX]+)(?:\.\d+)*[.:)]?\s+",
    re.IGNORECASE,
)
_HEADING_LINES = 3  # that a heading may take on its page


class Bookmark(NamedTuple):
    """An entry of a PDF's outline: its level from 1, its words, and the page that it leads to, from 0."""

    level: int
    title: str
    page: int


class _Content(NamedTuple):
    """What is read of a PDF."""

    title: str
    pages: list[str]
    bookmarks: list[Bookmark]


def _key(line: str) -> str:
    """What makes two running lines the same: "Chapter 3, page 17" and "Chapter 3, page 18" are one line."""
    return _NUMBER.sub("#", " ".join(line.casefold().split()))


def _outer(lines: Sequence[str]) -> list[int]:
    """The places of the first and last lines that are not empty."""
    full = [place for place, line in enumerate(lines) if line.strip()]
    return sorted({*full[:_OUTER_LINES], *full[-_OUTER_LINES:]})


def without_running_lines(pages: Sequence[str], dropped: Counter[str]) -> list[str]:
    """Pages without the lines at head and foot that recur on half of them (at least three), each counted.

    Numbers do not count in a comparison. A line that stands between others that stay, stays.
    """
    split = [page.split("\n") for page in pages]
    seen = Counter(key for lines in split for key in {_key(lines[place]) for place in _outer(lines)})
    needed = max(_FEWEST_PAGES, _SHARE * len([lines for lines in split if _outer(lines)]))
    running = {key for key, count in seen.items() if count >= needed}
    kept = []
    for lines in split:
        gone: set[int] = set()
        for places in (_outer(lines), _outer(lines)[::-1]):
            for place in places:
                if _key(lines[place]) not in running:
                    break
                gone.add(place)
        if gone:
            dropped["running line of a PDF page"] += len(gone)
        kept.append("\n".join(line for place, line in enumerate(lines) if place not in gone))
    return kept


def _is_cyclic(reader: "PdfReader") -> bool:
    """Whether the entries of an outline lead back to one of them; older versions of pypdf would read them for ever."""
    root: Any = reader.trailer["/Root"]
    outline: Any = root.get("/Outlines")
    stack = [] if outline is None else [outline.get_object().get("/First")]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node is None or (entry := node.get_object()) is None:
            continue
        if id(entry) in seen:
            return True
        seen.add(id(entry))
        stack += [entry.raw_get(name) for name in ("/Next", "/First") if name in entry]
    return False


def _flat(outline: Sequence[Any], level: int = 1) -> Iterator[tuple[int, Any]]:
    """(level, entry) of an outline, each before those below it."""
    for entry in outline:
        if isinstance(entry, list):
            yield from _flat(entry, level + 1)
        else:
            yield level, entry


def _bookmarks(reader: "PdfReader", pages: int, dropped: Counter[str]) -> list[Bookmark]:
    """The bookmarks that have words and lead to a page, in the order of the pages. Counted: the others."""
    from pypdf.errors import PyPdfError

    try:
        if _is_cyclic(reader):
            dropped["bookmarks of a PDF that lead in a circle"] += 1
            return []
        found = []
        for level, entry in _flat(reader.outline):
            title = " ".join(str(entry.title or "").split())
            page = reader.get_destination_page_number(entry)
            if not _WORD.search(title) or _ONLY_A_NUMBER.fullmatch(title):
                dropped["PDF bookmark without words"] += 1
            elif page is None or not 0 <= page < pages:
                dropped["PDF bookmark that leads to no page"] += 1
            else:
                found.append(Bookmark(level, title, page))
    except (PyPdfError, *_BROKEN):
        dropped["bookmarks of a PDF that cannot be read"] += 1
        return []
    return sorted(found, key=lambda bookmark: bookmark.page)


def _content(source: bytes, where: str, dropped: Counter[str]) -> _Content | None:
    """The title, the text of every page and the bookmarks; None where the file is encrypted."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError
    except ImportError as error:
        raise EmbedtrainError(f"{where} needs pypdf to be read; run: pip install embedtrain[pdf]") from error
    logger = logging.getLogger("pypdf")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # what it could repair is nothing the reader can act on
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader = PdfReader(io.BytesIO(source))
            title = str((reader.metadata.title if reader.metadata else None) or "").strip()
            pages = [page.extract_text().replace("\r\n", "\n") for page in reader.pages]
            return _Content(title, pages, _bookmarks(reader, len(pages), dropped))
    except (FileNotDecryptedError, DependencyError):
        return None
    except (PyPdfError, *_BROKEN) as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise EmbedtrainError(f"{where} is no whole PDF ({why}); make it again or take it out") from error
    finally:
        logger.setLevel(level)


def _heading_keys(text: str) -> set[str]:
    """What a bookmark and the heading on its page have in common, however they are spaced, and numbered or not."""
    return {"".join(shown.casefold().split()) for shown in (text, _NUMBERING.sub("", text, count=1))} - {""}


def _find_heading(lines: Sequence[str], start: int, title: str) -> tuple[int, int] | None:
    """Where a heading stands among the lines of its page: (its first line, the line behind it); None where it does not."""
    wanted = _heading_keys(title)
    for first in range(start, len(lines)):
        for stop in range(first + 1, min(first + _HEADING_LINES, len(lines)) + 1):
            if lines[first].strip() and wanted & _heading_keys(" ".join(lines[first:stop])):
                return first, stop
    return None


class _Sections:
    """The sections of a PDF in the making: one for each page, and for each bookmark on it."""

    def __init__(self) -> None:
        self.found: list[Section] = []
        self._path: list[tuple[int, str]] = []
        self._place = ""  # of the last text
        self._begins = True  # the next section is the first of its heading

    @property
    def _headings(self) -> tuple[str, ...]:
        return tuple(title for _, title in self._path)

    def close(self) -> None:
        """End what stands under a bookmark; where there was nothing, a section without a text says so."""
        if self._path and self._begins:
            self.found.append(Section(self._headings))

    def open(self, bookmark: Bookmark) -> None:
        """Go on under a bookmark."""
        self.close()
        self._path = [entry for entry in self._path if entry[0] < bookmark.level]
        self._path.append((bookmark.level, bookmark.title))
        self._begins = True

    def add(self, lines: Sequence[str], place: str) -> None:
        """Add the text of a page, or of a part of it, where there is any."""
        blocks = [Block(part) for part in paragraphs(_HYPHEN.sub("", "\n".join(lines)))]
        if not blocks:
            return
        headings = self._headings
        anchors = () if place == self._place else (place,)
        continues = bool(headings) and not self._begins
        self.found.append(Section(headings, blocks, place, anchors, continues))
        self._begins, self._place = False, place


def parse(source: bytes, dropped: Counter[str], where: str = "a file") -> Page:
    """Cut a PDF at its pages and at its bookmarks, which are the headings.

    A bookmark's section begins under the line of its page that says the same, which is taken out, and else, counted, at
    the top of the page, or under the bookmark before it. `place` of a section is "page=3", as in a link to it (RFC 8118).
    The title is that of the file's properties. Bookmarks that lead nowhere, in a circle, or cannot be read are left out
    and counted. A file that is encrypted, and one whose pages are pictures with no text, gives a page without sections,
    counted. Raises EmbedtrainError for a broken file, and without pypdf; `where` names the file.
    """
    found = _content(source, where, dropped)
    if found is None:
        dropped["encrypted PDF"] += 1
        return Page()
    empty = sum(not _WORD.search(page) for page in found.pages)
    if empty == len(found.pages):
        dropped["PDF without a text (scanned?)"] += 1
        return Page(found.title)
    if empty:
        dropped["PDF page without a text"] += empty
    sections = _Sections()
    waiting = found.bookmarks[::-1]
    for number, text in enumerate(without_running_lines(found.pages, dropped)):
        lines, start = text.split("\n"), 0
        while waiting and waiting[-1].page == number:
            bookmark = waiting.pop()
            place = _find_heading(lines, start, bookmark.title)
            if place is None:
                dropped["PDF bookmark whose words are not on its page"] += 1
                sections.open(bookmark)
                continue
            sections.add(lines[start : place[0]], f"page={number + 1}")
            sections.open(bookmark)
            start = place[1]
        sections.add(lines[start:], f"page={number + 1}")
    sections.close()
    return Page(found.title, "", sections.found)
