"""Rankings of a split made here: by BM25, by models, by their mixture, and by a teacher on top of the last of them."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

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
from embedtrain.searched import Documents
from embedtrain.systems import BASE, Names, Questions, System, system_of, without_self

if TYPE_CHECKING:  # torch is loaded where a model is asked for: BM25 and run files do without those seconds
    from embedtrain.encoder import Encoder
    from embedtrain.reranker import Reranker
    from embedtrain.tokens import Language


def retrieved(
    options: EvalOptions,
    collection: Collection,
    searched: Documents,
    questions: Questions,
    models: Sequence[str],
    rerank: str | None,
    names: Names,
    progress: Progress,
) -> list[System]:
    """BM25, the models, the last of them mixed with BM25, that mixture by ranks reranked, as far as asked for.

    `searched` is what is indexed and encoded: the documents of the collection, or passages of them. With
    `options.advise` the base is mixed and reranked too: what there is before anything is tuned.
    """
    check_options(options)
    compression.check(options.quantize, options.dims)
    sources = [find_model(name) for name in models]
    if options.dims:
        _check_dimensions(options, sources[-1])
    teacher = _teacher(rerank) if rerank else None
    ids, k = searched.ids, options.top_k
    mixes = bool(sources) and (options.hybrid or options.advise)
    chosen_on = Mixer.questions_to_choose_on(collection, options) if mixes else None
    systems: list[System] = []
    if options.bm25 or mixes:
        index = Lexical(BM25(searched.texts, searched.texts.ids, options, progress), searched)
        found = index.hits(questions, k, progress)
        lexical = system_of(names("BM25"), found, ids, questions, k, language=str(index.language))
        if index.language.why:
            lexical.said.append(f"language: {index.language}")
        if options.bm25 or options.advise:
            systems.append(lexical)
    # What is mixed and reranked: the last model, after the base where advice is wanted; BM25 where there is no model.
    firsts = [0, len(sources) - 1] if options.advise and len(sources) > 1 else [len(sources) - 1]
    rankers: dict[int, Ranker] = {}
    of_models = []
    for place, source in enumerate(sources):
        ranker = Ranker.load(source, options.precision, searched, progress)
        of_models.append(ranker.system(names(BASE if place == 0 else source.name), questions, k, progress))
        if place in firsts:
            rankers[place] = ranker
    systems += of_models
    if options.dims or options.quantize:
        systems += rankers[firsts[-1]].compressed(of_models[-1].name, questions, names, options, progress)
    tops = [of_models[place] for place in firsts] if sources else systems[-1:]
    if mixes:
        mixer = Mixer.of(lexical, index.hits, collection, questions, chosen_on, options, progress)
        measure = metrics.parse(options.measures[0])
        for turn, place in enumerate(firsts):
            system = of_models[place]
            label = "hybrid" if place == firsts[-1] else f"hybrid of {system.name}"
            made = mixer.mixed(
                system, label, names, k, measure, partial(rankers[place].hits, k=k, progress=progress)
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


@dataclasses.dataclass
class Lexical:
    """BM25 over what is searched."""

    index: BM25
    searched: Documents

    @property
    def language(self) -> "Language":
        """The language it splits texts by."""
        return self.index.language

    def hits(self, questions: Questions, k: int, progress: Progress) -> Hits:
        """The best documents of each query: k, and one more, for the query itself may be among them."""
        found = self.index.search(questions.texts, self.searched.depth(k + 1), progress)
        return self.searched.ranked(found, k + 1)


@dataclasses.dataclass
class Ranker:
    """A model with the vectors of what is searched."""

    source: ModelSource
    encoder: "Encoder"
    searched: Documents
    documents: Any  # (documents, d), on disk

    @classmethod
    def load(cls, source: ModelSource, precision: str, searched: Documents, progress: Progress) -> "Ranker":
        """Load a model and encode what is searched, as far as its vectors are not in the store."""
        from embedtrain.encoder import Encoder

        encoder = Encoder.load(source, wanted=precision)
        _ = encoder.similarity  # EmbedtrainError for one that no search knows, before anything is encoded
        return cls(source, encoder, searched, encoder.encode(searched.texts, "document", progress))

    def hits(self, questions: Questions, k: int, progress: Progress) -> Hits:
        """The k documents whose vectors are most similar to each query's, the query itself left out."""
        queries = self.encoder.encode(questions.texts, "query", progress)
        found = self._search(queries, self.documents, k, progress)
        return without_self(found, questions, self.searched.ids, k)[0]

    def system(self, name: str, questions: Questions, k: int, progress: Progress) -> System:
        """The same as a row of the result."""
        from embedtrain import truncation

        queries = self.encoder.encode(questions.texts, "query", progress)
        found = self._search(queries, self.documents, k, progress)
        cut = truncation.cut(self.encoder, self.searched.texts, "document")
        dimension = int(self.documents.shape[1])
        about = {
            "model": self.source.name,
            "precision": self.encoder.precision,
            "dimensions": dimension,
            "bytes_per_vector": compression.bytes_of(dimension),
            "documents_cut": cut,
        }
        system = system_of(name, found, self.searched.ids, questions, k, **about)
        if cut:
            system.said.append(
                f"{cut:,} of {len(self.documents):,} {self.searched.noun} are cut at the {self.encoder.limit('document')} tokens "
                "it reads"
            )
        return system

    def compressed(
        self, name: str, questions: Questions, names: Names, options: EvalOptions, progress: Progress
    ) -> list[System]:
        """Rankings by fewer dimensions of the same vectors, and by fewer bits."""
        queries = self.encoder.encode(questions.texts, "query", progress)
        k, own = options.top_k, int(self.documents.shape[1])
        found: list[tuple[str, Hits, int, str]] = []
        for dimension in options.dims:
            sides = compression.prefix(queries, dimension), compression.prefix(self.documents, dimension)
            found.append((f"{dimension} dimensions", self._search(*sides, k, progress), dimension, ""))
        for kind in options.quantize:
            if kind == compression.BINARY:
                depth, ids = self.searched.depth(k + 1), self.searched.texts.ids
                hits = compression.by_bits(queries, self.documents, ids, depth, progress)
                hits = self.searched.ranked(hits, k + 1)
            else:
                smaller = compression.int8(self.documents, self.encoder.similarity)
                hits = self._search(queries, smaller, k, progress)
            found.append((kind, hits, own, kind))
        return [
            system_of(
                names(f"{name}, {what}"),
                hits,
                self.searched.ids,
                questions,
                k,
                compressed=what,
                of=name,
                dimensions=dimension,
                bytes_per_vector=compression.bytes_of(dimension, kind),
            )
            for what, hits, dimension, kind in found
        ]

    def _search(self, queries: Any, documents: Any, k: int, progress: Progress) -> Hits:
        # One document more than asked for: the query itself may be among them.
        found = dense(
            queries,
            documents,
            self.searched.texts.ids,
            self.searched.depth(k + 1),
            similarity=self.encoder.similarity,
            progress=progress,
            device=self.encoder.gpu,
        )
        return self.searched.ranked(found, k + 1)


def _check_dimensions(options: EvalOptions, source: ModelSource) -> None:
    from embedtrain.encoder import Encoder

    compression.check_dimensions(options.dims, source.name, Encoder.load(source).dimension)


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
