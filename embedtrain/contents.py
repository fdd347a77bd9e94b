"""What a file or folder holds, read off its own bytes: a model and its settings, a table, a run."""

import itertools
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from embedtrain import readers
from embedtrain.errors import EmbedtrainError

Facts = dict[str, Any]

# Rows of a foreign table that are counted before it is called "more than" so many.
MOST_ROWS = 100_000

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "U8": 1}


def seems(path: Path) -> tuple[str, Facts]:
    """What a path seems to be that no record speaks for, in words, and what can be said of it at once."""
    if path.is_dir():
        return _folder(path)
    if not path.stat().st_size:
        return "an empty file", {}
    if readers.suffix(path):
        if found := _qrels(path):
            return "relevance judgements (qrels)", found
        return _table(path)
    if found := _audit(path):
        return "the audit of a mining run", found
    if found := _run(path):
        return "a TREC run", found
    if found := _qrels(path):
        return "relevance judgements (qrels)", found
    return "a file that embedtrain does not read", {"bytes": path.stat().st_size}


def is_model(folder: Path) -> bool:
    """Whether a folder looks like a saved model."""
    return (folder / "config.json").is_file() or (folder / "modules.json").is_file()


def is_collection(folder: Path) -> bool:
    """Whether a folder looks like a collection in BEIR layout."""
    return any(folder.glob("corpus*.*")) and any(folder.glob("queries*.*"))


def _folder(path: Path) -> tuple[str, Facts]:
    if is_collection(path):
        return "a collection", {}
    if is_model(path):
        return "a model", model_settings(path)
    entries = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
    if not entries:
        return "an empty folder", {}
    more = f" and {len(entries) - 8} more" if len(entries) > 8 else ""
    return "a folder that is no collection and no model", {"holds": ", ".join(entries[:8]) + more}


def _audit(path: Path) -> Facts:
    found = _json(path) if path.suffix == ".json" else {}
    if not {"gates", "candidates_by_reason", "most_suspicious"} <= set(found):
        return {}
    shown = {name: found[name] for name in ("queries", "candidates", "negatives")}
    return {**shown, "gates": ", ".join(f"{name} {value:.4g}" for name, value in found["gates"].items())}


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def model_settings(folder: Path) -> Facts:
    """What the settings of a model folder say: dimension, pooling, prompts, length, similarity, weights."""
    config = _json(folder / "config.json")
    pooling = _json(folder / "1_Pooling" / "config.json")
    own = _json(folder / "config_sentence_transformers.json")
    tokenizer = _json(folder / "tokenizer_config.json")
    architectures = config.get("architectures") or []
    lengths = (
        _json(folder / "sentence_bert_config.json").get("max_seq_length"),
        tokenizer.get("model_max_length"),
    )
    facts: Facts = {
        "architecture": ", ".join(architectures),
        "layers": config.get("num_hidden_layers"),
        "dimension": _dimension(folder, pooling) or config.get("hidden_size"),
        "pooling": _pooling(pooling),
        "modules": _modules(folder),
        # Tokenizers write a number near 1e30 for "no limit".
        "max_length": next((n for n in lengths if isinstance(n, int) and n < 1_000_000), None),
        "similarity": own.get("similarity_fn_name"),
        "prompts": own.get("prompts") or None,
        "labels": len(config.get("id2label", {})) or None
        if any("Classification" in a for a in architectures)
        else None,
        **_weights(folder),
    }
    return {name: value for name, value in facts.items() if value not in (None, "", {})}


def _dimension(folder: Path, pooling: dict[str, Any]) -> int | None:
    # A dense layer after the pooling has the last word.
    after = [_json(path).get("out_features") for path in sorted(folder.glob("*_Dense/config.json"))]
    return next(iter(reversed([n for n in after if n])), None) or next(
        (pooling[name] for name in ("embedding_dimension", "word_embedding_dimension") if name in pooling), None
    )


def _pooling(pooling: dict[str, Any]) -> str | None:
    if "pooling_mode" in pooling:
        mode = pooling["pooling_mode"]
        return "+".join(mode) if isinstance(mode, list) else str(mode)
    # Before version 6: one flag a mode.
    modes = [name for name, on in pooling.items() if name.startswith("pooling_mode_") and on is True]
    names = [name.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token") for name in modes]
    return "+".join(names) or None


def _modules(folder: Path) -> str | None:
    try:
        modules = json.loads((folder / "modules.json").read_text("utf-8"))
        return " > ".join(str(module["type"]).rsplit(".", 1)[-1] for module in modules)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _weights(folder: Path) -> Facts:
    parameters, kinds = 0, set()
    for path in sorted(folder.rglob("*.safetensors")):
        try:
            with path.open("rb") as file:
                header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        except (OSError, ValueError, struct.error, MemoryError, OverflowError):
            return {"weights": f"{path.name} cannot be read"}
        for name, tensor in header.items():
            # Wide integers are positions and the like, nothing that was learned.
            if name != "__metadata__" and tensor["dtype"] in _BYTES:
                start, end = tensor["data_offsets"]
                parameters += (end - start) // _BYTES[tensor["dtype"]]
                kinds.add(tensor["dtype"])
    if not parameters:
        return {}
    return {"parameters": parameters, "precision": "+".join(sorted(kinds)).lower()}


def _first_lines(path: Path, most: int) -> list[list[str]]:
    try:
        return [text.split() for _, text in itertools.islice(readers.lines(path), most) if text.strip()]
    except EmbedtrainError:
        return []


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _run(path: Path) -> Facts | None:
    rows = _first_lines(path, 200)
    if not rows or not all(len(row) == 6 and _is_number(row[3]) and _is_number(row[4]) for row in rows):
        return None
    lines, queries = _count(path, 0)
    return {"lines": lines, "queries": queries, "tag": rows[0][5]}


def _qrels(path: Path) -> Facts | None:
    if path.suffix not in (".tsv", ".txt", ".qrels", ".qrel", ""):
        return None
    rows = _first_lines(path, 200)
    # A header is known by a grade that is no number.
    header = bool(rows) and not _is_number(rows[0][-1])
    body = rows[1:] if header else rows
    if not body or not all(len(row) in (3, 4) and _is_number(row[-1]) for row in body):
        return None
    lines, queries = _count(path, 0, skip=int(header))
    return {"judgements": lines, "queries": queries}


def _count(path: Path, column: int, skip: int = 0) -> tuple[int, int]:
    lines, seen = 0, set()
    for number, text in readers.lines(path):
        if number > skip and text.strip():
            lines += 1
            seen.add(text.split()[column])
    return lines, len(seen)


_TABLES = {
    ".jsonl": "a JSONL table",
    ".csv": "a CSV table",
    ".tsv": "a TSV table",
    ".parquet": "a Parquet table",
    ".arrow": "an Arrow table",
    ".feather": "an Arrow table",
}


def _table(path: Path) -> tuple[str, Facts]:
    kind = readers.kind_of(path)
    what = _TABLES[kind]
    if kind == ".parquet":
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(path) as file:
            columns = {field.name: str(field.type) for field in file.schema_arrow}
            return what, {"rows": file.metadata.num_rows, "columns": columns}
    columns, count, fault = {}, 0, None
    try:
        for _, row in itertools.islice(readers.rows(path), MOST_ROWS + 1):
            count += 1
            columns |= {str(name): type(value).__name__ for name, value in row.items() if name not in columns}
    except EmbedtrainError as error:
        fault = str(error)
    rows = f"more than {MOST_ROWS:,}" if count > MOST_ROWS else count
    return what, {"rows": rows, "columns": columns} | ({"fault": fault} if fault else {})


def first_rows(path: Path, most: int) -> Iterator[dict[str, Any]]:
    """The first rows of a table, as far as they can be read."""
    try:
        for _, row in itertools.islice(readers.rows(path), most):
            yield row
    except EmbedtrainError:
        return
