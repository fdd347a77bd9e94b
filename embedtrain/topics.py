"""Topics of texts: clusters of their vectors, for batches of one topic (TAS-B, Hofstätter et al. 2021)."""

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from threadpoolctl import threadpool_limits

_SAMPLE = 4_096  # vectors of one update


def topics(vectors: NDArray[np.float32], count: int, seed: int) -> NDArray[np.int64]:
    """The topic of each of the vectors (n, d): numbers from 0, at most `count` of them. (n,)

    k-means on mini-batches (Sculley 2010), on one thread, so that the order of the sums does not
    hang on their number. Topics have very different sizes; fewer come out than asked for where there are fewer
    different vectors.
    """
    if vectors.ndim != 2 or count < 1:
        raise ValueError(f"vectors (n, d) and one topic at least are needed, not {vectors.shape} and {count}")
    distinct = len(np.unique(vectors, axis=0)) if len(vectors) <= _SAMPLE else len(vectors)
    with threadpool_limits(limits=1):
        found = MiniBatchKMeans(
            n_clusters=min(count, distinct), batch_size=_SAMPLE, n_init=3, random_state=seed
        ).fit_predict(np.ascontiguousarray(vectors, dtype=np.float32))
    return np.unique(found, return_inverse=True)[1].astype(np.int64)
