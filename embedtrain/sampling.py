"""Which of the eligible candidates become negatives: pure functions of their order, their scores and a seeded draw.

Every query draws from (seed, its own id): its negatives depend on no other query, and on no order of work.
"""

import hashlib
import zlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from embedtrain.candidates import Candidates, Ints
from embedtrain.errors import UsageError
from embedtrain.negatives import CODE, ELIGIBLE, JUDGED, SELECTED, Codes, Labels

RANDOM = "random"  # in a mix: documents drawn from the whole corpus
_STAGE = zlib.crc32(b"mine")

Rng = np.random.Generator
# Places of the chosen, `count` > 0 at most, among `scores` (n > 0,) in rank order; `positive`: the lowest positive's.
Sampler = Callable[[NDArray[np.float64], float, int, Rng], Ints]


def generator(seed: int, query_id: str, what: str) -> Rng:
    """The random numbers of one query for one purpose."""
    digest = hashlib.blake2b(f"{what}\0{query_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.random.default_rng([seed, _STAGE, int.from_bytes(digest, "big")])


def top(scores: NDArray[np.float64], positive: float, count: int, rng: Rng) -> Ints:
    """The first ones."""
    return np.arange(min(count, len(scores)))


def uniform(scores: NDArray[np.float64], positive: float, count: int, rng: Rng) -> Ints:
    """Any, each as likely."""
    return np.sort(rng.permutation(len(scores))[:count])


def stratified(scores: NDArray[np.float64], positive: float, count: int, rng: Rng) -> Ints:
    """One from each of `count` equal shares of the candidates in the order of their scores."""
    if len(scores) <= count:
        return np.arange(len(scores))
    order = np.argsort(-scores, kind="stable")
    return np.sort([int(rng.choice(share)) for share in np.array_split(order, count)])


def softmax(scores: NDArray[np.float64], positive: float, count: int, rng: Rng) -> Ints:
    """Those near the positive's score more likely: weights exp(-((s - positive) / d)^2), drawn without replacement.

    SimANS (Zhou et al. 2022, eq. 7, with b = 0); d, the standard deviation of the candidates' scores, stands for its
    constant a, which would have another meaning for every model. Drawn by Gumbel keys (Kool et al. 2019).
    """
    spread = float(scores.std()) or 1.0
    logits = -(((scores - positive) / spread) ** 2)
    keys = logits + rng.gumbel(size=len(scores))
    return np.sort(np.argsort(-keys, kind="stable")[:count])


SAMPLERS: dict[str, Sampler] = {"top": top, "random": uniform, "stratified": stratified, "softmax": softmax}


def check_sampler(name: str) -> None:
    """Raise UsageError for a way of sampling there is none of."""
    if name not in SAMPLERS:
        raise UsageError(f"--sampling {name}: {', '.join(SAMPLERS)} are the ways")


def parse_mix(text: str, retrievers: Sequence[str]) -> dict[str, int]:
    """Read `dense=2,bm25=1,random=1` as negatives by where they come from; UsageError for anything else."""
    mix: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, count = (piece.strip() for piece in part.partition("="))
        if name not in (*retrievers, RANDOM):
            raise UsageError(f"--mix {text}: {name!r} is none of {', '.join([*retrievers, RANDOM])}")
        if name in mix or not count.isdecimal() or not int(count):
            raise UsageError(f"--mix {text}: {part!r} is no NAME=COUNT with a count from 1, each name once")
        mix[name] = int(count)
    return mix


def select(
    candidates: Candidates,
    codes: Codes,
    labels: Labels,
    lowest_positive: dict[str, NDArray[np.float32]],
    *,
    negatives: int,
    mix: dict[str, int],
    main: str,
    way: str,
    seed: int,
) -> tuple[Codes, NDArray[np.bool_]]:
    """Codes with the chosen ELIGIBLE ones turned into SELECTED, and which candidates serve as negatives.

    Documents judged not relevant come first. The rest, up to `negatives`, is sampled from the fused order by the
    scores of the retriever `main`; with a `mix` each share is sampled from its own list by its own scores, none twice.
    Where there are fewer, fewer are selected: nothing is ever filled up.
    """
    codes = codes.copy()
    chosen = np.zeros(len(codes), dtype=bool)
    wanted = sum(mix.values()) if mix else negatives
    shares = mix or {main: wanted}
    eligible, judged = codes == CODE[ELIGIBLE], codes == CODE[JUDGED]
    listed = candidates.rank > 0
    draws = way != "top"
    for query, identifier in enumerate(labels.ids):
        rows = np.arange(candidates.offsets[query], candidates.offsets[query + 1])
        taken = rows[judged[rows]][:wanted]
        chosen[taken] = True
        room = wanted - len(taken)
        free = rows[eligible[rows]]
        for name, count in shares.items():
            share = free[~chosen[free] & _of(candidates, free, name, listed, mixed=bool(mix))]
            if mix and name != RANDOM:
                share = share[np.argsort(candidates.ranks[name][share], kind="stable")]
            count = min(count, room)
            if not count or not len(share):
                continue
            if name == RANDOM:
                picked = share[:count]  # drawn by chance, in the order they were drawn
            elif draws:
                scores = candidates.scores[name][share].astype(np.float64)
                rng = generator(seed, identifier, f"select {name}")
                positive = float(lowest_positive[name][query])
                picked = share[SAMPLERS[way](scores, positive, count, rng)]
            else:
                picked = share[:count]
            chosen[picked] = True
            room -= len(picked)
    codes[chosen & eligible] = CODE[SELECTED]
    return codes, chosen


def _of(
    candidates: Candidates, rows: Ints, name: str, listed: NDArray[np.bool_], *, mixed: bool
) -> NDArray[np.bool_]:
    """Which of `rows` a share may take: those of its list; the drawn ones for `random`; all listed without a mix."""
    if name == RANDOM:
        return ~listed[rows]
    return candidates.found_by(name)[rows] if mixed else listed[rows]


def draw(corpus_size: int, count: int, seed: int, query_id: str) -> Ints:
    """Places, by ascending id, of documents drawn for a query: three times as many as wanted, for those that rules
    take away, each once.
    """
    rng = generator(seed, query_id, "draw")
    most = min(corpus_size, 3 * count + 10)
    if corpus_size <= 4 * most:
        return rng.permutation(corpus_size)[:most]
    found = dict.fromkeys(rng.integers(0, corpus_size, size=2 * most).tolist())
    return np.array(list(found)[:most], dtype=np.int64)
