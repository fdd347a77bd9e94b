"""Links between pages: what a link asks, what it leads to, and what is no pair.

Deliberate breaks that turn a test red: the link's own words for every query; a sentence that merely points as a query; the
opening of a page for each of its sections; following a link when it is read; anchors that go with what is left out; a
second slug like the first; links of code, navigation and pictures; a link to its own page as a pair; a resumed run that
follows a link twice.
"""

from collections import Counter
from pathlib import Path

import pytest
from conftest import SHARED
from harvested import triples
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain.config import PageOptions
from embedtrain.console import silent
from embedtrain.harvest import documents as page_pairs
from embedtrain.harvest.documents import html, links, markdown, rst
from embedtrain.harvest.documents.links import citing
from embedtrain.harvest.documents.page import Block, Page, Section
from embedtrain.harvest.documents.passages import Chunk, cut, cut_page, without_code
from embedtrain.harvest.draft import Draft

LINKS = PageOptions(pairs="links")
CATS = "They eat all day and they run all night."
DOGS = "A dog sleeps beside the fire and waits."
COWS = "The cows stand in the rain and look on."
HENS = "Hens lay an egg each day but for Sunday."


def words(text: str) -> int:
    return len(text.split())


def harvested(folder: Path, pages: dict[str, str], options: PageOptions = LINKS) -> Draft:
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    draft = Draft(keep_dropped=True)
    page_pairs.read(folder, options, draft, silent)
    return draft


def asked(page: Page) -> list[str]:
    return [citing(line, link) for line in page.lines for link in line.links]


@pytest.mark.parametrize(
    ("source", "queries"),
    [
        ("A cat eats. It [sleeps](b.md) by day. It runs.", ["It sleeps by day."]),
        ("One\ncow and [a\nhorse](b.md) here.", ["One cow and a horse here."]),
        ("- [Feeding of cats](b.md)", ["Feeding of cats"]),
        ("- [Feeding](b.md) – What they eat.", ["Feeding – What they eat."]),
        ("For more information, see [Feeding of cats](b.md).", ["Feeding of cats"]),
        ("See also [Feeding](b.md) and [Sleep](c.md).", ["Feeding", "Sleep"]),
        ("Click [here](b.md) to install the program.", ["Click here to install the program."]),
        ("Cats sleep. See [this page](b.md).", [""]),
        ("See [details](b.md) and [Sleep](c.md).", ["", "Sleep"]),
        ("[Next](b.md)", [""]),
        ("[b.md](b.md), [guide/b](guide/b), [Date](/Date/)", ["", "", "Date"]),
        ("**Type:** [Cat](b.md) object  \nRequired: no", ["Type: Cat object"]),
        ("> [!NOTE]\n> A cat [purrs](b.md).", ["A cat purrs."]),
        ("The `ls` of [`cats`](b.md) ![a picture](c.png).", ["The ls of cats a picture."]),
        ("| Name | Use |\n| --- | --- |\n| Cat | Cats [eat](b.md). It runs. |", ["Cats eat."]),
        ("[What is a cat? Cats for beginners](b.md)", ["What is a cat? Cats for beginners"]),
        ("We write, e.g., [short](b.md) words.", ["We write, e.g., short words."]),
        ('A cat <a class="x" href="b.html">purrs</a> at <a name="c"></a>night.', ["A cat purrs at night."]),
        ("Siehe auch [Fütterung](b.md).", ["Fütterung"]),
        ("## Feeding [cats](b.md)", ["Feeding cats"]),
        ("    [code](b.md)\n\n`[code](b.md)` and [](b.md)", []),
    ],
)
def test_what_a_link_asks(source: str, queries: list[str]) -> None:
    assert asked(markdown.parse(source, Counter())) == queries


@given(
    st.lists(st.tuples(st.sampled_from(["a", " b", "c ", " ", "\n", "", "d  e"]), st.sampled_from(["", "x", "y"])))
)
@settings(max_examples=200, deadline=None)
def test_the_words_of_a_link_stand_where_it_says(parts: list[tuple[str, str]]) -> None:
    page = markdown.Outline()
    page.line(parts)
    lines = page.finish(Counter()).lines
    linked = "".join("".join(shown.split()) for shown, target in parts if target)
    assert bool(lines) is bool(linked)
    for line in lines:
        assert line.text == " ".join("".join(shown for shown, _ in parts).split())
        found = [line.text[link.start : link.end] for link in line.links]
        assert "".join("".join(found).split()) == linked
        assert all(shown == shown.strip() != "" for shown in found)


def test_links_by_hand(tmp_path: Path) -> None:
    pages = {
        "a.md": "# Animals\n\nMost of them are fond of [dogs](b.md). Some like [a farm](sub/c.md#the-hens).\n\n"
        "[Cows of all kinds](sub/c.md#Moo), [the farm](<sub/c.md>)",
        "b.md": f"# Dogs\n\n{DOGS}",
        "sub/c.md": f'# Farm\n\n{CATS}\n\n## Cows <a name="moo"></a>\n\n{COWS}\n\n## The hens\n\n{HENS}\n\n'
        "Back to [the many animals](../a.md) or [dogs that sleep](../b.md?x=1).",
    }
    draft = harvested(tmp_path, pages, PageOptions(pairs="links", chunk_tokens=0))
    hens = f"{HENS}\n\nBack to the many animals or dogs that sleep."
    animals = "Most of them are fond of dogs. Some like a farm.\n\nCows of all kinds, the farm"
    assert triples(draft) == [
        ("link", "Most of them are fond of dogs.", DOGS),
        ("link", "Some like a farm.", hens),
        ("link", "Cows of all kinds", COWS),
        ("link", "the farm", CATS),
        ("link", "the many animals", animals),
        ("link", "dogs that sleep", DOGS),
    ]
    assert draft.dropped == {}
    assert len(set(draft.together()[0].tolist())) == 3


def test_what_is_no_pair_is_counted(tmp_path: Path) -> None:
    pages = {
        "a.md": "# A\n\nCats like [a site](https://e.org/b.md), [a mail](mailto:x@e.org), [them](//e.org), [cats](#cats),"
        " [cats](a.md#cats), [![small](s.png)](large.PNG), [gone](gone.md), [gone again](gone.md), [above](../b.md),"
        " [a part](b.md#gone), [nothing](b.md#empty), [an empty page](c.md), and [that is all](b.md).\n\n[Home](b.md)",
        "b.md": f"# B\n\n{DOGS}\n\n## Empty\n",
        "c.md": "# C\n",
    }
    draft = harvested(tmp_path, pages)
    assert [text for _, _, text in triples(draft)] == [DOGS]
    assert draft.dropped == {
        "link out of its source": 3,
        "link to its own page": 2,
        "link to a picture": 1,
        "link whose words merely point": 1,
        "link to a page that is not in its source": 2,  # the same sentence and target count once
        "link to an anchor that its page does not have": 1,
        "link to what has no document": 2,
        "heading without a text": 1,
        "page without a text": 1,
    }
    rows = "\n".join(draft.dropped_rows())
    assert '"page": "a.md", "link": "gone.md", "query": "Cats like a site' in rows
    assert "e.org" not in rows.replace("Cats like a site", "")


def test_the_paths_of_a_site(tmp_path: Path) -> None:
    front = "---\ntitle: T\n{}---\n\n{}\n"
    pages = {
        "content/en/_index.md": front.format("", CATS),
        "content/en/dogs/_index.md": front.format("", DOGS),
        "content/en/farm/Cows.md": front.format("aliases: [/old/cows/]\n", COWS),
        "content/en/farm/hens/index.md": front.format("url: /h/\n", HENS),
        "content/en/x.md": "The [home of cats](/) there. The [first dogs](/dogs/) there. The [second dogs](/dogs/index.html) too.\n\n"
        "The [first cows](/farm/cows/) there. The [second cows](/old/cows) too. The [third cows](farm/Cows) too.\n\n"
        "The [first hens](/h/) there. The [second hens](../farm/hens/) too.\n\n"
        'The [third hens]({{< ref "farm/hens" >}}) there. The [fourth hens]({{% relref path="/farm/hens/index.md#t" %}}) too. '
        "The [fifth hens][f] too.\n\n[f]: {{< relref farm/hens >}}\n",
        "content/en/farm/pigs.md": "The [sixth hens](../hens/) there. The [fourth cows](Cows.md) too.",
    }
    draft = harvested(tmp_path, pages)
    found: dict[str, int] = Counter(text for _, _, text in triples(draft))
    assert found == {CATS: 1, DOGS: 2, COWS: 4, HENS: 5}
    # A page has no anchor by the title of its front matter.
    assert [row for row in draft.dropped_rows() if "anchor" in row] == [
        '{"reason": "link to an anchor that its page does not have", "page": "content/en/x.md", '
        '"link": "/farm/hens/index.md#t", "query": "The fourth hens too."}'
    ]
    assert draft.dropped.pop("page without a title") == 2
    assert draft.dropped.total() == 1  # no shortcode is lost


def test_anchors_of_markdown() -> None:
    page = markdown.parse(
        '# Title <a name="top"></a>\n\nOne.\n\n## Part\n\nTwo.\n\n## Part\n\n- three\n- <a id="four"></a>four\n\n'
        '<a name="five"></a>\n## What\'s new, & *old*? {#named .x}\n\n| a |\n| --- |\n| b<a name="six"></a> |\n\n'
        '```\ncode\n```\n<a name="seven"></a>\nLast.\n\n<a name="end"></a>',
        Counter(),
    )
    assert [(section.headings, section.anchors) for section in page.sections] == [
        ((), ("top", "title")),
        (("Part",), ("part",)),
        (("Part",), ("part-1",)),
        (("What's new, & old?",), ("five", "named", "whats-new--old", "end")),
    ]
    assert {
        block.text: block.anchors for section in page.sections for block in section.blocks if block.anchors
    } == {
        "- four": ("four",),
        "b": ("six",),
        "Last.": ("seven",),
    }


def test_anchors_of_html_and_its_links() -> None:
    page = html.parse(
        '<title>T</title><nav><a href="n.html">Navigation of it</a></nav><body id="b"><p>In cold <span id="in">places</span> '
        'there are <a href="c.html#x">cats\nthat run</a>.<br>A line.</p><div id="part"><h2 id="h">Head<a href="#h">#</a>'
        '</h2><a name="old"></a><p>One.</p></div><h2><a id="h2">Other</a></h2><ul><li id="li">Two <a href="d.html">dogs'
        '</a></li></ul><pre><a href="e.html">code</a></pre><table><tr><td id="td">Red <a href="f.html">fox</a></table>',
        Counter(),
    )
    assert asked(page) == ["In cold places there are cats that run.", "Two dogs", "Red fox"]
    assert [section.anchors for section in page.sections] == [(), ("part", "h"), ("h2",)]
    anchors = {block.text.split("\n")[0]: block.anchors for section in page.sections for block in section.blocks}
    assert anchors == {
        "In cold places there are cats that run.": ("b", "in"),
        "One.": ("old",),
        "- Two dogs": ("li",),
        "code": (),
        "Red fox": ("td",),
    }


def test_links_of_restructuredtext(tmp_path: Path) -> None:
    pages = {
        "a.rst": "Start\n=====\n\nMany keep :doc:`dogs <sub/b>` at home. Some have :ref:`cows <The Cows>` outside.\n\n"
        "* :doc:`/sub/b`\n* :ref:`Hens of the farm <hens>`\n* `A farm <sub/b.html#the-farm>`_\n* `Out <https://e.org>`_\n"
        "* :ref:`hens`\n",
        "sub/b.rst": f"Dogs\n====\n\n{DOGS}\n\n.. _the cows:\n\nCows\n----\n\n{COWS}\n\n.. _hens:\n\n{HENS}\n\nThe farm\n--------\n\n"
        f"{CATS}\n",
    }
    draft = harvested(tmp_path, pages, PageOptions(pairs="links", chunk_tokens=0))
    assert triples(draft) == [
        ("link", "Many keep dogs at home.", DOGS),
        ("link", "Some have cows outside.", f"{COWS}\n\n{HENS}"),
        ("link", "Hens of the farm", f"{COWS}\n\n{HENS}"),
        ("link", "A farm", CATS),
    ]
    # A role without a title shows no words, but a path or a label.
    assert draft.dropped["link whose words merely point"] == 2
    assert rst.parse(pages["sub/b.rst"], Counter()).sections[1].anchors == ("cows", "the-cows", ":ref:the cows")


def test_an_anchor_leads_to_the_piece_that_it_stands_in() -> None:
    blocks = [
        Block(f"{text} {place}", anchors=(f"a{place}",))
        for place, text in enumerate(["A b c.", "D e f.", "G h i."])
    ]
    assert [(found.text, found.anchors) for found in cut(blocks, 8, 0, words)] == [
        ("A b c. 0\n\nD e f. 1", ("a0", "a1")),
        ("G h i. 2", ("a2",)),
    ]
    # What a text repeats of the one before does not lead to it.
    assert [found.anchors for found in cut(blocks, 8, 4, words)] == [("a0", "a1"), ("a2",)]
    short = [Section(("A", name), [Block(f"{name} is short.")], "", (name,)) for name in ("B", "C")]
    assert list(
        cut_page(Page(sections=[Section(("A",), [Block("x " * 20)], "", ("A",)), *short]), 40, 0, words)
    ) == [
        Chunk(("A",), ("x " * 20).strip(), anchors=("A",)),
        Chunk(("A",), "B\n\nB is short.\n\nC\n\nC is short.", anchors=("B", "C")),
    ]
    code = Page(sections=[Section((), [Block("x", code=True, anchors=("c",)), Block("Words.")])])
    assert without_code(code, Counter()).sections[0].anchors == ("c",)
    listed = markdown.parse('# T\n\nTopics\n\n- <a name="l"></a>[B](b.md)\n\nWords of it.', Counter())
    assert listed.sections[0].anchors == ("t", "l")


ANCHORED = st.lists(st.integers(1, 12), max_size=8).map(
    lambda sizes: [Block(" ".join(["Aa"] * size) + ".", anchors=(str(n),)) for n, size in enumerate(sizes)]
)


@given(ANCHORED, st.integers(1, 12), st.integers(0, 6))
@settings(max_examples=200, deadline=None)
def test_each_anchor_leads_to_one_piece(blocks: list[Block], budget: int, overlap: int) -> None:
    found = [anchor for text in cut(blocks, budget, overlap, words) for anchor in text.anchors]
    assert found == [str(n) for n in range(len(blocks))]


def test_a_heading_without_a_text_leads_to_what_is_below_it(tmp_path: Path) -> None:
    pages = {
        "a.md": "The [tall cats](b.md#tall) run. The [small cats](b.md#small) do not. The [others](b.md#other) may.",
        "b.md": f"# B\n\n## Tall\n\n### Tall and slim\n\n{CATS}\n\n## Small\n\n## Other\n\n{DOGS}",
    }
    draft = harvested(tmp_path, pages)
    assert [text for _, _, text in triples(draft)] == [CATS, DOGS]
    assert draft.dropped["link to what has no document"] == 1


def test_what_differs_in_case_alone_is_found_as_it_is_written(tmp_path: Path) -> None:
    pages = {
        "Cats.md": f"# Big\n\n{CATS}",
        "a.md": "The [cats that eat](Cats.md) are big. The [dogs that wait](cats.md) are small. The [cats by night](CATS) run."
        " The [moo of cows](farm.html#Moo) is loud. The [egg of hens](farm.html#moo) is white. The [next egg](farm.html#MOO) too.",
        "cats.md": f"# Small\n\n{DOGS}",
        "farm.html": f"<h1>Farm</h1><h2 id=Moo>Cows</h2><p>{COWS}</p><h2 id=moo>Hens</h2><p>{HENS}</p>",
    }
    draft = harvested(tmp_path, pages, PageOptions(pairs="links", chunk_tokens=0))
    assert [(query, text) for _, query, text in triples(draft)] == [
        ("The cats that eat are big.", CATS),
        ("The dogs that wait are small.", DOGS),
        ("The cats by night run.", CATS),
        ("The moo of cows is loud.", COWS),
        ("The egg of hens is white.", HENS),
        ("The next egg too.", COWS),
    ]


def test_an_index_is_no_sentence_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    found = links.sentences

    def counted(text: str) -> list[tuple[str, str]]:
        texts.append(text)
        return found(text)

    monkeypatch.setattr(links, "sentences", counted)
    entries = [f"cows number {n}" for n in range(300)]
    index = ", and in a barn, ".join(f"[{words}](b{n}.md)" for n, words in enumerate(entries))
    page = markdown.parse(f"{index}. Then [hens lay](c.md) eggs.", Counter())
    assert asked(page) == [*entries, "Then hens lay eggs."]
    assert len(texts) == 1


@pytest.mark.parametrize("words", ["guide/käse.md", "guide/k%C3%A4se.md"])
def test_a_path_as_its_own_words_says_nothing(words: str) -> None:
    assert asked(markdown.parse(f"See [{words}](guide/käse.md).", Counter())) == [""]
    assert asked(markdown.parse(f"See [the {words}](guide/käse.md).", Counter())) == [f"the {words}"]


def test_links_are_off_unless_they_are_asked_for(tmp_path: Path) -> None:
    pages = {"a.md": f"# A\n\nThe [dogs](b.md) run and run.\n\n{CATS}", "b.md": f"# B\n\n{DOGS}"}
    draft = harvested(tmp_path, pages, PageOptions())
    assert {source for source, _, _ in triples(draft)} == {"title"}
    assert not draft.db.execute("SELECT 1 FROM sqlite_master WHERE name LIKE 'link%'").fetchall()
    # What a title says already is no second pair.
    both = harvested(tmp_path, {**pages, "c.md": "- [B](b.md)"}, PageOptions(pairs="title,links"))
    assert triples(both)[2:] == [("link", "The dogs run and run.", DOGS)]
    assert both.dropped["repeated pair"] == 1


def test_two_sources_do_not_link_to_each_other(tmp_path: Path) -> None:
    draft = Draft()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text("The dogs of [this house](b.md) run.")
    (tmp_path / "one" / "b.md").write_text(f"# B\n\n{DOGS}")
    for name in ("one", "two"):
        page_pairs.read(tmp_path / name, LINKS, draft, silent)
    assert triples(draft) == [("link", "The dogs of this house run.", DOGS)]
    assert draft.dropped["link to a page that is not in its source"] == 1


@pytest.mark.parametrize(("function", "items"), [("add", 4), ("_follow", 20)])
def test_a_killed_run_goes_on(function: str, items: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = tmp_path / "docs"
    texts = (CATS, DOGS, COWS, HENS)
    names = ("cats", "dogs", "cows", "hens", "pigs")
    pages = {}
    for text, own in zip(texts, names, strict=False):
        run = " ".join(f"The {own} run to [their friends]({name}.md) and to {name}." for name in names)
        pages[f"{own}.md"] = f"# {own}\n\n{text}\n\n## Friends\n\n{run}"
    whole = harvested(docs, pages)
    assert len(triples(whole)) == 4 * 3
    assert whole.dropped == {"link to its own page": 4, "link to a page that is not in its source": 4}
    monkeypatch.setattr("embedtrain.harvest.ledger._LOOK", 1)
    monkeypatch.setattr("embedtrain.harvest.ledger._SECONDS", -1.0)
    real, times = getattr(links.Links, function), []

    def dies(*arguments: object) -> None:
        times.append(1)
        if len(times) == 3:
            raise KeyboardInterrupt
        real(*arguments)

    monkeypatch.setattr(links.Links, function, dies)
    killed = Draft(tmp_path / "draft.sqlite")
    with pytest.raises(KeyboardInterrupt):
        page_pairs.read(docs, LINKS, killed, silent)
    killed.leave()
    again = Draft(tmp_path / "draft.sqlite")
    page_pairs.read(docs, LINKS, again, silent)
    assert len(times) == items + 1  # only what it was killed in is done again
    assert triples(again) == triples(whole)
    assert (again.dropped, again.notes) == (whole.dropped, whole.notes)
    assert list(again.documents()) == list(whole.documents())


def test_a_guide() -> None:
    if not SHARED.is_dir():
        pytest.skip("the guides are not on this machine")
    draft = Draft()
    source = SHARED / "aws-docs" / "markdown" / "aws-transit-gateway-guide.tar.gz"
    page_pairs.read(source, LINKS, draft, silent)
    found = {query: text for _, query, text in triples(draft)}
    quotas = "For more information about service quotas for Transit Gateway Network Manager, see Network Manager quotas."
    assert found[quotas].startswith("Your AWS account has the following quotas related to Network Manager:")
    assert found["MTU"].startswith("- The maximum transmission unit (MTU) of a network connection")  # of a section
    assert found["Example: Isolated VPCs"].startswith(
        "You can configure your transit gateway as multiple isolated routers."
    )
    assert len(found) == 73
    assert {reason: count for reason, count in draft.dropped.items() if "link" in reason} == {
        "link out of its source": 259,
        "link to its own page": 86,
        "link whose words merely point": 2,  # "Examples", twice
        "list of links": 26,
        "label of a list of links": 26,
        "section of links": 1,
    }
