"""The launch lines of all launchers."""

import shlex
import sys

import pytest

from hpcrun import launchers, submission
from hpcrun.errors import HpcrunError
from hpcrun.jobs import run_creation
from hpcrun.request import Request

SITES = {
    "srun": 'launcher = "srun"\nmpi = { library = "openmpi", type = "pmix" }',
    "mpirun5": 'launcher = "mpirun"\nmpi.library = "openmpi"',
    "mpirun-bound": 'launcher = "mpirun"\nmpi.library = "openmpi"\nlauncher_args = ["--bind-to", "core"]',
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
        ("mpirun-bound", "mpirun --hostfile RUN/hostfile -n 4 --bind-to core"),
        ("ibrun", "ibrun -n 4 -o 0"),
        ("mpiexec", "mpiexec -launcher slurm -f RUN/hostfile -n 4 -bind-to core"),
    ],
)
def test_launch_lines_in_a_slurm_job(plan, kind, expected):
    planned = plan(kind, resources={"nodes": 2, "ntasks_per_node": 2, "cpus_per_task": 3})
    assert launch_line(planned) == f"{expected} @rank prog arg"


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
        ),  # srun cannot start over ssh, so MPI's own launcher does
    ],
)
def test_launch_lines_over_ssh(plan, kind, expected, tmp_path):
    (tmp_path / "hosts").write_text("n1\nn2\n")
    given = {"environment": (("KEY", "value"), ("HPCRUN_STALL_SECONDS", "60")), "fusion_threshold_kb": 64}
    planned = plan(kind, hostfile=tmp_path / "hosts", run_now=True, **given)
    line = launch_line(planned)
    assert line.startswith(expected)
    if "mpirun" in kind:  # over ssh, Open MPI forwards only the variables of -x
        assert "-x PATH" in line
        assert "-x KEY" in line
        assert "-x HPCRUN_STALL_SECONDS" in line
        assert "-x HPCRUN_RUN_DIR" in line
        assert "-x HPCRUN_FUSION_THRESHOLD_KB" in line


def test_each_launcher_with_mpi_families_is_refused_for_other_libraries(tmp_path):
    for launcher in map(launchers.load_launcher, launchers.REGISTRY.built_in):
        site = tmp_path / "s.toml"
        site.write_text(f'scheduler = "slurm"\nlauncher = "{launcher.name}"\nmpi.library = "cray-mpich"\n')
        request = Request(None, ("prog",), site=str(site), resources={"ntasks": 1})
        if not launcher.libraries:
            assert submission.prepare(request).spec.launcher == launcher.name
            continue
        with pytest.raises(HpcrunError) as refused:
            submission.prepare(request)
        given = f'launcher = "{launcher.name}" starts programs of {", ".join(launcher.libraries)}, '
        assert f'{site}:2: {given}but mpi.library is "cray-mpich"' in refused.value.message
        assert 'set launcher = "srun", or mpi.library to ' in (refused.value.hint or "")


def test_one_process_on_this_host_needs_no_launcher(plan):
    planned = plan("mpiexec", run_now=True)
    assert planned.spec.launcher == "none"
    assert launch_line(planned) == "@rank prog arg"


def test_all_built_in_launchers_are_tested(plan):
    tested = {plan(kind).spec.launcher for kind in SITES} | {"none"}
    assert tested == set(launchers.REGISTRY.built_in)


def test_srun_gets_an_uneven_number_of_ranks(plan):
    planned = plan("srun", resources={"nodes": 2, "ntasks": 3})
    assert launch_line(planned).startswith("srun --ntasks=3 --nodes=2 --mpi=pmix")


def test_the_placeholder_of_the_rank_wrapper_is_refused_in_launcher_args(tmp_path):
    site = tmp_path / "own.toml"
    site.write_text('extends = "local"\nlauncher_args = ["@rank"]\ndefaults.ntasks_per_node = 2\n')
    with pytest.raises(HpcrunError, match="launcher_args: @rank is reserved") as refused:
        submission.prepare(Request(None, ("true",), site=str(site)))
    assert "leave it out" in (refused.value.hint or "")


CUSTOM_SITE = 'mpi.library = "openmpi"\nlauncher.command = "{}"\n'


@pytest.fixture
def plan_custom(tmp_path):
    """Plan a job of a site with a custom launcher command."""

    def make(command, more="", **resources):
        (tmp_path / "s.toml").write_text(CUSTOM_SITE.format(command) + more)
        return submission.prepare(Request(None, ("prog",), resources=resources, site=str(tmp_path / "s.toml")))

    return make


def test_a_site_defines_a_launcher_by_its_command_line(plan_custom):
    planned = plan_custom("/opt/bin/mylaunch -n {ranks} -N {nodes} --hosts={hostfile}", nodes=2, ntasks_per_node=3)
    assert planned.spec.launcher == "mylaunch"
    assert launch_line(planned) == "/opt/bin/mylaunch -n 6 -N 2 --hosts=RUN/hostfile @rank prog"
    options = shlex.split(
        planned.script[planned.script.index("\nhpcrun_launch ") :].partition(" -- ")[0].replace("\\\n", "")
    )
    assert "OMPI_COMM_WORLD_RANK" in options[options.index("--rank") + 1].split()


@pytest.mark.parametrize("name", [name for name in launchers.REGISTRY.built_in if name != "none"])
def test_each_built_in_launcher_as_a_program_is_refused(name):
    with pytest.raises(HpcrunError, match=f"each of the 2 ranks would start {name}"):
        submission.prepare(Request(None, (name, "./a.out"), resources={"ntasks": 2}, site="slurm"))


def test_a_sites_own_launcher_as_a_program_is_refused(plan_custom, tmp_path):
    plan_custom("/opt/bin/mylaunch -n {ranks}", ntasks=2)
    with pytest.raises(HpcrunError, match="each of the 2 ranks would start mylaunch"):
        submission.prepare(Request(None, ("mylaunch", "a"), resources={"ntasks": 2}, site=str(tmp_path / "s.toml")))


def test_a_custom_command_of_a_known_program_behaves_like_it(plan_custom):
    assert " --ignores-failures " in plan_custom("/opt/bin/mpiexec -n {ranks}", ntasks=2).script
    assert "hpcrun_launch --launcher srun --ranks 2" in plan_custom("srun -n {ranks}", ntasks=2).script
    assert "hpcrun_launch --ranks 2 " in plan_custom("mylaunch -n {ranks}", ntasks=2).script


def test_a_site_sets_the_variables_and_signal_of_its_launcher(plan_custom):
    planned = plan_custom("mylaunch", 'launcher.rank = "MY_RANK"\nlauncher.stop_signal = "USR1"\n', ntasks=2)
    assert "--stop-signal USR1 --rank MY_RANK --local-rank " in planned.script


@pytest.mark.parametrize(
    ("command", "more", "expected"),
    [
        ("mylaunch -n {rank}", "", "launcher.command = 'mylaunch -n {rank}': unknown placeholder {rank}; known: "),
        ("{ranks}", "", "must begin with the launcher's name"),
        ("", "", "must begin with the launcher's name"),
        ("mylaunch '", "", "No closing quotation"),
        ("mylaunch", "launcher.comand = 1", "unknown key launcher.comand; did you mean command?"),
        ("mylaunch", 'launcher.rank = "A B"', "launcher.rank = 'A B': the name of an environment variable"),
        ("mylaunch -N {nodes}", "", "launcher.command of site s has {nodes}, but the job does not set it"),
    ],
)
def test_an_invalid_launcher_command_is_refused(plan_custom, command, more, expected):
    with pytest.raises(HpcrunError) as refused:
        plan_custom(command, more, ntasks=2)
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

    def install(text=PLUGIN, target="hpcrun_poe:LAUNCHER"):
        folder = tmp_path / "site-packages"
        (folder / "hpcrun_poe-1.0.dist-info").mkdir(parents=True)
        (folder / "hpcrun_poe.py").write_text(text)
        (folder / "hpcrun_poe-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: hpcrun-poe\n")
        entry = f"[hpcrun.launchers]\npoe = {target}\n"
        (folder / "hpcrun_poe-1.0.dist-info" / "entry_points.txt").write_text(entry)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "hpcrun_poe", raising=False)
        (tmp_path / "s.toml").write_text('launcher = "poe"\nlauncher_args = ["-euilib", "us"]\n')

    yield install
    sys.modules.pop("hpcrun_poe", None)


def test_an_installed_package_adds_a_launcher(plugin, tmp_path):
    plugin()
    planned = submission.prepare(Request(None, ("prog",), resources={"ntasks": 2}, site=str(tmp_path / "s.toml")))
    assert launch_line(planned) == "poe -procs 2 -hostfile RUN/hostfile -euilib us @rank prog"
    assert "hpcrun_launch --ranks 2 --stop-signal TERM --rank MP_CHILD" in planned.script


def test_the_bash_file_of_a_launcher_goes_with_the_run(plugin, tmp_path, monkeypatch):
    file = tmp_path / "poe.bash"
    file.write_text("hpcrun_read_launcher() { hpcrun_code=7; }\n")
    plugin(f"from pathlib import Path\n{PLUGIN[:-2]}    bash_file=Path('{file}'),\n)\n")
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(tmp_path / "runs"))
    planned = submission.prepare(Request(None, ("prog",), resources={"ntasks": 2}, site=str(tmp_path / "s.toml")))
    assert f"hpcrun_launch --launcher {file} --ranks 2 " in planned.script.replace(" \\\n  ", " ")  # a long path wraps
    run = run_creation.create_run(planned.spec, planned.script)
    assert (run.directory / "shell/poe.bash").read_bytes() == file.read_bytes()
    assert (run.directory / "shell/launch.bash").exists()


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("raise ImportError('no libpoe.so')\n", "hpcrun_poe:LAUNCHER", "cannot be imported: no libpoe.so"),
        ("LAUNCHER = 1\n", "hpcrun_poe:LAUNCHER", "is not an hpcrun.launchers.base.Launcher of that name"),
    ],
)
def test_a_package_with_an_invalid_launcher_is_named(plugin, tmp_path, text, target, expected):
    plugin(text, target)
    with pytest.raises(HpcrunError) as refused:
        submission.prepare(Request(None, ("prog",), resources={"ntasks": 2}, site=str(tmp_path / "s.toml")))
    assert expected in refused.value.message
    assert "hpcrun-poe" in (refused.value.hint or "")


def test_an_invalid_custom_launcher_is_reported_once(plan_custom):
    with pytest.raises(HpcrunError) as refused:
        plan_custom("mylaunch -n {rank}", ntasks=2)
    assert refused.value.message.count("\n") == 0
