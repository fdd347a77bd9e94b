"""`diagnose`: a model's space, its training, its data and its failures, judged, and one page to read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from embedtrain import __version__, console, lineage
from embedtrain.artifacts import Claim, read_record
from embedtrain.atomic import atomic_folder
from embedtrain.audit import SUSPICIOUS_RATIO
from embedtrain.collection import Collection
from embedtrain.config import DiagnoseOptions
from embedtrain.diagnose import (
    data,
    failures,
    information,
    lengths,
    neighbours,
    numbers,
    page,
    rankings,
    report,
    shape,
    space,
    temperature,
    training_curves,
)
from embedtrain.diagnose import evaluation as evaluations
from embedtrain.diagnose.probe import Probe, draw, look
from embedtrain.diagnose.section import Section, overall
from embedtrain.diagnose.verdicts import Space
from embedtrain.mined import read_mined
from embedtrain.models import find_model
from embedtrain.slices import TRAINED_ON
from embedtrain.vectors import directions

if TYPE_CHECKING:  # an audit of data needs no model
    from embedtrain.encoder import Encoder

PAGE = "report.html"
NUMBERS = "diagnose.json"
METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Subject:
    """What is looked at: a model, the base it came from, an evaluation of it, the mined rows it was trained on."""

    model: str | None
    against: str | None = None
    evaluation: Path | None = None
    mined: Path | None = None


@dataclass(frozen=True)
class _Vectors:
    """What a model makes of a probe: queries (q, d), documents (n, d), and the space they are."""

    probe: Probe
    encoder: "Encoder"
    queries: NDArray[np.float32]
    documents: NDArray[np.float32]
    space: Space


def _encoded(
    model: str,
    name: str,
    collection: Collection,
    probe: Probe,
    options: DiagnoseOptions,
    progress: console.Progress,
) -> _Vectors:
    from embedtrain.encoder import Encoder

    encoder = Encoder.load(find_model(model), wanted=options.precision)
    queries = encoder.encode([collection.queries.by_id(q) for q in probe.queries], "query", progress)[:]
    documents = encoder.encode([collection.corpus[place] for place in probe.documents], "document", progress)[:]
    return _Vectors(probe, encoder, queries, documents, look(name, queries, documents, probe, options.seed))


def _said(name: str, encoder: "Encoder") -> list[str]:
    notes = []
    if encoder.precision != "float32":
        notes.append(f"{name} encoded in {encoder.precision}.")
    if encoder.similarity == "dot":
        notes.append(f"{name} ranks by dot product; all numbers here are of directions (cosine).")
    return notes


def diagnose(
    claim: Claim,
    options: DiagnoseOptions,
    collection_path: Path,
    subject: Subject,
    progress: console.Progress = console.silent,
) -> None:
    """Measure what there is of the subject on a collection; write the page and its numbers as a report artifact."""
    collection = Collection(collection_path)
    names = {item.role: item.name for item in claim.inputs}
    sections: list[Section] = []
    notes: list[str] = []
    model = base = None
    if subject.model is not None:  # an audit of rows alone needs no sample, and no split to draw it from
        probe = draw(collection, options)
        model = _encoded(subject.model, names["model"], collection, probe, options, progress)
        notes += _said(names["model"], model.encoder)
        if subject.against is not None:
            base = _encoded(subject.against, names["base"], collection, probe, options, progress)
            notes += _said(names["base"], base.encoder)
        sections += _of_space(model, base, collection, options)
        sections += _of_training(model.encoder.source.path)
    if subject.mined is not None:
        if model is not None and options.temperature_lab:
            sections.append(_lab(model.encoder, subject.mined, collection, options, progress))
        sections.append(data.section(subject.mined, collection, _measured(collection, options.split)))
    if model is not None:
        sections.append(_read(model, collection))
    if subject.evaluation is not None:
        sections.append(evaluations.section(subject.evaluation, names["evaluation"]))
        if model is not None:
            sections += _failures(model.encoder, subject.evaluation, names, collection, options, notes, progress)
    measures = [measure for section in sections for measure in section.measures]
    verdict, sentence = overall(measures)
    sample = _sample(model)
    summary = _summary(names, sample, sections, verdict)
    summary["notes"] = [sentence, *notes]
    # Without a model it is the rows that were looked at.
    rows = sample.get("documents") or int((read_record(subject.mined) or {})["rows"] if subject.mined else 0)
    dropped = model.probe.dropped if model else {}
    facts = [(name.replace("_", " "), f"{value:,}") for name, value in sample.items()]
    facts = [("split", options.split), *facts, ("seed", str(options.seed))]
    with atomic_folder(claim.out) as folder:
        found = {
            "verdict": verdict,
            "sentence": sentence,
            "sample": {"split": options.split, **sample, "seed": options.seed},
            "measures": [numbers.of_measure(measure) for measure in measures],
            "model": numbers.of_space(model.space) if model else None,
            "base": numbers.of_space(base.space) if base else None,
            "sections": {section.key: section.numbers for section in sections if section.numbers},
        }
        text = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        (folder / NUMBERS).write_text(text, encoding="utf-8")
        record = claim.make_record(rows=rows, dropped=dropped, summary={})
        html = report.render(
            {
                "version": __version__,
                "model": names.get("model") or names.get("mined") or names["scored"],
                "base": names.get("base"),
                "collection": names["collection"],
                "verdict": verdict,
                "verdict_sentence": sentence,
                "facts": facts,
                "notes": notes,
                "sections": sections,
                "lineage": lineage.ancestry(record, claim.out.name).parents,
                "command": page.command(claim, options),
                "dropped": dropped,
                "words": page.WORDS,
            }
        )
        (folder / PAGE).write_text(html, encoding="utf-8")
        claim.write_folder(folder, rows=rows, dropped=dropped, summary=summary)


def _sample(model: _Vectors | None) -> dict[str, int]:
    """How much a model was looked at with."""
    if model is None:
        return {}
    probe = model.probe
    return {
        "documents": len(probe.sample),
        "queries": len(probe.queries),
        "positive_pairs": probe.pairs,
        "dimensions": model.space.dimension,
    }


def _of_space(
    model: _Vectors, base: _Vectors | None, collection: Collection, options: DiagnoseOptions
) -> list[Section]:
    """The sections on vectors: numbers, how the space is filled, and who is near whom, over the random sample."""
    probe = model.probe
    own = space.section(model.space, base.space if base else None)
    own.pictures.append(space.map_of(directions(model.documents), directions(model.queries), probe.positives))
    sample, before = model.documents[probe.sample], base.documents[probe.sample] if base else None
    places = [probe.documents[row] for row in probe.sample]
    labels = None
    if options.label_column:
        column = collection.corpus_column(options.label_column)
        labels = [column[place] for place in places]
    base_name = base.space.name if base else None
    return [
        own,
        shape.section(sample, model.space.name, before, base_name, options.seed),
        neighbours.section(
            model.queries,
            sample,
            [collection.corpus.ids[place] for place in places],
            [collection.corpus[place] for place in places],
            base.queries if base else None,
            before,
            [model.space.name, *([base_name] if base_name else [])],
            options.seed,
            labels,
        ),
    ]


def _of_training(folder: Path) -> list[Section]:
    """What the run that made a model says of it, where its metrics lie in the folder."""
    metrics = folder / METRICS
    if not metrics.is_file():
        return []
    return [found for found in (training_curves.section(metrics), information.section(metrics)) if found]


def _lab(
    encoder: "Encoder",
    mined: Path,
    collection: Collection,
    options: DiagnoseOptions,
    progress: console.Progress,
) -> Section:
    from embedtrain.diagnose import mined_similarities

    rows = read_mined(mined, options.limit)
    found = mined_similarities.of(encoder, rows, collection, options.sample, options.seed, progress)
    in_use = _temperature(read_record(encoder.source.path) or {})
    section = temperature.section(found.positives, found.candidates, found.suspected, in_use)
    who = (
        "a teacher scores it above the row's lowest positive"
        if found.by_teacher
        else (
            f"the model itself puts it above {100 * SUSPICIOUS_RATIO:g} % of the positive (no teacher has scored these rows)"
        )
    )
    section.notes.append(f"A candidate is suspected where {who}.")
    if found.left_out:
        section.notes.append(
            f"{found.left_out:,} of {len(rows):,} rows were not looked at: more than --sample, or without a candidate."
        )
    return section


def _temperature(record: Mapping[str, Any]) -> float | None:
    """The temperature a model was trained with: the one it learned, or the one it was given or had by default."""
    summary = record.get("summary", {})
    learned = summary.get("learned", {}).get("temperature")
    said = str(summary.get("temperature", "")).split(" ")[0]  # 0.05 (scale 20)
    return float(learned or said) if learned or said else None


def _measured(collection: Collection, split: str) -> str:
    """The split that a model of the rows is measured on; empty where the collection has none of that name."""
    return split if split in collection.splits else ""


def _read(model: _Vectors, collection: Collection) -> Section:
    """What of the random sample and of the queries the model does not read."""
    from embedtrain import truncation

    probe, encoder = model.probe, model.encoder
    documents = [collection.corpus[probe.documents[row]] for row in probe.sample]
    queries = [collection.queries.by_id(query) for query in probe.queries]
    return lengths.section(
        truncation.token_counts(encoder, documents, "document"),
        truncation.token_counts(encoder, queries, "query"),
        encoder.limit("document"),
        encoder.limit("query"),
    )


def _failures(
    encoder: "Encoder",
    evaluation: Path,
    names: dict[str, str],
    collection: Collection,
    options: DiagnoseOptions,
    notes: list[str],
    progress: console.Progress,
) -> list[Section]:
    """Where the model fails, by the runs of its evaluation; nothing where these do not say, and a note why."""
    found = rankings.of(evaluation, names["model"], collection)
    if isinstance(found, str):
        notes.append(f"{found}.")
        return []
    near = None
    if TRAINED_ON in collection.splits and found.questions.ids:
        asked = directions(encoder.encode(found.questions.texts, "query", progress)[:])
        trained = [collection.queries.by_id(query) for query in collection.qrels(TRAINED_ON)]
        near = (asked @ directions(encoder.encode(trained, "query", progress)[:]).T).max(axis=1)
    return [
        failures.section(
            collection,
            found.questions,
            found.model,
            found.lexical,
            found.hybrid,
            language=found.language,
            similarities=near,
            seed=options.seed,
        )
    ]


def _summary(
    names: dict[str, str], sample: dict[str, int], sections: list[Section], verdict: str
) -> dict[str, Any]:
    base = "base" in names
    rows = []
    for measure in (measure for section in sections for measure in section.measures):
        before = "" if measure.base is None else measure.shown(measure.base)
        shown = measure.shown(measure.value)
        rows.append([measure.name, *([before] if base else []), shown, measure.reference, measure.verdict])
    return {
        "verdict": verdict,
        "report": PAGE,
        "model": names.get("model"),
        "base": names.get("base"),
        **sample,
        "table": {
            "columns": ["measure", *(["base"] if base else []), "model", "reference", "verdict"],
            "rows": rows,
        },
    }
