"""The rows of each format, made of queries with their positives and negatives as they come."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from embedtrain.collection import Collection
from embedtrain.config import ExportOptions
from embedtrain.console import Progress
from embedtrain.errors import EmbedtrainError
from embedtrain.exchange.rows import Example, Judged, of_mined, of_qrels
from embedtrain.readers import Row
from embedtrain.tabular import TEXT, write_jsonl, write_parquet

FOLDERS = ("beir", "msmarco")
TABLES = ("triplets", "tuples", "lists")  # Parquet or JSONL
JSONL = ("flagembedding", "tevatron")
FORMATS = (*FOLDERS, *TABLES, *JSONL)
LABELS = ("grades", "scores")

_SAY_EVERY = 1_000


@dataclass
class Exported:
    """What was written: rows, what was left out and why, and what is to be said."""

    rows: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


class Export:
    """One export: where texts come from, and the tally of what is left out."""

    def __init__(
        self, collection: Collection, mined: Path | None, scored: bool, options: ExportOptions, progress: Progress
    ) -> None:
        self.collection = collection
        self.mined = mined
        self.scored = scored
        self.options = options
        self.progress = progress
        self.tally = Exported()

    def examples(self) -> Iterator[Example]:
        """The queries with a positive, in their order."""
        found = (
            of_mined(self.mined, self.collection) if self.mined else of_qrels(self.collection, self.options.split)
        )
        total = len(self.collection.queries)
        for count, example in enumerate(found, start=1):
            if count % _SAY_EVERY == 0:
                self.progress("export", count, total, "queries")
            if example.positives:
                yield example
            else:
                self.tally.dropped["query without a positive"] += 1

    def query(self, example: Example) -> str:
        return self.collection.queries.by_id(example.query)

    def texts(self, documents: list[Judged]) -> list[str]:
        return [self.collection.corpus.by_id(document.id) for document in documents]

    # -- sentence-transformers -----------------------------------------------------------------------------------

    def triplets(self) -> Iterator[Row]:
        """Each positive of a query with each of its negatives."""
        for example in self.examples():
            if not example.negatives:
                self.tally.dropped["query without a negative"] += 1
            query, negatives = self.query(example), self.texts(example.negatives)
            for positive in self.texts(example.positives):
                for negative in negatives:
                    yield {"query": query, "positive": positive, "negative": negative}
        self.tally.notes.append("each positive of a query stands with each of its negatives")

    def width(self) -> int:
        """How many negatives most queries have; of several numbers as common, the smallest."""
        if self.options.negatives is not None:
            return self.options.negatives
        found = (
            of_mined(self.mined, self.collection) if self.mined else of_qrels(self.collection, self.options.split)
        )
        counts = Counter(len(example.negatives) for example in found)
        return min(counts, key=lambda count: (-counts[count], count)) if counts else 0

    def tuples(self, width: int) -> Iterator[Row]:
        """A row a positive, with the first `width` negatives of its query."""
        for example in self.examples():
            if len(example.negatives) < width:
                self.tally.dropped[f"positive with fewer than {width} negatives"] += len(example.positives)
                continue
            self.tally.dropped["negative beyond --negatives"] += len(example.negatives) - width
            query, negatives = self.query(example), self.texts(example.negatives[:width])
            for positive in self.texts(example.positives):
                columns = {f"negative_{place}": text for place, text in enumerate(negatives, start=1)}
                yield {"query": query, "positive": positive, **columns}

    def ragged(self) -> Iterator[Row]:
        """A row a positive, with all negatives of its query in a list."""
        for example in self.examples():
            query, negatives = self.query(example), self.texts(example.negatives[: self.options.negatives])
            self.tally.dropped["negative beyond --negatives"] += len(example.negatives) - len(negatives)
            for positive in self.texts(example.positives):
                yield {"query": query, "positive": positive, "negatives": negatives}

    def lists(self) -> Iterator[Row]:
        """A row a query: all its documents, positives first, each with its grade or its score."""
        for example in self.examples():
            documents = [*example.positives, *example.negatives]
            if self.options.labels == "scores":
                documents = self._with_score(documents)
                labels = [document.score for document in documents]
            else:
                labels = [document.grade for document in documents]
            yield {"query": self.query(example), "documents": self.texts(documents), "labels": labels}

    def _with_score(self, documents: list[Judged]) -> list[Judged]:
        kept = [document for document in documents if document.score is not None]
        self.tally.dropped["document without a score"] += len(documents) - len(kept)
        return kept

    # -- JSONL of others -----------------------------------------------------------------------------------------

    def flagembedding(self) -> Iterator[Row]:
        """A row a query: texts of its positives and negatives, and scores where a teacher gave them."""
        for example in self.examples():
            sides = {"pos": example.positives, "neg": example.negatives}
            if self.scored:
                sides = {name: self._with_score(documents) for name, documents in sides.items()}
            row: Row = {"query": self.query(example)} | {name: self.texts(side) for name, side in sides.items()}
            if self.scored:
                row |= {f"{name}_scores": [document.score for document in side] for name, side in sides.items()}
            yield row

    def tevatron(self) -> Iterator[Row]:
        """A row a query: ids, titles and texts of its documents."""
        corpus = self.collection.corpus

        def objects(documents: list[Judged]) -> list[Row]:
            places = [corpus.position[document.id] for document in documents]
            return [
                {"docid": corpus.ids[place], "title": corpus.title(place), "text": corpus.body(place)}
                for place in places
            ]

        for example in self.examples():
            yield {
                "query_id": example.query,
                "query": self.query(example),
                "positive_passages": objects(example.positives),
                "negative_passages": objects(example.negatives),
            }

    def table(self) -> tuple[Iterator[Row], pa.Schema]:
        """The rows of a file, and its columns where it is Parquet."""
        options = self.options
        pair = [("query", TEXT), ("positive", TEXT)]
        if options.to == "triplets":
            return self.triplets(), pa.schema([*pair, ("negative", TEXT)])
        if options.to == "lists":
            # A grade that is whole is an integer to losses that count with it.
            label = pa.float64() if options.labels == "scores" or not self._whole() else pa.int64()
            return self.lists(), pa.schema([pair[0], ("documents", pa.list_(TEXT)), ("labels", pa.list_(label))])
        if options.ragged:
            return self.ragged(), pa.schema([*pair, ("negatives", pa.list_(TEXT))])
        width = self.width()
        self.tally.notes.append(f"{width} negatives a row")
        return self.tuples(width), pa.schema([*pair, *((f"negative_{n}", TEXT) for n in range(1, width + 1))])

    def _whole(self) -> bool:
        if self.mined:
            return True
        return all(
            g.is_integer()
            for judged in self.collection.qrels(self.options.split).values()
            for g in judged.values()
        )

    def write_file(self, path: Path, *, parquet: bool) -> None:
        """Write the file of a format."""
        if self.options.to in JSONL:
            rows: Iterator[Row] = getattr(self, self.options.to)()
            self.tally.rows = write_jsonl(path, rows)
            return
        rows, schema = self.table()
        if self.options.to == "lists" and schema.field("labels").type.value_type == pa.int64():
            rows = (row | {"labels": [int(label) for label in row["labels"]]} for row in rows)
        self.tally.rows = write_parquet(path, rows, schema) if parquet else write_jsonl(path, rows)

    def close(self) -> Exported:
        """What was written; EmbedtrainError where it is nothing."""
        tally = self.tally
        tally.dropped = Counter({reason: count for reason, count in sorted(tally.dropped.items()) if count})
        if not tally.rows:
            why = ", ".join(f"{reason} {count:,}" for reason, count in tally.dropped.items()) or "no queries"
            hint = "" if self.mined else "; negatives are mined with: embedtrain mine"
            raise EmbedtrainError(f"nothing is left to export as {self.options.to} ({why}){hint}")
        return tally
