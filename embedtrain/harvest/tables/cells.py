"""What a cell of a table says: texts or a list of them, a grade, an entailment, a score, a moment."""

import datetime
import json
import re
from typing import Any, NamedTuple

from embedtrain import readers
from embedtrain.errors import EmbedtrainError

# What the parts of a document are called where it stands in a cell as an object.
_TEXT = ("text", "contents", "body")
_ID = ("docid", "doc_id", "document_id", "_id", "id")

# Seconds of the year 10,000: what is larger was counted in milliseconds.
_LATEST = 253_402_300_800
_DIGITS = re.compile(r"-?\d+(\.\d+)?$")
# Numbers that are read as a year or a day: 1970 and 20200131 are no seconds to anybody.
_YEAR = re.compile(r"(19|20)\d\d$")
_DAY = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$")

_ENTAILMENT = {
    "entailment": "entailment",
    "neutral": "neutral",
    "contradiction": "contradiction",
    # SNLI's order (Bowman et al. 2015, as it is published in tables).
    "0": "entailment",
    "1": "neutral",
    "2": "contradiction",
    # Annotators who could not agree.
    "-": "none",
    "-1": "none",
    "": "none",
}


class Text(NamedTuple):
    """A document as a cell gives it; its id may be empty."""

    title: str
    text: str
    id: str = ""


def entries(value: Any, *, listed: bool) -> list[Any]:
    """The entries of a cell: those of a list, nothing of null, else the value itself.

    Where the column's name promises a list (`listed`), a string may be a list written as JSON.
    """
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return list(value)
    if listed and isinstance(value, str):
        if not value.strip():
            return []
        if value.lstrip().startswith("["):
            try:
                found = json.loads(value)
            except ValueError:
                found = None
            if isinstance(found, list):
                return found
    return [value]


def document(value: Any, where: str) -> Text:
    """A document: a text, or an object with a text and perhaps a title and an id. EmbedtrainError for anything else."""
    if not isinstance(value, dict):
        return Text("", readers.as_text(value, where))
    name = next((name for name in _TEXT if name in value), None)
    if name is None:
        raise EmbedtrainError(f"{where} is an object without a text; its fields are: {', '.join(value) or 'none'}")
    text = readers.as_text(value[name], f"{where} field {name}")
    title = readers.as_text(value.get("title"), f"{where} field title")
    return Text(title, text, _own_id(value, where))


def document_id(value: Any, where: str) -> str:
    """The id of a document where cells hold ids: itself, or that of an object."""
    return (_own_id(value, where) if isinstance(value, dict) else "") or readers.as_id(value, where)


def _own_id(value: dict[str, Any], where: str) -> str:
    name = next((name for name in _ID if value.get(name) not in (None, "")), None)
    return "" if name is None else readers.as_id(value[name], f"{where} field {name}")


def number(value: Any, where: str, what: str) -> float:
    """A finite number, written out or not; EmbedtrainError says `what` is needed."""
    found = readers.as_number(value)
    if found is None:
        raise EmbedtrainError(f"{where} is {value!r}; {what} is needed")
    return found


def entailment(value: Any, where: str) -> str:
    """entailment, neutral, contradiction or none, of a word or of 0, 1, 2 in SNLI's order."""
    if value is None:
        said = ""
    else:
        said = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    found = _ENTAILMENT.get(said.strip().casefold())
    if found is None:
        raise EmbedtrainError(
            f"{where} is {value!r}; entailment, neutral and contradiction, or 0, 1 and 2 in this order, are needed"
        )
    return found


def moment(value: Any, where: str) -> float | None:
    """Seconds since 1970 in UTC of a date, a time or a number of seconds; None where there is none.

    A date without a time is its midnight, a time without a zone is UTC. Raises EmbedtrainError for anything else, for
    numbers that look like a year or a day, and for milliseconds.
    """
    if value is None or value == "":
        return None
    if isinstance(value, datetime.datetime):
        return _seconds(value)
    if isinstance(value, datetime.date):
        return _seconds(datetime.datetime(value.year, value.month, value.day))
    text = str(value).strip()
    if _YEAR.match(text) or _DAY.match(text):
        raise EmbedtrainError(f"{where} is {value!r}, a date or a number of seconds; write dates as 2020-01-31")
    if (not isinstance(value, bool) and isinstance(value, int | float)) or _DIGITS.match(text):
        seconds = number(value, where, "a date as 2020-01-31 or a number of seconds since 1970")
        if abs(seconds) >= _LATEST:
            raise EmbedtrainError(f"{where} is {value!r}, which is beyond the year 9999; give seconds since 1970")
        return seconds
    try:
        return _seconds(datetime.datetime.fromisoformat(text))
    except ValueError:
        raise EmbedtrainError(
            f"{where} is {value!r}; a date as 2020-01-31 or 2020-01-31T12:00:00Z, or seconds since 1970, is needed"
        ) from None


def _seconds(time: datetime.datetime) -> float:
    return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
