"""Scripts of other frameworks, which know nothing of hpcrun, on two hosts with each launcher."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.config import REPO
from tests.cluster.errors import wait_for
from tests.mpi.colours import write_two_colours
from tests.mpi.ranks import backend_python
from tests.slurm.cluster_user import SITES

pytestmark = pytest.mark.slurm
SCRIPTS = Path(__file__).with_name("frameworks")


def launchers(first):
    """Return the sites of all launchers, of which quick tests use the first."""
    others = sorted({"srun-mpich", "mpiexec", "mpirun"} - {first})
    return [first, *(pytest.param(site, marks=pytest.mark.thorough) for site in others)]


def run_script(user, site, python, script, *more, ranks_per_node=2):
    """Run a script on two hosts; return the lines of the ranks about their world."""
    return run_program(user, site, [python, SCRIPTS / script], *more, ranks_per_node=ranks_per_node)


def run_program(user, site, argv, *more, ranks_per_node=2):
    """Run a program on two hosts; return the lines of the ranks about their world."""
    options = ("--site", site, "-N", "2", "--ntasks-per-node", str(ranks_per_node), "--no-gpu", "--wait", *more)
    submitted = user.json("submit", *options, "--", *argv)
    logs = [log.read_text() for log in sorted(Path(submitted["run_dir"]).glob("logs/rank-*.log"))]
    assert submitted["state"] == "COMPLETED", "\n".join([user.log(submitted), *logs])
    assert "hpcrun: WARNING" not in user.log(submitted)
    return [line for log in logs for line in log.splitlines() if line.startswith("world ")]


@pytest.mark.parametrize("site", launchers("mpirun"))
def test_a_script_with_torch_distributed(user, site):
    lines = [f"world 4 rank {rank} local {rank % 2} of 2 node {rank // 2} 2 steps" for rank in range(4)]
    assert run_script(user, site, backend_python("torch"), "torch_ddp.py") == lines


@pytest.mark.thorough
@pytest.mark.parametrize("site", ["mpirun", "mpiexec", "srun-mpich"])
def test_a_script_that_reads_the_variables_of_slurm(user, site):
    """Under mpirun and mpiexec, these variables are those of the process that starts the ranks of a node."""
    lines = [f"world 4 rank {rank} local {rank % 2} of 2(x2) node {rank // 2}" for rank in range(4)]
    assert run_script(user, site, backend_python("torch"), "slurm_variables.py") == lines


@pytest.mark.thorough
@pytest.mark.parametrize("site", ["mpiexec", "mpirun", "srun-mpich"])
def test_a_script_with_accelerate(user, site):
    python = backend_python("torch")
    if user.call(python, "-c", "import accelerate").returncode:
        pytest.skip("no accelerate: bash tools/backends.sh")
    lines = [f"world 2 rank {rank} local 0 seen 64 in 4 steps" for rank in range(2)]
    assert run_script(user, site, python, "accelerate_loop.py", ranks_per_node=1) == lines


@pytest.mark.thorough
@pytest.mark.parametrize("site", ["mpiexec", "srun-mpich"])  # it is built against MPICH, which mpirun does not start
@pytest.mark.parametrize(
    ("script", "library"),
    [
        ("horovod_gradients.py", "tensorflow"),
        ("horovod_keras.py", "tensorflow"),
        ("horovod_torch.py", "torch"),
    ],
)
def test_a_script_with_horovod(user, site, script, library):
    python = REPO / ".venv-horovod/bin/python"
    if not python.exists() or user.call(python, "-c", f"import horovod.{library}").returncode:
        pytest.skip(f"no Horovod for {library}: bash tools/horovod.sh")
    lines = [f"world 2 rank {rank} local 0" for rank in range(2)]
    assert run_script(user, site, python, script, ranks_per_node=1) == lines


@pytest.mark.parametrize("site", launchers("mpiexec"))
def test_a_script_with_jax_distributed(user, site):
    lines = [f"world 4 rank {rank} devices 1" for rank in range(4)]
    assert run_script(user, site, backend_python("jax"), "jax_processes.py") == lines


@pytest.mark.thorough
@pytest.mark.parametrize("site", ["srun-mpich", "mpiexec", "mpirun"])
def test_a_script_with_a_strategy_of_tensorflow(user, site):
    lines = [f"world 4 rank {rank} weight 1.500" for rank in range(4)]
    assert run_script(user, site, backend_python("tensorflow"), "multiworker.py") == lines


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("site", "backend", "script"),
    [
        ("srun-mpich", "jax", "keras_processes.py"),
        ("mpiexec", "jax", "keras_processes.py"),
        ("srun-mpich", "tensorflow", "slurm_resolver.py"),
        ("mpirun", "tensorflow", "slurm_resolver.py"),
    ],
)
def test_ranks_find_each_other_by_a_cluster_resolver_or_keras(user, site, backend, script):
    assert run_script(user, site, backend_python(backend), script) == [f"world 4 rank {rank}" for rank in range(4)]


@pytest.mark.thorough
@pytest.mark.parametrize("site", ["srun-mpich", "mpirun"])
def test_a_shell_gives_the_ranks_their_arguments(user, site):
    script = SCRIPTS / "rank_arguments.py"
    words = f"exec {backend_python('torch')} {script} $RANK $WORLD_SIZE --local_rank=$LOCAL_RANK"
    lines = [f"world 4 rank {rank} local {rank % 2}" for rank in range(4)]
    assert run_program(user, site, ["bash", "-c", words], "--framework", "torch") == lines


@pytest.mark.thorough
def test_a_module_of_a_package_connects_the_ranks_in_another_module(user):
    package = user.home / "lab"
    (package / "core").mkdir(parents=True)
    for name in ("__init__.py", "core/__init__.py"):
        (package / name).touch()
    (package / "core/setup.py").write_text((SCRIPTS / "torch_ddp.py").read_text())
    (package / "train.py").write_text("from .core import setup\n")
    lines = [f"world 4 rank {rank} local {rank % 2} of 2 node {rank // 2} 2 steps" for rank in range(4)]
    assert run_program(user, "srun-mpich", [backend_python("torch"), "-m", "lab.train"], "--strict") == lines


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("site", "launch"),
    [("srun-mpich", "torchrun"), ("mpiexec", "torchrun"), ("mpirun", "torchrun"), ("srun-mpich", "accelerate")],
)
def test_a_program_on_each_node_starts_the_ranks(user, site, launch):
    """It may number the nodes in another order than Slurm."""
    if launch == "accelerate":
        subprocess.run([backend_python("torch"), "-c", "import accelerate"], check=False).returncode and pytest.skip(
            "no accelerate: bash tools/backends.sh"
        )
    lines = run_script(user, site, backend_python("torch"), "torch_ddp.py", "--launch", launch)
    assert sorted(lines) == [f"world 4 rank {rank} local {rank % 2} of 2 node {rank // 2} 2 steps" for rank in range(4)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("site", "backend", "script", "line"),
    [
        ("srun-mpich", "torch", "torch_ddp.py", "world 2 rank {0} local 0 of 1 node {0} 4 steps"),
        ("mpiexec", "tensorflow", "multiworker.py", "world 2 rank {0} weight 0.500"),
    ],
)
def test_one_process_on_each_node_makes_a_world(user, site, backend, script, line):
    lines = run_script(user, site, backend_python(backend), script, "--launch", "nodes")
    assert lines == [line.format(rank) for rank in range(2)]


@pytest.mark.thorough
def test_processes_that_connect_on_each_node_alone_are_an_error(user):
    command = ("submit", "--site", "srun-mpich", "-N", "2", "--ntasks-per-node", "1", "--no-gpu", "--strict", "--wait")
    done = user.json(*command, "--", backend_python("torch"), Path(__file__).with_name("torch_spawn.py"))
    record = json.loads(Path(done["run_dir"], "exit.json").read_text())
    assert record["reason"] == "rank 0 was in a world of 2 ranks on one of 2 nodes (--strict)"


@pytest.mark.thorough
@pytest.mark.parametrize("site", ["mpirun", "mpiexec", "srun-mpich"])
def test_the_users_path_has_other_versions_of_the_packages_of_hpcrun(user, site):
    """The job script calls hpcrun for the hostfile, and for TF_CONFIG."""
    folder = user.home / "packages"
    folder.mkdir()
    for name in ("click", "typer"):
        (folder / f"{name}.py").write_text("version = '1.0 of the user'\n")
    script = folder / "script.py"
    script.write_text("import os, click\nprint('world', click.version, os.environ['TF_CONFIG'][-12:])\n")
    more = ("-x", f"PYTHONPATH={folder}:{REPO}", "--framework", "tensorflow")
    lines = [f'world 1.0 of the user "index": {rank}}}}}' for rank in range(2)]
    assert run_script(user, site, sys.executable, script, *more, ranks_per_node=1) == lines


@pytest.mark.thorough
@pytest.mark.parametrize("launcher", ["srun-mpich", "mpiexec"])
def test_a_cancelled_torch_workload_with_decoder_processes_goes_on(user, launcher):
    """Slurm sends SIGTERM to all processes of a step."""
    site = user.home / "config/hpcrun/torch.toml"
    site.write_text(f'python = "{backend_python("torch")}"\n{SITES[launcher]}')
    write_two_colours(user.home / "tree", user.home / "shards", train=40)
    options = ["--arch", "resnet18", "--image-size", "32", "--batch-size", "4", "--workers", "2", "--train-epochs", "8"]
    command = ["submit", "resnet50-torch", "--site", "torch", "-N", "2", "--ntasks-per-node", "1", "--no-gpu"]
    environ = ["-x", "OMP_NUM_THREADS=1", "-x", "HPCRUN_HEARTBEAT_SECONDS=0.2"]
    submitted = user.json(*command, *environ, "--", *options, "--data-dir", user.home / "shards")
    run_dir, log = Path(submitted["run_dir"]), user.cluster.config.log / "slurmctld.log"
    wait_for("the first steps", lambda: any(run_dir.glob("heartbeats/rank-0.json")), 120, log)
    cancelled = user.hpcrun("cancel", submitted["job_id"])
    assert cancelled.returncode == 0, cancelled.stderr
    wait_for("the checkpoint", (run_dir / "checkpoints/training.pt").exists, 60, log)
    assert user.hpcrun("resume", submitted["job_id"]).returncode == 0
    wait_for("the result", (run_dir / "result.json").exists, 240, log)
    epochs = [json.loads(line)["epoch"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert epochs == list(range(1, 9))
