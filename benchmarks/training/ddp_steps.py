"""Benchmark of PyTorch's training steps with and without DistributedDataParallel (gloo), alternately.

    MASTER_PORT=7001 mpiexec -n 2 python benchmarks/training/ddp_steps.py resnet50 --rounds 30

Rank 0 prints one line of JSON. The networks have the same layers, image sizes and batch sizes as in `networks.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
from torch import nn
from torch.distributed import barrier, destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel


def convolution(channels: int, filters: int, size: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution with batch normalization."""
    layer = nn.Conv2d(channels, filters, size, stride, size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(filters))


class Block(nn.Module):
    """A bottleneck block of ResNet-50: (b, channels, h, w) -> (b, 4 * filters, h / stride, w / stride)."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        first, second = convolution(channels, filters, 1), convolution(filters, filters, 3, stride)
        self.path = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), convolution(filters, 4 * filters, 1))
        same = channels == 4 * filters and stride == 1
        self.shortcut = nn.Identity() if same else convolution(channels, 4 * filters, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of both branches, after ReLU."""
        return torch.relu(self.path(x) + self.shortcut(x))


def resnet50() -> nn.Module:
    """Return ResNet-50: (b, 3, 32, 32) -> (b, 1000)."""
    layers: list[nn.Module] = [convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for filters, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(blocks):
            layers.append(Block(channels, filters, 1 if number else stride))
            channels = 4 * filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def lenet5() -> nn.Module:
    """Return LeNet-5: (b, 1, 32, 32) -> (b, 10)."""
    first = (nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
    last = (nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return nn.Sequential(*first, *last)


NETWORKS = {"resnet50": (resnet50, 3, 1000, 8), "lenet5": (lenet5, 1, 10, 64)}


def main() -> None:
    """Run the benchmark that the command line selects."""
    parser = argparse.ArgumentParser(description="Benchmark PyTorch's steps with DistributedDataParallel.")
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
    init_process_group("gloo", f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}", rank=rank, world_size=size)
    build, channels, classes, batch = NETWORKS[args.network]
    x, y = torch.randn(batch, channels, 32, 32), torch.randint(classes, (batch,))  # (b, channels, 32, 32), (b,)
    models = {"none": build(), "ddp": DistributedDataParallel(build())}
    optimizers = {name: torch.optim.SGD(model.parameters(), 0.001, momentum=0.9) for name, model in models.items()}
    times: dict[str, list[float]] = {name: [] for name in models}
    for number in range(args.rounds + 2):
        for name, model in models.items():
            barrier()
            begin = time.perf_counter()
            optimizers[name].zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizers[name].step()
            barrier()
            if number >= 2:  # do not count the first two rounds, which allocate memory
                times[name].append(time.perf_counter() - begin)
    if rank == 0:
        print(json.dumps({"times": times}), flush=True)
    destroy_process_group()


if __name__ == "__main__":
    main()
