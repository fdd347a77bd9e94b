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

from embedtrain.processes import Processes

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
) -> Tensor:
    """Add the gradient of `scale` times `loss` over the outputs of all chunks; return the loss, detached.

    `encode` maps a chunk to (items, D), `sizes` are the items of each; `loss` gets the outputs of all chunks, float32
    or wider, in their order, and gives a scalar; parameters that it has itself get their gradient too. Random numbers
    (dropout) of a chunk are drawn from (seed, place of the chunk): they are the same in both passes and on any number
    of processes. `parameters` are those that `encode` uses; their gradients are summed over the processes.
    """
    processes = processes or Processes()
    own = processes.own(len(chunks))
    parameters = list(parameters)
    with torch.random.fork_rng(_gpus(parameters)):
        with torch.set_grad_enabled(not cached):
            kept = [_seeded(encode, chunks[place], seed, place) for place in own]
        leaves = [_wide(output.detach()) for output in processes.collect([k.detach() for k in kept], sizes)]
        for leaf in leaves:
            leaf.requires_grad_()
        value = loss(leaves)
        (value * scale).backward()
        for number, place in enumerate(own):
            gradient = leaves[place].grad
            if gradient is None:
                continue
            output = _seeded(encode, chunks[place], seed, place) if cached else kept[number]
            output.backward(gradient.to(output.dtype))
            kept[number] = gradient  # the graph is not needed any more
    processes.add_gradients(parameters)
    return value.detach()


def _gpus(parameters: Sequence[nn.Parameter]) -> list[torch.device]:
    """The GPU whose random state a step uses; of several that are there, the others are let alone."""
    return list({parameter.device for parameter in parameters if parameter.device.type == "cuda"})


def _seeded(encode: Callable[[Chunk], Tensor], chunk: Chunk, seed: Sequence[int], place: int) -> Tensor:
    state = np.random.SeedSequence([*seed, place]).generate_state(1, np.uint64)
    torch.manual_seed(int(state[0]))
    return encode(chunk)


def _wide(output: Tensor) -> Tensor:
    # The loss is computed in float32 whatever the model computes in; a copy, so that no leaf shares its memory.
    return output.float() if output.dtype in (torch.float16, torch.bfloat16) else output.clone()
