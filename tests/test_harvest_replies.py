"""Replies of language models become queries: case P93, and what models really write around them.

Deliberate breaks that turn a test red: an opening line kept as a query; numbers left in front; the first missing
query made up; `2. Bundesliga` losing its number; JSON read as lines; half a query kept; a closing remark kept; a
line of the document kept; "the document" kept, or dropped where the document is about documents; `<think>` kept.
"""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain.harvest.generated.references import speaks_of_its_document
from embedtrain.harvest.generated.replies import (
    BEYOND,
    COPIED,
    EMPTY,
    LONG,
    REASONING,
    REFERRING,
    REFUSAL,
    REPEATED,
    queries_of,
)
from embedtrain.harvest.generated.reply_json import CODE, CUT, FIELD
from embedtrain.harvest.generated.reply_lines import ANSWER, PREAMBLE, REMARK
from embedtrain.harvest.identity import query_key

XY = ["What is X?", "What is Y?"]


def found(
    reply: str, wanted: int = 2, document: str = "X and Y are letters.", **more: bool
) -> tuple[list[str], Counter[str]]:
    queries = queries_of(reply, wanted, document, **more)
    assert len(queries.kept) + queries.short == wanted
    return queries.kept, Counter(reason for reason, _ in queries.dropped)


def test_p93() -> None:
    reply = "Here are two questions about the topic:\n1. What is X?\n2) What is Y?"
    assert found(reply, 2) == (["What is X?", "What is Y?"], {PREAMBLE: 1})
    kept, dropped, short = queries_of(reply, 3, "")
    assert (kept, short) == (["What is X?", "What is Y?"], 1)
    assert [tuple(row) for row in dropped] == [(PREAMBLE, "Here are two questions about the topic:")]
    # One query a document, the worst case of the issue: not the opening line.
    assert found(reply, 1) == (["What is X?"], {PREAMBLE: 1, BEYOND: 1})


@pytest.mark.parametrize(
    "reply",
    [
        "What is X?\nWhat is Y?",
        "What is X?\r\n\r\nWhat is Y?\r\n",
        "1. What is X?\n2. What is Y?",
        "1.What is X?\n2.What is Y?",
        "1) What is X?\n2) What is Y?",
        "(1) What is X?\n(2) What is Y?",
        "[1] What is X?\n[2] What is Y?",
        "#1: What is X?\n#2: What is Y?",
        "1 - What is X?\n2 - What is Y?",
        "1: What is X?\n2: What is Y?",
        "1. What is X?\n1. What is Y?",  # Markdown counts for itself
        "1️⃣ What is X?\n2️⃣ What is Y?",
        "① What is X?\n② What is Y?",
        "１．What is X?\n２．What is Y?",
        "一、What is X?\n二、What is Y?",
        "Q1: What is X?\nQ2: What is Y?",
        "Q1. What is X?\nQ2. What is Y?",
        "Q: What is X?\nQ: What is Y?",
        "Question 1: What is X?\nQuestion 2: What is Y?",
        "Query 1 - What is X?\nQuery 2 - What is Y?",
        "Frage 1: What is X?\nFrage 2: What is Y?",
        "问题1：What is X?\n问题2：What is Y?",
        "**Question 1:** What is X?\n**Question 2:** What is Y?",
        "**Question 1**\nWhat is X?\n\n**Question 2**\nWhat is Y?",
        "### Question 1\nWhat is X?\n\n### Question 2\nWhat is Y?",
        "1. **Question:** What is X?\n2. **Question:** What is Y?",
        "- What is X?\n- What is Y?",
        "* What is X?\n* What is Y?",
        "• What is X?\n•What is Y?",
        "– What is X?\n– What is Y?",
        "- [ ] What is X?\n- [ ] What is Y?",
        "> What is X?\n> What is Y?",
        "- 1. What is X?\n- 2. What is Y?",
        "(a) What is X?\n(b) What is Y?",
        "a) What is X?\nb) What is Y?",
        "A. What is X?\nB. What is Y?",
        "(i) What is X?\n(ii) What is Y?",
        "**What is X?**\n**What is Y?**",
        "1. **What is X?**\n2. **What is Y?**",
        "**1. What is X?**\n**2. What is Y?**",
        "**1.** What is X?\n**2.** What is Y?",
        "*What is X?*\n*What is Y?*",
        "__What is X?__\n__What is Y?__",
        "`What is X?`\n`What is Y?`",
        '"What is X?"\n"What is Y?"',
        '1. "What is X?"\n2. "What is Y?"',
        "“What is X?”\n„What is Y?“",
        "«What is X?»\n'What is Y?'",
        '- **"Q1: What is X?"**\n- **"Q2: What is Y?"**',
        "What is X?\n---\nWhat is Y?",
        "1. What is X? 2. What is Y?",
        "Q1: What is X? Q2: What is Y?",
        "What is X?\n2. What is Y?",  # the prompt ended in "1."
        "  1. What is X?   \n\n\n  2. What is   Y?  ",
        "<query>What is X?</query>\n<query>What is Y?</query>",
        "<ul><li>What is X?</li><li>What is Y?</li></ul>",
        "What is X?\nWhat is Y?</s>",
        "What is X?\nWhat is Y?<|im_end|>",
        "<think>\n\n</think>\n\nWhat is X?\nWhat is Y?",
        "```\nWhat is X?\nWhat is Y?\n```",
        "```text\n1. What is X?\n2. What is Y?\n```",
        '["What is X?", "What is Y?"]',
        '[\n  "What is X?",\n  "What is Y?"\n]',
        "['What is X?', 'What is Y?']",
        '["1. What is X?", "2. What is Y?"]',
        '```json\n["What is X?", "What is Y?"]\n```',
        '```json\n{"queries": ["What is X?", "What is Y?"]}',
        '{"queries": ["What is X?", "What is Y?"]}',
        '{"query1": "What is X?", "query2": "What is Y?"}',
        '{"1": "What is X?", "2": "What is Y?"}',
        '{"q1": "What is X?", "q2": "What is Y?"}',
        '[{"question": "What is X?"}, {"question": "What is Y?"}]',
        '{"query": "What is X?"}\n{"query": "What is Y?"}',
        '["What is X?"]\n["What is Y?"]',
        '{"items": [{"text": "What is X?"}, {"text": "What is Y?"}]}',
        '[["What is X?"], ["What is Y?"]]',
    ],
)
def test_marks_are_no_content(reply: str) -> None:
    assert found(reply) == (XY, {})


@pytest.mark.parametrize(
    ("reply", "dropped"),
    [
        ("Sure! Here are two questions:\n\n1. What is X?\n2. What is Y?", {PREAMBLE: 1}),
        ("Sure!\nWhat is X?\nWhat is Y?", {PREAMBLE: 1}),
        ("Here are two questions a user might ask.\nWhat is X?\nWhat is Y?", {PREAMBLE: 1}),
        ("Okay, the reader wants letters.\nWhat is X?\nWhat is Y?", {PREAMBLE: 1}),
        ("X and Y are both letters.\nWhat is X?\nWhat is Y?", {PREAMBLE: 1}),
        ("Questions:\nWhat is X?\nWhat is Y?", {PREAMBLE: 1}),
        ("**Questions:**\n\n- What is X?\n- What is Y?", {PREAMBLE: 1}),
        ("## Generated queries\n\nWhat is X?\nWhat is Y?", {PREAMBLE: 1}),
        ("Hier sind zwei Fragen:\n1. What is X?\n2. What is Y?", {PREAMBLE: 1}),
        ("以下是两个问题：\nWhat is X?\nWhat is Y?", {PREAMBLE: 1}),
        ("Sure, here you go\n1. What is X?\n2. What is Y?", {PREAMBLE: 1}),
        ("Here are the questions: 1. What is X? 2. What is Y?", {PREAMBLE: 1}),
        ("Here is one: What is X?\nWhat is Y?", {PREAMBLE: 1}),
        ("Let me read it.\nIt is about letters.\n1. What is X?\n2. What is Y?", {PREAMBLE: 2}),
        ("1. What is X?\n2. What is Y?\n\nThese questions cover both letters.", {REMARK: 1}),
        ("1. What is X?\n2. What is Y?\nWould you like more of them?", {REMARK: 1}),
        ("What is X?\nWhat is Y?\n\nLet me know if you need more!", {REMARK: 1}),
        ("What is X?\nWhat is Y?\nNote: both are about letters.\nI hope this helps!", {REMARK: 2}),
        ("What is X?\nWhat is Y?\nThey ask for one letter each.", {REMARK: 1}),
        ("1. What is X?\n   - asks for a letter\n2. What is Y?\n   - asks for another", {REMARK: 2}),
        ("1. What is X?\nThis asks for a letter.\n2. What is Y?", {REMARK: 1}),
        ("Easy:\n1. What is X?\nHard:\n2. What is Y?", {PREAMBLE: 1, REMARK: 1}),
        ("Easy:\nWhat is X?\nHard:\nWhat is Y?", {PREAMBLE: 1, REMARK: 1}),
        ("1. What is X?\nAnswer: a letter\n2. What is Y?\nAnswer: a letter", {ANSWER: 2}),
        ("Q: What is X?\nA: a letter\nQ: What is Y?\nA: a letter", {ANSWER: 2}),
        ("Q1: What is X?\nA1: a letter\nQ2: What is Y?\nA2: a letter", {ANSWER: 2}),
        ("1. What is X? (Answer: a letter)\n2. What is Y? Answer: a letter", {ANSWER: 2}),
        ("1. What is X?\nA) a letter\nB) a word\n2. What is Y?\nA) a letter\nB) a word", {REMARK: 4}),
        ("<think>The text has 2 letters.\n1. Which?</think>\nWhat is X?\nWhat is Y?", {REASONING: 1}),
        ("The text has 2 letters.\nWhich?\n</think>\n\nWhat is X?\nWhat is Y?", {REASONING: 1}),
        (
            "<|channel|>analysis<|message|>Two.<|end|><|channel|>final<|message|>What is X?\nWhat is Y?",
            {REASONING: 1},
        ),
        ("1. What is X?\n```python\nx = 1\n```\n2. What is Y?", {CODE: 1}),
        ("Here is the list:\n```\nWhat is X?\nWhat is Y?\n```\nHope this helps!", {PREAMBLE: 1, REMARK: 1}),
        ('Here you go:\n["What is X?", "What is Y?"]\nEnjoy.', {PREAMBLE: 1, REMARK: 1}),
        ('Here:\n```json\n["What is X?", "What is Y?"]\n```', {PREAMBLE: 1}),
        ('[{"question": "What is X?", "answer": "a"}, {"question": "What is Y?", "answer": "b"}]', {FIELD: 2}),
        ('{"questions": ["What is X?", "What is Y?"], "language": "en"}', {FIELD: 1}),
        ('["What is X?", "What is Y?", "What is', {CUT: 1}),
        ('{"queries": [{"query": "What is X?"}, {"query": "What is Y?"}, {"que', {CUT: 1}),
        ("What is X?\nWhat is Y?\nwhat IS  x?", {REPEATED: 1}),
        ("What is X?\nWhat is Y?\nWhat is Z?\nWhat is W?", {BEYOND: 2}),
    ],
)
def test_what_is_no_query_is_left_out_and_counted(reply: str, dropped: dict[str, int]) -> None:
    assert found(reply) == (XY, dropped)


@pytest.mark.parametrize(
    ("reply", "kept", "dropped"),
    [
        ("", [], {EMPTY: 1}),
        (" \n---\n", [], {EMPTY: 1}),
        ("[]", [], {EMPTY: 1}),
        ("<think>I should write two questions.", [], {REASONING: 1}),
        ("I'm sorry, but I can't help with that.", [], {REFUSAL: 1}),
        ("I cannot generate any questions from it.", [], {REFUSAL: 1}),
        ("As an AI language model, I have no views.", [], {REFUSAL: 1}),
        ("Here are two questions:", [], {PREAMBLE: 1}),
        ('{"query": "What is X?", "why": "bec', ["What is X?"], {CUT: 1}),
        ("What is X?\n" + "word " * 100, ["What is X?"], {LONG: 1}),
        ("Name a letter.\nWhat is X?\nWhat is Y?", ["Name a letter.", "What is X?"], {BEYOND: 1}),
        ("What is X?\nWhat is Y?\nI have no letter.", XY, {BEYOND: 1}),
        # Keyword queries have no question mark to be known by.
        ("letter x\nletter y", ["letter x", "letter y"], {}),
        ("Keywords: letter x\nKeywords: letter y", ["letter x", "letter y"], {}),
        ("1. letter x\n2. letter y", ["letter x", "letter y"], {}),
        ("letter x\n2. letter y", ["letter x", "letter y"], {}),
        ('1. letter "x" and "y"', ['letter "x" and "y"'], {}),
        ('"x" or "y"', ['"x" or "y"'], {}),
        ('"What is X?', ["What is X?"], {}),
        # Numbers, signs and names that are words of the query.
        ("2. Bundesliga Tabelle", ["2. Bundesliga Tabelle"], {}),
        ("24 - staffel 1 stream", ["24 - staffel 1 stream"], {}),
        ("- 3. Liga Tabelle\n- 2. Liga Tabelle", ["3. Liga Tabelle", "2. Liga Tabelle"], {}),
        ("1.5 liter engine\n2.5 liter engine", ["1.5 liter engine", "2.5 liter engine"], {}),
        ("3 ways to cook rice", ["3 ways to cook rice"], {}),
        ("A. Lincoln birthplace", ["A. Lincoln birthplace"], {}),
        ("c) parenthesis in c", ["c) parenthesis in c"], {}),
        ("Windows 11: how to stop updates?", ["Windows 11: how to stop updates?"], {}),
        ("2:1 aspect ratio\n16:9 aspect ratio", ["2:1 aspect ratio", "16:9 aspect ratio"], {}),
        ("--force flag of git push", ["--force flag of git push"], {}),
        ("*args and **kwargs in Python\n2**3 and 4**5", ["*args and **kwargs in Python", "2**3 and 4**5"], {}),
        ("__init__ of a class", ["__init__ of a class"], {}),
        ("[error] in a log", ["[error] in a log"], {}),
        ("why is {{ name }} empty?", ["why is {{ name }} empty?"], {}),
        ("from version 1. to 2. of Rails", ["from version 1. to 2. of Rails"], {}),
        ("What's a 'word'?", ["What's a 'word'?"], {}),
        ("here comes the sun lyrics", ["here comes the sun lyrics"], {}),
        ("I can't log in to my account", ["I can't log in to my account"], {}),
        ("ok google setup\nsure trak review", ["ok google setup", "sure trak review"], {}),
        ("Was ist X?\nQu'est-ce que Y ?", ["Was ist X?", "Qu'est-ce que Y ?"], {}),
        ("X是什么？\nYは何ですか？", ["X是什么？", "Yは何ですか？"], {}),
    ],
)
def test_by_hand(reply: str, kept: list[str], dropped: dict[str, int]) -> None:
    assert found(reply) == (kept, dropped)


def test_what_the_token_limit_cut_is_no_query() -> None:
    assert found("1. What is X?\n2. What is", cut=True) == (["What is X?"], {CUT: 1})
    assert found("1. What is X?\n2. What is Y?", cut=True) == (XY, {})
    assert found("1. What is X?\n2. What is") == (["What is X?", "What is"], {})


def test_a_line_of_the_document_is_no_query() -> None:
    document = "FAQ\n\n## What is *X*?\n\nA letter.\n1. How is Y written\n- What is Z?"
    reply = "What is X?\nhow is  y written?\nWhat is Z?\nWhat is a letter?"
    assert found(reply, 4, document) == (["What is a letter?"], {COPIED: 3})


@pytest.mark.parametrize(
    "query",
    [
        "What does the document say about X?",
        "What is the main topic of the text?",
        "According to the passage, what is X?",
        "What is X based on the article?",
        "What does the text above describe?",
        "What is this passage about?",
        "What does this document do?",
        "Which letters are mentioned in the text?",
        "What does the author suggest about X?",
        "What did this study find?",
        "What does the following section explain?",
        "Which letter is described above?",
        "What is explained in the excerpt?",
        "Which letters does the given text list?",
        "Was ist X laut Text?",
        "Was wird in diesem Abschnitt erklärt?",
        "Was steht im Text über X?",
        "De quoi parle cet article ?",
        "Que dit le texte sur X ?",
        "¿Qué es X según el texto?",
        "Di cosa parla questo articolo?",
        "O que diz este documento?",
        "Waar gaat deze tekst over?",
        "О чём говорится в этом тексте?",
        "本文主要讲了什么？",
        "この文章は何についてですか？",
    ],
)
def test_a_query_that_points_at_its_document_is_dropped(query: str) -> None:
    assert found(query, 1) == ([], {REFERRING: 1})


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("How do I upload the document to a bucket?", "A document is uploaded with PutObject."),
        ("How is the text in a div centred?", "text-align: center moves Text."),
        ("Wie wird im Text gesucht?", "Suchen Sie im Text mit Strg+F."),
        ("What is a document database?", "It keeps JSON."),
        ("How do I open a text file?", "Use open()."),
        ("Who is the author of Dune?", "Frank Herbert wrote it."),
        ("How to go to the previous page in vi?", "Press Ctrl+B."),
        ("What permissions does the page need?", "It needs two."),
        ("annotations that document an API", "OpenAPI has them."),
        ("Which text editors are free?", "Vim is."),
        ("What is context in React?", "It passes data down."),
    ],
)
def test_a_query_about_documents_is_not(query: str, document: str) -> None:
    assert not speaks_of_its_document(query, document)


def test_the_word_of_the_document_is_asked_for() -> None:
    query = "How do I upload the document to a bucket?"
    assert not speaks_of_its_document(query, "Documents are uploaded with PutObject.")
    assert speaks_of_its_document(query, "Files are uploaded with PutObject.")


WORDS = st.lists(
    st.sampled_from(["what", "is", "x", "the", "3", "e.g.", "*args", "café", "是"]), min_size=2, max_size=6
)
MARKS = st.sampled_from(
    ["{}", "{n}. {}", "{n}) {}", "Q{n}: {}", "- {}", "* **{}**", '{n}. "{}"', "({n}) {}", "### Question {n}\n{}"]
)


@given(st.lists(WORDS, min_size=1, max_size=5), MARKS, st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_list_of_questions_comes_back(rows: list[list[str]], mark: str, preamble: bool) -> None:
    questions = [f"why {' '.join(words)}?" for words in rows]
    reply = "".join(
        f"{mark.replace('{n}', str(n)).replace('{}', text)}\n" for n, text in enumerate(questions, start=1)
    )
    kept, dropped = found(("Here are the questions:\n\n" if preamble else "") + reply, 9, "")
    assert kept == list(dict.fromkeys(questions))
    assert dropped[PREAMBLE] == preamble
    as_json, none = found(json.dumps({"queries": questions}, ensure_ascii=False), 9, "")
    assert as_json == kept
    assert none[PREAMBLE] == 0


@given(st.text(max_size=200), st.integers(1, 4), st.text(max_size=50), st.booleans())
@settings(max_examples=500, deadline=None)
def test_anything_a_model_says_is_read(reply: str, wanted: int, document: str, cut: bool) -> None:
    kept, dropped, short = queries_of(reply, wanted, document, cut=cut)
    assert len(kept) + short == wanted
    assert len(set(map(query_key, kept))) == len(kept)
    assert all(query == " ".join(query.split()) and any(map(str.isalnum, query)) for query in kept)
    assert all(reason for reason, _ in dropped)


@given(
    st.lists(
        st.sampled_from(
            ['"', "[", "{", "]", "}", ":", ",", "```", "\n", "<think>", "</think>", "1.", "Q:", "x?", "**", "- "]
        ),
        max_size=14,
    )
)
@settings(max_examples=500, deadline=None)
def test_any_broken_reply_is_read(parts: list[str]) -> None:
    kept, _, short = queries_of(" ".join(parts), 3, "")
    assert len(kept) + short == 3
