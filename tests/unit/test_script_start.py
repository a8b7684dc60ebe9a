"""Warnings about scripts that expect another start of their ranks than the job gives them."""

import os
import sys
from pathlib import Path

import pytest

SPAWN = """
import os, torch
import torch.distributed as dist
import torch.multiprocessing as mp
def setup(rank, size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", rank=rank, world_size=size)
def train(rank, size):
    setup(rank, size)
def main():
    size = torch.cuda.device_count()
    mp.spawn(train, args=(size,), nprocs=size)
if __name__ == "__main__":
    main()
"""
TORCHRUN = """
import os, torch.distributed as dist
class Trainer:
    def __init__(self):
        self.run = os.environ["TORCHELASTIC_RUN_ID"]
dist.init_process_group("nccl")
Trainer()
"""
OPTIONAL = """
import argparse, os, sys, torch.distributed as dist
from torch.multiprocessing import spawn
def setup():
    if "MASTER_ADDR" not in os.environ:
        os.environ["MASTER_ADDR"] = "localhost"
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    dist.init_process_group("gloo", init_method=os.environ.get("URL", "tcp://localhost:9999"))
def start_all():
    spawn(setup, nprocs=2)
def main():
    if "TORCHELASTIC_RUN_ID" in os.environ:
        print(os.environ["TORCHELASTIC_RUN_ID"], os.environ.get("GROUP_RANK"))
    if parser.parse_args().spawn:
        start_all()
        sys.exit()
    spawn(setup, nprocs=2)
parser = argparse.ArgumentParser()
setup()
main()
"""
LOCAL_RANK = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
torch.cuda.set_device(parser.parse_known_args()[0].local_rank)
torch.distributed.init_process_group("nccl")
"""
SERVERS = """
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
"""
SPAWNS = (
    "each of the 2 ranks of a node would start processes of its own, by torch.multiprocessing\nHINT: --launch nodes "
)
LOCAL = "the script names localhost as the host of rank 0: the ranks of 2 nodes cannot connect\nHINT: "
RUN_ID = "the script reads TORCHELASTIC_RUN_ID, which only torchrun sets\nHINT: --launch torchrun\n"
OPTION = (
    "the script expects --local_rank from torch.distributed.launch: each rank would use its default\n"
    'HINT: default=int(os.environ["LOCAL_RANK"]) in the script; or without a change: --framework torch -- bash -c '
    "'exec python train.py --lr 0.1 --local_rank=$LOCAL_RANK'\n"
)
DIRECT = OPTION.replace("python train.py", "./train.py")
ROLES = "the script uses ParameterServerStrategy, but in TF_CONFIG each rank is a worker: they would wait for a chief "
ARGUMENTS = ("--", "python", "train.py", "--lr", "0.1")


@pytest.mark.parametrize(
    ("text", "options", "warnings"),
    [
        (SPAWN, (), [SPAWNS, LOCAL]),
        (SPAWN, ("--launch", "nodes"), [LOCAL]),
        (SPAWN, ("-N", "1"), [SPAWNS]),
        (SPAWN, ("-N", "1", "--launch", "nodes"), []),
        (SPAWN, ("--ntasks-per-node", "1"), [LOCAL]),
        ("import torch.distributed as d\nd.init_process_group(init_method='tcp://localhost:23456')\n", (), [LOCAL]),
        (TORCHRUN, (), [RUN_ID]),
        (TORCHRUN, ("--launch", "nodes"), [RUN_ID]),
        (TORCHRUN, ("--launch", "torchrun"), []),
        (TORCHRUN, ("-x", "TORCHELASTIC_RUN_ID=1"), []),
        (f"import os\nos.environ['TORCHELASTIC_RUN_ID'] = '1'\n{TORCHRUN}", (), []),
        (OPTIONAL, (), []),
        (LOCAL_RANK, ARGUMENTS, [OPTION]),
        (f"#!/usr/bin/env python3\n{LOCAL_RANK}", ("--", "./train.py", "--lr", "0.1"), [DIRECT]),
        (LOCAL_RANK, (*ARGUMENTS, "--local_rank", "0"), []),
        (LOCAL_RANK, ("--launch", "torchrun"), []),
        (LOCAL_RANK.replace("default=0", "default=os.environ.get('LOCAL_RANK')"), ARGUMENTS, []),
        (SERVERS, (), [ROLES]),
        (SERVERS, ("-x", "TF_CONFIG={}"), []),
        (f"import os\nos.environ['TF_CONFIG'] = make(os.environ['SLURM_PROCID'])\n{SERVERS}", (), []),
        (f"import os\nos.environ.setdefault('TF_CONFIG', make())\n{SERVERS}", (), []),
        (f"import os\nos.environ.update(TF_CONFIG=make())\n{SERVERS}", (), []),
        (f"import os\nos.environ.update({{'TF_CONFIG': make()}})\n{SERVERS}", (), []),
        (SERVERS.replace("TFConfigClusterResolver", "SlurmClusterResolver"), (), []),
    ],
)
def test_a_script_that_expects_another_start(tmp_path, monkeypatch, cli, text, options, warnings):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # Debian has no python there
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "train.py").chmod(0o755)
    target = () if "--" in options else ("train.py",)
    argv = (
        "submit",
        *target,
        "--site",
        "slurm",
        "--dry-run",
        "--no-gpu",
        "-N",
        "2",
        "--ntasks-per-node",
        "2",
        *options,
    )
    code, _, err = cli(*argv)
    assert (code, err.count("WARNING: ")) == (0, len(warnings)), err
    assert all(f"WARNING: {warning}" in err for warning in warnings), err
    code, out, err = cli(*argv[:1], "--strict", *argv[1:])
    assert (code, out == "") == ((2, True) if warnings else (0, False))
    assert not warnings or f"--strict: {warnings[0].strip()}" in err


@pytest.mark.parametrize(
    "call", ["import_module('.distributed', package='torch')", "import_module('.distributed', 'torch')"]
)
def test_a_relative_import_by_name_shows_the_framework(tmp_path, cli, call):
    (tmp_path / "train.py").write_text(f"from importlib import import_module\n{call}.init_process_group()\n")
    _, _, err = cli("submit", str(tmp_path / "train.py"), "--site", "slurm", "--dry-run", "-N", "2")
    assert "framework  torch; " in err
