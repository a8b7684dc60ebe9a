"""The option --nodes of the allreduce workload measures each node and each pair of nodes."""

import importlib.util
import itertools
import json
import os

import pytest

from tests.mpi.ranks import ROOT, needs_mpi, run

pytestmark = [pytest.mark.mpi, needs_mpi]

ALLREDUCE = ROOT / "workloads" / "allreduce" / "allreduce.py"


@pytest.fixture(scope="module")
def nodes():
    """Import nodes.py, which the workload imports from its folder."""
    spec = importlib.util.spec_from_file_location("nodes", ALLREDUCE.with_name("nodes.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_ranks_and_node_are_described(tmp_path):
    outcome = run(2, ALLREDUCE, "--max-size", "1K", "--iterations", 3, "--nodes", HPCRUN_RUN_DIR=str(tmp_path))
    assert (outcome.code, outcome.stderr) == (0, "")
    ranks = json.loads((tmp_path / "ranks.json").read_text())
    name = os.uname().nodename
    assert [(rank["rank"], rank["size"], rank["host"]) for rank in ranks] == [(0, 2, name), (1, 2, name)]
    assert ranks[0]["mpi"].startswith("MPICH ")
    found = json.loads((tmp_path / "nodes.json").read_text())
    assert found["pairs"] == []
    assert found["nodes"][name]["ranks"] == 2
    assert all(found["nodes"][name][key] > 0.01 for key in ("memory_GBps", "compute_GFLOPS"))
    assert f"\n{name} " in outcome.stdout[0]


def test_pairs_of_nodes_are_measured(tmp_path):
    """Each rank pretends to be on its own host."""
    program = tmp_path / "pairs.py"
    program.write_text(
        f"""
import json, sys
sys.path.insert(0, {str(ALLREDUCE.parent)!r})
import nodes
from mpi4py import MPI
nodes.BUDGET_SECONDS = 0.001
comm = MPI.COMM_WORLD
print("RESULT", json.dumps(nodes.measure(comm, [f"n{{rank}}" for rank in range(comm.size)])))
"""
    )
    results = run(3, program).results()
    assert results[0] == results[1] == results[2]
    assert sorted(results[0]["nodes"]) == ["n0", "n1", "n2"]
    assert sorted(pair["nodes"] for pair in results[0]["pairs"]) == [["n0", "n1"], ["n0", "n2"], ["n1", "n2"]]
    for pair in results[0]["pairs"]:
        # three ranks share two cores here, so only the units can be checked
        assert 0.01 < pair["latency_us"] < 1e5
        assert 1e-3 < pair["bandwidth_GBps"] < 1e3


@pytest.mark.parametrize("count", range(10))
def test_each_node_is_paired_with_up_to_seven_others(nodes, count):
    rounds = nodes.schedule_rounds(count)
    for round_pairs in rounds:
        nodes_in_round = [one for pair in round_pairs for one in pair]
        assert len(nodes_in_round) == len(set(nodes_in_round)) >= count - 1
    pairs = [pair for round_pairs in rounds for pair in round_pairs]
    assert len(pairs) == len(set(pairs))
    if count <= 8:
        assert set(pairs) == set(itertools.combinations(range(count), 2))
    else:
        assert min(sum(node in pair for pair in pairs) for node in range(count)) >= 6


def test_network_devices(nodes, tmp_path):
    assert nodes.network(tmp_path) == ""
    files = {"net/eth0/device/vendor": "1", "net/eth0/operstate": "up", "net/eth0/speed": "25000"}
    files |= {"net/eth1/device/vendor": "1", "net/eth1/operstate": "down", "net/docker0/operstate": "up"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert nodes.network(tmp_path) == "eth0 25000 Mb/s"
    rate = tmp_path / "infiniband/mlx5_0/ports/1/rate"
    rate.parent.mkdir(parents=True)
    rate.write_text("200 Gb/sec (4X HDR)\n")
    assert nodes.network(tmp_path) == "mlx5_0 200 Gb/sec"
