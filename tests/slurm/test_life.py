"""The life of a job on the hardest clusters: submitted, failed, cancelled, requeued, told of, and cleaned up after."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster, cgroups
from tests.cluster.errors import wait_for
from tests.conftest import running_cluster
from tests.slurm.conftest import user
from tests.slurm.lab import Lab
from tests.slurm.test_cleanup import HIDE, Leaver

pytestmark = pytest.mark.slurm
LIMITS = {"enforce_part_limits": True, "drained": 1, "reserved": 1}
CLUSTERS: dict[str, dict[str, Any]] = {
    "hooks": {"prolog": 3, "epilog": 1, "banners": True, "node_prefix": "gpu-A01r", "accounting": False},
    "forgets": {"min_job_age": 5, "banners": True, "accounting": False},
    "limits": {"nodes": 4, "accounting": True, **LIMITS},
}
# Rank 0 fails with lines behind it that have to be read; without MPI.
FAIL = "print('\\n'.join(map(str, range(5000))), flush=True)\nraise ValueError('the last of its lines')"
GOES_ON = """
if [ -n "$SLURM_RESTART_COUNT" ]; then echo again; exit 0; fi
trap 'echo asked; exit 3' TERM USR2; echo started; while :; do sleep 0.1; done
"""


@pytest.fixture(scope="module", params=CLUSTERS)
def hard(request) -> Iterator[Cluster]:
    """Yield one cluster after the other; that with a Prolog has proctrack/cgroup, where it can be had."""
    proctrack = "cgroup" if request.param == "hooks" and not cgroups.unavailable_reason() else "pgid"
    with running_cluster(request.param, proctrack=proctrack, **CLUSTERS[request.param]) as cluster:
        yield cluster


def only(name):
    """Run a test on one of the clusters, the one that can show it."""
    return pytest.mark.parametrize("hard", [name], indirect=True)


@pytest.fixture
def lab(hard) -> Iterator[Lab]:
    yield from user(hard)


def python(program):
    return "--", sys.executable, "-c", program


def said(lab, facts, line):
    """Wait until both ranks of a job have said something: a Prolog lets one of them begin seconds after the other."""
    logs = [Path(facts["run_dir"], f"logs/rank-{rank}.log") for rank in (0, 1)]

    def there():
        return all(log.exists() and line in log.read_text() for log in logs)

    wait_for(f"{line!r} in {logs} is", there, 60, lab.cluster.config.log / "slurmctld.log")


def state_is(lab, facts, state):
    """Wait until `hpcrun status` says so, and return all that it says."""
    told = {}

    def is_so():
        told.update(lab.json("status", facts["run_dir"]))
        return told["state"] == state

    log = lab.cluster.config.log / "slurmctld.log"
    try:
        wait_for(f"{state} is", is_so, 60, log)
    finally:
        print(told)
    return told


def test_it_completes_and_all_of_its_output_is_there(lab):
    facts = lab.json("submit", "-N", "2", "--wait", "--", "sh", "-c", "seq 1 20000; echo END of $(uname -n)")
    log = lab.log(facts)
    assert (facts["state"], facts["exit_code"]) == ("COMPLETED", 0), log[-2000:]
    assert log.count("\n20000\n") == log.count("END of ") == 1
    ended = [Path(facts["run_dir"], f"logs/rank-{rank}.log").read_text().splitlines()[-1] for rank in (0, 1)]
    assert ended == [f"END of {node}" for node in lab.cluster.config.available]
    assert lab.json("status", facts["run_dir"])["state"] == "COMPLETED"


def test_it_fails_with_its_own_exit_code_and_the_traceback_is_the_last_it_says(lab):
    done = lab.hpcrun("submit", "-N", "2", "--wait", *python(FAIL))
    assert done.returncode == 1, done.stderr
    (facts,) = lab.json("status")
    assert (facts["state"], facts["exit_code"]) == ("FAILED", 1), lab.log(facts)
    assert Path(facts["run_dir"], "logs/rank-0.log").exists(), lab.log(facts)
    log = Path(facts["run_dir"], "logs/rank-0.log").read_text()
    assert log.splitlines()[-1] == "ValueError: the last of its lines"
    assert "ValueError: the last of its lines" in lab.log(facts)
    told = lab.json("why", facts["job_id"])
    assert (told["state"], "ValueError: the last of its lines" in str(told)) == ("FAILED", True), told


def test_it_is_cancelled_and_what_it_hid_is_found_and_ended(lab):
    leaver = Leaver(lab)
    facts = leaver.submit(f"{HIDE}; sleep 600")
    orphans = leaver.orphans(facts)
    done = lab.hpcrun("cancel", facts["job_id"])
    assert done.returncode == 0, done.stderr
    lab.wait_over(facts["job_id"])
    lives = lab.cluster.config.proctrack == "pgid"
    assert leaver.alive(*orphans) == [lives, lives]
    assert lab.json("status", facts["run_dir"])["state"] == "CANCELLED"
    done = lab.hpcrun("cleanup", facts["job_id"], "--yes", "--grace", "1")
    assert (done.returncode, leaver.alive(*orphans)) == (0, [False, False]), done.stderr
    assert all(node in done.stdout for node in lab.cluster.config.available) == lives, done.stdout
    done = lab.hpcrun("cleanup", facts["job_id"])
    assert (done.returncode, done.stderr) == (0, "there is nothing to clean on 2 nodes\n")


def test_it_goes_back_to_the_queue_and_completes(lab):
    facts = lab.json("submit", "-N", "2", "--max-requeue", "1", "--", "sh", "-c", GOES_ON)
    said(lab, facts, "started")
    assert lab.call("scancel", "--batch", "--signal=USR2", facts["job_id"]).returncode == 0
    said(lab, facts, "again")
    told = state_is(lab, facts, "COMPLETED")
    assert (told["starts"], told["exit_code"]) == (2, 0)


def test_it_waits_and_status_and_why_tell_so(lab):
    facts = lab.json("submit", "--sbatch=--hold", "--", "true")
    told = lab.json("status", facts["job_id"])
    assert (told["state"], told["reason"]) == ("PENDING", "JobHeldUser")
    assert lab.json("why", facts["job_id"])["name"] == "held-by-user"
    assert lab.hpcrun("cancel", facts["job_id"]).returncode == 0
    assert state_is(lab, facts, "CANCELLED")["exit_code"] is None


@only("forgets")
def test_it_is_told_of_after_slurm_has_forgotten_it(lab):
    ran = lab.json("submit", "-N", "2", "--wait", "--", "true")
    ended = lab.json("submit", "-N", "2", "--", "sleep", "600")
    state_is(lab, ended, "RUNNING")
    assert lab.hpcrun("cancel", ended["job_id"]).returncode == 0

    def forgotten(job):
        return lab.call("scontrol", "show", "job", job).returncode != 0

    for facts in ran, ended:
        wait_for("slurmctld", partial(forgotten, facts["job_id"]), 90, lab.cluster.config.log)
    told = {row["job_id"]: row for row in lab.json("status")}
    assert [told[facts["job_id"]]["state"] for facts in (ran, ended)] == ["COMPLETED", "CANCELLED"]
    assert [lab.json("why", facts["job_id"])["state"] for facts in (ran, ended)] == ["COMPLETED", "CANCELLED"]


@pytest.mark.thorough
@only("forgets")
def test_a_timeout_stays_one_after_slurm_has_forgotten_it(lab):
    facts = lab.json("submit", "-N", "2", "-t", "5", "--", "sleep", "600")
    nodes = state_is(lab, facts, "RUNNING")["nodes"]
    assert lab.call("scontrol", "update", f"JobId={facts['job_id']}", "TimeLimit=1").returncode == 0
    lab.wait_over(facts["job_id"], 180)
    ask = ("scontrol", "show", "job", facts["job_id"])
    wait_for("slurmctld forgets it: it", lambda: lab.call(*ask).returncode != 0, 90, lab.cluster.config.log)
    told = lab.json("status", facts["job_id"])
    assert (told["state"], told["nodes"]) == ("TIMEOUT", nodes)
    assert lab.json("why", facts["job_id"])["state"] == "TIMEOUT"


@only("limits")
def test_what_no_partition_can_run_is_refused_and_said_in_slurms_words(lab):
    done = lab.hpcrun("submit", "-N", "99", "--", "true")
    assert done.returncode != 0
    assert done.stderr.startswith("ERROR: sbatch refused the job: Batch job submission failed: "), done.stderr
    assert lab.json("status") == []


@only("limits")
def test_it_waits_for_nodes_that_are_drained_or_reserved_and_why_names_them(lab):
    drained = lab.cluster.nodelist[-1]
    facts = lab.json("submit", "--nodelist", drained, "--", "true")
    told = {}

    def explained():
        told.update(lab.json("why", facts["job_id"]))
        return told["name"] not in {"not-looked-at", "priority"}

    wait_for("a reason is", explained, 60, lab.cluster.config.log / "slurmctld.log")
    assert (told["state"], drained in str(told)) == ("PENDING", True), told


@only("limits")
def test_it_is_preempted_and_goes_on(lab):
    facts = lab.json("submit", "-N", "2", "-p", "low", "--exclusive", "--max-requeue", "1", "--", "sh", "-c", GOES_ON)
    said(lab, facts, "started")
    assert lab.call("srun", "--partition=high", "--nodes=2", "--exclusive", "true").returncode == 0
    assert lab.json("status", facts["job_id"])["state"] in {"PENDING", "RUNNING", "COMPLETED"}
    said(lab, facts, "again")
    assert state_is(lab, facts, "COMPLETED")["starts"] == 2
