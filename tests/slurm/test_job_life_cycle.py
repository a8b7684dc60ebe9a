"""The life cycle of jobs on clusters that imitate production: submit, fail, cancel, requeue, status and cleanup."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster, cgroups
from tests.cluster.errors import wait_for
from tests.conftest import running_cluster
from tests.slurm.cluster_user import ClusterUser
from tests.slurm.conftest import cluster_user
from tests.slurm.test_cleanup import START_ORPHAN, OrphanJobs

pytestmark = pytest.mark.slurm
LIMITS = {"enforce_part_limits": True, "drained": 1, "reserved": 1}
CLUSTERS: dict[str, dict[str, Any]] = {
    "hooks": {"prolog": 3, "epilog": 1, "banners": True, "node_prefix": "gpu-A01r", "accounting": False},
    "forgets": {"min_job_age": 5, "banners": True, "accounting": False},
    "limits": {"nodes": 4, "accounting": True, **LIMITS},
}
# Rank 0 prints many lines and fails, without MPI.
PRINT_AND_RAISE = """
import os, time
if os.environ["HPCRUN_RANK"] != "0":
    time.sleep(10)  # the failure of this rank could end rank 0 before its output
    raise SystemExit
print(*range(5000), sep="\\n", flush=True)
raise ValueError("the last of its lines")
"""
RESUMES = """
if [ -n "$SLURM_RESTART_COUNT" ]; then echo again; exit 0; fi
trap 'echo signalled; exit 3' TERM USR2; echo started; while :; do sleep 0.1; done
"""


def thorough(name):
    return pytest.param(name, marks=pytest.mark.thorough)


@pytest.fixture(scope="module", params=["hooks", thorough("forgets"), thorough("limits")])
def hard_cluster(request) -> Iterator[Cluster]:
    """Yield one cluster after the other; the one with a Prolog uses proctrack/cgroup if this machine supports it."""
    proctrack = "cgroup" if request.param == "hooks" and not cgroups.unavailable_reason() else "pgid"
    with running_cluster(request.param, proctrack=proctrack, **CLUSTERS[request.param]) as cluster:
        yield cluster


def on_cluster(name):
    """Run a test on only one of the thorough clusters."""
    return pytest.mark.parametrize("hard_cluster", [thorough(name)], indirect=True)


@pytest.fixture
def user(hard_cluster) -> Iterator[ClusterUser]:
    yield from cluster_user(hard_cluster)


def python_command(program):
    return "--", sys.executable, "-c", program


def wait_for_line(user, submission, line):
    """Wait until both ranks of a job have printed a line; a Prolog may delay one of them."""
    logs = [Path(submission["run_dir"], f"logs/rank-{rank}.log") for rank in (0, 1)]

    def is_written():
        return all(log.exists() and line in log.read_text() for log in logs)

    wait_for(f"{line!r} in {logs}", is_written, 60, user.cluster.config.log / "slurmctld.log")


def wait_for_state(user, submission, state):
    """Wait until `hpcrun status` prints a state, and return its output."""
    output = {}

    def has_state():
        output.update(user.json("status", submission["run_dir"]))
        return output["state"] == state

    log = user.cluster.config.log / "slurmctld.log"
    try:
        wait_for(f"state {state}", has_state, 60, log)
    finally:
        print(output)
    return output


def test_a_completed_job_keeps_all_its_output(user):
    submission = user.json("submit", "-N", "2", "--wait", "--", "sh", "-c", "seq 1 20000; echo END of $(uname -n)")
    log = user.log(submission)
    assert (submission["state"], submission["exit_code"]) == ("COMPLETED", 0), log[-2000:]
    assert log.count("\n20000\n") == log.count("END of ") == 1
    last_lines = [Path(submission["run_dir"], f"logs/rank-{rank}.log").read_text().splitlines()[-1] for rank in (0, 1)]
    assert last_lines == [f"END of {node}" for node in user.cluster.config.available]
    assert user.json("status", submission["run_dir"])["state"] == "COMPLETED"


def test_a_failed_job_ends_with_its_exit_code_and_traceback(user):
    completed = user.hpcrun("submit", "-N", "2", "--wait", *python_command(PRINT_AND_RAISE))
    assert completed.returncode == 1, completed.stderr
    (submission,) = user.json("status")
    assert (submission["state"], submission["exit_code"]) == ("FAILED", 1), user.log(submission)
    assert Path(submission["run_dir"], "logs/rank-0.log").exists(), user.log(submission)
    log = Path(submission["run_dir"], "logs/rank-0.log").read_text()
    assert log.splitlines()[-1] == "ValueError: the last of its lines"
    assert "ValueError: the last of its lines" in user.log(submission)
    output = user.json("why", submission["job_id"])
    assert (output["state"], "ValueError: the last of its lines" in str(output)) == ("FAILED", True), output


def test_cleanup_kills_the_orphans_of_a_cancelled_job(user):
    orphan_jobs = OrphanJobs(user)
    submission = orphan_jobs.submit(f"{START_ORPHAN}; sleep 600")
    orphans = orphan_jobs.orphans(submission)
    completed = user.hpcrun("cancel", submission["job_id"])
    assert completed.returncode == 0, completed.stderr
    user.wait_for_end(submission["job_id"])
    survives = user.cluster.config.proctrack == "pgid"
    assert orphan_jobs.alive(*orphans) == [survives, survives]
    assert user.json("status", submission["run_dir"])["state"] == "CANCELLED"
    completed = user.hpcrun("cleanup", submission["job_id"], "--yes", "--grace", "1")
    assert (completed.returncode, orphan_jobs.alive(*orphans)) == (0, [False, False]), completed.stderr
    assert all(node in completed.stdout for node in user.cluster.config.available) == survives, completed.stdout
    completed = user.hpcrun("cleanup", submission["job_id"])
    assert (completed.returncode, completed.stderr) == (0, "there is nothing to clean up on 2 nodes\n")


def test_a_requeued_job_completes(user):
    submission = user.json("submit", "-N", "2", "--max-requeue", "1", "--", "sh", "-c", RESUMES)
    wait_for_line(user, submission, "started")
    assert user.call("scancel", "--batch", "--signal=USR2", submission["job_id"]).returncode == 0
    wait_for_line(user, submission, "again")
    output = wait_for_state(user, submission, "COMPLETED")
    assert (output["starts"], output["exit_code"]) == (2, 0)


def test_status_and_why_explain_a_pending_job(user):
    submission = user.json("submit", "--sbatch=--hold", "--", "true")
    output = user.json("status", submission["job_id"])
    assert (output["state"], output["reason"]) == ("PENDING", "JobHeldUser")
    assert user.json("why", submission["job_id"])["name"] == "held-by-user"
    assert user.hpcrun("cancel", submission["job_id"]).returncode == 0
    assert wait_for_state(user, submission, "CANCELLED")["exit_code"] is None


@on_cluster("forgets")
def test_jobs_keep_their_states_after_slurm_has_forgotten_them(user):
    completed_job = user.json("submit", "-N", "2", "--wait", "--", "true")
    last_lines = user.json("submit", "-N", "2", "--", "sleep", "600")
    wait_for_state(user, last_lines, "RUNNING")
    assert user.hpcrun("cancel", last_lines["job_id"]).returncode == 0

    def is_forgotten(job):
        return user.call("scontrol", "show", "job", job).returncode != 0

    for submission in completed_job, last_lines:
        wait_for(
            "slurmctld to forget the job", partial(is_forgotten, submission["job_id"]), 90, user.cluster.config.log
        )
    output = {row["job_id"]: row for row in user.json("status")}
    assert [output[submission["job_id"]]["state"] for submission in (completed_job, last_lines)] == [
        "COMPLETED",
        "CANCELLED",
    ]
    assert [user.json("why", submission["job_id"])["state"] for submission in (completed_job, last_lines)] == [
        "COMPLETED",
        "CANCELLED",
    ]


@on_cluster("forgets")
def test_a_timeout_is_reported_after_slurm_has_forgotten_the_job(user):
    submission = user.json("submit", "-N", "2", "-t", "5", "--", "sleep", "600")
    nodes = wait_for_state(user, submission, "RUNNING")["nodes"]
    assert user.call("scontrol", "update", f"JobId={submission['job_id']}", "TimeLimit=1").returncode == 0
    user.wait_for_end(submission["job_id"], 180)
    show_job = ("scontrol", "show", "job", submission["job_id"])
    wait_for("slurmctld to forget the job", lambda: user.call(*show_job).returncode != 0, 90, user.cluster.config.log)
    output = user.json("status", submission["job_id"])
    assert (output["state"], output["nodes"]) == ("TIMEOUT", nodes)
    assert user.json("why", submission["job_id"])["state"] == "TIMEOUT"


@on_cluster("limits")
def test_submit_prints_slurms_reason_for_a_rejected_job(user):
    completed = user.hpcrun("submit", "--gpus-per-node", "v100:1", "--", "true")
    assert completed.returncode != 0
    assert completed.stderr.startswith("ERROR: sbatch refused the job: Batch job submission failed: "), completed.stderr
    assert "give --gpus-per-node=h100:1" in completed.stderr
    assert user.json("status") == []


@on_cluster("limits")
def test_why_names_the_drained_node_that_a_job_waits_for(user):
    drained = user.cluster.nodelist[-1]
    submission = user.json("submit", "--nodelist", drained, "--", "true")
    output = {}

    def has_reason():
        output.update(user.json("why", submission["job_id"]))
        return output["name"] not in {"not-looked-at", "priority"}

    wait_for("a reason", has_reason, 60, user.cluster.config.log / "slurmctld.log")
    assert (output["state"], drained in str(output)) == ("PENDING", True), output


@on_cluster("limits")
def test_a_preempted_job_completes(user):
    submission = user.json(
        "submit", "-N", "2", "-p", "low", "--exclusive", "--max-requeue", "1", "--", "sh", "-c", RESUMES
    )
    wait_for_line(user, submission, "started")
    assert user.call("srun", "--partition=high", "--nodes=2", "--exclusive", "true").returncode == 0
    assert user.json("status", submission["job_id"])["state"] in {"PENDING", "RUNNING", "COMPLETED"}
    wait_for_line(user, submission, "again")
    assert wait_for_state(user, submission, "COMPLETED")["starts"] == 2
