"""HTML to sections: what a reader came for, without the furniture of the site around it."""

import re
from collections import Counter

from selectolax.lexbor import LexborHTMLParser, LexborNode

from embedtrain.harvest.documents.page import Block, Outline, Page, Part
from embedtrain.harvest.identity import query_key

_LEFT_OUT = (
    frozenset({"nav", "header", "footer", "aside", "script", "style", "noscript", "template", "form"})
    | {"svg", "iframe", "object", "video", "audio", "canvas", "button", "select", "textarea"}
    | {"dialog"}
)
_LEFT_OUT_ROLES = frozenset({"navigation", "banner", "contentinfo", "search"})
_BLOCKS = (
    frozenset({"address", "article", "aside", "blockquote", "body", "caption", "center", "dd"})
    | {"details", "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer"}
    | {"form", "header", "hgroup", "hr", "html", "legend", "li", "main", "menu", "nav", "ol"}
    | {"p", "pre", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr"}
    | {"ul"}
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LISTS = frozenset({"ul", "ol", "menu", "dir", "dl"})
# A table that holds these sets out a page; it holds no data.
_LAYOUT = ", ".join(f"table {tag}" for tag in (*_HEADINGS, "table", "pre"))
_PERMALINKS = frozenset({"", "#", "¶", "§", "🔗"})  # what the link beside a heading shows
_SPACE = re.compile(r"[ \t\r\n\f]+")
_BLANKS = re.compile(r"[ \t]+")
_AROUND_BREAK = re.compile(r" *\n *")
_WORD = re.compile(r"\w")
_LINE_NUMBERS = re.compile(r"[\d\s]+\Z")
_SITE = re.compile(r"\s+[-–—|·•:»«]+\s+|\s*[|»«]\s*")  # "Title | Site"


def _text(node: LexborNode | None) -> str:
    return " ".join((node.text() or "").split()) if node is not None else ""


def _is_left_out(node: LexborNode, inside: bool) -> str:
    """The reason to leave an element out, empty to keep it. `inside`: of main or article, where a header has the title."""
    tag = node.tag or ""
    attributes = node.attributes
    if tag in _LEFT_OUT and not (tag == "header" and inside):
        return f"html {tag}"
    if (attributes.get("role") or "").lower() in _LEFT_OUT_ROLES:
        return f"html {(attributes.get('role') or '').lower()}"
    if "hidden" in attributes or "display:none" in (attributes.get("style") or "").replace(" ", "").lower():
        return "html that is hidden"
    return ""


class _Reader:
    """One walk over a page: inline text gathers until a block begins or ends, then it becomes a block."""

    def __init__(self, outline: Outline, dropped: Counter[str], kept: frozenset[str]) -> None:
        self._outline = outline
        self._dropped = dropped
        self._kept = kept  # reasons to leave out that do not count in this walk
        self._parts: list[Part] = []  # since the last block
        self._target = ""
        self._marks: list[str] = []
        self._lists: list[int | None] = []  # the next number of an ordered list, None for others
        self._begun = False  # the outermost list or table has a block
        self._cells: list[str] | None = None
        self._head = ""  # the header row of the table that is open
        self._heading_cells = True  # all cells of the open row are headings
        self._tables: list[bool] = []  # whether each open table holds data
        self._pre = self._links = self._articles = 0
        self._linked = self._outside = False

    def walk(self, root: LexborNode) -> None:
        """Read an element with all that is in it; no depth of nesting is too deep."""
        stack = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                self._leave(node.tag or "")
            elif node.is_text_node:
                self._take(node.text_content or "")
            elif node.is_element_node and self._enter(node):
                stack.append((node, True))
                stack += reversed([(child, False) for child in node.iter(include_text=True)])
        self._flush()

    def _take(self, text: str) -> None:
        if self._pre:
            self._parts.append((text, self._target))
            return
        self._parts.append((_SPACE.sub(" ", text), self._target))
        if _WORD.search(text):
            self._outside = self._outside or not self._links
            self._linked = self._linked or bool(self._links)

    def _shown(self, *, code: bool = False) -> str:
        """The words since the last block; those with links among them go to the outline, but for code."""
        parts, self._parts = self._parts, []
        if not code:
            self._outline.line(parts)
        return "".join(words for words, _ in parts)

    def _flush(self, *, code: bool = False) -> None:
        text = self._shown(code=code)
        linked = self._linked and not self._outside
        self._linked, self._outside = False, False
        text = text.strip("\n").rstrip() if code else _AROUND_BREAK.sub("\n", _BLANKS.sub(" ", text)).strip()
        if not text.strip():
            return
        if code and _LINE_NUMBERS.match(text) and "\n" in text:
            self._dropped["html line numbers of code"] += 1
            return
        inside = bool(self._lists) or any(self._tables)
        block = Block(
            "".join(self._marks) + text,
            code=code,
            tight=inside and self._begun,
            item=bool(self._marks),
            linked=linked,
        )
        self._marks = []
        self._begun = inside
        self._outline.add(block)

    def _enter(self, node: LexborNode) -> bool:
        tag = node.tag or ""
        reason = _is_left_out(node, bool(self._articles))
        if reason and reason not in self._kept:
            self._dropped[reason] += 1
            return False
        if tag == "br":
            self._parts.append(("\n", None))
        elif tag == "img":
            self._take(node.attributes.get("alt") or "")
        elif tag in _HEADINGS:
            self._flush()
        elif tag in _BLOCKS:
            self._enter_block(tag, node)
        self._outline.anchor(node.attributes.get("id") or "")
        if tag == "a":
            self._outline.anchor(node.attributes.get("name") or "")
            if _text(node) in _PERMALINKS and node.css_first("img") is None:
                return False
            self._links += 1
            self._target = (node.attributes.get("href") or "").strip()
        return True

    def _enter_block(self, tag: str, node: LexborNode) -> None:
        if self._cells is not None:  # within a row, whatever parts the words of a cell
            self._parts.append((" ", self._target))
            return
        self._flush(code=bool(self._pre))
        self._articles += tag in ("main", "article")
        if tag == "pre":
            self._pre += 1
        elif tag in _LISTS:
            start = node.attributes.get("start") or "1"
            self._lists.append((int(start) if start.isdigit() else 1) if tag == "ol" else None)
        elif tag == "li":
            number = self._lists[-1] if self._lists else None
            self._marks.append("- " if number is None else f"{number}. ")
            if number is not None:
                self._lists[-1] = number + 1
        elif tag == "table":
            self._tables.append(node.css_first(_LAYOUT) is None)
            self._head = ""
        elif tag == "tr" and self._tables and self._tables[-1]:
            self._cells, self._heading_cells = [], True
        self._begun = self._begun and (bool(self._lists) or any(self._tables))

    def _leave(self, tag: str) -> None:
        if tag == "a":
            self._links -= 1
            self._target = ""
        elif tag in _HEADINGS:
            if self._cells is None:
                text = " ".join(self._shown().split()).rstrip("¶#").rstrip()
                self._linked, self._outside, self._marks = False, False, []
                self._outline.heading(_HEADINGS[tag], text)
        elif tag in _BLOCKS:
            self._leave_block(tag)

    def _leave_block(self, tag: str) -> None:
        if self._cells is not None:
            if tag in ("td", "th"):
                self._heading_cells = self._heading_cells and tag == "th"
                self._cells.append(" ".join(self._shown().split()))
            elif tag == "tr":
                self._end_row(self._cells)
            else:
                self._parts.append((" ", self._target))
            return
        self._flush(code=bool(self._pre))
        self._articles -= tag in ("main", "article")
        if tag == "pre":
            self._pre -= 1
        elif tag in _LISTS and self._lists:
            self._lists.pop()
        elif tag == "li":
            self._marks = self._marks[:-1]  # of an item with no text
        elif tag == "table" and self._tables:
            self._tables.pop()
        self._begun = self._begun and (bool(self._lists) or any(self._tables))

    def _end_row(self, cells: list[str]) -> None:
        self._cells, self._parts, self._linked, self._outside = None, [], False, False
        if any(cells):
            row = "".join(self._marks) + " | ".join(cells)
            self._outline.add(Block(row, tight=self._begun, head=self._head))
            self._marks, self._begun = [], True
            if self._heading_cells:
                self._head = row
        else:
            self._dropped["empty row of a table"] += 1


def _root(tree: LexborHTMLParser) -> LexborNode | None:
    """Where the text is: in `main`, else in the one `article`, else in the body."""
    for selector in ("main", "[role=main]", "article"):
        found = [node for node in tree.css(selector) if _text(node)]
        if len(found) == 1:
            return found[0]
    return tree.body


def _is_furniture(node: LexborNode) -> bool:
    """Whether an element stands in what is left out, as the name of the site in its header does."""
    above: list[LexborNode] = []
    parent = node.parent
    while parent is not None:
        above.append(parent)
        parent = parent.parent
    inside = False
    for element in reversed(above):
        if _is_left_out(element, inside):
            return True
        inside = inside or element.tag in ("main", "article")
    return False


def _title(tree: LexborHTMLParser, root: LexborNode) -> str:
    """The title, without the name of the site where the first heading of level 1 shows which part that is."""
    title = _text(tree.css_first("head title"))
    first = next((node for node in root.css("h1") if not _is_furniture(node)), None)
    heading = _text(first).rstrip("¶#").rstrip()
    return heading if heading and query_key(heading) in map(query_key, _SITE.split(title)) else title


def _meta(tree: LexborHTMLParser, name: str) -> str:
    for node in tree.css("meta"):
        if (node.attributes.get("name") or "").lower() == name:
            return " ".join((node.attributes.get("content") or "").split())
    return ""


def _parsed(source: str, dropped: Counter[str], kept: frozenset[str]) -> Page:
    tree = LexborHTMLParser(
        source, scripting=True
    )  # what stands in noscript is then one text, and no part of the page
    root = _root(tree)
    if root is None:
        return Outline().finish(dropped)
    outline = Outline(_title(tree, root), _meta(tree, "description"))
    _Reader(outline, dropped, kept).walk(root)
    return outline.finish(dropped)


def parse(source: str, dropped: Counter[str]) -> Page:
    """Cut an HTML page at its headings h1 to h6.

    Read is what is in `main`, else in the one `article`, else in the body; navigation, headers (those in an article are
    read), footers, forms, scripts and the like are left out and counted by their element. Some sites put the whole
    page in a form: where nothing is left, forms are read.
    """
    counted: Counter[str] = Counter()
    page = _parsed(source, counted, frozenset())
    if counted["html form"] and not any(section.blocks for section in page.sections):
        counted = Counter()
        page = _parsed(source, counted, frozenset({"html form"}))
    dropped.update(counted)
    return page
