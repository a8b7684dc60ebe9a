"""Recovery of jobs whose submission was interrupted."""

import json
import os
import signal
import subprocess
import sys

import pytest

from hpcrun import schedulers
from hpcrun.jobs import run_selection
from hpcrun.schedulers import processes, recovery
from tests.waiting import DEADLINE, wait_until

KILLED = """
import os, sys
from hpcrun.schedulers import local
local.write_submission = lambda *_, **__: os.kill(os.getpid(), 9)  # the job runs already
sys.argv[0] = "hpcrun"
from hpcrun.cli.main import main
main()
"""


@pytest.fixture
def killed():
    """Return a function that submits a local job and is killed before it records the job."""

    def submit(*argv):
        command = [sys.executable, "-c", KILLED, "submit", "--site", "local", "-J", "lost", "--", *argv]
        assert subprocess.run(command, check=False, timeout=DEADLINE).returncode == -signal.SIGKILL
        return run_selection.select_one("lost")

    return submit


def test_running_local_job_is_recovered_and_cancelled(killed, cli):
    run = killed("sleep", "60")
    wait_until((run.directory / "logs/rank-0.log").exists)
    assert json.loads(cli("status", "lost", "--json")[1])["state"] == "RUNNING"
    assert cli("cancel", "lost")[0] == 0
    assert processes.find_run_pids(run.directory) == []
    assert json.loads(cli("status", "lost", "--json")[1])["state"] == "CANCELLED"


def test_ended_local_job_is_recovered(killed, cli):
    run = killed("sh", "-c", "echo out; exit 3")
    wait_until(run.end_record)
    rows = json.loads(cli("status", "--json")[1])
    assert [(row["state"], row["exit_code"]) for row in rows] == [("FAILED", 3)]
    assert "out" in cli("logs", "lost")[1]


@pytest.fixture
def interrupted(fake_slurm, cli):
    """Return a run whose sbatch was killed."""
    fake_slurm.replace_command("sbatch", "kill -KILL $$")
    code, _, err = cli("submit", "--site", "slurm", "-J", "lost", "--", "a.out")
    assert (code, "signal 9 ended sbatch" in err) == (1, True)
    return run_selection.select_one("lost")


def test_slurm_is_queried_until_the_submission_timeout(interrupted, fake_slurm, cli):
    assert cli("status", "all")[0] == 0
    fake_slurm.replace_command("squeue", "true")
    assert interrupted.refusal is None
    recovery.recover_jobs()
    assert interrupted.refusal is None  # sbatch may still be running
    job = interrupted.directory / "job.json"
    os.utime(job, (job.stat().st_atime, job.stat().st_mtime - recovery.SUBMISSION_TIMEOUT_SECONDS - 1))
    recovery.recover_jobs()
    assert interrupted.refusal == "hpcrun was interrupted before it submitted the job"
    queries = len(fake_slurm.calls("squeue"))
    assert cli("logs", "lost")[0] == 0
    assert len(fake_slurm.calls("squeue")) == queries
    (interrupted.directory / "5_0_log.out").touch()  # the log of a job that starts on another cluster
    assert json.loads(cli("status", "lost", "--json")[1])["job_id"] == "5"


def test_lost_job_is_identified_by_its_script(interrupted, fake_slurm):
    pending = ("PENDING", "Priority", "", "0:00", "1:00")
    fake_slurm.set_queue(
        (77, *pending, "/elsewhere/with|a bar/job.sh"), (78, *pending, f"{interrupted.directory}/job.sh")
    )
    recovery.recover_jobs()
    assert run_selection.select_one("78").directory == interrupted.directory
    assert schedulers.query_state(run_selection.select_one("lost")).name == "PENDING"


@pytest.mark.parametrize(("sbatch_error", "message", "certain"), [
    ("invalid partition specified: nowhere", "sbatch refused the job: ", True),
    ("Unable to contact slurm controller (connect failure)", "Slurm cannot be reached, and no job was submitted", True),
    ("Socket timed out on send/recv operation", "Slurm did not confirm the submission: ", False),
    ("Unable to contact slurm controller (receive failure)", "Slurm did not confirm the submission: ", False),
])  # fmt: skip
def test_sbatch_message_decides_whether_a_job_may_exist(fake_slurm, cli, sbatch_error, message, certain):
    fake_slurm.replace_command(
        "sbatch", f"echo 'sbatch: error: Batch job submission failed: {sbatch_error}' >&2; exit 1"
    )
    code, _, err = cli("submit", "--site", "slurm", "-J", "lost", "--", "a.out")
    assert (code, message in err) == (1, True), err
    run = run_selection.select_one("lost")
    assert (run.refusal is not None) is certain
    assert (sbatch_error in json.loads(cli("status", "lost", "--json")[1])["reason"]) is certain


def test_job_that_cannot_be_recorded_is_cancelled(fake_slurm, cli, monkeypatch):
    def full(*_args, **_facts):
        raise OSError(28, "No space left on device")

    (fake_slurm.folder / "id").write_text("12")
    monkeypatch.setattr("hpcrun.schedulers.slurm_submission.write_submission", full)
    code, _, err = cli("submit", "--site", "slurm", "--", "a.out")
    assert (code, "No space left on device; job 12 was cancelled" in err) == (1, True), err
    assert fake_slurm.calls("scancel") == ["12"]
