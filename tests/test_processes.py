"""Two processes do what one does: the same loss, the same gradients, through real processes and gloo.

Deliberate breaks that turn a test here red: gradients averaged instead of summed, outputs gathered in rank order, a
random state of its own for each process, the loss taken over the own outputs only.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from embedtrain import processes
from embedtrain.errors import UsageError
from embedtrain.processes import Processes

SCRIPT = Path(__file__).parent / "two_processes.py"


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def together(count: int, out: Path, *args: str) -> list[dict[str, Tensor]]:
    """Run the script in `count` processes, as a launcher would; what each wrote."""
    out.mkdir()
    port = free_port()
    running = []
    for rank in range(count):
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        if count > 1:
            env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
            env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, str(SCRIPT), str(out), *args]
        running.append(subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True))
    for process in running:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    return [torch.load(out / f"{rank}.pt") for rank in range(count)]


# 7 texts: chunks of 2 leave a short last one; chunks of 7 leave the second process without any (P46). One process, plain and
# with its layers' values kept, is what all are held against (P44).
@pytest.mark.parametrize(
    ("size", "how", "rate", "layers"),
    [
        ("2", "plain", "0.5", "kept"),
        ("2", "cached", "0.5", "kept"),
        ("2", "plain", "0.5", "recomputed"),
        ("2", "cached", "0.5", "recomputed"),
        ("7", "cached", "0", "kept"),
    ],
)
def test_two_processes_equal_one(tmp_path: Path, size: str, how: str, rate: str, layers: str) -> None:
    (alone,) = together(1, tmp_path / "one", size, "plain", rate, "kept")
    both = together(2, tmp_path / "two", size, how, rate, layers)
    assert float(alone["first"]) != float(alone["loss"])
    for found in both:
        assert found["count"] == 2
        assert found["told"] == {"from": 0}
        for name, expected in alone.items():
            if name not in ("count", "told"):
                assert torch.allclose(found[name], expected, atol=1e-6), name
    assert float(alone["0.weight"].abs().max()) > 1e-3


def test_a_gpu_each_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert processes._a_gpu_each(1)
    assert not processes._a_gpu_each(2)


@pytest.mark.parametrize(("setting", "name"), [("FSDP", "FSDP"), ("DEEPSPEED", "DeepSpeed")])
def test_a_model_in_shards_is_refused(monkeypatch: pytest.MonkeyPatch, setting: str, name: str) -> None:
    monkeypatch.setenv(f"ACCELERATE_USE_{setting}", "true")
    with pytest.raises(UsageError, match=f"asks for {name} .*every process here holds the whole model"):
        Processes.join()


def test_what_accelerate_sets_otherwise_is_no_hindrance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "false")
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "")
    assert Processes.join().count == 1


def test_one_process_is_alone() -> None:
    one = Processes()
    assert one.main
    assert list(one.own(3)) == [0, 1, 2]
    assert one.same("x") == "x"
    one.wait()
