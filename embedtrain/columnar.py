"""Rows out of Parquet and Arrow files, a part at a time."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from embedtrain.errors import EmbedtrainError
from embedtrain.packed import STANDARD_INPUT

Row = dict[str, Any]
# Who wants to know how far a file is read: called now and then with (done, total) in bytes, rows or blocks.
Seen = Callable[[int, int], None]

_BATCH = 8_192


def refuse_twice(path: Path, names: Sequence[str]) -> None:
    """Raise EmbedtrainError where a table has two columns of one name."""
    twice = [name for name in dict.fromkeys(names) if list(names).count(name) > 1]
    if twice:
        raise EmbedtrainError(f"{path} has the column {twice[0]!r} twice; rename one")


def parquet_rows(path: Path, seen: Seen | None) -> Iterator[tuple[int, Row]]:
    """Yield (row number from 1, row) of a Parquet file; EmbedtrainError where it is not whole."""
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            refuse_twice(path, file.schema_arrow.names)
            # One row group at a time, so that a batch is never larger than what was written at once.
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(batch_size=_BATCH, row_groups=[group]):
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
                    if seen:
                        seen(number, file.metadata.num_rows)
    except (OSError, ValueError) as error:
        raise EmbedtrainError(f"{path} is not a whole Parquet file ({error}); make it again") from error


def arrow_rows(path: Path, seen: Seen | None) -> Iterator[tuple[int, Row]]:
    """Rows of Arrow's file format (Feather's second version) or of its stream format, which `datasets` writes."""
    import pyarrow as pa

    number = 0
    try:
        with contextlib.ExitStack() as stack:
            if path == STANDARD_INPUT:
                reader = stack.enter_context(pa.ipc.open_stream(sys.stdin.buffer))
                batches, count = iter(reader), 0
            else:
                source = stack.enter_context(pa.memory_map(str(path)))
                magic = source.read(6)
                source.seek(0)
                if magic[:4] == b"FEA1":
                    raise EmbedtrainError(f"{path} is Feather's first version; write it anew in its second")
                if magic == b"ARROW1":
                    reader = stack.enter_context(pa.ipc.open_file(source))
                    count = reader.num_record_batches
                    batches = map(reader.get_batch, range(count))
                else:
                    reader = stack.enter_context(pa.ipc.open_stream(source))
                    batches, count = iter(reader), 0
            refuse_twice(path, reader.schema.names)
            for step, batch in enumerate(batches, start=1):
                for start in range(0, batch.num_rows, _BATCH):
                    for row in batch.slice(start, _BATCH).to_pylist():
                        number += 1
                        yield number, row
                if seen and count:
                    seen(step, count)
    except (OSError, ValueError) as error:
        raise EmbedtrainError(f"{path} is not a whole Arrow file ({error}); make it again") from error
