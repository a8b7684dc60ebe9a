"""The exact launch lines."""

import shlex

import pytest

from hpcrun import launchers, pipeline
from hpcrun.errors import HpcrunError
from hpcrun.request import Request

SITES = {
    "srun": 'launcher = "srun"\nmpi = { library = "openmpi", type = "pmix" }',
    "mpirun5": 'launcher = "mpirun"\nmpi.library = "openmpi"',
    "mpirun4": 'launcher = "mpirun"\nmpi.library = "openmpi4"',
    "mpiexec": 'launcher = "mpiexec"\nmpi.library = "mpich"\nlauncher_args = ["-bind-to", "core"]',
}


@pytest.fixture
def plan(tmp_path):
    def make(kind, **more):
        (tmp_path / "s.toml").write_text(f'scheduler = "slurm"\n{SITES[kind]}\n')
        return pipeline.prepare(Request(None, ("prog", "arg"), site=str(tmp_path / "s.toml"), **more))

    return make


def launch_line(plan):
    """Return the words of the launcher and the program."""
    text = plan.script[plan.script.index("\nhpcrun_launch ") :].replace("$HPCRUN_RUN_DIR", "RUN").replace("\\\n", "")
    return " ".join(shlex.split(text.splitlines()[1])).partition(" -- ")[2]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("srun", "srun --ntasks=4 --nodes=2 --ntasks-per-node=2 --cpus-per-task=3 --mpi=pmix --kill-on-bad-exit=1"),
        ("mpirun5", "mpirun --bind-to none --map-by slot --hostfile RUN/hostfile -n 4"),
        ("mpirun4", "mpirun --bind-to none --map-by slot --hostfile RUN/hostfile -n 4"),
        ("mpiexec", "mpiexec -launcher slurm -f RUN/hostfile -n 4 -bind-to core"),
    ],
)
def test_in_a_slurm_job(plan, kind, expected):
    made = plan(kind, resources={"nodes": 2, "ntasks_per_node": 2, "cpus_per_task": 3})
    assert launch_line(made) == f"{expected} @rank prog arg"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "mpirun5",
            "mpirun --prtemca plm ssh --prtemca ras ^slurm --bind-to none --map-by slot --hostfile RUN/hostfile -n 2",
        ),
        ("mpirun4", "mpirun --mca plm rsh --mca ras ^slurm --bind-to none --map-by slot --hostfile RUN/hostfile -n 2"),
        ("mpiexec", "mpiexec -launcher ssh -f RUN/hostfile -n 2 -bind-to core"),
        (
            "srun",
            "mpirun --prtemca plm ssh --prtemca ras ^slurm --bind-to none --map-by slot --hostfile RUN/hostfile -n 2",
        ),  # srun cannot: the MPI's own launcher can
    ],
)
def test_over_ssh(plan, kind, expected, tmp_path):
    (tmp_path / "hosts").write_text("n1\nn2\n")
    given = {"environment": (("KEY", "value"), ("HPCRUN_STALL_SECONDS", "60")), "fusion_threshold_kb": 64}
    made = plan(kind, hostfile=tmp_path / "hosts", now=True, **given)
    line = launch_line(made)
    assert line.startswith(expected)
    if "mpirun" in kind:  # Open MPI forwards over ssh only what it is told to
        assert "-x PATH" in line
        assert "-x KEY" in line
        assert "-x HPCRUN_STALL_SECONDS" in line
        assert "-x HPCRUN_RUN_DIR" in line
        assert "-x HPCRUN_FUSION_THRESHOLD_KB" in line


def test_one_process_on_this_host_needs_no_launcher(plan):
    made = plan("mpiexec", now=True)
    assert made.spec.launcher == "none"
    assert launch_line(made) == "@rank prog arg"


def test_every_launcher_has_its_line_here(plan):
    tested = {plan(kind).spec.launcher for kind in SITES} | {"none"}
    assert tested == set(launchers.LAUNCHERS)


def test_uneven_ranks_are_told_to_srun(plan):
    made = plan("srun", resources={"nodes": 2, "ntasks": 3})
    assert launch_line(made).startswith("srun --ntasks=3 --nodes=2 --mpi=pmix")


def test_the_place_of_the_rank_is_no_argument_of_a_launcher(tmp_path):
    site = tmp_path / "own.toml"
    site.write_text('extends = "local"\nlauncher_args = ["@rank"]\ndefaults.ntasks_per_node = 2\n')
    with pytest.raises(HpcrunError, match="launcher_args: @rank is hpcrun's own word") as refused:
        pipeline.prepare(Request(None, ("true",), site=str(site)))
    assert "leave it out" in (refused.value.hint or "")
