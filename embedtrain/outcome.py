"""What training leaves behind: the numbers it prints, and the model's folder with its card and its curve."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from embedtrain import atomic, backbone, card, export
from embedtrain.artifacts import Claim
from embedtrain.config import TrainOptions
from embedtrain.curve import Curve
from embedtrain.dev import MEASURE
from embedtrain.encoder import Encoder
from embedtrain.errors import EmbedtrainError
from embedtrain.mixture import Kept
from embedtrain.ordering import Epoch

# What may be said of the order of an epoch.
_ORDER = {
    "repeated": "rows_drawn_again",
    "waiting": "rows_not_drawn",
    "clashes": "rows_beside_their_like",
    "mixed": "batches_of_several_groups",
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A run that is over."""

    options: TrainOptions  # with nothing left open
    rows: int
    dropped: Mapping[str, int]
    weights: Mapping[str, float]
    precision: str
    curve: Curve
    learned: Mapping[str, float]
    first: Epoch
    measured_on: str  # empty: there was no dev split
    kept: Kept | None  # where weights were mixed
    notes: Sequence[str]

    @property
    def dev(self) -> float | None:
        """The dev value of the weights that are written; None where they were not measured."""
        if self.kept is not None:
            return self.kept.dev
        return None if self.curve.best is None else self.curve.dev[self.curve.best].value

    def summary(self, *, cuts: bool) -> dict[str, Any]:
        """The numbers the command prints; `cuts`: the model reads texts up to a limit, and pads them."""
        options, curve = self.options, self.curve
        temperature = options.temperature or 1.0
        summary: dict[str, Any] = {
            "rows": self.rows,
            "steps": len(curve.steps),
            "loss": ",".join(f"{name}:{weight:g}" for name, weight in self.weights.items()),
            "temperature": f"{temperature:g} (scale {1 / temperature:g})",
            "learning_rate": options.learning_rate,
            "precision": self.precision,
            "first_loss": round(curve.first_loss, 6),
            "last_loss": round(curve.last_loss, 6),
            "candidates": round(curve.total("candidates") / max(1, len(curve.steps)), 1),
        }
        if cuts:
            documents, queries = options.max_document_length, options.max_query_length
            summary |= {
                "documents_cut": f"{curve.share('documents_cut', 'documents'):.1%} at {documents} tokens",
                "queries_cut": f"{curve.share('queries_cut', 'queries'):.1%} at {queries} tokens",
                "padding": f"{1 - curve.share('tokens', 'padded'):.1%}",
            }
        if self.learned:
            summary["learned"] = {name: round(value, 6) for name, value in self.learned.items()}
        if alone := round(curve.total("no_negatives")):
            summary["rows_without_negatives"] = f"{alone:,} of {round(curve.total('rows')):,} drawn"
        for name, told in _ORDER.items():
            if count := getattr(self.first, name):
                summary[f"{told}_in_the_first_epoch"] = count
        if self.measured_on:
            summary["dev"] = {"measure": MEASURE, "split": options.dev_split, "on": self.measured_on}
            summary["dev_values"] = {f"step {value.step}": round(value.value, 4) for value in curve.dev}
            if curve.best is not None:
                summary["kept_step"] = curve.dev[curve.best].step
        if self.kept is not None:
            summary["merged"] = self.kept.why
        return summary

    def write(self, claim: Claim, encoder: Encoder, texts: Sequence[str]) -> None:
        """Write the model's folder; an export is checked on `texts`, and one that fails is said and costs nothing."""
        summary = self.summary(cuts=not backbone.is_static(encoder))
        notes = [*self.notes, *self.curve.notes()]
        about = backbone.describe(encoder)
        with atomic.atomic_folder(claim.out) as folder:
            encoder.save(folder)
            if self.options.export:
                try:
                    summary["exported"] = str(export.to_onnx(folder, encoder, texts))
                except EmbedtrainError as error:
                    summary["exported"] = "failed"
                    notes.append(f"warning: {error}")
            if notes:
                summary["notes"] = notes
            self.curve.write(folder / "metrics.jsonl")
            measured = {} if self.dev is None else {f"{MEASURE} on {self.options.dev_split}": round(self.dev, 4)}
            text = card.model_card(
                claim, summary, base=card.Base.of(encoder.source), about=about, results=measured
            )
            (folder / "README.md").write_text(text, encoding="utf-8")
            summary["model"] = {n: value for n, value in about.items() if "prompt" not in n or value != "''"}
            claim.write_folder(folder, rows=self.rows, dropped=self.dropped, summary=summary)
