"""Train with DistributedDataParallel as in PyTorch's tutorials for several nodes."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group(backend="gloo")
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.manual_seed(rank)
    x = torch.arange(64, dtype=torch.float32).reshape(64, 1) / 64  # (64, 1)
    data = TensorDataset(x, 2 * x)
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
    weights = [torch.zeros(1, 1) for _ in range(dist.get_world_size())]
    dist.all_gather(weights, model.module.weight.data)
    assert all(torch.equal(weights[0], each) for each in weights)
    node = os.environ.get("NODE_RANK") or os.environ["GROUP_RANK"]
    place = f"local {local_rank} of {os.environ['LOCAL_WORLD_SIZE']} node {node}"
    # In one write: the ranks of a torchrun share their output.
    print(f"world {dist.get_world_size()} rank {rank} {place} {len(loader)} steps\n", end="", flush=True)
    dist.barrier()  # a rank that ends early breaks the connections of the others
    dist.destroy_process_group()


main()
