"""`diagnose`: a model's space on a sample of a collection, judged, and one page to read."""

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

from embedtrain import __version__, artifacts, console, lineage
from embedtrain.artifacts import Claim
from embedtrain.atomic import atomic_folder
from embedtrain.collection import Collection
from embedtrain.config import DiagnoseOptions
from embedtrain.diagnose import geometry, pictures, report
from embedtrain.diagnose.probe import Probe, draw, look
from embedtrain.diagnose.section import Measure, overall
from embedtrain.diagnose.verdicts import SHARES, Space, judge
from embedtrain.encoder import Encoder
from embedtrain.models import find_model

PAGE = "report.html"
NUMBERS = "diagnose.json"

_WORDS = (
    (
        "positives above random",
        "Share of random documents of the sample that score below a positive for the same query, averaged over "
        "queries (the area under the ROC curve). The one number here that speaks of ranking.",
    ),
    (
        "alignment",
        "Mean squared distance of positive pairs on the unit sphere: 2 - 2 cos. Wang and Isola 2020, "
        "arXiv 2005.10242.",
    ),
    ("uniformity", "log mean exp(-2 d²) over all distinct pairs of documents. Wang and Isola 2020."),
    (
        "random-pair cosine",
        "Cosine of two different documents of the sample, all pairs. High values alone are no fault: what counts "
        "is how far positives stand above them.",
    ),
    (
        "components for 95 %",
        "Principal components (of the centred documents) that hold 95 % of the variance. Few of them mean that "
        "most dimensions carry nothing.",
    ),
    (
        "RankMe",
        "exp of the entropy of the singular values of the documents’ matrix, not centred: the number of "
        "directions in use. Garrido et al. 2023, arXiv 2210.02885.",
    ),
    (
        "participation ratio",
        "(sum of variances)² / sum of squared variances of the principal components; n·d/(n+d) for n isotropic "
        "vectors of d dimensions.",
    ),
    (
        "healthy, watch, collapsed",
        "Rules of thumb, set so that working models pass. Where a base model is given, a marked change from it is "
        "a reason to watch as well.",
    ),
)


def diagnose(
    claim: Claim,
    options: DiagnoseOptions,
    collection_path: Path,
    model: str,
    against: str | None,
    evaluation: Path | None,
    progress: console.Progress = console.silent,
) -> None:
    """Measure `model` (and `against`) on a collection; write the page and its numbers as a report artifact."""
    collection = Collection(collection_path)
    probe = draw(collection, options)
    names = {item.role: item.name for item in claim.inputs}
    spaces, notes = [], []
    for role, asked_for in (("model", model), ("base", against)):
        if asked_for is None:
            continue
        encoder = Encoder.load(find_model(asked_for), wanted=options.precision)
        queries = encoder.encode([collection.queries.by_id(q) for q in probe.queries], "query", progress)[:]
        texts = [collection.corpus[place] for place in probe.documents]
        documents = encoder.encode(texts, "document", progress)[:]
        spaces.append(look(names[role], queries, documents, probe, options.seed))
        if encoder.precision != "float32":
            notes.append(f"{names[role]} encoded in {encoder.precision}.")
        if encoder.similarity == "dot":
            notes.append(f"{names[role]} ranks by dot product; all numbers here are of directions (cosine).")
    space, base = spaces[0], spaces[1] if against else None
    measures = judge(space, base)
    verdict, sentence = overall(measures)
    summary = _summary(space, base, probe, measures, verdict)
    summary["notes"] = [sentence, *notes]
    with atomic_folder(claim.out) as folder:
        numbers = _numbers(space, base, probe, measures, verdict, sentence, options)
        text = json.dumps(numbers, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        (folder / NUMBERS).write_text(text, encoding="utf-8")
        record = claim.make_record(rows=len(probe.sample), dropped=probe.dropped, summary={})
        page = {
            "version": __version__,
            "model": space.name,
            "base": base.name if base else None,
            "collection": names["collection"],
            "verdict": verdict,
            "verdict_sentence": sentence,
            "facts": _facts(space, probe, options),
            "notes": notes,
            "measures": measures,
            "pictures": _pictures(space, base),
            "evaluation": _evaluation(evaluation, names.get("evaluation", "")) if evaluation else None,
            "lineage": lineage.ancestry(record, claim.out.name).parents,
            "command": _command(claim, options),
            "dropped": probe.dropped,
            "words": _WORDS,
        }
        (folder / PAGE).write_text(report.render(page), encoding="utf-8")
        claim.write_folder(folder, rows=len(probe.sample), dropped=probe.dropped, summary=summary)


def _summary(
    space: Space, base: Space | None, probe: Probe, measures: list[Measure], verdict: str
) -> dict[str, Any]:
    columns = ["measure", *(["base"] if base else []), "model", "reference", "verdict"]
    rows = [
        [
            measure.name,
            *([measure.shown(measure.base)] if measure.base is not None else []),
            measure.shown(measure.value),
            measure.reference,
            measure.verdict,
        ]
        for measure in measures
    ]
    return {
        "verdict": verdict,
        "report": PAGE,
        "model": space.name,
        "base": base.name if base else None,
        "documents": len(probe.sample),
        "queries": len(probe.queries),
        "positive_pairs": probe.pairs,
        "table": {"columns": columns, "rows": rows},
    }


def _rounded(value: float) -> float:
    # Six digits say all there is, and keep the last bits of another machine out; no -0.0.
    return round(float(value), 6) + 0.0


def _spread(spread: geometry.Spread) -> dict[str, Any]:
    return {
        "count": spread.count,
        "mean": _rounded(spread.mean),
        "deviation": _rounded(spread.deviation),
        "quantiles": {str(share): _rounded(value) for share, value in spread.quantiles.items()},
    }


def _space(space: Space) -> dict[str, Any]:
    return {
        "name": space.name,
        "dimension": space.dimension,
        "alignment": _rounded(space.alignment),
        "uniformity": _rounded(space.uniformity),
        "uniformity_of_even_sphere": _rounded(geometry.uniformity_of_sphere(space.dimension)),
        "separation": _rounded(space.contrast.separation),
        "random_document_pairs": _spread(space.cosine),
        "positive_pairs": _spread(geometry.Spread.of(space.contrast.positive)),
        "random_query_document_pairs": _spread(geometry.Spread.of(space.contrast.random)),
        "components": {str(share): space.spectrum.components(share) for share in SHARES},
        "first_component": _rounded(space.spectrum.first),
        "participation_ratio": _rounded(space.spectrum.participation_ratio),
        "rank_me": _rounded(space.rank_me),
        "variance_shares": [_rounded(share) for share in space.spectrum.shares],
    }


def _numbers(
    space: Space,
    base: Space | None,
    probe: Probe,
    measures: list[Measure],
    verdict: str,
    sentence: str,
    options: DiagnoseOptions,
) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "sentence": sentence,
        "sample": {
            "split": options.split,
            "documents": len(probe.sample),
            "queries": len(probe.queries),
            "positive_pairs": probe.pairs,
            "seed": options.seed,
        },
        "measures": [
            {
                "key": measure.key,
                "name": measure.name,
                "value": _rounded(measure.value),
                "base": None if measure.base is None else _rounded(measure.base),
                "reference": measure.reference,
                "verdict": measure.verdict,
                "sentence": measure.sentence,
            }
            for measure in measures
        ],
        "model": _space(space),
        "base": _space(base) if base else None,
    }


def _facts(space: Space, probe: Probe, options: DiagnoseOptions) -> list[tuple[str, str]]:
    return [
        ("split", options.split),
        ("documents", f"{len(probe.sample):,}"),
        ("queries", f"{len(probe.queries):,}"),
        ("positive pairs", f"{probe.pairs:,}"),
        ("dimensions", f"{space.dimension:,}"),
        ("seed", str(options.seed)),
    ]


def _pictures(space: Space, base: Space | None) -> list[pictures.Picture]:
    shown = [item for item in (space, base) if item]
    return [
        pictures.similarities(
            [(item.name, item.contrast.positive, item.contrast.random) for item in shown],
            title="How similar positives and random documents are to a query",
            caption="The less the two hills overlap, the easier it is to rank. Where they stand on the scale does "
            "not matter; the gap does.",
        ),
        pictures.spectrum(
            [(item.name, item.spectrum.shares) for item in shown],
            title="How many directions carry the variance",
            caption="Share of the variance held by the strongest components together. A curve that leaps up at "
            "once is a space of few dimensions; the dotted line is an even sphere.",
        ),
    ]


def _evaluation(folder: Path, name: str) -> dict[str, Any]:
    """The table of an evaluation and, where it has means to draw, a picture of its systems."""
    record = artifacts.require_kind(folder, "evaluation")
    summary = record["summary"]
    table = summary.get("table", {})
    return {
        "name": name,
        "split": record["options"].get("split", ""),
        "columns": table.get("columns", []),
        "rows": table.get("rows", []),
        "notes": summary.get("notes", []),
        "picture": _ladder(summary.get("systems", {})),
    }


def _ladder(systems: dict[str, dict[str, Any]]) -> pictures.Picture | None:
    """The systems by nDCG@10, or by the first measure there is where that was not measured."""
    measures = list(
        dict.fromkeys(
            name
            for system in systems.values()
            for name, value in system.items()
            if isinstance(value, dict) and "mean" in value
        )
    )
    if not measures:
        return None
    measure = "nDCG@10" if "nDCG@10" in measures else measures[0]
    found = [
        pictures.System(name, values[measure]["mean"], values[measure]["low"], values[measure]["high"])
        for name, values in systems.items()
        if measure in values
    ]
    return pictures.ladder(
        found,
        measure,
        title="Systems from best to worst",
        caption=f"{measure} with its 95 % interval over queries. Intervals that overlap may still hide a sure "
        "difference: the paired test in the table sees it.",
    )


def _command(claim: Claim, options: DiagnoseOptions) -> str:
    """The command line that makes this report again."""
    names = {item.role: item.name for item in claim.inputs}
    words = ["embedtrain", "diagnose", names["model"], "--collection", names["collection"]]
    for role, flag in (("base", "--against"), ("evaluation", "--eval")):
        words += [flag, names[role]] if role in names else []
    default = DiagnoseOptions()
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value is not None and value != getattr(default, field.name):
            words += [f"--{field.name}", str(value)]
    return shlex.join([*words, "--out", claim.out.name])
