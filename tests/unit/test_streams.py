"""What a shell can do to any command: close its streams, take its folder or its home away, or speak ASCII only."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hpcrun as hpcrun_package
from hpcrun.cli.main import COMMANDS
from hpcrun.jobs.runs import Run

HPCRUN = [sys.executable, "-m", "hpcrun"]
NOBODY = 12345
LINES = {
    "submit": ["submit", "--site", "slurm", "--dry-run", "--", "true"],
    "run": ["run", "--dry-run", "--", "true"],
    "resubmit": ["resubmit", "last", "--dry-run"],
    "compare": ["compare", "1", "2"],
    "prune": ["prune", "all", "--dry-run"],
    "cleanup": ["cleanup", "last", "--dry-run"],
    "cancel": ["cancel", "all"],
    "site": ["site", "list"],
    "workload": ["workload", "list"],
    "report": ["report", "last", "-o", "page.html"],
    "watch": ["watch", "last"],
}


def lines():
    return [LINES.get(name, [name]) for name in COMMANDS]


def call(shell, **more):
    """Run each command by a line of bash, several at once; return its line, exit code, output and errors."""
    started = []
    for argv in lines():
        command = ["bash", "-c", shell, "bash", *HPCRUN, *argv]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, **more)
        started.append((argv, process))
        if len(started) % 4 == 0:
            process.wait(timeout=300)
    for argv, process in started:
        out, err = process.communicate(timeout=300)
        text = err.decode(errors="surrogateescape")
        assert "Traceback" not in text, (argv, text)
        assert "Exception ignored" not in text, (argv, text)
        yield argv, process.returncode, out.decode(errors="surrogateescape"), text


@pytest.fixture
def two(fake_slurm, tmp_path, monkeypatch):
    """Two jobs that have ended, whose names and logs are not ASCII."""
    monkeypatch.chdir(tmp_path)
    runs = [fake_slurm.submit("größe") for _ in range(2)]
    for run in runs:
        fake_slurm.write_exit_record(run)
        for end in ("out", "err"):
            (run.directory / f"{run.job_id}_0_log.{end}").write_bytes("größe\n".encode() + b"\xff\n")
        (run.directory / "result.json").write_text('{"größe": 1, "ranks": 2}')
    return runs


def test_a_closed_stdout_is_one_error_before_anything_is_done(two, fake_slurm):
    before = fake_slurm.calls("sbatch")
    for argv, code, out, err in call('"$@" >&-'):
        assert (code, out) == (2, ""), argv
        assert err.splitlines()[0] == "ERROR: stdout is closed, and hpcrun prints there", (argv, err)
    assert fake_slurm.calls("sbatch") == before


def test_closed_input_and_errors_take_nothing_from_the_output(two):
    done = subprocess.run(["bash", "-c", '"$@" <&- 2>&-', "bash", *HPCRUN, "status"], capture_output=True, check=True)
    assert done.stdout.decode().count("größe") == 2


@pytest.mark.thorough
def test_a_reader_that_has_had_enough_ends_a_command_in_silence(two):
    for argv, code, _, err in call('set -o pipefail; "$@" | head -c 1'):
        assert code in {0, 1, 2, 141}, (argv, code, err)
    long = '"$@" all $(yes 1 | head -3000) | head -c 1; echo ${PIPESTATUS[0]}'
    done = subprocess.run(["bash", "-c", long, "bash", *HPCRUN, "status"], capture_output=True, text=True, check=True)
    assert (done.stdout[1:], done.stderr) in {("0\n", ""), ("141\n", "")}


def test_a_full_disk_at_stdout_is_one_error(two):
    for argv in (["status"], ["result", "last"], ["logs"], ["status", "--json"]):
        done = subprocess.run(
            ["bash", "-c", '"$@" >/dev/full', "bash", *HPCRUN, *argv], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), (argv, done.stderr)
        assert "No space left on device" in done.stderr


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LOCALES = [
    ASCII,
    pytest.param({**ASCII, "PYTHONIOENCODING": "ascii"}, marks=pytest.mark.thorough),
    pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.thorough),
]


@pytest.mark.parametrize("locale", LOCALES)
def test_a_locale_without_umlauts_gets_them_spelled(two, isolated_home, locale):
    sites = isolated_home / "config/hpcrun"
    sites.mkdir(parents=True)
    (sites / "größe.toml").write_text('description = "größe"\nextends = "slurm"\n')
    told = {argv[0]: (code, out) for argv, code, out, _ in call('"$@"', env={**os.environ, **locale})}
    assert told["status"][0] == 0
    assert told["status"][1].count(r"gr\xf6\xdfe") == 2
    assert "\\u25" not in told["status"][1]
    assert told["logs"][1] == "größe\n\udcff\n"  # the bytes are kept
    assert r"gr\xf6\xdfe" in told["site"][1]


def test_a_folder_that_is_gone_is_one_error(two, tmp_path):
    shell = f'd={tmp_path}/gone.$$; mkdir $d; cd $d; rmdir $d; "$@"'
    for argv, code, _, err in call(shell):
        assert (code, err.count("ERROR: the current folder does not exist")) == (2, 1), (argv, err)


def test_without_a_home_there_is_one_error(tmp_path):
    if os.geteuid():
        pytest.skip("only root can take the passwd entry away")
    (tmp_path / "passwd").touch()
    shell = f'mount --bind {tmp_path}/passwd /etc/passwd && exec unshare --user --map-user={NOBODY} "$@"'
    outer = f"unshare --mount bash -c '{shell}' bash \"$@\""
    if subprocess.run(["bash", "-c", outer, "bash", "true"], capture_output=True, check=False).returncode:
        pytest.skip("there are no namespaces here")
    for argv, code, out, err in call(outer, env={"PATH": os.environ["PATH"]}, cwd=tmp_path):
        # some need no home: they must just work; doctor has a row for each thing that is wrong
        shown = "has no home directory" in out if argv == ["doctor"] else err.count("ERROR: ") == 1
        assert code == 0 or shown, (argv, code, out, err)
        if argv[0] in {"status", "logs", "cancel", "cleanup", "prune", "why", "resubmit", "site"}:
            assert f"user {NOBODY} has no home directory" in err, (argv, err)


def test_nothing_is_named_after_a_tilde_that_nobody_fills_in(monkeypatch, tmp_path):
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("HPCRUN_RUN_ROOT")
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.toml").write_text('run_root = "~/runs"\nlauncher = "none"\n')
    with pytest.raises(hpcrun_package.errors.HpcrunError, match="has no home directory"):
        Run(hpcrun_package.submit(None, ["true"], site=str(tmp_path / "site.toml")).directory)
    assert not Path("~").exists()
