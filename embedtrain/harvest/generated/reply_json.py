"""The queries in a reply of JSON, alone or in a code fence, whole or cut off."""

import json
import re
from collections.abc import Iterator
from typing import Any

from embedtrain.harvest.generated.reply_lines import (
    PREAMBLE,
    REMARK,
    Dropped,
    lines_of,
    listed,
    marked_line,
    numbered,
)

CODE = "code in a reply"
FIELD = "other field in a reply"
CUT = "generated query cut off at the token limit"

_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_START = re.compile(r"""^[ \t]*(?=[\[{]\s*["'\[{])""", re.MULTILINE)
_QUERY_FIELD = re.compile(
    r"quer|quest|search|keyword|phras|reformul|frage|pregunta|pergunta|domanda|^q\d*$|^text$", re.IGNORECASE
)
_FIELD = re.compile(r'"([^"\\]+)"\s*:\s*("(?:[^"\\]|\\.)*")')
_SINGLE = re.compile(r"'((?:[^'\\\n]|\\.)*)'")
_BETWEEN = re.compile(r"[\s,]*")


def structured(text: str, dropped: list[Dropped]) -> list[str] | None:
    """The queries of a reply that is JSON or stands in a code fence, in their order; None where it is neither."""
    inside = "\n".join(match[1] for match in _FENCE.finditer(text))
    if inside.strip():
        outside = _FENCE.sub("\n", text)
        if any(line.mark in ("item", "bullet") for line in lines_of(outside)):
            dropped.append(Dropped(CODE, inside.strip()))
            return listed(outside, dropped)
        _drop_lines(text[: text.index("```")], PREAMBLE, dropped)
        _drop_lines(_FENCE.sub("\n", text[text.index("```") :]), REMARK, dropped)
        found = structured(inside, dropped)
        return listed(inside, dropped) if found is None else found
    start = _START.search(text)
    if start is None:
        return None
    left_out: list[Dropped] = []
    values, end = _decoded(text, start.end(), left_out)
    strings = [string for value in values for string in _strings(value, left_out)]
    if not strings:
        return None
    _drop_lines(text[: start.start()], PREAMBLE, dropped)
    dropped.extend(left_out)
    _drop_lines(text[end:], REMARK, dropped)
    return [line.text for line in numbered([marked_line(" ".join(string.split())) for string in strings])]


def _drop_lines(text: str, reason: str, dropped: list[Dropped]) -> None:
    dropped.extend(Dropped(reason, line.strip()) for line in text.splitlines() if any(map(str.isalnum, line)))


def _skip(text: str, place: int) -> int:
    match = _BETWEEN.match(text, place)
    return match.end() if match else place


def _decoded(text: str, place: int, dropped: list[Dropped]) -> tuple[list[Any], int]:
    """The values from a place on, one behind the other, and where they end; of a broken one what is whole."""
    values: list[Any] = []
    decoder = json.JSONDecoder(strict=False)
    while text[place : place + 1] in ("[", "{"):
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            found, end = _mended(text, place, decoder)
            if found:
                line_end = text.find("\n\n", end)
                stop = len(text) if line_end < 0 else line_end
                rest = text[end:stop].strip(" \t\n,]}")
                dropped.extend([Dropped(CUT, rest)] if rest else [])
                return values + found, stop
            return values, place
        values.append(value)
        place = _skip(text, end)
    return values, place


def _mended(text: str, place: int, decoder: json.JSONDecoder) -> tuple[list[Any], int]:
    """What is whole of a list in JSON that was cut off, of a list in single quotes, or of an object."""
    found: list[Any] = []
    end = text.find("[", place) + 1
    while end:
        here = _skip(text, end)
        try:
            value, end = decoder.raw_decode(text, here)
        except (ValueError, RecursionError):
            match = _SINGLE.match(text, here)
            if match is None:
                break
            value, end = match[1].replace("\\'", "'"), match.end()
        found.append(value)
    if found:
        return found, end
    matches = [match for match in _FIELD.finditer(text, place) if _QUERY_FIELD.search(match[1])]
    return [decoder.decode(match[2]) for match in matches], matches[-1].end() if matches else place


def _strings(value: Any, dropped: list[Dropped]) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, dropped)
    elif isinstance(value, dict):
        chosen = [name for name in value if _QUERY_FIELD.search(name)]
        chosen = chosen or [name for name in value if name.isdecimal() or isinstance(value[name], list)]
        for name, inner in value.items():
            if name in chosen:
                yield from _strings(inner, dropped)
            else:
                dropped.append(Dropped(FIELD, f"{name}: {inner}"))
