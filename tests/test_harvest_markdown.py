"""Markdown: pages are cut at headings, the queries are sensible, and no document carries its own query.

Deliberate breaks that turn a test red: keeping headings in the text; a title column that is not empty; cutting at
`#` in a code block; guessing types in front matter; unpacking archives; keeping lists of links, or dropping those with a
text beside the link; numbering items as they are written; marking no code in a list; reading an archive in its own
order; reading all pages before the first is used.
"""

import io
import json
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from conftest import ROOT, SHARED, RunCli
from harvested import triples
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain.collection import Collection
from embedtrain.config import PageOptions
from embedtrain.console import silent
from embedtrain.errors import EmbedtrainError
from embedtrain.harvest import documents as page_pairs
from embedtrain.harvest.documents import heading_query
from embedtrain.harvest.documents.markdown import parse
from embedtrain.harvest.documents.page import Block
from embedtrain.harvest.documents.pages import Pages, kind_of
from embedtrain.harvest.draft import Draft
from embedtrain.harvest.identity import query_key

HUGO = ROOT / "recipes" / "data" / "hugo-docs" / "content-md.tar.gz"

PAGE = """---
title: Permalinks
description: How the address of a page is made.
---

The address is made of tokens, in order.

## Tokens {#tokens-here}

Use these *tokens* in a [pattern](/x):

Token|Meaning
:--|:--
`:year`|the year

### Examples

```text
# not a heading
:year/:slug
```

## Empty

## Permalinks

Permalinks. They last for many years.
"""


# Sections as they are, and the pairs by what stands over them.
WHOLE = PageOptions(pairs="title,description,heading", chunk_tokens=0)


def harvested(source: Path) -> Draft:
    draft = Draft()
    page_pairs.read(source, WHOLE, draft, silent)
    return draft


def add_page(name: str, source: str, draft: Draft) -> None:
    page_pairs.add_page(name, parse(source, draft.dropped), draft, WHOLE)


def sections(source: str) -> list[tuple[tuple[str, ...], str]]:
    return [(section.headings, section.text) for section in parse(source, Counter()).sections]


def test_a_page_by_hand() -> None:
    draft = Draft()
    add_page("a/permalinks.md", PAGE, draft)
    opening = "The address is made of tokens, in order."
    tokens = "Use these tokens in a pattern:\n\nToken | Meaning\n:year | the year"
    assert triples(draft) == [
        ("title", "Permalinks", opening),
        ("description", "How the address of a page is made.", opening),
        ("heading", "Permalinks: Tokens", tokens),
        ("heading", "Permalinks: Tokens: Examples", "# not a heading\n:year/:slug"),
        ("heading", "Permalinks", "They last for many years."),
    ]
    assert draft.dropped == {"heading without a text": 1}
    assert {document.title for _, _, document in draft.documents()} == {""}
    assert [tuple(document.extra.values()) for _, _, document in draft.documents()] == [
        ("a/permalinks.md", ""),
        ("a/permalinks.md", "Tokens"),
        ("a/permalinks.md", "Tokens > Examples"),
        ("a/permalinks.md", "Permalinks"),
    ]
    groups, documents = draft.together()
    assert (len(set(groups.tolist())), len(documents)) == (1, 4)


@pytest.mark.parametrize(
    ("source", "title", "expected"),
    [
        ("# Title\n\ntext", "Title", [((), "text")]),
        ("Title\n=====\n\ntext\n\nPart\n----\nmore", "Title", [((), "text"), (("Part",), "more")]),
        ("<p align=center><img src=x></p>\n\n# Title\n\ntext", "Title", [((), "text")]),
        ("before\n\n# Title\n\ntext", "Title", [((), "before\n\ntext")]),
        ("---\ntitle: Title\n---\n# title\n\ntext", "Title", [((), "text")]),
        ("---\ntitle: Title\n---\n# Other\n\ntext", "Title", [((), ""), (("Other",), "text")]),
        ("# A\n\n# B\n\ntext", "A", [((), ""), (("B",), "text")]),
        ("## A\n\n#### B\n\nb\n\n### C\n\nc\n\n# D\n\nd", "", None),
        ("no heading", "", [((), "no heading")]),
        ("> # quoted\n\n- # listed", "", [((), "quoted\n\n- listed")]),
        ("---\n\nA rule, no front matter.", "", [((), "A rule, no front matter.")]),
        ("", "", [((), "")]),
    ],
)
def test_titles_and_headings(source: str, title: str, expected: list | None) -> None:
    page = parse(source, Counter())
    found = [(section.headings, section.text) for section in page.sections]
    assert page.title == title
    assert found == (expected or [((), ""), (("A",), ""), (("A", "B"), "b"), (("A", "C"), "c"), (("D",), "d")])


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a *b* **c** `d` [e](/f) ![g](h.png) <b>i</b>", "a b c d e g i"),
        ("[shown][ref]\n\n[ref]: /there", "shown"),
        ("a\nb  \nc", "a\nb\nc"),
        ("- a\n- b\n  - c\n\n1. d\n2. e", "- a\n- b\n- c\n\n1. d\n2. e"),
        ("> [!NOTE]\n> Mind this.", "Mind this."),
        ("> quoted", "quoted"),
        ("    code &amp;\n", "code &amp;"),
        ("```\ncode <b>\n```", "code <b>"),
        ("<!-- hidden -->\n\n<div class='x'>shown &amp; told</div>\n\n<script>bad()</script>", "shown & told"),
        ("a<a name=x></a> b", "a b"),
        ('```\ncode\n```<a name="after-a-fence"></a>\n\ntext', "code\n\ntext"),
        ('{{% include "x.md" %}}\n\n{{< note >}}inside{{< /note >}}', "inside"),
        ("`{{</* figure src=x */>}}` and {{ .Title }}", "{{< figure src=x >}} and {{ .Title }}"),
        ("a & b &copy;", "a & b ©"),
        ("**Limits—**You can. **Yes **in `**/*.md`", "Limits—You can. Yes in **/*.md"),
        ("\\*not emphasis\\*", "*not emphasis*"),
    ],
)
def test_markdown_becomes_text(source: str, text: str) -> None:
    assert sections(source) == [((), text)]


@pytest.mark.parametrize(
    ("front", "title"),
    [
        ("title: 007", "007"),
        ("title: yes", "yes"),
        ("title: '2020-01-01'\nweight: 3", "2020-01-01"),
        ("title: [a, b]", ""),
        ("- a\n- b", ""),
        ("", ""),
    ],
)
def test_front_matter_guesses_no_types(front: str, title: str) -> None:
    page = parse(f"---\n{front}\n---\ntext", Counter())
    assert page.title == title
    assert page.sections[0].text == "text"


def test_broken_front_matter_is_counted_and_the_page_kept() -> None:
    dropped: Counter[str] = Counter()
    page = parse("---\r\ntitle: [a\r\n---\r\ntext\r\n", dropped)
    assert (page.title, page.sections[0].text) == ("", "text")
    assert dropped == {"front matter that is not YAML": 1}


def test_the_opening_is_the_first_section_with_a_text() -> None:
    draft = Draft()
    add_page("a.md", "# Title\n\n## Empty\n\n## First\n\nThe first text there is.", draft)
    text = "The first text there is."
    assert triples(draft) == [("title", "Title", text), ("heading", "Title: First", text)]
    assert draft.dropped == {"heading without a text": 1}


def test_what_makes_no_pair_is_counted() -> None:
    draft = Draft()
    add_page("a.md", "# Title\n\nSee details.", draft)
    add_page("b.md", "A text that has no title at all.", draft)
    add_page("c.md", "---\ntitle: T\n---\n", draft)
    assert triples(draft) == []
    assert draft.count("documents") == 1
    assert draft.dropped == {
        "section under 20 characters": 1,
        "page without a text": 2,
        "page without a title": 1,
    }


def test_queries_for_headings() -> None:
    assert heading_query("Page", ("Part", "Detail")) == "Page: Part: Detail"
    assert heading_query("", ("Part",)) == "Part"
    assert heading_query("Page", ("page",)) == "page"
    assert heading_query("Data", ("Database",)) == "Data: Database"


BLOCKS = st.sampled_from(
    [
        "# Cats",
        "## Dogs",
        "### Cats",
        "Cats",
        "Cats: they purr all day.",
        "Dogs.",
        "```\n# Cats\n```",
        "- a\n- Dogs",
        "They sleep in the sun, and then they eat.",
    ]
)


@given(st.lists(BLOCKS, max_size=8), st.sampled_from(["", "Cats", "Dogs"]))
@settings(max_examples=200, deadline=None)
def test_no_document_starts_with_a_line_that_is_its_query(blocks: list[str], title: str) -> None:
    front = f"---\ntitle: {title}\n---\n" if title else ""
    draft = Draft()
    add_page("a.md", front + "\n\n".join(blocks), draft)
    for _, query, text in triples(draft):
        assert query_key(text.splitlines()[0]).rstrip(".:") != query_key(query)


def test_a_folder_an_archive_and_a_zip_are_the_same(tmp_path: Path) -> None:
    pages = {
        "b/two.md": "# Two\n\nThe text of the second page.",
        "one.markdown": "# One\n\nThe text of the first.",
    }
    others = {".git/x.md": "# hidden", "image.png": "no page", "b/.draft.md": "# hidden"}
    with (
        tarfile.open(tmp_path / "docs.tar.gz", "w:gz") as tar,
        zipfile.ZipFile(tmp_path / "docs.zip", "w") as zipped,
    ):
        for name, text in {**pages, **others}.items():
            path = tmp_path / "docs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            tar.add(path, name)
            zipped.write(path, name)
    drafts = [harvested(tmp_path / name) for name in ("docs", "docs.tar.gz", "docs.zip")]
    first, *others_found = [[document for _, _, document in draft.documents()] for draft in drafts]
    assert len(first) == 2
    assert others_found == [first] * 2
    assert [name for name, _ in Pages(tmp_path / "docs", Counter())] == ["b/two.md", "one.markdown"]


def test_archives_in_a_folder_are_not_opened_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n\nA page with enough text to be a document.", encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.writestr("b.md", "# B")
    dropped: Counter[str] = Counter()
    assert [name for name, _ in Pages(tmp_path, dropped)] == ["a.md"]
    assert dropped == {"archive in the folder, not opened": 1}


@pytest.mark.parametrize("name", ["../evil.md", "/etc/evil.md", "a/../../evil.md", "..\\evil.md", "C:/evil.md"])
def test_members_that_climb_out_are_refused(tmp_path: Path, name: str) -> None:
    content = b"# Evil\n\nA text that is long enough."
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as zipped:
        zipped.writestr(zipfile.ZipInfo(name), content)
    for archive in ("evil.tar.gz", "evil.zip"):
        with pytest.raises(EmbedtrainError, match=r"which climbs out of it; unpack it with care"):
            harvested(tmp_path / archive)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.tar.gz", "evil.zip"]


def test_links_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        link = tarfile.TarInfo("passwd.md")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        text = b"# Page\n\nA text that is long enough."
        member = tarfile.TarInfo("page.md")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
    draft = harvested(tmp_path / "a.tar")
    assert draft.count("documents") == 1
    assert draft.dropped == {"link in an archive": 1}


def test_broken_archives_and_pages_are_refused(tmp_path: Path) -> None:
    for name, content in (
        ("a.zip", b"no"),
        ("a.tar.gz", b"no"),
        ("b.tar.gz", HUGO.read_bytes()[:5000]),
        ("empty.tar", b""),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(EmbedtrainError, match=r"is not a whole archive .*; fetch or make it again"):
            harvested(tmp_path / name)
    (tmp_path / "latin.md").write_bytes(b"# caf\xe9")
    with pytest.raises(EmbedtrainError, match=r"page latin\.md is not UTF-8 text; convert it"):
        harvested(tmp_path / "latin.md")
    with pytest.raises(
        EmbedtrainError, match=r"a\.docx holds no pages \(\.md, .*\.pdf\); check the path or --kind"
    ):
        harvested(tmp_path / "a.docx")
    with pytest.raises(EmbedtrainError, match=r"holds no HTML pages \(\.html, \.htm, \.xhtml\)"):
        Pages(tmp_path / "latin.md", Counter(), "html")


def test_hugo_docs_from_the_command_line(run_cli: RunCli, tmp_path: Path) -> None:
    result = run_cli("harvest", HUGO, "--split", "dev=0.1", "--out", "c", "--json", "-q")
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert said["kind"] == "markdown"
    assert said["sources"].keys() >= {"title", "description", "heading"}
    assert sum(said["sources"].values()) == sum(said["pairs"].values()) > 2500
    collection = Collection(tmp_path / "c")
    assert len(collection.corpus) == said["documents"] > 1900
    pages: dict[str, set[str]] = {}
    for split in ("train", "dev"):
        for query, documents in collection.positives(split).items():
            text = collection.queries.by_id(query)
            for document in documents:
                first = collection.corpus.by_id(document).splitlines()[0]
                assert query_key(first) != query_key(text)
                pages.setdefault(document, set()).add(split)
    assert all(len(splits) == 1 for splits in pages.values())


def test_an_archive_is_read_in_the_order_of_its_names_one_page_at_a_time(tmp_path: Path) -> None:
    for ending, mode in (("tar", "w"), ("tar.gz", "w:gz"), ("tar.bz2", "w:bz2"), ("tar.xz", "w:xz")):
        with tarfile.open(tmp_path / f"a.{ending}", mode) as tar:
            for name in ("c.md", "a.md", "b.md"):
                member = tarfile.TarInfo(name)
                member.size = 4
                tar.addfile(member, io.BytesIO(name.encode()))
        pages = Pages(tmp_path / f"a.{ending}", Counter())
        assert (len(pages), pages.names) == (3, ["a.md", "b.md", "c.md"])
        assert list(pages) == [("a.md", b"a.md"), ("b.md", b"b.md"), ("c.md", b"c.md")]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        for name in ("c.md", "a.md"):
            zipped.writestr(name, name)
    assert list(Pages(tmp_path / "a.zip", Counter())) == [("a.md", b"a.md"), ("c.md", b"c.md")]
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text("old")
    read = iter(Pages(tmp_path, Counter(), "markdown"))
    assert next(read) == ("a.md", b"old")
    (tmp_path / "b.md").write_text("new")  # after the first page was handed out
    assert next(read) == ("b.md", b"new")


def test_the_kind_of_a_source_is_that_of_its_pages(tmp_path: Path) -> None:
    assert kind_of(tmp_path) == ""
    (tmp_path / "a.md").write_text("a")
    (tmp_path / ".hidden.html").write_text("a")
    assert kind_of(tmp_path) == "markdown"
    (tmp_path / "b.HTM").write_text("a")
    assert kind_of(tmp_path) == "documents"
    assert kind_of(tmp_path / "b.HTM") == "html"
    assert kind_of(HUGO) == "markdown"
    assert [name for name, _ in Pages(tmp_path, Counter(), "html")] == ["b.HTM"]


def test_what_a_converter_leaves_behind_is_taken_out() -> None:
    dropped: Counter[str] = Counter()
    source = """# Title

Read this first: it is a text.

**Topics**
+ [One](one.md)
+ [Two](two.md), [Three](three.md)

1. Choose it.
1. Save it.
![\\[A console.\\]](a.png)![\\[A console.\\]](b.png)

1. See [One](one.md) for more.

+ And [Two](two.md) besides

| a<br>b | c |
| --- | --- |
|  |  |
| --- | |
| 1 [See the AWS documentation website for more details] | ![\\[Image NOT FOUND\\]](x.png) 2 |

## [ Console ]<a name="x"></a>

A text.

## Next step

[Two](two.md)
"""
    page = parse(source, dropped)
    assert [(section.headings, section.text) for section in page.sections] == [
        (
            (),
            "Read this first: it is a text.\n\n1. Choose it.\n2. Save it.\nA console.\n3. See One for more.\n\n- And Two besides\n\n"
            "a b | c\n1 | 2",
        ),
        (("Console",), "A text."),
        (("Next step",), ""),
    ]
    assert dropped == {
        "list of links": 1,
        "label of a list of links": 1,
        "empty row of a table": 2,
        "section of links": 1,
    }


def test_blocks_know_what_they_are() -> None:
    source = "- run\n\n  ```\n  ls\n  ```\n\na|b\n-|-\n1|2\n\ntext\n\n    code"
    assert parse(source, Counter()).sections[0].blocks == [
        Block("- run", item=True),
        Block("ls", code=True, tight=True),
        Block("a | b"),
        Block("1 | 2", tight=True, head="a | b"),
        Block("text"),
        Block("code", code=True),
    ]


@pytest.mark.slow
def test_aws_docs() -> None:
    if not SHARED.is_dir():
        pytest.skip("the guides are not on this machine")
    draft = Draft()
    for archive in sorted((SHARED / "aws-docs" / "markdown").glob("*.tar.gz")):
        page_pairs.read(archive, PageOptions(), draft, silent)
    groups, _ = draft.together()
    assert len(set(groups.tolist())) > 2700
    assert draft.names("source").keys() == {"title", "heading", "faq"}
    assert not any(
        "<a name" in document.text or "Image NOT FOUND" in document.text for _, _, document in draft.documents()
    )
