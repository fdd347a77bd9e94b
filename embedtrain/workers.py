"""Chunks side by side on the cores of a CPU, one thread each.

Splitting every operation of a chunk among threads leaves cores waiting at each of hundreds of small operations; a chunk
a core does not: on two cores a step of MiniLM took 1.10 times as long without (medians of four alternating steps).
What comes out is the same to the bit for any number of workers.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import nn

Item = TypeVar("Item")
Made = TypeVar("Made")


def side_by_side(device: torch.device, model: nn.Module, settings: object, processes: int = 1) -> int:
    """How many chunks are worked on at a time: a core each on a CPU, if nothing that they share can change.

    `settings` is the configuration of the transformer inside: some keep positions that depend on the longest text seen.
    """
    changing = model.training or any(kind in str(settings) for kind in ("dynamic", "longrope"))
    return 1 if device.type != "cpu" or changing or processes > 1 else torch.get_num_threads()


class Workers:
    """Threads that work on items side by side; with a count of 1 the caller's own, as it is."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None
        if count > 1:
            self._pool = ThreadPoolExecutor(count, "chunks", initializer=lambda: torch.set_num_threads(1))

    def map(self, function: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
        """`function` of each item, in their order; few results wait for an earlier one at a time."""
        if self._pool is None:
            yield from map(function, items)
            return
        threads = torch.get_num_threads()
        waiting: deque[Future[Made]] = deque()
        try:
            for item in items:
                waiting.append(self._pool.submit(function, item))
                if len(waiting) > 2 * self.count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # also where an item failed, or the caller has enough
            for one in waiting:
                one.cancel()
            # A worker's number of threads became that of threads yet to come; the caller's own it does not touch.
            if torch.get_num_threads() == threads:
                torch.set_num_threads(threads)
