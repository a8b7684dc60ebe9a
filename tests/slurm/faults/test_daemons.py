"""Slurm's daemons end while jobs run: no job is lost, and status reports correct states."""

import shutil
import time

import pytest

from tests.cluster import daemons

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


class Daemons:
    """Stops and starts the controller's daemons.

    Args:
        cluster: The cluster.
    """

    def __init__(self, cluster):
        self.cluster = cluster
        self.controller = cluster.config.controller

    def shut_down(self):
        """Stop slurmctld, which saves its state."""
        self.cluster.call("scontrol", "shutdown", "slurmctld")
        self._wait_for_end("slurmctld")

    def kill(self):
        """Kill slurmctld."""
        self.cluster.kill(self.controller)
        self._wait_for_end("slurmctld")

    def start(self):
        self.cluster.start(self.controller)

    def kill_accounting(self):
        self.cluster.controller.call("sh", "-c", f"kill -KILL $(cat {self.cluster.config.run}/slurmdbd.pid)")
        self._wait_for_end("slurmdbd")

    def start_accounting(self):
        daemons.start_slurmdbd(self.cluster.controller)

    def _wait_for_end(self, name):
        is_running = ("sh", "-c", f"kill -0 $(cat {self.cluster.config.run}/{name}.pid) 2>/dev/null")
        end = time.monotonic() + 10
        while self.cluster.run(self.controller, *is_running, check=False).returncode == 0:
            assert time.monotonic() < end, f"{name} is still running after 10 s"
            time.sleep(0.05)

    def is_up(self):
        return "UP" in self.cluster.call("scontrol", "ping", check=False).stdout


@pytest.fixture
def slurm(user):
    """Yield a controller of Slurm's daemons; afterwards, restart the daemons and resume all nodes."""
    slurm = Daemons(user.cluster)
    yield slurm
    if not slurm.is_up():
        slurm.start()
    user.call("scancel", "--me")
    drained = user.call("sinfo", "--noheader", "--partition=main", "--states=drain,down", "--format=%n").stdout.split()
    if drained:
        user.call("scontrol", "update", f"NodeName={','.join(drained)}", "State=RESUME")
    user.cluster.wait_idle()
    # Nodes remember a job that slurmctld has forgotten, and refuse the next job of its id, which is this one.
    user.call("sbatch", "--hold", "--wrap=true")
    user.call("scancel", "--me")


def test_a_job_keeps_running_while_slurmctld_restarts(user, slurm, start_sleeper, inspector):
    submission = start_sleeper("-N", "2", ranks=2)
    assert inspector.state(submission) == "RUNNING"
    before = inspector.processes(submission["run_dir"])
    slurm.shut_down()
    output = user.json("status", submission["job_id"])
    assert (output["state"], output["reason"]) == ("RUNNING", "Slurm does not answer")
    assert output["as_of"]
    assert "Traceback" not in user.hpcrun("why", submission["job_id"]).stderr
    rejected = user.hpcrun("cancel", submission["job_id"])
    assert (rejected.returncode, "Unable to contact slurm controller" in rejected.stderr) == (2, True)
    assert inspector.processes(submission["run_dir"]) == before
    slurm.start()
    assert (inspector.state(submission), inspector.processes(submission["run_dir"])) == ("RUNNING", before)
    assert user.hpcrun("cancel", submission["job_id"]).returncode == 0
    user.wait_for_end(submission["job_id"])
    assert (inspector.state(submission), inspector.processes(submission["run_dir"])) == ("CANCELLED", [0, 0])


def test_submit_wait_follows_a_job_while_slurmctld_restarts(user, slurm):
    gate = user.home / "gate"
    command = f"echo started; while [ ! -e {gate} ]; do sleep 0.1; done; echo done"
    with user.start("hpcrun", "submit", "--wait", "--", "sh", "-c", command) as submit_process:
        assert any(line == "started\n" for line in iter(submit_process.stdout.readline, ""))
        slurm.shut_down()
        slurm.start()
        gate.touch()
        assert any(line == "done\n" for line in iter(submit_process.stdout.readline, ""))
        assert submit_process.wait(60) == 0


def test_submit_fails_while_slurmctld_is_down(user, slurm):
    slurm.shut_down()
    completed = user.hpcrun("submit", "-J", "down", "--", "true")
    assert completed.returncode == 1
    assert "ERROR: Slurm cannot be reached, and no job was submitted: " in completed.stderr
    slurm.start()
    output = user.json("status", "down")
    assert (output["state"], output["job_id"]) == ("NOT SUBMITTED", None)
    assert output["reason"].startswith("Slurm could not be reached: ")
    assert user.call("squeue", "--me", "--states=all", "--noheader", "--name=down").stdout == ""


def test_a_job_that_a_killed_slurmctld_has_not_saved_is_unknown(user, slurm, start_sleeper, inspector, tmp_path):
    state_folder = user.cluster.config.state / "statesave"
    shutil.copytree(state_folder, tmp_path / "before")
    submission = start_sleeper("-N", "2", ranks=2)
    assert inspector.state(submission) == "RUNNING"
    slurm.kill()
    shutil.rmtree(state_folder)
    shutil.copytree(tmp_path / "before", state_folder)  # as if slurmctld had not saved its latest state
    slurm.start()
    output = user.json("status", submission["job_id"])
    assert output["state"] == "UNKNOWN", output
    assert output["reason"].startswith("Slurm does not know this job (any more), though accounting lists it as ")
    assert "; it was RUNNING at " in output["reason"]
    completed = user.hpcrun("cleanup", submission["job_id"], "--yes", "--force")
    assert completed.returncode == 0, completed.stderr
    assert f"job {submission['job_id']} (sh) is UNKNOWN (Slurm does not know this job (any more)" in completed.stderr
    assert inspector.processes(submission["run_dir"]) == [0, 0]


def test_all_commands_work_while_slurmdbd_is_down(user, slurm, start_sleeper, inspector):
    failed_job = user.json("submit", "--wait", "--", "sh", "-c", "exit 4")
    slurm.kill_accounting()
    try:
        submission = start_sleeper("-N", "2", ranks=2)
        assert inspector.state(submission) == "RUNNING"
        assert user.json("why", submission["job_id"])["name"] == "running"
        assert user.hpcrun("cancel", submission["job_id"]).returncode == 0
        user.wait_for_end(submission["job_id"])
        assert (inspector.state(submission), inspector.processes(submission["run_dir"])) == ("CANCELLED", [0, 0])
        assert user.json("why", submission["job_id"])["name"] == "stopped"
        assert (inspector.state(failed_job), user.json("status", failed_job["job_id"])["exit_code"]) == ("FAILED", 4)
        assert user.hpcrun("cleanup", submission["job_id"], "--force").returncode == 0
    finally:
        slurm.start_accounting()
