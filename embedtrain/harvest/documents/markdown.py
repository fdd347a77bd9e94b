"""Markdown to sections: CommonMark with tables, YAML front matter, and what Hugo and HTML put into it taken out."""

import html
import re
from collections import Counter
from collections.abc import Sequence
from urllib.parse import quote

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from embedtrain.harvest.documents.page import Block, Outline, Page, Part

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
_ANCHOR = re.compile(r"""<a\s+(?:name|id)=["']?([^"'<>]*)["']?\s*>\s*</a>""")
_HEADING_ATTRIBUTES = re.compile(r"\s*\{[#.:][^{}]*\}\s*$")  # "## Settings {#settings-asciidoc}"
_HEADING_ID = re.compile(r"#([^\s{}]+)")
# What GitHub and Hugo leave out of a heading to name it in a link.
_NOT_IN_SLUG = re.compile(r"[^\w\s-]")
# [text]({{< ref "page.md#part" >}}): Hugo puts the address there.
_REF = re.compile(
    r"""(\]\(\s*<?|\]:\s*<?|href=["']?)\{\{(?:<|%)-?\s*(?:rel)?ref\s+(?:path\s*=\s*)?(?:(["`])(?P<path>[^"`\n]*)\2|"""
    r"""(?P<bare>[^\s"`{}]+))[^{}]*\}\}"""
)
_HREF = re.compile(r"""<a\s(?:[^<>]*?\s)?href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+))""", re.IGNORECASE)
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


def _parts(token: Token) -> list[Part]:
    """The words of a paragraph, a cell or a heading, and the links among them."""
    parts: list[Part] = []
    target = ""
    for child in token.children or []:
        if child.type == "text":
            words = child.content if parts else _ALERT.sub("", child.content)
            parts.append((_EMPHASIS.sub(r"\1", _PLACEHOLDER.sub("", words)), target))
        elif child.type == "code_inline":
            parts.append((child.content, target))
        elif child.type == "image":
            shown = _image_text(child)
            if not parts or shown != parts[-1][0]:  # several views of one thing
                parts.append((shown, target))
        elif child.type in ("softbreak", "hardbreak"):
            parts.append(("\n", target if child.type == "softbreak" else None))
        elif child.type == "link_open":
            target = str(child.attrGet("href") or "")
        elif child.type == "link_close" or (child.type == "html_inline" and child.content.lower() == "</a>"):
            target = ""
        elif child.type == "html_inline":
            if found := _HREF.match(child.content):
                target = html.unescape(found[1] or found[2] or found[3] or "")
            elif _PARTING_TAG.match(child.content):
                parts.append((" ", target))
    return parts


def _shown(parts: Sequence[Part]) -> str:
    return _BLANKS.sub(" ", "".join(words for words, _ in parts)).strip()


def _slug(heading: str) -> str:
    """What names a heading in a link: "#how-it-works" for "How it works?", as GitHub and Hugo make it."""
    return _NOT_IN_SLUG.sub("", heading.lower()).strip().replace(" ", "-")


class _Anchors:
    """The anchors of a page by the line that they stand on, taken in order; and the slugs of its headings."""

    def __init__(self, source: str) -> None:
        self._found: list[tuple[int, str]] = []  # (line, name), the last first
        self._slugs: Counter[str] = Counter()
        parts, line, start = [], 0, 0
        for match in _ANCHOR.finditer(source):
            parts.append(source[start : match.start()])
            line += parts[-1].count("\n")
            start = match.end()
            self._found.append((line, match[1].strip()))
        self._found.reverse()
        self.source = "".join(parts) + source[start:]  # without them

    def until(self, token: Token) -> tuple[str, ...]:
        """The anchors that are not taken yet and stand before the end of a token."""
        taken = []
        while token.map and self._found and self._found[-1][0] < token.map[1]:
            taken.append(self._found.pop()[1])
        return tuple(filter(None, taken))

    def rest(self) -> tuple[str, ...]:
        """The anchors behind all else."""
        return tuple(name for _, name in reversed(self._found))

    def slug(self, heading: str) -> str:
        """The slug of a heading; the second of the same words is "words-1"."""
        slug = _slug(heading)
        times = self._slugs[slug]
        self._slugs[slug] += 1
        return f"{slug}-{times}" if times else slug


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


def _blocks(tokens: Sequence[Token], anchors: _Anchors, outline: Outline, dropped: Counter[str]) -> list[Block]:
    """The blocks of one top-level block: list items with their marks, table rows with bars, code as it is.

    Lines with links go to the outline.
    """
    found: list[Block] = []
    named: tuple[str, ...] = ()  # anchors of the next block
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
            named += anchors.until(token)
        elif token.type == "tr_close":
            row = " | ".join(cells or [])
            if not _RULE_CELLS.fullmatch(row):
                found.append(Block(row, tight=bool(found), head=head, anchors=named))
                named = ()
            else:
                dropped["empty row of a table"] += 1
            cells = None
        elif token.type == "thead_close":
            head = found[-1].text if found else ""
        elif token.type == "table_close":
            head = ""
        elif token.type in ("inline", "fence", "code_block", "html_block"):
            named += anchors.until(token)
            if token.type == "inline":
                parts = _parts(token)
                text = _shown(parts)
                outline.line(parts)
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
                        anchors=named,
                    )
                )
                marks, named = [], ()
    outline.anchor(*named)
    return found


def _front_matter(source: str, dropped: Counter[str]) -> tuple[dict[str, str], list[str], str]:
    """What a page says of itself, the addresses where it can be found, and the rest of it."""
    match = _FRONT_MATTER.match(source)
    if match is None:
        return {}, [], source
    try:
        # BaseLoader guesses no types: a title of 007 or yes stays what it is.
        values = yaml.load(match[1], Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        dropped["front matter that is not YAML"] += 1
        values = None
    rest = source[match.end() :]
    if not isinstance(values, dict):
        return {}, [], rest
    found = values.get("aliases")
    addresses = [values.get("url"), *(found if isinstance(found, list) else [found])]
    said = {name: value.strip() for name, value in values.items() if isinstance(value, str)}
    return said, [address.strip() for address in addresses if isinstance(address, str)], rest


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


def _with_refs(match: re.Match[str]) -> str:
    return match[1] + quote(match["path"] or match["bare"] or "", safe="/#._-~%:?=&")


def parse(source: str, dropped: Counter[str]) -> Page:
    """Cut a Markdown page at its headings; shortcodes, lists of links and empty rows are left out and counted.

    A link may name a heading by its slug, by "## Heading {#name}" and, as any block, by an anchor: <a name="name"></a>.
    """
    front, addresses, rest = _front_matter(source.replace("\r\n", "\n"), dropped)
    outline = Outline(front.get("title", ""), front.get("description", ""))
    outline.address(*addresses)
    rest, count = _SHORTCODE.subn("", _REF.sub(_with_refs, rest))
    if count:
        dropped["Hugo shortcode"] += count
    anchors = _Anchors(_SHOWN_SHORTCODE.sub(r"{{\1\2\3}}", rest))
    for tokens in _top_level(_PARSER.parse(anchors.source)):
        if tokens[0].type == "heading_open":
            parts = _parts(tokens[1])
            shown = " ".join(_shown(parts).split())
            heading = _HEADING_ATTRIBUTES.sub("", shown)
            named = _HEADING_ID.search(shown[len(heading) :])
            outline.anchor(*anchors.until(tokens[0]), named[1] if named else "", anchors.slug(heading))
            outline.line(parts)
            outline.heading(int(tokens[0].tag[1]), _inner(heading))
            continue
        for block in _blocks(tokens, anchors, outline, dropped):
            outline.add(block)
    outline.anchor(*anchors.rest())
    return outline.finish(dropped)
