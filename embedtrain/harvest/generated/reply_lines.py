"""The queries in a reply of lines: numbers, letters, bullets, labels, bold marks and quotes come off.

Where lines are marked as items ("1.", "Q2:", "-"), those are the queries, and what stands before and behind them
is preamble and remark. Where none is, all are queries but an opening line that ends in ":" and the like.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

PREAMBLE = "preamble in a reply"
REMARK = "remark in a reply"
ANSWER = "answer in a reply"


class Dropped(NamedTuple):
    """Something in a reply that is no query, and why."""

    reason: str
    text: str


class Line(NamedTuple):
    """A line without its marks. `mark`: what kind it had, item (a number, "Q1:"), letter, bullet, heading, answer.

    `number` is where it stands in its list; `plain` and `under` are text and mark, should the number be none of a
    list.
    """

    text: str
    mark: str = ""
    number: int | None = None
    plain: str = ""
    under: str = ""


_BOLD = re.compile(r"(?<!\w)\*\*(?=\S)(.+?)(?<=\S)\*\*(?!\w)")
_UNDERLINED = re.compile(r"__(\S.*\s.*\S)__")  # the whole line: __init__ is a name
_HEADING = re.compile(r"#{1,6}\s+")
_BULLET = re.compile(r"(?:[-*+–—→>]\s+|[•·‣○●▪◦]\s*)+(?:\[[ xX]?\]\s+)?")
_NUMBER = re.compile(
    r"(?:#?\(?(\d{1,2})(?:[.)](?!\d)|[、．])|\[(\d{1,2})\]|#?(\d{1,2})(?::\s|\s+[-–—]\s|\ufe0f?\u20e3)|([①-⑳])|"
    r"([一二三四五六七八九十])、)\s*"
)
_LETTER = re.compile(r"\(?([a-h])\)\s+|([a-h])\.\s+|\((i{1,3}|iv|vi{0,3}|ix|x)\)\s+", re.IGNORECASE)
_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x")
_COUNTED = {sign: n for signs in ("一二三四五六七八九十", "abcdefgh") for n, sign in enumerate(signs, start=1)}
_COUNTED |= {sign: n for n, sign in enumerate(_ROMAN, start=1)}
_NAMES = (
    r"q|(?:search |user |rephrased |generated )?(?:query|queries|questions?)|keywords?|paraphrase|rephrasing|"
    r"reformulation|variant|variation|alternative|option|frage|anfrage|suchanfrage|consulta|pregunta|pergunta|"
    r"domanda|"
    r"requête|vraag|fråga|pytanie|вопрос|запрос|问题|問題|查询|質問|질문"
)
_LABEL = re.compile(
    rf"(?:{_NAMES})\s*(?:(?:no\.?|nr\.?|#)?\s*(\d{{1,2}})\s*(?:[:.)\-–—]+(?:\s+|$)|：\s*|$)|[:：]\s*)",
    re.IGNORECASE,
)
_ANSWER = re.compile(
    r"(?:answer|antwort|réponse|respuesta|resposta|risposta|ответ|答案|回答|答)\s*\d*\s*[:：]", re.IGNORECASE
)
_SHORT_ANSWER = re.compile(r"A\d{0,2}[:.]\s")  # beside "Q:"
_ANSWER_BEHIND = re.compile(r"\s+(?:\((?:answer|antwort)\b.*\)|answer: .*|A\d{0,2}: .*)$", re.IGNORECASE)
_QUOTES = ('""', "''", "“”", "„“", "‘’", "«»", "「」", "『』", "``", "**")

_ASKS = ("?", "？", "؟")
_COLONS = (":", "：")
_OPENING = re.compile(
    r"(?:(?:sure|certainly|of course|absolutely|okay|ok|great|got it|alright|gerne|natürlich|klar|bien sûr|claro|"
    r"por supuesto|certo|好的|当然)\b[^?？]*[,.!:，。！：]|(?:sure|okay|certainly|好的|当然)$|"
    r"here(?:'s| is| are)\b[^?？]*\b(?:quer(?:y|ies)|questions?|keywords?|paraphrases?|rephrasings?|versions?)\b)",
    re.IGNORECASE,
)
# "Here is a question: What is X?", all in one line.
_OPENING_BEFORE = re.compile(
    r"(?:sure|certainly|of course|okay|ok|here(?:'s| is| are)|hier (?:sind|ist)|voici|"
    r"aquí)\b[^:：?？]{0,120}[:：]\s*(?=\S)",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"(?:\(?note\b|please (?:let|note)|let me know|i hope\b|hope (?:this|these)|feel free|would you like (?:me|"
    r"more)|"
    r"do you (?:want|need) (?:me|more)|is there anything|if you (?:need|want|would like|have any) (?:more|any|me|"
    r"fur|other)|"
    r"(?:these|both|all) (?:\w+ ){0,2}(?:questions?|queries)\b|each (?:question|query)\b|(?:explanation|"
    r"rationale)\b|"
    r"ich hoffe|lassen sie (?:es )?mich|diese (?:beiden )?fragen|n'hésitez|espero que|estas preguntas|希望)",
    re.IGNORECASE,
)
_REQUEST = re.compile(
    r"(?:what|which|who|whom|whose|when|where|why|how|name|list|explain|describe|define|compare|find|give|show|"
    r"tell|i)\b",
    re.IGNORECASE,
)
_INLINE = re.compile(r"(?:(?<=\s)|^)(?:Q|Question )?(\d{1,2})[.):](?=\s)", re.IGNORECASE)


def unquoted(text: str) -> str:
    """A text without quotes, code marks or emphasis around the whole of it."""
    bare = text.strip().removesuffix(",").rstrip()
    for marks in _QUOTES:
        left, right = marks[0], marks[1]
        inner = bare[1:-1]
        if len(bare) > 2 and bare[0] == left and bare[-1] == right and left not in inner and right not in inner:
            return inner.strip()
    return text.strip()


def marked_line(raw: str) -> Line:
    """A line without heading mark, bullet, number and label, in that order, and what it had of them."""
    text = unquoted(_BOLD.sub(r"\1", raw).strip().removeprefix("**").removesuffix("**"))
    if match := _UNDERLINED.fullmatch(text):
        text = match[1]
    mark, number = "", None
    if match := _HEADING.match(text):
        mark, text = "heading", text[match.end() :]
    if match := _BULLET.match(text):
        mark, text = "bullet", text[match.end() :]
    plain, under = (text := unquoted(text)), mark
    if match := _NUMBER.match(text) or _LETTER.match(text):
        found = next(group for group in match.groups() if group).lower()
        number = int(found) if found.isdecimal() else _COUNTED.get(found) or ord(found) - ord("①") + 1
        mark, text = "letter" if found[0] in "abcdefghivx" else "item", unquoted(text[match.end() :])
    label = _LABEL.match(text)
    if label and (label[1] or label.end() < len(text)):  # "Questions:" alone says what follows
        mark, text = "item", unquoted(text[label.end() :])
    elif number is None and _ANSWER.match(text):
        mark = "answer"
    return Line(text, mark, number, plain, under)


def numbered(lines: list[Line]) -> list[Line]:
    """Lines whose numbers count up from the first; other numbers ("2. Bundesliga") go back into their text."""
    for mark in ("item", "letter"):
        places = [place for place, line in enumerate(lines) if line.number is not None and line.mark == mark]
        counts = [lines[place].number or 0 for place in places]
        if not counts or (
            counts[0] <= 1 and (mark == "item" or counts[1:2] == [2] or ")" in lines[places[0]].plain[:4])
        ):
            continue
        if counts[1:2] == [counts[0] + 1] or (counts[0] == 2 and places[0] == 1):  # the prompt ended in "1."
            continue
        lines = [Line(line.plain, line.under) if place in places else line for place, line in enumerate(lines)]
    return lines


def _parted(line: str) -> list[str]:
    """A line that holds a whole list ("1. ... 2. ...") as one line an item."""
    starts: list[int] = []
    for match in _INLINE.finditer(line):
        before = line[: match.start()].rstrip()
        if int(match[1]) == len(starts) + 1 and (not before or before[-1] in ".?!:;,？。：\"'”*"):
            starts.append(match.start())
    if len(starts) < 2:
        return [line]
    return [line[start:end] for start, end in zip([0, *starts], [*starts, len(line)], strict=True)]


def lines_of(text: str) -> list[Line]:
    """The lines of a text that hold a letter or a digit."""
    parts = [part for line in text.splitlines() for part in _parted(line)]
    return numbered([marked_line(part) for part in parts if any(map(str.isalnum, part))])


def listed(text: str, dropped: list[Dropped]) -> list[str]:
    """The queries of a reply in lines, in their order; what is none goes into `dropped`."""
    lines = lines_of(text)
    if any(line.mark == "item" and line.number is None for line in lines):
        lines = [line._replace(mark="answer") if _SHORT_ANSWER.match(line.text) else line for line in lines]
    for mark in ("item", "letter", "bullet"):
        if any(line.mark == mark for line in lines):
            return _marked(lines, mark, dropped)
    return _unmarked(lines, dropped)


def _marked(lines: Sequence[Line], mark: str, dropped: list[Dropped]) -> list[str]:
    """Lines with a mark, and those without one that ask, or that stand under a mark on its own ("Question 1:")."""
    items: list[str] = []
    first = next(place for place, line in enumerate(lines) if line.mark == mark)
    empty = False
    for place, line in enumerate(lines):
        if line.mark == "answer":
            dropped.append(Dropped(ANSWER, line.text))
        elif line.mark == mark:
            empty = not line.text
            if line.text:
                items.append(_without_answer(line.text, dropped))
        elif _is_item(line, expected=empty or (lines[first].number == 2 and place == first - 1)):
            items.append(_without_answer(line.text, dropped))
            empty = False
        else:
            dropped.append(Dropped(PREAMBLE if place < first else REMARK, line.text))
    return items


def _is_item(line: Line, *, expected: bool) -> bool:
    if _CLOSING.match(line.text) or _OPENING.match(line.text) or line.text.endswith(_COLONS):
        return False
    return expected or (line.mark in ("", "heading") and line.text.endswith(_ASKS))


def _unmarked(lines: Sequence[Line], dropped: list[Dropped]) -> list[str]:
    items: list[str] = []
    last = len(lines)
    while last and (
        _CLOSING.match(lines[last - 1].text) or (last == len(lines) and _stands_out(lines, last - 1, 2))
    ):
        last -= 1
    for place, line in enumerate(lines):
        text = line.text
        if place == 0 and (match := _OPENING_BEFORE.match(text)):
            dropped.append(Dropped(PREAMBLE, match[0].strip()))
            text = unquoted(text[match.end() :])
        announces = text.endswith(_COLONS) or (line.mark == "heading" and not text.endswith(_ASKS))
        if line.mark == "answer":
            dropped.append(Dropped(ANSWER, text))
        elif place >= last:
            dropped.append(Dropped(REMARK, text))
        elif place == 0 and (announces or _OPENING.match(text) or _stands_out(lines, 0, 1)):
            dropped.append(Dropped(PREAMBLE, text))
        elif announces:
            dropped.append(Dropped(REMARK, text))
        else:
            items.append(_without_answer(text, dropped))
    return items


def _stands_out(lines: Sequence[Line], place: int, others: int) -> bool:
    """Whether a line is a statement where all others, and so many of them, are questions."""
    if _REQUEST.match(lines[place].text):
        return False
    rest = [line.text.endswith(_ASKS) for other, line in enumerate(lines) if other != place]
    return lines[place].text.endswith((".", "!", "。")) and len(rest) >= others and all(rest)


def _without_answer(text: str, dropped: list[Dropped]) -> str:
    match = _ANSWER_BEHIND.search(text)
    if match is None:
        return text
    dropped.append(Dropped(ANSWER, match[0].strip()))
    return unquoted(text[: match.start()])
