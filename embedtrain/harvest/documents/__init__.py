"""Pages as training pairs: titles, descriptions, headings and questions, and the documents that they find.

Weak pairs, named in the qrels column `source`:

    title        page title                        -> the page's opening
    description  what the page says of itself      -> the page's opening
    heading      "page title: heading: subheading" -> the section under that heading
    faq          a heading that is a question      -> the section under it, in the place of `heading`
    opening      the first sentence of a section   -> the rest of it
    adjacent     a document                        -> the next one of the same page
    link         the sentence that holds a link    -> the opening of the linked page, or the section that it names
    self         a document                        -> itself; dropout makes the two views (SimCSE, Gao et al. 2021)

The opening is what stands before the first heading or, where nothing does, the first section with text. A section that
is cut is several documents: title and description find its first alone, since they announce what follows; a heading
holds for all of it and finds the first `MOST_PARTS`, later ones being about details, but no piece out of the middle of
some code. No document begins with the text of its own query: titles and headings are cut out of the text, and the title column stays empty, because a title in front
of a document would teach the encoder to copy it. Where a document stood is kept in the columns `page` and
`heading_path`.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from embedtrain.collection import is_blank
from embedtrain.config import PageOptions
from embedtrain.console import Progress
from embedtrain.errors import UsageError
from embedtrain.harvest.documents.links import Links
from embedtrain.harvest.documents.page import STOPS, Page, Section
from embedtrain.harvest.documents.pages import DOCUMENTS, Pages, parse
from embedtrain.harvest.documents.passages import (
    SHORT,
    Chunk,
    Count,
    cut_page,
    estimate_tokens,
    sentences,
    without_code,
)
from embedtrain.harvest.documents.questions import question
from embedtrain.harvest.draft import SELF, Draft
from embedtrain.harvest.identity import query_key, without_copy

LINKS = "links"  # wanted; each pair is a `link`
PAIRS = ("title", "description", "heading", "faq", "opening", "adjacent", LINKS, SELF)
CODE = ("keep", "drop")
MOST_PARTS = 3  # documents that one heading finds
_SHORTEST = 20  # characters: "See details." is no document
# Words that stand free, as those of a key, a list of numbers or JSON do not; any text has three.
_FREE_WORD = re.compile(r"(?<![^\s(\[\"'“„])[^\W\d_]{1,25}(?:['’-][^\W\d_]+)*(?=[.,;:!?)\]\"'”“]*(?:\s|\Z))")
_FEWEST_WORDS = 3
_NOT_LATIN = re.compile(r"[^\W\d_\u0000-\u024f]")  # scripts that may have no spaces


def parse_pairs(text: str) -> tuple[str, ...]:
    """Read `title,heading`; UsageError for what is no pair of pages."""
    names = tuple(filter(None, (name.strip() for name in text.split(","))))
    if not names or len(set(names)) < len(names) or not set(names) <= set(PAIRS):
        raise UsageError(f"--pairs {text}: name each of these at most once and one at least: {', '.join(PAIRS)}")
    return names


def check(options: PageOptions) -> tuple[str, ...]:
    """The pairs that are wanted; UsageError for options that cannot be."""
    if options.code not in CODE:
        raise UsageError(f"--code {options.code}: {' and '.join(CODE)} are the choices")
    if options.chunk_tokens < 0:
        raise UsageError(
            f"--chunk-tokens {options.chunk_tokens}: give a number of tokens, or 0 to keep sections whole"
        )
    if not 0 <= options.chunk_overlap <= options.chunk_tokens // 2:
        raise UsageError(
            f"--chunk-overlap {options.chunk_overlap}: give 0 to {options.chunk_tokens // 2}, half of --chunk-tokens"
        )
    return parse_pairs(options.pairs)


def heading_query(title: str, headings: Sequence[str]) -> str:
    """The query for a section: page title and headings; the title is left out where a heading repeats it."""
    said = query_key(title) in map(query_key, headings)
    return ": ".join(headings if said or not title else (title, *headings))


def _queries(page: Page, chunk: Chunk, opening: bool, wanted: Sequence[str]) -> list[tuple[str, str]]:
    """(query, source) of a document by its title, description and headings."""
    pairs = []
    if opening:
        pairs = [(page.title, "title"), (page.description, "description")]
    if chunk.headings:
        asked = question(chunk.headings[-1]) if "faq" in wanted else ""
        pairs.append((asked, "faq") if asked else (heading_query(page.title, chunk.headings), "heading"))
    return [(query, source) for query, source in pairs if source in wanted and not is_blank(query)]


def has_words(text: str) -> bool:
    """Whether a text has words at all: a piece of JSON, of a key or of a list of numbers has none that stand free."""
    return (
        len({match[0].casefold() for match in _FREE_WORD.finditer(text)}) >= _FEWEST_WORDS
        or len(_NOT_LATIN.findall(text)) >= _SHORTEST // 2
    )


def _split_opening(text: str) -> tuple[str, str] | None:
    """The first sentence of a text and the rest; None where one of them is none."""
    (_, sentence), *rest = sentences(text)
    body = "".join(gap + words for gap, words in rest).strip()
    if min(len(body), len(sentence)) < _SHORTEST or not sentence.endswith(STOPS):
        return None
    return sentence, body


class _Adding:
    """The documents and pairs of one page on their way into the draft.

    `targets`: the document that each anchor leads to, empty where it has none; the anchor of the page itself is "".
    """

    def __init__(self, source: str, name: str, page: Page, draft: Draft, wanted: Sequence[str]) -> None:
        self._source, self._name, self._page, self._draft, self._wanted = source, name, page, draft, wanted
        # Anchors that no document came for yet, and the headings that they stand under.
        self._waiting: list[tuple[str, tuple[str, ...]]] = [("", ())]
        self.targets: dict[str, str] = {}
        self._previous: tuple[str, str] | None = None  # group and text of the document before
        self.opening = True

    def _document(self, chunk: Chunk, text: str) -> tuple[str, str]:
        group = f"{self._name}#{chunk.place}" if chunk.place else self._name
        extra = {"page": group, "heading_path": " > ".join(chunk.headings)}
        # Pages of two sources may have the same name and nothing else in common.
        together = f"{self._source}: {group}" if self._source else group
        return group, self._draft.add_weak_document("", text, extra, page=together)

    def _lead_to(self, document: str, headings: tuple[str, ...]) -> None:
        """Let the anchors that wait lead to a document, if it is of their section or of one below it."""
        for anchor, above in self._waiting:
            self.targets.setdefault(anchor, document if headings[: len(above)] == above else "")
        self._waiting.clear()

    def finish(self) -> None:
        """Say that no document comes any more."""
        for anchor, _ in self._waiting:
            self.targets.setdefault(anchor, "")

    def add(self, chunk: Chunk) -> None:
        """Add a document with the queries that find it, and with those it makes itself."""
        draft = self._draft
        self._waiting += [(anchor, chunk.headings) for anchor in chunk.anchors]
        pairs = _queries(self._page, chunk, self.opening, self._wanted)
        # Not only the queries that are wanted: a text that repeats its heading gains nothing from it.
        names = [*chunk.headings[-1:], *([self._page.title, self._page.description] if self.opening else [])]
        text = without_copy([*names, *(query for query, _ in pairs)], chunk.text)
        where = {"page": self._name, "heading_path": " > ".join(chunk.headings)}
        if is_blank(text):
            if chunk.headings:
                draft.drop("heading without a text", **where)
            return
        if len(text) < _SHORTEST:
            draft.drop(f"section under {_SHORTEST} characters", **where, text=text)
            return
        if text.endswith(":") and len(sentences(text)) == 1:
            draft.drop("line that announces what is not there", **where, text=text)
            return
        if not has_words(text):
            draft.drop("document without words", **where, text=text)
            return
        self.opening = False
        group, document = self._document(chunk, text)
        self._lead_to(document, chunk.headings)
        for query, source in pairs:
            if source in ("heading", "faq") and chunk.fragment:
                draft.drop("pair of a heading with a later piece of code", **where, query=query)
            elif source in ("heading", "faq") and chunk.part >= MOST_PARTS:
                draft.drop(f"pair of a heading beyond its first {MOST_PARTS} documents", **where, query=query)
            else:
                draft.add_weak_pair(query, document, source)
        if "opening" in self._wanted and chunk.part == 0:
            self._add_opening(chunk, text)
        if "adjacent" in self._wanted and self._previous is not None and self._previous[0] == group:
            draft.add_weak_pair(self._previous[1], document, "adjacent")
        if SELF in self._wanted:
            draft.add_weak_pair(text, document, SELF)
        self._previous = group, text

    def _add_opening(self, chunk: Chunk, text: str) -> None:
        if parts := _split_opening(text):
            sentence, body = parts
            _, document = self._document(chunk, body)
            self._draft.add_weak_pair(sentence, document, "opening")
        else:
            self._draft.drop("section without a first sentence and more", page=self._name)


def add_page(
    name: str,
    page: Page,
    draft: Draft,
    options: PageOptions,
    count: Count = estimate_tokens,
    source: str = "",
) -> dict[str, str]:
    """Add the documents of a page to the draft, each under its queries; return the document that each anchor leads to.

    That of the page itself is ""; a document is empty where there is none. `count` says how many tokens a text has,
    `source` what the page is from: a split keeps what is cut from one page of it together. Raises UsageError for
    options that cannot be.
    """
    wanted = check(options)
    if options.code == "drop":
        left_out: Counter[str] = Counter()
        page = without_code(page, left_out)
        _drop_all(draft, left_out, name)
    if is_blank(page.title):
        draft.drop("page without a title", page=name)

    def alone(section: Section) -> bool:
        return "faq" in wanted and bool(section.headings) and bool(question(section.headings[-1]))

    adding = _Adding(source, name, page, draft, wanted)
    for chunk in cut_page(page, options.chunk_tokens, options.chunk_overlap, count, alone):
        adding.add(chunk)
    adding.finish()
    if adding.opening:
        draft.drop("page without a text", page=name)
    return adding.targets


def _drop_all(draft: Draft, counted: Counter[str], name: str) -> None:
    for reason, times in counted.items():
        for _ in range(times):
            draft.drop(reason, page=name)


def read(
    source: Path,
    options: PageOptions,
    draft: Draft,
    progress: Progress,
    kind: str = DOCUMENTS,
    count: Count = estimate_tokens,
) -> None:
    """Add a folder, an archive or a file of pages to the draft as training pairs; `kind` may name one format.

    Raises UsageError for options that cannot be, EmbedtrainError for a source that holds no pages or cannot be read.
    """
    links = Links(source, draft) if LINKS in check(options) else None
    counted: Counter[str] = Counter()
    pages = Pages(source, counted, kind)
    loop = f"{source} pages"
    if not draft.items(loop):
        _drop_all(draft, counted, source.name)
    before = draft.items(loop)
    for done, (name, content) in enumerate(draft.new(loop, pages), start=before + 1):
        counted = Counter()
        page = parse(source, name, content, counted)
        _drop_all(draft, counted, name)
        targets = add_page(name, page, draft, options, count, str(source))
        if links:
            links.add(name, page, targets)
        progress("read pages", done, len(pages), "")
    if links:
        links.follow(progress)
    _note_short(options, draft)


def _note_short(options: PageOptions, draft: Draft) -> None:
    if options.chunk_tokens:
        short = int(SHORT * options.chunk_tokens)
        note = f"sections of under {short} tokens were joined with such neighbours under the same heading"
        if note not in draft.notes:
            draft.notes.append(note)
