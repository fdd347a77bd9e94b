"""Memory that training frees and takes again every step stays with the process, in large pages; glibc alone does neither.

A tensor above 128 kB is mapped anew each time by default, and every page of it is cleared by the kernel at its first
touch; the graphs of a step are gigabytes of such tensors. In the first step of 32 rows with 4 negatives of 256 tokens the
kernel cleared 1.3 million pages, 6 to 8 s of processor time; kept, in the next ones hardly any. Linux gives pages of 2 MB
where a process asks for them, 512 times fewer to clear and to look up.
"""

import contextlib
import ctypes
import sys
from pathlib import Path

import torch

from embedtrain import memory

# mallopt's parameters, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_NEVER = 2**31 - 1
_FROM_HEAP = 1 << 30  # what is smaller comes from the heap
_HUGEPAGE = 14  # MADV_HUGEPAGE, from Linux's mman-common.h
_PAGE = 2 << 20
_BLOCK = 256 << 20


def for_training(device: torch.device) -> None:
    """Keep memory, in large pages up to half of the machine's, where the training on this device takes it from there."""
    if device.type == "cpu":
        keep_memory(memory.machine() // 2)


def keep_memory(heap: int) -> bool:
    """Tell glibc's malloc to keep what is freed, and the kernel to back so many bytes of its heap with large pages.

    Those bytes are addresses; memory is taken as it is used. False where there is no such malloc.
    """
    if not sys.platform.startswith("linux"):
        return False
    with contextlib.suppress(OSError, AttributeError):  # another C library has no mallopt
        libc = ctypes.CDLL(None)
        # One arena for all threads: those of other threads give back whatever is free, whatever the threshold.
        settings = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _FROM_HEAP), (_TRIM_THRESHOLD, _NEVER))
        if all(libc.mallopt(name, value) for name, value in settings):
            _ask_for_large_pages(libc, heap)
            return True
    return False


def _counts_addresses(overcommit: Path = Path("/proc/sys/vm/overcommit_memory")) -> bool:
    """Whether addresses that nothing is written to are bounded too: by a limit (`ulimit -v`), or a kernel that is strict."""
    import resource  # Unix alone has it

    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    if any(limit != resource.RLIM_INFINITY for limit in limits):
        return True
    with contextlib.suppress(OSError):
        return overcommit.read_text("ascii").strip() == "2"
    return False


def _ask_for_large_pages(libc: ctypes.CDLL, heap: int) -> None:
    """Make the heap grow by `heap` bytes at once, so that they can be asked for, and free them without a touch."""
    if _counts_addresses():
        return  # these would be missing elsewhere
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.free.restype, libc.free.argtypes = None, (ctypes.c_void_p,)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    blocks: list[int] = []
    while len(blocks) < heap // _BLOCK and (block := libc.malloc(_BLOCK)):
        blocks.append(block)
        start, end = -(-block // _PAGE) * _PAGE, (block + _BLOCK) // _PAGE * _PAGE
        libc.madvise(start, end - start, _HUGEPAGE)  # a kernel without them refuses: as before
    for block in reversed(blocks):  # each joins the free end of the heap
        libc.free(block)
