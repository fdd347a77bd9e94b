"""The formats that are folders: BEIR's, and MS MARCO's tables without headers."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from embedtrain.collection import Collection
from embedtrain.exchange.formats import Export
from embedtrain.exchange.rows import of_mined
from embedtrain.tabular import write_jsonl, write_tsv

_BREAKS = re.compile(r"[\t\r\n]")


def beir(work: Export, folder: Path) -> int:
    """Corpus, queries and the judgements of every split; returns how many documents."""
    corpus, queries = work.collection.corpus, work.collection.queries
    count = write_jsonl(
        folder / "corpus.jsonl",
        (
            {"_id": identifier, "title": corpus.title(place), "text": corpus.body(place)}
            for place, identifier in enumerate(corpus.ids)
        ),
    )
    write_jsonl(
        folder / "queries.jsonl",
        ({"_id": identifier, "text": queries.body(place)} for place, identifier in enumerate(queries.ids)),
    )
    (folder / "qrels").mkdir()
    for split in work.collection.splits:
        rows = _judgements(work.collection, split)
        write_tsv(folder / "qrels" / f"{split}.tsv", rows, ("query-id", "corpus-id", "score"))
    return count


def _judgements(collection: Collection, split: str) -> Iterator[tuple[str, str, str]]:
    for query, judged in collection.qrels(split).items():
        for document, grade in judged.items():
            yield query, document, str(int(grade) if grade.is_integer() else grade)


def msmarco(work: Export, folder: Path) -> int:
    """Texts by id, and the judgements of a split or the triples of an artifact; returns how many documents."""
    corpus, queries = work.collection.corpus, work.collection.queries
    changed = Counter[str]()

    def plain(text: str, noun: str) -> str:
        found = _BREAKS.sub(" ", text)
        changed[noun] += found != text
        return found

    count = write_tsv(
        folder / "collection.tsv",
        ((identifier, plain(corpus.text(place), "documents")) for place, identifier in enumerate(corpus.ids)),
    )
    write_tsv(
        folder / "queries.tsv",
        ((identifier, plain(queries.body(place), "queries")) for place, identifier in enumerate(queries.ids)),
    )
    for noun, number in sorted(changed.items()):
        if number:
            work.tally.notes.append(f"tabs and line ends of {number:,} {noun} became blanks")
    if titled := sum(bool(corpus.title(place)) for place in range(len(corpus))):
        work.tally.notes.append(f"titles of {titled:,} documents were put in front of their texts")
    if work.mined is None:
        rows = ((query, "0", *rest) for query, *rest in _judgements(work.collection, work.options.split))
        write_tsv(folder / "qrels.tsv", rows)
        return count
    write_tsv(
        folder / "qrels.tsv",
        (
            (example.query, "0", positive.id, "1")
            for example in of_mined(work.mined, work.collection)
            for positive in example.positives
        ),
    )
    write_tsv(folder / "triples.tsv", _triples(work))
    return count


def _triples(work: Export) -> Iterator[tuple[str, str, str]]:
    for example in work.examples():
        if not example.negatives:
            work.tally.dropped["query without a negative"] += 1
        for positive in example.positives:
            for negative in example.negatives:
                yield example.query, positive.id, negative.id
