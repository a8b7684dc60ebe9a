"""Run directories removed by hand: status, cancel and cleanup still find the jobs."""

import shutil
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]
ORPHAN = Path(__file__).parents[2] / "orphan.py"


def remove_run_directory(submission):
    shutil.rmtree(submission["run_dir"])
    return f"the run directory {submission['run_dir']} is gone"


def test_a_running_job_can_be_cancelled(user, start_sleeper, inspector):
    submission, other_job = start_sleeper("-N", "2", ranks=2), start_sleeper("-J", "other")
    missing_message = remove_run_directory(submission)
    job_id = submission["job_id"]
    warning = f"{missing_message}, but its job {job_id} is running: hpcrun cancel {job_id} ends it\n"
    assert warning in user.hpcrun("status").stderr
    assert warning in user.hpcrun("status", job_id).stderr
    assert "0 added, 0 removed" in user.hpcrun("status", "--rebuild").stderr
    for command in ("logs", "why", "result"):
        completed = user.hpcrun(command, submission["job_id"])
        assert f"the run directory of {submission['job_id']} is gone" in completed.stderr
        assert "Traceback" not in completed.stderr
    assert user.hpcrun("cancel", submission["job_id"]).returncode == 0
    user.wait_for_end(submission["job_id"])
    assert (inspector.processes(submission["run_dir"]), inspector.state(other_job)) == ([0, 0], "RUNNING")
    assert "0 added, 1 removed" in user.hpcrun("status", "--rebuild").stderr


def test_a_pending_job_can_be_cancelled(user):
    submission = user.json("submit", "--sbatch=--hold", "--", "true")
    assert (
        f"{remove_run_directory(submission)}, but its job {submission['job_id']} is pending"
        in user.hpcrun("status").stderr
    )
    assert user.hpcrun("cancel", submission["job_id"]).returncode == 0
    user.wait_for_end(submission["job_id"])
    completed = user.hpcrun("cancel", submission["job_id"])
    assert (completed.returncode, "Traceback" in completed.stderr) == (2, False)


def test_a_job_that_starts_without_its_run_directory_fails(user, inspector):
    submission = user.json("submit", "--sbatch=--hold", "--", "sleep", "600")
    missing_message = remove_run_directory(submission)
    assert user.call("scontrol", "release", submission["job_id"]).returncode == 0
    user.wait_for_end(submission["job_id"])
    assert (
        user.call("squeue", "--noheader", "--states=all", "--jobs", submission["job_id"], "--format=%T").stdout
        == "FAILED\n"
    )
    assert (
        f"{missing_message}; hpcrun status --rebuild removes such runs from the index" in user.hpcrun("status").stderr
    )
    assert user.hpcrun("cleanup", submission["job_id"], "--force").returncode == 0
    assert inspector.processes(submission["run_dir"]) == [0, 0]


@pytest.mark.parametrize("ended", [False, True])
def test_cleanup_finds_the_orphans_of_the_job(user, start_sleeper, inspector, ended):
    command = f'{sys.executable} {ORPHAN} "$PWD/orphan-$SLURM_PROCID" ignoring; sleep 600'
    submission, other_job = start_sleeper("-N", "2", ranks=2, command=command), start_sleeper("-J", "other")
    inspector.wait_until("the orphans", lambda: len(list(user.home.glob("orphan-[01]"))) == 2)
    if ended:
        assert user.call("scancel", "--signal=KILL", "--full", submission["job_id"]).returncode == 0
        user.wait_for_end(submission["job_id"])
        assert inspector.processes(submission["run_dir"]) == [1, 1]
    remove_run_directory(submission)
    completed = user.hpcrun("cleanup", submission["job_id"], "--yes", "--force", "--grace", "1")
    assert completed.returncode == 0, completed.stderr
    assert inspector.processes(submission["run_dir"]) == [0, 0]
    assert sum(inspector.processes(other_job["run_dir"])) > 0
