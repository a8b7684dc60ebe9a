"""Permissions of the files that hpcrun writes, with any umask and any run root."""

import json
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import hpcrun
from hpcrun import paths, permissions
from hpcrun.errors import HpcrunError
from tests.waiting import wait_until

PROGRAM = "umask; umask >>own; mkdir own-folder"


@pytest.fixture
def group_folder(monkeypatch):
    """Set umask 002 and a run root in a setgid folder that a group can write; yield this folder."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o2775)
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(folder / "new/runs"))
    before = os.umask(0o002)
    yield folder
    os.umask(before)
    shutil.rmtree(folder)


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode) & 0o777


def all_files(folder):
    return [folder, *(one for one in folder.rglob("*") if not one.is_symlink())]


def write_site(group_folder, **keys):
    file = group_folder / "s.toml"
    file.write_text('extends = "local"\n' + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
    return str(file)


def commit_program(group_folder, monkeypatch):
    """Commit a program, change it, and make its folder the current one."""
    folder = group_folder / "code"
    folder.mkdir()
    (folder / "train.py").write_text("import os, pathlib\nos.system('umask')\npathlib.Path('own').touch()\n")
    for argv in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]):
        subprocess.run(["git", *argv], cwd=folder, check=True)
    (folder / "train.py").write_text((folder / "train.py").read_text() + "# changed\n")
    monkeypatch.chdir(folder)
    return "train.py"


@pytest.mark.parametrize(("keys", "folders", "files"), [({}, 0o700, 0o600), ({"share_runs": "read"}, 0o755, 0o644)])
def test_only_the_owner_can_write_a_run_and_the_program_keeps_the_umask(
    group_folder, monkeypatch, keys, folders, files
):
    where = write_site(group_folder, **keys, setup=["touch set-up"])
    job = hpcrun.submit(commit_program(group_folder, monkeypatch), site=where, snapshot=True, no_gpu=True)
    wait_until(job.done)
    assert "0002" in job.stdout().splitlines()
    found = all_files(job.directory)
    ours = {one: mode(one) for one in found if one.name not in {"own", "set-up"}}
    wrong = {str(one): oct(its) for one, its in ours.items() if its & 0o777 != (folders if one.is_dir() else files)}
    assert not wrong
    names = {one.name for one in ours}
    assert {"job.json", "job.sh", "rank.sh", "hostfile", "exit.json", "starts.jsonl", "rank-0.log"} <= names
    assert {
        "submitted.json",
        "code.diff",
        "git.json",
        "site.json",
        "code",
        "train.py",
        f"{job.job_id}_0_log.out",
    } <= names
    assert mode(job.directory / "code/own") == 0o664
    assert mode(job.directory.parent) == 0o755  # created by hpcrun
    assert mode(paths.run_index_folder()) & 0o022 == 0


def test_run_directories_of_sweep_tasks_are_private(group_folder):
    request = {"site": write_site(group_folder), "sweep": {"x": [1, 2]}, "max_parallel": 1}
    for one in hpcrun.submit(None, ["sh", "-c", "echo $*"], **request):
        wait_until(one.done)
    (sweep,) = (group_folder / "new/runs").iterdir()
    assert {mode(one) for one in all_files(sweep) if one.is_dir()} == {0o700}
    assert {mode(one) for one in all_files(sweep) if one.is_file()} == {0o600}


def test_group_write_permission_of_the_state_folder_is_removed(group_folder, isolated_home):
    folder = isolated_home / "state/hpcrun/runs"
    folder.mkdir(parents=True)
    folder.chmod(0o2775)
    job = hpcrun.submit(None, ["true"], site=write_site(group_folder))
    assert mode(folder) & 0o022 == 0
    wait_until(job.done)


def test_no_group_can_write_the_folders_that_hpcrun_creates_for_a_user(group_folder, isolated_home, monkeypatch, cli):
    home = isolated_home / "new"
    for kind in ("CONFIG", "STATE", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", f"{home}/{kind}/own")
    project = group_folder / "project/.hpcrun"
    project.mkdir(parents=True)
    (project / "mine.toml").write_text('extends = "local"\n')
    (group_folder / "sites").mkdir()
    (group_folder / "sites/lab.toml").write_text('extends = "local"\n')
    monkeypatch.chdir(project.parent)
    for argv in (
        ("site", "init", "laptop", "--scheduler", "local"),
        ("site", "allow", "--yes", ".hpcrun", str(group_folder / "sites/lab.toml")),
        ("site", "add", str(group_folder / "sites"), "--yes"),
        ("submit", "--site", "laptop", "--wait", "--", "true"),
    ):
        code, _, err = cli(*argv)
        assert code == 0, (argv, err)
    folders = {one.name for one in all_files(home) if one.is_dir()}
    assert {"CONFIG", "STATE", "DATA", "CACHE", "own", "hpcrun", "allowed", "runs", "templates"} <= folders
    assert not [(one, oct(mode(one))) for one in all_files(home) if mode(one) & 0o022]


def test_default_acl_is_removed(group_folder, monkeypatch):
    entries = [(1, 7, 2**32 - 1), (2, 7, 12345), (4, 7, 2**32 - 1), (16, 7, 2**32 - 1), (32, 5, 2**32 - 1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)
    try:
        os.setxattr(group_folder, "system.posix_acl_default", acl)
    except OSError:
        pytest.skip("this file system has no POSIX ACLs")
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(group_folder / "runs"))
    job = hpcrun.submit(None, ["true"], site="local")
    wait_until(job.done)
    for one in all_files(job.directory):
        assert mode(one) == (0o700 if one.is_dir() else 0o600), one
        assert "system.posix_acl_default" not in os.listxattr(one)


@pytest.mark.parametrize(("others", "word"), [(0o777, "write"), (0o755, "read")])
def test_file_system_without_modes_is_refused_and_leaves_nothing(group_folder, monkeypatch, others, word):
    def mkdir(self, mode=0o777, parents=False, exist_ok=False, make=Path.mkdir, chmod=Path.chmod):
        make(self, mode, parents, exist_ok)
        chmod(self, others)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "chmod", lambda *_: None)
    with pytest.raises(HpcrunError, match=f"others can {word} there, and chmod has no effect") as error:
        hpcrun.submit(None, ["true"], site=write_site(group_folder))
    assert error.value.hint is not None
    assert "run_root" in error.value.hint
    assert list((group_folder / "new/runs").iterdir()) == []


def test_script_in_a_folder_of_another_user_does_not_start(group_folder, fake_slurm):
    if os.geteuid():
        pytest.skip("only root gives files away")
    job = fake_slurm.submit()
    os.chown(job.directory, 12345, -1)
    command, environment = ["bash", job.directory / "job.sh"], {**os.environ, "SLURM_JOB_ID": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "belongs to another user" in done.stderr) == (1, True)
    assert not (job.directory / "rank.sh").exists()


def test_read_permissions_follow_the_folder_and_the_umask(tmp_path):
    for folder_mode, umask, expected in [(0o755, 0o022, 0o644), (0o755, 0o077, 0o600), (0o2770, 0o002, 0o640)]:
        folder = tmp_path / oct(folder_mode + umask)
        folder.mkdir()
        folder.chmod(folder_mode)
        before = os.umask(umask)
        try:
            with open(folder / "x", "w", opener=permissions.opener):
                pass
        finally:
            os.umask(before)
        assert mode(folder / "x") == expected


@pytest.mark.thorough
def test_files_of_a_training_are_private(group_folder):
    argv = [sys.executable, "-m", "hpcrun", "submit", "lenet5", "--site", write_site(group_folder), "--wait", "--"]
    argv += ["--epochs", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    (run,) = (group_folder / "new/runs").iterdir()
    names = {one.name for one in all_files(run)}
    assert {"metrics.jsonl", "result.json", "heartbeats"} <= names, done.stderr
    assert {mode(one) for one in all_files(run) if one.is_file()} == {0o600}
