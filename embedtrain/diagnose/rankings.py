"""What an evaluation's runs say of a model: its hits, those of BM25, and the fusion of both."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embedtrain import artifacts, trec
from embedtrain.collection import Collection
from embedtrain.hits import Hits, Ties, fuse
from embedtrain.systems import Questions, file_name

LEXICAL = "BM25"


@dataclass(frozen=True)
class Rankings:
    """Hits of the same questions in corpus positions, and the language of BM25's words."""

    questions: Questions
    model: Hits
    lexical: Hits
    hybrid: Hits
    language: str


def of(folder: Path, model: str, collection: Collection) -> Rankings | str:
    """The rankings of a model and of BM25 in an evaluation of this collection; a sentence where it has not both."""
    record = artifacts.require_kind(folder, "evaluation")
    sources = [item["sha256"] for item in record["inputs"] if item["role"] == "collection"]
    if collection.as_input().sha256 not in sources:
        return f"{folder} measured another collection, or this one before it changed, so where {model} fails is not known"
    systems: dict[str, Any] = record["summary"].get("systems", {})
    own = [
        name
        for name, system in systems.items()
        if system.get("about", {}).get("model") == model and "compressed" not in system.get("about", {})
    ]
    if not own:
        return f"{folder} did not measure {model}, so where it fails is not known; name it in eval"
    if LEXICAL not in systems:
        return (
            f"{folder} has no BM25 beside {model}, so what words alone would find is not known; add --bm25 to eval"
        )
    options = record["options"]
    questions = Questions.of(
        collection,
        options["split"],
        options.get("limit"),
        no_relevant=options["no_relevant"],
        keep_self=options["keep_self"],
    )
    found = [
        _hits(folder / "runs" / f"{file_name(name)}.trec", questions, collection) for name in (own[0], LEXICAL)
    ]
    hybrid = fuse(found, Ties(collection.corpus.ids), int(options["top_k"]))
    return Rankings(questions, found[0], found[1], hybrid, options["language"])


def _hits(path: Path, questions: Questions, collection: Collection) -> Hits:
    run = trec.read_run(path)
    hits = Hits([], [])
    for query in questions.ids:
        ranked = run.get(query)
        ids = ranked.ids if ranked else []
        hits.positions.append(np.array([collection.corpus.position[document] for document in ids], dtype=np.int64))
        hits.scores.append(ranked.scores if ranked else np.empty(0, dtype=np.float32))
    return hits
