"""`hpcrun why` on jobs of a real Slurm."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.errors import wait_for
from tests.slurm.cluster_user import ClusterUser

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]  # tests/unit/test_why.py uses recorded logs of such jobs
HELLO = Path(__file__).parent / "hello.py"


def why(user: ClusterUser, submission: dict[str, str]) -> Any:
    return user.json("why", submission["job_id"])


def evidence_lines(output) -> str:
    return "\n".join(f"{seen['source']}: {seen['line']}" for seen in output["evidence"])


@pytest.fixture
def short_partition(user):
    """Yield a partition with a time limit of ten minutes."""
    update_partition = ("scontrol", "update", "PartitionName=low")
    assert user.call(*update_partition, "MaxTime=10").returncode == 0
    yield "low"
    assert user.call(*update_partition, "MaxTime=INFINITE").returncode == 0


@pytest.mark.parametrize(("options", "name", "word"), [
    (["--sbatch=--hold"], "held-by-user", "scontrol release"),
    (["--sbatch=--begin=now+1hour"], "begin-time", "StartTime=now"),
])  # fmt: skip
def test_why_explains_a_pending_reason(user, options, name, word):
    submission = user.json("submit", *options, "--", "true")
    output = why(user, submission)
    assert (output["name"], output["state"]) == (name, "PENDING"), output
    assert word in output["fix"]


def test_why_explains_a_partition_time_limit(user, short_partition):
    submission = user.json("submit", "-p", short_partition, "-t", "20:00", "--", "true")
    log = user.cluster.config.log / "slurmctld.log"  # Slurm's first reason is PartitionConfig
    wait_for("the reason", lambda: why(user, submission)["name"] == "partition-time-limit", 60, log)
    output = why(user, submission)
    assert "(--time: 20:00) is longer than its partition (low) allows" in output["headline"]
    assert "--time=20:00 is more than partition low allows: a time limit of 00:10:00" in evidence_lines(output)
    assert output["fix"].startswith("give --time=00:10:00 or less: scontrol update")


def test_why_prints_the_expected_start_of_a_pending_job(user):
    first_job = user.json("submit", "-N", "2", "--exclusive", "-t", "10:00", "--", "sleep", "600")
    log = user.cluster.config.log / "slurmctld.log"
    wait_for("the start of the first job", lambda: why(user, first_job)["name"] == "running", 60, log)
    pending_job = user.json("submit", "-N", "2", "--exclusive", "-t", "10:00", "--", "true")
    last_job = user.json("submit", "-N", "2", "--exclusive", "-t", "10:00", "--", "true")
    assert why(user, pending_job)["name"] in {"resources", "priority", "not-looked-at"}
    assert "1 pending job is ahead of it in partition main" in evidence_lines(why(user, last_job))
    wait_for("an expected start", lambda: "expected to start at 2" in evidence_lines(why(user, pending_job)), 60, log)


def test_why_explains_a_dependency_that_is_never_satisfied(user):
    failed_job = user.json("submit", "--wait", "--", "false")
    submission = user.json("submit", "--dependency", f"afterok:{failed_job['job_id']}", "--", "true")
    log = user.cluster.config.log / "slurmctld.log"
    wait_for("the reason", lambda: why(user, submission)["name"] == "dependency-never-satisfied", 60, log)
    assert f"it depends on afterok:{failed_job['job_id']}(failed)" in evidence_lines(why(user, submission))


@pytest.mark.parametrize(("site", "correct_type"), [("wrong-mpich", "pmi2"), ("wrong-openmpi", "pmix")])
def test_why_explains_a_wrong_mpi_type(user, site, correct_type):
    submission = user.json("submit", "lenet5", "--site", site, "-N", "2", "--wait", "--", "--epochs", "1")
    output = why(user, submission)
    assert output["name"] == "wrong-mpi-type", output
    assert f'in the file of site {site}, set mpi.type = "{correct_type}"' in output["fix"]


def test_why_finds_a_wrong_mpi_type_in_a_completed_job(user):
    submission = user.json("submit", "--site", "wrong-mpich", "-N", "2", "--wait", "--", sys.executable, HELLO)
    assert submission["state"] == "COMPLETED"
    assert why(user, submission)["name"] == "wrong-mpi-type"


def test_why_explains_a_time_limit(user):
    submission = user.json("submit", "-t", "10:00", "--", "sh", "-c", "echo started; sleep 600")
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        assert any(line == "started\n" for line in iter(logs_process.stdout.readline, ""))
        assert user.call("scontrol", "update", f"JobId={submission['job_id']}", "EndTime=now+2").returncode == 0
        logs_process.wait(60)
    log = user.cluster.config.log / "slurmctld.log"
    wait_for("the end of the job", lambda: why(user, submission)["state"] == "TIMEOUT", 60, log)
    output = why(user, submission)
    assert (output["name"], output["others"]) == ("time-limit", [])
    assert "DUE TO TIME LIMIT" in evidence_lines(output)


def test_why_explains_a_cancelled_job(user):
    submission = user.json("submit", "--", "sh", "-c", "echo started; sleep 600")
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        assert any(line == "started\n" for line in iter(logs_process.stdout.readline, ""))
        assert why(user, submission)["name"] == "running"
        assert user.hpcrun("cancel", submission["job_id"]).returncode == 0
        logs_process.wait(60)
    user.cluster.wait_idle()
    log = user.cluster.config.log / "slurmctld.log"
    wait_for("the user who cancelled the job", lambda: why(user, submission)["name"] == "cancelled", 60, log)


def test_why_explains_a_node_failure(user):
    second = user.cluster.nodelist[1]
    argv = ["-N", "2", "--exclusive", "--sbatch=--no-requeue", "--output-on-all-ranks"]
    submission = user.json("submit", *argv, "--", "sh", "-c", "echo started; sleep 600")
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        log_lines = iter(logs_process.stdout.readline, "")
        assert sum(1 for _, line in zip(range(2), (line for line in log_lines if "started" in line), strict=False)) == 2
        user.cluster.crash(second)
        try:
            logs_process.wait(120)
            log = user.cluster.config.log / "slurmctld.log"
            wait_for("the node failure", lambda: why(user, submission)["name"] == "node-failure", 120, log)
        finally:
            user.cluster.boot(second)
            user.cluster.wait_idle(seconds=120)
    assert "--exclude=NODE" in why(user, submission)["fix"]


@pytest.fixture
def unshared_folder(tmp_path):
    """Return a folder that only the login host has."""
    assert Path("/tmp") in tmp_path.parents  # /tmp is private to each host
    return tmp_path


def test_why_explains_a_run_root_that_nodes_do_not_share(user, unshared_folder):
    submission = user.json("submit", "-N", "2", "--wait", "--", "true", HPCRUN_RUN_ROOT=str(unshared_folder))
    output = why(user, submission)
    assert (submission["state"], output["name"]) == ("FAILED", "run-root"), output
    assert f"usually because its run directory, {submission['run_dir']}, does not exist on " in output["headline"]
    logs = user.hpcrun("logs", submission["job_id"])
    assert (logs.returncode, logs.stdout) == (1, "")
    assert f"job {submission['job_id']} ended FAILED without a log" in logs.stderr


def test_why_explains_a_virtual_environment_that_nodes_do_not_share(user, unshared_folder):
    (unshared_folder / "bin").mkdir()
    (unshared_folder / "bin/activate").touch()
    site = user.home / "config/hpcrun/venv.toml"
    site.write_text(f'extends = "slurm"\nvenv = "{unshared_folder}"\n')
    output = why(user, user.json("submit", "--site", "venv", "--wait", "--", "true"))
    assert output["headline"].endswith(f"failed: there is no virtual environment in {unshared_folder} (site key venv)")
    assert output["fix"].startswith(f"correct venv in {site}:2")
    assert output["others"] == []


def test_why_explains_a_working_directory_that_nodes_do_not_share(user, unshared_folder):
    (unshared_folder / "train.py").write_text("pass\n")
    completed = user.call("sh", "-c", f"cd {unshared_folder} && hpcrun submit --json --wait ./train.py")
    output = why(user, json.loads(completed.stdout))
    assert output["name"] == "working-directory", output
    assert [other["name"] for other in output["others"]] == ["program-file"]
