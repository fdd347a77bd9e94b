"""TREC collections: topics, qrels and documents as TREC and ir_datasets have them, in a folder or as single files.

Topics in the SGML-like form of TREC 1 to 8, in XML or as TSV (id, text); qrels as `qid 0 docid grade`; documents as
SGML, as TSV (id, text or id, title, text) or, under their ids, what `--texts` names. Grades stay as they were judged,
those below 0 too: whatever is not above 0 is judged not relevant.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from embedtrain import readers
from embedtrain.collection import is_blank, judgements
from embedtrain.config import HarvestOptions
from embedtrain.console import Progress
from embedtrain.errors import EmbedtrainError, first_three
from embedtrain.harvest import known
from embedtrain.harvest.beir import read_judgements
from embedtrain.harvest.draft import Document, Draft, Query, refuse_clashes
from embedtrain.harvest.tables.lookup import Lookup
from embedtrain.harvest.tables.shapes import NAMES
from embedtrain.harvest.trec import texts, topics
from embedtrain.harvest.trec.files import (
    DOCUMENTS,
    QRELS,
    SGML,
    TABLE,
    TOPICS,
    XML,
    Role,
    is_collection,
    of_folder,
    role,
    split_of,
    table_format,
)

__all__ = ["is_collection", "read"]

_NO_ROLE = "file that holds neither topics nor qrels nor documents"


def _width(path: Path) -> int:
    """The columns of a TSV file that has no header; 0 for a table that has one, of whatever format."""
    if readers.suffix(path) and readers.kind_of(path) != ".tsv":
        return 0
    first = next(readers.lines(path), (1, ""))[1].split("\t")
    return 0 if first[0].strip().lower() in NAMES else len(first)


def _table(path: Path) -> Iterator[texts.Found]:
    """Ids and texts of a table with a header, as `--texts` reads them."""
    lookup = Lookup(path)
    for found in lookup.documents():
        yield str(path), found.id, Document(found.title, found.text, {})
    lookup.close()


def _say(note: str, draft: Draft) -> None:
    if note not in draft.notes:
        draft.notes.append(note)


def _outside(stray: list[str], noun: str, path: Path) -> str:
    return f"text outside of the {noun} of {path.name} is not read: line {first_three(stray)}"


def _documents(path: Path, form: str, dropped: Counter[str]) -> Iterator[texts.Found | str]:
    """The documents of a file and, at the end, a sentence on what was not read."""
    stray: list[str] = []
    if form == SGML:
        yield from texts.marked_up(path, stray)
    elif width := _width(path):
        yield from texts.of_columns(path, table_format(path), width, dropped)
    else:
        yield from _table(path)
    if stray:
        yield _outside(stray, "documents", path)


def _read_documents(path: Path, form: str, draft: Draft) -> None:
    loop, clash = f"{path} documents", f"clash of documents in {path}"
    for found in draft.new(loop, _documents(path, form, draft.dropped)):
        if isinstance(found, str):
            _say(found, draft)
            continue
        where, identifier, document = found
        if is_blank(document.title) and is_blank(document.text):
            draft.drop("empty document", document=identifier, where=where)
            draft.mark("empty document", identifier)
        elif not draft.add_document(identifier, document):
            draft.mark(clash, identifier)
    refuse_clashes("document", path, draft.marked(clash))


def _queries_of_table(path: Path, dropped: Counter[str]) -> Iterator[tuple[str, str, Query]]:
    if _width(path):
        for number, row in readers.rows(path, dropped, format=table_format(path), columns=("_id", "text")):
            where = f"{path} line {number}"
            yield where, readers.as_id(row["_id"], f"{where} column qid"), Query(row["text"], {})
    else:
        for where, identifier, document in _table(path):
            yield where, identifier, Query(document.text, {})


def _queries_of_topics(found: Iterator[topics.Topic], wanted: str) -> Iterator[tuple[str, str, Query]]:
    for topic in found:
        field = topics.field_of(topic, wanted)
        others = {name: text for name, text in topic.fields.items() if name != field}
        yield topic.where, topic.id, Query(topic.fields.get(field, ""), others)


def _chosen(path: Path, found: Iterator[topics.Topic], wanted: str) -> str:
    """A sentence on which field of the topics is the query; EmbedtrainError where no topic has it."""
    chosen: Counter[str] = Counter()
    there: dict[str, None] = {}
    renamed: list[str] = []
    for topic in found:
        renamed += [f"{topic.written} is {topic.id}"] if topic.written and not renamed else []
        there |= dict.fromkeys(topic.fields)
        chosen[topics.field_of(topic, wanted)] += 1
    if not chosen:
        raise EmbedtrainError(f"{path} holds no topic; topics, or no such file, are needed")
    without = chosen.pop("", 0)
    if not chosen:
        asked = "title or query" if wanted == topics.AUTO else wanted
        raise EmbedtrainError(
            f"no topic of {path} has a {asked}; they have {', '.join(there) or 'nothing'}: choose with --topic-field"
        )
    counted = " or ".join(f"{name} ({count:,})" for name, count in chosen.items())
    said = [f"the query of a topic in {path.name} is its {counted}"]
    said += [f"{without:,} have none"] if without else []
    said += [f"numbers lose their leading zeros ({renamed[0]})"] if renamed else []
    return "; ".join(said)


def _read_topics(path: Path, form: str, wanted: str, draft: Draft) -> None:
    loop, clash = f"{path} queries", f"clash of queries in {path}"
    if draft.finished(loop):
        return
    if form == TABLE:
        found = _queries_of_table(path, draft.dropped)
        if wanted != topics.AUTO:
            _say(
                f"topics of {path.name} are one text each, which is the query: --topic-field chooses nothing",
                draft,
            )
    else:
        stray: list[str] = []
        parse: Callable[[Path], Iterator[topics.Topic]] = (
            topics.of_xml if form == XML else partial(topics.marked_up, stray=stray)
        )
        _say(_chosen(path, parse(path), wanted), draft)
        if stray:
            _say(_outside(stray, "topics", path), draft)
        found = _queries_of_topics(parse(path), wanted)
    for where, identifier, query in draft.new(loop, found):
        if is_blank(query.text):
            draft.drop("empty query", query=identifier, where=where)
            draft.mark("empty query", identifier)
        elif not draft.add_query(identifier, query):
            draft.mark(clash, identifier)
    refuse_clashes("query", path, draft.marked(clash))


def _read_qrels(path: Path, lookup: Lookup | None, draft: Draft) -> None:
    if draft.finished(f"{path} judgements"):
        return
    if lookup is not None:  # whose queries come in where they are judged
        for number, (query, _, _) in draft.new(f"{path} queries", judgements(path)):
            if not draft.holds("queries", query) and (text := lookup.query(query)) is not None:
                if is_blank(text):
                    draft.drop("empty query", query=query, where=f"{path} line {number}")
                    draft.mark("empty query", query)
                else:
                    draft.add_query(query, Query(text, {}))
    split = split_of(path)
    _say(f"{path.name} judges the split {split}", draft)
    read_judgements(split, path, draft)


def _roles(source: Path) -> dict[Path, Role]:
    if source.is_dir():
        found = of_folder(source)
    elif source.is_file():
        found = {source: role(source)}
    else:
        raise EmbedtrainError(f"{source} does not exist; check the path")
    if not any(known.what for known in found.values()):
        raise EmbedtrainError(
            f"{source} holds nothing of a TREC collection: topics (<top>, <topic>, or a file called topics), qrels "
            "(a file called qrels, or lines of qid 0 docid grade), documents (<DOC>, or a table called corpus, "
            "collection or docs); check the path, or rename the files"
        )
    return found


def _check_splits(paths: list[Path]) -> None:
    of: dict[str, Path] = {}
    for path in paths:
        split = split_of(path)
        if split in of:
            raise EmbedtrainError(
                f"{of[split]} and {path} would both be the split {split}; rename one, as qrels.{split}2.txt"
            )
        of[split] = path


def read(source: Path, options: HarvestOptions, draft: Draft, progress: Progress) -> None:
    """Add a TREC collection, or a file of one, to the draft; a qrels file names its split (`files.split_of`).

    Blank documents and queries leave, and their judgements with them, all counted. Raises UsageError for a topic
    field that is none, EmbedtrainError for files that cannot be read, ids that stand for two texts, and ids of the
    qrels that nothing else has.
    """
    topics.check(options.topic_field)
    roles = _roles(source)
    of_role = {what: [path for path in roles if roles[path].what == what] for what in (DOCUMENTS, TOPICS, QRELS)}
    _check_splits(of_role[QRELS])
    steps, done = sum(map(len, of_role.values())), 0

    def said(path: Path) -> None:
        nonlocal done
        done += 1
        progress("read TREC files", done, steps, path.name)

    lookup = Lookup(Path(options.collection)) if options.collection else None
    if lookup is not None:
        known.add_documents(lookup, options.collection, draft)
    for path in of_role[DOCUMENTS]:
        _read_documents(path, roles[path].form, draft)
        said(path)
    for path in of_role[TOPICS]:
        _read_topics(path, roles[path].form, options.topic_field, draft)
        said(path)
    if of_role[QRELS] and not draft.count("documents"):
        raise EmbedtrainError(
            f"{source} holds qrels and no document that they judge; put the documents beside them, name their source "
            "before this one, or say what the ids stand for with --texts"
        )
    for path in of_role[QRELS]:
        _read_qrels(path, lookup, draft)
        said(path)
    if lookup is not None:
        lookup.close()
    _say_unread([path for path in roles if not roles[path].what], source, draft)


def _say_unread(paths: list[Path], source: Path, draft: Draft) -> None:
    for path in draft.new(f"{source} files without a role", paths):
        draft.drop(_NO_ROLE, file=path.name)
    if paths:
        names = first_three([path.name for path in paths])
        _say(f"{len(paths):,} files of {source.name} hold no topics, qrels or documents: {names}", draft)
