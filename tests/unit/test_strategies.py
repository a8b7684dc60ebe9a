"""The workload `strategies`, before a job starts: its roles, and what is refused."""

import json
import sys

import pytest

from hpcrun import paths
from hpcrun.errors import HpcrunError

sys.path.insert(0, str(paths.shipped_folder("workloads") / "strategies"))

import roles  # type: ignore[import-not-found]  # in a folder of the workload


def assign(nodes, ranks_per_node, parameter_servers=0, *, evaluator=False):
    """Return the roles of the ranks of each node, as words."""
    addresses = [f"n{node}:{rank}" for node in range(nodes) for rank in range(ranks_per_node)]
    words = [str(role) for role in roles.assign(addresses, parameter_servers, evaluator=evaluator)]
    return [words[start : start + ranks_per_node] for start in range(0, len(words), ranks_per_node)]


def test_the_chief_holds_the_variables_by_default():
    assert assign(2, 1) == [["chief"], ["worker 0"]]
    config = roles.tf_config(["n1:5", "n2:5"], roles.assign(["n1:5", "n2:5"], 0, evaluator=False), 1, "n1:4")
    cluster = {"chief": ["n1:5"], "worker": ["n2:5"], "ps": ["n1:4"]}
    assert config == {"cluster": cluster, "task": {"type": "worker", "index": 0}}


def test_parameter_servers_are_on_different_nodes():
    assert assign(2, 3, 2) == [["chief", "worker 0", "ps 1"], ["worker 1", "worker 2", "ps 0"]]
    assert assign(3, 2, 1, evaluator=True) == [["chief", "worker 0"], ["worker 1", "evaluator"], ["worker 2", "ps 0"]]
    assert assign(2, 3, 4) == [["chief", "ps 3", "ps 1"], ["worker 0", "ps 2", "ps 0"]]


def test_the_evaluator_is_no_part_of_the_cluster():
    addresses = ["n1:5", "n1:6", "n2:5"]
    assigned = roles.assign(addresses, 0, evaluator=True)
    config = roles.tf_config(addresses, assigned, 2, "n1:4")
    assert config["task"] == {"type": "evaluator", "index": 0}
    assert "n2:5" not in json.dumps(config)


def test_a_worker_is_needed():
    with pytest.raises(HpcrunError, match="needs 4 ranks or more, and the job has 3"):
        assign(1, 3, 1, evaluator=True)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["-N", "2", "--", "--strategy", "one"], "--strategy=one runs on at most 1 rank, and the job has 2"),
        (["-n", "1", "--", "--strategy", "parameter-server"], "runs on at least 2 ranks, and the job has 1"),
        (["-N", "2", "--", "--strategy", "tpu"], "HINT: Slurm clusters have no TPUs. --strategy multiworker trains"),
        (["-N", "2", "--", "--evaluator"], "--evaluator is impossible with --strategy=multiworker"),
        (["-N", "2", "--", "--parameter-servers", "1"], "must be at most 0 with --strategy=multiworker"),
        (["-N", "2", "--", "--model", "resnet50", "--dataset", "digits"], "must be one of synthetic"),
    ],
)
def test_what_cannot_run_is_refused_before_the_queue(cli, argv, message):
    code, _, errors = cli("submit", "strategies", "--dry-run", "--site", "slurm", *argv)
    assert (code, message in errors) == (2, True), errors


def test_ranks_get_tf_config_whatever_the_strategy(cli):
    for strategy in ("multiworker", "parameter-server", "hpcrun"):
        options = ("--dry-run", "--site", "slurm", "-N", "2", "--", "--strategy", strategy)
        code, script, _ = cli("submit", "strategies", *options)
        assert (code, "--framework tensorflow" in script) == (0, True)
