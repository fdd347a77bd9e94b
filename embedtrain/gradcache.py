"""One step over many chunks of texts: any loss over the whole batch, whatever fits in memory.

Plain: every chunk is encoded with its graph, the loss runs over all of them. Cached (Gao et al. 2021, GradCache):
the chunks are encoded without graph, the loss gives the gradient at the outputs, and each chunk is encoded again
with its graph to take that gradient further, with the random state (dropout) of its first pass. Both give the
same gradients; caching costs a second forward pass and holds one chunk's graph at a time.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

Chunk = TypeVar("Chunk")


class _RandomState:
    """The random state of the CPU and of the GPU in use, to replay a pass with the same dropout."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cpu = torch.get_rng_state()
        self._gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        if self._gpu is not None:
            torch.cuda.set_rng_state(self._gpu, self._device)


def step(
    encode: Callable[[Chunk], Tensor],
    chunks: Sequence[Chunk],
    loss: Callable[[list[Tensor]], Tensor],
    *,
    device: torch.device,
    cached: bool,
    backward: Callable[[Tensor], None] = Tensor.backward,
) -> Tensor:
    """Add the gradient of `loss` over the outputs of all chunks to the parameters; return the loss, detached.

    `encode` maps a chunk to a tensor whose first axis is the chunk's items; `loss` gets the outputs in the order
    of `chunks` and gives a scalar; `backward` is called on it (a loss scaler may stand there).
    """
    if not cached:
        value = loss([encode(chunk) for chunk in chunks])
        backward(value)
        return value.detach()

    states: list[_RandomState] = []
    outputs: list[Tensor] = []
    with torch.no_grad():
        for chunk in chunks:
            states.append(_RandomState(device))
            outputs.append(encode(chunk))
    after = _RandomState(device)
    leaves = [output.detach().requires_grad_() for output in outputs]
    value = loss(leaves)
    backward(value)
    for chunk, state, leaf in zip(chunks, states, leaves, strict=True):
        if leaf.grad is None:
            continue
        state.restore()
        output = encode(chunk)
        (output * leaf.grad).sum().backward()
    after.restore()
    return value.detach()
