"""Titles of a corpus as queries: title -> text, the pairs that every corpus with titles has."""

from pathlib import Path

from embedtrain import readers
from embedtrain.collection import is_blank, table_files
from embedtrain.config import HarvestOptions
from embedtrain.console import Progress
from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.beir import read_id, read_text
from embedtrain.harvest.draft import Draft
from embedtrain.harvest.identity import without_copy


def read(source: Path, options: HarvestOptions, draft: Draft, progress: Progress) -> None:
    """Add (title, text) pairs of a BEIR corpus to the draft.

    The title became the query, so the document's own title column stays empty and a text that repeats its title at
    the start loses it: what is to be learnt is what the text says, not how to copy. `origin` keeps the first id.
    """
    paths = table_files(source, "corpus") if source.is_dir() else [source]
    for step, path in enumerate(paths, start=1):
        for number, row in draft.new(f"{path} titles", readers.rows(path, draft.dropped)):
            title = read_text(row, "title", path, number, default="").strip()
            text = read_text(row, "text", path, number)
            where = f"{path} line {number}"
            if is_blank(title):
                draft.drop("document without a title", text=text, where=where)
                continue
            body = without_copy([title], text)
            if is_blank(body):
                draft.drop("document without a text", title=title, where=where)
                continue
            identifier = draft.add_weak_document("", body, {"origin": read_id(row, path, number)})
            draft.add_weak_pair(title, identifier, "title")
        progress("read titles", step, len(paths), path.name)
    if not any(draft.items(f"{path} titles") for path in paths):
        raise EmbedtrainError(f"the corpus of {source} is empty; documents with titles are needed")
