"""The options of the test cluster that imitate production clusters are effective."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster import Cluster, ClusterError, Config, cgroups, unavailable_reason
from tests.cluster.config import REPO
from tests.cluster.errors import wait_for
from tests.conftest import running_cluster
from tests.slurm.cluster_user import ClusterUser

pytestmark = pytest.mark.slurm
# The process is no longer a child of its step and, with `setsid`, not in its process group.
DETACH = "{} sh -c 'echo $$ >{}; exec sleep 600' >/dev/null 2>&1 </dev/null & sleep 600"


@pytest.fixture(scope="module")
def configured_cluster() -> Iterator[Cluster]:
    """Yield a cluster with all options; two of its four nodes run jobs."""
    limits = {"banners": True, "enforce_part_limits": True, "drained": 1, "reserved": 1, "min_job_age": 5}
    hooks = {"prolog": 2, "epilog": 2, "prolog_flags": "Alloc", "proctrack": "linuxproc", "first_job_id": 40}
    with running_cluster("odd", nodes=4, accounting=False, node_prefix="gpu-B02r", **limits, **hooks) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ProctrackType", "proctrack/linuxproc"),
        ("MinJobAge", "5 sec"),
        ("EnforcePartLimits", "ALL"),
        ("PrologFlags", "Alloc"),
        ("FirstJobId", "40"),
        ("PreemptType", "preempt/partition_prio"),
    ],
)
def test_scontrol_shows_the_configured_settings(configured_cluster, key, value):
    pairs = (line.split("=", 1) for line in slurm_config(configured_cluster).splitlines() if "=" in line)
    settings = {name.strip(): text.strip() for name, text in pairs}
    assert settings[key] == value


def slurm_config(cluster):
    return cluster.call("scontrol", "show", "config").stdout


def test_proctrack_is_pgid_by_default(cluster):
    assert "= proctrack/pgid" in slurm_config(cluster)


@pytest.mark.parametrize(("prefix", "survives"), [("", False), ("setsid", True)])
def test_pgid_kills_only_the_process_group(user: ClusterUser, prefix, survives):
    assert survives_cancelled_step(user.cluster, prefix) == survives


def test_linuxproc_kills_children_in_other_sessions(configured_cluster):
    assert not survives_cancelled_step(configured_cluster, "setsid")


def test_cgroup_kills_all_processes():
    with running_cluster("groups", nodes=1, accounting=False, proctrack="cgroup") as cluster:
        assert "= proctrack/cgroup" in slurm_config(cluster)
        assert not survives_cancelled_step(cluster, "setsid --fork setsid --fork")
        groups = list(cgroups.FREEZER.glob(f"hpcrun-{cluster.config.name}-*"))
        assert groups
    assert not any(group.exists() for group in groups)


def test_a_cluster_without_a_freezer_is_an_error(monkeypatch):
    monkeypatch.setattr(cgroups, "FREEZER", Path("/nowhere"))
    reason = "proctrack/cgroup needs the freezer of cgroup v1, which is not mounted at /nowhere"
    assert unavailable_reason(Config("groups", proctrack="cgroup")) == reason
    with pytest.raises(ClusterError, match=reason):
        Cluster(Config("groups", proctrack="cgroup")).up()


def survives_cancelled_step(cluster, prefix):
    """Return whether a background process of a step survives scancel."""
    file, node = cluster.shared / f"pid{time.monotonic_ns()}", cluster.config.available[0]
    detach = DETACH.format(prefix, file)
    srun = [*("srun", f"--nodelist={node}", "--job-name=leave", "sh", "-c", detach)]
    with subprocess.Popen(srun, env=cluster.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        wait_for("the process", lambda: file.exists() and bool(file.read_text()), 30, cluster.config.log)
        cluster.call("scancel", "--name=leave")
    cluster.wait_idle()
    survives = cluster.run(node, "kill", "-0", file.read_text().strip(), check=False).returncode == 0
    cluster.run(node, "kill", "-KILL", file.read_text().strip(), check=False)
    return survives


def test_banners_precede_all_other_output(configured_cluster):
    completed = configured_cluster.call("srun", "--nodes=2", "hostname")
    assert completed.stdout.startswith(f"##### Welcome to {configured_cluster.config.name}!")
    assert sorted(completed.stdout.splitlines()[1:]) == configured_cluster.config.available
    assert completed.stderr.startswith("srun: 8 of 10 TB")
    for launcher in ("srun", "ssh"):
        command = (
            (launcher, configured_cluster.nodelist[0])
            if launcher == "ssh"
            else (launcher, f"--nodelist={configured_cluster.nodelist[0]}")
        )
        assert (
            str(configured_cluster.config.state / "bin/sbatch")
            in configured_cluster.call(*command, "which", "sbatch").stdout
        )


def test_node_names_and_addresses(configured_cluster):
    assert configured_cluster.nodelist == ["gpu-B02r1", "gpu-B02r2", "gpu-B02r3", "gpu-B02r4"]
    for node in configured_cluster.nodelist:
        assert configured_cluster.call("ssh", node, "hostname").stdout == f"{node}\n"


def test_prolog_and_epilog_run_on_all_nodes(configured_cluster):
    configured_cluster.wait_idle()
    before = time.monotonic()
    job = configured_cluster.call(
        "sbatch", "--parsable", "--nodes=2", "--output=/dev/null", "--wrap=true"
    ).stdout.split()[-1]
    squeue = ("squeue", "--noheader", f"--jobs={job}", "--format=%T %r")

    def has_squeue_state(expected):
        return configured_cluster.call(*squeue).stdout.strip() == expected

    for expected in "RUNNING Prolog", "COMPLETING None":
        wait_for(f"job state {expected}", partial(has_squeue_state, expected), 60, configured_cluster.config.log)
    configured_cluster.wait_idle()
    assert time.monotonic() - before > 4
    for name in "prolog", "epilog":
        assert [f"{job} {node}" for node in configured_cluster.config.available] == sorted(
            line
            for line in (configured_cluster.config.log / f"{name}.log").read_text().splitlines()
            if line.startswith(f"{job} ")
        )


def test_sbatch_rejects_a_job_that_is_too_large(configured_cluster):
    completed = configured_cluster.call("sbatch", "--nodes=99", "--wrap=true", check=False)
    assert (completed.returncode, "Batch job submission failed" in completed.stderr) == (1, True)


def test_drained_and_reserved_nodes_run_no_jobs(configured_cluster):
    *available, reserved, drained = configured_cluster.nodelist
    assert available == configured_cluster.config.available
    states = dict(
        line.split()
        for line in configured_cluster.call(
            "sinfo", "--noheader", "-N", "-p", "main", "-o", "%N %t"
        ).stdout.splitlines()
    )
    assert (states[reserved], states[drained]) == ("resv", "drain")
    assert "memory of DIMM 3" in configured_cluster.call("sinfo", "--list-reasons").stdout
    assert configured_cluster.call("srun", "--reservation=course", "hostname").stdout.endswith(f"\n{reserved}\n")


def test_slurmctld_forgets_jobs_after_min_job_age(configured_cluster):
    job = configured_cluster.call("sbatch", "--parsable", "--output=/dev/null", "--wrap=true").stdout.split()[-1]
    assert int(job) >= 40
    show_job = ("scontrol", "show", "job", job)
    wait_for(
        "slurmctld",
        lambda: configured_cluster.call(*show_job, check=False).returncode != 0,
        60,
        configured_cluster.config.log,
    )


def test_two_clusters_get_equal_job_ids(cluster, cluster_without_accounting):
    clusters = cluster, cluster_without_accounting
    sbatch = ("sbatch", "--parsable", "--output=/dev/null", "--wrap=true")
    first_id = max(int(one.call(*sbatch).stdout) for one in clusters) + 1
    for one in clusters:
        one.number_jobs_from(first_id)
    assert [int(one.call(*sbatch).stdout) for one in clusters] == [first_id, first_id]


@pytest.mark.thorough
def test_a_cluster_of_sixty_four_nodes_starts():
    with Cluster(Config("many", nodes=64, accounting=False)) as cluster:
        assert len(set(cluster.call("srun", "--nodes=64", "hostname").stdout.split())) == 64


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"proctrack": "pid"}, "proctrack 'pid': must be one of pgid, linuxproc, cgroup"),
        ({"node_prefix": "a b"}, "node prefix 'a b'"),
        ({"drained": 1, "reserved": 1}, "1 drained and 1 reserved nodes: no other node is left of 2"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ClusterError, match=message):
        Config(**settings)


def test_the_command_line_has_all_settings():
    without_option = {"accounting", "real_memory", "shared_paths"}
    command = [sys.executable, "-m", "tests.cluster", "up", "--help"]
    options = set(re.findall("--[a-z-]+", subprocess.check_output(command, cwd=REPO, text=True)))
    assert {f"--{name.replace('_', '-')}" for name in vars(Config()) if name not in without_option} <= options
