"""What jobs leave on a real Slurm of two hosts is found on both, ended and removed; nothing else is."""

import json
import sys
from pathlib import Path

import pytest

from tests.cluster.errors import wait_for
from tests.slurm.lab import Lab

pytestmark = pytest.mark.slurm
ORPHAN = Path(__file__).parents[1] / "orphan.py"
HIDE = f'{sys.executable} {ORPHAN} "$HPCRUN_RUN_DIR/orphan-$SLURM_PROCID"'


class Leaver:
    """Starts jobs that leave orphans, and knows which of these live.

    Args:
        lab: A user of the cluster.
    """

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.pids: list[tuple[str, str]] = []

    def found(self, node, file, seconds=30):
        """Return a process on a node that writes its pid into a file."""
        wait_for(f"{file} is", file.exists, seconds, self.lab.cluster.config.log)
        self.pids.append((node, file.read_text().strip()))
        return self.pids[-1]

    def submit(self, command, *argv):
        return self.lab.json("submit", "-N", "2", *argv, "--", "sh", "-c", command)

    def orphans(self, facts):
        """Return what a job's ranks have hidden, one on each node."""
        ranks = enumerate(self.lab.cluster.config.available)
        return [self.found(node, Path(facts["run_dir"], f"orphan-{rank}")) for rank, node in ranks]

    def killed(self, *words):
        """Return a job of two nodes that was killed, and its orphans."""
        facts = self.submit(f"{HIDE} {' '.join(words)}; sleep 600")
        orphans = self.orphans(facts)
        assert self.lab.call("scancel", "--signal=KILL", "--full", facts["job_id"]).returncode == 0
        self.lab.wait_over(facts["job_id"])
        assert self.alive(*orphans) == [True, True]
        return facts["job_id"], orphans

    def alive(self, *processes):
        cluster = self.lab.cluster
        return [cluster.run(node, "kill", "-0", pid, check=False).returncode == 0 for node, pid in processes]


@pytest.fixture
def leaver(lab):
    """Yield what starts jobs that leave something; that ends with the test."""
    leaver = Leaver(lab)
    yield leaver
    for node, pid in leaver.pids:
        lab.cluster.run(node, "kill", "-KILL", pid, check=False)


def nodes(done):
    """Return what --json told, by node."""
    return {node["node"]: node for node in json.loads(done.stdout)["nodes"]}


def test_orphans_of_a_killed_job_and_nothing_else(lab, leaver):
    first = lab.cluster.nodelist[0]
    job, orphans = leaver.killed("ignoring", "open=/dev/shm/segment")
    other = leaver.submit(f"{HIDE}; sleep 600")
    others = leaver.orphans(other)
    lab.cluster.run(first, sys.executable, ORPHAN, lab.home / "bystander")
    bystander = leaver.found(first, lab.home / "bystander")

    done = lab.hpcrun("cleanup", job, "--yes", "--grace", "1", "--json")
    assert done.returncode == 1, done.stderr
    told = [node["jobs"][0] for node in nodes(done).values()]
    assert [[str(one["pid"]) for one in node["survivors"]] for node in told] == [[pid] for _, pid in orphans]
    assert all(f"{node}: job {job}: process {pid} (innocent) lives on" in done.stderr for node, pid in orphans)
    assert leaver.alive(*orphans) == [True, True]

    done = lab.hpcrun("cleanup", job, "--force", "--grace", "1")
    assert done.returncode == 0, done.stderr
    rows = [f"{node} 1 1 0" for node in lab.cluster.nodelist]
    assert " ".join(done.stdout.split()).endswith(" ".join(rows))
    assert leaver.alive(*orphans, *others, bystander) == [False, False, True, True, True]
    assert "segment" not in lab.cluster.run(first, "ls", "/dev/shm").stdout.split()
    assert lab.json("status", other["job_id"])["state"] == "RUNNING"
    done = lab.hpcrun("cleanup", job)
    # the bystander may have begun within the seconds that clocks may differ by, and is then listed
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (0, ["there is nothing to clean on 2 nodes"])


@pytest.mark.thorough
def test_what_killed_ranks_shared_is_removed(lab):  # by MPICH: Open MPI's daemons remove theirs themselves
    def shared():
        listed = [lab.cluster.run(node, "ls", "/dev/shm").stdout.split() for node in lab.cluster.nodelist]
        return [{name for name in names if name.startswith("mpich_shm_")} for names in listed]

    before = shared()
    meet = "from mpi4py import MPI; import time; MPI.COMM_WORLD.barrier(); print('met', flush=True); time.sleep(600)"
    options = ("--site", "srun-mpich", "-N", "2", "--ntasks-per-node", "2")
    facts = lab.json("submit", *options, "--", sys.executable, "-c", meet)
    log = Path(facts["run_dir"], "logs/rank-0.log")
    wait_for("the ranks meet", lambda: log.exists() and "met" in log.read_text(), 60, lab.cluster.config.log)
    assert lab.call("scancel", "--signal=KILL", "--full", facts["job_id"]).returncode == 0
    lab.wait_over(facts["job_id"])
    assert all(now > then for now, then in zip(shared(), before, strict=True))
    done = lab.hpcrun("cleanup", facts["job_id"], "--yes")
    assert (done.returncode, shared()) == (0, before), done.stderr


@pytest.mark.thorough
def test_a_node_that_is_cut_off_is_named_and_the_other_is_cleaned(lab, leaver):
    second = lab.cluster.nodelist[1]
    job, orphans = leaver.killed()
    lab.cluster.link(second, "down")
    try:
        done = lab.hpcrun("cleanup", "--all", "--yes", "--json")
    finally:
        lab.cluster.link(second, "up")
    assert done.returncode == 1
    assert f"{second} was not reached: srun: " in done.stderr
    assert leaver.alive(*orphans) == [False, True]
    lab.cluster.wait_idle()
    done = lab.hpcrun("cleanup", job, "--yes")
    assert (done.returncode, leaver.alive(*orphans)) == (0, [False, False]), done.stderr


def test_nodes_that_others_fill_are_reached_over_ssh(lab, leaver):
    job, orphans = leaver.killed()
    lab.call("sbatch", "--exclusive", "-N", "2", "--wrap", "sleep 600")
    queue = ("squeue", "--noheader", "--states=RUNNING", "--format=%i")
    wait_for("the other job is", lambda: bool(lab.call(*queue).stdout), 30, lab.cluster.config.log)
    done = lab.hpcrun("cleanup", job, "--yes")
    assert (done.returncode, leaver.alive(*orphans)) == (0, [False, False]), done.stderr


@pytest.mark.thorough
def test_nodes_with_a_slow_prolog_are_all_reached_by_one_job(lab_with_prolog):
    lab = lab_with_prolog
    leaver = Leaver(lab)
    facts = lab.json("submit", "-N", "3", "--", "sh", "-c", f"{HIDE}; sleep 600")
    ranks = enumerate(lab.cluster.nodelist)
    orphans = [leaver.found(node, Path(facts["run_dir"], f"orphan-{rank}"), 120) for rank, node in ranks]
    assert lab.call("scancel", "--signal=KILL", "--full", facts["job_id"]).returncode == 0
    lab.wait_over(facts["job_id"])
    done = lab.hpcrun("cleanup", "--force")
    assert (done.returncode, leaver.alive(*orphans)) == (0, [False] * 3), done.stderr
    assert "waiting for 3 nodes: Slurm may run its Prolog there first" in done.stderr
    log = (lab.cluster.config.log / "slurmctld.log").read_text()
    assert log.count("_slurm_rpc_allocate_resources") == 1


def test_what_hides_without_environment_is_listed_on_its_node(lab, leaver):
    hide = 'env -i setsid sh -c \'echo $$ >"$1.part"; mv "$1.part" "$1"; exec sleep 600\' - "$HPCRUN_RUN_DIR/{}" {} &'
    null = "</dev/null >/dev/null 2>&1"
    log = '</dev/null >>"$HPCRUN_RUN_DIR/logs/rank-$SLURM_PROCID.log" 2>&1'
    facts = leaver.submit(
        f"{hide.format('lost-$SLURM_PROCID', null)} {hide.format('orphan-$SLURM_PROCID', log)} sleep 600"
    )
    orphans = leaver.orphans(facts)
    lost = [
        leaver.found(node, Path(facts["run_dir"], f"lost-{rank}")) for rank, node in enumerate(lab.cluster.nodelist)
    ]
    assert lab.call("scancel", "--signal=KILL", "--full", facts["job_id"]).returncode == 0
    lab.wait_over(facts["job_id"])
    done = lab.hpcrun("cleanup", facts["job_id"], "--force")
    assert (done.returncode, leaver.alive(*orphans)) == (0, [False, False]), done.stderr
    for (node, pid), alive in zip(lost, leaver.alive(*lost), strict=True):
        assert not alive or f"{node}: process {pid.strip()}, " in done.stderr


def test_a_running_job_is_looked_at_beside_its_ranks_and_ended_with_what_it_hides(lab, leaver):
    facts = leaver.submit(f"{HIDE}; sleep 600", "--exclusive")
    orphans = leaver.orphans(facts)
    done = lab.hpcrun("cleanup", facts["job_id"], "--dry-run", "--json")
    assert f"job {facts['job_id']} (sh) is RUNNING: cleaning up ends it" in done.stderr
    told = [{str(one["pid"]) for one in node["jobs"][0]["processes"]} for node in nodes(done).values()]
    assert all(pid in pids and len(pids) >= 3 for (_, pid), pids in zip(orphans, told, strict=True)), done.stdout
    assert lab.json("status", facts["job_id"])["state"] == "RUNNING"
    assert lab.hpcrun("cleanup", "--all", "--yes").returncode == 0
    assert leaver.alive(*orphans) == [True, True]
    done = lab.hpcrun("cleanup", facts["job_id"], "--yes")
    assert (done.returncode, leaver.alive(*orphans)) == (0, [False, False]), done.stderr
    assert lab.json("status", facts["job_id"])["state"] == "CANCELLED"


def test_what_a_job_started_over_ssh_is_found_over_ssh(lab, leaver):
    hosts = lab.home / "hosts"
    hosts.write_text("".join(f"{node}\n" for node in lab.cluster.nodelist))
    hide = HIDE.replace("SLURM_PROCID", "HPCRUN_RANK")
    facts = lab.json("run", "--site", "mpiexec", "--hostfile", hosts, "--", "sh", "-c", hide)
    orphans = leaver.orphans(facts)
    assert leaver.alive(*orphans) == [True, True]
    done = lab.hpcrun("cleanup", "--hostfile", hosts, "sh", "--yes", "--json")
    assert (done.returncode, leaver.alive(*orphans)) == (0, [False, False]), done.stderr
    assert [len(node["jobs"][0]["processes"]) for node in nodes(done).values()] == [1, 1]
