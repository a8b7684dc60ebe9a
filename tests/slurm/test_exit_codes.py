"""Jobs in which a rank fails before or after MPI_Init: they end at once, with its exit code and name."""

import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slurm
FAILING_PROGRAM = """
import os, signal, sys
if sys.argv[1] == "early" and os.environ["HPCRUN_RANK"] == "1": sys.exit("the data are not there")
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 1:
    if sys.argv[1] == "raises": raise ValueError("a bad value")
    if sys.argv[1] == "exits": sys.exit(3)
    if sys.argv[1] == "raises-exit": raise SystemExit(4)
    if sys.argv[1] == "leaves": os._exit(5)
    if sys.argv[1] == "aborts": MPI.COMM_WORLD.Abort(7)
    if sys.argv[1] == "killed": os.kill(os.getpid(), signal.SIGKILL)
signal.pause()
"""
FAILING_TRAINING = """
import sys
import numpy as np
import hpcrun.train
hpcrun.train.allreduce(np.ones(3))
if hpcrun.train.rank() == 1:
    if sys.argv[1] == "raises": raise ValueError("a bad value")
    sys.exit(3)
hpcrun.train.allreduce(np.ones(3))
"""
EXIT_CODES = {"early": 1, "raises": 1, "exits": 3, "raises-exit": 4, "leaves": 5, "killed": 137, "aborts": 7}


def run_failing_job(user, site, text, failure):
    """Run a program whose rank 1 fails; return its exit code, the recorded reason and the output of `hpcrun why`."""
    program = user.home / "fails.py"
    program.write_text(text)
    argv = ("--site", site, "-N", "2", "--ntasks-per-node", "2", "--no-gpu", program, "--", failure)
    completed = user.hpcrun("submit", "--json", "--wait", *argv)
    run = Path(json.loads(completed.stdout)["run_dir"])
    return completed.returncode, json.loads((run / "exit.json").read_text())["reason"], user.json("why", str(run))


@pytest.mark.parametrize(
    ("site", "failure"),
    [
        ("srun-mpich", "exits"),
        ("srun-mpich", "killed"),
        ("srun-mpich", "aborts"),
        ("srun-openmpi", "raises"),
        ("mpiexec", "early"),
        *[
            pytest.param(site, failure, marks=pytest.mark.thorough)
            for site, failure in (
                ("srun-mpich", "raises"),
                ("srun-mpich", "leaves"),
                ("srun-mpich", "early"),
                ("srun-openmpi", "raises-exit"),
                ("srun-openmpi", "killed"),
                ("mpiexec", "raises"),
                ("mpiexec", "exits"),
                ("mpiexec", "killed"),
                ("mpiexec", "aborts"),
                ("mpirun", "leaves"),
                ("mpirun", "early"),
            )
        ],
    ],
)
def test_the_exit_code_is_that_of_the_rank_that_failed_first(user, site, failure):
    code, reason, why = run_failing_job(user, site, FAILING_PROGRAM, failure)
    assert (code, re.search("rank 1( on |, which)", reason) is None) == (EXIT_CODES[failure], False), reason
    assert ("memory" in reason, why["name"] == "rank-killed") == (failure == "killed", failure == "killed")


LEAVING_PROGRAM = """
import os, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 1: os._exit(0)
time.sleep(5)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("site", ["mpiexec", "mpirun"])
def test_a_rank_that_leaves_without_mpi_finalize_fails_the_job(user, site):
    code, reason, why = run_failing_job(user, site, LEAVING_PROGRAM, "leaves")
    assert (code != 0, "exit code 0, but without MPI_Finalize" in why["headline"]) == (True, True), reason


@pytest.mark.thorough
@pytest.mark.parametrize("failure", ["exits", "raises"])
def test_a_training_has_the_exit_code_of_the_failed_rank(user, failure):
    code, reason, _ = run_failing_job(user, "srun-mpich", FAILING_TRAINING, failure)
    assert (code, f"rank 1 on {user.cluster.nodelist[0]}" in reason) == (EXIT_CODES[failure], True), reason
