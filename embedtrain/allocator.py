"""Memory that training frees and takes again every step stays with the process, where glibc would give it back.

A tensor above 128 kB is mapped anew each time by default, and every page of it is cleared by the kernel at its first
touch; the graphs of a step are gigabytes of such tensors. In the first step of 32 rows with 4 negatives of 256 tokens the
kernel cleared 1.3 million pages, 6 to 8 s of processor time; kept, in the next ones hardly any.
"""

import contextlib
import ctypes
import sys

# mallopt's parameters, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_NEVER = 2**31 - 1


def keep_memory() -> bool:
    """Tell glibc's malloc to keep what is freed; False where there is no such malloc."""
    if not sys.platform.startswith("linux"):
        return False
    with contextlib.suppress(OSError, AttributeError):  # another C library has no mallopt
        mallopt = ctypes.CDLL(None).mallopt
        # One arena for all threads: those of other threads give back whatever is free, whatever the threshold.
        settings = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, 1 << 30), (_TRIM_THRESHOLD, _NEVER))
        return all(mallopt(name, value) for name, value in settings)
    return False
