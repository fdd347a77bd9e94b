"""Links between the pages of a source: the sentence that holds a link finds what the link leads to.

The linked page may come later than the link. So what was read waits in tables of the draft, and the links are followed
when all pages are there.
"""

import posixpath
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

from embedtrain.console import Progress
from embedtrain.harvest.documents.page import LABEL, Line, Link, Page
from embedtrain.harvest.documents.pages import FORMATS
from embedtrain.harvest.documents.passages import sentences
from embedtrain.harvest.draft import Draft

LINK = "link"  # the source of these pairs

_TABLES = (
    # Addresses and anchors are looked for in any case; where two differ in nothing else, as they are `written`.
    "CREATE TABLE IF NOT EXISTS link_addresses (n INTEGER PRIMARY KEY, source INTEGER NOT NULL, address TEXT NOT NULL,"
    " written TEXT NOT NULL, page TEXT NOT NULL, UNIQUE (source, address, written))",
    "CREATE TABLE IF NOT EXISTS link_anchors (n INTEGER PRIMARY KEY, source INTEGER NOT NULL, page TEXT NOT NULL,"
    " anchor TEXT NOT NULL, written TEXT NOT NULL, document TEXT NOT NULL, UNIQUE (source, page, anchor, written))",
    "CREATE TABLE IF NOT EXISTS link_labels (source INTEGER NOT NULL, label TEXT NOT NULL, page TEXT NOT NULL,"
    " PRIMARY KEY (source, label)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS links (n INTEGER PRIMARY KEY, source INTEGER NOT NULL, page TEXT NOT NULL,"
    " target TEXT NOT NULL, query TEXT NOT NULL, UNIQUE (source, page, target, query))",
)
_OUTSIDE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//")
_PICTURES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".bmp", ".ico", ".tif", ".tiff", ".avif"})
_ENDINGS = frozenset(ending for endings in FORMATS.values() for ending in endings)
_INDEXES = frozenset({"index", "_index", "readme"})  # the page of a folder
_LONGEST = 1_000  # characters: what goes on for longer without a stop is an index, not a sentence
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
# Words that point somewhere and say nothing of what is there, by language.
_POINTING_IN = {
    "english": (
        "a about above additional additionally after again all also an and any are as at back be before below "
        "between but by can chapter chapters check click complete consult contents describe described describes "
        "detail detailed details discussed doc docs document documentation each else example examples explained "
        "explanation find first following for found from full further get go guide guides have help here home "
        "how if in info information instruction instructions into introduction is it item items its jump just "
        "last later learn link links list look main manual more most need next note notes now of on one or other "
        "our out overview page pages part please previous prior read reader refer reference references related "
        "return same section sections see some start step steps still such table than that the their them then "
        "there these they this those to toc top topic topics tutorial tutorials under up use using view visit "
        "want what when where which with you your"
    ),
    "german": (
        "abschnitt anleitung auch auf aus bei beispiel beispiele das dazu dem den der des details die dies diese "
        "diesem diesen dieser ein eine einem einen einer erfahren finden für hier im informationen ist kapitel "
        "lesen mehr mit nach näheres oben oder seite sie siehe sind startseite und unten unter von vorherige "
        "weiter weitere weiteren weiterlesen zu zum zur zurück"
    ),
    "french": (
        "accueil au aussi aux avec ce ces cette chapitre ci consultez dans de des dessous dessus du en est et "
        "exemple exemples ici informations la le les lire page par plus pour précédent retour référez savoir "
        "section suite suivant sur un une voir vous"
    ),
    "spanish": (
        "al anterior aquí como con consultar consulte de del ejemplo ejemplos el en esta este información inicio "
        "la las leer los más para por puede página sección siguiente sobre una ver volver véase y"
    ),
}
_POINTING = frozenset(word for words in _POINTING_IN.values() for word in words.split())


def _says(text: str, target: str = "") -> bool:
    """Whether a text has a word that does not merely point, and is more than a target as it stands ("guide/setup.md")."""
    shown = unquote(text.strip()).casefold()
    is_path = "/" in shown or posixpath.splitext(shown)[1] in _ENDINGS
    if shown == unquote(target.removeprefix(LABEL)).casefold() and (is_path or target.startswith(LABEL)):
        return False
    return any(word.casefold() not in _POINTING for word in _WORD.findall(text))


@lru_cache(maxsize=1)  # a line may have thousands of links
def _ends(text: str) -> tuple[list[int], list[int]]:
    """Where the sentences of a text start, and where they stop."""
    starts, stops, place = [], [], 0
    for gap, sentence in sentences(text):
        starts.append(place + len(gap))
        place = starts[-1] + len(sentence)
        stops.append(place)
    return starts, stops


def citing(line: Line, link: Link) -> str:
    """The query that a link makes: the sentence that holds it, or its own words where the others merely point.

    Its own words, too, where there is no sentence: no stop for more than `_LONGEST` characters.

    "For more information, see [Routing](routing.md)." is about routing. Empty where no word says what the link leads to:
    "See [this page](routing.md)."
    """
    starts, stops = _ends(line.text)
    begin, end = starts[bisect_right(starts, link.start) - 1], stops[bisect_left(starts, link.end) - 1]
    query = line.text[link.start : link.end].strip()
    if end - begin <= _LONGEST:
        around, last = "", begin
        for place in range(bisect_right(line.links, begin, key=lambda other: other.end), len(line.links)):
            other = line.links[place]
            if other.start >= end:
                break
            around += line.text[last : max(other.start, begin)] + " "
            last = other.end
        if _says(around + line.text[last:end]):
            query = line.text[begin:end].strip()
    return query if _says(query, link.target) else ""


def _addresses(name: str) -> Iterator[str]:
    """The ways to name a page: "a/b.md", "a/b", and "a" where b is the page of its folder."""
    path = name.strip("/")
    yield path
    stem, ending = posixpath.splitext(path)
    if ending.casefold() in _ENDINGS:
        yield stem
        path = stem
    folder, last = posixpath.split(path)
    if last.casefold() in _INDEXES:
        yield folder


def _within(path: str) -> str | None:
    """A path without its dots; None where it climbs out of the source."""
    found = posixpath.normpath(path)
    return None if found == ".." or found.startswith("../") else "" if found == "." else found.strip("/")


def _candidates(page: str, path: str) -> Iterator[str]:
    """Where a link of a page may lead to, the likeliest first.

    A path from the root is looked for from each folder above the page, since no one says which of them is the root. A
    relative one starts from the page's folder or, on sites where a page is a folder, from the page.
    """
    folder = posixpath.dirname(page)
    if path.startswith("/"):
        parts = folder.split("/") if folder else []
        bases = ["/".join(parts[:count]) for count in range(len(parts) + 1)]
    else:
        stem = posixpath.splitext(page)[0]
        is_file = posixpath.splitext(path)[1].casefold() in _ENDINGS
        bases = [folder] if is_file or posixpath.basename(stem).casefold() in _INDEXES else [folder, stem]
        if path.endswith("/"):
            bases.reverse()
    for base in bases:
        found = _within(posixpath.join(base, path.lstrip("/")))
        if found is not None:
            yield found


class Links:
    """The links of a source on their way into a draft."""

    def __init__(self, source: Path, draft: Draft) -> None:
        self._name, self._draft = str(source), draft
        for statement in _TABLES:  # not a script, which would commit what is not whole
            draft.db.execute(statement)
        self._source = draft.name("linked source", self._name)

    def add(self, name: str, page: Page, documents: Mapping[str, str]) -> None:
        """Add a page with its links; `documents` says what each anchor of it leads to, the page itself being ""."""
        db, source = self._draft.db, self._source
        db.executemany(
            "INSERT OR IGNORE INTO link_addresses (source, address, written, page) VALUES (?, ?, ?, ?)",
            (
                (source, address.casefold(), address, name)
                for own in (name, *page.addresses)
                for address in _addresses(own)
            ),
        )
        for anchor, document in documents.items():
            if anchor.startswith(LABEL):
                db.execute("INSERT OR IGNORE INTO link_labels VALUES (?, ?, ?)", (source, anchor, name))
            db.execute(
                "INSERT OR IGNORE INTO link_anchors (source, page, anchor, written, document) VALUES (?, ?, ?, ?, ?)",
                (source, name, anchor.casefold(), anchor, document),
            )
        for line in page.lines:
            for link in line.links:
                self._add_link(name, line, link)

    def _add_link(self, name: str, line: Line, link: Link) -> None:
        draft = self._draft
        path, _, _ = link.target.partition("#")
        path = path.partition("?")[0]
        # Those that can be no pairs are counted alone: there are very many.
        if link.target.startswith(LABEL):
            pass
        elif _OUTSIDE.match(link.target):
            draft.dropped["link out of its source"] += 1
            return
        elif not path:
            draft.dropped["link to its own page"] += 1
            return
        elif posixpath.splitext(path)[1].lower() in _PICTURES:
            draft.dropped["link to a picture"] += 1
            return
        query = citing(line, link)
        if not query:
            draft.drop("link whose words merely point", page=name, link=link.target, text=line.text)
            return
        draft.db.execute(
            "INSERT OR IGNORE INTO links (source, page, target, query) VALUES (?, ?, ?, ?)",
            (self._source, name, link.target, query),
        )

    def follow(self, progress: Progress) -> None:
        """Add the pairs of all links to the draft, in the order in which they were read; what leads nowhere is counted."""
        draft, loop = self._draft, f"{self._name} links"
        (total,) = draft.db.execute("SELECT COUNT(*) FROM links WHERE source = ?", (self._source,)).fetchone()
        rows = draft.read("SELECT page, target, query FROM links WHERE source = ? ORDER BY n", (self._source,))
        before = draft.items(loop)
        for done, (name, target, query) in enumerate(draft.new(loop, rows), start=before + 1):
            self._follow(name, target, query)
            progress("follow links", done, total, "")

    def _follow(self, name: str, target: str, query: str) -> None:
        draft, row = self._draft, {"page": name, "link": target, "query": query}
        page, anchor = self._found(name, target)
        if not page:
            draft.drop("link to a page that is not in its source", **row)
        elif page == name:
            draft.dropped["link to its own page"] += 1
        elif (document := self._document(page, anchor)) is None:
            draft.drop("link to an anchor that its page does not have", **row)
        elif not document:
            draft.drop("link to what has no document", **row)
        else:
            draft.add_weak_pair(query, document, LINK)

    def _found(self, name: str, target: str) -> tuple[str, str]:
        """The page and the anchor that a link of a page leads to; the page is empty where there is none."""
        if target.startswith(LABEL):
            return self._one("SELECT page FROM link_labels WHERE source = ? AND label = ?", target) or "", target
        path, _, anchor = target.partition("#")
        path = unquote(path.partition("?")[0])
        for candidate in _candidates(name, path):
            for address in _addresses(candidate):
                found = self._one(
                    "SELECT page FROM link_addresses WHERE source = ? AND address = ?"
                    " ORDER BY written != ?, n LIMIT 1",
                    address.casefold(),
                    address,
                )
                if found is not None:
                    return found, unquote(anchor)
        return "", ""

    def _document(self, page: str, anchor: str) -> str | None:
        return self._one(
            "SELECT document FROM link_anchors WHERE source = ? AND page = ? AND anchor = ?"
            " ORDER BY written != ?, n LIMIT 1",
            page,
            anchor.casefold(),
            anchor,
        )

    def _one(self, statement: str, *values: str) -> str | None:
        row = self._draft.db.execute(statement, (self._source, *values)).fetchone()
        return None if row is None else str(row[0])
