"""What a row of a table says: pairs of a query and a document, each with its grade, or why there is none."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from embedtrain import readers
from embedtrain.collection import is_blank
from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.identity import document_key
from embedtrain.harvest.tables import cells
from embedtrain.harvest.tables.cells import Text
from embedtrain.harvest.tables.lookup import Lookup
from embedtrain.harvest.tables.settings import Settings
from embedtrain.harvest.tables.shapes import Shape, is_list
from embedtrain.readers import Row


class Pair(NamedTuple):
    """A query and a document; grade 0: it is known not to answer the query."""

    query: str
    document: Text
    source: str
    grade: float = 1.0
    weight: float = 1.0
    time: float | None = None
    score: float | None = None  # what a teacher said of it, raw
    where: str = ""


class Drop(NamedTuple):
    """Something that is left out: why, and what it was."""

    reason: str
    row: dict[str, Any]


class Note(NamedTuple):
    """A sentence for the summary."""

    text: str


Found = Pair | Drop | Note

# Sources are called by what the pairs are; plain ones are of a table.
_SOURCE = {"pairs": "table", "lists": "table", "triplets": "table", "labelled": "table", "graph": "citation"}


def source_of(shape: Shape) -> str:
    """The name under which a shape's pairs are counted."""
    return _SOURCE.get(shape.name, shape.name)


class Reading:
    """Reads rows of one shape. What ids stand for is looked up where there is a `lookup`."""

    def __init__(self, shape: Shape, settings: Settings, lookup: Lookup | None) -> None:
        self._shape = shape
        self._settings = settings
        self._lookup = lookup

    def pairs(self, row: Row, where: str) -> Iterator[Pair | Drop]:
        """The pairs of a row, and what is left out. Raises EmbedtrainError for cells that cannot be read."""
        query = self.query(row, where)
        if isinstance(query, Drop):
            yield query
            return
        time = self.time(row, where)
        base = Pair(
            query, Text("", ""), source_of(self._shape), weight=self._settings.weight, time=time, where=where
        )
        yield from _READ.get(self._shape.name, Reading._lists)(self, row, where, base)

    def time(self, row: Row, where: str) -> float | None:
        """When the row was written; None where the table or the row does not say."""
        name = self._shape.time
        return cells.moment(row.get(name), f"{where} column {name}") if name else None

    def query(self, row: Row, where: str) -> "str | Drop":
        """The row's query: its columns joined with a blank, or what its id stands for."""
        name = self._shape.query[0]
        if self._shape.query_ids and self._lookup is not None:
            identifier = readers.as_id(row[name], f"{where} column {name}")
            found = self._lookup.query(identifier)
            if found is None:
                return Drop("unknown query id", {"query": identifier, "where": where})
        else:
            parts = (readers.as_text(row[name], f"{where} column {name}") for name in self._shape.query)
            found = (
                " ".join(part for part in parts if not is_blank(part))
                if len(self._shape.query) > 1
                else next(parts)
            )
        return Drop("empty query", {"where": where}) if is_blank(found) else found

    def document(self, value: Any, where: str, query: str) -> Text | Drop:
        """A document as a cell gives it, or what its id stands for."""
        if self._shape.document_ids and self._lookup is not None:
            identifier = cells.document_id(value, where)
            known = self._lookup.document(identifier)
            if known is None:
                return Drop("unknown document id", {"query": query, "document": identifier, "where": where})
            found = known
        else:
            found = cells.document(value, where)
        if is_blank(found.text) and is_blank(found.title):
            return Drop("empty document", {"query": query, "where": where})
        return found

    def _documents(self, row: Row, column: str, where: str, query: str, *, needed: bool) -> list[Text | Drop]:
        """The documents of a column; an empty cell is one that is missing where one is `needed`, else none."""
        place = f"{where} column {column}"
        value = row.get(column)
        values = cells.entries(value, listed=is_list(column))
        if not isinstance(value, list | tuple) and not is_list(column) and (value is None or value == ""):
            values = [""] if needed else []
        if values == [""]:
            return [Drop("empty document", {"query": query, "where": where})]
        return [self.document(value, place, query) for value in values]

    def _scores(self, row: Row, side: int, count: int, where: str) -> list[float | None]:
        name = next((name for name in self._shape.scores if name == ("pos_scores", "neg_scores")[side]), "")
        values = cells.entries(row.get(name), listed=True) if name else []
        if not values:
            return [None] * count
        if len(values) != count:
            raise EmbedtrainError(f"{where} column {name} has {len(values)} scores for {count} documents")
        return [cells.number(value, f"{where} column {name}", "a number") for value in values]

    def _lists(self, row: Row, where: str, base: Pair) -> Iterator[Pair | Drop]:
        sides: list[list[Pair]] = []
        for side, (columns, grade) in enumerate(((self._shape.positives, 1.0), (self._shape.negatives, 0.0))):
            documents = [
                found
                for column in columns
                for found in self._documents(row, column, where, base.query, needed=grade > 0)
            ]
            if grade and self._shape.title and len(documents) == 1 and isinstance(documents[0], Text):
                title = readers.as_text(row.get(self._shape.title), f"{where} column {self._shape.title}")
                documents = [documents[0]._replace(title="" if is_blank(title) else title)]
            kept: list[Pair] = []
            for document, score in zip(documents, self._scores(row, side, len(documents), where), strict=True):
                if isinstance(document, Drop):
                    yield document
                else:
                    kept.append(base._replace(document=document, grade=grade, score=score))
            if grade and not kept:
                if not documents:
                    yield Drop("row without a positive", {"query": base.query, "where": where})
                return  # negatives of nothing teach nothing
            sides.append(kept)
        positives, negatives = sides
        yield from positives
        known = {document_key(*pair.document[:2]) for pair in positives}
        for pair in negatives:
            if document_key(*pair.document[:2]) in known:
                yield Drop(
                    "negative that is a positive",
                    {"query": base.query, "document": pair.document.text, "where": where},
                )
            else:
                yield pair

    def _one(self, row: Row, where: str, base: Pair, grade: float, weight: float = 1.0) -> Iterator[Pair | Drop]:
        """The documents of a row that says the same of all of them."""
        title = self._shape.title
        for column in self._shape.positives:
            documents = self._documents(row, column, where, base.query, needed=True)
            for document in documents:
                if isinstance(document, Drop):
                    yield document
                    continue
                if title and len(documents) == 1:
                    said = readers.as_text(row.get(title), f"{where} column {title}")
                    document = document._replace(title="" if is_blank(said) else said)
                yield base._replace(document=document, grade=grade, weight=base.weight * weight)

    def _graded(self, row: Row, where: str, base: Pair) -> Iterator[Pair | Drop]:
        label = self._shape.label
        place = f"{where} column {label}"
        grade = cells.number(row.get(label), place, "a grade as 0 or 1 (--shape pairs does not read the column)")
        if not grade.is_integer() or (self._shape.name == "duplicates" and grade not in (0, 1)):
            raise EmbedtrainError(
                f"{place} is {row[label]!r}, not a grade; scores are read with --score-column and --min-score"
            )
        yield from self._one(row, where, base, max(grade, 0.0))

    def _nli(self, row: Row, where: str, base: Pair) -> Iterator[Pair | Drop]:
        said = cells.entailment(row.get(self._shape.label), f"{where} column {self._shape.label}")
        if said in ("neutral", "none"):
            reason = "neutral" if said == "neutral" else "without a gold label"
            yield Drop(reason, {"query": base.query, "where": where})
        else:
            yield from self._one(row, where, base, float(said == "entailment"))

    def _by_score(self, score: float, where: str, query: str) -> tuple[float, float] | Drop:
        """Grade and weight of a score."""
        least, below = self._settings.min_score, self._settings.negatives_below
        assert least is not None
        if score >= least:
            if score <= 0:
                raise EmbedtrainError(
                    f"{where} is {score:g}: a positive's score becomes its weight and must be above 0; give a higher --min-score"
                )
            return 1.0, score
        if below is not None and score < below:
            return 0.0, 1.0
        return Drop("score below --min-score", {"query": query, "score": score, "where": where})

    def _scored(self, row: Row, where: str, base: Pair) -> Iterator[Pair | Drop]:
        place = f"{where} column {self._shape.label}"
        if row.get(self._shape.label) in (None, ""):
            yield Drop("without a score", {"query": base.query, "where": where})
            return
        found = self._by_score(cells.number(row[self._shape.label], place, "a score"), place, base.query)
        if isinstance(found, Drop):
            yield found
        else:
            yield from self._one(row, where, base, *found)

    def _labelled(self, row: Row, where: str, base: Pair) -> Iterator[Pair | Drop]:
        column, label = self._shape.positives[0], self._shape.label
        documents = self._documents(row, column, where, base.query, needed=False)
        place = f"{where} column {label}"
        labels = [cells.number(v, place, "a number") for v in cells.entries(row.get(label), listed=True)]
        if len(labels) != len(documents):
            raise EmbedtrainError(f"{place} has {len(labels)} labels for {len(documents)} documents")
        for document, value in zip(documents, labels, strict=True):
            if isinstance(document, Drop):
                yield document
            elif self._settings.min_score is not None:
                found = self._by_score(value, place, base.query)
                if isinstance(found, Drop):
                    yield found
                else:
                    grade, weight = found
                    yield base._replace(document=document, grade=grade, weight=base.weight * weight, score=value)
            elif not value.is_integer():
                raise EmbedtrainError(
                    f"{place} holds {value:g}, a score; say from which one on is positive: --min-score"
                )
            else:
                yield base._replace(document=document, grade=max(value, 0.0))


_READ: dict[str, Callable[[Reading, Row, str, Pair], Iterator[Pair | Drop]]] = {
    "graded": Reading._graded,
    "qrels": Reading._graded,
    "duplicates": Reading._graded,
    "nli": Reading._nli,
    "scored": Reading._scored,
    "labelled": Reading._labelled,
}
