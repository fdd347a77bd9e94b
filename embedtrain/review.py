"""Doubtful negatives for a person to judge, as a table, and that person's judgements back from it."""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from embedtrain import atomic, readers
from embedtrain.collection import Collection
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.mined import MinedRow
from embedtrain.negatives import ELIGIBLE, SELECTED

# Candidates a review holds.
SHOWN = 20

COLUMNS = ("query_id", "document_id", "label", "teacher", "lowest_positive", "query", "document", "positive")
_WORDS = {"positive": True, "yes": True, "1": True, "negative": False, "no": False, "0": False}

Labels = dict[str, dict[str, bool]]


def doubtful(
    rows: Sequence[MinedRow], labels: Mapping[str, Mapping[str, bool]]
) -> list[tuple[float, MinedRow, int]]:
    """The candidates of negatives that the teacher scores highest above the lowest positive of their row.

    (margin, row, index) of SHOWN at most, the most confident first; those that have a label are left out.
    """
    found = [
        (score - min(row.positive_teacher), row, index)
        for row in rows
        if row.positive_teacher and row.candidate_teacher
        for index, score in enumerate(row.candidate_teacher)
        if score is not None
        and row.reason[index] in (SELECTED, ELIGIBLE)
        and row.candidate_ids[index] not in labels.get(row.query_id, {})
    ]
    found.sort(key=lambda one: (-one[0], one[1].query_id, one[1].candidate_ids[one[2]]))
    return [one for one in found[:SHOWN] if one[0] > 0]


def check(path: Path, labels: Path | None) -> None:
    """Refuse a place for a review that holds a person's labels, or is where they are read from; UsageError."""
    if labels is not None and path.resolve() == labels.resolve():
        raise UsageError(
            f"--review {path} is also the file of --labels, which it would replace; name another file"
        )
    if path.is_file() and any(str(row.get("label") or "").strip() for _, row in readers.rows(path)):
        raise UsageError(
            f"--review {path} holds labels, which would be lost; name another file, and this one with --labels"
        )
    atomic.ensure_writable(path)


def write(path: Path, rows: Sequence[MinedRow], collection: Collection, labels: Labels) -> int:
    """Write the doubtful candidates as CSV with an empty column `label`; how many there are."""
    shown = doubtful(rows, labels)
    with atomic.atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for _, row, index in shown:
            assert row.positive_teacher is not None
            assert row.candidate_teacher is not None
            lowest = min(range(len(row.positive_ids)), key=row.positive_teacher.__getitem__)
            document = row.candidate_ids[index]
            table.writerow(
                [
                    row.query_id,
                    document,
                    "",
                    f"{row.candidate_teacher[index]:.4f}",
                    f"{row.positive_teacher[lowest]:.4f}",
                    collection.queries.by_id(row.query_id),
                    collection.corpus.by_id(document),
                    collection.corpus.by_id(row.positive_ids[lowest]),
                ]
            )
    return len(shown)


def read(path: Path) -> tuple[Labels, dict[str, int]]:
    """Judgements by query and document, True: relevant; and what was left out, counted.

    Raises EmbedtrainError naming the line of a label that is no word for it, and of a pair with two different ones.
    """
    labels: Labels = {}
    dropped: Counter[str] = Counter()
    for number, row in readers.rows(path, dropped):
        query, document = (
            readers.as_id(readers.column(row, name, path, number), f"{path} line {number}: {name}")
            for name in ("query_id", "document_id")
        )
        word = str(readers.column(row, "label", path, number) or "").strip().lower()
        if not word:
            dropped["pair without a label"] += 1
            continue
        if word not in _WORDS:
            raise EmbedtrainError(
                f"{path} line {number}: label {word!r} is none of {', '.join(_WORDS)}; write positive or negative, or "
                "leave it empty"
            )
        if labels.setdefault(query, {}).setdefault(document, _WORDS[word]) != _WORDS[word]:
            raise EmbedtrainError(
                f"{path} line {number}: query {query} and document {document} were labelled the other way before; "
                "keep one of the two lines"
            )
    return labels, dict(dropped)
