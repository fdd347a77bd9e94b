"""PDF to sections, one a page, through pypdf; what stands at the head and foot of most pages is taken off."""

import io
import logging
import re
import warnings
from collections import Counter
from collections.abc import Sequence

from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.documents.page import Block, Page, Section
from embedtrain.harvest.documents.text import paragraphs

# A line is a header or footer where it is among the outer lines of at least this many pages and this share of them.
_OUTER_LINES = 3
_FEWEST_PAGES = 3
_SHARE = 0.5
_NUMBER = re.compile(r"\d+")
_HYPHEN = re.compile(r"(?<=[^\W\d_])-\n(?=[a-zà-öø-ÿ])")
_WORD = re.compile(r"\w")


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


def _texts(source: bytes, where: str) -> tuple[str, list[str]] | None:
    """The title and the text of every page; None where the file is encrypted."""
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
            return title, [page.extract_text() for page in reader.pages]
    except (FileNotDecryptedError, DependencyError):
        return None
    except (
        PyPdfError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        IndexError,
        RecursionError,
        OSError,
    ) as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise EmbedtrainError(f"{where} is no whole PDF ({why}); make it again or take it out") from error
    finally:
        logger.setLevel(level)


def parse(source: bytes, dropped: Counter[str], where: str = "a file") -> Page:
    """Cut a PDF at its pages; `place` of a section is "page=3", as in a link to it (RFC 8118).

    The title is that of its properties. A file that is encrypted, and one whose pages are pictures with no text, gives
    a page without sections, counted. Raises EmbedtrainError for a broken file, and without pypdf; `where` names the file.
    """
    found = _texts(source, where)
    if found is None:
        dropped["encrypted PDF"] += 1
        return Page()
    title, pages = found
    pages = [page.replace("\r\n", "\n") for page in pages]
    empty = sum(not _WORD.search(page) for page in pages)
    if empty == len(pages):
        dropped["PDF without a text (scanned?)"] += 1
        return Page(title)
    if empty:
        dropped["PDF page without a text"] += empty
    sections = []
    for number, page in enumerate(without_running_lines(pages, dropped), start=1):
        blocks = [Block(part) for part in paragraphs(_HYPHEN.sub("", page))]
        if blocks:
            sections.append(Section((), blocks, f"page={number}"))
    return Page(title, "", sections)
