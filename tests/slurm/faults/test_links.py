"""A network link fails during a training: for a few seconds, only between the nodes, or until Slurm fails the node."""

import re
import time
from pathlib import Path

import pytest

from tests.slurm.cluster_user import LONG_TRAINING

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


@pytest.fixture
def training(user, inspector):
    """Return a function that submits a long training on two nodes and waits for its first epoch."""

    def submit(*options, epochs=200):
        submission = user.json("submit", LONG_TRAINING, "-N", "2", *options, "--", str(epochs))
        metrics = Path(submission["run_dir"], "metrics.jsonl")
        inspector.wait_until("the first epoch", metrics.exists, 120)
        return submission

    return submit


@pytest.fixture
def cut_between_nodes(user):
    """Yield a function that blocks packets between the nodes, but not between them and slurmctld."""
    first, second = user.cluster.nodelist
    route = ["unreachable", f"{user.cluster.config.address(first)}/32"]
    yield lambda: user.cluster.run(second, "ip", "route", "add", *route)
    user.cluster.run(second, "ip", "route", "delete", *route, check=False)


def test_training_survives_a_short_link_failure(user, training, inspector):
    submission = training(epochs=20)
    second = user.cluster.nodelist[1]
    user.cluster.link(second, "down")
    try:
        time.sleep(3)
    finally:
        user.cluster.link(second, "up")
    inspector.wait_until("the end of the job", lambda: inspector.state(submission) == "COMPLETED", 120)
    assert user.json("result", submission["job_id"])["test_accuracy"] > 0.8


def test_ranks_without_a_link_end_the_job_at_the_stall_limit(user, training, inspector, cut_between_nodes):
    submission = training("-x", "HPCRUN_STALL_SECONDS=20")
    cut_between_nodes()
    start_time = time.monotonic()
    inspector.wait_until("the end of the job", lambda: inspector.state(submission) == "FAILED", 90)
    assert time.monotonic() - start_time < 60
    logs = "".join(log.read_text() for log in Path(submission["run_dir"], "logs").iterdir())
    assert "error: no progress for 20 s" in logs
    assert re.search(r"rank \d \(host \S+, pid \d+\): cannot be asked: ", logs)
    output = user.json("why", submission["job_id"])
    assert output["name"] == "host-cut-off", output
    user.wait_for_end(submission["job_id"])
    assert inspector.processes(submission["run_dir"]) == [0, 0]


def test_ranks_of_a_disconnected_node_end_when_it_returns(user, training, inspector):
    submission = training("--sbatch=--no-requeue")
    first, second = user.cluster.nodelist
    user.cluster.link(second, "down")
    try:
        inspector.wait_until(
            "the failure of the job", lambda: inspector.state(submission) in {"NODE_FAIL", "FAILED"}, 120
        )
        assert user.json("why", submission["job_id"])["state"] == inspector.state(submission)
        inspector.wait_until(
            "the end of the ranks on the other node",
            lambda: inspector.processes(submission["run_dir"], first) == [0],
            60,
        )
        completed = user.hpcrun("cleanup", submission["job_id"], "--force")
        assert (completed.returncode, f"{second} was not reached: " in completed.stderr) == (1, True), completed.stderr
    finally:
        user.cluster.link(second, "up")
    user.cluster.wait_idle(seconds=120)
    completed = user.hpcrun("cleanup", submission["job_id"], "--force")
    assert (completed.returncode, inspector.processes(submission["run_dir"])) == (0, [0, 0]), completed.stderr


def test_a_crashed_node_ends_its_job_but_not_another_job(user, start_sleeper, inspector):
    first, second = user.cluster.nodelist
    bystander = start_sleeper("--nodelist", first, "-J", "bystander")
    submission = start_sleeper("-N", "2", "--sbatch=--no-requeue", ranks=2)
    user.cluster.crash(second)
    try:
        inspector.wait_until(
            "the failure of the job", lambda: inspector.state(submission) in {"NODE_FAIL", "FAILED"}, 120
        )
        inspector.wait_until(
            "the node failure", lambda: user.json("why", submission["job_id"])["name"] == "node-failure", 120
        )
        inspector.wait_until(
            "the end of the other ranks", lambda: inspector.processes(submission["run_dir"], first) == [0], 60
        )
        assert inspector.state(bystander) == "RUNNING"
        assert f"{second} was not reached: " in user.hpcrun("cleanup", submission["job_id"], "--force").stderr
    finally:
        user.cluster.boot(second)
    user.hpcrun("cancel", bystander["job_id"])
    user.cluster.wait_idle(seconds=120)
    completed = user.hpcrun("cleanup", submission["job_id"], "--force")
    assert (completed.returncode, inspector.processes(submission["run_dir"])) == (0, [0, 0]), completed.stderr
