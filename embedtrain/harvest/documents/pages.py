"""Where pages come from: a folder, a single file, a tar or zip archive; archives are read, never unpacked."""

import bz2
import gzip
import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.documents.page import Page

# Formats by the names that --kind knows, with the endings of their files.
FORMATS = {
    "markdown": (".md", ".markdown", ".mdown", ".mkd"),
    "html": (".html", ".htm", ".xhtml"),
    "rst": (".rst", ".rest"),
    "text": (".txt", ".text"),
    "pdf": (".pdf",),
}
DOCUMENTS = "documents"  # the kind of a source with pages of several formats
_NOUNS = {
    "markdown": "Markdown pages",
    "html": "HTML pages",
    "rst": "reStructuredText pages",
    "text": "text files",
    "pdf": "PDF files",
}
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
_IN_MEMORY = 64 << 20  # bytes of an unpacked tar; a larger one waits in a temporary file (see TMPDIR)
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    RuntimeError,
    NotImplementedError,
)


def format_of(name: str) -> str:
    """The format of a page by its name; empty for what is no page, and for what is hidden or in a hidden folder."""
    path = PurePosixPath(name)
    if any(part.startswith(".") for part in path.parts):
        return ""
    ending = path.suffix.lower()
    return next((format for format, endings in FORMATS.items() if ending in endings), "")


def is_page(name: str, kind: str = DOCUMENTS) -> bool:
    """Whether a name is that of a page: of any format, or of the one that `kind` names."""
    format = format_of(name)
    return bool(format) and kind in (DOCUMENTS, format)


def is_archive(path: Path) -> bool:
    """Whether a file is an archive by its name."""
    return path.is_file() and path.name.lower().endswith(ARCHIVES)


def _refused(archive: Path, error: BaseException) -> EmbedtrainError:
    why = str(error).partition("\n")[0].rstrip(":")
    return EmbedtrainError(f"{archive} is not a whole archive ({why}); fetch or make it again")


def _checked(archive: Path, name: str) -> str:
    # An archive whose members climb out of it was made to do harm, or is broken: nothing of it is read.
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or (parts.parts and parts.parts[0].endswith(":")):
        raise EmbedtrainError(
            f"{archive} holds {name!r}, which climbs out of it; unpack it with care and give a folder"
        )
    return parts.as_posix()


class NoPages(EmbedtrainError):
    """A source without a page."""


class Pages:
    """The pages of a source, sorted by name, read one at a time: iterating gives (name, bytes).

    Raises EmbedtrainError where there is none, an archive is broken, or a member would climb out of it.
    """

    def __init__(self, source: Path, dropped: Counter[str], kind: str = DOCUMENTS) -> None:
        self._source = source
        self._kind = kind
        self.names = self._names(dropped)
        if not self.names:
            formats = list(FORMATS) if kind == DOCUMENTS else [kind]
            endings = ", ".join(ending for format in formats for ending in FORMATS[format])
            raise NoPages(f"{source} holds no {_NOUNS.get(kind, 'pages')} ({endings}); check the path or --kind")

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        if self._source.is_dir():
            yield from ((name, (self._source / name).read_bytes()) for name in self.names)
        elif not is_archive(self._source):
            yield self._source.name, self._source.read_bytes()
        else:
            try:
                yield from self._from_zip() if self._is_zip else self._from_tar()
            except _BROKEN as error:
                raise _refused(self._source, error) from error

    @property
    def _is_zip(self) -> bool:
        return self._source.name.lower().endswith(".zip")

    def _names(self, dropped: Counter[str]) -> list[str]:
        source = self._source
        if source.is_dir():
            files = {file.relative_to(source).as_posix(): file for file in source.rglob("*") if file.is_file()}
            if closed := sum(is_archive(file) for file in files.values()):
                dropped["archive in the folder, not opened"] += closed
            return sorted(name for name in files if is_page(name, self._kind))
        if not is_archive(source):
            return [source.name] if source.is_file() and is_page(source.name, self._kind) else []
        try:
            if self._is_zip:
                with zipfile.ZipFile(source) as zipped:
                    return [name for name, _ in self._zipped(zipped)]
            with tarfile.open(source) as tar:
                members = self._in_tar(tar)
        except _BROKEN as error:
            raise _refused(source, error) from error
        if links := sum(not member.isfile() for _, member in members):
            dropped["link in an archive"] += links
        return [name for name, member in members if member.isfile()]

    def _zipped(self, archive: zipfile.ZipFile) -> list[tuple[str, zipfile.ZipInfo]]:
        named = [(_checked(self._source, member.filename), member) for member in archive.infolist()]
        found = [(name, member) for name, member in named if is_page(name, self._kind) and not member.is_dir()]
        return sorted(found, key=lambda entry: entry[0])

    def _in_tar(self, archive: tarfile.TarFile) -> list[tuple[str, tarfile.TarInfo]]:
        named = [(_checked(self._source, member.name), member) for member in archive]
        found = [(name, member) for name, member in named if is_page(name, self._kind) and not member.isdir()]
        return sorted(found, key=lambda entry: entry[0])

    def _from_zip(self) -> Iterator[tuple[str, bytes]]:
        with zipfile.ZipFile(self._source) as archive:
            for name, member in self._zipped(archive):
                yield name, archive.read(member)

    def _from_tar(self) -> Iterator[tuple[str, bytes]]:
        # The order of names is not that of the archive, and a compressed stream cannot be read backwards.
        with tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="embedtrain-pages-") as plain:
            with _uncompressed(self._source) as stream:
                shutil.copyfileobj(stream, plain, 1 << 20)
            plain.seek(0)
            with tarfile.open(fileobj=plain, mode="r:") as archive:
                for name, member in self._in_tar(archive):
                    content = archive.extractfile(member) if member.isfile() else None
                    if content is not None:
                        yield name, content.read()


def _uncompressed(path: Path) -> IO[bytes]:
    """A tar archive as a stream, by its first bytes as tarfile does it, whatever its name says."""
    with path.open("rb") as file:
        start = file.read(6)
    openers: tuple[tuple[bytes, Callable[[Path], Any]], ...] = (
        (b"\x1f\x8b", gzip.open),
        (b"BZh", bz2.open),
        (b"\xfd7zXZ\x00", lzma.open),
    )
    opened = next((opener for magic, opener in openers if start.startswith(magic)), None)
    return cast(IO[bytes], opened(path)) if opened else path.open("rb")


def kind_of(source: Path) -> str:
    """The format of all pages of a source, `documents` where there are several, empty where there is no page."""
    try:
        formats = {format_of(name) for name in Pages(source, Counter()).names}
    except NoPages:
        return ""
    return formats.pop() if len(formats) == 1 else DOCUMENTS


def _decoded(content: bytes, encoding: str, where: str) -> str:
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise EmbedtrainError(f"{where} is not {encoding.upper()} text; convert it to UTF-8") from error
    except LookupError as error:
        raise EmbedtrainError(
            f"{where} has the charset {encoding!r}, which is not known; convert it to UTF-8"
        ) from error


def parse(source: Path, name: str, content: bytes, dropped: Counter[str]) -> Page:
    """A page by the format that its name says; `source` is what it came from, for errors.

    Raises EmbedtrainError where its bytes are no text, or no PDF, and where pypdf is needed and missing.
    """
    where = f"{source}: page {name}"
    format = format_of(name)
    # Each format's library is loaded when the first page of it comes.
    if format == "pdf":
        from embedtrain.harvest.documents import pdf

        return pdf.parse(content, dropped, where)
    if format == "html":
        from embedtrain.harvest.documents import charset, html

        return html.parse(_decoded(content, charset.encoding(content), where), dropped)
    decoded = _decoded(content, "utf-8", where)
    if format == "rst":
        from embedtrain.harvest.documents import rst

        return rst.parse(decoded, dropped)
    if format == "text":
        from embedtrain.harvest.documents import text

        return text.parse(decoded, dropped)
    from embedtrain.harvest.documents import markdown

    return markdown.parse(decoded, dropped)
