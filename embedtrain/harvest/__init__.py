"""`harvest`: a collection (corpus, queries, qrels) out of what is there; one module per kind of source."""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path

from embedtrain import atomic, readers
from embedtrain.artifacts import Claim
from embedtrain.collection import Texts
from embedtrain.config import HarvestOptions
from embedtrain.console import Progress
from embedtrain.errors import EmbedtrainError, UsageError, first_three
from embedtrain.harvest import boilerplate, caps, consistency, leaks, near
from embedtrain.harvest.clean import Cleaner
from embedtrain.harvest.clicks.log import is_log
from embedtrain.harvest.documents import check as check_pages
from embedtrain.harvest.documents import pages
from embedtrain.harvest.documents import read as read_pages
from embedtrain.harvest.documents.passages import estimate_tokens
from embedtrain.harvest.draft import Draft, open_draft
from embedtrain.harvest.split import cut, limit_queries, parse_shares, sample_documents
from embedtrain.harvest.summary import summary
from embedtrain.harvest.trec import is_collection
from embedtrain.harvest.writing import write

__all__ = ["harvest", "recognise"]

# The module of each kind of source; its `read` adds a source to the draft. Loaded when asked for: some need packages of
# their own. Kinds of pages are in `pages`.
_MODULES = {"beir": "beir", "table": "tables", "clicks": "clicks", "titles": "titles", "trec": "trec"}
KINDS = (*_MODULES, pages.DOCUMENTS, *pages.FORMATS)
_FORMATS = ("parquet", "jsonl")
_SPLIT_BY = ("hash", "time")


def recognise(source: Path) -> str:
    """The kind of a source, by what it holds; EmbedtrainError where it cannot be told."""
    source = readers.files(source)[0]
    if source.is_dir():
        tables = [file.name for file in source.iterdir() if readers.suffix(file)]
        corpus, queries = (
            any(name.startswith((f"{table}.", f"{table}-")) for name in tables) for table in ("corpus", "queries")
        )
        if corpus and queries:
            return "beir"
        if is_collection(source):
            return "trec"
        if corpus:
            return "beir"
        if kind := pages.kind_of(source):
            return kind
    elif source.is_file() and is_collection(source):
        return "trec"
    elif pages.is_archive(source) or pages.is_page(source.name):
        return pages.kind_of(source) or pages.DOCUMENTS
    elif readers.suffix(source):
        _, first = next(readers.rows(source, bad=lambda number, why: None), (0, {}))
        return "clicks" if is_log(first) else "table"
    raise EmbedtrainError(
        f"cannot tell what {source} is: a folder with a corpus file, topics and qrels of TREC, "
        f"pages ({', '.join(pages.FORMATS)}) in a folder or archive, or a table ({', '.join(readers.SUFFIXES)}) is read; give --kind or convert it"
    )


def _read(source: Path, kind: str, options: HarvestOptions, draft: Draft, progress: Progress) -> None:
    if kind in _MODULES:
        importlib.import_module(f"embedtrain.harvest.{_MODULES[kind]}").read(source, options, draft, progress)
    else:
        read_pages(source, options, draft, progress, kind)


def _fill(
    draft: Draft, sources: Sequence[Path], kinds: Sequence[str], options: HarvestOptions, progress: Progress
) -> None:
    """Read every source into the draft, as far as that was not done before a kill."""
    if options.kind == "auto" and not draft.finished("kinds"):
        for kind in dict.fromkeys(kinds):
            names = [
                source.name or str(source) for source, found in zip(sources, kinds, strict=True) if found == kind
            ]
            draft.notes.append(f"recognised as {kind}: {first_three(names)}")
        draft.finish("kinds")
    for place, (source, kind) in enumerate(zip(sources, kinds, strict=True)):
        if not draft.finished(f"source {place}"):
            _read(source, kind, options, draft, progress)
            draft.finish(f"source {place}")


def _generate(draft: Draft, options: HarvestOptions, progress: Progress) -> None:
    from embedtrain.harvest.generated import generate
    from embedtrain.harvest.generated.rephrasing import rephrase

    def documents() -> Texts:
        rows = ((identifier, document.title, document.text) for _, identifier, document in draft.documents())
        return Texts.of(rows, titled=True)

    if _rephrases(options):
        rephrase(options, draft, progress, documents)
    else:
        generate(documents(), options, draft, progress)


def _rephrases(options: HarvestOptions) -> bool:
    from embedtrain.harvest.generated.rephrasing import rephrases

    return rephrases(options)


def _steps(
    draft: Draft,
    options: HarvestOptions,
    sources: Sequence[Path],
    exclude: Sequence[tuple[Path, str]],
    shares: dict[str, float],
    progress: Progress,
) -> dict[str, Callable[[], None]]:
    """What follows on reading, in its order: what is asked for."""
    steps: dict[str, Callable[[], None]] = {}
    seed = options.seed
    if options.boilerplate:
        steps["boilerplate"] = lambda: boilerplate.take_out(draft, options.boilerplate, seed, progress)
    if options.near_duplicate:
        steps["near-duplicates"] = lambda: near.merge(draft, options.near_duplicate, progress)
    rephrases = bool(options.generate) and _rephrases(options)
    if options.generate and not rephrases:
        steps["generate"] = lambda: _generate(draft, options, progress)
    if exclude:
        steps["exclude"] = lambda: leaks.exclude(draft, exclude, progress)
    if options.consistency:
        judges = consistency.parse(options.consistency)
        steps["consistency"] = lambda: consistency.keep_consistent(
            draft, judges, options.consistency_k, options.consistency_sample, seed, progress
        )
    steps["caps"] = lambda: caps.cap(
        draft, options.max_queries_per_document, options.max_documents_per_query, seed
    )
    steps["filled"] = lambda: _check_filled(draft, sources)
    steps["split"] = lambda: cut(draft, shares, seed, by_time=options.split_by == "time")
    if rephrases:  # queries that are in train for good, and one rephrasing of many would join them into one group
        steps["generate"] = lambda: _generate(draft, options, progress)
        if exclude:
            steps["exclude rephrased"] = lambda: leaks.exclude(draft, exclude, progress)
    if (limit := options.limit) is not None:
        steps["limit"] = lambda: limit_queries(draft, limit)
    if (documents := options.documents) is not None:
        steps["documents"] = lambda: sample_documents(draft, documents, seed)
    return steps


def _check(options: HarvestOptions) -> dict[str, float]:
    """The shares of the splits; UsageError for options that cannot be."""
    for flag, value, known, noun in (
        ("kind", options.kind, ("auto", *KINDS), "kinds"),
        ("format", options.format, _FORMATS, "formats"),
        ("split-by", options.split_by, _SPLIT_BY, "ways"),
    ):
        if value not in known:
            raise UsageError(f"--{flag} {value}: {', '.join(known)} are the {noun}")
    check_pages(options)
    if options.generate:
        from embedtrain.harvest import generated

        generated.check(options)
    if options.consistency:
        consistency.parse(options.consistency)
    return parse_shares(options.split)


def _check_filled(draft: Draft, sources: Sequence[Path]) -> None:
    documents, queries = draft.count("documents"), draft.count("queries")
    if not documents or not queries:
        missing = "queries" if documents else "documents"
        why = ", ".join(f"{reason} {count:,}" for reason, count in draft.dropped.items()) or "nothing was dropped"
        raise EmbedtrainError(f"no {missing} are left of {', '.join(map(str, sources))} ({why}); check the source")
    if not draft.splits():
        draft.notes.append("there are no qrels: this collection can be searched, not trained on or measured with")


def harvest(
    claim: Claim,
    options: HarvestOptions,
    sources: Sequence[Path],
    exclude: Sequence[tuple[Path, str]],
    progress: Progress,
) -> None:
    """Read `sources` into one collection and write it as the claimed folder, what was left out as JSONL where asked for.

    Raises UsageError for options that cannot be, EmbedtrainError for sources that cannot be read or hold nothing.
    """
    shares = _check(options)
    cleaner = Cleaner(options, estimate_tokens)
    kinds = [recognise(source) if options.kind == "auto" else options.kind for source in sources]
    claim.workspace.mkdir(exist_ok=True)
    with open_draft(claim.workspace / "draft.sqlite", keep_dropped=bool(options.dropped)) as draft:
        draft.cleaner = cleaner
        _fill(draft, sources, kinds, options, progress)
        for name, step in _steps(draft, options, sources, exclude, shares, progress).items():
            if not draft.finished(name):
                step()
                draft.finish(name)
        counts = {reason: count for reason, count in sorted(draft.dropped.items()) if count}
        if options.dropped:
            atomic.write_lines(Path(options.dropped), draft.dropped_rows())
        with atomic.atomic_folder(claim.out) as folder:
            write(draft, folder, options.format)
            claim.write_folder(
                folder, rows=draft.count("documents"), dropped=counts, summary=summary(draft, kinds, options.seed)
            )
