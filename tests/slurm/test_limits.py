"""Jobs that a real Slurm refuses, or accepts and does not start: hpcrun names the limit, its value and what to type."""

import json
from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.cluster.errors import wait_for
from tests.conftest import running_cluster
from tests.slurm.cluster_user import ClusterUser
from tests.slurm.conftest import cluster_user

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


@pytest.fixture(scope="module")
def cluster_with_limits() -> Iterator[Cluster]:
    """Yield a real Slurm that enforces accounts and QoS; it has account alpha and QoS short, of one node."""
    with running_cluster("x", accounting=True, enforce_limits=True) as running:
        for command in (
            "add account alpha",
            "add user root account=alpha",
            "add qos short MaxWall=10 MaxTRESPerJob=node=1",
            "modify user root set qos=normal,short defaultqos=normal",
        ):
            running.call("sacctmgr", "-i", *command.split())
        yield running


@pytest.fixture
def user(cluster_with_limits: Cluster) -> Iterator[ClusterUser]:
    """Yield a user of this cluster."""
    yield from cluster_user(cluster_with_limits)


@pytest.mark.parametrize(("options", "words", "hint"), [
    (["-A", "nosuch"], ["Invalid account", "--account=nosuch; your accounts are alpha, root"], "--account=alpha"),
    (["--qos", "nosuch"], ["Invalid qos", "--qos=nosuch; your QoS are normal, short"], "such as --qos=normal"),
    (["-p", "mian"], ["--partition=mian; the partitions are main, low, high"], "give --partition=main"),
    (["-C", "nosuch"], ["Invalid feature specification", "--constraint=nosuch"], "no node of partition main has feat"),
    (["--gpus-per-node", "9"], ["--gpus-per-node=9 is more than partition main allows: 4 GPUs"],
     "give --gpus-per-node=4 or less"),
    (["--gpus-per-node", "v100:1"], ["the GPUs of partition main are h100"], "give --gpus-per-node=h100:1"),
    (["--mem", "99G"], ["--mem=99G is more than partition main allows: 4000M"], "give --mem=4000M or less"),
    (["-c", "9"], ["9 cores each is more than partition main allows: 8 cores a node"], "--cpus-per-task"),
    (["--nodelist", "nosuch"], ["Invalid node name", "partition main has {cluster}[1-2]"], "--nodelist"),
    (["--sbatch=--reservation=nosuch"], ["Requested reservation is invalid", "--reservation=nosuch"], "--reservation"),
])  # fmt: skip
def test_a_refusal_names_what_was_given_and_what_holds(user, options, words, hint):
    completed = user.hpcrun("submit", *options, "--", "true")
    assert completed.returncode == 1
    error, _, hint_line = completed.stderr.partition("\nHINT: ")
    assert error.startswith("ERROR: sbatch refused the job: ")
    for word in words:
        assert word.format(cluster=user.cluster.config.name) in error
    assert hint in hint_line


@pytest.mark.parametrize(("options", "fault"), [
    (["-N", "99"], "--nodes=99 is more than partition main allows: 2 nodes\nHINT: give --nodes=2 or less"),
    (["-n", "99"], "is more than partition main allows: 2 nodes\nHINT: request at most 16 ranks"),
    (["-c", "99"], "8 cores a node\nHINT: give --cpus-per-task=8 or less"),
])  # fmt: skip
def test_a_job_that_slurm_would_keep_for_ever_is_not_submitted(user, options, fault):
    completed = user.hpcrun("submit", *options, "--", "true")
    assert completed.returncode == 2
    assert fault in completed.stderr
    assert user.call("squeue", "--noheader", "--me").stdout == ""


def evidence_lines(output) -> list[str]:
    return [f"{seen['source']}: {seen['line']}" for seen in output["evidence"]]


def wait_for_cause(user: ClusterUser, job_id: str, name: str):
    log = user.cluster.config.log / "slurmctld.log"
    wait_for(f"the cause {name}", lambda: user.json("why", job_id)["name"] == name, 60, log)
    return user.json("why", job_id)


def test_why_names_the_limit_of_a_qos(user):
    submitted = user.hpcrun("submit", "--json", "--qos", "short", "-N", "2", "-t", "5", "--", "true")
    assert "WARNING: Slurm will not start this job: --nodes=2 is more than QoS short allows: 1 node" in submitted.stderr
    output = wait_for_cause(user, json.loads(submitted.stdout)["job_id"], "job-too-big")
    assert any(line.startswith("sacctmgr: QoS short: MaxTRES node=1; this job requests node=2") for line in
               evidence_lines(output))  # fmt: skip
    assert output["fix"].startswith("request at most node=1: ")


def test_why_names_the_limit_of_a_partition_that_became_smaller(user):
    job_id = user.json("submit", "-N", "2", "--sbatch=--hold", "-p", "low", "--", "true")["job_id"]
    assert user.call("scontrol", "update", "PartitionName=low", "MaxNodes=1").returncode == 0
    try:
        assert user.call("scontrol", "release", job_id).returncode == 0
        output = wait_for_cause(user, job_id, "partition-node-limit")
        assert "scontrol show partition: --nodes=2 is more than partition low allows: 1 node" in evidence_lines(output)
        assert output["fix"].startswith("give --nodes=1 or less: ")
    finally:
        user.call("scontrol", "update", "PartitionName=low", "MaxNodes=UNLIMITED")


def test_slurms_reason_for_a_drained_node_is_quoted(user):
    second = user.cluster.nodelist[1]
    drain = ("scontrol", "update", f"NodeName={second}", "State=DRAIN", "Reason=disk broken, ticket 42")
    assert user.call(*drain).returncode == 0
    try:
        completed = user.hpcrun("submit", "--nodelist", second, "--", "true")
        assert f"WARNING: {second} drained: disk broken, ticket 42 (root, " in completed.stderr
        output = wait_for_cause(user, completed.stdout.strip(), "nodes-unavailable")
        assert any(f"sinfo -R: {second} drained: disk broken, ticket 42" in line for line in evidence_lines(output))
    finally:
        user.call("scontrol", "update", f"NodeName={second}", "State=RESUME")


def test_the_reservation_of_a_named_node_is_quoted(user):
    first = user.cluster.nodelist[0]
    create = ["ReservationName=maint", "StartTime=now+10minutes", "Duration=60", f"Nodes={first}", "Users=root"]
    assert user.call("scontrol", "create", "reservation", *create, "Flags=MAINT").returncode == 0
    try:
        completed = user.hpcrun("submit", "--nodelist", first, "-t", "1:00:00", "--", "true")
        assert f"WARNING: {first} reserved: maint from 2" in completed.stderr
        output = wait_for_cause(user, completed.stdout.strip(), "nodes-unavailable")
        assert any(f"reservation: {first} reserved: maint from 2" in line for line in evidence_lines(output))
    finally:
        user.call("scancel", "--me")
        user.call("scontrol", "delete", "ReservationName=maint")
