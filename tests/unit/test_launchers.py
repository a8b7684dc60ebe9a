"""The exact launch lines."""

import shlex
import sys

import pytest

from hpcrun import launchers, submission
from hpcrun.errors import HpcrunError
from hpcrun.request import Request

SITES = {
    "srun": 'launcher = "srun"\nmpi = { library = "openmpi", type = "pmix" }',
    "mpirun5": 'launcher = "mpirun"\nmpi.library = "openmpi"',
    "mpirun4": 'launcher = "mpirun"\nmpi.library = "openmpi4"',
    "ibrun": 'launcher = "ibrun"\nmpi.library = "intel"',
    "mpiexec": 'launcher = "mpiexec"\nmpi.library = "mpich"\nlauncher_args = ["-bind-to", "core"]',
}


@pytest.fixture
def plan(tmp_path):
    def make(kind, **more):
        (tmp_path / "s.toml").write_text(f'scheduler = "slurm"\n{SITES[kind]}\n')
        return submission.prepare(Request(None, ("prog", "arg"), site=str(tmp_path / "s.toml"), **more))

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
        ("ibrun", "ibrun -n 4 -o 0"),
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
    made = plan(kind, hostfile=tmp_path / "hosts", run_now=True, **given)
    line = launch_line(made)
    assert line.startswith(expected)
    if "mpirun" in kind:  # Open MPI forwards over ssh only what it is told to
        assert "-x PATH" in line
        assert "-x KEY" in line
        assert "-x HPCRUN_STALL_SECONDS" in line
        assert "-x HPCRUN_RUN_DIR" in line
        assert "-x HPCRUN_FUSION_THRESHOLD_KB" in line


def test_one_process_on_this_host_needs_no_launcher(plan):
    made = plan("mpiexec", run_now=True)
    assert made.spec.launcher == "none"
    assert launch_line(made) == "@rank prog arg"


def test_every_launcher_has_its_line_here(plan):
    tested = {plan(kind).spec.launcher for kind in SITES} | {"none"}
    assert tested == set(launchers.BUILT_IN)


def test_uneven_ranks_are_told_to_srun(plan):
    made = plan("srun", resources={"nodes": 2, "ntasks": 3})
    assert launch_line(made).startswith("srun --ntasks=3 --nodes=2 --mpi=pmix")


def test_the_place_of_the_rank_is_no_argument_of_a_launcher(tmp_path):
    site = tmp_path / "own.toml"
    site.write_text('extends = "local"\nlauncher_args = ["@rank"]\ndefaults.ntasks_per_node = 2\n')
    with pytest.raises(HpcrunError, match="launcher_args: @rank is hpcrun's own word") as refused:
        submission.prepare(Request(None, ("true",), site=str(site)))
    assert "leave it out" in (refused.value.hint or "")


OWN = 'mpi.library = "openmpi"\nlauncher.command = "{}"\n'


@pytest.fixture
def own(tmp_path):
    """Plan a job of a site whose launcher is given by its command line."""

    def make(command, more="", **resources):
        (tmp_path / "s.toml").write_text(OWN.format(command) + more)
        return submission.prepare(Request(None, ("prog",), resources=resources, site=str(tmp_path / "s.toml")))

    return make


def test_a_site_gives_a_launcher_by_its_command_line(own):
    made = own("/opt/bin/mylaunch -n {ranks} -N {nodes} --hosts={hostfile}", nodes=2, ntasks_per_node=3)
    assert made.spec.launcher == "mylaunch"
    assert launch_line(made) == "/opt/bin/mylaunch -n 6 -N 2 --hosts=RUN/hostfile @rank prog"
    options = shlex.split(made.script[made.script.index("\nhpcrun_launch ") :].partition(" -- ")[0].replace("\\\n", ""))
    assert "OMPI_COMM_WORLD_RANK" in options[options.index("--rank") + 1].split()


def test_its_variables_and_signal_can_be_given(own):
    made = own("mylaunch", 'launcher.rank = "MY_RANK"\nlauncher.stop_signal = "USR1"\n', ntasks=2)
    assert "--stop-signal USR1 --rank MY_RANK --local-rank " in made.script


@pytest.mark.parametrize(
    ("command", "more", "expected"),
    [
        ("mylaunch -n {rank}", "", "launcher.command = 'mylaunch -n {rank}': unknown placeholder {rank}; known: "),
        ("{ranks}", "", "must begin with the launcher's name"),
        ("", "", "must begin with the launcher's name"),
        ("mylaunch '", "", "No closing quotation"),
        ("mylaunch", "launcher.comand = 1", "unknown key launcher.comand; did you mean command? "),
        ("mylaunch", 'launcher.rank = "A B"', "launcher.rank = 'A B': the name of an environment variable"),
        ("mylaunch -N {nodes}", "", "launcher.command of site s has {nodes}, but the job does not set it"),
    ],
)
def test_a_wrong_command_line_is_refused(own, command, more, expected):
    with pytest.raises(HpcrunError) as refused:
        own(command, more, ntasks=2)
    assert expected in refused.value.message


PLUGIN = """
from hpcrun.launchers.base import Launcher
LAUNCHER = Launcher(
    name="poe", command=lambda spec, hostfile: ["poe", "-procs", str(spec.resources.ranks), "-hostfile", hostfile],
    rank=("MP_CHILD",), local_rank=("MP_COMM_WORLD_LOCAL_RANK",), local_ranks=("MP_COMM_WORLD_LOCAL_SIZE",),
)
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Install a package that adds the launcher poe."""

    def install(text=PLUGIN, place="hpcrun_poe:LAUNCHER"):
        folder = tmp_path / "site-packages"
        (folder / "hpcrun_poe-1.0.dist-info").mkdir(parents=True)
        (folder / "hpcrun_poe.py").write_text(text)
        (folder / "hpcrun_poe-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: hpcrun-poe\n")
        entry = f"[hpcrun.launchers]\npoe = {place}\n"
        (folder / "hpcrun_poe-1.0.dist-info" / "entry_points.txt").write_text(entry)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "hpcrun_poe", raising=False)
        (tmp_path / "s.toml").write_text('launcher = "poe"\nlauncher_args = ["-euilib", "us"]\n')

    yield install
    sys.modules.pop("hpcrun_poe", None)


def test_an_installed_package_adds_a_launcher(plugin, tmp_path):
    plugin()
    made = submission.prepare(Request(None, ("prog",), resources={"ntasks": 2}, site=str(tmp_path / "s.toml")))
    assert launch_line(made) == "poe -procs 2 -hostfile RUN/hostfile -euilib us @rank prog"
    assert "--launcher poe --ranks 2 --stop-signal TERM --rank MP_CHILD" in made.script


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("import nothing_like_it\n", "hpcrun_poe:LAUNCHER", "cannot be imported: No module named 'nothing_like_it'"),
        ("LAUNCHER = 1\n", "hpcrun_poe:LAUNCHER", "is not an hpcrun.launchers.base.Launcher of that name"),
    ],
)
def test_a_package_that_does_not_is_named(plugin, tmp_path, text, place, expected):
    plugin(text, place)
    with pytest.raises(HpcrunError) as refused:
        submission.prepare(Request(None, ("prog",), resources={"ntasks": 2}, site=str(tmp_path / "s.toml")))
    assert expected in refused.value.message
    assert "hpcrun-poe" in (refused.value.hint or "")
