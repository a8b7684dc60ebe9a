"""`hpcrun cleanup` on a real Slurm of two hosts: it ends and removes only what jobs left."""

import json
import sys
from pathlib import Path

import pytest

from tests.cluster.errors import wait_for
from tests.slurm.cluster_user import ClusterUser

pytestmark = pytest.mark.slurm
ORPHAN = Path(__file__).parents[1] / "orphan.py"
START_ORPHAN = f'{sys.executable} {ORPHAN} "$HPCRUN_RUN_DIR/orphan-$SLURM_PROCID"'


class OrphanJobs:
    """Jobs that leave orphans, and the state of these processes.

    Args:
        user: A user of the cluster.
    """

    def __init__(self, user: ClusterUser) -> None:
        self.user = user
        self.pids: list[tuple[str, str]] = []

    def wait_for_pid(self, node, file, seconds=30):
        """Wait for a process to write its pid to a file; return its node and pid."""
        wait_for(f"{file}", file.exists, seconds, self.user.cluster.config.log)
        self.pids.append((node, file.read_text().strip()))
        return self.pids[-1]

    def submit(self, command, *argv):
        return self.user.json("submit", "-N", "2", *argv, "--", "sh", "-c", command)

    def orphans(self, submission):
        """Return the orphans of a job's ranks, one on each node."""
        ranks = enumerate(self.user.cluster.config.available)
        return [self.wait_for_pid(node, Path(submission["run_dir"], f"orphan-{rank}")) for rank, node in ranks]

    def submit_and_kill(self, *words):
        """Submit a job on two nodes, kill its ranks and return its id and orphans."""
        submission = self.submit(f"{START_ORPHAN} {' '.join(words)}; sleep 600")
        orphans = self.orphans(submission)
        assert self.user.call("scancel", "--signal=KILL", "--full", submission["job_id"]).returncode == 0
        self.user.wait_for_end(submission["job_id"])
        assert self.alive(*orphans) == [True, True]
        return submission["job_id"], orphans

    def alive(self, *processes):
        cluster = self.user.cluster
        return [cluster.run(node, "kill", "-0", pid, check=False).returncode == 0 for node, pid in processes]


@pytest.fixture
def orphan_jobs(user):
    """Yield jobs with orphans; kill the orphans after the test."""
    orphan_jobs = OrphanJobs(user)
    yield orphan_jobs
    for node, pid in orphan_jobs.pids:
        user.cluster.run(node, "kill", "-KILL", pid, check=False)


def nodes_by_name(completed):
    """Return the `--json` output of each node."""
    return {node["node"]: node for node in json.loads(completed.stdout)["nodes"]}


def test_cleanup_kills_only_the_orphans_of_a_killed_job(user, orphan_jobs):
    first_node = user.cluster.nodelist[0]
    job, orphans = orphan_jobs.submit_and_kill("ignoring", "open=/dev/shm/segment")
    other_job = orphan_jobs.submit(f"{START_ORPHAN}; sleep 600")
    other_orphans = orphan_jobs.orphans(other_job)
    user.cluster.run(first_node, sys.executable, ORPHAN, user.home / "bystander")
    bystander = orphan_jobs.wait_for_pid(first_node, user.home / "bystander")

    completed = user.hpcrun("cleanup", job, "--yes", "--grace", "1", "--json")
    assert completed.returncode == 1, completed.stderr
    output = [node["jobs"][0] for node in nodes_by_name(completed).values()]
    assert [[str(one["pid"]) for one in node["survivors"]] for node in output] == [[pid] for _, pid in orphans]
    assert all(
        f"{node}: job {job}: process {pid} (innocent) ignored SIGTERM" in completed.stderr for node, pid in orphans
    )
    assert orphan_jobs.alive(*orphans) == [True, True]

    completed = user.hpcrun("cleanup", job, "--force", "--grace", "1")
    assert completed.returncode == 0, completed.stderr
    rows = [f"{node} 1 1 0" for node in user.cluster.nodelist]
    assert " ".join(completed.stdout.split()).endswith(" ".join(rows))
    assert orphan_jobs.alive(*orphans, *other_orphans, bystander) == [False, False, True, True, True]
    assert "segment" not in user.cluster.run(first_node, "ls", "/dev/shm").stdout.split()
    assert user.json("status", other_job["job_id"])["state"] == "RUNNING"
    completed = user.hpcrun("cleanup", job)
    *_, last = completed.stderr.splitlines()
    # cleanup lists the bystander if it started within the tolerance for clock differences
    listed = "process " in completed.stderr
    nothing = "nothing that certainly belongs to a job is left" if listed else "there is nothing to clean up"
    assert (completed.returncode, last) == (0, f"{nothing} on 2 nodes")


@pytest.mark.thorough
def test_cleanup_removes_shared_memory_of_killed_ranks(
    user,
):  # of MPICH, because Open MPI's daemons remove their segments
    def mpich_segments():
        listed = [user.cluster.run(node, "ls", "/dev/shm").stdout.split() for node in user.cluster.nodelist]
        return [{name for name in names if name.startswith("mpich_shm_")} for names in listed]

    before = mpich_segments()
    barrier_program = (
        "from mpi4py import MPI; import time; MPI.COMM_WORLD.barrier(); print('met', flush=True); time.sleep(600)"
    )
    options = ("--site", "srun-mpich", "-N", "2", "--ntasks-per-node", "2")
    submission = user.json("submit", *options, "--", sys.executable, "-c", barrier_program)
    log = Path(submission["run_dir"], "logs/rank-0.log")
    wait_for("the barrier", lambda: log.exists() and "met" in log.read_text(), 60, user.cluster.config.log)
    assert user.call("scancel", "--signal=KILL", "--full", submission["job_id"]).returncode == 0
    user.wait_for_end(submission["job_id"])
    assert all(after > before_on_node for after, before_on_node in zip(mpich_segments(), before, strict=True))
    completed = user.hpcrun("cleanup", submission["job_id"], "--yes")
    assert (completed.returncode, mpich_segments()) == (0, before), completed.stderr


@pytest.mark.thorough
def test_cleanup_names_an_unreachable_node_and_cleans_the_others(user, orphan_jobs):
    second_node = user.cluster.nodelist[1]
    job, orphans = orphan_jobs.submit_and_kill()
    user.cluster.link(second_node, "down")
    try:
        completed = user.hpcrun("cleanup", "--all", "--yes", "--json")
    finally:
        user.cluster.link(second_node, "up")
    assert completed.returncode == 1
    assert f"{second_node} was not reached: srun: " in completed.stderr
    assert orphan_jobs.alive(*orphans) == [False, True]
    user.cluster.wait_idle()
    completed = user.hpcrun("cleanup", job, "--yes")
    assert (completed.returncode, orphan_jobs.alive(*orphans)) == (0, [False, False]), completed.stderr


def test_cleanup_reaches_fully_allocated_nodes_over_ssh(user, orphan_jobs):
    job, orphans = orphan_jobs.submit_and_kill()
    user.call("sbatch", "--exclusive", "-N", "2", "--wrap", "sleep 600")
    squeue = ("squeue", "--noheader", "--states=RUNNING", "--format=%i")
    wait_for("the start of the other job", lambda: bool(user.call(*squeue).stdout), 30, user.cluster.config.log)
    completed = user.hpcrun("cleanup", job, "--yes")
    assert (completed.returncode, orphan_jobs.alive(*orphans)) == (0, [False, False]), completed.stderr


@pytest.mark.thorough
def test_one_job_reaches_all_nodes_with_a_slow_prolog(user_with_prolog):
    user = user_with_prolog
    orphan_jobs = OrphanJobs(user)
    submission = user.json("submit", "-N", "3", "--", "sh", "-c", f"{START_ORPHAN}; sleep 600")
    ranks = enumerate(user.cluster.nodelist)
    orphans = [
        orphan_jobs.wait_for_pid(node, Path(submission["run_dir"], f"orphan-{rank}"), 120) for rank, node in ranks
    ]
    assert user.call("scancel", "--signal=KILL", "--full", submission["job_id"]).returncode == 0
    user.wait_for_end(submission["job_id"])
    completed = user.hpcrun("cleanup", "--force")
    assert (completed.returncode, orphan_jobs.alive(*orphans)) == (0, [False] * 3), completed.stderr
    assert "waiting for 3 nodes: Slurm may run its Prolog there first" in completed.stderr
    log = (user.cluster.config.log / "slurmctld.log").read_text()
    assert log.count("_slurm_rpc_allocate_resources") == 1


def test_cleanup_lists_orphans_without_environment(user, orphan_jobs):
    detach = 'env -i setsid sh -c \'echo $$ >"$1.part"; mv "$1.part" "$1"; exec sleep 600\' - "$HPCRUN_RUN_DIR/{}" {} &'
    to_null = "</dev/null >/dev/null 2>&1"
    log = '</dev/null >>"$HPCRUN_RUN_DIR/logs/rank-$SLURM_PROCID.log" 2>&1'
    submission = orphan_jobs.submit(
        f"{detach.format('lost-$SLURM_PROCID', to_null)} {detach.format('orphan-$SLURM_PROCID', log)} sleep 600"
    )
    orphans = orphan_jobs.orphans(submission)
    detached = [
        orphan_jobs.wait_for_pid(node, Path(submission["run_dir"], f"lost-{rank}"))
        for rank, node in enumerate(user.cluster.nodelist)
    ]
    assert user.call("scancel", "--signal=KILL", "--full", submission["job_id"]).returncode == 0
    user.wait_for_end(submission["job_id"])
    completed = user.hpcrun("cleanup", submission["job_id"], "--force")
    assert (completed.returncode, orphan_jobs.alive(*orphans)) == (0, [False, False]), completed.stderr
    for (node, pid), alive in zip(detached, orphan_jobs.alive(*detached), strict=True):
        assert not alive or f"{node}: process {pid.strip()}, " in completed.stderr


def test_cleanup_ends_a_running_job_with_its_orphans(user, orphan_jobs):
    submission = orphan_jobs.submit(f"{START_ORPHAN}; sleep 600", "--exclusive")
    orphans = orphan_jobs.orphans(submission)
    completed = user.hpcrun("cleanup", submission["job_id"], "--dry-run", "--json")
    assert f"job {submission['job_id']} (sh) is RUNNING: cleanup ends it" in completed.stderr
    output = [{str(one["pid"]) for one in node["jobs"][0]["processes"]} for node in nodes_by_name(completed).values()]
    assert all(pid in pids and len(pids) >= 3 for (_, pid), pids in zip(orphans, output, strict=True)), completed.stdout
    assert user.json("status", submission["job_id"])["state"] == "RUNNING"
    assert user.hpcrun("cleanup", "--all", "--yes").returncode == 0
    assert orphan_jobs.alive(*orphans) == [True, True]
    completed = user.hpcrun("cleanup", submission["job_id"], "--yes")
    assert (completed.returncode, orphan_jobs.alive(*orphans)) == (0, [False, False]), completed.stderr
    assert user.json("status", submission["job_id"])["state"] == "CANCELLED"


def test_cleanup_finds_processes_of_ssh_runs(user, orphan_jobs):
    hosts = user.home / "hosts"
    hosts.write_text("".join(f"{node}\n" for node in user.cluster.nodelist))
    detach = START_ORPHAN.replace("SLURM_PROCID", "HPCRUN_RANK")
    submission = user.json("run", "--site", "mpiexec", "--hostfile", hosts, "--", "sh", "-c", detach)
    orphans = orphan_jobs.orphans(submission)
    assert orphan_jobs.alive(*orphans) == [True, True]
    completed = user.hpcrun("cleanup", "--hostfile", hosts, "sh", "--yes", "--json")
    assert (completed.returncode, orphan_jobs.alive(*orphans)) == (0, [False, False]), completed.stderr
    assert [len(node["jobs"][0]["processes"]) for node in nodes_by_name(completed).values()] == [1, 1]
