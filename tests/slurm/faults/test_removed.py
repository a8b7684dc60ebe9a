"""Run directories that are removed by hand: the jobs are still known, cancelled and cleaned up after."""

import shutil
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]
ORPHAN = Path(__file__).parents[2] / "orphan.py"


def remove(facts):
    shutil.rmtree(facts["run_dir"])
    return f"the run directory {facts['run_dir']} is gone"


def test_while_the_job_runs(lab, sleeper, witness):
    facts, other = sleeper("-N", "2", ranks=2), sleeper("-J", "other")
    gone = remove(facts)
    told = f"{gone}, but its job {facts['job_id']} is running: hpcrun cancel {facts['job_id']} ends it\n"
    assert told in lab.hpcrun("status").stderr
    assert told in lab.hpcrun("status", facts["job_id"]).stderr
    assert "0 added, 0 taken off" in lab.hpcrun("status", "--rebuild").stderr
    for command in ("logs", "why", "result"):
        done = lab.hpcrun(command, facts["job_id"])
        assert f"the run directory of {facts['job_id']} is gone" in done.stderr
        assert "Traceback" not in done.stderr
    assert lab.hpcrun("cancel", facts["job_id"]).returncode == 0
    lab.wait_over(facts["job_id"])
    assert (witness.processes(facts["run_dir"]), witness.state(other)) == ([0, 0], "RUNNING")
    assert "0 added, 1 taken off" in lab.hpcrun("status", "--rebuild").stderr


def test_while_the_job_waits(lab):
    facts = lab.json("submit", "--sbatch=--hold", "--", "true")
    assert f"{remove(facts)}, but its job {facts['job_id']} is pending" in lab.hpcrun("status").stderr
    assert lab.hpcrun("cancel", facts["job_id"]).returncode == 0
    lab.wait_over(facts["job_id"])
    done = lab.hpcrun("cancel", facts["job_id"])
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def test_a_job_that_begins_without_its_directory_fails(lab, witness):
    facts = lab.json("submit", "--sbatch=--hold", "--", "sleep", "600")
    gone = remove(facts)
    assert lab.call("scontrol", "release", facts["job_id"]).returncode == 0
    lab.wait_over(facts["job_id"])
    assert (
        lab.call("squeue", "--noheader", "--states=all", "--jobs", facts["job_id"], "--format=%T").stdout == "FAILED\n"
    )
    assert f"{gone}; hpcrun status --rebuild takes such runs off the list" in lab.hpcrun("status").stderr
    assert lab.hpcrun("cleanup", facts["job_id"], "--force").returncode == 0
    assert witness.processes(facts["run_dir"]) == [0, 0]


@pytest.mark.parametrize("ended", [False, True])
def test_cleanup_finds_what_the_job_left(lab, sleeper, witness, ended):
    hide = f'{sys.executable} {ORPHAN} "$PWD/orphan-$SLURM_PROCID" ignoring; sleep 600'
    facts, other = sleeper("-N", "2", ranks=2, command=hide), sleeper("-J", "other")
    witness.until("the orphans are", lambda: len(list(lab.home.glob("orphan-[01]"))) == 2)
    if ended:
        assert lab.call("scancel", "--signal=KILL", "--full", facts["job_id"]).returncode == 0
        lab.wait_over(facts["job_id"])
        assert witness.processes(facts["run_dir"]) == [1, 1]
    remove(facts)
    done = lab.hpcrun("cleanup", facts["job_id"], "--yes", "--force", "--grace", "1")
    assert done.returncode == 0, done.stderr
    assert witness.processes(facts["run_dir"]) == [0, 0]
    assert sum(witness.processes(other["run_dir"])) > 0
