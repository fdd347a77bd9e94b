"""Documents of TREC collections: SGML as on TREC's disks, or TSV without a header."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from embedtrain import readers
from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.draft import Document
from embedtrain.harvest.trec.markup import in_one_line, inside, plain

Found = tuple[str, str, Document]  # where, id, document

_ANY = r"(?:\s[^<>]*)?>"
_NUMBER = re.compile(rf"<docno{_ANY}(.*?)</docno\s*>", re.IGNORECASE | re.DOTALL)
_ID = re.compile(r"\bid\s*=\s*[\"']?([^\"'\s>]+)", re.IGNORECASE)  # Gigaword: <DOC id="..." type="story">
# A text and its lead paragraph (San Jose Mercury News, Wall Street Journal).
_BODY = re.compile(rf"<(leadpara|lp|text){_ANY}(.*?)(?:</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL)
# Headlines of LA Times and Financial Times, AP, Wall Street Journal, Ziff, FBIS; the first kind that is there.
_TITLES = [
    re.compile(rf"<{name}{_ANY}(.*?)</{name}\s*>", re.IGNORECASE | re.DOTALL)
    for name in ("headline", "head", "hl", "title", "ti")
]
_NO_TEXT = re.compile(rf"<(docno|docid|docoldno|dochdr){_ANY}.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
# Columns of TSV files by their number; the last is how MS MARCO has its documents.
COLUMNS = {2: ("_id", "text"), 3: ("_id", "title", "text"), 4: ("_id", "url", "title", "text")}


def marked_up(path: Path, stray: list[str]) -> Iterator[Found]:
    """Documents of an SGML file: a headline as title, <TEXT> (all but the headline, where there is none) as text.

    `stray` as `markup.inside` has it. Raises EmbedtrainError for a document without DOCNO, and for one that does not end.
    """
    for element in inside(path, "doc", stray):
        where = f"{path} line {element.line}"
        if not element.closed:
            raise EmbedtrainError(f"{where} starts a <DOC> that no </DOC> ends; fetch the file again or mend it")
        content = element.content
        found = _NUMBER.search(content) or _ID.search(element.attributes)
        if not found or not found[1].strip():
            raise EmbedtrainError(f"{where} starts a <DOC> without a <DOCNO>; every document needs its id")
        bodies = [body for _, body in _BODY.findall(content)]
        rest = _BODY.sub("", content)
        titles = next((there for pattern in _TITLES if (there := pattern.findall(rest))), [])
        if not bodies:
            for pattern in (_NO_TEXT, *_TITLES):
                rest = pattern.sub("", rest)
            bodies = [rest]
        text = "\n\n".join(filter(None, map(plain, bodies)))
        yield where, found[1].strip(), Document(" ".join(filter(None, map(in_one_line, titles))), text, {})


def of_columns(path: Path, format: str, width: int, dropped: Counter[str]) -> Iterator[Found]:
    """Documents of a TSV file without a header; a column `url` is kept. Raises EmbedtrainError for other widths."""
    columns = COLUMNS.get(width)
    if columns is None:
        known = "; ".join(" ".join(names).replace("_id", "docid") for names in COLUMNS.values())
        raise EmbedtrainError(
            f"{path} has {width} columns and no header that names them; without one they are {known}"
        )
    for number, row in readers.rows(path, dropped, format=format, columns=columns):
        where = f"{path} line {number}"
        identifier = readers.as_id(row["_id"], f"{where} column docid")
        extra = {"url": row["url"]} if "url" in row else {}
        yield where, identifier, Document(row.get("title", ""), row["text"], extra)
