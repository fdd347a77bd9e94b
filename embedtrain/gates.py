"""Conditions that a run must meet, as a CI job writes them: `suspicious>0.05` fails when the value is above."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from embedtrain.errors import GateError, UsageError

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_FORM = re.compile(r"^\s*(?P<name>[A-Za-z][\w@-]*)\s*(?P<sign>[<>]=?)\s*(?P<limit>[-+.\deE]+)\s*$")


@dataclass(frozen=True)
class Gate:
    """One condition under which a run fails."""

    text: str
    name: str
    sign: str
    limit: float

    def fails(self, value: float) -> bool:
        """Whether the value is what it must not be."""
        return _COMPARE[self.sign](value, self.limit)


def parse(texts: Iterable[str], known: Mapping[str, str]) -> list[Gate]:
    """Read conditions on the values in `known` ({name: what it is}); UsageError for others."""
    gates = []
    for text in texts:
        match = _FORM.match(text)
        try:
            limit = float(match["limit"]) if match else None
        except ValueError:
            limit = None
        if match is None or limit is None:
            raise UsageError(
                f"--fail-if {text}: NAME>NUMBER is needed (or >=, <, <=), as {next(iter(known))}>0.05"
            )
        if match["name"] not in known:
            listed = "; ".join(f"{name} ({what})" for name, what in known.items())
            raise UsageError(f"--fail-if {text}: {match['name']} is not measured; what is: {listed}")
        gates.append(Gate(text.strip(), match["name"], match["sign"], limit))
    return gates


def check(gates: Iterable[Gate], values: Mapping[str, float | None]) -> None:
    """Raise GateError that names every condition that holds; UsageError for one on a value that was not measured."""
    failed = []
    for gate in gates:
        value = values.get(gate.name)
        if value is None:
            raise UsageError(f"--fail-if {gate.text}: {gate.name} was not measured in this run; leave it out")
        if gate.fails(value):
            failed.append(f"{gate.text} (it is {value:.4g})")
    if failed:
        raise GateError(f"a gate was not met: {'; '.join(failed)}; the result was written all the same")
