"""What `doctor` reads off a machine, on made-up machines, and the command on this one.

Breaks that turn a test red: a name server that never answers, HF_HUB_OFFLINE not respected, a host name printed.
"""

import dataclasses
import json
import platform
import socket
import threading
import time
import types
import urllib.error
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from conftest import RunCli

from embedtrain import doctor, models


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("processor : 0\nflags\t\t: fpu sse2 avx512_bf16 amx_bf16\n", "native (avx512_bf16, amx_bf16)"),
        ("flags : sse2 avx avx2\n", "emulated: slower than float32"),
        ("Features : fp asimd bf16 i8mm\n", "native (bf16)"),
        ("Features : fp asimd\n", "emulated: slower than float32"),
        ("model name : with bf16 in its name\nflags : sse2\n", "emulated: slower than float32"),
    ],
)
def test_bf16_of_a_cpu(tmp_path: Path, text: str, answer: str) -> None:
    assert doctor.native_bf16(write(tmp_path / "cpuinfo", text)) == answer


def test_a_machine_without_proc(tmp_path: Path) -> None:
    assert doctor.native_bf16(tmp_path / "none").startswith("unknown")
    assert doctor._memory(tmp_path / "none", [tmp_path / "none"]).startswith("unknown")
    assert doctor._memory(write(tmp_path / "odd", "MemTotal: much\n"), [tmp_path / "none"]).startswith("unknown")


def test_memory_and_the_limit_of_a_container(tmp_path: Path) -> None:
    meminfo = write(tmp_path / "meminfo", "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n")
    assert doctor._memory(meminfo, [tmp_path / "none"]) == "16.0 GiB, 8.0 GiB available"
    assert doctor._memory(meminfo, [write(tmp_path / "max", "max\n")]) == "16.0 GiB, 8.0 GiB available"
    limited = doctor._memory(meminfo, [write(tmp_path / "limit", "4294967296\n")])
    assert limited == "16.0 GiB, 8.0 GiB available, this container may use 4.0 GiB"


def test_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._cache(tmp_path / "none") == f"{tmp_path / 'none'}, empty"
    write(tmp_path / "vectors", "x" * 2048)
    assert doctor._cache(tmp_path) == f"{tmp_path}, 2.0 KiB in 1 files"
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert doctor._cache(tmp_path).startswith(f"~/{tmp_path.name}, ")


class _Answer:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def _hub(monkeypatch: pytest.MonkeyPatch, answer: Any) -> str:
    def urlopen(request: Any, timeout: float) -> Any:
        return answer()

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    return doctor._hub()


def test_the_hub_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _hub(monkeypatch, _Answer) == "answers"


def test_the_hub_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise urllib.error.HTTPError("https://huggingface.co", 403, "Forbidden", Message(), None)

    assert _hub(monkeypatch, refuse) == "answers with HTTP 403"


def test_the_hub_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise urllib.error.URLError(socket.gaierror(-2, "Name or service not known"))

    assert _hub(monkeypatch, fail) == "does not answer (Name or service not known)"


def test_the_hub_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "HUB_SECONDS", 0.1)
    released = threading.Event()

    def hang() -> _Answer:
        released.wait(30)
        return _Answer()

    start = time.monotonic()
    assert _hub(monkeypatch, hang).startswith("does not answer within")
    assert time.monotonic() - start < 10
    released.set()


def test_the_hub_is_not_asked_when_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("asked"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert doctor._hub() == "not asked (HF_HUB_OFFLINE is set)"


def test_a_packaged_model_with_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    other = dataclasses.replace(models.PACKAGED[0], weights_sha256="0" * 64)
    monkeypatch.setattr(doctor, "PACKAGED", (other,))
    assert "offline" in str(doctor.examine()[f"packaged {other.name}"])


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [("Old", 2**33, (7, 5)), ("New", 2**36, (9, 0))]
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: len(cards))
    monkeypatch.setattr("torch.cuda.get_device_name", lambda index: cards[index][0])
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda index: cards[index][2])
    monkeypatch.setattr(
        "torch.cuda.get_device_properties", lambda index: types.SimpleNamespace(total_memory=cards[index][1])
    )
    found = doctor._torch()
    assert found["GPU 0"] == "Old, 8.0 GiB, no bf16"
    assert found["GPU 1"] == "New, 64.0 GiB, native bf16"


def test_the_command(run_cli: RunCli) -> None:
    done = run_cli("doctor", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["python"] == platform.python_version()
    assert found["torch threads"] == 1
    assert found[f"packaged {models.MINILM}"] == "found, weights as pinned"
    assert found["model hub"] == "not asked (HF_HUB_OFFLINE is set)"
    for name in ("cores", "memory", "free disk here", "bf16 on the CPU", "cache", *doctor.LIBRARIES):
        assert found[name]
    assert socket.gethostname() not in done.stdout
