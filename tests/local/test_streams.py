"""All commands with closed streams, a removed current directory, no home directory, or an ASCII locale."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hpcrun as hpcrun_package
from hpcrun.cli.main import COMMANDS
from hpcrun.jobs.runs import Run
from tests.waiting import DEADLINE

HPCRUN = [sys.executable, "-m", "hpcrun"]
UNKNOWN_UID = 12345
ARGUMENTS = {
    "submit": ["submit", "--site", "slurm", "--dry-run", "--", "true"],
    "run": ["run", "--dry-run", "--", "true"],
    "resubmit": ["resubmit", "last", "--dry-run"],
    "compare": ["compare", "1", "2"],
    "prune": ["prune", "all", "--dry-run"],
    "cleanup": ["cleanup", "last", "--dry-run"],
    "cancel": ["cancel", "all"],
    "site": ["site", "list"],
    "workload": ["workload", "list"],
    "data": ["data", "info", "records"],
    "report": ["report", "last", "-o", "page.html"],
    "watch": ["watch", "last"],
}


def command_lines():
    return [ARGUMENTS.get(name, [name]) for name in COMMANDS]


def run_all_commands(shell, **more):
    """Run each command by a line of bash, four at a time; yield its arguments, exit code, stdout and stderr."""
    started = []
    for argv in command_lines():
        command = ["bash", "-c", shell, "bash", *HPCRUN, *argv]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, **more)
        started.append((argv, process))
        if len(started) % 4 == 0:
            process.wait(timeout=DEADLINE)
    for argv, process in started:
        out, err = process.communicate(timeout=DEADLINE)
        text = err.decode(errors="surrogateescape")
        assert "Traceback" not in text, (argv, text)
        assert "Exception ignored" not in text, (argv, text)
        yield argv, process.returncode, out.decode(errors="surrogateescape"), text


@pytest.fixture
def two_ended_jobs(fake_slurm, tmp_path, monkeypatch):
    """Submit and end two jobs whose names and logs are not ASCII."""
    monkeypatch.chdir(tmp_path)
    runs = [fake_slurm.submit("größe") for _ in range(2)]
    for run in runs:
        fake_slurm.write_exit_record(run)
        for end in ("out", "err"):
            (run.directory / f"{run.job_id}_0_log.{end}").write_bytes("größe\n".encode() + b"\xff\n")
        (run.directory / "result.json").write_text('{"größe": 1, "ranks": 2}')
    return runs


def test_closed_stdout_is_an_error_before_any_action(two_ended_jobs, fake_slurm):
    before = fake_slurm.calls("sbatch")
    for argv, code, out, err in run_all_commands('"$@" >&-'):
        assert (code, out) == (2, ""), argv
        assert err.splitlines()[0] == "ERROR: stdout is closed, and hpcrun prints there", (argv, err)
    assert fake_slurm.calls("sbatch") == before


def test_closed_stdin_and_stderr_do_not_affect_stdout(two_ended_jobs):
    done = subprocess.run(["bash", "-c", '"$@" <&- 2>&-', "bash", *HPCRUN, "status"], capture_output=True, check=True)
    assert done.stdout.decode().count("größe") == 2


@pytest.mark.thorough
def test_broken_pipe_ends_a_command_silently(two_ended_jobs):
    for argv, code, _, err in run_all_commands('set -o pipefail; "$@" | head -c 1'):
        assert code in {0, 1, 2, 141}, (argv, code, err)
    long = '"$@" all $(yes 1 | head -3000) | head -c 1; echo ${PIPESTATUS[0]}'
    done = subprocess.run(["bash", "-c", long, "bash", *HPCRUN, "status"], capture_output=True, text=True, check=True)
    assert (done.stdout[1:], done.stderr) in {("0\n", ""), ("141\n", "")}


def test_full_disk_behind_stdout_is_one_error(two_ended_jobs):
    dry_run = ["submit", "--site", "slurm", "--dry-run", "--", "true"]
    for argv in (["status"], ["result", "last"], ["logs"], ["status", "--json"], ["--help"], dry_run):
        done = subprocess.run(
            ["bash", "-c", '"$@" >/dev/full', "bash", *HPCRUN, *argv], capture_output=True, text=True, check=False
        )
        errors = [line for line in done.stderr.splitlines() if "No space left on device" in line]
        assert (done.returncode, len(errors)) == (1, 1), (argv, done.stderr)
        assert argv == dry_run or done.stderr.count("\n") == 1, (argv, done.stderr)


def test_full_disk_behind_stderr_does_not_change_what_a_command_does(two_ended_jobs, fake_slurm):
    before = len(fake_slurm.calls("sbatch"))
    for argv, code in ((["submit", "--site", "slurm", "--", "true"], 0), (["status", "--state", "what"], 2)):
        command = ["bash", "-c", '"$@" 2>/dev/full', "bash", *HPCRUN, *argv]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, (argv, done.stdout)
    assert len(fake_slurm.calls("sbatch")) == before + 1


ASCII_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LOCALES = [
    ASCII_LOCALE,
    pytest.param({**ASCII_LOCALE, "PYTHONIOENCODING": "ascii"}, marks=pytest.mark.thorough),
    pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.thorough),
]


@pytest.mark.parametrize("locale", LOCALES)
def test_umlauts_are_escaped_in_an_ascii_locale(two_ended_jobs, isolated_home, locale):
    sites = isolated_home / "config/hpcrun"
    sites.mkdir(parents=True)
    (sites / "größe.toml").write_text('description = "größe"\nextends = "slurm"\n')
    results = {argv[0]: (code, out) for argv, code, out, _ in run_all_commands('"$@"', env={**os.environ, **locale})}
    assert results["status"][0] == 0
    assert results["status"][1].count(r"gr\xf6\xdfe") == 2
    assert "\\u25" not in results["status"][1]
    assert results["logs"][1] == "größe\n\udcff\n"  # logs keep their bytes
    assert r"gr\xf6\xdfe" in results["site"][1]


def test_a_dry_run_into_a_file_has_the_exact_bytes_of_the_script_in_an_ascii_locale(fake_slurm, tmp_path):
    for argv in (["submit", "--site", "slurm"], ["run", "--site", "local"]):
        command = [*HPCRUN, *argv, "--dry-run", "--", "echo", "größe", "\udcff"]
        done = subprocess.run(
            command, env={**os.environ, **ASCII_LOCALE}, capture_output=True, cwd=tmp_path, check=True
        )
        assert done.stdout.endswith("echo 'größe' '".encode() + b"\xff'\n")


def test_removed_current_folder_is_one_error(two_ended_jobs, tmp_path):
    shell = f'd={tmp_path}/gone.$$; mkdir $d; cd $d; rmdir $d; "$@"'
    for argv, code, _, err in run_all_commands(shell):
        assert (code, err.count("ERROR: the current directory does not exist")) == (2, 1), (argv, err)


def test_missing_home_directory_is_one_error(tmp_path):
    if os.geteuid():
        pytest.skip("only root can take the passwd entry away")
    (tmp_path / "passwd").touch()
    shell = f'mount --bind {tmp_path}/passwd /etc/passwd && exec unshare --user --map-user={UNKNOWN_UID} "$@"'
    outer = f"unshare --mount bash -c '{shell}' bash \"$@\""
    if subprocess.run(["bash", "-c", outer, "bash", "true"], capture_output=True, check=False).returncode:
        pytest.skip("there are no namespaces here")
    for argv, code, out, err in run_all_commands(outer, env={"PATH": os.environ["PATH"]}, cwd=tmp_path):
        # commands that need no home must succeed; doctor reports it as a finding
        shown = "has no home directory" in out if argv == ["doctor"] else err.count("ERROR: ") == 1
        assert code == 0 or shown, (argv, code, out, err)
        if argv[0] in {"status", "logs", "cancel", "cleanup", "prune", "why", "resubmit", "site"}:
            assert f"user {UNKNOWN_UID} has no home directory" in err, (argv, err)


def test_no_folder_is_named_tilde_without_a_home_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("HPCRUN_RUN_ROOT")
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.toml").write_text('run_root = "~/runs"\nlauncher = "none"\n')
    with pytest.raises(hpcrun_package.errors.HpcrunError, match="has no home directory"):
        Run(hpcrun_package.submit(None, ["true"], site=str(tmp_path / "site.toml")).directory)
    assert not Path("~").exists()
