"""One step over many chunks of texts: any loss over the whole batch, whatever fits in memory, on any number of processes.

The chunks are encoded, the loss over all their outputs gives the gradient at the outputs, and each chunk takes that
gradient further. Plain: the chunks keep their graphs meanwhile. Cached (Gao et al. 2021, GradCache): they are encoded
without, and once more with it, one at a time: a second forward pass for the memory of one chunk. Several processes
encode a share of the chunks each and exchange the outputs; all compute the loss of the whole batch.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from embedtrain import memory
from embedtrain.processes import Processes
from embedtrain.workers import Workers

Chunk = TypeVar("Chunk")


def step(
    encode: Callable[[Chunk], Tensor],
    chunks: Sequence[Chunk],
    sizes: Sequence[int],
    loss: Callable[[list[Tensor]], Tensor],
    *,
    parameters: Iterable[nn.Parameter],
    seed: Sequence[int],
    cached: bool,
    scale: float = 1.0,
    processes: Processes | None = None,
    workers: Workers | None = None,
    finish: Callable[[], None] = lambda: None,
) -> Tensor:
    """Add the gradient of `scale` times `loss` over the outputs of all chunks; return the loss, detached.

    `encode` maps a chunk to (items, D), `sizes` are the items of each; `loss` gets the outputs of all chunks, float32
    or wider, in their order, and gives a scalar; parameters that it has itself get their gradient too. Random numbers
    (dropout) of a chunk are drawn from (seed, place of the chunk): they are the same in both passes and on any number
    of processes. `parameters` are those that `encode` uses; their gradients are summed over the processes,
    after `finish` has been called on each. `workers` encode chunks side by side; with more than one of them nothing that
    `encode` does may be random.
    """
    processes = processes or Processes()
    own = processes.own(len(chunks))
    parameters = list(parameters)
    workers = workers or Workers()
    trained = [parameter for parameter in parameters if parameter.requires_grad]

    def encoded(place: int, *, graph: bool) -> Tensor:
        with torch.set_grad_enabled(graph):  # each thread has a mode of its own
            if workers.count == 1:  # side by side, all would draw from one source of random numbers
                state = np.random.SeedSequence([*seed, place]).generate_state(1, np.uint64)
                torch.manual_seed(int(state[0]))
            return encode(chunks[place])

    with torch.random.fork_rng(_gpus(parameters)):
        kept = list(workers.map(lambda place: encoded(place, graph=not cached), own))
        leaves = [_wide(output.detach()) for output in processes.collect([k.detach() for k in kept], sizes)]
        for leaf in leaves:
            leaf.requires_grad_()
        value = loss(leaves)
        (value * scale).backward()

        def onward(number: int) -> tuple[Tensor | None, ...]:
            gradient = leaves[own[number]].grad
            if gradient is None or not trained:
                return ()
            output = encoded(own[number], graph=True) if cached else kept[number]
            kept[number] = gradient  # the graph is not needed any more
            return torch.autograd.grad(output, trained, gradient.to(output.dtype), allow_unused=True)

        for found in workers.map(onward, range(len(own))):
            _add(trained, found)
    finish()
    processes.add_gradients(parameters)
    return value.detach()


def graph_tokens(hidden: int, layers: int, device: torch.device) -> int:
    """Padded tokens whose graph may be held at once, in a quarter of the machine's memory, half of a GPU's.

    About 18 hidden-size float32 values are kept a token and layer (attention in, out and projections, two norms,
    a feed-forward of four times the width before and after its activation).
    """
    on_gpu = device.type == "cuda"
    whole = torch.cuda.get_device_properties(device).total_memory // 2 if on_gpu else memory.machine() // 4
    return max(1_024, int(whole // (18 * 4 * hidden * layers)))


def _gpus(parameters: Sequence[nn.Parameter]) -> list[torch.device]:
    """The GPU whose random state a step uses; of several that are there, the others are let alone."""
    return list({parameter.device for parameter in parameters if parameter.device.type == "cuda"})


def _add(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    """Add a chunk's gradients; chunks come in their order, so the sums do not depend on who was first."""
    for parameter, gradient in zip(parameters, gradients, strict=False):
        if gradient is None:
            continue
        if parameter.grad is None:
            parameter.grad = gradient
        elif parameter.grad.is_sparse:
            parameter.grad = parameter.grad + gradient
        else:
            parameter.grad.add_(gradient)


def _wide(output: Tensor) -> Tensor:
    # The loss is computed in float32 whatever the model computes in; a copy, so that no leaf shares its memory.
    return output.float() if output.dtype in (torch.float16, torch.bfloat16) else output.clone()
