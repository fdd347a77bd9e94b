"""Markdown: pages become sections, and titles, descriptions and headings the queries that find them.

Three kinds of weak pairs, named in the qrels column `source`:

    title        page title                        -> the page's opening section
    description  description of the front matter   -> the page's opening section
    heading      "page title: heading: subheading" -> the section under that heading

The opening section is what stands before the first heading or, where nothing does, the first section with text.
No document carries the text of its own query: title and headings are cut out of the text, and the title column
stays empty, because a title in front of a document would teach the encoder to copy it. Where a section stood is
kept in the columns `page` and `heading_path`.
"""

import html
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from embedtrain.collection import is_blank
from embedtrain.config import HarvestOptions
from embedtrain.console import Progress
from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.draft import Draft, query_key, without_copy
from embedtrain.harvest.pages import read_pages

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_NOT_TEXT = re.compile(r"<(script|style)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
# Hugo runs {{< figure src="a.png" >}} and {{% include "b.md" %}} before Markdown; {{</* shown */>}} is text.
_SHORTCODE = re.compile(r"\{\{(?:<(?!/\*).*?>|%(?!/\*).*?%)\}\}", re.DOTALL)
_SHOWN_SHORTCODE = re.compile(r"\{\{([<%])/\*(.*?)\*/([>%])\}\}", re.DOTALL)
# An empty anchor is no text, and after a closing fence it would keep the fence open to the end of the page.
_ANCHOR = re.compile(r"""<a\s+(?:name|id)=["']?[^"'<>]*["']?\s*>\s*</a>""")
_HEADING_ATTRIBUTES = re.compile(r"\s*\{[#.:][^{}]*\}\s*$")  # "## Settings {#settings-asciidoc}"
_ALERT = re.compile(r"^\[![A-Za-z]+\][+-]?[ \t]*\n?")  # "> [!NOTE]" of GitHub

_SHORTEST = 20  # characters: "See details." is no document

_PARSER = MarkdownIt("commonmark").enable("table")


@dataclass
class Section:
    """A stretch of a page: the headings over it, its own last, and its text without them."""

    headings: tuple[str, ...]
    blocks: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The blocks as one text."""
        return "\n\n".join(self.blocks).strip()


@dataclass
class Page:
    """A page: what its front matter or first heading says of it, and its sections in order."""

    title: str = ""
    description: str = ""
    sections: list[Section] = field(default_factory=list)


def _plain_html(source: str) -> str:
    return html.unescape(_TAG.sub(" ", _NOT_TEXT.sub(" ", _COMMENT.sub(" ", source)))).strip()


def _inline_text(token: Token) -> str:
    parts = []
    for child in token.children or []:
        if child.type in ("text", "code_inline", "image"):
            parts.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append("\n")
    return _ALERT.sub("", "".join(parts)).strip()


def _block_text(tokens: list[Token]) -> str:
    """The text of one top-level block: list items with their marks, table rows with bars, code as it is."""
    lines: list[str] = []
    marks: list[str] = []
    cells: list[str] | None = None
    for token in tokens:
        if token.type == "list_item_open":
            marks.append(f"{token.info}{token.markup} " if token.info else "- ")
        elif token.type == "tr_open":
            cells = []
        elif token.type == "tr_close":
            lines.append(" | ".join(cells or []))
            cells = None
        elif token.type in ("inline", "fence", "code_block", "html_block"):
            if token.type == "inline":
                text = _inline_text(token)
            else:
                text = _plain_html(token.content) if token.type == "html_block" else token.content.rstrip()
            if cells is not None:
                cells.append(text)
            elif text:
                lines.append("".join(marks) + text)
                marks = []
    return "\n".join(lines).rstrip()


def _front_matter(source: str, dropped: Counter[str]) -> tuple[dict[str, str], str]:
    match = _FRONT_MATTER.match(source)
    if match is None:
        return {}, source
    try:
        # BaseLoader guesses no types: a title of 007 or yes stays what it is.
        values = yaml.load(match[1], Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        dropped["front matter that is not YAML"] += 1
        values = None
    rest = source[match.end() :]
    if not isinstance(values, dict):
        return {}, rest
    return {name: value.strip() for name, value in values.items() if isinstance(value, str)}, rest


def _blocks(tokens: list[Token]) -> list[list[Token]]:
    """Tokens grouped by top-level block."""
    groups: list[list[Token]] = []
    depth = 0
    for token in tokens:
        if depth == 0:
            groups.append([])
        groups[-1].append(token)
        depth += token.nesting
    return groups


def parse_page(source: str, dropped: Counter[str]) -> Page:
    """Cut a Markdown page (CommonMark, tables, YAML front matter, Hugo shortcodes taken out) at its headings."""
    front, rest = _front_matter(source.replace("\r\n", "\n"), dropped)
    page = Page(front.get("title", ""), front.get("description", ""))
    rest, count = _SHORTCODE.subn("", rest)
    if count:
        dropped["Hugo shortcode"] += count
    rest = _ANCHOR.sub("", _SHOWN_SHORTCODE.sub(r"{{\1\2\3}}", rest))
    stack: list[tuple[int, str]] = []
    section = Section(())
    page.sections.append(section)
    for block in _blocks(_PARSER.parse(rest)):
        if block[0].type != "heading_open":
            if text := _block_text(block):
                section.blocks.append(text)
            continue
        level = int(block[0].tag[1])
        heading = _HEADING_ATTRIBUTES.sub("", " ".join(_inline_text(block[1]).split()))
        names_page = level == 1 and len(page.sections) == 1
        if names_page and (not page.title or query_key(heading) == query_key(page.title)):
            page.title = page.title or heading
            continue
        stack = [entry for entry in stack if entry[0] < level]
        if heading:
            stack.append((level, heading))
        section = Section(tuple(name for _, name in stack))
        page.sections.append(section)
    return page


def heading_query(title: str, headings: tuple[str, ...]) -> str:
    """The query for a section: page title and headings; the title is left out where a heading repeats it."""
    said = query_key(title) in map(query_key, headings)
    return ": ".join(headings if said or not title else (title, *headings))


def add_page(name: str, page: Page, draft: Draft) -> None:
    """Add the sections of a page to the draft, each under its queries."""
    if is_blank(page.title):
        draft.dropped["page without a title"] += 1
    opening = True
    for section in page.sections:
        pairs = []
        if opening:
            pairs = [(page.title, "title"), (page.description, "description")]
        if section.headings:
            pairs.append((heading_query(page.title, section.headings), "heading"))
        pairs = [(query, source) for query, source in pairs if not is_blank(query)]
        text = without_copy([*section.headings[-1:], *(query for query, _ in pairs)], section.text)
        if is_blank(text):
            if section.headings:
                draft.dropped["heading without a text"] += 1
            continue
        if len(text) < _SHORTEST:
            draft.dropped[f"section under {_SHORTEST} characters"] += 1
            continue
        opening = False
        path = " > ".join(section.headings)
        document = draft.add_weak_document("", text, {"page": name, "heading_path": path})
        draft.groups.append((document, name))
        for query, source in pairs:
            draft.add_weak_pair(query, document, source)
    if opening:
        draft.dropped["page without a text"] += 1


def read(source: Path, options: HarvestOptions, draft: Draft, progress: Progress) -> None:
    """Add a folder, an archive or a file of Markdown to the draft as training pairs."""
    pages = read_pages(source, draft.dropped)
    for done, (name, content) in enumerate(pages, start=1):
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise EmbedtrainError(f"{source}: page {name} is not UTF-8 text; convert it to UTF-8") from error
        add_page(name, parse_page(text, draft.dropped), draft)
        progress("read pages", done, len(pages), "")
