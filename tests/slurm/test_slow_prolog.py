"""Jobs on a real Slurm that are cancelled, or fail, before all ranks have started."""

import json
from pathlib import Path

import pytest

from tests.cluster.errors import wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]
TRAPS_SIGNALS = "trap 'echo signalled; exit 3' TERM USR2; echo started; while :; do sleep 0.1; done"


@pytest.mark.parametrize("site", ["srun-mpich", "mpiexec"])
def test_cancel_during_a_prolog_starts_no_further_rank(user_with_prolog, site):
    user = user_with_prolog
    submission = user.json("submit", "--site", site, "-N", "2", "--", "sh", "-c", TRAPS_SIGNALS)
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        # rank 0 has started; on the other node the Prolog has just begun
        assert "started\n" in iter(logs_process.stdout.readline, ""), logs_process.stderr.read()
        completed = user.hpcrun("cancel", submission["job_id"])
        logs_process.wait(120)
    assert completed.returncode == 0, completed.stderr
    assert "were killed" not in completed.stderr
    user.wait_for_end(submission["job_id"])
    assert user.json("status", submission["run_dir"])["state"] == "CANCELLED"
    assert "started" not in "".join(log.read_text() for log in Path(submission["run_dir"], "logs").glob("rank-1.log"))


FAILS_ON_RANK_0 = '[ "$HPCRUN_RANK" != 0 ] || exit 7; echo started; exec sleep 600'


@pytest.mark.parametrize("site", ["srun-mpich", "mpiexec"])
def test_a_failure_during_a_prolog_starts_no_further_rank(user_with_prolog, site):
    user = user_with_prolog
    completed = user.hpcrun("submit", "--json", "--wait", "--site", site, "-N", "3", "--", "sh", "-c", FAILS_ON_RANK_0)
    run = Path(json.loads(completed.stdout)["run_dir"])
    assert completed.returncode == 7, completed.stderr
    assert all("started" not in log.read_text() for log in run.glob("logs/rank-*.log"))


def test_a_job_does_not_run_during_a_prolog(user_with_prolog):
    user = user_with_prolog
    job_id = user.json("submit", "--", "true")["job_id"]
    log = user.cluster.config.log / "slurmctld.log"
    wait_for("the allocation", lambda: user.json("status", job_id)["state"] == "RUNNING", 60, log)
    output = user.json("why", job_id)
    assert output["name"] == "starting"
    assert f" starts on {user.cluster.nodelist[0]} since " in output["headline"]
    assert "runs" not in output["headline"]
    user.wait_for_end(job_id)
    assert user.json("why", job_id)["name"] == "completed"
