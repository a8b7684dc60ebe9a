"""Connect the ranks by Slurm's variables, which the script reads itself, as many scripts for srun do."""

import os
import subprocess

import torch
import torch.distributed as dist

rank, local_rank, node = (int(os.environ[f"SLURM_{name}"]) for name in ("PROCID", "LOCALID", "NODEID"))
size = int(os.environ["SLURM_NTASKS"])
hosts = subprocess.run(
    ["scontrol", "show", "hostnames", os.environ["SLURM_STEP_NODELIST"]], capture_output=True, text=True, check=True
).stdout.split()
port = 10000 + int(os.environ["SLURM_JOB_ID"]) % 20000
dist.init_process_group("gloo", init_method=f"tcp://{hosts[0]}:{port}", world_size=size, rank=rank)
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == size
print(f"world {size} rank {rank} local {local_rank} of {os.environ['SLURM_TASKS_PER_NODE']} node {node}", flush=True)
dist.destroy_process_group()
