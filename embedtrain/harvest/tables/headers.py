"""Tables without a header: MS MARCO's triples, and qrels."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from embedtrain import readers
from embedtrain.collection import judgements
from embedtrain.columnar import Row, Seen
from embedtrain.errors import UsageError
from embedtrain.harvest.tables.settings import Settings
from embedtrain.harvest.tables.shapes import NAMES, TRIPLES
from embedtrain.readers import Bad

MSMARCO, QRELS = "msmarco", "qrels"
_WORDS = 4  # from so many words on a field is a text, not a column's name


def rows_without_header(
    path: Path, shape: str, format: str, dropped: Counter[str], bad: Bad, seen: Seen
) -> Iterator[tuple[int, Row]]:
    """Yield (line number, row) of a file without a header, its columns called as the shape calls them."""
    if shape == MSMARCO:
        return readers.rows(path, dropped, format=format, columns=TRIPLES, bad=bad, seen=seen)
    return (
        (number, {"query-id": query, "corpus-id": document, "score": grade})
        for number, (query, document, grade) in judgements(path)
    )


def headless(path: Path, settings: Settings) -> str:
    """The shape of a TSV file that has no header (MS MARCO's triples, qrels); "" where it has one.

    Raises UsageError where three columns of numbers may be either.
    """
    if readers.kind_of(path, settings.input_format) != ".tsv" or settings.shape not in (
        "auto",
        MSMARCO,
        QRELS,
    ):
        return ""
    if path == readers.STANDARD_INPUT:
        # Nobody can look at its first line and put it back.
        return MSMARCO if settings.shape == MSMARCO else ""
    line = next(readers.lines(path, settings.input_format), (1, ""))[1]
    first = line.split("\t") if "\t" in line else line.split()
    if settings.named or not NAMES.isdisjoint(field.strip().lower() for field in first):
        return ""
    if settings.shape == MSMARCO:
        return MSMARCO
    numeric = first[-1].strip().lstrip("-").isdigit()
    if settings.shape == QRELS or (len(first) == 4 and numeric and first[1].strip() in ("0", "Q0")):
        return QRELS
    if len(first) != 3:
        return ""
    if all(len(field.split()) >= _WORDS for field in first[1:]):
        return MSMARCO
    if settings.collection and "triples" in path.name:
        return MSMARCO
    if settings.collection and numeric:
        if "qrels" in path.name:
            return QRELS
        raise UsageError(
            f"{path} has three columns of ids or numbers; say what they are: --shape msmarco or qrels"
        )
    return ""
