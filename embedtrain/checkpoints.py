"""What a killed run goes on from: whole or absent, for this very run or not used; tensors as safetensors, never pickle.

A checkpoint is a folder named by its step that takes its name when all of it is on disk; only then is the one before
it removed, so that one is there at any moment. Weights that are not trained are not in it: the base model has them.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from embedtrain import atomic, console

# A save may take a twentieth of the time between two saves, and is not worth its while before a minute is over.
SECONDS = 60.0
SHARE = 1 / 20
# Bytes a second, to guess what the first save will take.
_DISK = 200e6

_NAME = re.compile(r"step-(?P<step>\d+)")
_BEST = re.compile(r"best-(?P<step>\d+)\.safetensors")


def identity(model: nn.Module, facts: dict[str, Any]) -> str:
    """The hash of what a checkpoint belongs to: what is trained, by name, shape and type, and `facts` of the run."""
    trained = [[name, list(p.shape), str(p.dtype)] for name, p in model.named_parameters() if p.requires_grad]
    return hashlib.sha256(json.dumps([trained, facts], sort_keys=True).encode()).hexdigest()


class Checkpoints:
    """The checkpoints and the best weights of one run in its workspace. Only the main process may write."""

    def __init__(self, folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, identity: str) -> None:
        self._folder = folder
        self._model = model
        self._optimizer = optimizer
        self._identity = identity
        trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
        self.seconds = 3 * trained / _DISK  # what a save takes: weights and two moments

    def due(self, unsaved: float, *, last: bool = False) -> bool:
        """Whether work of `unsaved` seconds is worth a save; the last one need not wait for a minute to be over."""
        return unsaved >= max(0.0 if last else SECONDS, self.seconds / SHARE)

    def _tensors(self) -> dict[str, Tensor]:
        """What training changes: trained weights, and buffers (copied: some share their memory)."""
        weights = {n: p.detach().contiguous() for n, p in self._model.named_parameters() if p.requires_grad}
        return weights | {name: buffer.detach().clone() for name, buffer in self._model.named_buffers()}

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write weights, optimiser and `state` after `step` steps; remove what they take the place of.

        Best weights other than those of the step `state["best_step"]` go too.
        """
        moments = {
            f"{index}.{name}": value
            for index, entry in self._optimizer.state_dict()["state"].items()
            for name, value in entry.items()
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        with atomic.atomic_folder(self._folder / f"step-{step:09d}") as folder:
            save_file(self._tensors(), folder / "model.safetensors")
            save_file(moments, folder / "optimizer.safetensors")
            text = json.dumps({"identity": self._identity, "step": step, **state})
            (folder / "state.json").write_text(text, encoding="utf-8")
        for entry in self._folder.iterdir():
            other = _NAME.fullmatch(entry.name)
            best = _BEST.fullmatch(entry.name)
            if (other and int(other["step"]) != step) or (best and int(best["step"]) != state["best_step"]):
                atomic.remove(entry)

    def clean(self) -> None:
        """Remove what writers that died left behind."""
        if self._folder.is_dir():
            for entry in list(self._folder.iterdir()):
                if entry.name.startswith(".") and entry.name.endswith((".partial", ".old")):
                    atomic.sweep(self._folder / entry.name[1:].rsplit(".", 2)[0])

    def load(self) -> dict[str, Any] | None:
        """Put the newest whole checkpoint of this run back; its state, or None where there is none.

        One of another run is passed over; one that cannot be read is too, and that is said.
        """
        if not self._folder.is_dir():
            return None
        found = sorted((entry for entry in self._folder.iterdir() if _NAME.fullmatch(entry.name)), reverse=True)
        for folder in found:
            try:
                state = json.loads((folder / "state.json").read_text("utf-8"))
                if state.get("identity") != self._identity:
                    continue
                weights = load_file(folder / "model.safetensors")
                moments = self._read_moments(folder / "optimizer.safetensors")
                if state["best_step"] is not None:
                    load_file(self._best(state["best_step"]))
            except (OSError, ValueError, SafetensorError) as error:
                console.hint(f"the checkpoint {folder} cannot be read and is not used ({error})")
                continue
            self._put(weights)
            optimizer = self._optimizer.state_dict()
            optimizer["state"] = moments
            self._optimizer.load_state_dict(optimizer)
            return state
        return None

    @staticmethod
    def _read_moments(path: Path) -> dict[int, dict[str, Tensor]]:
        entries: dict[int, dict[str, Tensor]] = {}
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 (safe_open is no mapping)
                index, _, name = key.partition(".")
                entries.setdefault(int(index), {})[name] = file.get_tensor(key)
        return entries

    def _put(self, stored: dict[str, Tensor]) -> None:
        own = dict(self._model.named_parameters()) | dict(self._model.named_buffers())
        with torch.no_grad():
            for name, value in stored.items():
                own[name].copy_(value)

    def _best(self, step: int) -> Path:
        return self._folder / f"best-{step}.safetensors"

    def save_best(self, step: int) -> None:
        """Keep the weights after `step` steps as the best so far, beside the best that a checkpoint still names."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with atomic.atomic_file(self._best(step)) as path:
            save_file(self._tensors(), path)

    def load_best(self, step: int) -> None:
        """Put the best weights back."""
        self._put(load_file(self._best(step)))
