"""`mine`: for every query of a split, candidates by BM25 and models, and which of them become its negatives."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from embedtrain import memory, mined, negatives, sampling
from embedtrain.approximate import check_index
from embedtrain.artifacts import Claim, require_kind
from embedtrain.audit import Audit
from embedtrain.bm25 import check_options
from embedtrain.candidates import Block, Ints, Ragged, extended, joined
from embedtrain.collection import Collection, is_blank
from embedtrain.config import MineOptions, dense_names, is_dense
from embedtrain.console import Progress
from embedtrain.duplicates import BLANK, Duplicates, fingerprint
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.hits import Hits, Ties
from embedtrain.models import find_model
from embedtrain.negatives import Labels, lowest
from embedtrain.retrievers import Dense, Lexical, Retriever


@dataclasses.dataclass(frozen=True)
class Query:
    """A query with its positives in file order, and the documents judged not relevant.

    `known` are all documents known to be right: blank ones, and those of other queries with the same text, too.
    """

    id: str
    text: str
    fingerprint: int
    positives: list[str]
    known: frozenset[str]
    judged: list[str]


def mine(
    claim: Claim,
    options: MineOptions,
    collection_path: Path,
    models: Sequence[str],
    progress: Progress,
    *,
    again: Path | None = None,
    allowed: int | None = None,
) -> Collection:
    """Mine the queries of a split with BM25 and `models`, as far as asked for, and write the artifact.

    With `again`, the candidates are those of that mined artifact, and only the choice is made anew. `allowed` bounds
    the memory of search and choice, in bytes (see `memory`). Returns the collection it has read, for whoever wants
    to show texts.
    Raises UsageError for options that cannot be, EmbedtrainError for a split that is not there or holds no query to
    mine for.
    """
    check(options)
    collection = Collection(collection_path)
    queries, dropped = read_queries(collection, options.split, options.limit)
    choice = Choice(collection, queries, options)
    allowed = memory.allowed("") if allowed is None else allowed
    found, facts = None, {}
    if again is None:
        found = retrieve(collection, queries, options, models, progress, allowed)
        blocks = found.blocks(choice, progress)
    else:
        facts = _facts_again(again)
        together = memory.chosen_together(allowed, options.top_k * len(options.retrievers))
        blocks = _blocks_again(again, choice, together)
    with claim.table_writer(mined.schema("mined", choice.retrievers)) as writer:
        for block in blocks:
            writer.write(choice.table(block))
            if again is not None:
                progress("choose negatives", choice.done, len(queries), "")
        if not choice.kept:
            raise EmbedtrainError(
                f"--min-negatives {options.min_negatives} leaves none of {choice.done:,} queries; lower it, or search "
                "deeper with --top-k"
            )
        dropped.update(choice.dropped)
        facts = found.facts if found else facts
        summary = {**choice.audit.numbers(), **facts, "notes": notes(choice, facts)}
        writer.finish(dropped=dict(dropped), summary=summary)
    return collection


def check(options: MineOptions) -> None:
    """Raise UsageError for options that no run can have."""
    check_options(options)
    check_index(options.index)
    sampling.check_sampler(options.sampling)
    sampling.parse_mix(options.mix, options.retrievers)
    negatives.parse_ranks(options.ranks)
    if not any(is_dense(name) for name in options.retrievers):
        for flag in ("max_score", "min_score", "max_margin"):
            if getattr(options, flag) is not None:
                raise UsageError(f"--{flag.replace('_', '-')} reads dense scores, and BM25 is alone; leave it out")


def read_queries(collection: Collection, split: str, limit: int | None) -> tuple[list[Query], Counter[str]]:
    """The first `limit` queries of a split that can be mined for, in file order, and counts of what was left out.

    Blank texts teach nothing: a blank query is left out, a blank positive too, and a query without another one.
    """
    qrels = collection.qrels(split)
    fingerprints = {identifier: fingerprint(collection.queries.by_id(identifier)) for identifier in qrels}
    blank: dict[str, bool] = {}

    def without_text(document: str) -> bool:
        if document not in blank:
            blank[document] = is_blank(collection.corpus.by_id(document))
        return blank[document]

    known: dict[int, set[str]] = {}
    for identifier, judged in qrels.items():
        right = known.setdefault(fingerprints[identifier], set())
        right.update(document for document, grade in judged.items() if grade > 0)
    queries: list[Query] = []
    dropped: Counter[str] = Counter()
    for number, (identifier, judged) in enumerate(qrels.items()):
        if limit is not None and len(queries) == limit:
            dropped["query beyond --limit"] = len(qrels) - number
            break
        named = [document for document, grade in judged.items() if grade > 0]
        positives = [document for document in named if not without_text(document)]
        if not named:
            dropped["query without a positive"] += 1
        elif fingerprints[identifier] == BLANK:
            dropped["query without text"] += 1
        else:
            if len(positives) < len(named):
                dropped["positive without text"] += len(named) - len(positives)
            if positives:
                right = known[fingerprints[identifier]]
                wrong = [document for document, grade in judged.items() if grade <= 0]
                text = collection.queries.by_id(identifier)
                queries.append(
                    Query(identifier, text, fingerprints[identifier], positives, frozenset(right), wrong)
                )
            else:
                dropped["query whose positives have no text"] += 1
    if not queries:
        raise EmbedtrainError(
            f"split {split!r} of {collection.path} has no query with text and a positive with text; "
            f"choose another --split: {', '.join(collection.splits)}"
        )
    return queries, dropped


@dataclasses.dataclass(frozen=True)
class Found:
    """Retrievers that find candidates for the queries when they are asked, within so many bytes of memory."""

    retrievers: list[Retriever]
    allowed: int
    dimension: int

    @property
    def facts(self) -> dict[str, Any]:
        """What the retrievers have to say for the summary, once all is searched."""
        return {name: value for retriever in self.retrievers for name, value in retriever.facts.items()}

    def blocks(self, choice: "Choice", progress: Progress) -> Iterator[Block]:
        """Candidates and scores of the queries, a block at a time."""
        options, count = choice.options, len(choice.queries)
        ties = Ties(choice.collection.corpus.ids)
        together = memory.chosen_together(self.allowed, options.top_k * len(self.retrievers))
        searched = memory.searched_together(self.allowed, options.top_k, self.dimension)
        for first in range(0, count, searched):
            rows = slice(first, min(first + searched, count))
            told = progress if rows.stop - first == count else _for_some(progress, rows)
            lists = {retriever.name: retriever.search(rows, options.top_k, told) for retriever in self.retrievers}
            for start in range(first, rows.stop, together):
                own = slice(start - first, start - first + together)
                part = {name: Hits(hits.positions[own], hits.scores[own]) for name, hits in lists.items()}
                yield self._block(part, choice, start, ties)
                progress("choose negatives", choice.done, count, "")

    def _block(self, lists: dict[str, Hits], choice: "Choice", start: int, ties: Ties) -> Block:
        first = next(iter(lists.values()))
        labels = choice.labels(choice.queries[start : start + len(first)])
        union = joined(lists, ties, choice.options.top_k * len(lists))
        candidates = extended(extended(union, labels.judged), choice.drawn(labels))
        of_positives = {}
        for retriever in self.retrievers:
            scores = candidates.scores[retriever.name]
            open_ = np.isnan(scores)
            scores[open_] = retriever.score(start + candidates.owners[open_], candidates.values[open_])
            of_positives[retriever.name] = retriever.score(
                start + labels.positives.owners, labels.positives.values
            )
        return Block(labels.ids, labels.positives, of_positives, candidates)


def _for_some(progress: Progress, rows: slice) -> Progress:
    """Progress that says which queries it is about."""
    which = f"for queries {rows.start + 1:,} to {rows.stop:,}"
    return lambda what, done, total, note: progress(f"{what} {which}", done, total, note)


def retrieve(
    collection: Collection,
    queries: Sequence[Query],
    options: MineOptions,
    models: Sequence[Any],
    progress: Progress,
    allowed: int,
) -> Found:
    """The retrievers of `options`; `models` are names of models, or encoders, one a dense retriever."""
    texts = [query.text for query in queries]
    retrievers: list[Retriever] = []
    encoders = dict(zip(dense_names(len(models)), models, strict=True))
    dimension = 0
    for name in options.retrievers:
        if is_dense(name):
            encoder = _encoder(encoders[name], options.precision)
            retriever = Dense(name, encoder, texts, collection.corpus, options, progress, allowed)
            dimension = max(dimension, retriever.dimension)
            retrievers.append(retriever)
        else:
            retrievers.append(Lexical(texts, collection.corpus, options, progress, allowed))
    return Found(retrievers, allowed, dimension)


def _encoder(model: Any, precision: str) -> Any:
    if not isinstance(model, str):
        return model
    from embedtrain.encoder import Encoder  # BM25 alone needs no torch

    return Encoder.load(find_model(model), wanted=precision)


class Choice:
    """Chooses negatives for blocks of queries, and keeps count of what it did."""

    def __init__(self, collection: Collection, queries: Sequence[Query], options: MineOptions) -> None:
        self.collection = collection
        self.queries = list(queries)
        self.options = options
        self.retrievers = list(options.retrievers)
        self.mix = sampling.parse_mix(options.mix, self.retrievers)
        self.wanted = sum(self.mix.values()) if self.mix else options.negatives
        self.dense = [name for name in self.retrievers if is_dense(name)]
        self.audit = Audit(self.retrievers, self.dense, self.wanted)
        self.dropped: Counter[str] = Counter()
        self.done = self.kept = 0
        self._duplicates = Duplicates(collection.corpus)
        self._groups = _numbered(collection, options.group_column) if options.group_column else None
        self._corpus_ids = pa.array(collection.corpus.ids, pa.string())
        self._by_id = {query.id: query for query in self.queries}
        self._order: Ints | None = None

    @property
    def corpus_ids(self) -> pa.Array:
        """The ids of the corpus, in its order."""
        return self._corpus_ids

    def labels(self, queries: Sequence[Query]) -> Labels:
        """What is known of some queries."""
        position = self.collection.corpus.position

        def places(lists: list[list[str]]) -> Ragged:
            return Ragged.of([[position[document] for document in part] for part in lists])

        return Labels(
            [query.id for query in queries],
            places([query.positives for query in queries]),
            places([sorted(query.known) for query in queries]),
            places([query.judged for query in queries]),
            np.array([query.fingerprint for query in queries], dtype=np.int64),
            np.array([position.get(query.id, -1) for query in queries], dtype=np.int64),
        )

    def drawn(self, labels: Labels) -> Ragged:
        """Documents drawn at random for each query, as many as a mix may need; none without one."""
        count = self.mix.get(sampling.RANDOM, 0)
        if not count:
            return Ragged.of([[] for _ in labels.ids])
        ids = self.collection.corpus.ids
        if self._order is None:  # by id: the order of the corpus decides nothing
            self._order = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
        seed = self.options.seed
        return Ragged.of([self._order[sampling.draw(len(ids), count, seed, query)] for query in labels.ids])

    def table(self, block: Block) -> pa.Table:
        """The rows of a block with their negatives chosen; rows with too few of them are left out and counted."""
        queries = [self._by_id[identifier] for identifier in block.query_ids]
        labels = self.labels(queries)
        candidates, options = block.candidates, self.options
        dense_scores = {name: block.positive_scores[name] for name in self.dense}
        codes = negatives.judge(candidates, labels, self._duplicates, self._groups, dense_scores, options)
        codes, selected = sampling.select(
            candidates,
            codes,
            labels,
            {name: lowest(scores, block.positives) for name, scores in block.positive_scores.items()},
            negatives=options.negatives,
            mix=self.mix,
            main=(self.dense or self.retrievers)[0],
            way=options.sampling,
            seed=options.seed,
        )
        self.done += len(queries)
        if options.min_negatives:
            enough = np.bincount(candidates.owners[selected], minlength=len(queries)) >= options.min_negatives
            self.dropped[f"query with fewer than {options.min_negatives} negatives"] += int((~enough).sum())
            kept = enough[candidates.owners]
            block, candidates = block.only(enough), candidates.only(enough)
            codes, selected = codes[kept], selected[kept]
        self.kept += len(block.query_ids)
        self.audit.add(block, codes, selected, self.collection.corpus.ids)
        return mined.to_batch(block, self._corpus_ids, codes, selected)


def _numbered(collection: Collection, column: str) -> Ints:
    """The values of a corpus column as numbers from 1, 0 where there is none."""
    numbers: dict[str, int] = {}
    values = collection.corpus_column(column)
    return np.array([numbers.setdefault(v, len(numbers) + 1) if v else 0 for v in values], dtype=np.int64)


def _blocks_again(path: Path, choice: Choice, together: int) -> Iterator[Block]:
    wanted = {query.id for query in choice.queries}
    for block in mined.read_blocks(path, choice.corpus_ids, together):
        foreign = [identifier for identifier in block.query_ids if identifier not in wanted]
        if foreign:
            raise EmbedtrainError(
                f"{path} has the query {foreign[0]}, which its split no longer has; mine it again without --reselect"
            )
        yield block


def _facts_again(path: Path) -> dict[str, Any]:
    summary = require_kind(path, "mined")["summary"]
    kept = (
        "language",
        "documents_without_tokens",
        "queries_without_tokens",
        "queries_without_lexical_match",
        "model",
        "index",
    )
    return {name: value for name, value in summary.items() if name.startswith(kept)}


def notes(choice: Choice, facts: dict[str, Any]) -> list[str]:
    """Sentences on what a reader of the summary should know."""
    options = choice.options
    found = choice.audit.notes(options.max_ratio if choice.dense else None)
    if options.max_ratio is not None and not choice.dense:
        found.insert(
            0, f"the rule --max-ratio {options.max_ratio:g} was off: it reads dense scores, and BM25 was alone"
        )
    blind = facts.get("queries_without_tokens", 0)
    if blind > choice.done / 100:
        found.append(
            f"{blind:,} of {choice.done:,} queries hold no token for BM25 with --language {facts['language']}"
        )
    return found
