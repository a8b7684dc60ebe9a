"""Jobs that are stopped before all of their ranks have begun, on a real Slurm."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]
PATIENT = "trap 'echo asked; exit 3' TERM USR2; echo started; while :; do sleep 0.1; done"


@pytest.mark.parametrize("site", ["srun-mpich", "mpiexec"])
def test_cancel_ends_ranks_that_a_prolog_has_kept_from_beginning(lab_with_prolog, site):
    lab = lab_with_prolog
    facts = lab.json("submit", "--site", site, "-N", "2", "--", "sh", "-c", PATIENT)
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        # rank 0's; on the other node the Prolog has just begun
        assert "started\n" in iter(following.stdout.readline, ""), following.stderr.read()
        done = lab.hpcrun("cancel", facts["job_id"])
        following.wait(120)
    assert done.returncode == 0, done.stderr
    assert "were killed" not in done.stderr
    lab.wait_over(facts["job_id"])
    assert lab.json("status", facts["run_dir"])["state"] == "CANCELLED"
    assert "started" not in "".join(log.read_text() for log in Path(facts["run_dir"], "logs").glob("rank-1.log"))
