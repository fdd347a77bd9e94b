"""What stages hand to each other: kinds, lineage, "up to date", refusal of the wrong kind.

Every artifact carries a record of where it came from: Parquet files in the footer, folders in
`embedtrain.json`. The record holds no clock and no machine path, so that the same inputs give the same bytes.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from embedtrain import __version__, atomic
from embedtrain.errors import EmbedtrainError, UsageError

RECORD_FILE = "embedtrain.json"
# Rows of a Parquet artifact that are written together.
ROW_GROUP = 1_024

RECORD_KEY = b"embedtrain"

SCHEMA_VERSION = {
    "collection": 1,
    "mined": 2,
    "scored": 2,
    "model": 1,
    "teacher": 1,
    "evaluation": 1,
    "report": 1,
}

MADE_BY = {
    "collection": "embedtrain harvest SOURCE --out FOLDER",
    "mined": "embedtrain mine COLLECTION --out mined.parquet",
    "scored": "embedtrain score-teacher mined.parquet --teacher TEACHER --out scored.parquet",
    "model": "embedtrain finetune mined.parquet --model MODEL --out FOLDER",
    "teacher": "embedtrain train-teacher mined.parquet --model MODEL --out FOLDER",
    "evaluation": "embedtrain eval COLLECTION --model MODEL --out FOLDER",
    "report": "embedtrain diagnose MODEL --collection COLLECTION --out FOLDER",
}

# Files of a folder that say nothing about what it does: the record itself and the model card.
_NOT_CONTENT = frozenset({RECORD_FILE, "README.md", ".gitattributes"})


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_sha256(path: Path, *, skip: frozenset[str] = _NOT_CONTENT) -> str:
    """The identity of an input: a file's SHA-256, or that of a folder's (relative name, SHA-256) list.

    Hidden files and, in a folder's top level, the names in `skip` do not count.
    """
    if path.is_file():
        return file_sha256(path)
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*"), key=lambda entry: entry.relative_to(path).as_posix()):
        name = file.relative_to(path)
        if not file.is_file() or any(part.startswith(".") for part in name.parts) or str(name) in skip:
            continue
        digest.update(f"{name.as_posix()}\0{file_sha256(file)}\n".encode())
    return digest.hexdigest()


def read_record(path: Path) -> dict[str, Any] | None:
    """The record an artifact carries, or None where there is none (a file of somebody else's)."""
    if path.is_dir():
        file = path / RECORD_FILE
        if not file.is_file():
            return None
        try:
            record = json.loads(file.read_text("utf-8"))
        except ValueError as error:
            raise EmbedtrainError(f"{file} is not JSON ({error}); make the artifact again") from error
        return record if isinstance(record, dict) else None
    if path.suffix != ".parquet" or not path.is_file():
        return None
    import pyarrow.parquet

    try:
        metadata = pyarrow.parquet.read_metadata(path).metadata or {}
    except (OSError, ValueError) as error:
        raise EmbedtrainError(f"{path} is not a whole Parquet file ({error}); make it again") from error
    stored = metadata.get(RECORD_KEY)
    return None if stored is None else json.loads(stored)


def require_kind(path: Path, *kinds: str) -> dict[str, Any]:
    """Return the record of an artifact of one of `kinds`; refuse anything else with the command that makes it."""
    make = f"make a {kinds[0]} artifact with: {MADE_BY[kinds[0]]}"
    if not path.exists():
        raise EmbedtrainError(f"{path} does not exist; {make}")
    record = read_record(path)
    if record is None:
        raise EmbedtrainError(f"{path} is not an artifact of embedtrain; {make}")
    if record.get("kind") not in kinds:
        raise EmbedtrainError(
            f"{path} is a {record.get('kind')} artifact where a {' or '.join(kinds)} one is needed; {make}"
        )
    known = SCHEMA_VERSION[record["kind"]]
    if record["schema"] != known:
        what = (
            "update embedtrain" if record["schema"] > known else f"make it again with: {MADE_BY[record['kind']]}"
        )
        raise EmbedtrainError(
            f"{path} has {record['kind']} schema {record['schema']} and this embedtrain reads {known}; {what}"
        )
    return record


@dataclasses.dataclass(frozen=True)
class Input:
    """One thing a stage reads: its role, where it is, how it is named in the record, and its content hash."""

    role: str
    path: Path
    name: str
    sha256: str

    @classmethod
    def of(cls, role: str, path: Path, *, name: str | None = None, sha256: str | None = None) -> "Input":
        """Describe `path`; the name is relative to the current folder, or the last part where it lies outside."""
        if not path.exists():
            raise EmbedtrainError(f"{role} {path} does not exist; check the path")
        if name is None:
            absolute, here = path.absolute(), Path.cwd()
            inside = absolute.is_relative_to(here) and absolute != here
            name = absolute.relative_to(here).as_posix() if inside else absolute.name
        return cls(role, path, name, sha256 or content_sha256(path))


class Claim:
    """A stage's claim on one output: knows whether the work is done already, and how to record it when it is.

    The key is the hash of kind, schema, stage, options, seed, version and inputs. An output whose record has the
    same key is up to date; a folder only while its files are as they were written, and while what the stage writes
    `beside` it is there.
    """

    def __init__(
        self,
        out: Path,
        *,
        kind: str,
        stage: str,
        options: Any,
        inputs: list[Input],
        beside: Sequence[Path] = (),
        force: bool = False,
    ) -> None:
        self.out = out
        self.kind = kind
        self.stage = stage
        self.inputs = inputs
        values = dataclasses.asdict(options)
        self.seed = values.pop("seed", None)
        self.options = json.loads(json.dumps(values))
        self.key = self._key()
        self._check_target()
        # Of several processes of a launch the first alone touches what lies around the output.
        helping = os.environ.get("RANK", "0") != "0"
        if not helping:
            atomic.sweep(out)
        self._existing = read_record(out) if out.exists() else None
        self.up_to_date = not force and self._is_up_to_date() and all(path.exists() for path in beside)
        self._created: list[Path] = []
        if not self.up_to_date and not helping:
            self._created = atomic.ensure_writable(out)
            self._remove_other_workspaces(everything=force)

    def _key(self) -> str:
        recipe = {
            "kind": self.kind,
            "schema": SCHEMA_VERSION[self.kind],
            "stage": self.stage,
            "embedtrain": __version__,
            "options": self.options,
            "seed": self.seed,
            "inputs": [[item.role, item.sha256] for item in self.inputs],
        }
        return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()

    def _check_target(self) -> None:
        wants_file = self.kind in ("mined", "scored")
        if wants_file and self.out.suffix != ".parquet":
            raise UsageError(f"--out {self.out}: a {self.kind} artifact is a file that ends in .parquet")
        out = self.out.resolve()
        if out == Path.cwd().resolve():
            raise UsageError(f"--out {self.out} is the current folder; name a folder in it")
        for item in self.inputs:
            source = item.path.resolve()
            if out == source:
                raise UsageError(f"--out {self.out} is also the {item.role} that is read; choose another --out")
            if out.is_relative_to(source) or source.is_relative_to(out):
                inside = "inside" if out.is_relative_to(source) else "around"
                raise UsageError(
                    f"--out {self.out} lies {inside} the {item.role} {item.path} and would change it; "
                    "choose another --out"
                )
        if not self.out.exists():
            return
        if wants_file != self.out.is_file():
            raise UsageError(f"--out {self.out} is a {'folder' if wants_file else 'file'}; choose another --out")
        try:
            record = read_record(self.out)
        except EmbedtrainError as error:
            raise UsageError(
                f"--out {self.out} is there and cannot be read; remove it, or choose another --out"
            ) from error
        occupied = self.out.is_file() or any(self.out.iterdir())
        if record is None and occupied:
            raise UsageError(f"--out {self.out} exists and was not made by embedtrain; choose another --out")
        if record is not None and record.get("kind") != self.kind:
            raise UsageError(
                f"--out {self.out} holds a {record.get('kind')} artifact and this makes a {self.kind} one; "
                "choose another --out"
            )

    def _is_up_to_date(self) -> bool:
        record = self._existing
        if record is None or record.get("key") != self.key:
            return False
        return self.out.is_file() or record.get("content") == content_sha256(self.out)

    @property
    def workspace(self) -> Path:
        """A folder beside the output for what a killed run can go on from; `finish` removes it."""
        return self.out.parent / f".{self.out.name}.work-{self.key[:12]}"

    def _remove_other_workspaces(self, *, everything: bool) -> None:
        for entry in self.out.parent.iterdir():  # no glob: a name may hold a bracket
            if entry.name.startswith(f".{self.out.name}.work-") and (everything or entry != self.workspace):
                atomic.remove(entry)

    @property
    def record(self) -> dict[str, Any]:
        """The record of the finished output."""
        if self._existing is None:
            raise EmbedtrainError(f"{self.out} has no record; make it again with --force")
        return self._existing

    def make_record(self, *, rows: int, dropped: Mapping[str, int], summary: Mapping[str, Any]) -> dict[str, Any]:
        """The record to store with an output of `rows` rows; `summary` holds the numbers the command prints."""
        ancestry: dict[str, Any] = {}
        for item in self.inputs:
            parent = read_record(item.path)
            if parent is not None:
                parent = dict(parent)
                ancestry |= parent.pop("ancestry", {})
                parent.pop("summary", None)
                ancestry[item.sha256] = parent
        return {
            "kind": self.kind,
            "schema": SCHEMA_VERSION[self.kind],
            "stage": self.stage,
            "embedtrain": __version__,
            "key": self.key,
            "options": self.options,
            "seed": self.seed,
            "inputs": [{"role": i.role, "name": i.name, "sha256": i.sha256} for i in self.inputs],
            "rows": rows,
            "dropped": dict(dropped),
            "summary": dict(summary),
            "ancestry": dict(sorted(ancestry.items())),
        }

    def write_table(self, table: Any, *, dropped: Mapping[str, int], summary: Mapping[str, Any]) -> None:
        """Write a pyarrow table as the output, with its record in the footer, in one step."""
        with self.table_writer(table.schema) as writer:
            writer.write(table)
            writer.finish(dropped=dropped, summary=summary)

    @contextlib.contextmanager
    def table_writer(self, schema: Any) -> "Iterator[TableWriter]":
        """Write the output table by table; it takes its name when the block ends well, after `finish`."""
        import pyarrow.parquet

        with atomic.atomic_file(self.out) as temporary:
            # Scores hardly repeat: without a dictionary of them 8,192 mined rows took 7.3 MB for 8.9, and a third less time.
            repeating = [path for path, kind in _leaves(schema) if not pyarrow.types.is_floating(kind)]
            with pyarrow.parquet.ParquetWriter(
                temporary, schema, compression="zstd", use_dictionary=repeating
            ) as file:
                writer = TableWriter(self, file)
                yield writer
            if writer.record is None:
                raise RuntimeError("finish() was not called: the artifact has no record")
        self._finish(writer.record)

    def write_folder(
        self, folder: Path, *, rows: int, dropped: Mapping[str, int], summary: Mapping[str, Any]
    ) -> None:
        """Add the record to a filled temporary folder; call last inside `atomic_folder(claim.out)`."""
        record = self.make_record(rows=rows, dropped=dropped, summary=summary)
        record["content"] = content_sha256(folder)
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
        (folder / RECORD_FILE).write_text(text, encoding="utf-8")
        self._finish(record)

    def _finish(self, record: dict[str, Any]) -> None:
        self._existing = record

    def abandon(self) -> None:
        """Remove the empty folders that were made for an output that did not come."""
        atomic.remove_empty([*self._created, self.workspace])

    def close(self) -> None:
        """Remove what only an unfinished run needs; called once the output stands under its own name."""
        atomic.remove(self.workspace)


def _leaves(schema: Any) -> "Iterator[tuple[str, Any]]":
    """Names of a table's columns as Parquet has them, and what their values are."""
    import pyarrow

    for column in schema:
        if pyarrow.types.is_list(column.type):
            yield f"{column.name}.list.element", column.type.value_type
        else:
            yield column.name, column.type


class TableWriter:
    """The rows of a Parquet artifact as they come, and its record at the end."""

    def __init__(self, claim: Claim, file: Any) -> None:
        self._claim = claim
        self._file = file
        self._rows = 0
        self._waiting: list[Any] = []
        self.record: dict[str, Any] | None = None

    def write(self, table: Any) -> None:
        """Add the rows of a pyarrow table. Row groups have the same sizes however the rows come: so have the bytes."""
        self._rows += table.num_rows
        self._waiting.append(table)
        while (waiting := sum(part.num_rows for part in self._waiting)) >= ROW_GROUP:
            self._write_group(waiting)

    def _write_group(self, waiting: int) -> None:
        import pyarrow as pa

        rows = pa.concat_tables(self._waiting)
        self._file.write_table(rows.slice(0, ROW_GROUP).combine_chunks())
        self._waiting = [rows.slice(ROW_GROUP)] if waiting > ROW_GROUP else []

    def finish(self, *, dropped: Mapping[str, int], summary: Mapping[str, Any]) -> None:
        """Put the record into the footer; nothing is written after it."""
        if waiting := sum(part.num_rows for part in self._waiting):
            self._write_group(waiting)
        self.record = self._claim.make_record(rows=self._rows, dropped=dropped, summary=summary)
        self._file.add_key_value_metadata({RECORD_KEY: json.dumps(self.record).encode()})


def beyond_limit(queries: int, limit: int | None) -> dict[str, int]:
    """What `--limit` leaves out of so many queries, as a counted drop; nothing where it leaves out none."""
    return {"query beyond --limit": queries - limit} if limit is not None and queries > limit else {}


def find_input(record: Mapping[str, Any], role: str, artifact: Path) -> Path:
    """Find the input `role` of an artifact again: under its recorded name, with the recorded content.

    The name is tried from the current folder and from the artifact's own folder.
    """
    entry = next((item for item in record["inputs"] if item["role"] == role), None)
    if entry is None:
        raise UsageError(f"{artifact} does not say which {role} it was made from; give --{role}")
    for start in (Path(), artifact.parent, artifact.parent.parent):
        path = Path(os.path.normpath(start / entry["name"]))
        if path.exists() and content_sha256(path) == entry["sha256"]:
            return path
    raise UsageError(
        f"{artifact} was made from the {role} {entry['name']}, which is not here or has changed since; "
        f"give --{role}, or make {artifact} again"
    )


def check_same_input(record: Mapping[str, Any], role: str, sha256: str, artifact: Path) -> None:
    """Refuse a `role` input that is not the one an artifact was made from (ids would point to other texts)."""
    entry = next((item for item in record["inputs"] if item["role"] == role), None)
    if entry is not None and entry["sha256"] != sha256:
        raise EmbedtrainError(
            f"{artifact} was made from another {role} ({entry['name']}) than the one given; "
            f"give that one, or make {artifact} again"
        )
