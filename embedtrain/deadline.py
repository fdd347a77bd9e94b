"""Ending in time: whether one more step fits into `--max-minutes`, with what has to follow it."""

from collections import deque
from collections.abc import Callable

# Steps whose slowest stands for the next one.
_RECENT = 10


class Deadline:
    """Seconds of training, over all the restarts of a run: what was spent before a kill, up to its last checkpoint, counts.

    The result of `--max-minutes` is what so much training gives; a restart gets the rest of it, not all of it again.
    """

    def __init__(
        self,
        max_minutes: float | None,
        *,
        clock: Callable[[], float],
        started: float | None = None,
        spent_before: float = 0.0,
    ) -> None:
        """`started` is what `clock` said when the command began; None: now."""
        self._limit = None if max_minutes is None else 60 * max_minutes
        self._clock = clock
        self._zero = (clock() if started is None else started) - spent_before
        self._steps: deque[float] = deque(maxlen=_RECENT)
        self.evaluation = 0.0  # seconds of the last one
        self.save = 0.0

    @property
    def set(self) -> bool:
        """Whether there is a limit at all."""
        return self._limit is not None

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return self._clock() - self._zero

    def took(self, seconds: float) -> None:
        """A step took this long."""
        self._steps.append(seconds)

    def is_near(self, *, evaluations: int, saves: int) -> bool:
        """Whether another step, `evaluations` of the dev split and `saves` of the model would be too late."""
        if self._limit is None:
            return False
        step = max(self._steps, default=0.0)
        return self.spent + step + evaluations * self.evaluation + saves * self.save > self._limit
