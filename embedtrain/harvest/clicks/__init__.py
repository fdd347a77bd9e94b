"""Click logs: what was clicked more than its place on the page explains, and what was seen and passed over.

A pair is a positive where its relevance, corrected for position (see `click_model`), is surely above a threshold;
the corrected relevance is its weight. It is a negative (grade 0) where it was shown above a click and skipped
several times, and never clicked. Everything else stays unknown.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from embedtrain.config import HarvestOptions
from embedtrain.console import Progress
from embedtrain.harvest.clicks.model import LEVEL
from embedtrain.harvest.clicks.options import ClickOptions
from embedtrain.harvest.clicks.rows import Log, read_log
from embedtrain.harvest.clicks.verdicts import (
    ALONE,
    CAPPED,
    NEGATIVE,
    POSITIVE,
    REASONS,
    Beliefs,
    Verdicts,
    believe,
    judge,
)
from embedtrain.harvest.draft import Draft
from embedtrain.harvest.known import add_documents
from embedtrain.harvest.tables.lookup import Lookup


def _summary(verdicts: Verdicts, beliefs: Beliefs, log: Log, options: ClickOptions) -> Iterator[str]:
    counted = np.bincount(verdicts.kind, minlength=ALONE + 1)
    least = f"{beliefs.least:.4f}" + ("" if options.min_relevance is not None else ", the mean (--min-relevance)")
    yield (
        f"{counted[POSITIVE]:,} positives: clicked {options.min_clicks:,} times or more, the lower end of the "
        f"{LEVEL:.0%} interval of their relevance is above {least}"
    )
    if log.events and log.columns.position is not None:
        also = (
            "" if options.negatives_below is None else f", or relevance surely below {options.negatives_below:g}"
        )
        yield (
            f"{counted[NEGATIVE]:,} negatives: shown above a click and skipped {options.min_skips:,} times or more, "
            f"never clicked{also}"
        )
    elif log.events:
        yield "no negatives: without positions nobody knows what stood above a click"
    elif options.negatives_below is not None:
        yield f"{counted[NEGATIVE]:,} negatives: relevance surely below {options.negatives_below:g}"
    else:
        yield "no negatives: counts do not say what stood above a click; --negatives-below makes some"
    if counted[CAPPED]:
        yield (
            f"{counted[CAPPED]:,} positives of popular documents are left out: each keeps the "
            f"{options.max_queries_per_document:,} queries it is most relevant to (--max-queries-per-document)"
        )


def _silent(reason: str, **row: object) -> None:
    """Drop what was counted before."""


def read(source: Path, options: HarvestOptions, draft: Draft, progress: Progress) -> None:
    """Add the positives and negatives of a click log to the draft as training pairs.

    With `--texts` the log's documents, and perhaps its queries, are ids of it, and all its documents come in.
    The time of a pair is when the log first shows it. Raises UsageError for flags that cannot be, EmbedtrainError
    for a log that cannot be read or holds no click.
    """
    asked = ClickOptions.of(options)
    loop = f"{source} clicks"
    if draft.finished(loop):
        return
    known = Lookup(Path(asked.collection)) if asked.collection else None
    if known is not None:
        add_documents(known, asked.collection, draft)
    # After a kill the counts are made again; what was dropped and said on the way stays as it was.
    again = draft.finished(f"{loop} counted")
    log = read_log(source, asked, draft, known, _silent if again else draft.drop, progress)
    if known is not None:
        known.close()
    beliefs = believe(log, asked)
    verdicts = judge(log, beliefs, asked)
    if not again:
        draft.notes.extend([*log.notes, *beliefs.notes, *_summary(verdicts, beliefs, log, asked)])
        draft.finish(f"{loop} counted")
    columns = (verdicts.query, verdicts.document, verdicts.kind, verdicts.weight, verdicts.since)
    for place in draft.new(loop, range(len(verdicts.kind))):
        query, document, kind, weight, since = (column[place].item() for column in columns)
        text, identifier = log.texts[query], log.ids[document]
        if kind in REASONS:
            draft.drop(REASONS[kind], query=text, document=identifier)
            continue
        time = None if np.isnan(since) else since
        name, grade = ("click", 1.0) if kind == POSITIVE else ("skip", 0.0)
        draft.add_weak_pair(text, identifier, name, asked.weight * weight, grade, time)
