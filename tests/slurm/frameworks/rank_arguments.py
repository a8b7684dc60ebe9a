"""Connect the ranks by arguments: --local_rank, as torch.distributed.launch gave it, the rank and their number."""

import argparse
import os

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("rank", type=int)
parser.add_argument("size", type=int)
args = parser.parse_args()
address = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
dist.init_process_group("gloo", init_method=address, rank=args.rank, world_size=args.size)
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == args.size
print(f"world {dist.get_world_size()} rank {args.rank} local {args.local_rank}", flush=True)
dist.destroy_process_group()
