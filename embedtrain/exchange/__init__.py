"""`export`: a collection and its mined negatives in the formats that other training code reads.

beir           folder   corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv
msmarco        folder   collection.tsv, queries.tsv, qrels.tsv, triples.tsv (ids; no headers)
triplets       file     query, positive, negative                      sentence-transformers
tuples         file     query, positive, negative_1, ..., negative_n   sentence-transformers
lists          file     query, documents, labels                       sentence-transformers
flagembedding  file     query, pos, neg[, pos_scores, neg_scores]      JSONL
tevatron       file     query_id, query, positive_passages, negative_passages   JSONL
"""

from pathlib import Path
from typing import Any

from embedtrain import atomic
from embedtrain.artifacts import Claim, require_kind
from embedtrain.collection import Collection
from embedtrain.config import ExportOptions
from embedtrain.console import Progress
from embedtrain.errors import UsageError
from embedtrain.exchange.folders import beir, msmarco
from embedtrain.exchange.formats import FOLDERS, FORMATS, JSONL, LABELS, TABLES, Export, Exported

__all__ = ["FORMATS", "JSONL", "Exported", "check", "export", "summary"]

_FOLDERS = {"beir": beir, "msmarco": msmarco}


def check(options: ExportOptions, out: Path, *, mined: bool, scored: bool, force: bool = False) -> None:
    """Raise UsageError for options that do not go together, and for an output that cannot be."""
    if options.to not in FORMATS:
        raise UsageError(f"--to {options.to}: {', '.join(FORMATS)} are the formats")
    if options.labels not in LABELS:
        raise UsageError(f"--labels {options.labels}: {', '.join(LABELS)} are the labels")
    if options.labels == "scores" and not (options.to == "lists" and scored):
        raise UsageError("--labels scores needs --to lists and a scored artifact")
    if options.to == "beir" and mined:
        raise UsageError("--to beir writes what was judged, not what was mined; leave the mined artifact out")
    if options.to != "tuples" and (options.ragged or options.negatives is not None):
        raise UsageError(f"--ragged and --negatives are of --to tuples, not of {options.to}")
    if options.negatives is not None and options.negatives < 0:
        raise UsageError(f"--negatives {options.negatives}: 0 or more")
    if options.to in FOLDERS:
        if out.exists() and not force:
            raise UsageError(f"--out {out} exists; choose another --out")
        return
    endings = (".parquet", ".jsonl") if options.to in TABLES else (".jsonl",)
    if out.suffix not in endings:
        raise UsageError(f"--out {out}: {options.to} is a file that ends in {' or '.join(endings)}")
    if out.is_dir():
        raise UsageError(f"--out {out} is a folder; choose another --out")
    if out.exists() and not force:
        raise UsageError(f"--out {out} exists; choose another --out, or write over it with --force")


def export(
    collection: Collection,
    mined: Path | None,
    out: Path,
    options: ExportOptions,
    progress: Progress,
    *,
    claim: Claim | None = None,
    force: bool = False,
) -> Exported:
    """Write a collection, or a mined or scored artifact of it, in another format; whole or absent.

    Folders get the record of their `claim`; files are as their readers want them, and carry none. Rows stream: memory
    holds the collection and a batch. Raises UsageError for options that cannot be, EmbedtrainError where nothing is left.
    """
    scored = mined is not None and require_kind(mined, "mined", "scored")["kind"] == "scored"
    check(
        options,
        out,
        mined=mined is not None,
        scored=scored,
        force=claim is not None or (force and options.to not in FOLDERS),
    )
    work = Export(collection, mined, scored, options, progress)
    if options.to in FOLDERS:
        with atomic.atomic_folder(out) as folder:
            work.tally.rows = _FOLDERS[options.to](work, folder)
            made = work.close()
            if claim is not None:
                claim.write_folder(folder, rows=made.rows, dropped=made.dropped, summary=summary(made, options))
    else:
        atomic.sweep(out)
        atomic.ensure_writable(out)
        with atomic.atomic_file(out) as path:
            work.write_file(path, parquet=out.suffix == ".parquet")
            made = work.close()
    progress("export", 1, 1, options.to)
    return made


def summary(made: Exported, options: ExportOptions) -> dict[str, Any]:
    """What the command prints of an export."""
    return {"to": options.to, **({"notes": made.notes} if made.notes else {})}
