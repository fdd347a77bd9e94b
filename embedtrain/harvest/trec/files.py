"""Which file of a TREC collection is what: told by its markup, or by its name."""

import re
import zlib
from pathlib import Path
from typing import NamedTuple

from embedtrain import readers
from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.documents import pages
from embedtrain.packed import ENDINGS, open_packed, torn

QRELS, TOPICS, DOCUMENTS = "qrels", "topics", "documents"
SGML, XML, TABLE = "sgml", "xml", "table"
_NAMED = {
    QRELS: re.compile(r"qrels?", re.IGNORECASE),
    TOPICS: re.compile(r"(?:\A|[._-])(?:topics?|queries)(?=[._\d-]|\Z)", re.IGNORECASE),
    DOCUMENTS: re.compile(
        r"(?:\A|[._-])(?:corpus|collection|docs?|documents?|passages?)(?=[._\d-]|\Z)", re.IGNORECASE
    ),
}
_MARKED = (
    (DOCUMENTS, SGML, re.compile(r"<doc[\s>]", re.IGNORECASE)),
    (TOPICS, SGML, re.compile(r"<top[\s>]", re.IGNORECASE)),
    (TOPICS, XML, re.compile(r"(?:<[a-z][^<>]*>\s*(?:<!--.*?-->\s*)*)?<topic[\s>]", re.IGNORECASE | re.DOTALL)),
)
_QUERIES = re.compile(r"queries", re.IGNORECASE).search  # many a folder of tables has some
_PROLOGUE = re.compile(r"\A(?:\s|\ufeff|<\?.*?\?>|<!--.*?-->|<![a-z][^>]*>)*", re.IGNORECASE | re.DOTALL)
_START = 4_096  # bytes that are looked at
_LOOK = 64  # files of a folder that are opened to recognise it
_DEFAULT = "test"
_TEXT_ENDINGS = (".txt", ".text", ".tsv", ".parquet", ".trec")


class Role(NamedTuple):
    """What a file is for, and how it is written; both empty for a file that is none of a collection's."""

    what: str = ""
    form: str = ""


def _start(path: Path) -> str:
    try:
        with open_packed(path, path.suffix) as (file, _):
            return file.read(_START).decode("utf-8", "replace")
    except (EOFError, OSError, zlib.error) as error:
        if not (what := torn(error, path.suffix)):
            raise
        raise EmbedtrainError(f"{path} is not a whole {what} file; fetch or make it again") from error


def _named(path: Path) -> str:
    if path.parent.name.lower() == QRELS:
        return QRELS
    return next((what for what, pattern in _NAMED.items() if pattern.search(path.name)), "")


def role(path: Path) -> Role:
    """What a file is. Raises EmbedtrainError where it is packed and not whole."""
    start = _start(path)
    body = start[len(_PROLOGUE.match(start)[0]) :]  # type: ignore[index]
    for what, form, pattern in _MARKED:
        if pattern.match(body):
            return Role(what, form)
    if pages.format_of(path.name) not in ("", "text"):
        return Role()
    what, first = _named(path), body.partition("\n")[0]
    if what == QRELS:
        return Role(QRELS, TABLE)
    if what == TOPICS and re.search(r"\.xml\b", path.name, re.IGNORECASE):
        return Role(TOPICS, XML)
    if what and readers.suffix(path):
        return Role(what, TABLE)
    if what == TOPICS and len(first.split("\t")) == 2:
        return Role(TOPICS, TABLE)
    fields = first.split()
    if len(fields) == 4 and fields[1] in ("0", "Q0") and fields[3].lstrip("-").isdigit():
        return Role(QRELS, TABLE)
    return Role()


def of_folder(folder: Path) -> dict[Path, Role]:
    """The files in a folder and those below it, sorted by name, each with what it is; hidden ones are left out."""
    return {path: role(path) for path in _below(folder)}


def _below(folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(
        path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def is_collection(source: Path) -> bool:
    """Whether a source clearly is a TREC collection, or a part of one, and no table or page.

    A folder is, where a file directly in it is named as topics or qrels, or one of the first files is marked up so.
    """
    if source.is_file():
        return not readers.suffix(source) and bool(_certain(source).what)
    below = _below(source)
    for path in (path for path in below if path.parent == source):
        if (what := _named(path)) in (QRELS, TOPICS) and _certain(path).what == what and not _QUERIES(path.name):
            return True
    return any(_certain(path).form in (SGML, XML) for path in below[:_LOOK])


def _certain(path: Path) -> Role:
    try:
        return role(path)
    except EmbedtrainError:  # whoever reads the file says it
        return Role()


def split_of(path: Path) -> str:
    """The split that a qrels file judges: its name without "qrels" and endings; test where nothing else is left."""
    name = path.name
    for ending in (*ENDINGS[1:], *_TEXT_ENDINGS):
        name = name.removesuffix(ending)
    return (
        "-".join(part for part in re.split(r"[._-]*qrels?[._-]*", name, flags=re.IGNORECASE) if part) or _DEFAULT
    )


def table_format(path: Path) -> str:
    """How `readers` is to read a file of lines: as TSV in spite of its name."""
    return "tsv" + (path.suffix if path.suffix in ENDINGS else "")
