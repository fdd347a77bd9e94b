"""Memory that training frees and takes again every step stays with the process, where glibc would give it back.

A tensor above 128 kB is mapped anew each time by default, and every page of it is cleared by the kernel at its first
touch; the graphs of a step are gigabytes of such tensors.
"""

import contextlib
import ctypes
import sys

# mallopt's parameters, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_NEVER = 2**31 - 1


def keep_memory() -> bool:
    """Tell glibc's malloc to keep what is freed; False where there is no such malloc."""
    if not sys.platform.startswith("linux"):
        return False
    with contextlib.suppress(OSError, AttributeError):  # another C library has no mallopt
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_MMAP_THRESHOLD, 1 << 30)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))
    return False
