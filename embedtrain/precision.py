"""In which number format a model computes vectors: bfloat16 only where the processor or GPU has it, unless asked.

The kernel's list of flags is read: PyTorch computes bfloat16 everywhere, by emulation slower than float32.
"""

from pathlib import Path
from typing import Literal

from embedtrain.config import PRECISIONS, TRAINING_PRECISIONS
from embedtrain.errors import UsageError

Precision = Literal["float32", "bfloat16"]

# NVIDIA multiplies bfloat16 from compute capability 8 on.
CAPABILITY = (8, 0)

_X86_FLAGS = ("avx512_bf16", "amx_bf16")
_ARM_FEATURES = ("bf16", "svebf16")


def bf16_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str] | None:
    """The flags of a CPU that multiplies bfloat16 itself; empty where there are none, None where nothing is known."""
    try:
        text = cpuinfo.read_text("utf-8", "replace")
    except OSError:
        return None
    flags: set[str] = set()
    for line in text.splitlines():
        name, _, values = line.partition(":")
        if name.strip() in ("flags", "Features"):
            flags.update(values.split())
    return [flag for flag in (_X86_FLAGS if flags & {"sse2", "avx"} else _ARM_FEATURES) if flag in flags]


def check_precision(wanted: str) -> str:
    """`wanted`, if it is a precision that encoding can be asked for; else UsageError."""
    return _one_of(wanted, PRECISIONS)


def check_training_precision(wanted: str) -> str:
    """The same for training."""
    return _one_of(wanted, TRAINING_PRECISIONS)


def _one_of(wanted: str, choices: tuple[str, ...]) -> str:
    if wanted not in choices:
        raise UsageError(f"--precision {wanted}: {', '.join(choices)} are the choices")
    return wanted


def resolve_training(wanted: str, capability: tuple[int, int] | None = None) -> str:
    """What layers compute in during training; besides what encoding knows there is float16, with loss scaling."""
    return wanted if wanted == "float16" else resolve(wanted, capability)


def resolve(
    wanted: str, capability: tuple[int, int] | None = None, cpuinfo: Path = Path("/proc/cpuinfo")
) -> Precision:
    """What `wanted` (auto, float32, bfloat16) means on a GPU of a compute capability, or on the CPU where it is None.

    What is not known to have bfloat16 gets float32.
    """
    if check_precision(wanted) == "auto":
        native = capability >= CAPABILITY if capability is not None else bool(bf16_flags(cpuinfo))
    else:
        native = wanted == "bfloat16"
    return "bfloat16" if native else "float32"
