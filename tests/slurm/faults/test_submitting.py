"""A submission that is cut short or meets others loses no job, and leaves none that nobody knows of."""

import json
import signal
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]

MURDER = 'answer=$("$REAL" "$@"); kill -KILL $PPID; exit 0'  # Slurm has the job, and nobody is told its id

TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"


def newest(lab):
    """Return the id of the job that Slurm got last."""
    told = lab.call("squeue", "--me", "--states=all", "--noheader", "--format=%i").stdout.split()
    return max(told, key=int)


def only(lab):
    """Return what status tells of this user's one run."""
    (told,) = lab.json("status", "all")
    return told


@pytest.fixture
def orphaned(lab, wrapped):
    """Return what submits a job in a process that is killed as soon as Slurm has the job."""

    def submit(*argv):
        done = lab.hpcrun("submit", *argv, **wrapped("sbatch", MURDER))
        assert done.returncode == -signal.SIGKILL
        assert not list((lab.home / "runs").glob("*/submitted.json"))

    return submit


def test_a_pending_job_whose_submitter_was_killed_is_found_and_cancelled(lab, orphaned):
    orphaned("--sbatch=--hold", "-J", "lost", "--", "true")
    (told,) = lab.json("status")
    assert [told["job_id"], told["state"], told["reason"]] == [newest(lab), "PENDING", "JobHeldUser"]
    assert lab.json("why", "lost")["name"] == "held-by-user"
    assert lab.hpcrun("cancel", "lost").returncode == 0
    lab.wait_over(told["job_id"])
    assert only(lab)["state"] == "CANCELLED"


def test_a_running_job_whose_submitter_was_killed_has_logs_and_is_cancelled(lab, orphaned, witness):
    orphaned("-J", "lost", "-N", "2", "--", "sh", "-c", "echo started; sleep 600")
    with lab.start("hpcrun", "logs", "-f", "lost") as following:
        assert any(line == "started\n" for line in iter(following.stdout.readline, ""))
        told = only(lab)
        assert told["state"] == "RUNNING"
        assert lab.hpcrun("cancel", told["job_id"]).returncode == 0
        assert following.wait(60) == 0
    lab.wait_over(told["job_id"])
    assert (only(lab)["state"], witness.processes(told["run_dir"])) == ("CANCELLED", [0, 0])


def test_the_tasks_of_a_sweep_whose_submitter_was_killed_are_found(lab, orphaned):
    orphaned("--sbatch=--hold", "-J", "lost", "--sweep", "seed=1..3", "--", "true")
    told = lab.json("status", "lost")
    assert [row["state"] for row in told] == ["PENDING"] * 3
    assert [row["job_id"].partition("_")[2] for row in told] == ["0", "1", "2"]
    assert lab.hpcrun("cancel", told[0]["job_id"].partition("_")[0]).returncode == 0


def test_a_job_that_has_ended_is_found_without_asking_slurm(lab, orphaned, wrapped):
    orphaned("-J", "ended", "--", "sh", "-c", "exit 4")
    lab.wait_over(newest(lab))
    silent = {**wrapped("squeue", "exit 1"), **wrapped("sacct", "exit 1")}
    told = lab.json("status", "ended", **silent)
    assert (told["state"], told["exit_code"]) == ("FAILED", 4)


def test_a_submission_that_was_interrupted_before_slurm_had_the_job(lab, wrapped):
    done = lab.hpcrun("submit", "-J", "lost", "--", "true", **wrapped("sbatch", "kill -KILL $PPID"))
    assert done.returncode == -signal.SIGKILL
    told = only(lab)
    assert (told["state"], told["job_id"]) == ("NOT SUBMITTED", None)
    assert "interrupted" in told["reason"]
    assert "has no job's log: hpcrun was interrupted" in lab.hpcrun("logs", "lost").stderr


def test_what_slurm_refuses_stays_known_as_refused(lab):
    assert lab.hpcrun("submit", "-p", "nowhere", "--", "true").returncode == 1
    told = only(lab)
    assert told["state"] == "NOT SUBMITTED"
    assert told["reason"].startswith("sbatch refused it: ")
    assert "invalid partition" in lab.json("why", told["run_dir"])["headline"]


def test_an_answer_that_does_not_come_is_no_refusal(lab, wrapped):
    done = lab.hpcrun(
        "submit", "--", "true", **wrapped("sbatch", f'"$REAL" "$@" >/dev/null; echo "{TIMED_OUT}" >&2; exit 1')
    )
    assert done.returncode == 1
    assert "there may be a job all the same: hpcrun status " in done.stderr
    assert only(lab)["job_id"] == newest(lab)


def test_two_submissions_at_the_same_instant_are_two_runs(lab):
    both = [lab.start("hpcrun", "submit", "--json", "-J", "twin", "--", "true") for _ in range(2)]
    told = [json.loads(process.communicate(timeout=60)[0]) for process in both]
    assert len({one["run_dir"] for one in told}) == len({one["job_id"] for one in told}) == 2
    listed = lab.json("status", "all")
    assert {one["job_id"] for one in listed} == {one["job_id"] for one in told}
    for one in told:
        lab.wait_over(one["job_id"])
    assert [one["state"] for one in lab.json("status", "all")] == ["COMPLETED"] * 2


def test_two_hundred_submissions_twenty_at_a_time(lab):
    command = 'for i in $(seq 10); do hpcrun submit --json -J "many-$1-$i" --sbatch=--hold -- true || exit; done'
    began = [lab.start("bash", "-c", command, "submit", str(number)) for number in range(20)]
    ends = [process.communicate(timeout=480) for process in began]
    assert [process.returncode for process in began] == [0] * 20, ends
    listed = lab.json("status", "all")
    assert len({one["job_id"] for one in listed}) == len({one["run_dir"] for one in listed}) == len(listed) == 200
    assert {one["name"] for one in listed} == {f"many-{n}-{i}" for n in range(20) for i in range(1, 11)}
    assert {one["state"] for one in listed} == {"PENDING"}
    assert len(list(Path(lab.environ["XDG_STATE_HOME"]).glob("hpcrun/runs/*"))) == 200
    assert lab.hpcrun("cancel", "all", "--yes").returncode == 0
