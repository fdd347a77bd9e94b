"""reStructuredText to sections, through docutils; what is Sphinx's own and unknown to docutils keeps its text."""

import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import roles

from embedtrain.harvest.documents import text
from embedtrain.harvest.documents.page import LABEL, Block, Outline, Page, Part

# Nothing is read from other files, run, printed or guessed from a settings file on this machine.
_SETTINGS = {
    "_disable_config": True,
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "halt_level": 5,  # none is that high
    "warning_stream": False,
    "doctitle_xform": False,  # the outline finds the title
    "sectsubtitle_xform": False,
    "docinfo_xform": False,
    "syntax_highlight": "none",
    "smart_quotes": False,
    "traceback": True,  # an error is raised, not printed
}

_DIRECTIVE = re.compile(r"\s*\.\.[ ]+(?:\|[^|]*\|[ ]+)?([\w:.+-]+?)[ ]?::(?:[ \t]+(.*))?\Z")
_OPTION = re.compile(r"\s*:[\w -]+:(?:\s|\Z)")
_ROLE = re.compile(r":([\w:.+-]+):`(.*)`\Z|`(.*)`:([\w:.+-]+):\Z", re.DOTALL)
_TARGET = re.compile(r"(.*?)\s*<[^<>]*>\Z", re.DOTALL)
_UNDERLINE = re.compile(r"\s*([!-/:-@[-`{-~])\1+\s*\Z")

# How messages of docutils begin: where it reads the title all the same, and where it loses one for its level.
_READ_ALL_THE_SAME = ("Title underline too short", "Title overline too short")
_SKIPPED_LEVEL = ("Inconsistent title style", "A level ")

# Directives of Sphinx and its extensions by what they hold. Any other's argument and content are text.
_CODE = (
    frozenset({"code", "code-block", "sourcecode", "parsed-literal", "doctest", "testcode"})
    | {"testoutput", "testsetup", "prompt", "console", "ipython", "productionlist"}
    | {"graphviz", "digraph", "uml", "mermaid", "plantuml", "math"}
)
_NAVIGATION = frozenset({"toctree", "contents", "sectnum", "autosummary", "tableofcontents"})
_FROM_ELSEWHERE = frozenset({"include", "raw", "literalinclude"})
_NO_ARGUMENT = (
    frozenset({"module", "currentmodule", "py:module", "py:currentmodule", "highlight", "index"})
    | {"only", "automodule", "autoclass", "autofunction", "default-domain", "image", "figure"}
    | {"container", "class", "role", "default-role", "ifconfig", "tabularcolumns"}
    | {"codeauthor", "sectionauthor", "meta", "include", "raw", "versionadded"}
    | {"versionchanged", "deprecated", "tab-set", "grid"}
)

_PARAGRAPHS = (nodes.paragraph, nodes.rubric, nodes.attribution, nodes.caption, nodes.subtitle)
_CODE_NODES = (nodes.literal_block, nodes.doctest_block, nodes.math_block)
_NOTHING = (
    nodes.comment,
    nodes.substitution_definition,
    nodes.target,
    nodes.pending,
    nodes.raw,
    nodes.decoration,
    nodes.transition,
    nodes.meta,
    nodes.docinfo,
)


def _doctree(source: str) -> nodes.document:
    known = dict(roles._roles)
    try:
        return publish_doctree(source, settings_overrides=dict(_SETTINGS))
    finally:  # a role that one page defines is not known on the next
        roles._roles.clear()
        roles._roles.update(known)


def _role_text(source: str) -> str:
    """What a reader sees of a role that docutils does not know: the title of "title <target>", `c` of "~a.b.c"."""
    match = _ROLE.match(source)
    if match is None:
        return source
    shown = match[2] if match[2] is not None else match[3]
    if titled := _TARGET.match(shown):
        return titled[1] or shown
    if shown.startswith("~"):
        return shown[1:].rpartition(".")[2]
    return shown.removeprefix("!")


def _role_target(source: str) -> str:
    """Where a link of Sphinx leads: "page" for :doc:`title <page>`, ":ref:label" for :ref:`label`; empty for other roles."""
    match = _ROLE.match(source)
    name = (match[1] or match[4]) if match else ""
    if match is None or name not in ("doc", "ref", "numref"):
        return ""
    shown = match[2] if match[2] is not None else match[3]
    titled = _TARGET.match(shown)
    target = " ".join((shown[titled.end(1) :].strip()[1:-1] if titled else shown).split())
    return target if name == "doc" else LABEL + target.lower()


class _Reader:
    def __init__(self, outline: Outline, dropped: Counter[str]) -> None:
        self._outline = outline
        self._dropped = dropped
        self._marks: list[str] = []
        self._inside = 0  # lists and tables that are open
        self._begun = False  # the outermost of them has a block
        self._head = ""  # the header row of the table that is open

    # -- inline --------------------------------------------------------------------------------------------------

    def _parts(self, node: nodes.Node, target: str = "") -> Iterator[Part]:
        """The words of a node, and the links among them."""
        if isinstance(node, nodes.Text):
            yield node.astext(), target
        elif isinstance(node, nodes.problematic):
            source = node.astext()
            shown = _role_text(source)
            if shown != source:
                self._dropped["rst role that is not known, its text kept"] += 1
            yield shown, _role_target(source)
        elif isinstance(node, nodes.image):
            yield str(node.get("alt") or ""), target
        elif not isinstance(node, (nodes.system_message, nodes.footnote_reference, *_NOTHING)):
            if isinstance(node, nodes.reference):
                target = str(node.get("refuri") or f"#{node.get('refid', '')}")
            for child in node.children:
                yield from self._parts(child, target)

    def _line(self, node: nodes.Node) -> str:
        """The words of a node; where there are links among them, they go to the outline."""
        parts = list(self._parts(node))
        self._outline.line(parts)
        return "".join(words for words, _ in parts).strip()

    def _is_linked(self, node: nodes.Node) -> bool:
        words = [child for child in node.children if child.astext().strip()]
        return bool(words) and all(isinstance(child, nodes.reference) for child in words)

    # -- blocks --------------------------------------------------------------------------------------------------

    def _add(self, shown: str, *, code: bool = False, linked: bool = False, head: str = "") -> None:
        if not shown.strip():
            return
        tight = self._inside > 0 and self._begun
        marks = "".join(self._marks)
        self._outline.add(Block(marks + shown, code=code, tight=tight, item=bool(marks), linked=linked, head=head))
        self._marks = []
        self._begun = self._inside > 0

    def read(self, node: Any, depth: int) -> None:
        """Read a node of the tree; `depth` counts the sections it stands in."""
        self._name(node)
        if isinstance(node, nodes.section):
            self._section(node, depth + 1)
        elif isinstance(node, nodes.system_message):
            self._message(node, depth)
        elif isinstance(node, _CODE_NODES):
            self._add(node.astext().strip("\n").rstrip(), code=True)
        elif isinstance(node, _PARAGRAPHS):
            self._add(self._line(node), linked=self._is_linked(node))
        elif isinstance(node, nodes.image):
            self._add(self._line(node))
        elif isinstance(node, nodes.topic) and "contents" in node.get("classes", []):
            self._dropped["rst table of contents"] += 1
        elif isinstance(node, nodes.table):
            self._head = ""
            self._list(node, depth)
        elif isinstance(node, nodes.row):
            self._row(node)
        elif isinstance(node, (nodes.bullet_list, nodes.enumerated_list)):
            self._items(node, depth)
        elif isinstance(node, (nodes.definition_list, nodes.field_list, nodes.option_list)):
            self._list(node, depth)
        elif isinstance(node, nodes.term):
            self._add(self._line(node))
        elif isinstance(node, (nodes.field, nodes.option_list_item)):
            names = node.children[0].children if isinstance(node, nodes.option_list_item) else node.children[:1]
            self._marks.append(f"{', '.join(map(self._line, names))}: ")
            self._children(node, depth, start=1)
            self._marks = self._marks[:-1]
        elif isinstance(node, nodes.line_block):
            self._add("\n".join(self._lines(node)))
        elif isinstance(node, (nodes.footnote, nodes.citation)):
            self._children(node, depth, start=1)
        elif isinstance(node, nodes.Element) and not isinstance(node, (nodes.colspec, nodes.title, *_NOTHING)):
            self._children(node, depth)

    def _name(self, node: Any) -> None:
        """Tell the outline what a link may name to lead to a node: its ids, and labels that no other page has."""
        if isinstance(node, nodes.Element) and not isinstance(
            node, (nodes.document, nodes.system_message, *_NOTHING)
        ):
            explicit = getattr(node.document, "nametypes", {})
            labels = [LABEL + name for name in node.get("names", ()) if explicit.get(name)]
            self._outline.anchor(*node.get("ids", ()), *labels)

    def _children(self, node: nodes.Element, depth: int, start: int = 0) -> None:
        for child in node.children[start:]:
            self.read(child, depth)

    def _section(self, node: nodes.section, depth: int) -> None:
        title = node.children[0] if node.children and isinstance(node.children[0], nodes.title) else None
        self._outline.heading(depth, " ".join(self._line(title).split()) if title is not None else "")
        self._children(node, depth, start=int(title is not None))

    def _list(self, node: nodes.Element, depth: int) -> None:
        self._inside += 1
        if title := next((child for child in node.children if isinstance(child, nodes.title)), None):
            self._add(self._line(title))
        self._children(node, depth)
        self._inside -= 1
        self._begun = self._begun and self._inside > 0

    def _items(self, node: nodes.Element, depth: int) -> None:
        self._inside += 1
        number = node.get("start", 1) if isinstance(node, nodes.enumerated_list) else None
        for item in node.children:
            self._marks.append("- " if number is None else f"{number}. ")
            self.read(item, depth)
            self._marks = self._marks[:-1]
            number = None if number is None else number + 1
        self._inside -= 1
        self._begun = self._begun and self._inside > 0

    def _row(self, node: nodes.row) -> None:
        cells = [" ".join(" ".join(map(self._cell, entry.children)).split()) for entry in node.children]
        if any(cells):
            row = " | ".join(cells)
            is_head = isinstance(node.parent, nodes.thead)
            self._add(row, head="" if is_head else self._head)
            if is_head:
                self._head = row
        else:
            self._dropped["empty row of a table"] += 1

    def _cell(self, node: nodes.Node) -> str:
        if isinstance(node, nodes.system_message):
            return " ".join(map(self._unread_cell, self._sources(node)))
        if isinstance(node, nodes.TextElement) or not node.children:
            return self._line(node)
        return " ".join(map(self._cell, node.children))

    def _lines(self, node: nodes.Element) -> Iterator[str]:
        for child in node.children:
            if isinstance(child, nodes.line_block):
                yield from self._lines(child)
            else:
                yield self._line(child)

    # -- what docutils could not read ----------------------------------------------------------------------------

    def _sources(self, node: nodes.system_message) -> list[str]:
        """What docutils could not read, which it keeps in its messages."""
        if node.children and node.children[0].astext().startswith(_READ_ALL_THE_SAME):
            return []
        return [child.astext() for child in node.children if isinstance(child, nodes.literal_block)]

    def _unread_cell(self, source: str) -> str:
        first, _, rest = source.partition("\n")
        if not (match := _DIRECTIVE.match(first)):
            self._dropped["rst that docutils cannot read, its text kept"] += 1
            return source
        name = match[1].lower()
        content = self._content(name, (match[2] or "").strip(), rest)
        return content if name in _CODE else " ".join(map(self._cell, _doctree(content).children))

    def _message(self, node: nodes.system_message, depth: int) -> None:
        for source in self._sources(node):
            first, _, rest = source.partition("\n")
            if match := _DIRECTIVE.match(first):
                self._directive(match[1].lower(), (match[2] or "").strip(), rest, depth)
                continue
            lines = [line.strip() for line in source.split("\n") if line.strip() and not _UNDERLINE.match(line)]
            if not lines:
                continue
            self._dropped["rst that docutils cannot read, its text kept"] += 1
            if len(lines) > 1 or "\n" not in source.strip():
                self._add(source.strip("\n").rstrip(), code=True)
            elif node.children[0].astext().startswith(_SKIPPED_LEVEL):
                self._outline.heading(depth + 1, lines[0])
            else:
                self._add(lines[0])

    def _content(self, name: str, argument: str, rest: str) -> str:
        """The source of what a directive that is not known holds; empty where none of it is text."""
        if name in _NAVIGATION or name in _FROM_ELSEWHERE:
            self._dropped[f"rst directive {name}"] += 1
            return ""
        self._dropped["rst directive that is not known, its text kept"] += 1
        lines = rest.split("\n")
        while lines and (_OPTION.match(lines[0]) or (argument == "" and not lines[0].strip() and len(lines) == 1)):
            lines.pop(0)
        content = textwrap.dedent("\n".join(lines)).strip("\n").rstrip()
        if argument and name not in _CODE and name not in _NO_ARGUMENT:
            content = f"{argument}\n\n{content}" if ":" in name or content else argument
        return content

    def _directive(self, name: str, argument: str, rest: str, depth: int) -> None:
        content = self._content(name, argument, rest)
        if name in _CODE:
            self._add(content, code=True)
        elif content.strip():
            for child in _doctree(content).children:
                self.read(child, depth)


def parse(source: str, dropped: Counter[str]) -> Page:
    """Cut a reStructuredText page at its titles.

    What docutils does not know (directives and roles of Sphinx) keeps its text and is counted; what would read another
    file (`include`, `raw`, `literalinclude`) or lists other pages (`toctree`) is left out and counted. A page
    on which docutils fails is read as plain text, counted.
    """
    try:
        tree = _doctree(source)
        described = [node for node in tree.findall(nodes.meta) if node.get("name") == "description"]
        outline = Outline(description=str(described[0].get("content", "")) if described else "")
        counted: Counter[str] = Counter()
        _Reader(outline, counted).read(tree, 0)
    except (RecursionError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, AssertionError):
        dropped["rst page that docutils cannot read, taken as plain text"] += 1
        return text.parse(source, dropped)
    dropped.update(counted)
    return outline.finish(dropped)
