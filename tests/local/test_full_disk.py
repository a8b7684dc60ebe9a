"""A full disk: commands and jobs print one error and leave no incomplete files."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hpcrun
from hpcrun.jobs.runs import Run
from hpcrun.schedulers import processes
from tests.waiting import wait_until

HPCRUN = [sys.executable, "-m", "hpcrun"]
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c"]
FILL = 'dd if=/dev/zero of="$D/filling" bs=1k 2>/dev/null; '


@pytest.fixture
def small(isolated_home):
    """Return a function that runs bash lines with a run root ``$D`` on a file system of a few KB."""
    disk = isolated_home / "disk"
    disk.mkdir()

    def call(size, lines):
        command = f'hpcrun() {{ {" ".join(HPCRUN)} "$@"; }}'
        lines = f'mount -t tmpfs -o size={size}k tmpfs "$D" || exit 99\n{command}\n{lines}'
        variables = {"D": str(disk), "HPCRUN_RUN_ROOT": str(disk), "HPCRUN_SITE": "local"}
        done = subprocess.run(
            [*UNSHARE, lines],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
            cwd=isolated_home,
        )
        if done.returncode == 99 or "unshare" in done.stderr:
            pytest.skip(f"no private mounts on this host: {done.stderr}")
        return done

    return call


@pytest.mark.parametrize("size_kb", [8, 32, *(pytest.param(size, marks=pytest.mark.thorough) for size in (24, 48))])
def test_submit_fails_without_space_for_records(small, size_kb):
    for line in ("submit -- true", "run -- true", "submit --sweep n=1,2 -- true"):
        done = small(size_kb, f'hpcrun {line}; code=$?; ls -A "$D"; exit $code')
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert done.stderr.startswith("ERROR: cannot create the run directory")
        assert "No space left on device\nHINT: df -h and quota -s show what is full" in done.stderr
        assert done.stderr.count("\n") == 2
    assert small(size_kb, "hpcrun submit --dry-run -- true >script; bash -n script").returncode == 0
    assert json.loads(small(size_kb, "hpcrun status --json").stdout) == []


@pytest.mark.parametrize("free_kb", [0, 4, 8])  # for nothing, the journal, and a shard
def test_a_data_set_without_space_is_one_error_and_goes_on(small, free_kb):
    build = 'hpcrun data synthetic "$D/out" --images 1 --validation-images 0 --workers 1 --size 8'
    free = f'truncate -s -{free_kb}k "$D/filling"; {build}; code=$?; rm "$D/filling"; {build} >/dev/null'
    done = small(64, f'{FILL} {free} && ls "$D/out"; exit $code')
    assert (done.returncode, "dataset.json" in done.stdout.split()) == (1, True), done.stderr
    folder = re.escape(f"{Path.cwd()}/disk/out")
    assert re.match(rf"ERROR: {folder}.*: No space left on device\nHINT: free some disk space, ", done.stderr)


def test_a_workload_that_cannot_be_copied_leaves_no_folder(small):
    done = small(64, f'{FILL} cd "$D"; hpcrun workload new mine --from resnet50; code=$?; ls; exit $code')
    assert (done.returncode, done.stdout) == (2, "filling\n")
    assert done.stderr.count("No space left on device") == 1
    assert "HINT: change to a folder with free space" in done.stderr


def test_incomplete_snapshot_is_removed(small, isolated_home):
    (isolated_home / "program.py").write_text("#" * 300_000)
    line = 'hpcrun submit --no-gpu --snapshot program.py; code=$?; ls -A "$D"; hpcrun status --json; exit $code'
    done = small(280, line)
    assert (done.returncode, json.loads(done.stdout)) == (2, [])
    assert "--snapshot: cannot copy" in done.stderr


def test_job_that_fills_the_disk_reports_it(small):
    done = small(300, f"""hpcrun run -- sh -c '{FILL} exit 5' >&2; code=$?; cat "$D"/*/exit.json; exit $code""")
    reason = "the ranks ended with exit code 5; the disk of the run directory is full"
    assert (done.returncode, json.loads(done.stdout)["reason"]) == (5, reason), done.stderr


def test_job_without_space_for_its_record_starts_no_ranks(small, isolated_home):
    keep = f'rm -f "$D"/*/exit.json; {FILL} for job in "$D"/*/job.sh; do HPCRUN_RUN_DIR=x bash "$job"; done'
    done = small(300, f'hpcrun run -- sh -c "echo begun >>{isolated_home}/begun"; {keep}')
    assert (isolated_home / "begun").read_text() == "begun\n"
    assert done.returncode == 1
    assert done.stderr.count("no space for the record of this job in") == 1
    assert "write error" not in done.stderr


def test_cleanup_reports_that_it_cannot_record_clean_nodes(small):
    done = small(300, f"hpcrun run -- true; {FILL} hpcrun cleanup last --force")
    assert done.returncode == 1
    assert "these jobs left nothing behind, but that cannot be recorded: " in done.stderr
    assert "HINT: free disk space there" in done.stderr


def test_local_job_that_cannot_be_recorded_is_killed(isolated_home, monkeypatch, cli):
    file = isolated_home / "pid"

    def full(*_, **__):
        wait_until(file.exists)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hpcrun.schedulers.local.write_submission", full)
    line = f"echo $$ >{file}.part; mv {file}.part {file}; exec sleep 600"
    code, _, err = cli("submit", "--site", "local", "--", "sh", "-c", line)
    assert (code, "No space left on device; its run directory was removed\nHINT: free disk space" in err) == (
        1,
        True,
    ), err
    wait_until(lambda: processes.start_time(int(file.read_text())) is None)
    assert not list((isolated_home / "runs").iterdir())
    assert json.loads(cli("status", "--json")[1]) == []


def test_check_of_free_space_leaves_no_file(isolated_home, monkeypatch):
    monkeypatch.chdir(isolated_home)
    run = Run(hpcrun.submit(None, ["false"], site="local").directory)
    wait_until(run.end_record)
    assert run.end_record().reason == "the ranks ended with exit code 1"
    assert not (run.directory / ".room").exists()
