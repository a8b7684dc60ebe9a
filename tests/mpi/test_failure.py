"""A job that cannot go well ends at once, on all ranks, and says why."""

import os
import subprocess
import sys

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run

pytestmark = [pytest.mark.mpi, needs_mpi]

SRUN = {"HPCRUN_SITE_NAME": "styx", "HPCRUN_LAUNCHER": "srun", "HPCRUN_MPI_TYPE": "none"}


def test_import_starts_nothing():
    code = "import sys, hpcrun.train; print(*{'mpi4py', 'tensorflow', 'keras', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_silent_singletons_are_told():
    outcome = run(4, PROGRAMS / "failing.py", "singletons", HPCRUN_NTASKS="4", **SRUN)
    assert outcome.code != 0
    assert outcome.stderr.count("MPI started 1 rank where the job has 4: site styx, launcher srun --mpi=none") == 4
    assert "HINT: set `mpi.type` in the site file" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_too_few_ranks_are_told():
    outcome = run(2, PROGRAMS / "failing.py", "singletons ", HPCRUN_NTASKS="3", HPCRUN_LAUNCHER="mpiexec")
    assert outcome.code != 0
    assert (
        "MPI started 2 ranks where the job has 3: site unknown, launcher mpiexec, MPI library MPICH" in outcome.stderr
    )


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("raise", 1, "ValueError: a bug in the script"),
        ("exit", 3, ""),
        ("refuse", 2, "[rank 1/2] error: this cannot be\nHINT: do that\n"),
    ],
)
def test_one_rank_ends_all(how, code, says):
    outcome = run(2, PROGRAMS / "failing.py", how, timeout=60)
    assert outcome.code == code
    assert says in outcome.stderr
    assert ("Traceback" in outcome.stderr) == (how == "raise")
    assert outcome.seconds < 30


def test_ranks_tell_their_gpu_and_miss_it():
    outcome = run(
        2, PROGRAMS / "failing.py", "-", HPCRUN_NTASKS="2", HPCRUN_GPUS_PER_NODE="2", CUDA_VISIBLE_DEVICES="1"
    )
    assert outcome.code == 0
    assert outcome.stderr.count("the job has 2 GPUs a node, but TensorFlow sees none: training on the CPU") == 1
    for rank, line in enumerate(outcome.stdout):
        assert line.startswith(f"[rank {rank}/2] host ")
        assert line.endswith(f", local rank {rank}, CUDA_VISIBLE_DEVICES=1: CPU (1 thread)\n") or os.cpu_count() > 3
