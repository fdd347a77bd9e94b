"""reStructuredText: titles, text and code as docutils reads them, and the text of what only Sphinx knows.

Deliberate breaks that turn a test red: letting an unknown directive lose its text; printing docutils' messages; reading
a file that a page includes; system messages in the text; a role that stays known on the next page; a title that is said
twice because its underline is short; an error in a directive's option that hides its code.
"""

from collections import Counter
from pathlib import Path

import pytest

from embedtrain.harvest.documents.page import Block
from embedtrain.harvest.documents.rst import parse

PAGE = """\
.. meta::
   :description: How it is laid out.

=======
Layouts
=======

A *layout* has :ref:`parts <parts>`, see :py:func:`~site.pages.render` and ``code``.

.. toctree::
   :maxdepth: 2

   first
   second

.. note:: Mind this
   well.

.. versionadded:: 1.2
   It came late.

.. code-block:: python
   :emphasize-lines: 1

   def f():
       return 1

Use
===

1. Choose
2. Save::

     ls -l

       x

==== ====
Name Size
==== ====
a    1
==== ====

Deep
----

term
   means this

-v, --verbose  say more

.. py:function:: f(x)
   :noindex:

   Does a thing.
"""


def test_a_page_by_hand(capfd: pytest.CaptureFixture[str]) -> None:
    dropped: Counter[str] = Counter()
    page = parse(PAGE, dropped)
    assert (page.title, page.description) == ("Layouts", "How it is laid out.")
    assert [(section.headings, section.text) for section in page.sections] == [
        (
            (),
            "A layout has parts, see render and code.\n\nMind this\nwell.\n\nIt came late.\n\ndef f():\n    return 1",
        ),
        (("Use",), "1. Choose\n2. Save:\nls -l\n\n  x\n\nName | Size\na | 1"),
        (("Use", "Deep"), "term\nmeans this\n\n-v, --verbose: say more\n\nf(x)\n\nDoes a thing."),
    ]
    assert dropped == {
        "rst directive toctree": 1,
        "rst directive that is not known, its text kept": 3,
        "rst role that is not known, its text kept": 2,
    }
    assert page.sections[0].blocks[-1] == Block("def f():\n    return 1", code=True)
    assert page.sections[1].blocks[-1] == Block("a | 1", tight=True, head="Name | Size")
    assert capfd.readouterr() == ("", "")


def texts(source: str, dropped: Counter[str] | None = None) -> list[tuple[tuple[str, ...], str]]:
    page = parse(source, Counter() if dropped is None else dropped)
    return [(section.headings, section.text) for section in page.sections]


def test_nothing_is_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    name = tmp_path / "secret.txt"
    source = "\n\n".join(
        [
            f".. include:: {name}",
            f".. raw:: html\n   :file: {name}",
            ".. raw:: html\n\n   <b>raw</b>",
            f".. csv-table:: T\n   :file: {name}",
            f".. literalinclude:: {name}",
            "text",
        ]
    )
    dropped: Counter[str] = Counter()
    [(_, text)] = texts(source, dropped)
    assert "secret" not in text.replace(str(name), "")
    assert "raw" not in text
    assert text.endswith("text")
    assert dropped["rst directive include"] == 1
    assert dropped["rst directive raw"] == 2
    assert dropped["rst directive literalinclude"] == 1


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a\n\n.. comment\n\nb", "a\n\nb"),
        ("- one\n- two\n\n  more", "- one\n- two\nmore"),
        ("- `x <http://a>`_\n- `y <http://b>`_\n\ntext", "text"),
        ("| a\n| b", "a\nb"),
        (">>> 1\n1", ">>> 1\n1"),
        ("a |b| c\n\n.. |b| replace:: B", "a B c"),
        ("a [1]_\n\n.. [1] note", "a\n\nnote"),
        ("unclosed *star", "unclosed *star"),
        (".. image:: a.png\n   :alt: A picture", "A picture"),
        (".. figure:: a.png\n\n   Said below.", "Said below."),
        (".. tabs::\n\n   .. tab:: One\n\n      inside", "One\n\ninside"),
        (".. contents::\n\ntext", "text"),
        (".. index:: word\n\ntext", "text"),
        (":doc:`/a/b` and :x:`t`", "/a/b and t"),
        ("=== ===\na\n===", "=== ===\na\n==="),
    ],
)
def test_pieces(source: str, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert texts(source)[0][1] == text
    assert capfd.readouterr() == ("", "")


def test_titles_that_docutils_finds_fault_with() -> None:
    # A short underline is a title all the same, and not a text besides.
    assert texts("Title\n=====\n\na\n\nA long title\n======\n\nb") == [((), "a"), (("A long title",), "b")]
    # A level that was skipped: docutils loses the title.
    source = "Page\n====\n\nTitle\n=====\n\nOne\n---\n\na\n\nTwo\n~~~\n\nb\n\nNext\n====\n\nThree\n~~~~~\n\nc"
    found = texts(source)
    assert [text for _, text in found if text] == ["a", "b", "c"]
    assert [headings for headings, text in found if text in ("a", "b", "c")] == [
        ("Title", "One"),
        ("Title", "One", "Two"),
        ("Next", "Three"),
    ]


def test_what_docutils_cannot_read_of_a_cell_keeps_its_text() -> None:
    dropped: Counter[str] = Counter()
    source = """\
.. list-table::

   * - Cow
     - See :doc:`her keep <cow>` now.

       .. unknown:: Of :py:func:`it`
          :opt: x

          A body.

       .. toctree::

          first

       .. prompt:: bash

          moo

       .. figure:: a.png
          :wrong: x
"""
    assert texts(source, dropped) == [((), "Cow | See her keep now. Of it A body. moo")]
    assert dropped == {
        "rst role that is not known, its text kept": 2,
        "rst directive that is not known, its text kept": 3,
        "rst directive toctree": 1,
    }


def test_a_role_is_known_on_its_page_alone() -> None:
    dropped: Counter[str] = Counter()
    texts(".. role:: mine\n\n:mine:`a`", dropped)
    assert dropped == {}
    assert texts(":mine:`a`", dropped) == [((), "a")]
    assert parse(":mine:`a`", Counter()).sections[0].anchors == ()  # those of messages are no anchors
    assert dropped == {"rst role that is not known, its text kept": 1}


def test_what_docutils_cannot_read_is_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AttributeError("a fault of the library")

    monkeypatch.setattr("embedtrain.harvest.documents.rst.publish_doctree", fail)
    dropped: Counter[str] = Counter()
    page = parse("Title\n=====\n\nA text.", dropped)
    assert (page.title, page.sections[0].text) == ("Title", "A text.")
    assert dropped == {"rst page that docutils cannot read, taken as plain text": 1}
