"""`harvest`: a collection (corpus, queries, qrels) out of what is there; one module per kind of source."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from embedtrain import atomic, readers
from embedtrain.artifacts import Claim
from embedtrain.config import HarvestOptions
from embedtrain.console import Progress
from embedtrain.errors import EmbedtrainError, UsageError, first_three
from embedtrain.harvest import beir, markdown, table, titles
from embedtrain.harvest.draft import Draft
from embedtrain.harvest.pages import holds_pages, is_archive, is_page
from embedtrain.harvest.split import cut, limit_queries, parse_shares, sample_documents, stable_unit
from embedtrain.harvest.writing import write

__all__ = ["harvest"]

_KINDS: dict[str, Callable[[Path, HarvestOptions, Draft, Progress], None]] = {
    "beir": beir.read,
    "table": table.read,
    "markdown": markdown.read,
    "titles": titles.read,
}
_FORMATS = ("parquet", "jsonl")
_SHOWN = 3  # sample pairs in the summary


def recognise(source: Path) -> str:
    """The kind of a source, by what it holds; EmbedtrainError where it cannot be told."""
    if source.is_dir():
        if any(file.name.startswith(("corpus.", "corpus-")) and readers.suffix(file) for file in source.iterdir()):
            return "beir"
        if holds_pages(source):
            return "markdown"
    elif is_archive(source) or is_page(source.name):
        return "markdown"
    elif readers.suffix(source):
        return "table"
    raise EmbedtrainError(
        f"cannot tell what {source} is: a folder with a corpus file, Markdown in a folder or archive, or a table "
        f"({', '.join(readers.SUFFIXES)}) is read; give --kind or convert it"
    )


def _shorten(text: str, length: int) -> str:
    words = " ".join(text.split())
    return words if len(words) <= length else words[: length - 3].rstrip() + "..."


def _samples(draft: Draft, seed: int) -> list[str]:
    pairs = [
        (query, document)
        for qrels in draft.splits.values()
        for query, judged in qrels.items()
        for document, grade in judged.items()
        if grade > 0
    ]
    pairs.sort(key=lambda pair: (stable_unit(seed, "sample", f"{pair[0]}\0{pair[1]}"), pair))
    notes = []
    for query, document in pairs[:_SHOWN]:
        title, text, _ = draft.documents[document]
        shown = _shorten(f"[{title}] {text}" if title else text, 90)
        notes.append(f"for example: {_shorten(draft.queries[query].text, 70)} -> {shown}")
    return notes


def _summary(draft: Draft, kinds: list[str], options: HarvestOptions) -> dict[str, Any]:
    splits = {name: draft.splits[name] for name in sorted(draft.splits)}
    by_source: dict[str, int] = {}
    for qrels in splits.values():
        for query, judged in qrels.items():
            for document in judged:
                source = draft.sources.get((query, document))
                if source is not None:
                    by_source[source] = by_source.get(source, 0) + 1
    return {
        "kind": " + ".join(dict.fromkeys(kinds)),
        "documents": len(draft.documents),
        "queries": {name: len(qrels) for name, qrels in splits.items()},
        "pairs": {name: sum(map(len, qrels.values())) for name, qrels in splits.items()},
        "sources": dict(sorted(by_source.items())),
        "notes": draft.notes + _samples(draft, options.seed),
    }


def harvest(claim: Claim, options: HarvestOptions, sources: Sequence[Path], progress: Progress) -> None:
    """Read `sources` into one collection and write it as the claimed folder.

    Raises UsageError for options that cannot be, EmbedtrainError for sources that cannot be read or hold nothing.
    """
    if options.kind not in ("auto", *_KINDS):
        raise UsageError(f"--kind {options.kind}: auto, {', '.join(_KINDS)} are the kinds")
    if options.format not in _FORMATS:
        raise UsageError(f"--format {options.format}: {' and '.join(_FORMATS)} are the formats")
    shares = parse_shares(options.split)
    draft = Draft()
    kinds = [recognise(source) if options.kind == "auto" else options.kind for source in sources]
    if options.kind == "auto":
        for kind in dict.fromkeys(kinds):
            names = [
                source.name or str(source) for source, found in zip(sources, kinds, strict=True) if found == kind
            ]
            draft.notes.append(f"recognised as {kind}: {first_three(names)}")
    for source, kind in zip(sources, kinds, strict=True):
        _KINDS[kind](source, options, draft, progress)
    if not draft.documents or not draft.queries:
        missing = "queries" if draft.documents else "documents"
        why = ", ".join(f"{reason} {count:,}" for reason, count in draft.dropped.items()) or "nothing was dropped"
        raise EmbedtrainError(f"no {missing} are left of {', '.join(map(str, sources))} ({why}); check the source")
    if not draft.splits:
        draft.notes.append("there are no qrels: this collection can be searched, not trained on or measured with")
    cut(draft, shares, options.seed)
    if options.limit is not None:
        limit_queries(draft, options.limit)
    if options.documents is not None:
        sample_documents(draft, options.documents, options.seed)
    dropped = {reason: count for reason, count in sorted(draft.dropped.items()) if count}
    with atomic.atomic_folder(claim.out) as folder:
        write(draft, folder, options.format)
        claim.write_folder(
            folder, rows=len(draft.documents), dropped=dropped, summary=_summary(draft, kinds, options)
        )
