"""Topics: what people wanted to know, in TREC's SGML-like form, in XML, or as lines of an id and a text."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest.trec.markup import in_one_line, inside
from embedtrain.packed import open_packed, torn

AUTO = "auto"
FIELDS = ("title", "description", "narrative", "question", "query")
# Where a topic has no title its query is one (TREC-COVID), or its own text (TREC Clinical Trials 2021).
_SHORT = ("title", "query", "text")

# Fields of the SGML-like form with what TREC 1 to 8 print before their text; other tags are markup of a text.
_LABELS = {
    "num": "Number",
    "title": "Topic",
    "desc": "Description",
    "narr": "Narrative",
    "dom": "Domain",
    "smry": "Summary",
    "con": "Concept(s)",
    "fac": "Factor(s)",
    "def": "Definition(s)",
    "head": "",
    "query": "",
    "question": "",
}
_NAMES = {"num": "number", "desc": "description", "narr": "narrative", "topicnumber": "number", "id": "number"}
_FIELD = re.compile(rf"<({'|'.join(_LABELS)})(?:\s[^<>]*)?>", re.IGNORECASE)
_NUMBERS = ("number", "num", "id", "qid")


class Topic(NamedTuple):
    """A topic: its id, the fields it has by name, and where it stands."""

    id: str
    fields: dict[str, str]
    where: str
    written: str = ""  # its number, where the id is another


def check(field: str) -> None:
    """Raise UsageError for what is no field of topics."""
    if field not in (AUTO, *FIELDS):
        raise UsageError(f"--topic-field {field}: {AUTO}, {', '.join(FIELDS)} are the fields")


def field_of(topic: Topic, wanted: str) -> str:
    """The name of the field that is the query; "" where the topic does not have it."""
    return next((name for name in (_SHORT if wanted == AUTO else (wanted,)) if topic.fields.get(name)), "")


def _add(fields: dict[str, str], tag: str, text: str) -> None:
    name = _NAMES.get(tag, tag)
    if text:  # a field that comes twice, as the aspects of a topic do, is one
        fields[name] = f"{fields[name]}\n{text}" if name in fields else text


def marked_up(path: Path, stray: list[str]) -> Iterator[Topic]:
    """Topics between <top> and </top>. Numbers lose their leading zeros: TREC's qrels write 51 for 051.

    `stray` as `markup.inside` has it. Raises EmbedtrainError for a topic without a number.
    """
    for element in inside(path, "top", stray):
        where = f"{path} line {element.line}"
        fields: dict[str, str] = {}
        parts = _FIELD.split(element.content)
        for tag, content in zip(parts[1::2], parts[2::2], strict=True):
            text, label = in_one_line(content), _LABELS[tag.lower()]
            if label and text.casefold().startswith(f"{label}:".casefold()):
                text = text[len(label) + 1 :].lstrip()
            _add(fields, tag.lower(), text)
        number = fields.pop("number", "")
        if not number:
            raise EmbedtrainError(f"{where} starts a <top> without a <num>; every topic needs its number")
        identifier = (number.lstrip("0") or "0") if number.isdigit() else number
        yield Topic(identifier, fields, where, number if number != identifier else "")


def _own(node: ET.Element) -> str:
    return " ".join("".join(node.itertext()).split())


def _local(node: ET.Element) -> str:
    return node.tag.rpartition("}")[2].lower()


def _topic(node: ET.Element, path: Path, count: int) -> Topic:
    fields: dict[str, str] = {}
    if (node.text or "").strip():  # words of its own: what is in it is markup
        _add(fields, "text", _own(node))
    else:
        for child in node:
            _add(fields, _local(child), _own(child))
    attributes = {name.lower(): value.strip() for name, value in node.attrib.items()}
    inner = fields.pop("number", "")
    number = next((attributes[name] for name in _NUMBERS if attributes.get(name)), inner)
    if not number:
        raise EmbedtrainError(
            f"topic {count} of {path} has no number, neither as attribute (number, id) nor as element; every topic "
            "needs its id"
        )
    return Topic(number, fields, f"{path} topic {number}")


def of_xml(path: Path) -> Iterator[Topic]:
    """Topics of an XML file, its <topic> elements. Raises EmbedtrainError with the line where it is no XML."""
    count = 0
    try:
        with open_packed(path, path.suffix) as (file, _):
            for _, node in ET.iterparse(file):
                if _local(node) == "topic":
                    count += 1
                    yield _topic(node, path, count)
                    node.clear()
    except ET.ParseError as error:
        line, column = error.position
        raise EmbedtrainError(f"{path} line {line} is not XML ({error.msg}, column {column}); mend it") from error
    except (EOFError, OSError) as error:
        if not (what := torn(error, path.suffix)):
            raise
        raise EmbedtrainError(f"{path} is not a whole {what} file; fetch or make it again") from error
