"""PyTorch's tutorial on DistributedDataParallel, shortened: processes that connect to each other on one node only.

https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html
"""

import os

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel


def train(rank: int, world_size: int) -> None:
    """Train a step in a process of a world whose address is localhost."""
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DistributedDataParallel(nn.Linear(10, 5))
    optimizer = optim.SGD(model.parameters(), lr=0.001)
    nn.functional.mse_loss(model(torch.randn(20, 10)), torch.randn(20, 5)).backward()
    optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    spawn(train, args=(2,), nprocs=2)
