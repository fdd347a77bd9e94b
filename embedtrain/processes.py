"""The processes of one run: how many there are, and the few things they do together.

Started by `accelerate launch` or `torchrun` there are several, each with a device of its own; else there is one. Every
process builds the same batches and computes the same loss; what differs is which texts it encodes.
"""

import atexit
import datetime
import os
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, str_to_bool
from torch import Tensor, nn

from embedtrain.errors import UsageError

# A process may wait for another that evaluates or writes: hours are no sign that it is gone.
PATIENCE = datetime.timedelta(days=2)

# What accelerate sets for a model whose weights are spread over the processes.
_SHARDING = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "a parallelism config",
}


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _refuse_sharding() -> None:
    """Say that a launch's way to spread a model is not followed, rather than train as if it had not been asked for."""
    for setting, name in _SHARDING.items():
        if str_to_bool(os.environ.get(setting) or "false"):
            raise UsageError(
                f"the launch asks for {name} ({setting}), but every process here holds the whole model; take "
                "`accelerate launch --multi_gpu` or torchrun, and for less memory --lora, --freeze or "
                "--gradient-checkpointing"
            )


def _a_gpu_each(count: int) -> bool:
    """Whether this machine's processes can have a GPU each."""
    return torch.cuda.is_available() and torch.cuda.device_count() >= count


class Processes:
    """This process among those of the run."""

    def __init__(self, rank: int = 0, count: int = 1, device: torch.device | None = None) -> None:
        self.rank = rank
        self.count = count
        self.device = device  # None: the caller's choice

    @classmethod
    def join(cls) -> "Processes":
        """Meet the other processes of the launch, on GPUs where each can have one, else on CPUs (gloo).

        Raises UsageError where the launch asks for a model that is spread over the processes: here each has it whole.
        """
        _refuse_sharding()
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return cls()
        settings: dict[str, Any] = {"timeout": PATIENCE}
        if not _a_gpu_each(int(os.environ.get("LOCAL_WORLD_SIZE", count))):
            settings |= {"cpu": True, "backend": "gloo"}
        state = PartialState(**settings)
        # The group's threads must have ended when the interpreter does, or the process aborts now and then.
        atexit.register(_leave)
        return cls(state.process_index, state.num_processes, state.device)

    @property
    def main(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def wait(self) -> None:
        """Go on when every process has come here."""
        if self.count > 1:
            dist.barrier()

    def same(self, value: Any) -> Any:
        """The main process's value (anything that can be pickled), on every process."""
        if self.count == 1:
            return value
        return broadcast_object_list([value])[0]

    def own(self, items: int) -> range:
        """Positions of the items that are this process's: every `count`-th, so that like sizes are dealt out evenly."""
        return range(self.rank, items, self.count)

    def collect(self, outputs: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
        """Outputs (rows, D) of all items in order, from each process's own; `sizes` are the rows of every item."""
        if self.count == 1:
            return list(outputs)
        total = [sum(sizes[i] for i in range(rank, len(sizes), self.count)) for rank in range(self.count)]
        device = self.device or torch.device("cpu")
        width = torch.tensor([outputs[0].shape[1] if outputs else 0], device=device)
        dist.broadcast(width, 0)  # the first item is the first process's, so it knows
        mine = torch.zeros(max(total), int(width), device=device)
        if outputs:
            mine[: total[self.rank]] = torch.cat([output.float() for output in outputs])
        parts = [torch.empty_like(mine) for _ in range(self.count)]
        dist.all_gather(parts, mine)
        found: list[Tensor] = [mine] * len(sizes)
        for rank, part in enumerate(parts):
            places = range(rank, len(sizes), self.count)
            for place, rows in zip(places, part[: total[rank]].split([sizes[i] for i in places]), strict=True):
                found[place] = rows
        return found

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum the gradients over the processes, once a step; who has none for a parameter counts as zero."""
        if self.count == 1:
            return
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        there = torch.tensor([p.grad is not None for p in trained], dtype=torch.int32, device=self.device)
        dist.all_reduce(there)
        used = [p for p, flag in zip(trained, there.tolist(), strict=True) if flag]
        if not used:
            return
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1).float() for p in used])
        dist.all_reduce(flat)
        for parameter, part in zip(used, flat.split([p.numel() for p in used]), strict=True):
            parameter.grad = part.view_as(parameter).to(parameter.dtype)
