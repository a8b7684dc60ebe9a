"""The test cluster that the other tests of this folder use."""

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster import Cluster, ClusterError, Config
from tests.cluster.config import REPO
from tests.cluster.errors import wait_for
from tests.cluster.hosts import Host, list_processes
from tests.cluster.network import check_free

pytestmark = pytest.mark.slurm


@pytest.fixture
def spare_config(cluster: Cluster) -> Iterator[Config]:
    """Yield the configuration of a small second cluster, which the test starts; stop it after the test."""
    config = Config("spare", nodes=1, accounting=False)
    yield config
    Cluster(config).down()


@pytest.mark.parametrize("devices", ["0,1,2,3", "0,1", "0"])
def test_srun_reaches_every_node_and_its_gpus(cluster: Cluster, devices: str) -> None:
    gpus = f"--gpus-per-node={devices.count(',') + 1}"
    completed = cluster.call("srun", "--nodes=2", gpus, "sh", "-c", 'echo "$(hostname) $CUDA_VISIBLE_DEVICES"')
    assert sorted(completed.stdout.splitlines()) == [f"{node} {devices}" for node in cluster.nodelist[:2]]


@pytest.mark.parametrize(("mpi", "variable"), [("pmix", "PMIX_RANK"), ("pmi2", "PMI_RANK")])
def test_srun_starts_mpi_ranks(cluster: Cluster, mpi: str, variable: str) -> None:
    completed = cluster.call("srun", f"--mpi={mpi}", "--nodes=2", "--ntasks=4", "printenv", variable)
    assert sorted(completed.stdout.split()) == ["0", "1", "2", "3"]


def test_ssh_needs_no_password(cluster: Cluster) -> None:
    first, second = cluster.nodelist[:2]
    completed = cluster.call("ssh", first, "ssh", second, "'hostname; echo $SLURM_CONF; sinfo --version'")
    assert completed.stdout.startswith(f"{second}\n{cluster.config.slurm_conf}\nslurm")


def test_tmp_is_private_and_shared_is_shared(cluster: Cluster) -> None:
    first, second = cluster.nodelist[:2]
    cluster.run(first, "touch", "/tmp/mine", "/dev/shm/mine", cluster.shared / "ours")
    assert not Path("/tmp/mine").exists()
    assert cluster.run(second, "ls", "/tmp/mine", check=False).returncode
    assert cluster.run(second, "ls", "/dev/shm/mine", check=False).returncode
    cluster.run(second, "rm", cluster.shared / "ours")
    assert not (cluster.shared / "ours").exists()


def test_nodes_share_this_python_and_this_checkout(cluster: Cluster) -> None:
    cluster.run(cluster.nodelist[0], sys.executable, "-c", "import pytest")
    cluster.run(cluster.nodelist[0], "test", "-f", __file__)


def test_sacct_lists_completed_jobs(cluster: Cluster) -> None:
    job = cluster.call("sbatch", "--parsable", "--output=/dev/null", "--wrap=true").stdout.strip()
    sacct = ("sacct", "--allocations", "--noheader", "--parsable2", f"--jobs={job}", "--format=State")
    wait_for("the completed job in sacct", lambda: cluster.call(*sacct).stdout == "COMPLETED\n", 30, cluster.config.log)


def test_sacct_is_disabled_without_accounting(cluster_without_accounting: Cluster) -> None:
    completed = cluster_without_accounting.call("sacct", check=False)
    assert (completed.returncode, completed.stderr) == (1, "Slurm accounting storage is disabled\n")


def test_high_partition_preempts_low(cluster: Cluster) -> None:
    options = ("--nodes=2", "--exclusive", "--output=/dev/null")
    low = cluster.call("sbatch", "--parsable", "--partition=low", *options, "--wrap=sleep 60").stdout.strip()
    try:
        cluster.call("srun", "--partition=high", "--nodes=2", "--exclusive", "true")
        assert cluster.call("squeue", "--noheader", f"--jobs={low}", "--format=%t").stdout == "PD\n"
    finally:
        cluster.call("scancel", low)


def test_crashed_node_boots_again(cluster: Cluster) -> None:
    node = cluster.nodelist[1]
    cluster.wait_idle()
    cluster.run(node, "touch", "/tmp/before")
    cluster.crash(node)
    with pytest.raises(ClusterError, match=f"{node} is down"):
        cluster.run(node, "true")
    cluster.boot(node)
    cluster.wait_idle()
    assert cluster.call("srun", f"--nodelist={node}", "hostname").stdout == f"{node}\n"
    assert cluster.run(node, "ls", "/tmp").stdout.count("before") == 0


def test_killed_slurmd_starts_again(cluster: Cluster) -> None:
    node = cluster.nodelist[0]
    cluster.kill(node)
    assert cluster.run(node, "pidof", "slurmd", check=False).returncode
    cluster.start(node)
    cluster.wait_idle()


def test_killed_slurmctld_starts_again(spare_config: Config) -> None:
    cluster = Cluster(spare_config)
    cluster.up()
    cluster.kill("spare-ctl")
    cluster.start("spare-ctl")
    cluster.wait_idle()


def test_link_goes_down_and_up(cluster: Cluster) -> None:
    first, second = cluster.nodelist[:2]

    def is_reachable() -> bool:
        command = ("timeout", "1", "bash", "-c", f"</dev/tcp/{second}/22")
        return cluster.run(first, *command, check=False).returncode == 0

    assert is_reachable()
    cluster.link(second, "down")
    assert not is_reachable()
    cluster.link(second, "up")
    wait_for(f"the network of {second}", is_reachable, 20, cluster.config.log)
    cluster.link(second, "100mbit")
    assert is_reachable()
    cluster.link(second, "norate")
    cluster.wait_idle()


RECEIVE = """
import socket, time
server = socket.create_server(("", 5001))
print(flush=True)
receiver, _ = server.accept()
begin, received = time.perf_counter(), 0
while data := receiver.recv(1 << 20):
    received += len(data)
print(received * 8 / (time.perf_counter() - begin) / 1e6)
"""
SEND = """
import socket, sys
socket.create_connection((sys.argv[1], 5001)).sendall(bytes(int(sys.argv[2])))
"""


def test_link_rate_limits_both_directions(cluster: Cluster) -> None:
    first, second = cluster.nodelist[:2]

    def megabits_a_second(sender: str, receiver: str) -> float:
        command = [*Host(cluster.config, receiver).nsenter_command(), sys.executable, "-c", RECEIVE]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            process.stdout.readline()
            cluster.run(sender, sys.executable, "-c", SEND, receiver, str(10_000_000))
            return float(process.stdout.read())

    cluster.link(second, "100mbit")
    try:
        assert 50 < megabits_a_second(first, second) < 110
        assert 50 < megabits_a_second(second, first) < 110
    finally:
        cluster.link(second, "norate")
    assert megabits_a_second(first, second) > 200


def test_command_line(cluster: Cluster) -> None:
    def main(verb: str, *argv: str) -> str:
        command = [sys.executable, "-m", "tests.cluster", verb, "--name", cluster.config.name, *argv]
        return subprocess.check_output(command, cwd=REPO, text=True)

    node = cluster.nodelist[0]
    assert main("env") == f"export SLURM_CONF={cluster.config.slurm_conf}\n"
    assert main("run", node, "sh", "-c", "hostname; echo $SLURM_CONF") == f"{node}\n{cluster.config.slurm_conf}\n"
    assert node in main("status")


def host_state(config: Config) -> dict[str, object]:
    """Return the state of this machine that a cluster changes, except its processes.

    The entries of other clusters are left out, because other test processes start and stop theirs meanwhile.
    """
    other = re.compile(rf"hpcrun-(cluster-)?(?!{config.name}\b)[a-z]+(\.conf)?")
    other_hosts = re.compile(rf"\n# hpcrun-cluster (?!{config.name} )([a-z]+) begin\n.*?\1 end\n", re.DOTALL)
    with Path("/etc/hosts").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # a cluster that starts or stops rewrites the file in place
        hosts = other_hosts.sub("", file.read())
    interfaces = [name for _, name in socket.if_nameindex()]
    ssh = [file.name for file in Path("/etc/ssh/ssh_config.d").iterdir()]
    return {
        "hosts": hosts,
        "mounts": Path("/proc/self/mounts").read_text(),
        "interfaces": sorted(name for name in interfaces if not other.fullmatch(name)),
        "network namespaces": subprocess.check_output(["ip", "netns"]),
        "ssh": sorted(name for name in ssh if not other.fullmatch(name)),
        "state": config.state.exists(),
    }


def pid_namespaces(*pids: int) -> set[str]:
    """Return the pid namespaces of some processes."""
    found = set()
    for pid in pids:
        # A process may end meanwhile.
        with suppress(OSError):
            found.add(str(Path(f"/proc/{pid}/ns/pid").readlink()))
    return found


def test_down_leaves_nothing(spare_config: Config) -> None:
    before = host_state(spare_config)
    cluster = Cluster(spare_config)
    cluster.up()
    # A process that has no parent, session or environment of its job.
    # The step waits until the process has left its process group, because Slurm kills the group at the step's end.
    leave_process = "env -i setsid --fork sleep 1000 >/dev/null 2>&1; until pidof sleep; do sleep 0.1; done"
    assert cluster.call("srun", "sh", "-c", leave_process).stdout
    cluster_namespaces = pid_namespaces(cluster.controller.pid, Host(spare_config, "spare1").pid)
    now = host_state(spare_config)
    assert [key for key in now if now[key] != before[key]] == ["hosts", "interfaces", "ssh", "state"]
    cluster.down()
    assert host_state(spare_config) == before
    assert not cluster_namespaces & pid_namespaces(*(pid for pid, _ in list_processes()))
    cluster.down()


def test_up_recovers_from_a_killed_up(spare_config: Config) -> None:
    command = [sys.executable, "-m", "tests.cluster", "up", "--name=spare", "--nodes=1", "--no-accounting"]
    with subprocess.Popen(command, cwd=REPO, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert next(process.stderr).startswith("spare: network")
        os.kill(process.pid, signal.SIGKILL)
    Cluster(spare_config).up()


def test_up_recovers_from_a_killed_cluster(spare_config: Config) -> None:
    cluster = Cluster(spare_config)
    cluster.up()
    cluster.controller.kill()
    assert not cluster.is_up
    cluster.up()


def test_up_refuses_a_running_cluster(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match=f"cluster {cluster.config.name} is already running|another process"):
        Cluster(cluster.config).up()
    with pytest.raises(ClusterError, match=f"interface {cluster.config.interface} .* conflicts with"):
        check_free(cluster.config)


def test_down_keeps_a_directory_that_is_not_a_cluster(spare_config: Config) -> None:
    precious = spare_config.state / "precious"
    spare_config.state.mkdir(parents=True)
    precious.touch()
    try:
        with pytest.raises(ClusterError, match="is not the state directory of a cluster"):
            Cluster(spare_config).down()
    finally:
        precious.unlink()
