"""Conditions that a run must meet: how they are read, when they fail, what is said.

Deliberate breaks that turn a test red: >= taken for >, only the first failure told, a value that was not measured passed.
"""

import pytest

from embedtrain import gates
from embedtrain.errors import GateError, UsageError

KNOWN = {"suspicious": "negatives like positives", "nDCG@10": "quality"}


@pytest.mark.parametrize(
    ("text", "value", "fails"),
    [
        ("suspicious>0.05", 0.05, False),
        ("suspicious>0.05", 0.051, True),
        ("suspicious >= 5e-2", 0.05, True),
        ("nDCG@10<0.7", 0.7, False),
        ("nDCG@10<=.7", 0.7, True),
        ("nDCG@10<-0.1", -0.2, True),
    ],
)
def test_conditions(text: str, value: float, fails: bool) -> None:
    (gate,) = gates.parse([text], KNOWN)
    assert gate.fails(value) is fails


@pytest.mark.parametrize(
    "text", ["suspicious", "suspicious=0.1", "suspicious>", "0.5>suspicious", "suspicious>1.2.3"]
)
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(UsageError, match="NAME>NUMBER is needed"):
        gates.parse([text], KNOWN)


def test_what_is_not_measured() -> None:
    with pytest.raises(UsageError, match="other is not measured; what is: suspicious"):
        gates.parse(["other>1"], KNOWN)
    with pytest.raises(UsageError, match="was not measured in this run"):
        gates.check(gates.parse(["suspicious>1"], KNOWN), {"suspicious": None})


def test_every_failure_is_told() -> None:
    conditions = gates.parse(["suspicious>0.05", "nDCG@10<0.5", "suspicious<0"], KNOWN)
    with pytest.raises(
        GateError, match=r"suspicious>0.05 \(it is 0.2\); nDCG@10<0.5 \(it is 0.25\); the result"
    ) as error:
        gates.check(conditions, {"suspicious": 0.2, "nDCG@10": 0.25})
    assert error.value.exit_code == 3
    gates.check(conditions, {"suspicious": 0.05, "nDCG@10": 0.5})
