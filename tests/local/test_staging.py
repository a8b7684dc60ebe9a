"""Data on the node-local disk: what is refused before submission, what the script shows, and real jobs."""

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

import hpcrun
from hpcrun import submission
from hpcrun.errors import HpcrunError
from hpcrun.jobs.runs import Run
from hpcrun.request import Request
from tests.waiting import wait_until


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return the path of a site without a scheduler, whose node-local disk is a folder of the test."""
    monkeypatch.setenv("LOCAL", str(tmp_path / "disk"))
    file = tmp_path / "s.toml"
    file.write_text('extends = "local"\nlocal_scratch = ["$LOCAL/mine"]\n')
    return str(file)


@pytest.fixture(autouse=True)
def start(tmp_path, monkeypatch):
    """Submit from the folder of the test."""
    monkeypatch.chdir(tmp_path)


def plan(*args, site, target=None, **options):
    return submission.prepare(Request(target, args, site=site, no_gpu=True, **options))


def stage_lines(script):
    """Return the words of the script's line that stages data."""
    lines = re.search(r"^hpcrun_stage (.*?[^\\])$", script, re.MULTILINE | re.DOTALL)
    return shlex.split(lines[1].replace("\\\n", "")) if lines else []


def test_a_job_copies_its_data_and_removes_the_copy(site, tmp_path):
    data = tmp_path / "my data"
    data.mkdir()
    (data / "x").write_text("content")
    program = """pwd; cat "$0/x"; test "$0" = "$HPCRUN_STAGED/my data" && ls "$HPCRUN_STAGED"; echo $HPCRUN_STAGED"""
    job = hpcrun.submit(None, ["sh", "-c", program, "{staged}/my data"], site=site, no_gpu=True, stage_in=[data.name])
    assert job.exception() is None
    run = Run(job.directory)
    staged = tmp_path / "disk/mine" / run.directory.name / "staged"
    assert job.stdout().splitlines()[-3:] == [f"{Path.cwd()}", "contentmy data", str(staged)]
    assert list((tmp_path / "disk/mine").iterdir()) == []


@pytest.mark.mpi
def test_ranks_of_mpiexec_share_a_copy(cli, site, tmp_path):
    (tmp_path / "x").write_text("content")
    program = 'cat "$HPCRUN_STAGED/x"; stat -c " %i" "$HPCRUN_STAGED/x"; sleep 0.5'
    argv = ["--site", site, "--no-gpu", "--output-on-all-ranks", "-n", "3", "--stage-in", "x", "--wait"]
    code, out, err = cli("submit", *argv, "--", "sh", "-c", program)
    assert (code, out.count(" staged data in ")) == (0, 1), err
    assert len(set(re.findall(r"^\[rank \d\] (content \d+)$", out, re.MULTILINE))) == 1
    assert len(re.findall(r"^\[rank \d\] content", out, re.MULTILINE)) == 3
    assert list((tmp_path / "disk/mine").iterdir()) == []


def test_a_job_that_copies_is_cancelled_at_once(cli, site, tmp_path):
    os.mkfifo(tmp_path / "slow.tar")  # tar waits for ever to open it
    job = hpcrun.submit(None, ["true"], site=site, no_gpu=True, unpack=["slow.tar"])
    disk = tmp_path / "disk/mine"
    wait_until(lambda: list(disk.rglob("slow")))
    assert cli("cancel", job.job_id)[0] == 0
    wait_until(Run(job.directory).end_record, 10)
    assert (job.state, list(disk.iterdir())) == ("CANCELLED", [])


@pytest.mark.parametrize("script_dies", [False, True])
def test_the_copy_of_killed_ranks_is_removed(cli, site, tmp_path, script_dies):
    (tmp_path / "x").mkdir()
    (tmp_path / "x/y").touch()
    (tmp_path / "x").chmod(0o555)
    job = hpcrun.submit(None, ["sh", "-c", "echo up; sleep 600"], site=site, no_gpu=True, stage_in=["x"])
    run = Run(job.directory)
    log = run.directory / "logs/rank-0.log"
    wait_until(lambda: log.exists() and log.read_text())
    copy = tmp_path / "disk/mine" / run.directory.name
    assert (copy / "staged/x/y").exists()
    script = int(job.job_id)
    if script_dies:
        os.kill(script, signal.SIGSTOP)
    ranks = subprocess.run(["pgrep", "-f", f"{run.directory}/rank.sh"], capture_output=True, text=True, check=True)
    for pid in ranks.stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    if script_dies:
        os.kill(script, signal.SIGKILL)
    wait_until(run.end_record)
    assert (copy / "staged/x/y").exists() == script_dies
    code, _, err = cli("cleanup", "last", "--yes")
    assert (code, copy.exists()) == (0, False), err


def test_the_script_shows_what_is_staged(site, tmp_path):
    script = plan("a.out", "--in={staged}/b c", "{staged}", site=site, stage_in=["b c"], unpack=["/d/i.tar.gz"]).script
    folder = "${LOCAL?site key local_scratch names it}/mine"
    assert stage_lines(script) == [folder, "--copy", f"{tmp_path}/b c", "--unpack", "i", "/d/i.tar.gz"]
    assert """a.out --in="$HPCRUN_STAGED"'/b c' "$HPCRUN_STAGED"\n""" in script
    assert script.index("hpcrun_stage ") < script.index("# ---- Launch")


def test_the_api_takes_paths_of_pathlib(site, tmp_path):
    planned = plan("true", site=site, stage_in=[Path("x")], unpack=(tmp_path / "y.tar",))
    assert (planned.spec.stage_in, planned.spec.unpack) == ((f"{tmp_path}/x",), (f"{tmp_path}/y.tar",))


def test_without_staged_data_the_word_is_literal(site):
    script = plan("a.out", "{staged}", site=site).script
    assert ("a.out '{staged}'\n" in script, "hpcrun_stage" in script) == (True, False)


@pytest.mark.parametrize(("args", "message"), [
    (["{staged}/mages"], "contain {staged}/mages, but the copies are {staged}/b c, {staged}/images"),
    (["{staged}/images.tar", "--x={staged}/y/z"], "contain {staged}/images.tar, {staged}/y, but"),
    (["{staged}", "{staged}/images", "--in={staged}/b c/d", "{staged}/images/*.png", "{staged}/*.csv"], ""),
    (["sh", "-c", "cat {staged}/images; ls '{staged}/b c' {staged}/$0"], ""),
    (["--in={staged}/images,{staged}/b c"], ""),
])  # fmt: skip
def test_names_that_no_copy_has_are_a_warning(site, args, message):
    planned = plan("a.out", *args, site=site, stage_in=["b c"], unpack=["images.tar"])
    assert [message in warning for warning in planned.warnings if "the copies are" in warning] == [True] * bool(message)
    nothing = [warning for warning in plan("a.out", *args, site=site).warnings if "makes no copies" in warning]
    assert nothing == ["the program's arguments contain {staged}, but the job makes no copies (--stage-in, --unpack)"]


def test_a_job_submitted_again_with_other_data_warns_of_its_arguments(cli, site, tmp_path):
    for name in ("x", "y"):
        (tmp_path / name).touch()
    argv = ("submit", "--site", site, "--no-gpu", "--stage-in", "x", "--wait", "--", "ls", "{staged}/x")
    assert cli(*argv)[0] == 0
    code, _, err = cli("resubmit", "last", "--stage-in", "y", "--dry-run")
    message = "WARNING: the program's arguments contain {staged}/x, but the copies are {staged}/y\n"
    assert (code, message in err) == (0, True), err


def test_a_job_inside_a_job_does_not_stage_its_data(site, monkeypatch):
    monkeypatch.setenv("HPCRUN_STAGED", "/local/other-run/staged")
    job = hpcrun.submit(None, ["sh", "-c", "echo [$HPCRUN_STAGED]"], site=site, no_gpu=True)
    assert job.exception() is None
    assert job.stdout().endswith("[]\n")


def test_tasks_of_a_sweep_get_their_own_copies(site, tmp_path):
    script = plan("a.out", "{staged}/x", site=site, stage_in=["x"], sweep=(("n", ("1", "2")),)).script
    assert '0) hpcrun_program=(a.out "$HPCRUN_STAGED"/x --n=1) ;;' in script
    assert script.index("hpcrun_stage ") < script.index("hpcrun_program=")


@pytest.mark.parametrize(("options", "message", "hint"), [
    ({"stage_in": ["a/x", "b/x/"]}, "--stage-in=b/x/: the copy's name would be x, as that of a/x", "rename one"),
    ({"stage_in": ["x"], "unpack": ["x.tar.zst"]}, "--unpack=x.tar.zst: the copy's name would be x", "rename one"),
    ({"stage_in": ["/"]}, "--stage-in=/: the copy would have no name", "below it"),
    ({"unpack": ["x.gz"]}, "/x.gz: not the name of an archive", "x.gz copies any file"),
    ({"stage_in": "x"}, "--stage-in: 'x' is not a list of paths", "stage_in="),
    ({"stage_in": None}, "--stage-in: None is not a list of paths", "stage_in="),
    ({"unpack": Path("x.tar")}, "--unpack: PosixPath('x.tar') is not a list of paths", "stage_in="),
    ({"stage_in": [3]}, "--stage-in: [3] is not a list of paths", "stage_in="),
    ({"stage_in": [""]}, "--stage-in: [''] is not a list of paths", "stage_in="),
])  # fmt: skip
def test_what_cannot_be_staged_is_refused(site, options, message, hint):
    with pytest.raises(HpcrunError) as error:
        plan("true", site=site, **options)
    assert message in error.value.message
    assert hint in str(error.value.hint)


def test_a_site_without_a_node_local_disk_refuses(cli):
    code, _, err = cli("submit", "--site", "slurm", "--no-gpu", "--stage-in", "/usr", "--dry-run", "--", "true")
    assert code == 2
    assert err == (
        "ERROR: --stage-in=/usr: site slurm names no node-local disk (site key local_scratch)\n"
        'HINT: set it in the site file: local_scratch = ["/local/${USER}"]\n'
    )


@pytest.mark.parametrize("option", ["--stage-in", "--unpack"])
def test_missing_data_are_refused_and_a_dry_run_warns(cli, site, tmp_path, option):
    argv = ("submit", "--site", site, "--no-gpu", option, "none.tar", "--", "true")
    message = f"{option}={tmp_path}/none.tar: there is no such file or folder"
    code, _, err = cli(*argv)
    assert (code, f"ERROR: {message}\nHINT: " in err) == (2, True)
    code, _, err = cli(argv[0], "--dry-run", *argv[1:])
    assert (code, f"WARNING: {message}: without it, no job is submitted here\n" in err) == (0, True)


def test_data_that_only_nodes_have_are_not_refused(tmp_path, fake_slurm, cli):
    (fake_slurm.folder / "id").write_text("1")
    (tmp_path / "c.toml").write_text('extends = "slurm"\nlocal_scratch = ["/local"]\n')
    argv = ("submit", "--site", "./c.toml", "--no-gpu", "--stage-in")
    assert cli(*argv, "/nowhere/on/this/host", "--", "true")[0] == 0
    code, _, err = cli(*argv, f"{Path(os.environ['HPCRUN_RUN_ROOT']).parent}/none", "--", "true")
    assert (code, "there is no such file or folder" in err) == (2, True)


@pytest.mark.parametrize(("stage_in", "args", "expected"), [
    (["images"], (), '--data-dir="$HPCRUN_STAGED"/images'),
    (["images"], ("--data-dir", "images"), '--data-dir images --data-dir="$HPCRUN_STAGED"/images'),
    (["images"], ("--data-dir={staged}/images/small",), '--data-dir="$HPCRUN_STAGED"/images/small'),
    (["images"], ("--data-dir", "./records"), "--data-dir ./records"),
    (["images", "labels"], ("--data-dir", "./records"), "--data-dir ./records"),
])  # fmt: skip
def test_a_workload_reads_its_staged_data(site, tmp_path, stage_in, args, expected):
    for name in (*stage_in, "records/train", "records/validation"):
        (tmp_path / name).mkdir(parents=True)
    planned = plan(*args, site=site, target="resnet50", stage_in=stage_in)
    assert planned.script.endswith(f"/train.py {expected}\n")
    assert planned.missing_data is None


def test_staged_data_are_submitted_again(cli, site, tmp_path):
    (tmp_path / "x").touch()
    argv = ("submit", "--site", site, "--no-gpu", "--stage-in", "x", "--wait", "--", "ls", "{staged}")
    assert cli(*argv)[0] == 0
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    code, out, err = cli("resubmit", "last", "--wait")
    assert (code, "x" in out.splitlines()) == (0, True), err


def test_pyxis_cannot_stage(tmp_path):
    (tmp_path / "c.toml").write_text(
        'extends = "slurm"\nlocal_scratch = ["/local"]\ncontainer = { runtime = "pyxis", image = "a" }\n'
    )
    with pytest.raises(HpcrunError, match="--stage-in: pyxis starts the container before"):
        plan("true", site="./c.toml", stage_in=["/usr"])


def test_why_explains_a_failed_copy(cli, site, tmp_path):
    (tmp_path / "x.tar").write_text("no archive")
    assert cli("submit", "--site", site, "--no-gpu", "--unpack", "x.tar", "--wait", "--", "true")[0] == 1
    assert f"could not be copied to the disk of {os.uname().nodename}: " in cli("why", "last")[1]
