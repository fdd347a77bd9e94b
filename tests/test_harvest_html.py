"""HTML: what a reader came for, in the order of the page, without the furniture of the site.

Deliberate breaks that turn a test red: reading navigation; losing the title in an article's header; a site's name in the
title; code with its white space squeezed; words of two cells as one; a recursion for every element; taking latin-1 for
what it is not to browsers; dropping undecodable bytes; counting nothing.
"""

import codecs
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.documents.charset import encoding
from embedtrain.harvest.documents.html import parse
from embedtrain.harvest.documents.page import Block
from embedtrain.harvest.documents.pages import parse as parse_any

PAGE = """<!doctype html>
<html><head><meta charset="utf-8"><title>Layouts | The Site</title>
<meta name="Description" content="How a page
 is laid out."><style>p {}</style></head>
<body><nav><a href="/">Home</a></nav><header><h1>The Site</h1></header>
<main><header><h1>Layouts<a class="headerlink" href="#x">¶</a></h1></header>
<p>A <b>layout</b> is a&nbsp;file.<br>It has<!-- no --> parts &amp; slots.</p>
<ul><li><a href="a">One</a></li><li><a href="b">Two</a>, <a href="c">three</a></li></ul>
<h2 id="use">Use <code>it</code></h2>
Loose <i>words</i>
<ol start="3"><li>Choose<ul><li>this</li></ul></li><li><p>Save</p><p>and go</p><pre><code>ls -l

  x &lt; y</code></pre></li></ol>
<table><caption>Sizes</caption><thead><tr><th>Name</th><th>Size</th></tr></thead>
<tr><td>a<br>b</td><td>1<p>2</p>3</td></tr><tr><td></td><td> </td></tr></table>
<h4>Deep</h4><dl><dt>term</dt><dd>means this</dd></dl>
<div>one<div>two</div>three</div><script>bad()</script><form><p>Mail?</p></form>
<p hidden>not shown</p><img src="a.png" alt="A picture">
</main><footer>Imprint</footer></body></html>"""


def texts(source: str, dropped: Counter[str] | None = None) -> list[tuple[tuple[str, ...], str]]:
    page = parse(source, Counter() if dropped is None else dropped)
    return [(section.headings, section.text) for section in page.sections]


def test_a_page_by_hand() -> None:
    dropped: Counter[str] = Counter()
    page = parse(PAGE, dropped)
    assert (page.title, page.description) == ("Layouts", "How a page is laid out.")
    assert [(section.headings, section.text) for section in page.sections] == [
        ((), "A layout is a\xa0file.\nIt has parts & slots."),
        (
            ("Use it",),
            "Loose words\n\n3. Choose\n- this\n4. Save\nand go\nls -l\n\n  x < y\n\nSizes\nName | Size\na b | 1 2 3",
        ),
        (("Use it", "Deep"), "term\nmeans this\n\none\n\ntwo\n\nthree\n\nA picture"),
    ]
    # What stands outside main was not looked at, so it is not counted.
    assert dropped == {
        "list of links": 1,
        "empty row of a table": 1,
        "html script": 1,
        "html form": 1,
        "html that is hidden": 1,
    }
    assert page.sections[1].blocks[5] == Block("ls -l\n\n  x < y", code=True, tight=True)
    assert page.sections[1].blocks[-1] == Block("a b | 1 2 3", tight=True, head="Name | Size")


def test_without_main_the_body_is_read_and_its_furniture_counted() -> None:
    source = PAGE.replace("<main>", "<div>").replace("</main>", "</div>")
    dropped: Counter[str] = Counter()
    page = parse(source, dropped)
    assert page.title == "Layouts | The Site"  # both headings of level 1 are in headers
    assert "Imprint" not in "".join(section.text for section in page.sections)
    assert (dropped["html nav"], dropped["html header"], dropped["html footer"]) == (1, 2, 1)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<article>one</article> x", [((), "one")]),
        ("<article>one</article><article>two</article> x", [((), "one\n\ntwo\n\nx")]),
        ("<main></main><p>text</p>", [((), "text")]),
        ("<form><h2>H</h2><p>all is in a form</p></form>", [((), ""), (("H",), "all is in a form")]),
        ("<div role=navigation>n</div><div style='display: none'>h</div>t", [((), "t")]),
        ("<p>one<p>two<td>three", [((), "one\n\ntwothree")]),
        (
            "<table><tr><td><p>set</p></td><td><h2>Out</h2>text</td></tr></table>",
            [((), "set"), (("Out",), "text")],
        ),
        ("<pre>1\n2\n3</pre><pre>x = 1\ny</pre>", [((), "x = 1\ny")]),
        ("<ul><li></li><li>a</li></ul>", [((), "- a")]),
        ("<noscript>n</noscript><template>t</template><aside>a</aside>x", [((), "x")]),
        ("<h1>T</h1><h1>U</h1>u", [((), ""), (("U",), "u")]),
        ("", [((), "")]),
    ],
)
def test_pieces(source: str, expected: list[tuple[tuple[str, ...], str]]) -> None:
    assert texts(source) == expected


@pytest.mark.parametrize(
    ("title", "heading", "expected"),
    [
        ("Use | Site", "Use", "Use"),
        ("Use — Site 1.0", "Use", "Use"),
        ("Site: Guide", "Use", "Site: Guide"),
        ("", "Use", "Use"),
        ("Use", "", "Use"),
    ],
)
def test_the_title_goes_without_the_name_of_the_site(title: str, heading: str, expected: str) -> None:
    assert parse(f"<title>{title}</title><h1>{heading}</h1><p>text", Counter()).title == expected


def test_depth_of_nesting_does_not_matter() -> None:
    assert texts("<div>" * 20_000 + "deep" + "</div>" * 20_000) == [((), "deep")]


_TAGS = [
    "p",
    "div",
    "ul",
    "ol",
    "li",
    "table",
    "tr",
    "td",
    "th",
    "h1",
    "h3",
    "b",
    "dl",
    "dd",
    "section",
    "pre",
    "caption",
]
TREE = st.recursive(
    st.sampled_from(["@", "@ @", "<br>@", "<img alt=@>"]),
    lambda inner: st.builds(
        lambda tag, parts: f"<{tag}>{''.join(parts)}</{tag}>", st.sampled_from(_TAGS), st.lists(inner, max_size=3)
    ),
    max_leaves=12,
)


@given(TREE)
@settings(max_examples=300, deadline=None)
def test_of_any_tree_every_word_is_read_once(tree: str) -> None:
    parts = tree.split("@")
    words = [f"w{number}x" for number in range(len(parts) - 1)]
    source = "".join(part + word for part, word in zip(parts, [*words, ""], strict=True))
    page = parse(source, Counter())
    # The last heading of each section, whose paths repeat the ones above it.
    said = [page.title, *(part for section in page.sections for part in (*section.headings[-1:], section.text))]
    assert sorted(re.findall(r"w\d+x", " ".join(said))) == sorted(words)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"<p>a", "utf-8"),
        (codecs.BOM_UTF8 + b"<meta charset=latin1>", "utf-8"),
        (codecs.BOM_UTF16_LE + "<p>".encode("utf-16-le"), "utf-16-le"),
        (b"<meta charset='ISO-8859-1'>", "windows-1252"),
        (b'<META http-equiv=Content-Type content="text/html; charset=koi8-r">', "koi8-r"),
        (b'<?xml version="1.0" encoding="shift_jis"?>', "cp932"),
        (b"<meta charset=utf-16>", "utf-8"),
    ],
)
def test_encodings(content: bytes, expected: str) -> None:
    assert encoding(content) == expected


def test_bytes_become_text_or_an_error() -> None:
    def text(content: bytes) -> str:
        return parse_any(Path("docs"), "a.html", content, Counter()).sections[0].text

    assert text("<p>café".encode()) == "café"
    assert text(codecs.BOM_UTF16_BE + "<p>café".encode("utf-16-be")) == "café"
    # 0x80 is no letter of ISO-8859-1, and a euro sign to every browser.
    assert text(b"<meta charset=iso-8859-1><p>5 \x80 caf\xe9") == "5 € café"
    with pytest.raises(EmbedtrainError, match=r"^docs: page a\.html is not UTF-8 text; convert it to UTF-8$"):
        text(b"<p>caf\xe9")
    with pytest.raises(EmbedtrainError, match=r"page a\.html is not WINDOWS-1252 text; convert it"):
        text(b"<meta charset=latin1><p>\x81")
    with pytest.raises(
        EmbedtrainError, match=r"has the charset 'x-none', which is not known; convert it to UTF-8"
    ):
        text(b"<meta charset=x-none><p>a")
