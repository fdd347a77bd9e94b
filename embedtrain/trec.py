"""TREC run files, `qid Q0 docid rank score tag`: read as trec_eval reads them, written to come back whole.

The rank column is not believed: the order is that of the scores in float32, ties by document id ascending. Columns
are set apart by blanks, or by tabs where an id holds a blank.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from embedtrain import readers
from embedtrain.errors import EmbedtrainError


@dataclass(frozen=True)
class Ranked:
    """The documents of one query, best first."""

    ids: list[str]
    scores: np.ndarray  # (documents,) float32, descending


class ScoredHits(Protocol):
    """One array of corpus positions and one of float32 scores a query, best first."""

    @property
    def positions(self) -> Sequence[np.ndarray]: ...

    @property
    def scores(self) -> Sequence[np.ndarray]: ...


def _columns(line: str) -> list[str]:
    tabbed = line.split("\t")
    return tabbed if len(tabbed) == 6 else [part for part in re.split("[ \t]+", line) if part]


def read_run(path: Path) -> dict[str, Ranked]:
    """Read a run, gzipped or not: for every query its documents by score descending, then id ascending.

    Raises EmbedtrainError with file and line for a line of another shape, a score that is no finite number and a
    document listed twice for a query; also for a file without a line.
    """
    if not path.is_file():
        raise EmbedtrainError(f"run {path} does not exist; check the path")
    found: dict[str, dict[str, np.float32]] = {}
    for number, line in readers.lines(path):
        if not line.strip(" \t"):
            continue
        where = f"{path} line {number}"
        columns = _columns(line)
        if len(columns) != 6:
            raise EmbedtrainError(
                f"{where} has {len(columns)} columns; a run line is: qid Q0 docid rank score tag"
            )
        query, _, document, _, written, _ = columns
        readers.as_id(query, f"{where} column qid")
        readers.as_id(document, f"{where} column docid")
        documents = found.setdefault(query, {})
        if document in documents:
            raise EmbedtrainError(f"{where} lists document {document} for query {query} again; list each once")
        documents[document] = _score(written, where)
    if not found:
        raise EmbedtrainError(f"run {path} is empty; a run line is: qid Q0 docid rank score tag")
    return {query: _ranked(documents) for query, documents in found.items()}


def _score(written: str, where: str) -> np.float32:
    try:
        with np.errstate(over="ignore"):
            value = np.float32(float(written))
    except ValueError:
        value = np.float32(np.nan)
    if not np.isfinite(value):
        raise EmbedtrainError(f"{where} has the score {written!r}; a number that float32 can hold is needed")
    return value


def _ranked(documents: dict[str, np.float32]) -> Ranked:
    order = sorted(documents, key=lambda document: (-documents[document], document))
    return Ranked(order, np.array([documents[document] for document in order], dtype=np.float32))


def check_ids(ids: Iterable[str]) -> None:
    """Raise EmbedtrainError for an id that holds a tab or a line end: no reader of runs could tell where it ends."""
    for identifier in ids:
        if "\t" in identifier or "\n" in identifier or "\r" in identifier:
            raise EmbedtrainError(
                f"id {identifier!r} holds a tab or a line end, which no TREC run can; rename it in the collection"
            )


def write_run(path: Path, query_ids: Sequence[str], ids: Sequence[str], hits: ScoredHits, tag: str) -> None:
    """Write hits over documents `ids` as a run; a score is written with as many digits as float32 needs.

    Raises EmbedtrainError for an id that no run can hold (see `check_ids`).
    """
    shown = [ids[index] for index in sorted({int(i) for found in hits.positions for i in found})]
    check_ids([*query_ids, *shown])
    separator = "\t" if any(" " in identifier for identifier in [*query_ids, *shown]) else " "
    word = re.sub(r"\s+", "_", tag)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for query, found, scores in zip(query_ids, hits.positions, hits.scores, strict=True):
            for rank, (position, score) in enumerate(zip(found, scores, strict=True), start=1):
                line = (query, "Q0", ids[position], str(rank), str(np.float32(score)), word)
                file.write(separator.join(line) + "\n")
