"""Warnings with their reasons, by hand. Breaks that turn a test red: 2/t for 1/t in the floor, thresholds swapped."""

from typing import Any

import pytest

from embedtrain.cautions import loss_floor, margins, warnings_for
from embedtrain.config import temperature_for
from embedtrain.drawing import Row
from embedtrain.schedule import Schedule

FINE: dict[str, Any] = {
    "pairs": 5_000,
    "batch_size": 32,
    "negatives": 4,
    "temperature": 0.05,
    "normalised": True,
    "schedule": Schedule(3e-5, 500, 0.1),
}


def test_the_temperature_where_none_is_named() -> None:
    found = {
        (stage, size, on_gpu): temperature_for(stage, size, on_gpu=on_gpu)
        for stage in ("pretrain", "finetune")
        for size in (32, 1_024)
        for on_gpu in (False, True)
    }
    assert {key for key, value in found.items() if value == 0.05} == {
        ("pretrain", 32, False),
        ("finetune", 32, False),
        ("finetune", 32, True),
    }
    assert set(found.values()) == {0.02, 0.05}


def test_the_floor_of_the_loss_p40() -> None:
    assert loss_floor(3, 1.0) == pytest.approx(0.3408, abs=5e-5)
    assert loss_floor(2, 1.0) == pytest.approx(0.2395, abs=5e-5)
    assert loss_floor(3, 0.05) < 1e-15


def test_settings_known_to_work_need_no_word() -> None:
    assert warnings_for(**FINE) == []
    for temperature in (0.01, 0.02, 0.1, None):
        assert warnings_for(**{**FINE, "temperature": temperature}) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"temperature": 1.0, "batch_size": 1, "negatives": 3},
            "cannot go below 0.3408 (ln(1 + 3 e^-2)), however good the model",
        ),
        # 31 other rows with 5 documents each, and 4 negatives of its own.
        ({"temperature": 1.0}, "with 159 negatives the loss cannot go below 3.1143"),
        ({"pairs": 400}, "400 pairs are few"),
        ({"batch_size": 2, "negatives": 0}, "a batch of 2 compares each query with 1 other document"),
        ({"batch_size": 1, "negatives": 0}, "the loss is exactly 0 at every step"),
        ({"schedule": Schedule(1e-2, 500, 0.1)}, "--learning-rate 0.01 destroys a pretrained transformer"),
        ({"schedule": Schedule(3e-5, 200, 1000)}, "20% of 3e-05"),
    ],
)
def test_each_has_its_sentence_p40_p41_p47(change: dict[str, Any], said: str) -> None:
    found = warnings_for(**{**FINE, **change})
    assert len(found) == 1
    assert said in found[0]


def test_what_does_not_apply_is_not_said() -> None:
    assert warnings_for(**{**FINE, "temperature": 1.0, "normalised": False}) == []
    assert warnings_for(**{**FINE, "schedule": Schedule(1e-2, 500, 0.1), "transformer": False}) == []
    assert warnings_for(**{**FINE, "batch_size": 1, "contrastive": False}) == []


def test_a_teachers_margins_beside_the_models_p37() -> None:
    rows = [
        Row("q1", ("p",), ("n", "m"), teacher={"p": 8.0, "n": 2.0, "m": 9.0}),
        Row("q2", ("p",), ("n",), teacher={"p": 8.0}),
        Row("q3", ("p",), ("n",)),
    ]
    # Margins 6 and -1; a cosine margin is 2 at most, over a temperature of 0.5 it is 4.
    sentence, outside = margins(rows, 0.5, 1.0) or ("", False)
    assert outside
    assert "margins of the teacher from -1 to 6, of the model from -4 to 4: it cannot reach" in sentence
    assert margins(rows, 0.05, 1.0) == ("margins of the teacher from -1 to 6, of the model from -40 to 40", False)
    assert margins(rows, 0.5, 2.0) == ("margins of the teacher from -0.5 to 3, of the model from -4 to 4", False)
    assert margins(rows[1:], 0.5, 1.0) is None
