"""Markdown to sections: CommonMark with tables, YAML front matter, and what Hugo and HTML put into it taken out."""

import html
import re
from collections import Counter
from collections.abc import Sequence

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from embedtrain.harvest.documents.page import Block, Outline, Page

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_NOT_TEXT = re.compile(r"<(script|style)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
# Tags within a line that part words: "a<br>b" is no word "ab".
_PARTING_TAG = re.compile(r"</?(?:br|p|li|ul|ol|div|td|th|tr|hr)\b", re.IGNORECASE)
# Hugo runs {{< figure src="a.png" >}} and {{% include "b.md" %}} before Markdown; {{</* shown */>}} is text.
_SHORTCODE = re.compile(r"\{\{(?:<(?!/\*).*?>|%(?!/\*).*?%)\}\}", re.DOTALL)
_SHOWN_SHORTCODE = re.compile(r"\{\{([<%])/\*(.*?)\*/([>%])\}\}", re.DOTALL)
# An empty anchor is no text, and after a closing fence it would keep the fence open to the end of the page.
_ANCHOR = re.compile(r"""<a\s+(?:name|id)=["']?[^"'<>]*["']?\s*>\s*</a>""")
_HEADING_ATTRIBUTES = re.compile(r"\s*\{[#.:][^{}]*\}\s*$")  # "## Settings {#settings-asciidoc}"
_ALERT = re.compile(r"^\[![A-Za-z]+\][+-]?[ \t]*\n?")  # "> [!NOTE]" of GitHub
_WORD = re.compile(r"\w")
_BLANKS = re.compile(r"[ \t]{2,}")
_BRACKETS = re.compile(
    r"\[\s*(.*?)\s*\]"
)  # "[ AWS CLI ]" over a tab, "[Screenshot of the console.]" as an image's text
# What converters write where they lost something: an image's text, a table or list within a cell.
_NO_IMAGE = "image not found"
_PLACEHOLDER = re.compile(r"\[See the AWS documentation website for more details\]")
# Emphasis that is none to CommonMark, since a sign or a space stands on the wrong side: "**Limits—**You can".
_EMPHASIS = re.compile(r"\*\*([^*\n]+)\*\*")
_RULE_CELLS = re.compile(r"[\s|:-]*")  # a second "--- | ---" within a table

_PARSER = MarkdownIt("commonmark").enable("table")


def _plain_html(source: str) -> str:
    return html.unescape(_TAG.sub(" ", _NOT_TEXT.sub(" ", _COMMENT.sub(" ", source)))).strip()


def _inner(text: str) -> str:
    """A text without brackets around all of it."""
    match = _BRACKETS.fullmatch(text)
    return match[1] if match else text


def _image_text(token: Token) -> str:
    text = _inner("".join(child.content for child in token.children or []).strip())
    return "" if _NO_IMAGE in text.casefold() else text


def _inline_text(token: Token) -> str:
    parts = []
    for child in token.children or []:
        if child.type == "text":
            parts.append(_EMPHASIS.sub(r"\1", _PLACEHOLDER.sub("", child.content)))
        elif child.type == "code_inline":
            parts.append(child.content)
        elif child.type == "image":
            shown = _image_text(child)
            if shown not in parts[-1:]:  # several views of one thing
                parts.append(shown)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        elif child.type == "html_inline" and _PARTING_TAG.match(child.content):
            parts.append(" ")
    return _BLANKS.sub(" ", _ALERT.sub("", "".join(parts))).strip()


def _is_linked(token: Token) -> bool:
    """Whether there are links in a line and no word outside them."""
    depth = links = 0
    for child in token.children or []:
        if child.type in ("link_open", "link_close"):
            depth += child.nesting
            links += 1
        elif depth == 0 and _WORD.search(child.content) and child.type != "html_inline":
            return False
    return links > 0


def _blocks(tokens: Sequence[Token], dropped: Counter[str]) -> list[Block]:
    """The blocks of one top-level block: list items with their marks, table rows with bars, code as it is."""
    found: list[Block] = []
    marks: list[str] = []
    numbers: list[int] = []  # the next one of every ordered list that is open
    cells: list[str] | None = None
    head = ""
    for token in tokens:
        if token.type == "ordered_list_open":
            numbers.append(int(token.attrGet("start") or 1))
        elif token.type == "ordered_list_close":
            numbers.pop()
        elif token.type == "list_item_open":
            # Numbered as it is shown: many write 1. before every item.
            marks.append(f"{numbers[-1]}{token.markup} " if token.info else "- ")
            if token.info:
                numbers[-1] += 1
        elif token.type == "tr_open":
            cells = []
        elif token.type == "tr_close":
            row = " | ".join(cells or [])
            if not _RULE_CELLS.fullmatch(row):
                found.append(Block(row, tight=bool(found), head=head))
            else:
                dropped["empty row of a table"] += 1
            cells = None
        elif token.type == "thead_close":
            head = found[-1].text if found else ""
        elif token.type == "table_close":
            head = ""
        elif token.type in ("inline", "fence", "code_block", "html_block"):
            if token.type == "inline":
                text = _inline_text(token)
            else:
                text = _plain_html(token.content) if token.type == "html_block" else token.content.rstrip()
            if cells is not None:
                cells.append(" ".join(text.split("\n")))
            elif text:
                found.append(
                    Block(
                        "".join(marks) + text,
                        code=token.type in ("fence", "code_block"),
                        tight=bool(found),
                        item=bool(marks),
                        linked=token.type == "inline" and _is_linked(token),
                    )
                )
                marks = []
    return found


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


def _top_level(tokens: list[Token]) -> list[list[Token]]:
    """Tokens grouped by top-level block."""
    groups: list[list[Token]] = []
    depth = 0
    for token in tokens:
        if depth == 0:
            groups.append([])
        groups[-1].append(token)
        depth += token.nesting
    return groups


def parse(source: str, dropped: Counter[str]) -> Page:
    """Cut a Markdown page at its headings; shortcodes, lists of links and empty rows are left out and counted."""
    front, rest = _front_matter(source.replace("\r\n", "\n"), dropped)
    outline = Outline(front.get("title", ""), front.get("description", ""))
    rest, count = _SHORTCODE.subn("", rest)
    if count:
        dropped["Hugo shortcode"] += count
    rest = _ANCHOR.sub("", _SHOWN_SHORTCODE.sub(r"{{\1\2\3}}", rest))
    for tokens in _top_level(_PARSER.parse(rest)):
        if tokens[0].type == "heading_open":
            heading = _HEADING_ATTRIBUTES.sub("", " ".join(_inline_text(tokens[1]).split()))
            outline.heading(int(tokens[0].tag[1]), _inner(heading))
            continue
        for block in _blocks(tokens, dropped):
            outline.add(block)
    return outline.finish(dropped)
