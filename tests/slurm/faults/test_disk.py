"""A disk that is full, or a folder that is gone: what is lost is told, and nothing is begun by halves."""

import json
import shutil
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


class Disk:
    """A small file system that all hosts share.

    Args:
        folder: Where it is mounted.
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

    def make_room(self):
        (self.folder / "filling").unlink()


@pytest.fixture
def disk(lab):
    """Yield a file system of 4 MB in a file, which one kernel may mount in several places."""
    image, folder = lab.home / "image", lab.home / "disk"
    folder.mkdir()
    lab.call("truncate", "-s", "4M", image)
    assert lab.call("mkfs.ext4", "-q", "-F", "-m", "0", image).returncode == 0
    if lab.call("mount", "-o", "loop", image, folder).returncode:
        pytest.skip("there are no loop devices here")
    try:
        device = lab.call("findmnt", "--noheadings", "--output=SOURCE", folder).stdout.strip()
        for node in lab.cluster.nodelist:
            lab.cluster.run(node, "mount", device, folder)
        yield Disk(folder)
    finally:
        lab.call("scancel", "--me")
        lab.cluster.wait_idle()
        for node in lab.cluster.nodelist:
            lab.cluster.run(node, "umount", folder, check=False)
        lab.call("umount", folder)


def test_a_job_that_fills_the_disk_says_so_and_keeps_its_exit_code(lab, disk, witness):
    own = {"HPCRUN_RUN_ROOT": str(disk.folder)}
    fill = 'head -c 8M /dev/zero >"$HPCRUN_RUN_DIR/checkpoint" 2>/dev/null || exit 5'  # its message would not fit
    facts = lab.json("submit", "--wait", "--", "sh", "-c", fill, **own)
    assert (facts["state"], facts["exit_code"]) == ("FAILED", 5)
    told = lab.json("status", facts["job_id"])
    reason = "the ranks ended with exit code 5; the disk of the run directory is full"
    assert (told["exit_code"], told["reason"]) == (5, reason)
    assert lab.json("why", facts["job_id"])["name"] == "disk-full"
    attach = "import hpcrun, sys; print(hpcrun.attach(sys.argv[1]).exception())"
    assert "exit code 5" in lab.call("python", "-c", attach, facts["job_id"]).stdout
    done = lab.hpcrun("cleanup", facts["job_id"], "--force")
    assert witness.processes(facts["run_dir"]) == [0, 0]
    assert (done.returncode, "that cannot be written down: " in done.stderr) == (1, True)
    Path(facts["run_dir"], "checkpoint").unlink()
    assert lab.hpcrun("cleanup", facts["job_id"], "--force").returncode == 0


def test_a_cancelled_job_says_so_on_a_full_disk(lab, disk, sleeper):
    facts = sleeper("-N", "2", ranks=2, HPCRUN_RUN_ROOT=str(disk.folder))
    disk.fill()
    assert lab.hpcrun("cancel", facts["job_id"]).returncode == 0
    lab.wait_over(facts["job_id"])
    record = json.loads(Path(facts["run_dir"], "exit.json").read_text())
    assert record["reason"] == "stopped by SIGTERM"
    assert record["exit_code"] in {143, 255}  # that of srun, if it cannot write to the job's log


def test_nothing_is_submitted_from_a_full_disk(lab, disk):
    disk.fill()
    before = sorted(disk.folder.iterdir())
    done = lab.hpcrun("submit", "-J", "full", "--", "true", HPCRUN_RUN_ROOT=str(disk.folder))
    assert done.returncode == 2
    assert "cannot make the run directory" in done.stderr
    assert "No space left on device\nHINT: df -h and quota -s show what is full" in done.stderr
    assert sorted(disk.folder.iterdir()) == before
    assert lab.json("status", "--state", "PENDING,RUNNING,NOT SUBMITTED") == []
    disk.make_room()
    facts = lab.json("submit", "--wait", "--", "true", HPCRUN_RUN_ROOT=str(disk.folder))
    assert facts["state"] == "COMPLETED"


def test_a_job_that_cannot_be_written_down_is_cancelled_again(lab, disk, wrapped):
    fill = "".join(f"dd if=/dev/zero bs={size} oflag=append >>{disk.folder}/filling; " for size in ("64k", "1k", "1"))
    body = f'"$REAL" "$@"; exec 2>/dev/null; {fill}exit 0'
    own = {"HPCRUN_RUN_ROOT": str(disk.folder), **wrapped("sbatch", body)}
    done = lab.hpcrun("submit", "-J", "unwritten", "--sbatch=--hold", "--", "true", **own)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "was cancelled again" in done.stderr
    assert lab.call("squeue", "--me", "--noheader", "--name=unwritten", "--states=PENDING,RUNNING").stdout == ""


def test_a_full_home_keeps_jobs_from_being_submitted_but_not_from_being_seen(lab, disk, sleeper):
    own = {"XDG_STATE_HOME": f"{disk.folder}/state", "XDG_CACHE_HOME": f"{disk.folder}/cache"}
    facts = sleeper(**own)
    disk.fill()
    assert lab.json("status", facts["job_id"], **own)["state"] == "RUNNING"
    before = sorted((lab.home / "runs").iterdir())
    for number in range(300):  # names of links take room only now and then
        done = lab.hpcrun("submit", "-J", f"{'long' * 50}{number}", "--sbatch=--hold", "--", "true", **own)
        if done.returncode:
            break
        before = sorted((lab.home / "runs").iterdir())
    assert (done.returncode, "XDG_STATE_HOME says where it is" in done.stderr) == (2, True), done.stderr
    assert sorted((lab.home / "runs").iterdir()) == before
    assert lab.hpcrun("cancel", "all", "--yes", **own).returncode == 0
    lab.wait_over(facts["job_id"])
    assert lab.json("status", facts["job_id"], **own)["state"] == "CANCELLED"


def test_a_state_folder_that_cannot_be_made_is_named(lab):
    (lab.home / "file").touch()
    done = lab.hpcrun("submit", "--", "true", XDG_STATE_HOME=f"{lab.home}/file")
    assert done.returncode == 2
    assert f"cannot write to the folder {lab.home}/file/hpcrun/runs: Not a directory" in done.stderr
    assert not (lab.home / "runs").exists()


def test_the_list_of_runs_is_made_again_while_they_run(lab, sleeper):
    facts = sleeper()
    shutil.rmtree(lab.environ["XDG_STATE_HOME"])
    assert "there are no runs yet" in lab.hpcrun("cancel", facts["job_id"]).stderr
    done = lab.hpcrun("status", "--rebuild", "--json")
    assert [row["job_id"] for row in json.loads(done.stdout)] == [facts["job_id"]]
    assert json.loads(done.stdout)[0]["state"] == "RUNNING"
    assert lab.hpcrun("cancel", facts["job_id"]).returncode == 0
