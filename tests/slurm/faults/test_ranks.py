"""One rank is killed, or does not heed SIGTERM: the job ends, says so, and leaves none of its ranks."""

import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]
HERE = Path(__file__).parents[2]
FAILING = HERE / "mpi/programs/failing.py"
IGNORING = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('started', flush=True); time.sleep(600)"
)


@pytest.mark.parametrize("site", ["srun-mpich", "srun-openmpi", "mpiexec", "mpirun"])
def test_a_rank_that_is_killed_ends_the_job_soon(lab, sleeper, witness, site):
    facts = sleeper("--site", site, "-N", "2", ranks=2, command="exec sleep 600")
    other = sleeper("-J", "other")
    second = lab.cluster.nodelist[1]
    kill = "for p in /proc/[0-9]*; do grep -qzxF HPCRUN_RANK=1 $p/environ && kill -KILL ${p#/proc/}; done 2>/dev/null"
    began = time.monotonic()
    lab.cluster.run(second, "bash", "-c", kill, check=False)
    witness.until("the end is", lambda: witness.state(facts) == "FAILED", 60)
    assert time.monotonic() - began < 30
    told = lab.json("status", facts["job_id"])
    assert (told["exit_code"] != 0, told["reason"].startswith("the ranks ended with exit code ")) == (True, True), told
    assert lab.json("why", facts["job_id"])["state"] == "FAILED"
    lab.wait_over(facts["job_id"])
    assert witness.processes(facts["run_dir"]) == [0, 0]
    assert witness.state(other) == "RUNNING"


def test_a_training_whose_rank_is_killed_names_it(lab, witness):
    facts = lab.json("submit", "-N", "2", "--wait", "--", sys.executable, FAILING, "kill")
    assert facts["state"] == "FAILED"
    told = lab.json("why", facts["job_id"])
    assert told["name"] == "rank-killed"
    assert f"rank 1 on {lab.cluster.nodelist[1]} was killed by SIGKILL" in told["headline"]
    lab.wait_over(facts["job_id"])
    assert witness.processes(facts["run_dir"]) == [0, 0]


@pytest.mark.parametrize("site", ["srun-mpich", "mpirun"])
def test_ranks_that_ignore_sigterm_are_ended_all_the_same(lab, witness, site):
    facts = lab.json("submit", "--site", site, "-N", "2", "--", sys.executable, "-c", IGNORING)
    witness.started(facts, 2)
    assert lab.hpcrun("cancel", facts["job_id"]).returncode == 0
    lab.wait_over(facts["job_id"])
    told = lab.json("status", facts["job_id"])
    assert (told["state"], told["reason"]) == ("CANCELLED", "stopped by SIGTERM")
    assert lab.hpcrun("cleanup", facts["job_id"], "--force").returncode == 0
    assert witness.processes(facts["run_dir"]) == [0, 0]


def test_a_job_that_is_cancelled_behind_hpcruns_back(lab, sleeper, witness):
    facts = sleeper("-N", "2", ranks=2)
    assert lab.call("scancel", facts["job_id"]).returncode == 0
    lab.wait_over(facts["job_id"])
    assert (witness.state(facts), witness.processes(facts["run_dir"])) == ("CANCELLED", [0, 0])
    witness.until("accounting knows who did it", lambda: lab.json("why", facts["job_id"])["name"] == "cancelled")
    again = lab.hpcrun("cancel", facts["job_id"])
    assert (again.returncode, "has ended already: CANCELLED" in again.stderr) == (1, True)


def test_the_time_limit_of_slurm(lab, sleeper, witness):
    facts = sleeper("-N", "2", "-t", "10:00", ranks=2)
    assert lab.call("scontrol", "update", f"JobId={facts['job_id']}", "EndTime=now").returncode == 0
    witness.until("the end is", lambda: witness.state(facts) == "TIMEOUT")
    assert lab.json("why", facts["job_id"])["name"] == "time-limit"
    lab.wait_over(facts["job_id"])
    assert witness.processes(facts["run_dir"]) == [0, 0]


def test_a_job_that_another_one_displaces_is_told_as_it_is_at_each_moment(lab, sleeper, witness):
    facts = sleeper("-p", "low", "-N", "2", "--exclusive", "--sbatch=--requeue", ranks=2)
    other = sleeper("-p", "high", "-N", "2", "--exclusive", "-J", "other", ranks=2)
    log = Path(facts["run_dir"], "logs/rank-1.log")
    told = lab.json("status", facts["job_id"])
    assert told["state"] in {"PENDING", "REQUEUED", "PREEMPTED", "COMPLETING"}, told
    witness.until("the job waits again", lambda: witness.state(facts) == "PENDING")
    assert witness.processes(facts["run_dir"]) == [0, 0]
    waits = lab.json("why", facts["job_id"])
    assert waits["state"] == "PENDING"
    before = log.read_text().count("started\n")
    assert lab.hpcrun("cancel", other["job_id"]).returncode == 0
    # Slurm starts a job again two minutes after it was put back at the earliest, or at once with a begin time of now
    lab.call("scontrol", "update", f"JobId={facts['job_id']}", "StartTime=now")
    witness.until("the job runs again", lambda: log.read_text().count("started\n") > before, 180)
    assert witness.state(facts) == "RUNNING"
    assert lab.hpcrun("cancel", facts["job_id"]).returncode == 0
    lab.wait_over(facts["job_id"])
    assert (witness.state(facts), witness.processes(facts["run_dir"])) == ("CANCELLED", [0, 0])
