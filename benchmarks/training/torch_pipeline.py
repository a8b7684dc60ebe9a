"""Benchmark of the training steps of torch.distributed.pipelining (gloo), for a model of equal layers.

    MASTER_PORT=7001 mpiexec -n 2 python benchmarks/training/torch_pipeline.py --stages 2 --micro-batches 8 --rounds 10

Rank 0 prints one line of JSON. The layers are those of `pipeline_steps.py --work dense`, or `--work sleep`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from typing import Any

import torch
from torch import nn
from torch.distributed import barrier, destroy_process_group, init_process_group
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe


class Sleep(nn.Module):
    """A layer that sleeps, once in the forward and twice as long in the backward pass."""

    def __init__(self, width: int, seconds: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scaled input."""
        return _Wait.apply(x * self.scale, self.seconds)


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        context.seconds = seconds
        if x.device.type != "meta":
            time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(2 * context.seconds)
        return gradient.clone(), None


def time_passes(model: nn.Module, x: torch.Tensor) -> float:
    """Return the median seconds of the forward and backward pass of a model for a micro-batch."""
    seconds = []
    for _ in range(8):
        start = time.perf_counter()
        nn.functional.mse_loss(model(x), x).backward()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def main() -> None:
    """Measure the steps."""
    parser = argparse.ArgumentParser()
    for name, default in (("stages", 2), ("micro-batches", 8), ("layers", 8), ("width", 64), ("batch", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--work", choices=("sleep", "dense"), default="sleep")
    parser.add_argument("--seconds", type=float, default=0.01)
    parser.add_argument("--schedule", default="1f1b")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()

    rank = int(os.environ["PMI_RANK"])
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    torch.set_num_threads(1)
    init_process_group("gloo", rank=rank, world_size=options.stages)
    torch.manual_seed(1)
    width = options.width

    def layer() -> nn.Module:
        if options.work == "sleep":
            return Sleep(width, options.seconds)
        return nn.Sequential(nn.Linear(width, width, bias=False), nn.ReLU())

    module = nn.Sequential(*(layer() for _ in range(options.layers // options.stages)))
    stage = PipelineStage(module, rank, options.stages, torch.device("cpu"))
    schedules = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}
    schedule = schedules[options.schedule](stage, options.micro_batches, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.Adam(module.parameters(), 1e-4)
    x = torch.randn(options.batch, width)
    seconds = []
    for _ in range(options.rounds + 2):
        barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        elif rank == options.stages - 1:
            schedule.step(target=x)
        else:
            schedule.step()
        optimizer.step()
        barrier()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        found = {"seconds": seconds[2:]}
        if options.work == "sleep":
            model = nn.Sequential(*(layer() for _ in range(options.layers)))
            found["pass_seconds"] = time_passes(model, x[: options.batch // options.micro_batches])
        print(json.dumps(found), flush=True)
    destroy_process_group()


if __name__ == "__main__":
    main()
