"""What a model must meet before it goes live, as a CI job writes it, and whether it does.

    requirement = [scope ":"] measure [quantity] comparator number
    scope       = SYSTEM | "vs" SYSTEM | "guard" [NAME]
    quantity    = "mean" | "low" | "high" | "difference" | "p"
    comparator  = ">=" | ">" | "<=" | "<"

Without a scope it is about the judged system: the last model, or the last recipe of several seeds. Without a quantity it is about the mean, and about the
difference in the scopes that compare: `vs` compares the judged system with another one, `guard` with the base on the
guard of that name, or on each. low and high are the ends of the 95 % interval. p is that of the sign-flip test, after
Holm against the base; a requirement on it is met by a model that is better, never by one that is worse.
"""

import dataclasses
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

from embedtrain import metrics, statistics
from embedtrain.errors import EmbedtrainError, UsageError, first_three
from embedtrain.guarding import SPEARMAN

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}
MEAN, LOW, HIGH, DIFFERENCE, P = "mean", "low", "high", "difference", "p"
_QUANTITIES = (MEAN, LOW, HIGH, DIFFERENCE, P)
_MEASURE = re.compile(r"[A-Za-z][\w-]*(?:\([a-z]+=[a-z]+\))?@\d+|[A-Za-z]+")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")

RESAMPLES = 10_000


@dataclasses.dataclass(frozen=True)
class Requirement:
    """One requirement, read. `scope` is system, vs or guard; `name` whose, empty for the judged system or every guard."""

    text: str
    scope: str
    name: str
    measure: str
    quantity: str
    sign: str
    limit: float


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A requirement with what was measured of it."""

    text: str
    value: float
    met: bool
    what: str  # what the value is, in words

    def __str__(self) -> str:
        return f"{self.text} ({self.what}: {self.value:.4g})"


def parse(text: str) -> Requirement:
    """Read a requirement; UsageError says at which column it stops to be one."""
    colon = text.rfind(":")
    scope, name = _scope(text, colon)
    place = _blank(text, colon + 1)
    match = _MEASURE.match(text, place)
    if match is None:
        raise _error(text, place, "a measure is needed, as in nDCG@10>=0.7")
    measure = _measure(text, place, match[0])
    place = _blank(text, match.end())
    quantity = DIFFERENCE if scope != "system" else MEAN
    if word := re.compile("[A-Za-z]+").match(text, place):
        if word[0] not in _QUANTITIES:
            raise _error(text, place, f"{word[0]} is none of {', '.join(_QUANTITIES)}")
        if word[0] in (DIFFERENCE, P) and scope == "system":
            raise _error(text, place, f"{word[0]} compares two systems; write vs SYSTEM: before the measure")
        if word[0] == MEAN and scope == "vs":
            raise _error(text, place, "vs compares; write SYSTEM: before the measure for a mean of its own")
        if word[0] == P and measure != SPEARMAN and not metrics.parse(measure).quality:
            raise _error(text, place, f"more of {measure} is not better, so a p says nothing of it")
        if word[0] == P and scope == "guard":
            raise _error(text, place, "a guard has no p; low and high are the ends of its interval")
        quantity, place = word[0], _blank(text, word.end())
    sign = next((known for known in _COMPARE if text.startswith(known, place)), None)
    if sign is None:
        raise _error(text, place, f"one of {' '.join(_COMPARE)} is needed, as in nDCG@10>=0.7")
    place = _blank(text, place + len(sign))
    number = _NUMBER.match(text, place)
    if number is None:
        raise _error(text, place, "a number is needed, as in nDCG@10>=0.7")
    place = _blank(text, number.end())
    if place < len(text):
        raise _error(text, place, f"{text[place:]!r} is too much")
    return Requirement(text.strip(), scope, name, measure, quantity, sign, float(number[0]))


def _measure(text: str, place: int, found: str) -> str:
    if found == SPEARMAN:
        return found
    try:
        return str(metrics.parse(found))
    except UsageError as error:
        raise _error(text, place, str(error).removeprefix("--measure ")) from error


def _scope(text: str, colon: int) -> tuple[str, str]:
    if colon < 0:
        return "system", ""
    words = text[:colon].split(maxsplit=1)
    if not words:
        raise _error(text, colon, "a system, vs SYSTEM or guard is needed before the colon")
    if words[0] == "vs":
        if len(words) == 1:
            raise _error(text, colon, "a system is needed after vs, as in vs base: nDCG@10>=0")
        return "vs", words[1].strip()
    if words[0] == "guard":
        return "guard", words[1].strip() if len(words) > 1 else ""
    return "system", text[:colon].strip()


def _blank(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _error(text: str, place: int, what: str) -> UsageError:
    return UsageError(f"--require '{text}': at column {place + 1} {what}")


def check(
    requirements: Sequence[Requirement], measures: Sequence[str], *, guards: Mapping[str, str], compared: bool
) -> None:
    """UsageError, before anything is measured, for a requirement on what will not be.

    `guards` are their names, each with what it is measured by; `compared`: whether there is a model besides the base.
    """
    for one in requirements:
        if one.scope == "guard":
            if not guards:
                raise UsageError(f"--require '{one.text}': there is no guard; give --guard or --guard-sts")
            _named(one, guards)
            if one.quantity != MEAN and not compared:
                raise UsageError(
                    f"--require '{one.text}': a guard compares with the base; give the tuned --model too"
                )
        if one.scope != "guard" and one.measure not in measures:
            raise UsageError(
                f"--require '{one.text}': {one.measure} is not measured; {', '.join(measures)} are, and --measure adds to "
                "them (spelled the same)"
            )


def outcomes(requirements: Sequence[Requirement], evaluation: Path, summary: Mapping[str, Any]) -> list[Outcome]:
    """What an evaluation says of each; a requirement on every guard has an outcome for each of them.

    UsageError for a system or guard that is not there.
    """
    return [outcome for one in requirements for outcome in _outcomes(one, evaluation, summary)]


def _outcomes(one: Requirement, evaluation: Path, summary: Mapping[str, Any]) -> Iterator[Outcome]:
    judged = summary["judged_system"]
    if one.scope == "guard":
        for guard in _guards(one, summary):
            found = guard["systems"].get(judged)
            if found is None:
                raise UsageError(
                    f"--require '{one.text}': guards measure models, and {judged} is none; name a model last"
                )
            if one.quantity != MEAN:
                found = found.get("versus_base")
            if found is None:
                raise UsageError(
                    f"--require '{one.text}': {judged} is the base itself; give the tuned --model too"
                )
            yield _outcome(one, found, f"{one.quantity} of {judged} on {guard['name']}")
        return
    name = _system(one, one.name or judged, summary)
    if one.scope == "system":
        yield _outcome(one, summary["systems"][name][one.measure], f"{one.quantity} of {name}")
        return
    if name == judged:
        raise UsageError(f"--require '{one.text}': {name} would be compared with itself; name another system")
    known = summary["systems"][judged].get("versus_base", {}).get(one.measure)
    if known is None or _base(summary) != name:
        known = _compared(evaluation, one.measure, judged, name)
    what = f"p of {known['difference']:+.4f}" if one.quantity == P else f"{one.quantity} of {judged} less {name}"
    yield _outcome(one, known, what)


def _base(summary: Mapping[str, Any]) -> str | None:
    """The system that the others were compared with: the one that has no comparison itself."""
    return next((name for name, found in summary["systems"].items() if "versus_base" not in found), None)


def _system(one: Requirement, name: str, summary: Mapping[str, Any]) -> str:
    if name not in summary["systems"]:
        raise UsageError(
            f"--require '{one.text}': no system is called {name}; there are {', '.join(summary['systems'])}"
        )
    return name


def _guards(one: Requirement, summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    named = _named(one, {guard["name"]: guard["measure"] for guard in summary["guards"]})
    return [guard for guard in summary["guards"] if guard["name"] in named]


def _named(one: Requirement, guards: Mapping[str, str]) -> list[str]:
    """Those of the guards, given with what they are measured by, that a requirement is about."""
    found = [name for name in guards if one.name in ("", name)]
    if not found:
        raise UsageError(f"--require '{one.text}': no guard is called {one.name}; there are {', '.join(guards)}")
    alike = [name for name in found if guards[name] == one.measure]
    if not alike:
        there = ", ".join(f"{name} ({guards[name]})" for name in found)
        raise UsageError(f"--require '{one.text}': no such guard is measured by {one.measure}; there are {there}")
    return alike


def _outcome(one: Requirement, found: Mapping[str, Any], what: str) -> Outcome:
    value = found["p_holm" if one.quantity == P else one.quantity]
    if value is None:
        raise UsageError(f"--require '{one.text}': one query alone has no interval and no test; measure more")
    met = _COMPARE[one.sign](value, one.limit)
    if one.quantity == P and one.sign in ("<", "<="):
        met &= found["difference"] > 0
    return Outcome(one.text, float(value), bool(met), what)


def _values(evaluation: Path, system: str, measure: str) -> dict[str, float]:
    """Per query what a system has in an evaluation; empty where it was not measured."""
    table = pyarrow.parquet.read_table(evaluation / "per_query.parquet").to_pylist()
    return {row["query_id"]: row["value"] for row in table if (row["system"], row["measure"]) == (system, measure)}


def _compared(evaluation: Path, measure: str, first: str, second: str) -> dict[str, Any]:
    one, other = (_values(evaluation, name, measure) for name in (first, second))
    return _paired(one, other)


def _paired(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, Any]:
    """A comparison of values of the same queries, for JSON."""
    values = np.array([[one[query], other[query]] for query in one])
    means = statistics.bootstrap_means(values, RESAMPLES, 0)
    found = statistics.compare(values[:, 0], values[:, 1], means[:, 0], means[:, 1], 0)
    ends = found.interval
    return {
        "difference": found.difference,
        LOW: None if ends is None else ends.low,
        HIGH: None if ends is None else ends.high,
        "p_holm": found.p_randomization,  # a family of one
    }


def evaluation_of(path: Path) -> Path:
    """The evaluation folder, where the summary.json in it is named too."""
    return path.parent if path.name == "summary.json" else path


def not_inferior(evaluation: Path, summary: Mapping[str, Any], baseline: Path, allowed: float) -> Outcome:
    """Whether the judged system is at most `allowed` below the one of an earlier evaluation, by the interval.

    Non-inferiority: the low end of the 95 % interval of the paired difference is not below -allowed. `baseline` is an
    evaluation folder, or the summary.json in it. EmbedtrainError where it measured other queries, another collection or
    by other conventions.
    """
    from embedtrain.artifacts import require_kind

    folder = evaluation_of(baseline)
    record, here = require_kind(folder, "evaluation"), require_kind(evaluation, "evaluation")
    before = record["summary"]
    for what, old, new in (
        ("collection", _collection(record), _collection(here)),
        ("split", before["split"], summary["split"]),
        ("conventions", before["conventions"], summary["conventions"]),
        ("--keep-self", record["options"].get("keep_self", False), here["options"]["keep_self"]),
    ):
        if old != new:
            raise EmbedtrainError(
                f"--baseline {baseline} has another {what} ({str(old)[:60]}) than this evaluation ({str(new)[:60]}): measure "
                "both the same way"
            )
    measure = next(name for name in summary["systems"][summary["judged_system"]] if "@" in name)
    name = before.get("judged_system") or list(before["systems"])[-1]
    one, other = _values(evaluation, summary["judged_system"], measure), _values(folder, name, measure)
    if set(one) != set(other):
        strange = [*(set(one) - set(other)), *(set(other) - set(one))]
        raise EmbedtrainError(
            f"--baseline {baseline} has {len(other):,} queries and this evaluation {len(one):,}; {len(strange):,} are in one of "
            f"them only ({first_three(sorted(strange))}): measure both on the same split and --limit"
        )
    found = _paired(one, other)
    if found[LOW] is None:
        raise EmbedtrainError(f"--baseline {baseline}: one query alone has no interval; measure more")
    return Outcome(
        f"--baseline {measure} low>={-allowed:g}",
        found[LOW],
        found[LOW] >= -allowed,
        f"the low end of {found['difference']:+.4f} on {name} of the baseline",
    )


def _collection(record: Mapping[str, Any]) -> str:
    return next(str(item["sha256"]) for item in record["inputs"] if item["role"] == "collection")


def check_baseline(baseline: Path, measure: str) -> None:
    """EmbedtrainError, before anything is measured, for a baseline that is no evaluation, or has not this measure."""
    from embedtrain.artifacts import require_kind

    before = require_kind(evaluation_of(baseline), "evaluation")["summary"]
    system = before.get("judged_system") or list(before["systems"])[-1]
    if measure not in before["systems"][system]:
        raise EmbedtrainError(f"--baseline {baseline} did not measure {measure}; measure it the same way again")


def kept(summary: Mapping[str, Any], allowed: float) -> list[Outcome]:
    """Whether the judged system lost at most `allowed` on each guard, by the interval."""
    judged = summary["judged_system"]
    found = []
    for guard in summary["guards"]:
        versus = guard["systems"][judged]["versus_base"]
        text = f"--max-drop guard {guard['name']}: {guard['measure']} low>={-allowed:g}"
        if versus[LOW] is None:
            raise UsageError(f"{text}: one query alone has no interval; give a guard with more")
        what = f"the low end of {versus['difference']:+.4f}"
        found.append(Outcome(text, versus[LOW], versus[LOW] >= -allowed, what))
    return found
