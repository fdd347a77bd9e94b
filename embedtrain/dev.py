"""A model in training measured on a split, with the code of `eval`."""

from collections.abc import Sequence

import numpy as np

from embedtrain import console, search
from embedtrain.collection import Collection
from embedtrain.encoder import Encoder
from embedtrain.metrics import score_run
from embedtrain.systems import Questions, without_self

MEASURE = "nDCG@10"


class Measured:
    """nDCG@10 on a split; over the whole corpus, or its judged documents and a seeded sample of others.

    Raises EmbedtrainError where the split is not there or no query of it has a relevant document.
    """

    def __init__(self, collection: Collection, split: str, documents: int, seed: int) -> None:
        self._questions = Questions.of(collection, split, None)
        self._ids: Sequence[str] = collection.corpus.ids
        self._texts: Sequence[str] = collection.corpus
        self.said = f"{len(self._questions.ids):,} queries, {len(self._ids):,} documents"
        if 0 < documents < len(self._ids):
            places = self._sample(documents, seed)
            self._ids = [collection.corpus.ids[place] for place in places]
            self._texts = [collection.corpus[place] for place in places]
            self.said = (
                f"{len(self._questions.ids):,} queries, {len(places):,} of {len(collection.corpus):,} documents"
            )

    def _sample(self, documents: int, seed: int) -> list[int]:
        judged = {document for row in self._questions.qrels.values() for document in row}
        places = [place for place, identifier in enumerate(self._ids) if identifier in judged]
        others = [place for place, identifier in enumerate(self._ids) if identifier not in judged]
        drawn = np.random.default_rng([seed, len(others)]).permutation(len(others))
        return sorted(places + [others[int(n)] for n in drawn[: max(0, documents - len(places))]])

    def __call__(self, encoder: Encoder, progress: console.Progress) -> float:
        questions = self._questions
        queries = encoder.encode(questions.texts, "query", stored=False)
        documents = encoder.encode(self._texts, "document", progress, stored=False)
        found = search.dense(queries, documents, self._ids, 11, similarity=encoder.similarity, device=encoder.gpu)
        hits, _ = without_self(found, questions, self._ids, 10)
        return float(np.mean(score_run(hits, self._ids, questions.qrels, MEASURE)))
