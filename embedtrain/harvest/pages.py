"""Where pages come from: a folder, a single file, a tar or zip archive; archives are read, never unpacked."""

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from embedtrain.errors import EmbedtrainError

MARKDOWN = (".md", ".markdown")
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")


def is_page(name: str) -> bool:
    """Whether a name is that of a Markdown page: by its ending, and no part of it is hidden."""
    path = PurePosixPath(name)
    return path.suffix.lower() in MARKDOWN and not any(part.startswith(".") for part in path.parts)


def is_archive(path: Path) -> bool:
    """Whether a file is an archive by its name."""
    return path.is_file() and path.name.lower().endswith(ARCHIVES)


def holds_pages(folder: Path) -> bool:
    """Whether there is a Markdown page anywhere in a folder."""
    return any(is_page(file.relative_to(folder).as_posix()) for file in folder.rglob("*") if file.is_file())


def _checked(archive: Path, name: str) -> str:
    # An archive whose members climb out of it was made to do harm, or is broken: nothing of it is read.
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or (parts.parts and parts.parts[0].endswith(":")):
        raise EmbedtrainError(
            f"{archive} holds {name!r}, which climbs out of it; unpack it with care and give a folder"
        )
    return parts.as_posix()


def _from_tar(path: Path, dropped: Counter[str]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            name = _checked(path, member.name)
            if not is_page(name):
                continue
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                yield name, content.read()
            elif not member.isdir():
                dropped["link in an archive"] += 1


def _from_zip(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = _checked(path, member.filename)
            if is_page(name) and not member.is_dir():
                yield name, archive.read(member)


def read_pages(source: Path, dropped: Counter[str]) -> list[tuple[str, bytes]]:
    """The (name, bytes) of every Markdown page of a source, sorted by name.

    Raises EmbedtrainError where there is none, an archive is broken, or a member would climb out of it.
    """
    if source.is_dir():
        files = {file.relative_to(source).as_posix(): file for file in source.rglob("*") if file.is_file()}
        pages = [(name, file.read_bytes()) for name, file in files.items() if is_page(name)]
        closed = sum(is_archive(file) for file in files.values())
        if closed:
            dropped["archive in the folder, not opened"] += closed
    elif is_archive(source):
        try:
            pages = list(_from_zip(source) if source.suffix.lower() == ".zip" else _from_tar(source, dropped))
        except (
            tarfile.TarError,
            zipfile.BadZipFile,
            gzip.BadGzipFile,
            lzma.LZMAError,
            zlib.error,
            EOFError,
            RuntimeError,
        ) as error:
            why = str(error).partition("\n")[0].rstrip(":")
            raise EmbedtrainError(f"{source} is not a whole archive ({why}); fetch or make it again") from error
    else:
        pages = [(source.name, source.read_bytes())] if is_page(source.name) else []
    if not pages:
        raise EmbedtrainError(
            f"{source} holds no Markdown pages ({', '.join(MARKDOWN)}); check the path or --kind"
        )
    return sorted(pages)
