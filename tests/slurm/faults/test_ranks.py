"""A rank is killed or ignores SIGTERM: the job ends, reports the reason and leaves no rank."""

import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]
HERE = Path(__file__).parents[2]
FAILING = HERE / "mpi/programs/failing.py"
IGNORING = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('started', flush=True); time.sleep(600)"
)


@pytest.mark.parametrize("site", ["srun-mpich", "srun-openmpi", "mpiexec", "mpirun"])
def test_a_killed_rank_ends_the_job_within_30_seconds(user, start_sleeper, inspector, site):
    submission = start_sleeper("--site", site, "-N", "2", ranks=2, command="exec sleep 600")
    other_job = start_sleeper("-J", "other")
    second = user.cluster.nodelist[1]
    kill = "for p in /proc/[0-9]*; do grep -qzxF HPCRUN_RANK=1 $p/environ && kill -KILL ${p#/proc/}; done 2>/dev/null"
    start_time = time.monotonic()
    user.cluster.run(second, "bash", "-c", kill, check=False)
    inspector.wait_until("the end of the job", lambda: inspector.state(submission) == "FAILED", 60)
    assert time.monotonic() - start_time < 30
    output = user.json("status", submission["job_id"])
    assert (output["exit_code"] != 0, output["reason"].startswith("the ranks ended with exit code ")) == (True, True), (
        output
    )
    assert user.json("why", submission["job_id"])["state"] == "FAILED"
    user.wait_for_end(submission["job_id"])
    assert inspector.processes(submission["run_dir"]) == [0, 0]
    assert inspector.state(other_job) == "RUNNING"


def test_why_names_the_killed_rank_of_a_training(user, inspector):
    submission = user.json("submit", "-N", "2", "--wait", "--", sys.executable, FAILING, "kill")
    assert submission["state"] == "FAILED"
    output = user.json("why", submission["job_id"])
    assert output["name"] == "rank-killed"
    assert f"rank 1 on {user.cluster.nodelist[1]} was killed by SIGKILL" in output["headline"]
    user.wait_for_end(submission["job_id"])
    assert inspector.processes(submission["run_dir"]) == [0, 0]


@pytest.mark.parametrize("site", ["srun-mpich", "mpirun"])
def test_cancel_kills_ranks_that_ignore_sigterm(user, inspector, site):
    submission = user.json("submit", "--site", site, "-N", "2", "--", sys.executable, "-c", IGNORING)
    inspector.wait_for_start(submission, 2)
    assert user.hpcrun("cancel", submission["job_id"]).returncode == 0
    user.wait_for_end(submission["job_id"])
    output = user.json("status", submission["job_id"])
    assert (output["state"], output["reason"]) == ("CANCELLED", "stopped by SIGTERM")
    assert user.hpcrun("cleanup", submission["job_id"], "--force").returncode == 0
    assert inspector.processes(submission["run_dir"]) == [0, 0]


def test_status_and_why_report_a_job_cancelled_by_scancel(user, start_sleeper, inspector):
    submission = start_sleeper("-N", "2", ranks=2)
    assert user.call("scancel", submission["job_id"]).returncode == 0
    user.wait_for_end(submission["job_id"])
    assert (inspector.state(submission), inspector.processes(submission["run_dir"])) == ("CANCELLED", [0, 0])
    inspector.wait_until(
        "the user who cancelled the job", lambda: user.json("why", submission["job_id"])["name"] == "cancelled"
    )
    second_cancel = user.hpcrun("cancel", submission["job_id"])
    assert (second_cancel.returncode, "has ended already: CANCELLED" in second_cancel.stderr) == (1, True)


def test_status_and_why_report_a_time_limit(user, start_sleeper, inspector):
    submission = start_sleeper("-N", "2", "-t", "10:00", ranks=2)
    assert user.call("scontrol", "update", f"JobId={submission['job_id']}", "EndTime=now+2").returncode == 0
    inspector.wait_until("the end of the job", lambda: inspector.state(submission) == "TIMEOUT")
    assert user.json("why", submission["job_id"])["name"] == "time-limit"
    user.wait_for_end(submission["job_id"])
    assert inspector.processes(submission["run_dir"]) == [0, 0]


def test_status_follows_a_preempted_job(user, start_sleeper, inspector):
    submission = start_sleeper("-p", "low", "-N", "2", "--exclusive", "--sbatch=--requeue", ranks=2)
    other_job = start_sleeper("-p", "high", "-N", "2", "--exclusive", "-J", "other", ranks=2)
    log = Path(submission["run_dir"], "logs/rank-1.log")
    output = user.json("status", submission["job_id"])
    assert output["state"] in {"PENDING", "REQUEUED", "PREEMPTED", "COMPLETING"}, output
    inspector.wait_until("the requeue of the job", lambda: inspector.state(submission) == "PENDING")
    assert inspector.processes(submission["run_dir"]) == [0, 0]
    explanation = user.json("why", submission["job_id"])
    assert explanation["state"] == "PENDING"
    before = log.read_text().count("started\n")
    assert user.hpcrun("cancel", other_job["job_id"]).returncode == 0
    # Slurm delays the start of a requeued job by two minutes, unless its start time is set to now
    user.call("scontrol", "update", f"JobId={submission['job_id']}", "StartTime=now")
    inspector.wait_until("the restart of the job", lambda: log.read_text().count("started\n") > before, 180)
    assert inspector.state(submission) == "RUNNING"
    assert user.hpcrun("cancel", submission["job_id"]).returncode == 0
    user.wait_for_end(submission["job_id"])
    assert (inspector.state(submission), inspector.processes(submission["run_dir"])) == ("CANCELLED", [0, 0])
