"""`mine`: for every query of a split, candidates by BM25 and a model, and which of them become its negatives."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from embedtrain import mined, negatives, search
from embedtrain.artifacts import Claim
from embedtrain.bm25 import BM25, check_options
from embedtrain.collection import Collection
from embedtrain.config import MineOptions
from embedtrain.console import Progress
from embedtrain.errors import EmbedtrainError
from embedtrain.mined import MinedRow
from embedtrain.models import find_model
from embedtrain.search import Hits

if TYPE_CHECKING:
    from embedtrain.encoder import Encoder


@dataclass(frozen=True)
class Query:
    """A query with its positives in file order.

    `known` are all documents known to be right: blank ones, and those of other queries with the same text, too.
    """

    id: str
    text: str
    positives: list[str]
    known: frozenset[str]


@dataclass(frozen=True)
class Found:
    """What retrieval found for the queries: the fused order, the lists it came from, and scores.

    `candidate_scores` go with `order`, `positive_scores` with the positives; both are those of the dense
    retriever, or of BM25 where it was alone. `facts` are numbers for the summary.
    """

    order: Hits
    lists: dict[str, Hits]
    candidate_scores: list[NDArray[np.float32]]
    positive_scores: list[NDArray[np.float32]]
    facts: dict[str, Any]


def mine(
    claim: Claim, options: MineOptions, collection_path: Path, model_name: str | None, progress: Progress
) -> None:
    """Mine the queries of a split and write the artifact; `model_name` is None where BM25 is alone.

    Raises UsageError for options BM25 does not have, EmbedtrainError for a split that is not there or holds no
    query to mine for.
    """
    check_options(options)
    collection = Collection(collection_path)
    queries, dropped = read_queries(collection, options.split, options.limit)
    encoder = None
    if model_name is not None:
        from embedtrain.encoder import Encoder  # BM25 alone needs no torch

        encoder = Encoder.load(find_model(model_name))
    found = retrieve(collection, queries, options, encoder, progress)
    rows = choose(collection, queries, found, options)
    summary = summarise(rows, found, options)
    claim.write_table(mined.to_table(rows, "mined"), dropped=dropped, summary=summary)


def read_queries(collection: Collection, split: str, limit: int | None) -> tuple[list[Query], dict[str, int]]:
    """The first `limit` queries of a split that can be mined for, in file order, and counts of what was left out.

    Blank texts teach nothing: a blank query is left out, a blank positive too, and a query without another one.
    """
    qrels = collection.qrels(split)
    fingerprints = {identifier: fingerprint(collection.queries.by_id(identifier)) for identifier in qrels}
    known: dict[str, set[str]] = {}
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
        positives = [document for document in named if fingerprint(collection.corpus.by_id(document))]
        if not named:
            dropped["query without a positive"] += 1
        elif not fingerprints[identifier]:
            dropped["query without text"] += 1
        else:
            if len(positives) < len(named):
                dropped["positive without text"] += len(named) - len(positives)
            if positives:
                right = known[fingerprints[identifier]]
                text = collection.queries.by_id(identifier)
                queries.append(Query(identifier, text, positives, frozenset(right)))
            else:
                dropped["query whose positives have no text"] += 1
    if not queries:
        raise EmbedtrainError(
            f"split {split!r} of {collection.path} has no query with text and a positive with text; "
            f"choose another --split: {', '.join(collection.splits)}"
        )
    return queries, dict(dropped)


def retrieve(
    collection: Collection,
    queries: Sequence[Query],
    options: MineOptions,
    encoder: "Encoder | None",
    progress: Progress,
) -> Found:
    """Search with the retrievers of `options` (dense with `encoder`) and score candidates and positives."""
    corpus = collection.corpus
    texts = [query.text for query in queries]
    documents = corpus.texts()
    lists: dict[str, Hits] = {}
    facts: dict[str, Any] = {}
    index = None
    if "bm25" in options.retrievers:
        index = BM25(documents, corpus.ids, options, progress)
        lists["bm25"] = index.search(texts, options.top_k, progress)
        with_tokens = [bool(index.tokenize(text)) for text in texts]
        facts["language"] = str(index.language)
        facts["documents_without_tokens"] = index.without_tokens
        facts["queries_without_tokens"] = with_tokens.count(False)
        facts["queries_without_lexical_match"] = sum(
            tokens and not len(hits) for tokens, hits in zip(with_tokens, lists["bm25"].positions, strict=True)
        )
    if encoder is not None:
        query_vectors = encoder.encode(texts, "query", progress)
        vectors = encoder.encode(documents, "document", progress)
        lists["dense"] = search.dense(
            query_vectors, vectors, corpus.ids, options.top_k, similarity=encoder.similarity, progress=progress
        )
        facts["model"] = {
            "name": encoder.source.name,
            "similarity": encoder.similarity,
            "prompts": dict(encoder.prompts),
        }
    runs = list(lists.values())
    order = runs[0] if len(runs) == 1 else search.fuse(runs, corpus.ids, options.top_k * len(runs))
    positives = [np.array([corpus.position[i] for i in query.positives], dtype=np.int64) for query in queries]

    def scores(positions: list[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        if encoder is None:
            assert index is not None
            return [index.scores(text, where) for text, where in zip(texts, positions, strict=True)]
        lengths = [len(where) for where in positions]
        flat = search.pair_scores(
            query_vectors,
            vectors,
            np.repeat(np.arange(len(positions)), lengths),
            np.concatenate(positions),
            similarity=encoder.similarity,
        )
        return np.split(flat, np.cumsum(lengths)[:-1])

    return Found(order, lists, scores(order.positions), scores(positives), facts)


class _Fingerprints:
    """Document ids to fingerprints of their normalised texts, each made once; "" for a blank text."""

    def __init__(self, collection: Collection) -> None:
        self._corpus = collection.corpus
        self._known: dict[str, str] = {}

    def __call__(self, identifier: str) -> str:
        if identifier not in self._known:
            self._known[identifier] = fingerprint(self._corpus.by_id(identifier))
        return self._known[identifier]


def fingerprint(text: str) -> str:
    """A short name for a normalised text; "" for a blank one."""
    text = negatives.normalised(text)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() if text else ""


def choose(collection: Collection, queries: Sequence[Query], found: Found, options: MineOptions) -> list[MinedRow]:
    """One row a query: every candidate with its scores, ranks and retrievers, and why it was selected or not."""
    ids = collection.corpus.ids
    text_of = _Fingerprints(collection)
    rows = []
    for number, query in enumerate(queries):
        positions = found.order.positions[number]
        candidates = [ids[position] for position in positions]
        scores = found.candidate_scores[number].tolist()
        positive_scores = found.positive_scores[number].tolist()
        reasons = negatives.judge(
            candidates,
            scores if "dense" in found.lists else None,
            query_id=query.id,
            query=fingerprint(query.text),
            positives=query.known,
            lowest_positive=min(positive_scores),
            text_of=text_of,
            max_ratio=options.max_ratio,
        )
        reasons = negatives.select(reasons, options.negatives)
        seen = {name: set(hits.positions[number].tolist()) for name, hits in found.lists.items()}
        rows.append(
            MinedRow(
                query_id=query.id,
                positive_ids=query.positives,
                positive_scores=positive_scores,
                candidate_ids=candidates,
                candidate_scores=scores,
                candidate_ranks=list(range(1, len(candidates) + 1)),
                candidate_retrievers=[
                    "+".join(name for name, found_by in seen.items() if position in found_by)
                    for position in positions.tolist()
                ],
                selected=[reason == negatives.SELECTED for reason in reasons],
                reason=reasons,
            )
        )
    return rows


def summarise(rows: Sequence[MinedRow], found: Found, options: MineOptions) -> dict[str, Any]:
    """The numbers of a run and, in `notes`, what a reader of them should know."""
    reasons = Counter(reason for row in rows for reason in row.reason)
    selected = [len(row.negatives) for row in rows]
    short = [options.negatives - count for count in selected if count < options.negatives]
    # Of what labels and texts leave over: how much of it scores above the lowest positive, or too close to it.
    open_reasons = {negatives.SELECTED, negatives.ELIGIBLE, negatives.ABOVE_MAX_RATIO}
    open_count = sum(reasons[reason] for reason in open_reasons)
    above = sum(
        score > min(row.positive_scores)
        for row in rows
        for score, reason in zip(row.candidate_scores, row.reason, strict=True)
        if reason in open_reasons
    )
    missed = sum(not set(row.positive_ids) & set(row.candidate_ids) for row in rows)
    summary: dict[str, Any] = {
        "queries": len(rows),
        "positives": sum(len(row.positive_ids) for row in rows),
        "candidates": sum(len(row.candidate_ids) for row in rows),
        "negatives": sum(selected),
        "negatives_per_query": sum(selected) / len(rows),
        "shortfall": {"queries": len(short), "negatives": sum(short)},
        "candidates_by_reason": {reason: reasons[reason] for reason in negatives.REASONS if reasons[reason]},
        "queries_without_their_positive_in_the_window": missed,
        "candidates_above_their_lowest_positive": above,
        **found.facts,
    }
    notes = []
    if options.max_ratio is not None and "dense" not in found.lists:
        notes.append(
            f"the rule --max-ratio {options.max_ratio:g} was off: it reads dense scores, and BM25 was alone"
        )
    elif reasons[negatives.ABOVE_MAX_RATIO] > open_count / 2:
        share = reasons[negatives.ABOVE_MAX_RATIO] / open_count
        notes.append(
            f"{share:.0%} of the candidates that are no known positive score above {options.max_ratio:g} of their "
            "positive: many are unlabelled positives, or the model does not tell them apart"
        )
    if short:
        notes.append(
            f"queries with fewer than {options.negatives} negatives: {len(short):,}, without any: "
            f"{selected.count(0):,}; nothing was filled up; a larger --top-k finds more"
        )
    blind = found.facts.get("queries_without_tokens", 0)
    if blind > len(rows) / 100:
        notes.append(
            f"{blind:,} of {len(rows):,} queries hold no token for BM25 with --language {found.facts['language']}"
        )
    return {**summary, "notes": notes}
