"""Scripts of other frameworks, which know nothing of hpcrun, on two hosts with each launcher."""

from pathlib import Path

import pytest

from tests.mpi.ranks import backend_python

pytestmark = pytest.mark.slurm
SCRIPTS = Path(__file__).with_name("frameworks")


def launchers(first):
    """Return the sites of all launchers, of which quick tests use the first."""
    others = sorted({"srun-mpich", "mpiexec", "mpirun"} - {first})
    return [first, *(pytest.param(site, marks=pytest.mark.thorough) for site in others)]


def run_script(user, site, backend, script):
    """Run a script with two ranks on each of two hosts; return the lines of the ranks about their world."""
    options = ("--site", site, "-N", "2", "--ntasks-per-node", "2", "--no-gpu", "--wait")
    submitted = user.json("submit", *options, "--", backend_python(backend), SCRIPTS / script)
    assert submitted["state"] == "COMPLETED", user.log(submitted)
    assert "hpcrun: WARNING" not in user.log(submitted)
    logs = sorted(Path(submitted["run_dir"]).glob("logs/rank-*.log"))
    return [line for log in logs for line in log.read_text().splitlines() if line.startswith("world ")]


@pytest.mark.parametrize("site", launchers("mpirun"))
def test_a_script_with_torch_distributed(user, site):
    lines = [f"world 4 rank {rank} local {rank % 2} of 2 node {rank // 2} 2 steps" for rank in range(4)]
    assert run_script(user, site, "torch", "torch_ddp.py") == lines


@pytest.mark.parametrize("site", launchers("mpiexec"))
def test_a_script_with_jax_distributed(user, site):
    lines = [f"world 4 rank {rank} devices 1" for rank in range(4)]
    assert run_script(user, site, "jax", "jax_processes.py") == lines


@pytest.mark.parametrize("site", launchers("srun-mpich"))
def test_a_script_with_a_strategy_of_tensorflow(user, site):
    lines = [f"world 4 rank {rank} weight 1.500" for rank in range(4)]
    assert run_script(user, site, "tensorflow", "multiworker.py") == lines
