"""`inspect`: what an artifact is, some of its rows with their texts, and all it came from. Loads nothing heavy."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

from embedtrain import artifacts, contents, lineage, models
from embedtrain.console import opening
from embedtrain.errors import EmbedtrainError, UsageError

_POSITIVES, _NEGATIVES, _LEFT_OUT, _DOCUMENTS = 2, 5, 3, 3  # shown of each in an example


@dataclasses.dataclass
class Inspection:
    """What was found: `facts` in the order they are told, examples, the ancestry as a tree."""

    name: str
    what: str
    record: dict[str, Any] | None
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    examples: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    ancestry: lineage.Node | None = None

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values, for `--json`."""
        record = self.record or {}
        keys = ("kind", "schema", "stage", "embedtrain", "options", "seed", "rows", "dropped", "summary")
        return {
            "name": self.name,
            "what": self.what,
            **{key: record[key] for key in keys if key in record},
            "facts": self.facts,
            "examples": self.examples,
            "notes": self.notes,
            "ancestry": lineage.as_dict(self.ancestry) if self.ancestry else None,
        }

    def as_text(self) -> str:
        """The same for people."""
        lines = [f"{self.name}: {self.what}"]
        lines += _aligned({**self._made(), **self.facts})
        table = (self.record or {}).get("summary", {}).get("table")
        if table:
            lines += ["", *_table([table["columns"], *table["rows"]])]
        for number, example in enumerate(self.examples, 1):
            lines += ["", f"  example {number}", *_example(example)]
        lines += [""] * bool(self.notes) + [f"  {note}" for note in self.notes]
        if self.ancestry and self.ancestry.parents:
            lines += ["", "  made from", *(f"  {line}" for line in lineage.as_text(self.ancestry)[1:])]
        return "\n".join(lines)

    def _made(self) -> dict[str, Any]:
        if self.record is None:
            return {}
        chosen = lineage.chosen_options(self.record["stage"], self.record["options"])
        options = "".join(f", {key.replace('_', ' ')} {lineage.shown(value)}" for key, value in chosen.items())
        seed = "" if self.record["seed"] is None else f", seed {self.record['seed']}"
        dropped = ", ".join(f"{reason} {count:,}" for reason, count in self.record["dropped"].items())
        made = f"embedtrain {self.record['embedtrain']} {self.record['stage']}{options}{seed}"
        return {"made by": made} | ({"dropped": dropped} if dropped else {})


def inspect_artifact(file: Path, collection: Path | None, examples: int) -> Inspection:
    """Find out what `file` is, an artifact or somebody else's, and show `examples` rows of it.

    Texts come from `collection`, or from the recorded one where it is still there. Raises EmbedtrainError for a
    path that does not exist and for a collection that is not the one the ids belong to.
    """
    path, name = _find(file)
    record = artifacts.read_record(path)
    if record is None:
        what, facts = contents.seems(path)
        found = Inspection(name, what, None, facts)
        if what == "a collection":
            _collection(found, path, examples)
        elif "columns" in facts:
            found.examples = [_short(row) for row in contents.first_rows(path, examples)]
        return found
    kind, rows = record["kind"], record["rows"]
    what = f"{kind} artifact, schema {record['schema']}, {rows:,} rows"
    found = Inspection(name, what, record)
    found.ancestry = lineage.ancestry(record, name)
    if record["schema"] > artifacts.SCHEMA_VERSION.get(kind, 0):
        found.notes.append("made by a newer embedtrain than this one; update embedtrain to use it")
        return found
    if "content" in record and record["content"] != artifacts.content_sha256(path):
        found.notes.append("its files have changed since they were written; make it again")
    if kind == "collection":
        _collection(found, path, examples)
    elif kind in ("mined", "scored"):
        _mined(found, path, record, collection, examples)
    elif kind in ("model", "teacher"):
        found.facts |= contents.model_settings(path)
    elif kind == "report":
        found.facts["page"] = str(file / record["summary"]["report"])
    found.facts |= {
        k: v for k, v in record["summary"].items() if isinstance(v, str | int | float) and k != "report"
    }
    return found


def _find(file: Path) -> tuple[Path, str]:
    if file.exists():
        return file, file.name or str(file.resolve().name)
    for packaged in models.PACKAGED:
        if packaged.name in (str(file), f"sentence-transformers/{file}") and (found := packaged.find()):
            return found, packaged.name
    raise EmbedtrainError(f"{file} does not exist; check the path")


def _collection(found: Inspection, path: Path, examples: int) -> None:
    from embedtrain.collection import Collection

    try:
        collection = Collection(path)
        judged = {split: collection.qrels(split) for split in collection.splits}
    except EmbedtrainError as error:
        # It is still worth saying what it is; what is wrong with it is said too.
        found.notes.append(str(error))
        return
    found.facts |= {
        "documents": len(collection.corpus),
        "queries": len(collection.queries),
        "splits": {
            split: f"{len(qrels):,} queries, {sum(map(len, qrels.values())):,} judgements"
            for split, qrels in judged.items()
        },
    }
    split = "train" if "train" in judged else next(iter(judged), "")
    for query, documents in itertools.islice(judged.get(split, {}).items(), examples):
        best = sorted(documents.items(), key=lambda item: (-item[1], item[0]))
        found.examples.append(
            {
                "split": split,
                "query": {"id": query, "text": opening(collection.queries.by_id(query))},
                "documents": [
                    {"id": document, "grade": grade, "text": opening(collection.corpus.by_id(document))}
                    for document, grade in best[:_DOCUMENTS]
                ],
                "more": max(0, len(best) - _DOCUMENTS),
            }
        )


def _mined(found: Inspection, path: Path, record: dict[str, Any], collection: Path | None, examples: int) -> None:
    import pyarrow.parquet

    from embedtrain.mined import read_mined

    with pyarrow.parquet.ParquetFile(path) as file:
        found.facts["columns"] = ", ".join(file.schema_arrow.names)
    rows = read_mined(path, limit=examples)
    texts = _texts(found, path, record, collection) if rows else None
    for row in rows:
        found.examples.append(_mined_example(row, texts))


def _texts(found: Inspection, path: Path, record: dict[str, Any], given: Path | None) -> Any:
    """The collection the ids belong to; None, with a note, where it is not to be found and none was given."""
    from embedtrain.collection import Collection

    if given is not None:
        artifacts.check_same_input(record, "collection", artifacts.Input.of("collection", given).sha256, path)
        return Collection(given)
    try:
        return Collection(artifacts.find_input(record, "collection", path))
    except UsageError as error:
        found.notes.append(f"ids without texts: {error}")
        return None


def _mined_example(row: Any, collection: Any) -> dict[str, Any]:
    def text(identifier: str) -> dict[str, str]:
        return {} if collection is None else {"text": opening(collection.corpus.by_id(identifier))}

    def candidate(index: int) -> dict[str, Any]:
        told = {
            "id": row.candidate_ids[index],
            "rank": row.candidate_ranks[index],
            "scores": _scores(row.scores, index),
            "retriever": row.candidate_retrievers[index],
            "reason": row.reason[index],
            "teacher": row.candidate_teacher[index] if row.candidate_teacher else None,
            "verdict": row.verdict[index] if row.verdict else None,
        }
        known = {key: _number(value) for key, value in told.items() if value not in (None, {})}
        return known | text(row.candidate_ids[index])

    negatives = row.negative_indices
    # The best of the others, those that something spoke against first.
    spared = [verdict != "keep" for verdict in row.verdict or ["keep"] * len(row.candidate_ids)]
    others = [
        i
        for i, why in enumerate(row.reason)
        if i not in negatives and (spared[i] or why not in ("eligible", "selected"))
    ]
    positives = []
    for index, identifier in enumerate(row.positive_ids[:_POSITIVES]):
        told = {
            "id": identifier,
            "scores": _scores(row.positive_scores, index),
            "teacher": row.positive_teacher[index] if row.positive_teacher else None,
        }
        positives.append({k: _number(v) for k, v in told.items() if v not in (None, {})} | text(identifier))
    query = {} if collection is None else {"text": opening(collection.queries.by_id(row.query_id))}
    return {
        "query": {"id": row.query_id, **query},
        "positives": positives,
        "negatives": [candidate(index) for index in negatives[:_NEGATIVES]],
        "left_out": [candidate(index) for index in others[:_LEFT_OUT]],
        "more": max(0, len(negatives) - _NEGATIVES),
    }


def _scores(by_retriever: dict[str, list[float | None]], index: int) -> dict[str, float]:
    return {name: _number(scores[index]) for name, scores in by_retriever.items() if scores[index] is not None}


def _number(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def _short(row: dict[str, Any]) -> dict[str, Any]:
    return {str(k): opening(v) if isinstance(v, str) else v for k, v in row.items()}


_SIGNS = {"positives": "+", "negatives": "−", "left_out": "·", "documents": "+"}


def _example(example: dict[str, Any]) -> list[str]:
    query = example.get("query")
    # A row of somebody else's table may have a column "query" too.
    if not isinstance(query, dict):
        return [f"    {key}: {opening(str(value))}" for key, value in example.items()]
    lines = [f"    query {query['id']}: {query.get('text', '')}".rstrip(": ")]
    for part, sign in _SIGNS.items():
        for item in example.get(part, []):
            lines.append(f"    {sign} {item['id']} ({_details(item, part)})  {item.get('text', '')}".rstrip())
        if part in ("negatives", "documents") and part in example and example["more"]:
            lines.append(f"    {sign} and {example['more']} more")
    return lines


def _details(item: dict[str, Any], part: str) -> str:
    told = []
    if "grade" in item:
        told.append(f"grade {item['grade']:.3g}")
    told += [f"{name} {score:.3f}" for name, score in item.get("scores", {}).items()]
    if "teacher" in item:
        told.append(f"teacher {item['teacher']:.3f}")
    if "retriever" in item:
        rank = f"rank {item['rank']} by " if "rank" in item else ""
        told.append(f"{rank}{item['retriever']}")
    if item.get("verdict", "keep") != "keep":
        told.append(item["verdict"])
    if part == "left_out":
        told.append(item["reason"])
    return ", ".join(told) or part.rstrip("s")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item) or repr(item)}" for key, item in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _aligned(values: dict[str, Any]) -> list[str]:
    names = {key: key.replace("_", " ") for key in values}
    width = max(map(len, names.values()), default=0)
    return [f"  {names[key]:<{width}}  {_shown(value)}" for key, value in values.items()]


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *rest = [(cell, width) for cell, width in zip(row, widths, strict=True)]
        cells = [f"{first[0]:<{first[1]}}", *(f"{cell:>{width}}" for cell, width in rest)]
        lines.append("  " + "   ".join(cells).rstrip())
    return lines
