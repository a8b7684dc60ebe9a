"""`hpcrun resubmit --fix` on a real Slurm, after a job ran out of time or memory, or lost a node."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.cluster.errors import wait_for
from tests.conftest import running_cluster
from tests.slurm.cluster_user import ClusterUser
from tests.slurm.conftest import cluster_user

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


@pytest.fixture(scope="module")
def cluster_that_kills() -> Iterator[Cluster]:
    """Yield a real Slurm that kills steps that use more than their memory."""
    with running_cluster("y", accounting=True, over_memory_kill=True) as running:
        yield running


@pytest.fixture
def user(cluster_that_kills: Cluster) -> Iterator[ClusterUser]:
    """Yield a user of this cluster."""
    yield from cluster_user(cluster_that_kills)


def wait_for_cause(user: ClusterUser, submission: dict[str, str], name: str, seconds: float = 120) -> None:
    log = user.cluster.config.log / "slurmctld.log"
    wait_for(f"the cause {name}", lambda: user.json("why", submission["job_id"])["name"] == name, seconds, log)


def squeue(user: ClusterUser, job_id: str, column: str) -> str:
    return user.call("squeue", "--noheader", "--jobs", job_id, "--format", column).stdout.strip()


def wait_for_start(user: ClusterUser, submission: dict[str, str]) -> None:
    log = Path(submission["run_dir"], "logs", "rank-0.log")
    wait_for("the start of rank 0", log.exists, 120, user.cluster.config.log / "slurmctld.log")


def test_fix_gives_more_time(user):
    submission = user.json("submit", "-t", "10:00", "--", "sleep", "600")
    wait_for_start(user, submission)
    assert user.call("scontrol", "update", f"JobId={submission['job_id']}", "EndTime=now+2").returncode == 0
    wait_for_cause(user, submission, "time-limit")
    job_id = submission["job_id"]
    assert "#SBATCH --time=0:15:00\n" in user.hpcrun("resubmit", job_id, "--fix", "--dry-run").stdout
    refused = user.hpcrun("resubmit", job_id, "--fix")
    assert (refused.returncode, "--yes submits it" in refused.stderr) == (2, True)
    again = user.json("resubmit", job_id, "--fix", "--yes")
    assert squeue(user, again["job_id"], "%l") == "15:00"


def test_fix_gives_the_memory_that_the_job_used(user):
    uses_memory = "x = bytearray(500_000_000); import time; time.sleep(600)"
    submission = user.json("submit", "--mem", "200M", "--", sys.executable, "-c", uses_memory)
    wait_for_cause(user, submission, "host-memory")
    completed = user.hpcrun("resubmit", submission["job_id"], "--fix", "--yes")
    assert completed.returncode == 0, completed.stderr
    memory = squeue(user, completed.stdout.strip(), "%m")
    # 1.5 times what Slurm saw before it killed the job, 500 MB at most; the limit times 1.5 is 300M
    assert 300 < int(memory.removesuffix("M")) < 1000


USES_MEMORY = "import sys, time; x = bytearray(int(sys.argv[1]) * 1_000_000); time.sleep(8)"
"""Slurm measures the memory of jobs every few seconds."""


def test_a_job_that_ran_out_of_memory_is_submitted_again_with_more(user):
    program = (sys.executable, "-c", USES_MEMORY)
    job = user.json("submit", "-N", "2", "--mem", "200M", "--memory-retries", "2", "--", *program, "250")
    failing = user.json("submit", "--mem", "100M", "--memory-retries", "1", "--", *program, "400")
    options = ("--mem-per-cpu", "200M", "--memory-retries", "2", "--sweep", "size=20,350")
    sweep = user.json("submit", *options, "--", *program, "{size}")
    tasks = [f"{sweep['run_dir']}/{Path(sweep['run_dir']).name}.{number}" for number in (0, 1)]
    log = user.cluster.config.log / "slurmctld.log"

    def rows():
        return [user.json("status", folder) for folder in (job["run_dir"], failing["run_dir"], *tasks)]

    expected = [("COMPLETED", 2), ("FAILED", 2), ("COMPLETED", 1), ("COMPLETED", 3)]
    wait_for("the ends", lambda: [(row["state"], row["starts"]) for row in rows()] == expected, 180, log)
    assert "it ran out of memory as often as --memory-retries=1 allows" in rows()[1]["reason"]
    assert user.json("why", failing["run_dir"])["name"] == "host-memory"


def test_fix_excludes_the_node_that_failed(user):
    second = user.cluster.nodelist[1]
    submission = user.json("submit", "-N", "2", "--sbatch=--no-requeue", "--", "sleep", "600")
    wait_for_start(user, submission)
    user.cluster.crash(second)
    try:
        wait_for_cause(user, submission, "node-failure")
        completed = user.hpcrun("resubmit", submission["job_id"], "--fix", "-N", "1", "--yes")
        assert completed.returncode == 0, completed.stderr
        assert f"fix        --exclude={second}, because a node of the job failed" in completed.stderr
        job = user.call("scontrol", "show", "job", completed.stdout.strip()).stdout
        assert f"ExcNodeList={second}" in job
    finally:
        user.call("scancel", "--me")
        user.cluster.boot(second)
        user.cluster.wait_idle(seconds=120)


def test_a_failure_without_a_number_is_one_error(user):
    submission = user.json("submit", "--wait", "--", "false")
    completed = user.hpcrun("resubmit", submission["job_id"], "--fix", "--yes")
    assert completed.returncode == 1
    assert completed.stderr.startswith("ERROR: --fix: the failure implies no change of an option: ")
