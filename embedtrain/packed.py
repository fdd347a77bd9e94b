"""Bytes out of files that may be packed with gzip or zstd, or come by standard input."""

import contextlib
import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

STANDARD_INPUT = Path("-")
ENDINGS = ("", ".gz", ".zst")


@contextlib.contextmanager
def open_packed(path: Path, ending: str) -> "Iterator[tuple[IO[bytes], Callable[[], tuple[int, int]]]]":
    """Yield a file's unpacked bytes, and a function that says how many of its own bytes are read, and of how many."""
    with contextlib.ExitStack() as stack:
        if path == STANDARD_INPUT:
            raw: IO[bytes] = sys.stdin.buffer
            total = 0
        else:
            raw = stack.enter_context(path.open("rb"))
            total = os.fstat(raw.fileno()).st_size

        def position() -> tuple[int, int]:
            return (raw.tell(), total) if total else (0, 0)

        if ending.endswith(".gz"):
            yield cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=raw))), position
        elif ending.endswith(".zst"):
            import pyarrow as pa

            stream = stack.enter_context(pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd"))
            yield cast(IO[bytes], io.BufferedReader(cast(Any, stream), 1 << 20)), position
        else:
            yield raw, position


def torn(error: Exception, ending: str) -> str:
    """What a file is not a whole one of, where `error` says that its packing is broken; "" where it says otherwise."""
    if isinstance(error, EOFError | gzip.BadGzipFile | zlib.error):
        return "gzip"
    # pyarrow's errors in a stream carry no number of the system's.
    return "zstd" if ending.endswith(".zst") and isinstance(error, OSError) and error.errno is None else ""
