"""In what models compute: by the flags of made-up processors.

Breaks that turn a test red: bfloat16 by default, a model name that holds "bf16" taken for a flag, compute capability
7.5 taken for one with bfloat16, a machine without /proc taken for one with it, any other word taken for float32.
"""

from pathlib import Path

import pytest

from embedtrain import precision
from embedtrain.errors import UsageError

CPUS = {
    "flags : sse2 avx avx2\n": "float32",
    "flags : sse2 avx512f avx512_bf16\n": "bfloat16",
    "processor : 0\nflags\t\t: fpu sse2 amx_bf16\n": "bfloat16",
    "model name : bf16 avx512_bf16\nflags : sse2\n": "float32",
    "Features : fp asimd bf16 i8mm\n": "bfloat16",
    "Features : fp asimd\n": "float32",
}


@pytest.mark.parametrize(("text", "expected"), CPUS.items())
def test_auto_follows_the_flags_of_the_cpu(tmp_path: Path, text: str, expected: str) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(text, encoding="utf-8")
    assert precision.resolve("auto", cpuinfo=cpuinfo) == expected
    for wanted in ("float32", "bfloat16"):
        assert precision.resolve(wanted, cpuinfo=cpuinfo) == wanted


@pytest.mark.parametrize(
    ("capability", "expected"), [((7, 5), "float32"), ((8, 0), "bfloat16"), ((9, 0), "bfloat16")]
)
def test_auto_follows_the_capability_of_the_gpu(
    tmp_path: Path, capability: tuple[int, int], expected: str
) -> None:
    assert precision.resolve("auto", capability, tmp_path / "none") == expected


def test_a_precision_there_is_none_of_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="--precision float16: auto, float32, bfloat16 are the choices"):
        precision.resolve("float16")


def test_what_is_not_known_gets_float32(tmp_path: Path) -> None:
    assert precision.bf16_flags(tmp_path / "none") is None
    assert precision.resolve("auto", cpuinfo=tmp_path / "none") == "float32"
