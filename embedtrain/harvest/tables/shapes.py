"""The shapes tables come in: told by the names of the columns, never by their order, or by `--shape`."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest.tables.settings import Settings

# What columns are called elsewhere. Of several that are there the first is taken; of negatives, all.
_QUERIES = ("query", "question", "anchor")
_POSITIVES = ("document", "positive", "passage", "answer", "pos", "positives", "positive_passages")
_NEGATIVES = ("negative", "neg", "negatives", "negative_passages", "hard_negative", "hard_negatives")
_NUMBERED = re.compile(r"(hard_)?neg(ative)?_(?P<number>\d+)$")
_DOCUMENTS = ("documents", "docs", "passages")
_LABELS = ("labels", "scores")
_GRADES = ("label", "grade", "relevance", "rel", "is_relevant", "is_duplicate")
_QUERY_IDS = ("query-id", "query_id", "qid")
_DOCUMENT_IDS = ("corpus-id", "corpus_id", "document_id", "doc_id", "docid", "pid")
_ENTAILMENTS = ("label", "gold_label")
_MEMBERS = ("text", "sentence", "question", "query")
_CLASSES = ("label", "class", "category", "intent", "label_text")
_CLUSTERS = ("cluster", "cluster_id")
_CITING = ("text", "citing_text", "sentence")
# Cells of these hold lists, in CSV too, where a list is JSON in a string.
_LISTS = frozenset(("pos", "positives", "positive_passages", "neg", "negatives", "negative_passages", "hard_negatives",
                    *_DOCUMENTS, *_LABELS, "pos_scores", "neg_scores"))  # fmt: skip
_SCORES = ("pos_scores", "neg_scores")

# MS MARCO's triples have no header; these are the names its columns get.
TRIPLES = ("query", "positive", "negative")
# Names that show that a first line is a header.
NAMES = frozenset((*_QUERIES, *_POSITIVES, *_QUERY_IDS, *_DOCUMENT_IDS, *_MEMBERS, *_GRADES, "source", "target",
                    "title", "premise", "sentence1", "question1", "_id", "id"))  # fmt: skip

# Rows of these may follow each other in one file: optional columns come and go.
_FAMILY = {"triplets": "pairs", "lists": "pairs"}


class Shape(NamedTuple):
    """Which column of a table is what."""

    name: str
    query: tuple[str, ...] = ()
    positives: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    title: str = ""
    label: str = ""  # a grade, grades, an entailment, a class, a score
    scores: tuple[str, ...] = ()  # of positives and of negatives
    time: str = ""
    query_ids: bool = False
    document_ids: bool = False

    @property
    def family(self) -> str:
        """What rows of one file have in common."""
        return _FAMILY.get(self.name, self.name)

    def used(self) -> set[str]:
        """The columns that are read."""
        return {*self.query, *self.positives, *self.negatives, self.title, self.label, *self.scores, self.time}


def is_list(column: str) -> bool:
    """Whether a column's name promises a list."""
    return column in _LISTS


def _first(names: Iterable[str], there: Sequence[str]) -> str:
    return next((name for name in names if name in there), "")


def _negatives(columns: Sequence[str], settings: Settings) -> tuple[str, ...]:
    if settings.negative_column:
        return tuple(name for name in settings.negative_column if name in columns)
    numbered = [(int(match["number"]), name) for name in columns if (match := _NUMBERED.match(name))]
    return (*(name for name in _NEGATIVES if name in columns), *(name for _, name in sorted(numbered)))


class _Columns:
    """The columns of a row, and what they are by the flags and by their names."""

    def __init__(self, columns: Sequence[str], settings: Settings, where: str) -> None:
        self.there = columns
        self.settings = settings
        self.where = where

    def missing(self, name: str, flags: str = "--query-column and --document-column") -> EmbedtrainError:
        hint = ""
        if _first(_DOCUMENT_IDS, self.there) and not self.settings.collection:
            hint = "; if it holds ids, say of what with --texts"
        return EmbedtrainError(
            f"{self.where} has no column {name!r}; its columns are: {', '.join(self.there) or 'none'}; "
            f"say which to read with {flags}{hint}"
        )

    def need(self, names: Sequence[str], flags: str) -> str:
        """The first of some names that is there; an error names the first where none is."""
        if not (found := _first(names, self.there)):
            raise self.missing(names[0], flags)
        return found

    def label(self, names: Sequence[str]) -> str:
        """The column with labels: the one that was named, or the first of these."""
        return self.need((self.settings.label_column,) if self.settings.label_column else names, "--label-column")

    def all_of(self, names: Sequence[str]) -> tuple[str, ...]:
        """Columns that were named and must be there."""
        for name in names:
            if name not in self.there:
                raise self.missing(name)
        return tuple(names)

    def query(self) -> tuple[tuple[str, ...], bool]:
        """The columns of the query, and whether they hold an id."""
        if self.settings.query_column != ("query",):
            whole = ",".join(self.settings.query_column)  # a column may have a comma in its name
            return ((whole,) if whole in self.there else self.all_of(self.settings.query_column)), False
        if found := _first(_QUERIES, self.there):
            return (found,), False
        if self.settings.collection and (found := _first(_QUERY_IDS, self.there)):
            return (found,), True
        raise self.missing("query")

    def positives(self, names: Sequence[str] = _POSITIVES) -> tuple[str, ...]:
        """The columns of the documents that answer the query."""
        if self.settings.document_column != ("document",):
            return self.all_of(self.settings.document_column)
        if found := _first((*(_DOCUMENT_IDS if self.settings.collection else ()), *names), self.there):
            return (found,)
        raise self.missing("document" if names is _POSITIVES else names[0])

    def pair(self, *names: tuple[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Two columns of texts: those that were named, or the first of some couples that is there."""
        if not self.settings.named:
            for left, right in names:
                if left in self.there and right in self.there:
                    return (left,), (right,)
        return self.query()[0], self.positives()


def _recognise(columns: Sequence[str], settings: Settings) -> str:
    """The name of the shape that columns have; pairs where nothing else fits."""
    there = set(columns)

    def has(*names: Sequence[str]) -> bool:
        return all(_first(alternatives, columns) for alternatives in names)

    if settings.score_column:
        return "scored"
    if not settings.named:
        if settings.collection and {"source", "target"} <= there:
            return "graph"
        if ({"premise", "hypothesis"} <= there and has(_ENTAILMENTS)) or {
            "sentence1",
            "sentence2",
            "gold_label",
        } <= there:
            return "nli"
        if {"question1", "question2", "is_duplicate"} <= there:
            return "duplicates"
        queries = (*_QUERIES, *(_QUERY_IDS if settings.collection else ()))
        documents = (*_POSITIVES, *(_DOCUMENT_IDS if settings.collection else ()))
        if has(queries, _DOCUMENTS, _LABELS):
            return "labelled"
        if settings.collection and has(_QUERY_IDS, _DOCUMENT_IDS, ("score", *_GRADES)) and not has(_QUERIES):
            return "qrels"
        if not has(queries, documents):
            if has(_MEMBERS, _CLUSTERS):
                return "clusters"
            if has(_MEMBERS, (settings.label_column,) if settings.label_column else _CLASSES):
                return "classes"
        labels = (settings.label_column,) if settings.label_column else _GRADES
        if has(queries, documents, labels) and not _negatives(columns, settings):
            return "graded"
    elif settings.label_column:
        return "graded"
    return "pairs"


def shape_of(columns: Sequence[str], settings: Settings, where: str) -> Shape:
    """Which column is what in a row of these columns. Raises EmbedtrainError where one that is needed is not there."""
    name = _recognise(columns, settings) if settings.shape == "auto" else settings.shape
    found = _Columns(columns, settings, where)
    shape = _BUILD[name](found)
    if settings.time_column:
        shape = shape._replace(time=found.need((settings.time_column,), "--time-column"))
    return shape


def _pairs(found: _Columns) -> Shape:
    query, query_ids = found.query()
    positives = found.positives()
    negatives = _negatives(found.there, found.settings)
    lists = len(positives) > 1 or any(map(is_list, (*positives, *negatives)))
    name = "lists" if lists or len(negatives) > 1 else "triplets" if negatives else "pairs"
    ids = bool(found.settings.collection)
    title = found.settings.title_column
    # A title is that of one document, and never of one that is to be found by it.
    if lists or ids or title not in found.there or title in (*query, *positives):
        title = ""
    scores = tuple(score for score in _SCORES if score in found.there)
    return Shape(name, query, positives, negatives, title, scores=scores, query_ids=query_ids, document_ids=ids)


def _labelled(found: _Columns) -> Shape:
    query, query_ids = found.query()
    documents = found.positives(_DOCUMENTS)
    ids = bool(found.settings.collection)
    return Shape("labelled", query, documents, label=found.label(_LABELS), query_ids=query_ids, document_ids=ids)


def _graded(found: _Columns) -> Shape:
    return _pairs(found)._replace(name="graded", negatives=(), scores=(), label=found.label(_GRADES))


def _scored(found: _Columns) -> Shape:
    score = found.need((found.settings.score_column or "score",), "--score-column")
    if found.settings.min_score is None:
        raise UsageError("--shape scored needs --min-score: from which score on is a pair a positive?")
    query, positives = found.pair(("sentence1", "sentence2"))
    if found.settings.collection or _first(_QUERIES, found.there):
        return _pairs(found)._replace(name="scored", negatives=(), scores=(), label=score)
    return Shape("scored", query, positives, label=score)


def _nli(found: _Columns) -> Shape:
    query, positives = found.pair(("premise", "hypothesis"), ("sentence1", "sentence2"))
    return Shape("nli", query, positives, label=found.label(("gold_label", *_ENTAILMENTS)))


def _duplicates(found: _Columns) -> Shape:
    query, positives = found.pair(("question1", "question2"), ("sentence1", "sentence2"))
    return Shape("duplicates", query, positives, label=found.label(("is_duplicate", "label")))


def _members(found: _Columns, name: str, labels: Sequence[str]) -> Shape:
    asked = found.settings.query_column
    text = found.all_of(asked) if asked != ("query",) else (found.need(_MEMBERS, "--query-column"),)
    return Shape(name, text, label=found.label(labels))


def _msmarco(found: _Columns) -> Shape:
    ids = bool(found.settings.collection)
    query, positives, negatives = (found.all_of((name,)) for name in TRIPLES)
    return Shape("msmarco", query, positives, negatives, query_ids=ids, document_ids=ids)


def _qrels(found: _Columns) -> Shape:
    if not found.settings.collection:
        raise UsageError("qrels hold ids; say of what with --texts")
    query = found.need(_QUERY_IDS, "--query-column")
    document = found.need(_DOCUMENT_IDS, "--document-column")
    grade = found.label(("score", *_GRADES))
    return Shape("qrels", (query,), (document,), label=grade, query_ids=True, document_ids=True)


def _graph(found: _Columns) -> Shape:
    if not found.settings.collection:
        raise UsageError("a graph holds ids; say of what with --texts")
    asked, documents = found.settings.query_column, found.settings.document_column
    source = found.all_of(("source",) if asked == ("query",) else asked)
    target = found.all_of(("target",) if documents == ("document",) else documents)
    # Its title column is the one with the citing text: a document's own title comes from the collection.
    citing = _first(_CITING, found.there)
    return Shape("graph", source, target, title=citing, query_ids=True, document_ids=True)


_BUILD = {
    "pairs": _pairs,
    "lists": _pairs,
    "triplets": _pairs,
    "labelled": _labelled,
    "graded": _graded,
    "scored": _scored,
    "nli": _nli,
    "duplicates": _duplicates,
    "clusters": lambda found: _members(found, "clusters", _CLUSTERS),
    "classes": lambda found: _members(found, "classes", _CLASSES),
    "msmarco": _msmarco,
    "qrels": _qrels,
    "graph": _graph,
}
