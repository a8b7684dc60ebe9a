"""A full disk or a missing folder: hpcrun reports what it cannot write, and submits no incomplete run."""

import json
import shutil
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


class Disk:
    """A small file system that all hosts share.

    Args:
        folder: The mount point.
    """

    def __init__(self, folder):
        self.folder = folder

    def fill(self):
        with (self.folder / "filling").open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 10, 1):
                try:
                    while file.write(b"x" * size) == size:
                        pass
                except OSError:
                    continue

    def free_space(self):
        (self.folder / "filling").unlink()


@pytest.fixture
def disk(user):
    """Yield a file system of 4 MB in an image file, mounted on all hosts."""
    image, folder = user.home / "image", user.home / "disk"
    folder.mkdir()
    user.call("truncate", "-s", "4M", image)
    assert user.call("mkfs.ext4", "-q", "-F", "-m", "0", image).returncode == 0
    if user.call("mount", "-o", "loop", image, folder).returncode:
        pytest.skip("this machine has no loop devices")
    try:
        device = user.call("findmnt", "--noheadings", "--output=SOURCE", folder).stdout.strip()
        for node in user.cluster.nodelist:
            user.cluster.run(node, "mount", device, folder)
        yield Disk(folder)
    finally:
        user.call("scancel", "--me")
        user.cluster.wait_idle()
        for node in user.cluster.nodelist:
            user.cluster.run(node, "umount", folder, check=False)
        user.call("umount", folder)


def test_a_job_that_fills_the_disk_keeps_its_exit_code(user, disk, inspector):
    environment = {"HPCRUN_RUN_ROOT": str(disk.folder)}
    # the error message of head would not fit on the disk
    fill_command = 'head -c 8M /dev/zero >"$HPCRUN_RUN_DIR/checkpoint" 2>/dev/null || exit 5'
    submission = user.json("submit", "--wait", "--", "sh", "-c", fill_command, **environment)
    assert (submission["state"], submission["exit_code"]) == ("FAILED", 5)
    output = user.json("status", submission["job_id"])
    reason = "the ranks ended with exit code 5; the disk of the run directory is full"
    assert (output["exit_code"], output["reason"]) == (5, reason)
    assert user.json("why", submission["job_id"])["name"] == "disk-full"
    attach_program = "import hpcrun, sys; print(hpcrun.attach(sys.argv[1]).exception())"
    assert "exit code 5" in user.call("python", "-c", attach_program, submission["job_id"]).stdout
    completed = user.hpcrun("cleanup", submission["job_id"], "--force")
    assert inspector.processes(submission["run_dir"]) == [0, 0]
    assert (completed.returncode, "that cannot be recorded: " in completed.stderr) == (1, True)
    Path(submission["run_dir"], "checkpoint").unlink()
    assert user.hpcrun("cleanup", submission["job_id"], "--force").returncode == 0


def test_a_cancelled_job_is_recorded_on_a_full_disk(user, disk, start_sleeper):
    submission = start_sleeper("-N", "2", ranks=2, HPCRUN_RUN_ROOT=str(disk.folder))
    disk.fill()
    assert user.hpcrun("cancel", submission["job_id"]).returncode == 0
    user.wait_for_end(submission["job_id"])
    record = json.loads(Path(submission["run_dir"], "exit.json").read_text())
    assert record["reason"] == "stopped by SIGTERM"
    assert record["exit_code"] in {143, 255}  # 255 if srun cannot write to the job's log


def test_submit_fails_on_a_full_disk(user, disk):
    disk.fill()
    before = sorted(disk.folder.iterdir())
    completed = user.hpcrun("submit", "-J", "full", "--", "true", HPCRUN_RUN_ROOT=str(disk.folder))
    assert completed.returncode == 2
    assert "cannot create the run directory" in completed.stderr
    assert "No space left on device\nHINT: df -h and quota -s show what is full" in completed.stderr
    assert sorted(disk.folder.iterdir()) == before
    assert user.json("status", "--state", "PENDING,RUNNING,NOT SUBMITTED") == []
    disk.free_space()
    submission = user.json("submit", "--wait", "--", "true", HPCRUN_RUN_ROOT=str(disk.folder))
    assert submission["state"] == "COMPLETED"


def test_submit_cancels_a_job_that_it_cannot_record(user, disk, wrap_command):
    fill_command = "".join(
        f"dd if=/dev/zero bs={size} oflag=append >>{disk.folder}/filling; " for size in ("64k", "1k", "1")
    )
    body = f'"$REAL" "$@"; exec 2>/dev/null; {fill_command}exit 0'
    environment = {"HPCRUN_RUN_ROOT": str(disk.folder), **wrap_command("sbatch", body)}
    completed = user.hpcrun("submit", "-J", "unwritten", "--sbatch=--hold", "--", "true", **environment)
    assert completed.returncode == 1
    assert "No space left on device" in completed.stderr
    assert "was cancelled" in completed.stderr
    assert user.call("squeue", "--me", "--noheader", "--name=unwritten", "--states=PENDING,RUNNING").stdout == ""


def test_submit_fails_but_status_works_with_a_full_home(user, disk, start_sleeper):
    environment = {"XDG_STATE_HOME": f"{disk.folder}/state", "XDG_CACHE_HOME": f"{disk.folder}/cache"}
    submission = start_sleeper(**environment)
    disk.fill()
    assert user.json("status", submission["job_id"], **environment)["state"] == "RUNNING"
    before = sorted((user.home / "runs").iterdir())
    for number in range(300):  # a new link needs another block only occasionally
        completed = user.hpcrun(
            "submit", "-J", f"{'long' * 50}{number}", "--sbatch=--hold", "--", "true", **environment
        )
        if completed.returncode:
            break
        before = sorted((user.home / "runs").iterdir())
    assert (completed.returncode, "XDG_STATE_HOME changes the location" in completed.stderr) == (2, True), (
        completed.stderr
    )
    assert sorted((user.home / "runs").iterdir()) == before
    assert user.hpcrun("cancel", "all", "--yes", **environment).returncode == 0
    user.wait_for_end(submission["job_id"])
    assert user.json("status", submission["job_id"], **environment)["state"] == "CANCELLED"


def test_submit_names_a_state_folder_that_it_cannot_create(user):
    (user.home / "file").touch()
    completed = user.hpcrun("submit", "--", "true", XDG_STATE_HOME=f"{user.home}/file")
    assert completed.returncode == 2
    assert f"cannot write to the folder {user.home}/file/hpcrun/runs: Not a directory" in completed.stderr
    assert not (user.home / "runs").exists()


def test_status_rebuild_lists_running_jobs(user, start_sleeper):
    submission = start_sleeper()
    shutil.rmtree(user.environ["XDG_STATE_HOME"])
    assert "there are no runs yet" in user.hpcrun("cancel", submission["job_id"]).stderr
    completed = user.hpcrun("status", "--rebuild", "--json")
    assert [row["job_id"] for row in json.loads(completed.stdout)] == [submission["job_id"]]
    assert json.loads(completed.stdout)[0]["state"] == "RUNNING"
    assert user.hpcrun("cancel", submission["job_id"]).returncode == 0
