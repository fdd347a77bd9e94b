"""Tables of (query, document[, title]) pairs: JSONL, CSV, TSV, Parquet."""

from pathlib import Path

from embedtrain import readers
from embedtrain.collection import is_blank
from embedtrain.config import HarvestOptions
from embedtrain.console import Progress
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest.draft import Draft


def read(source: Path, options: HarvestOptions, draft: Draft, progress: Progress) -> None:
    """Add the pairs of a table to the draft as training pairs.

    One query with several documents stays one query with several positives; the same text is one document.
    """
    if options.query_column == options.document_column:
        raise UsageError("--query-column and --document-column name the same column; give two")
    count = 0
    unused: dict[str, None] = {}
    used = {options.query_column, options.document_column, options.title_column}
    for number, row in readers.rows(source, draft.dropped):
        count += 1
        missing = [name for name in (options.query_column, options.document_column) if name not in row]
        if missing:
            raise EmbedtrainError(
                f"{source} line {number} has no column {missing[0]!r}; its columns are: {', '.join(row) or 'none'}; "
                "say which to read with --query-column and --document-column"
            )
        query, document = (
            readers.as_text(readers.column(row, name, source, number), f"{source} line {number} column {name}")
            for name in (options.query_column, options.document_column)
        )
        title = readers.as_text(row.get(options.title_column), f"{source} line {number} column title")
        unused |= dict.fromkeys(name for name in row if name not in used)
        if is_blank(query):
            draft.dropped["empty query"] += 1
        elif is_blank(document):
            draft.dropped["empty document"] += 1
        else:
            identifier = draft.add_weak_document("" if is_blank(title) else title, document, {})
            draft.add_weak_pair(query, identifier, "table")
    if not count:
        raise EmbedtrainError(f"{source} is empty; a table needs rows")
    progress("read table", count, count, source.name)
    if unused:
        draft.notes.append(f"columns of {source.name} that are not read: {', '.join(unused)}")
