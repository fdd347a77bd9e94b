"""Generated queries: a language model writes what people would ask to find a document, each of them once.

Three steps, each of which a killed run goes on from: replies that are not in the cache are asked for and kept as
they come; all replies are read in the order of the documents; the queries that find their own document again
become pairs.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from embedtrain.collection import Texts
from embedtrain.config import GenerateOptions
from embedtrain.console import Progress, silent
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest.draft import TRAIN, Draft
from embedtrain.harvest.finders import NEED, Finder, check_names, found_again, open_finders
from embedtrain.harvest.generated.cache import RepliesCache, reply_key
from embedtrain.harvest.generated.endpoint import Endpoint
from embedtrain.harvest.generated.prompts import Prompt, find_prompt
from embedtrain.harvest.generated.replies import COPIED, Queries, Reply, queries_of
from embedtrain.harvest.identity import number, query_key
from embedtrain.harvest.ledger import Ints
from embedtrain.harvest.split import stable_unit

SOURCE, REPHRASED = "generated", "rephrased"
TOO_LONG = "document longer than the language model reads"
LOST = "generated query that does not find its document"
ELSEWHERE = "generated query that another split asks"
ITSELF = "rephrased query is the query itself"

_BLOCK = 1_024  # documents whose queries are searched for together


class Writer(Protocol):
    """A language model. `identity` and `settings` are what its replies depend on but the prompt."""

    name: str
    identity: Mapping[str, Any]
    settings: Mapping[str, Any]

    def replies(self, prompts: Sequence[str], wanted: int) -> Iterator[tuple[int, Reply]]:
        """(place of the prompt, reply) as they come; `wanted` for models that write one query at a time."""
        ...


def check(options: GenerateOptions) -> None:
    """Raise UsageError, or EmbedtrainError for the prompt, for what cannot be, before any work is done."""
    for flag, value, least in (
        ("--queries-per-document", options.queries_per_document, 1),
        ("--generate-limit", 1 if options.generate_limit is None else options.generate_limit, 1),
        ("--generate-workers", options.generate_workers, 1),
        ("--generate-tokens", options.generate_tokens, 1),
        ("--round-trip", options.round_trip, 0),
        ("--generate-temperature", options.temperature, 0),
    ):
        if not value >= least:
            raise UsageError(f"{flag} {value}: give at least {least}")
    if not options.generate_timeout > 0:
        raise UsageError(f"--generate-timeout {options.generate_timeout:g}: give more than 0 seconds")
    if options.round_trip_need not in NEED:
        raise UsageError(f"--round-trip-need {options.round_trip_need}: {' and '.join(NEED)} are known")
    if options.round_trip:
        check_names(options.round_trip_by, "--round-trip-by")
    parse_price(options.price)
    find_prompt(options.prompt)


def parse_price(text: str) -> tuple[float, float] | None:
    """Read `0.15,0.6`, the price of a million tokens of prompts and of replies; None for nothing."""
    if not text:
        return None
    try:
        prompts, replies = (float(part) for part in text.split(","))
    except ValueError:
        prompts = replies = -1.0
    if not 0 <= prompts < float("inf") or not 0 <= replies < float("inf"):
        raise UsageError(
            f"--price {text}: two numbers are needed, for a million tokens of prompts and of replies: 0.15,0.6"
        )
    return prompts, replies


def open_writer(options: GenerateOptions) -> Writer:
    """The model of `--generate`: a server where it is an address, else a local one. Raises as both do."""
    how: dict[str, Any] = {
        "temperature": options.temperature,
        "seed": options.seed,
        "max_tokens": options.generate_tokens,
    }
    if "://" in options.generate:
        return Endpoint(
            options.generate,
            options.generate_model,
            workers=options.generate_workers,
            timeout=options.generate_timeout,
            **how,
        )
    if options.generate_model:
        raise UsageError(
            "--generate-model names a model of a server; --generate is no address, and names one already"
        )
    from embedtrain.harvest.generated.local_model import LocalModel

    return LocalModel.named(options.generate, **how)


def sampled(ids: Sequence[str], limit: int | None, seed: int) -> list[int]:
    """The places of at most `limit` ids, in their order: those with the smallest stable hash."""
    if limit is None or limit >= len(ids):
        return list(range(len(ids)))
    ranked = sorted(range(len(ids)), key=lambda place: (stable_unit(seed, "generate", ids[place]), ids[place]))
    return sorted(ranked[:limit])


class _Work:
    """Documents, the prompt for each, and the replies that are kept for them."""

    def __init__(
        self, documents: Texts, writer: Writer, options: GenerateOptions, prompt: Prompt, cache: RepliesCache
    ) -> None:
        self.documents, self.options = documents, options
        self.rows = sampled(documents.ids, options.generate_limit, options.seed)
        self.wanted = options.queries_per_document
        self.name = writer.name
        self._writer, self._prompt, self._cache = writer, prompt, cache
        self._unfit: set[bytes] = set()
        self._common = {**writer.identity, **writer.settings, "prompt": prompt.template, "n": self.wanted}

    def _key(self, row: int) -> bytes:
        return reply_key({**self._common, "text": self.documents.body(row), "title": self.documents.title(row)})

    def ask(self, progress: Progress) -> None:
        """Get the replies that are not kept yet; the same document twice is asked for once."""
        missing: dict[bytes, int] = {}
        for row in self.rows:
            key = self._key(row)
            if key not in missing and self._cache.find(key) is None:
                missing[key] = row
        if not missing:
            return
        keys, rows = list(missing), list(missing.values())
        known = len(self.rows) - len(rows)
        there = f" ({known:,} more were in the cache)" if known else ""
        what, started, tokens = f"ask {self._writer.name} for queries", time.monotonic(), 0
        progress(what, 0, len(rows), there.strip())
        for done, (place, reply) in enumerate(self._writer.replies(_Prompts(self, rows), self.wanted), start=1):
            if reply.finish == "too long":  # and may fit another time, with another limit of the server
                self._unfit.add(keys[place])
            else:
                self._cache.keep(keys[place], reply, self._writer.name)
            tokens += (reply.prompt_tokens or 0) + (reply.reply_tokens or 0)
            elapsed = max(time.monotonic() - started, 1e-9)
            progress(
                what, done, len(rows), f"{done / elapsed:.1f} requests/s, {tokens / elapsed:,.0f} tokens/s{there}"
            )

    def filled(self, row: int) -> str:
        """The prompt for a document."""
        return self._prompt.filled(self.documents.body(row), self.wanted, self.documents.title(row))

    def reply(self, row: int) -> Reply:
        """The reply about a document."""
        key = self._key(row)
        reply = Reply("", "too long") if key in self._unfit else self._cache.find(key)
        if reply is None:
            raise EmbedtrainError(
                f"replies vanished from {self._cache.path} during the run; run the same command again"
            )
        return reply

    def queries(self, row: int, reply: Reply) -> Queries:
        """The queries in it."""
        document = "\n".join(filter(None, (self.documents.title(row), self.documents.body(row))))
        return queries_of(reply.text, self.wanted, document, cut=reply.finish == "length")


class _Prompts(Sequence[str]):
    """Prompts that are made when they are read: all of them together may not fit into memory."""

    def __init__(self, work: _Work, rows: Sequence[int]) -> None:
        self._work, self._rows = work, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        return self._work.filled(self._rows[place])


def generate(
    documents: Texts,
    options: GenerateOptions,
    draft: Draft,
    progress: Progress = silent,
    *,
    corpus: Texts | None = None,
    positives: Callable[[str], Sequence[str]] | None = None,
    writer: Writer | None = None,
    language: str = "auto",
) -> None:
    """Add pairs (generated query, document) to the draft, as source `generated` or `rephrased`.

    To rephrase queries, give them as `documents`, with `positives` for the ids of the documents of each, and the
    documents as `corpus`, which is what the round trip searches (its BM25 in `language`). Raises UsageError and
    EmbedtrainError as `check`, `open_writer` and the model do.
    """
    check(options)
    prompt = find_prompt(options.prompt)
    step = f"generate {prompt.name}"
    if draft.finished(step):
        return
    corpus = documents if corpus is None else corpus
    with RepliesCache() as cache:
        work = _Work(documents, writer or open_writer(options), options, prompt, cache)
        work.ask(progress)
        finders = open_finders(options.round_trip_by, corpus, language, progress) if options.round_trip else []
        source = REPHRASED if prompt.name == "rephrase" else SOURCE
        elsewhere = _asked_elsewhere(draft)
        for start in draft.new(f"{step}: pairs", range(0, len(work.rows), _BLOCK)):
            rows = work.rows[start : start + _BLOCK]
            pairs = _read(work, rows, draft, positives)
            pairs = _new(pairs, elsewhere, draft)
            for query, document in _kept(pairs, finders, corpus, options, draft):
                draft.add_weak_pair(query, document, source)
            progress("read replies", start + len(rows), len(work.rows), "")
        draft.notes.extend(_notes(work, prompt, options, "queries" if positives else "documents"))
        if finders:
            names = f" {'and' if options.round_trip_need == 'all' else 'or'} ".join(
                finder.name for finder in finders
            )
            draft.notes.append(
                f"round trip by {names}: queries stay whose document is among the first "
                f"{options.round_trip} they find"
            )
    draft.finish(step)


def _read(
    work: _Work, rows: Sequence[int], draft: Draft, positives: Callable[[str], Sequence[str]] | None
) -> list[tuple[str, str]]:
    """The (query, document id) pairs of some replies; what is dropped is counted."""
    pairs = []
    for row in rows:
        identifier, reply = work.documents.ids[row], work.reply(row)
        about = {"rephrases" if positives else "document": identifier}
        if reply.finish == "too long":
            draft.drop(TOO_LONG, **about)
            continue
        queries = work.queries(row, reply)
        for reason, text in queries.dropped:
            draft.drop(ITSELF if positives and reason == COPIED else reason, query=text, **about)
        documents = positives(identifier) if positives else [identifier]
        pairs += [(query, document) for document in documents for query in queries.kept]
    return pairs


def _asked_elsewhere(draft: Draft) -> Ints:
    """What the queries of all splits but train are compared by, ascending: those are measured with, not trained on."""
    statement = (
        "SELECT DISTINCT key FROM queries WHERE n IN (SELECT query FROM pairs WHERE split != ?) ORDER BY key"
    )
    (keys,) = draft.columns(statement, [np.int64], (draft.name("split", TRAIN),))
    return keys


def _new(pairs: list[tuple[str, str]], elsewhere: Ints, draft: Draft) -> list[tuple[str, str]]:
    """Those pairs whose query no other split asks."""
    kept = []
    for query, document in pairs:
        key = number(query_key(query))
        place = int(np.searchsorted(elsewhere, key))
        if place < len(elsewhere) and elsewhere[place] == key:
            draft.drop(ELSEWHERE, query=query, document=document)
        else:
            kept.append((query, document))
    return kept


def _kept(
    pairs: list[tuple[str, str]], finders: Sequence[Finder], corpus: Texts, options: GenerateOptions, draft: Draft
) -> Iterator[tuple[str, str]]:
    """Those pairs whose query finds its document; all of them where there is no finder."""
    if not finders or not pairs:
        yield from pairs
        return
    places = [(query, corpus.position[document]) for query, document in pairs]
    found = found_again(places, finders, options.round_trip, options.round_trip_need, silent)
    for (query, document), kept in zip(pairs, found.tolist(), strict=True):
        if kept:
            yield query, document
        else:
            draft.drop(LOST, query=query, document=document)


def _notes(work: _Work, prompt: Prompt, options: GenerateOptions, noun: str) -> list[str]:
    """What was asked, what came and what it cost; the same whether replies were in the cache or not."""
    came: Counter[str] = Counter()
    for row in work.rows:
        reply = work.reply(row)
        if reply.finish == "too long":
            came["unfit"] += 1
            continue
        queries = work.queries(row, reply)
        came["queries"] += len(queries.kept)
        came["short"] += queries.short
        came["prompt"] += reply.prompt_tokens or 0
        came["reply"] += reply.reply_tokens or 0
        came["uncounted"] += reply.prompt_tokens is None or reply.reply_tokens is None
    sample = f" (a sample of {len(work.documents):,})" if len(work.rows) < len(work.documents) else ""
    notes = [
        f"{work.name} was asked for {work.wanted} queries of each of {len(work.rows):,} {noun}{sample}: "
        f"{came['queries']:,} came, {came['short']:,} fewer than asked for",
        prompt.shown,
    ]
    said = f"that took {came['prompt']:,} tokens of prompts and {came['reply']:,} of replies"
    if price := parse_price(options.price):
        cost = (came["prompt"] * price[0] + came["reply"] * price[1]) / 1e6
        said += f": {cost:,.4f} at --price {options.price}"
    if came["uncounted"]:
        said += f"; of {came['uncounted']:,} replies it is not known"
    return [*notes, said]
