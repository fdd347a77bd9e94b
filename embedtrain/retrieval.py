"""Rankings of a split made here: by BM25, by models, by their mixture, and by a teacher on top of the last of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from embedtrain import compression, metrics
from embedtrain.bm25 import BM25, check_options
from embedtrain.collection import Collection
from embedtrain.config import EvalOptions
from embedtrain.console import Progress
from embedtrain.errors import EmbedtrainError
from embedtrain.hits import Hits, Ties, fuse
from embedtrain.mixing import Mixer
from embedtrain.models import ModelSource, find_model
from embedtrain.search import dense
from embedtrain.systems import BASE, Names, Questions, System, system_of

if TYPE_CHECKING:  # torch is loaded where a model is asked for: BM25 and run files do without those seconds
    from embedtrain.encoder import Encoder
    from embedtrain.reranker import Reranker


def retrieved(
    options: EvalOptions,
    collection: Collection,
    questions: Questions,
    models: Sequence[str],
    rerank: str | None,
    names: Names,
    progress: Progress,
) -> list[System]:
    """BM25, the models, the last of them mixed with BM25, the last of all these reranked, as far as asked for.

    With `options.advise` the base is mixed and reranked too: what there is before anything is tuned.
    """
    check_options(options)
    compression.check(options.quantize, options.dims)
    sources = [find_model(name) for name in models]
    if options.dims:
        _check_dimensions(options, sources[-1])
    teacher = _teacher(rerank) if rerank else None
    corpus, k = collection.corpus, options.top_k
    mixes = bool(sources) and (options.hybrid or options.advise)
    systems: list[System] = []
    if options.bm25 or mixes:
        # One document more than asked for: the query itself may be among them.
        index = BM25(corpus, corpus.ids, options, progress)
        found = index.search(questions.texts, k + 1, progress)
        lexical = system_of(names("BM25"), found, corpus.ids, questions, k, language=str(index.language))
        if index.language.why:
            lexical.said.append(f"language: {index.language}")
        if options.bm25 or options.advise:
            systems.append(lexical)

    def ranked(name: str, source: ModelSource, asked: Questions) -> System:
        return of_model(name, source, options.precision, collection, corpus, asked, k, progress)

    named = [(names(BASE if number == 0 else source.name), source) for number, source in enumerate(sources)]
    of_models = [ranked(name, source, questions) for name, source in named]
    systems += of_models
    if options.dims or options.quantize:
        systems += _compressed(*named[-1], options, collection, questions, names, progress)
    # What is mixed and reranked: the last model, after the base where advice is wanted; BM25 where there is no model.
    firsts = [0, len(sources) - 1] if options.advise and len(sources) > 1 else [len(sources) - 1]
    tops = [of_models[place] for place in firsts] if sources else systems[-1:]
    if mixes:
        mixer = Mixer.of(lexical, index, collection, questions, options, progress)
        measure = metrics.parse(options.measures[0])
        for turn, place in enumerate(firsts):
            system, (name, source) = of_models[place], named[place]
            label = "hybrid" if place == firsts[-1] else f"hybrid of {name}"
            made = mixer.mixed(
                system,
                label,
                names,
                k,
                measure,
                lambda asked, name=name, source=source: ranked(name, source, asked).hits,  # type: ignore[misc]
            )
            systems += made
            tops[turn] = made[0]
        if not (options.bm25 or options.advise):
            systems[-1].said += lexical.said
    if teacher:
        for top in tops:
            label = "reranked" if top is tops[-1] else f"{top.name}, reranked"
            systems += _reranked(teacher, top, options.rerank_depth, collection, questions, label, names, progress)
    return systems


def _teacher(name: str) -> "Reranker":
    # Loaded first: what cannot be used is found out before minutes of encoding.
    from embedtrain.reranker import Reranker

    return Reranker.load(find_model(name))


def of_model(
    name: str,
    source: ModelSource,
    precision: str,
    collection: Collection,
    texts: Sequence[str],
    questions: Questions,
    k: int,
    progress: Progress,
) -> System:
    """A model's ranking: the k documents whose vectors are most similar to the query's."""
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
        "bytes_per_vector": compression.bytes_of(int(documents.shape[1])),
        "documents_cut": cut,
    }
    system = system_of(name, found, ids, questions, k, **about)
    if cut:
        system.said.append(
            f"{cut:,} of {len(texts):,} documents are cut at the {encoder.limit('document')} tokens it reads"
        )
    return system


def _check_dimensions(options: EvalOptions, source: ModelSource) -> None:
    from embedtrain.encoder import Encoder

    compression.check_dimensions(options.dims, source.name, Encoder.load(source).dimension)


def _compressed(
    name: str,
    source: ModelSource,
    options: EvalOptions,
    collection: Collection,
    questions: Questions,
    names: Names,
    progress: Progress,
) -> list[System]:
    """A model's rankings by fewer dimensions, and by fewer bits, of the vectors that are in the store by now."""
    from embedtrain.encoder import Encoder

    encoder = Encoder.load(source, wanted=options.precision)
    queries = encoder.encode(questions.texts, "query", progress)
    documents = encoder.encode(collection.corpus, "document", progress)
    ids, k, own = collection.corpus.ids, options.top_k + 1, encoder.dimension
    found: list[tuple[str, Hits, int, str]] = []
    for dimension in options.dims:
        short, shorter = compression.prefix(queries, dimension), compression.prefix(documents, dimension)
        hits = dense(short, shorter, ids, k, similarity=encoder.similarity, progress=progress, device=encoder.gpu)
        found.append((f"{dimension} dimensions", hits, dimension, ""))
    for kind in options.quantize:
        if kind == compression.BINARY:
            hits = compression.by_bits(queries, documents, ids, k, progress)
        else:
            smaller = compression.int8(documents, encoder.similarity)
            hits = dense(
                queries, smaller, ids, k, similarity=encoder.similarity, progress=progress, device=encoder.gpu
            )
        found.append((kind, hits, own, kind))
    return [
        system_of(
            names(f"{name}, {what}"),
            hits,
            ids,
            questions,
            options.top_k,
            compressed=what,
            of=name,
            dimensions=dimension,
            bytes_per_vector=compression.bytes_of(dimension, kind),
        )
        for what, hits, dimension, kind in found
    ]


def _reranked(
    teacher: "Reranker",
    first: System,
    depth: int,
    collection: Collection,
    questions: Questions,
    label: str,
    names: Names,
    progress: Progress,
) -> list[System]:
    """The first `depth` candidates in the teacher's order, and in the fusion of that order with their own."""
    judged = _teacher_order(teacher, first.hits, collection, questions, depth, progress)
    top = Hits([found[:depth] for found in first.hits.positions], [part[:depth] for part in first.hits.scores])
    mixed = fuse([top, judged], Ties(first.ids), depth)
    of = first.about.get("of", first.name)
    about = {"teacher": teacher.source.name, "candidates": first.name, "depth": depth, "of": of}
    return [
        system_of(names(name), _on_top(head, first.hits), first.ids, questions, None, **about)
        for name, head in ((label, judged), (f"{first.name} + teacher", mixed))
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
