"""Train and count with Accelerate, as its nlp_example.py and cv_example.py do."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
set_seed(42)
x = torch.arange(64, dtype=torch.float32).reshape(64, 1) / 64  # (64, 1)
training, held_out = (DataLoader(TensorDataset(x, 2 * x), batch_size=8, shuffle=shuffle) for shuffle in (True, False))
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, training, held_out = accelerator.prepare(model, optimizer, training, held_out)
for inputs, targets in training:
    accelerator.backward(torch.nn.functional.mse_loss(model(inputs), targets))
    optimizer.step()
    optimizer.zero_grad()
seen = sum(len(accelerator.gather_for_metrics(targets)) for _, targets in held_out)
line = f"world {accelerator.num_processes} rank {accelerator.process_index} local {accelerator.local_process_index}"
print(line, f"seen {seen} in {len(training)} steps", flush=True)
accelerator.end_training()
