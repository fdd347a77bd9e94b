"""Rephrased queries: a language model says the training queries in other words, for the documents that answer them.

Queries that people asked are few and their words are their own; those of a dev or test split are measured with and
stay as they are.
"""

from collections.abc import Callable

from embedtrain.collection import Texts
from embedtrain.config import GenerateOptions
from embedtrain.console import Progress
from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.draft import TRAIN, Draft
from embedtrain.harvest.generated import REPHRASED, generate
from embedtrain.harvest.generated.prompts import find_prompt

# A training pair that was there before: what was rephrased is not rephrased again, also not after a kill.
_OWN = "split = ?1 AND grade > 0 AND source != ?2"


def rephrases(options: GenerateOptions) -> bool:
    """Whether the prompt asks for queries in other words: the built-in one, or a file of that name."""
    return bool(options.generate) and find_prompt(options.prompt).name == "rephrase"


def _names(draft: Draft) -> tuple[int, int]:
    return draft.name("split", TRAIN), draft.name("source", REPHRASED)


def _queries(draft: Draft) -> Texts:
    """Queries with a relevant document in train, and in no other split."""
    statement = (
        f"SELECT id, '', text FROM queries WHERE n IN (SELECT query FROM pairs WHERE {_OWN})"
        " AND n NOT IN (SELECT query FROM pairs WHERE split != ?1) ORDER BY n"
    )
    return Texts.of(
        ((found, title, text) for found, title, text in draft.read(statement, _names(draft))), titled=False
    )


def _positives(draft: Draft) -> Callable[[str], list[str]]:
    """For a query's id the ids of its relevant documents, as they came."""
    statement = (
        "SELECT documents.id FROM pairs JOIN documents ON documents.n = pairs.document"
        f" WHERE {_OWN} AND query = (SELECT n FROM queries WHERE id = ?3) ORDER BY p"
    )
    names = _names(draft)
    return lambda identifier: [found for (found,) in draft.read(statement, (*names, identifier))]


def rephrase(options: GenerateOptions, draft: Draft, progress: Progress, corpus: Callable[[], Texts]) -> None:
    """Add pairs (rephrased query, each relevant document of its query) to train, as source `rephrased`.

    `corpus` makes the documents that the round trip searches. Raises EmbedtrainError where train has no query, and as
    `generate` does.
    """
    queries = _queries(draft)
    if not len(queries):
        there = f" (its splits are {', '.join(draft.splits())})" if draft.splits() else ""
        raise EmbedtrainError(
            f"--prompt {options.prompt} has nothing to rephrase: none of the {draft.count('queries'):,} queries has a "
            f"relevant document in train alone{there}; add a source of training pairs, or let --prompt questions "
            "write queries about the documents"
        )
    documents = corpus() if options.round_trip else None
    generate(queries, options, draft, progress, corpus=documents, positives=_positives(draft))
