"""world.bash: the variables through which the ranks of other frameworks find each other."""

import json
import os
import re
import socket
import subprocess
import sys

import pytest

from hpcrun import paths
from tests.shell.process import BASH

LIBRARY = paths.shell_library()
PREFIXES = ("HPCRUN_", "hpcrun_", "SLURM_", "MASTER_", "JAX_", "TF_CONFIG")
RANK_NAMES = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")


def run_bash(folder, script, **variables):
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(PREFIXES) and name not in RANK_NAMES
    }
    env |= {"HPCRUN_RUN_DIR": str(folder), **{name: str(value) for name, value in variables.items()}}
    return subprocess.run([BASH, "-c", script], env=env, capture_output=True, text=True, check=True).stdout


def choose(folder, hosts=None, **variables):
    """Return the host of rank 0 and the port that a job with these hosts gets."""
    if hosts is not None:
        (folder / "hostfile").write_text(hosts)
    script = f'source {LIBRARY}/world.bash; hpcrun_choose_world; echo "$hpcrun_master $hpcrun_port"'
    master, port = run_bash(folder, script, **variables).split()
    return master, int(port)


def export(folder, number, local, hosts="", **variables):
    """Return what the program of a rank gets."""
    log = folder / f"logs/rank-{number}.log"
    log.parent.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    (folder / "hostfile").write_text(hosts)
    variables = {"HPCRUN_RANK": number, "HPCRUN_LOCAL_RANK": local, "HPCRUN_NTASKS": 4, **variables}
    variables = {"HPCRUN_LAUNCHER": "mpiexec", "HPCRUN_SITE_NAME": "dee", "hpcrun_visible": "NO_GPUS", **variables}
    variables = {"hpcrun_master": "n1", "hpcrun_port": 12000, **variables}
    run_bash(folder, f"source {LIBRARY}/rank.bash env", **variables)
    lines = log.read_text().splitlines()
    pattern = re.compile(rf"(MASTER_\w+|TF_CONFIG|JAX_\w+|SLURM_\w+|{'|'.join(RANK_NAMES)})=.*")
    return dict(line.split("=", 1) for line in lines if pattern.fullmatch(line))


@pytest.mark.parametrize(
    ("hosts", "master"),
    [("n1:2\nn2:2\n", "n1"), ("n1 slots=2\nn2 slots=2\n", "n1"), ("n1\nn2\n", "n1"), ("n1:4\n", "127.0.0.1")],
)
def test_the_first_host_of_the_hostfile_is_the_master(tmp_path, hosts, master):
    assert choose(tmp_path, hosts)[0] == master


def test_the_port_is_free_and_no_other_jobs(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    _, port = choose(tmp_path / "a", "n1\nn2\n")
    assert 10000 <= port < 32768
    assert choose(tmp_path / "a")[1] == port
    assert choose(tmp_path / "b")[1] != port
    assert choose(tmp_path / "a", SLURM_JOB_ID=7)[1] != port
    for taken in (port, port + 1):  # JAX has a port of its own
        with socket.create_server(("0.0.0.0", taken)):
            other = choose(tmp_path / "a")[1]
            assert taken not in {other, other + 1}


def test_a_rank_gets_all_variables(tmp_path):
    hosts = f"n1:2\n{os.uname().nodename}:2\n"
    assert export(tmp_path, 3, 1, hosts, hpcrun_local_ranks=2) == {
        "MASTER_ADDR": "n1",
        "MASTER_PORT": "12000",
        "WORLD_SIZE": "4",
        "RANK": "3",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "1",
        "JAX_COORDINATOR_ADDRESS": "n1:12001",
        "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": "3",
    }


@pytest.mark.parametrize(
    ("number", "local", "variables", "node", "size"),
    [
        (2, 0, {"SLURM_PROCID": 2, "SLURM_NODEID": 1, "hpcrun_local_ranks": "2,1"}, "1", "1"),
        (3, 1, {"SLURM_PROCID": 3, "SLURM_NODEID": 1, "hpcrun_local_ranks": "2(x2)"}, "1", "2"),
        (3, 1, {"SLURM_PROCID": 0, "SLURM_NODEID": 0, "hpcrun_local_ranks": 2}, "1", "2"),  # an unknown host
        (3, 1, {}, None, None),  # a launcher that does not tell
    ],
)
def test_the_number_of_the_node_and_of_its_ranks(tmp_path, number, local, variables, node, size):
    given = export(tmp_path, number, local, "n1\nn2\n", **variables)
    assert (given.get("NODE_RANK"), given.get("LOCAL_WORLD_SIZE")) == (node, size)


def test_the_workers_of_tensorflow(tmp_path):
    """Each rank on a host has a port of its own."""
    nodes = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2,1", "SLURM_NTASKS": "3"}
    (tmp_path / "hostfile").write_text("n1\nn2\n")
    script = (
        f"hpcrun_python={sys.executable} hpcrun_ranks=3; hpcrun_hostfile_options=(); source {LIBRARY}/world.bash; "
        'hpcrun_choose_world tensorflow; echo "$hpcrun_port"; echo "$hpcrun_workers"'
    )
    port, workers = run_bash(tmp_path, script, **nodes).splitlines()
    addresses = [f"n1:{int(port) + 2}", f"n1:{int(port) + 3}", f"n2:{int(port) + 2}"]
    assert json.loads(f"[{workers}]") == addresses
    given = export(tmp_path, 2, 0, hpcrun_workers=workers)
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 2}}
    assert json.loads(given.pop("TF_CONFIG")) == config
    assert "TF_CONFIG" not in export(tmp_path, 2, 0)
    assert export(tmp_path, 2, 0, hpcrun_workers=workers, TF_CONFIG="{}")["TF_CONFIG"] == "{}"


def test_the_workers_of_tensorflow_where_the_launcher_deals_ranks_to_the_nodes(tmp_path):
    nodes = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": "3,1,2", "SLURM_NTASKS": "6"}
    script = (
        f"hpcrun_python={sys.executable} hpcrun_ranks=6 hpcrun_cyclic=yes; hpcrun_hostfile_options=(); "
        f'source {LIBRARY}/world.bash; hpcrun_choose_world tensorflow; echo "$hpcrun_workers"'
    )
    (tmp_path / "hostfile").write_text("n1\nn2\nn3\n")
    workers = json.loads(f"[{run_bash(tmp_path, script, **nodes)}]")
    assert [address.split(":")[0] for address in workers] == ["n1", "n2", "n3", "n1", "n3", "n1"]
    assert len(set(workers)) == 6


def test_a_rank_on_another_host_than_tf_config_says_fails(tmp_path):
    own = os.uname().nodename
    hosts = f"{own}:1\nn2:1\n"
    workers = f'"n2:12002", "{own}:12002"'
    assert "TF_CONFIG" in export(tmp_path, 1, 0, hosts, hpcrun_workers=workers)
    with pytest.raises(subprocess.CalledProcessError) as failure:
        export(tmp_path, 0, 0, hosts, hpcrun_workers=workers)
    assert f"rank 0 runs on {own}, and its TF_CONFIG would say n2" in failure.value.stderr


def test_the_users_variables_stay(tmp_path):
    given = export(tmp_path, 1, 0, MASTER_ADDR="10.0.0.1", WORLD_SIZE=9)
    assert (given["MASTER_ADDR"], given["MASTER_PORT"], given["WORLD_SIZE"]) == ("10.0.0.1", "12000", "9")


def test_a_single_process_gets_none(tmp_path):
    assert export(tmp_path, 0, 0, HPCRUN_NTASKS=1, hpcrun_master="") == {}


def test_the_variables_of_slurm_are_those_of_the_rank(tmp_path):
    own = os.uname().nodename
    slurm = {"JOB_ID": 7, "PROCID": 1, "LOCALID": 0, "NODEID": 1, "NTASKS": 2, "TASKS_PER_NODE": "1(x2)"}
    slurm = {f"SLURM_{name}": str(value) for name, value in slurm.items()}
    given = export(tmp_path, 3, 1, f"n1:2\n{own}:2\n", hpcrun_local_ranks=2, **slurm)
    assert {name: given[name] for name in slurm} == {
        **slurm, "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "2(x2)"
    }  # fmt: skip
    assert given["SLURM_STEP_NODELIST"] == f"n1,{own}"
    uneven = export(tmp_path, 2, 0, f"n1:2\n{own}:1\n", hpcrun_local_ranks=1, HPCRUN_NTASKS=3, **slurm)
    assert (uneven["SLURM_NTASKS"], uneven["SLURM_TASKS_PER_NODE"]) == ("3", "1(x2)")
    assert not [name for name in export(tmp_path, 1, 0, "n1:4\n") if "SLURM" in name]
