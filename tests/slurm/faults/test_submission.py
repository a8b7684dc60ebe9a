"""Interrupted and simultaneous submissions: hpcrun loses no job and records each of them."""

import json
import signal
from pathlib import Path

import pytest

from tests.waiting import DEADLINE

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]

KILL_SUBMITTER = 'answer=$("$REAL" "$@"); kill -KILL $PPID; exit 0'  # Slurm has the job, but hpcrun does not get its id

TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"


def newest_job_id(user):
    """Return the id of the newest job."""
    output = user.call("squeue", "--me", "--states=all", "--noheader", "--format=%i").stdout.split()
    return max(output, key=int)


def only_run(user):
    """Return the status of this user's only run."""
    (output,) = user.json("status", "all")
    return output


@pytest.fixture
def submit_and_die(user, wrap_command):
    """Return a function that submits a job in a process that is killed as soon as Slurm has the job."""

    def submit(*argv):
        completed = user.hpcrun("submit", *argv, **wrap_command("sbatch", KILL_SUBMITTER))
        assert completed.returncode == -signal.SIGKILL
        assert not list((user.home / "runs").glob("*/submitted.json"))

    return submit


def test_status_finds_a_pending_job_after_submit_was_killed(user, submit_and_die):
    submit_and_die("--sbatch=--hold", "-J", "lost", "--", "true")
    (output,) = user.json("status")
    assert [output["job_id"], output["state"], output["reason"]] == [newest_job_id(user), "PENDING", "JobHeldUser"]
    assert user.json("why", "lost")["name"] == "held-by-user"
    assert user.hpcrun("cancel", "lost").returncode == 0
    user.wait_for_end(output["job_id"])
    assert only_run(user)["state"] == "CANCELLED"


def test_logs_and_cancel_find_a_running_job_after_submit_was_killed(user, submit_and_die, inspector):
    submit_and_die("-J", "lost", "-N", "2", "--", "sh", "-c", "echo started; sleep 600")
    with user.start("hpcrun", "logs", "-f", "lost") as logs_process:
        assert any(line == "started\n" for line in iter(logs_process.stdout.readline, ""))
        output = only_run(user)
        assert output["state"] == "RUNNING"
        assert user.hpcrun("cancel", output["job_id"]).returncode == 0
        assert logs_process.wait(60) == 0
    user.wait_for_end(output["job_id"])
    assert (only_run(user)["state"], inspector.processes(output["run_dir"])) == ("CANCELLED", [0, 0])


def test_status_finds_the_tasks_of_a_sweep_after_submit_was_killed(user, submit_and_die):
    submit_and_die("--sbatch=--hold", "-J", "lost", "--sweep", "seed=1..3", "--", "true")
    output = user.json("status", "lost")
    assert [row["state"] for row in output] == ["PENDING"] * 3
    assert [row["job_id"].partition("_")[2] for row in output] == ["0", "1", "2"]
    assert user.hpcrun("cancel", output[0]["job_id"].partition("_")[0]).returncode == 0


def test_status_finds_an_ended_job_without_querying_slurm(user, submit_and_die, wrap_command):
    submit_and_die("-J", "ended", "--", "sh", "-c", "exit 4")
    user.wait_for_end(newest_job_id(user))
    failing_commands = {**wrap_command("squeue", "exit 1"), **wrap_command("sacct", "exit 1")}
    output = user.json("status", "ended", **failing_commands)
    assert (output["state"], output["exit_code"]) == ("FAILED", 4)


def test_a_submission_interrupted_before_sbatch_is_not_submitted(user, wrap_command):
    completed = user.hpcrun("submit", "-J", "lost", "--", "true", **wrap_command("sbatch", "kill -KILL $PPID"))
    assert completed.returncode == -signal.SIGKILL
    output = only_run(user)
    assert (output["state"], output["job_id"]) == ("NOT SUBMITTED", None)
    assert "interrupted" in output["reason"]
    assert "has no job log: hpcrun was interrupted" in user.hpcrun("logs", "lost").stderr


def test_a_job_that_sbatch_rejects_is_recorded_as_not_submitted(user):
    assert user.hpcrun("submit", "-p", "nowhere", "--", "true").returncode == 1
    output = only_run(user)
    assert output["state"] == "NOT SUBMITTED"
    assert output["reason"].startswith("sbatch refused it: ")
    assert "invalid partition" in user.json("why", output["run_dir"])["headline"]


def test_a_timed_out_submission_may_have_succeeded(user, wrap_command):
    completed = user.hpcrun(
        "submit", "--", "true", **wrap_command("sbatch", f'"$REAL" "$@" >/dev/null; echo "{TIMED_OUT}" >&2; exit 1')
    )
    assert completed.returncode == 1
    assert "the job may exist in spite of this error: hpcrun status " in completed.stderr
    assert only_run(user)["job_id"] == newest_job_id(user)


def test_simultaneous_submissions_create_two_runs(user):
    processes = [user.start("hpcrun", "submit", "--json", "-J", "twin", "--", "true") for _ in range(2)]
    output = [json.loads(process.communicate(timeout=DEADLINE)[0]) for process in processes]
    assert len({row["run_dir"] for row in output}) == len({row["job_id"] for row in output}) == 2
    listed = user.json("status", "all")
    assert {row["job_id"] for row in listed} == {row["job_id"] for row in output}
    for row in output:
        user.wait_for_end(row["job_id"])
    assert [row["state"] for row in user.json("status", "all")] == ["COMPLETED"] * 2


def test_two_hundred_submissions_in_twenty_processes(user):
    command = 'for i in $(seq 10); do hpcrun submit --json -J "many-$1-$i" --sbatch=--hold -- true || exit; done'
    processes = [user.start("bash", "-c", command, "submit", str(number)) for number in range(20)]
    outputs = [process.communicate(timeout=DEADLINE * 4) for process in processes]
    assert [process.returncode for process in processes] == [0] * 20, outputs
    listed = user.json("status", "all")
    assert len({row["job_id"] for row in listed}) == len({row["run_dir"] for row in listed}) == len(listed) == 200
    assert {row["name"] for row in listed} == {f"many-{n}-{i}" for n in range(20) for i in range(1, 11)}
    assert {row["state"] for row in listed} == {"PENDING"}
    assert len(list(Path(user.environ["XDG_STATE_HOME"]).glob("hpcrun/runs/*"))) == 200
    assert user.hpcrun("cancel", "all", "--yes").returncode == 0
