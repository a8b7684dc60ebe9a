"""A link between two nodes is cut while they train: for a moment, between the nodes alone, and until Slurm gives up."""

import re
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


@pytest.fixture
def training(lab, witness):
    """Return what submits a training on two nodes that would take minutes, and waits for its first epoch."""

    def submit(*options, epochs=200):
        facts = lab.json("submit", "lenet5", "-N", "2", *options, "--", "--epochs", str(epochs))
        metrics = Path(facts["run_dir"], "metrics.jsonl")
        witness.until("the first epoch is", metrics.exists, 120)
        return facts

    return submit


@pytest.fixture
def cut_between_nodes(lab):
    """Return what keeps packets from going between the nodes, but not between them and Slurm."""
    first, second = lab.cluster.nodelist
    route = ["unreachable", f"{lab.cluster.config.address(first)}/32"]
    yield lambda: lab.cluster.run(second, "ip", "route", "add", *route)
    lab.cluster.run(second, "ip", "route", "delete", *route, check=False)


def test_a_moment_without_a_link_costs_that_moment(lab, training, witness):
    facts = training(epochs=6)
    second = lab.cluster.nodelist[1]
    lab.cluster.link(second, "down")
    try:
        time.sleep(3)
    finally:
        lab.cluster.link(second, "up")
    witness.until("the end is", lambda: witness.state(facts) == "COMPLETED", 120)
    assert lab.json("result", facts["job_id"])["test_accuracy"] > 0.8


def test_ranks_that_cannot_reach_each_other_end_the_job_by_the_stall_limit(lab, training, witness, cut_between_nodes):
    facts = training("-x", "HPCRUN_STALL_SECONDS=20")
    cut_between_nodes()
    began = time.monotonic()
    witness.until("the end is", lambda: witness.state(facts) == "FAILED", 90)
    assert time.monotonic() - began < 60
    logs = "".join(log.read_text() for log in Path(facts["run_dir"], "logs").iterdir())
    assert "error: no progress for 20 s" in logs
    assert re.search(r"rank \d \(host \S+, pid \d+\): cannot be asked: ", logs)
    told = lab.json("why", facts["job_id"])
    assert told["name"] == "host-cut-off", told
    lab.wait_over(facts["job_id"])
    assert witness.processes(facts["run_dir"]) == [0, 0]


def test_a_node_without_a_link_fails_and_its_ranks_end_when_it_is_back(lab, training, witness):
    facts = training("--sbatch=--no-requeue")
    first, second = lab.cluster.nodelist
    lab.cluster.link(second, "down")
    try:
        witness.until("Slurm gives up", lambda: witness.state(facts) in {"NODE_FAIL", "FAILED"}, 120)
        assert lab.json("why", facts["job_id"])["state"] == witness.state(facts)
        witness.until("the ranks on the other node end", lambda: witness.processes(facts["run_dir"], first) == [0], 60)
        done = lab.hpcrun("cleanup", facts["job_id"], "--force")
        assert (done.returncode, f"{second} was not reached: " in done.stderr) == (1, True), done.stderr
    finally:
        lab.cluster.link(second, "up")
    lab.cluster.wait_idle(seconds=120)
    done = lab.hpcrun("cleanup", facts["job_id"], "--force")
    assert (done.returncode, witness.processes(facts["run_dir"])) == (0, [0, 0]), done.stderr


def test_a_node_that_crashes_takes_its_job_along_and_a_bystander_lives(lab, sleeper, witness):
    first, second = lab.cluster.nodelist
    bystander = sleeper("--nodelist", first, "-J", "bystander")
    facts = sleeper("-N", "2", "--sbatch=--no-requeue", ranks=2)
    lab.cluster.crash(second)
    try:
        witness.until("Slurm gives up", lambda: witness.state(facts) in {"NODE_FAIL", "FAILED"}, 120)
        witness.until("the node's failure is", lambda: lab.json("why", facts["job_id"])["name"] == "node-failure", 120)
        witness.until("the other ranks end", lambda: witness.processes(facts["run_dir"], first) == [0], 60)
        assert witness.state(bystander) == "RUNNING"
        assert f"{second} was not reached: " in lab.hpcrun("cleanup", facts["job_id"], "--force").stderr
    finally:
        lab.cluster.boot(second)
    lab.hpcrun("cancel", bystander["job_id"])
    lab.cluster.wait_idle(seconds=120)
    done = lab.hpcrun("cleanup", facts["job_id"], "--force")
    assert (done.returncode, witness.processes(facts["run_dir"])) == (0, [0, 0]), done.stderr
