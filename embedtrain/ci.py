"""An evaluation and its requirements as what CI systems show: JUnit XML, and Markdown for a page or a comment."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embedtrain import atomic
from embedtrain.requirements import Outcome


def write_junit(path: Path, outcomes: Sequence[Outcome]) -> None:
    """A test suite with a test case a requirement; one that is not met is a failure with its value."""
    failed = [outcome for outcome in outcomes if not outcome.met]
    counts = {"tests": str(len(outcomes)), "failures": str(len(failed)), "errors": "0"}
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {"name": "embedtrain eval", **counts})
    for outcome in outcomes:
        case = ET.SubElement(suite, "testcase", {"classname": "embedtrain.eval", "name": outcome.text})
        if not outcome.met:
            ET.SubElement(case, "failure", {"message": str(outcome)}).text = str(outcome)
        ET.SubElement(case, "system-out").text = f"{outcome.what}: {outcome.value:.6g}"
    ET.indent(suites)
    text = ET.tostring(suites, encoding="unicode", xml_declaration=False)
    atomic.write_text(path, f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n')


def write_markdown(path: Path, summary: Mapping[str, Any], outcomes: Sequence[Outcome]) -> None:
    """The tables of an evaluation, its verdicts, and the requirements."""
    lines = [f"## embedtrain eval: {summary['queries']:,} queries of {summary['split']}", ""]
    if outcomes:
        met = sum(outcome.met for outcome in outcomes)
        lines += [f"**{met} of {len(outcomes)} requirements met**", ""]
        cells = [
            ["met" if outcome.met else "**not met**", f"`{outcome.text}`", outcome.what, f"{outcome.value:.4g}"]
            for outcome in outcomes
        ]
        lines += [*_table(["", "requirement", "what", "value"], cells), ""]
    lines += [*_table(summary["table"]["columns"], summary["table"]["rows"]), ""]
    for further in summary["tables"]:
        lines += [f"### {further['title']}", "", *_table(further["columns"], further["rows"]), ""]
    lines += [f"- {note}" for note in summary["notes"]]
    atomic.write_text(path, "\n".join(lines) + "\n")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return [line(columns), "|" + "---|" * len(columns), *map(line, rows)]
