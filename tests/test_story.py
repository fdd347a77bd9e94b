"""The story the denoising is for: half of an answer stands on a page that nobody labelled, and is mined as a negative.

Breaks that turn a test red: scores that do not reach the loss, a dropped or masked page that is pushed away after all.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import RunCli, write_collection

from embedtrain import teachers
from embedtrain.encoder import Encoder
from embedtrain.mined import read_mined
from embedtrain.models import MINILM, find_model

QUESTION = "How can I cancel my subscription?"
PAGES = {
    "page-212": "To cancel your subscription open Settings, choose Billing and press Cancel my subscription.",
    "page-1140": "When you cancel, you can still use your subscription until the end of the month that is paid for.",
    "page-refund": "How refunds work: a refund of a subscription is paid to the card it was bought with.",
}
OTHERS = {
    "page-7": "To change your password open Settings, choose Security and press New password.",
    "page-8": "To export your invoices open Settings, choose Billing and press Export invoices.",
}


class Judge:
    """A teacher that knows that page 1,140 answers the question too."""

    logits = True

    def score(self, pairs: Any, progress: Any) -> Any:
        right = {(QUESTION, PAGES["page-212"]): 6.0, (QUESTION, PAGES["page-1140"]): 6.5}
        own = {
            ("How do I change my password?", OTHERS["page-7"]): 6.0,
            ("Where are my invoices?", OTHERS["page-8"]): 6.0,
        }
        return np.array([{**right, **own}.get(pair, -4.0) for pair in pairs], dtype=np.float32)

    def cut(self, pairs: Any) -> str:
        return "nothing"


@pytest.fixture
def help_center(tmp_path: Path, run_here: RunCli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three questions, each with one labelled page, mined."""
    questions = {"q1": QUESTION, "q2": "How do I change my password?", "q3": "Where are my invoices?"}
    write_collection(
        tmp_path / "help",
        [{"_id": name, "text": text} for name, text in {**PAGES, **OTHERS}.items()],
        [{"_id": name, "text": text} for name, text in questions.items()],
        {"train": [("q1", "page-212", 1), ("q2", "page-7", 1), ("q3", "page-8", 1)]},
    )
    done = run_here("mine", "help", "--model", MINILM, "--negatives", "2", "--out", "mined.parquet")
    assert done.returncode == 0, done.stderr
    # The miner cannot know: the other half of the answer is a negative.
    (row,) = (row for row in read_mined(tmp_path / "mined.parquet") if row.query_id == "q1")
    assert set(row.negatives) == {"page-1140", "page-refund"}
    monkeypatch.setattr(teachers, "load", lambda *args: Judge())
    return tmp_path


def similarity(model: Path | str, page: str) -> float:
    encoder = Encoder.load(find_model(str(model)), torch.device("cpu"))
    (question,) = encoder.encode([QUESTION], "query", stored=False)[:]
    (document,) = encoder.encode([PAGES[page]], "document", stored=False)[:]
    return float(question @ document)


@pytest.mark.parametrize(
    ("policy", "loss"),
    [
        ("naive", "infonce"),
        ("keep", "kl"),
        pytest.param("drop", "infonce", marks=pytest.mark.slow),
        pytest.param("mask", "infonce", marks=pytest.mark.slow),
        pytest.param("promote", "infonce", marks=pytest.mark.slow),
    ],
)
def test_the_other_half_of_the_answer(help_center: Path, run_here: RunCli, policy: str, loss: str) -> None:
    rows = "mined.parquet"
    if policy != "naive":
        rows = "scored.parquet"
        teacher = ("--teacher", MINILM, "--policy", policy, "--candidates", "all")
        done = run_here("score-teacher", "mined.parquet", *teacher, "--out", rows)
        assert done.returncode == 0, done.stderr
    done = run_here(
        *("finetune", rows, "--loss", loss, "--epochs", "12", "--batch-size", "3", "--learning-rate", "2e-5"),
        *("--temperature", "0.05", "--negatives", "2", "--out", "tuned"),
    )
    assert done.returncode == 0, done.stderr
    before, after = (similarity(model, "page-1140") for model in (MINILM, help_center / "tuned"))
    if policy == "naive":
        assert after < before - 0.05
    elif policy in ("drop", "mask"):
        assert after > before - 0.02  # left alone: it moves with all the others
    else:
        assert after > before
    if loss == "infonce":
        # Whatever becomes of that page, the one on refunds is told from the labelled answer.
        gap = [
            similarity(model, "page-212") - similarity(model, "page-refund")
            for model in (MINILM, help_center / "tuned")
        ]
        assert gap[1] > gap[0]
