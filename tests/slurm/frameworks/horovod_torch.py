"""Train a model with Horovod's DistributedOptimizer of PyTorch, as Horovod's pytorch_mnist.py does."""

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

hvd.init()
torch.manual_seed(hvd.rank())  # the broadcast makes the models the same
torch.set_num_threads(1)
images, labels = torch.arange(256.0).reshape(64, 4) / 256, torch.arange(64) % 2
data = TensorDataset(images, labels)
sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size(), momentum=0.5)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Average)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
weights = hvd.allgather(model[0].weight.detach().reshape(1, -1))
assert torch.equal(weights, weights[:1].expand_as(weights)), weights
seen = hvd.allreduce(torch.tensor(float(len(sampler))), op=hvd.Sum, name="seen")
assert seen == 64, seen
print(f"world {hvd.size()} rank {hvd.rank()} local {hvd.local_rank()}", flush=True)
