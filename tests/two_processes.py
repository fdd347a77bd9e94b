"""What each of two processes does for tests/test_processes.py: two steps on its share of the chunks, written to a file."""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from embedtrain import backbone, gradcache
from embedtrain.processes import Processes


def main(out: Path, size: int, cached: bool, rate: float, recomputed: bool) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(rate), nn.Linear(16, 4)).train()
    if recomputed:  # as --gradient-checkpointing does with each layer
        for layer in model:
            layer.forward = backbone._Recomputed(layer.forward)
    unused = nn.Linear(2, 2)
    texts = torch.randn(7, 6)
    processes = Processes.join()
    parts = list(texts.split(size))
    scale = nn.Parameter(torch.tensor(3.0))

    def loss(outputs: list[Tensor]) -> Tensor:
        vectors = nn.functional.normalize(torch.cat(outputs), dim=1)
        return nn.functional.cross_entropy(scale * vectors @ vectors.T, torch.arange(len(vectors)))

    def step(number: int) -> Tensor:
        return gradcache.step(
            model,
            parts,
            [len(part) for part in parts],
            loss,
            parameters=[*model.parameters(), *unused.parameters()],
            seed=(5, 1, number),
            cached=cached,
            processes=processes,
        )

    first = step(1)
    sgd = torch.optim.SGD([*model.parameters(), scale], lr=0.5)
    sgd.step()
    sgd.zero_grad()
    value = step(2)
    assert all(p.grad is None for p in unused.parameters())
    found = {name: p.grad for name, p in model.named_parameters()}
    told = processes.same({"from": processes.rank})
    processes.wait()
    torch.save(
        {"first": first, "loss": value, "scale": scale.grad, "told": told, "count": processes.count, **found},
        out / f"{processes.rank}.pt",
    )


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        int(sys.argv[2]),
        sys.argv[3] == "cached",
        float(sys.argv[4]),
        sys.argv[5] == "recomputed",
    )
