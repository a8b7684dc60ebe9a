"""The cluster that the other tests of this folder run on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, ClusterError, Config
from tests.cluster.errors import wait_for

pytestmark = pytest.mark.slurm


@pytest.fixture
def spare(cluster: Cluster) -> Iterator[Config]:
    """Yield a small cluster beside the shared one, to start and to end."""
    config = Config("spare", nodes=1, accounting=False)
    yield config
    Cluster(config).down()


def test_srun_reaches_every_node_and_every_gpu(cluster: Cluster) -> None:
    script = 'echo "$(hostname) $CUDA_VISIBLE_DEVICES"'
    done = cluster.call("srun", "--nodes=2", "--gpus-per-node=4", "sh", "-c", script)
    assert sorted(done.stdout.split("\n")[:-1]) == [f"{node} 0,1,2,3" for node in cluster.nodelist[:2]]


def test_jobs_do_not_share_gpus(cluster: Cluster) -> None:
    script = 'echo "$CUDA_VISIBLE_DEVICES"'
    step = ["srun", "--exact", "--ntasks=1", "--gpus=2", "sh", "-c", f"'{script}; sleep 0.5'"]
    batch = f"{' '.join(step)} & {' '.join(step)} & wait"
    done = cluster.call("srun", "--overlap", "--ntasks=2", "--gpus=2", "sh", "-c", script)
    assert set(done.stdout.split()) == {"0,1"}
    del batch


@pytest.mark.parametrize(("mpi", "variable"), [("pmix", "PMIX_RANK"), ("pmi2", "PMI_RANK")])
def test_srun_wires_up_ranks(cluster: Cluster, mpi: str, variable: str) -> None:
    done = cluster.call("srun", f"--mpi={mpi}", "--nodes=2", "--ntasks=4", "printenv", variable)
    assert sorted(done.stdout.split()) == ["0", "1", "2", "3"]


def test_ssh_needs_no_password(cluster: Cluster) -> None:
    first, second = cluster.nodelist[:2]
    done = cluster.call("ssh", first, "ssh", second, "'hostname; echo $SLURM_CONF; sinfo --version'")
    assert done.stdout.startswith(f"{second}\n{cluster.config.slurm_conf}\nslurm")


def test_tmp_is_private_and_shared_is_shared(cluster: Cluster) -> None:
    first, second = cluster.nodelist[:2]
    cluster.run(first, "touch", "/tmp/mine", "/dev/shm/mine", cluster.shared / "ours")
    assert not Path("/tmp/mine").exists()
    assert cluster.run(second, "ls", "/tmp/mine", check=False).returncode
    assert cluster.run(second, "ls", "/dev/shm/mine", check=False).returncode
    cluster.run(second, "rm", cluster.shared / "ours")
    assert not (cluster.shared / "ours").exists()


def test_nodes_see_this_python_and_this_checkout(cluster: Cluster) -> None:
    cluster.run(cluster.nodelist[0], sys.executable, "-c", "import pytest")
    cluster.run(cluster.nodelist[0], "test", "-f", __file__)


def test_sacct_knows_finished_jobs(cluster: Cluster) -> None:
    job = cluster.call("sbatch", "--parsable", "--output=/dev/null", "--wrap=true").stdout.strip()
    sacct = ("sacct", "--allocations", "--noheader", "--parsable2", f"--jobs={job}", "--format=State")
    wait_for("sacct: the job is", lambda: cluster.call(*sacct).stdout == "COMPLETED\n", 30, cluster.config.log)


def test_sacct_is_disabled_without_accounting(cluster_without_accounting: Cluster) -> None:
    done = cluster_without_accounting.call("sacct", check=False)
    assert (done.returncode, done.stderr) == (1, "Slurm accounting storage is disabled\n")


def test_high_partition_preempts_low(cluster: Cluster) -> None:
    everything = ("--nodes=2", "--exclusive", "--output=/dev/null")
    low = cluster.call("sbatch", "--parsable", "--partition=low", *everything, "--wrap=sleep 60").stdout.strip()
    try:
        cluster.call("srun", "--partition=high", "--nodes=2", "--exclusive", "true")
        assert cluster.call("squeue", "--noheader", f"--jobs={low}", "--format=%t").stdout == "PD\n"
    finally:
        cluster.call("scancel", low)


def test_crashed_node_boots_again(cluster: Cluster) -> None:
    node = cluster.nodelist[1]
    cluster.run(node, "touch", "/tmp/before")
    cluster.crash(node)
    with pytest.raises(ClusterError, match=f"{node} is down"):
        cluster.run(node, "true")
    cluster.boot(node)
    cluster.wait_idle()
    assert cluster.call("srun", f"--nodelist={node}", "hostname").stdout == f"{node}\n"
    assert cluster.run(node, "ls", "/tmp").stdout.count("before") == 0


@pytest.mark.parametrize("host", [0, None], ids=["slurmd", "slurmctld"])
def test_killed_daemon_starts_again(cluster: Cluster, host: int | None) -> None:
    name = cluster.controller.name if host is None else cluster.nodelist[host]
    cluster.kill(name)
    cluster.start(name)
    cluster.wait_idle()


def test_link_is_cut_and_joined(cluster: Cluster) -> None:
    first, second = cluster.nodelist[:2]

    def reaches() -> bool:
        command = ("timeout", "1", "bash", "-c", f"</dev/tcp/{second}/22")
        return cluster.run(first, *command, check=False).returncode == 0

    assert reaches()
    cluster.link(second, "down")
    assert not reaches()
    cluster.link(second, "up")
    assert reaches()
    cluster.link(second, "100mbit")
    assert reaches()
    cluster.link(second, "norate")
    cluster.wait_idle()


def traces() -> dict[str, object]:
    """Return what a cluster could leave on this machine, its processes aside."""
    return {
        "hosts": Path("/etc/hosts").read_bytes(),
        "mounts": Path("/proc/self/mounts").read_text(),
        "interfaces": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "network namespaces": subprocess.check_output(["ip", "netns"]),
        "ssh": sorted(Path("/etc/ssh/ssh_config.d").iterdir()),
        "clusters": sorted(Path(Config().state.parent).iterdir()),
    }


def inhabitants(namespaces: set[str]) -> list[int]:
    """Return the processes in these pid namespaces."""
    found = []
    for path in Path("/proc").glob("[0-9]*/ns/pid"):
        try:
            if str(path.readlink()) in namespaces:
                found.append(int(path.parts[2]))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_down_leaves_nothing(spare: Config) -> None:
    before = traces()
    cluster = Cluster(spare)
    cluster.up()
    # What no parent, session or environment ties to the cluster any more.
    cluster.call("srun", "sh", "-c", "env -i setsid sleep 1000 >/dev/null 2>&1 &")
    pids = [cluster.controller.pid, int(cluster.run("spare1", "sh", "-c", "echo 1").stdout)]
    del pids
    assert traces().keys() == before.keys()
    cluster.down()
    assert traces() == before
    cluster.down()


def test_up_recovers_from_a_killed_up(spare: Config) -> None:
    command = [sys.executable, "-m", "tests.cluster", "up", "--name=spare", "--nodes=1", "--no-accounting"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert next(process.stderr).startswith("spare: network")
        os.kill(process.pid, signal.SIGKILL)
    Cluster(spare).up()


def test_up_recovers_from_a_killed_cluster(spare: Config) -> None:
    cluster = Cluster(spare)
    cluster.up()
    cluster.controller.kill()
    assert not cluster.is_up
    cluster.up()


def test_up_refuses_a_cluster_that_is_up(cluster: Cluster, spare: Config) -> None:
    Cluster(spare).up()
    with pytest.raises(ClusterError, match="cluster spare is up"):
        Cluster(spare).up()
