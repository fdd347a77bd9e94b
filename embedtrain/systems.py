"""What is measured: BM25, models, their mixture, the best of them reranked, run files: rankings of one split."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from embedtrain import metrics, trec
from embedtrain.artifacts import beyond_limit
from embedtrain.bm25 import BM25, check_options
from embedtrain.collection import Collection
from embedtrain.config import EvalOptions
from embedtrain.console import Progress
from embedtrain.conventions import LEFT_OUT, ZERO
from embedtrain.errors import EmbedtrainError, first_three
from embedtrain.hits import Hits, Ties, fuse
from embedtrain.models import ModelSource, find_model
from embedtrain.search import dense

if TYPE_CHECKING:  # torch is loaded where a model is asked for: BM25 and run files do without those seconds
    from embedtrain.encoder import Encoder
    from embedtrain.reranker import Reranker

BASE = "base"


@dataclasses.dataclass(frozen=True)
class Questions:
    """The queries that are measured, in the order of the split, with their judgements."""

    ids: list[str]
    texts: list[str]
    qrels: metrics.Judgements
    left_out: int  # judged queries without a relevant document
    beyond_limit: dict[str, int]
    keep_self: bool = False  # whether a hit may be the query itself

    @classmethod
    def of(
        cls,
        collection: Collection,
        split: str,
        limit: int | None,
        *,
        no_relevant: str = LEFT_OUT,
        keep_self: bool = False,
    ) -> "Questions":
        """Read a split. Raises EmbedtrainError where no query of it has a relevant document.

        Those without one are left out, or with `no_relevant` "zero" measured, which gives them 0.
        """
        qrels = collection.qrels(split)
        answerable = metrics.answerable(qrels)
        if not answerable:
            raise EmbedtrainError(f"no query of split {split} of {collection.path} has a relevant document")
        kept: Mapping[str, Mapping[str, float]] = qrels if no_relevant == ZERO else answerable
        ids = list(kept)[:limit]
        texts = [collection.queries.by_id(query) for query in ids]
        return cls(
            ids,
            texts,
            {query: kept[query] for query in ids},
            len(qrels) - len(kept),
            beyond_limit(len(kept), limit),
            keep_self,
        )


@dataclasses.dataclass
class System:
    """One row of the result: its name, what it found over documents `ids`, and what is worth saying of it."""

    name: str
    hits: Hits
    ids: Sequence[str]
    about: dict[str, Any]  # plain values, for JSON
    said: list[str] = dataclasses.field(default_factory=list)  # sentences, for people


class Names:
    """Names of systems: each once, and each with a file name of its own."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def __call__(self, wanted: str) -> str:
        name, number = wanted, 1
        while file_name(name).lower() in self._taken:
            number += 1
            name = f"{wanted} ({number})"
        self._taken.add(file_name(name).lower())
        return name


def file_name(system: str) -> str:
    """The name of a system's run file, without its ending."""
    return re.sub(r"[^\w.+-]+", "_", system).strip("._") or "run"


def without_self(hits: Hits, questions: Questions, ids: Sequence[str], k: int | None) -> tuple[Hits, int]:
    """Take out hits whose document id is the query's id, then keep k a query; also how many were taken out.

    Collections made of documents (ArguAna) ask with a document that is in the corpus. A document that is judged
    relevant stays: there the two ids are equal by chance. With `questions.keep_self` none is taken out.
    """
    alike = not questions.keep_self and bool(set(questions.ids) & set(ids))
    place = {identifier: index for index, identifier in enumerate(ids)} if alike else {}
    positions, scores, removed = [], [], 0
    for query, found, values in zip(questions.ids, hits.positions, hits.scores, strict=True):
        own = place.get(query, -1)
        if questions.qrels[query].get(query, 0) <= 0 and own in found:
            keep = found != own
            found, values, removed = found[keep], values[keep], removed + 1
        positions.append(found[:k])
        scores.append(values[:k])
    return Hits(positions, scores), removed


def _system(
    name: str, hits: Hits, ids: Sequence[str], questions: Questions, k: int | None, **about: Any
) -> System:
    hits, removed = without_self(hits, questions, ids, k)
    counts = {
        "unanswered": sum(len(found) == 0 for found in hits.positions),
        "tied_queries": sum(bool((scores[1:] == scores[:-1]).any()) for scores in hits.scores),
        "self_hits": removed,
    }
    return System(name, hits, ids, {**about, **counts})


def retrieved(
    options: EvalOptions,
    collection: Collection,
    questions: Questions,
    models: Sequence[str],
    rerank: str | None,
    names: Names,
    progress: Progress,
) -> list[System]:
    """BM25, the models, the last of them fused with BM25, the last of all these reranked, as far as asked for."""
    check_options(options)
    sources = [find_model(name) for name in models]
    teacher = _teacher(rerank) if rerank else None
    corpus, k = collection.corpus, options.top_k
    systems: list[System] = []
    lexical = None
    if options.bm25 or options.hybrid:
        # One document more than asked for: the query itself may be among them.
        index = BM25(corpus, corpus.ids, options, progress)
        found = index.search(questions.texts, k + 1, progress)
        lexical = _system(names("BM25"), found, corpus.ids, questions, k, language=str(index.language))
        if index.language.why:
            lexical.said.append(f"language: {index.language}")
    if lexical and options.bm25:
        systems.append(lexical)
    for number, source in enumerate(sources):
        name = names(BASE if number == 0 else source.name)
        systems.append(_of_model(name, source, options.precision, collection, corpus, questions, k, progress))
    if lexical and options.hybrid:
        dense_system = systems[-1]
        fused = fuse([lexical.hits, dense_system.hits], Ties(corpus.ids), k)
        about = {
            "fused": f"BM25 and {dense_system.name}, reciprocal ranks",
            "language": lexical.about["language"],
        }
        systems.append(_system(names("hybrid"), fused, corpus.ids, questions, k, **about))
        if not options.bm25:
            systems[-1].said += lexical.said
    if teacher:
        systems += _reranked(teacher, systems[-1], options.rerank_depth, collection, questions, names, progress)
    return systems


def _teacher(name: str) -> "Reranker":
    # Loaded first: what cannot be used is found out before minutes of encoding.
    from embedtrain.reranker import Reranker

    return Reranker.load(find_model(name))


def _of_model(
    name: str,
    source: ModelSource,
    precision: str,
    collection: Collection,
    texts: Sequence[str],
    questions: Questions,
    k: int,
    progress: Progress,
) -> System:
    from embedtrain.encoder import Encoder

    encoder, ids = Encoder.load(source, wanted=precision), collection.corpus.ids
    queries = encoder.encode(questions.texts, "query", progress)
    documents = encoder.encode(texts, "document", progress)
    found = dense(
        queries, documents, ids, k + 1, similarity=encoder.similarity, progress=progress, device=encoder.gpu
    )
    cut = _documents_cut(encoder, texts)
    about = {
        "model": source.name,
        "precision": encoder.precision,
        "dimensions": int(documents.shape[1]),
        "documents_cut": cut,
    }
    system = _system(name, found, ids, questions, k, **about)
    if cut:
        system.said.append(
            f"{cut:,} of {len(texts):,} documents are cut at the {encoder.limit('document')} tokens it reads"
        )
    return system


def _reranked(
    teacher: "Reranker",
    first: System,
    depth: int,
    collection: Collection,
    questions: Questions,
    names: Names,
    progress: Progress,
) -> list[System]:
    """The first `depth` candidates in the teacher's order, and in the fusion of that order with their own."""
    judged = _teacher_order(teacher, first.hits, collection, questions, depth, progress)
    top = Hits([found[:depth] for found in first.hits.positions], [part[:depth] for part in first.hits.scores])
    mixed = fuse([top, judged], Ties(first.ids), depth)
    about = {"teacher": teacher.source.name, "candidates": first.name, "depth": depth}
    return [
        _system(names(name), _on_top(head, first.hits), first.ids, questions, None, **about)
        for name, head in (("reranked", judged), (f"{first.name} + teacher", mixed))
    ]


def _documents_cut(encoder: "Encoder", texts: Sequence[str]) -> int:
    """How many documents are longer than the model reads, whether or not their vectors were in the store."""
    return int((encoder.token_lengths(texts, "document") > encoder.limit("document")).sum())


def _teacher_order(
    teacher: "Reranker",
    first: Hits,
    collection: Collection,
    questions: Questions,
    depth: int,
    progress: Progress,
) -> Hits:
    """The first `depth` candidates of every query by the teacher's raw scores."""
    heads = [found[:depth] for found in first.positions]
    pairs = [
        (query, collection.corpus.text(int(index)))
        for query, found in zip(questions.texts, heads, strict=True)
        for index in found
    ]
    scores = teacher.score(pairs, progress)
    if not np.isfinite(scores).all():
        raise EmbedtrainError(f"teacher {teacher.source.name} gives scores that are no numbers; train it again")
    ties = Ties(collection.corpus.ids)
    ends = np.cumsum([len(found) for found in heads])[:-1]
    ordered = [
        ties.best(ties.keys(part, found), depth) if len(found) else (found, part)
        for found, part in zip(heads, np.split(scores, ends), strict=True)
    ]
    return Hits([found for found, _ in ordered], [part for _, part in ordered])


def _on_top(head: Hits, first: Hits) -> Hits:
    """A new order of the first candidates; those below keep their place, with scores that go down by 1 each."""
    positions, scores = [], []
    for found, values, before in zip(head.positions, head.scores, first.positions, strict=True):
        below = before[len(found) :]
        floor = values[-1] if len(values) else np.float32(0)
        positions.append(np.concatenate([found, below]))
        scores.append(np.concatenate([values, floor - np.arange(1, len(below) + 1, dtype=np.float32)]))
    return Hits(positions, scores)


def from_file(
    path: Path, run: dict[str, trec.Ranked], collection: Collection, questions: Questions, names: Names
) -> System:
    """A run file as a system. Documents that are not in the corpus keep their ranks, as misses; this is said."""
    shared = [query for query in questions.ids if query in run]
    foreign = [query for query in run if query not in questions.qrels]
    if not shared:
        raise EmbedtrainError(
            f"run {path} has none of the {len(questions.ids)} queries that are measured; it has "
            f"{first_three(list(run))} and the split has {first_three(questions.ids)}; check --split"
        )
    place = dict(collection.corpus.position)
    ids = list(collection.corpus.ids)
    for query in shared:
        for document in run[query].ids:
            if document not in place:
                place[document] = len(ids)
                ids.append(document)
    unknown = ids[len(collection.corpus) :]
    if len(unknown) == len({document for query in shared for document in run[query].ids}):
        raise EmbedtrainError(
            f"run {path} names no document of {collection.path}; it names {first_three(unknown)}: "
            "was it made from another collection?"
        )
    nothing = trec.Ranked([], np.empty(0, dtype=np.float32))
    ranked = [run.get(query, nothing) for query in questions.ids]
    hits = Hits(
        [np.array([place[document] for document in row.ids], dtype=np.int64) for row in ranked],
        [row.scores for row in ranked],
    )
    about: dict[str, Any] = {"run": path.name}
    if foreign:
        about["queries_not_measured"] = len(foreign)
    if unknown:
        about["documents_not_in_corpus"] = len(unknown)
    missing = [query for query in questions.ids if query not in run]
    system = _system(names(path.name), hits, ids, questions, None, **about)
    system.said = [
        text
        for count, text in (
            (len(missing), f"{len(missing)} measured queries are not in it and count 0: {first_three(missing)}"),
            (len(foreign), f"{len(foreign)} of its queries are not measured: {first_three(foreign)}"),
            (len(unknown), f"{len(unknown)} of its documents are not in the corpus: {first_three(unknown)}"),
        )
        if count
    ]
    return system
