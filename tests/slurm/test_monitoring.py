"""`hpcrun status`, `logs` and `cancel` on a real Slurm: several jobs, requeued jobs, and slurmctld down."""

import json

import pytest

from tests.cluster.errors import wait_for

pytestmark = pytest.mark.slurm


@pytest.mark.thorough
def test_status_prints_the_last_state_while_slurmctld_is_down(user):
    submission = user.json("submit", "-N", "2", "--time", "30", "--", "sh", "-c", "echo started; sleep 600")
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        assert any(line == "started\n" for line in iter(logs_process.stdout.readline, ""))
        running_job = user.json("status", "last")
        assert (running_job["state"], running_job["limit"], running_job["as_of"]) == ("RUNNING", "30:00", None)
        assert user.call("scontrol", "shutdown", "slurmctld").returncode == 0  # a killed slurmctld might forget the job
        log = user.cluster.config.log / "slurmctld.log"
        wait_for("the end of slurmctld", lambda: "DOWN" in user.call("scontrol", "ping").stdout, 30, log)
        try:
            output = user.json("status", "last")
            table = user.hpcrun("status").stdout
        finally:
            user.cluster.start(user.cluster.config.controller)
        assert (output["state"], output["nodes"], output["reason"]) == (
            "RUNNING",
            running_job["nodes"],
            "Slurm does not answer",
        )
        assert output["as_of"]
        assert "running (as of " in table
        assert logs_process.poll() is None  # logs -f waits until Slurm responds again
        assert user.json("status", "last")["as_of"] is None
        assert user.hpcrun("cancel", "last").returncode == 0
        assert logs_process.wait(60) == 0


@pytest.mark.parametrize("name", [pytest.param("user", marks=pytest.mark.thorough), "user_without_accounting"])
def test_status_and_cancel_select_several_jobs(request, name):
    user = request.getfixturevalue(name)
    failed_job = user.json("submit", "-J", "net-bad", "--wait", "--", "false")
    running_job, pending_job, other_job = (
        user.json("submit", "-J", name, "-N", "2", "--exclusive", "--", "sh", "-c", "echo started; sleep 600")
        for name in ("net-runs", "net-waits", "other")
    )
    with user.start("hpcrun", "logs", "-f", running_job["job_id"]) as logs_process:
        assert any(line == "started\n" for line in iter(logs_process.stdout.readline, ""))
        logs_process.kill()

    def job_ids(*argv):
        return {job["job_id"] for job in user.json("status", *argv)}

    assert job_ids("net-*") == {job["job_id"] for job in (failed_job, running_job, pending_job)}
    assert job_ids(f"{failed_job['job_id']}-{other_job['job_id']}") == job_ids("all") == job_ids()
    assert job_ids("--state", "pd", "--since", "1h") == {pending_job["job_id"], other_job["job_id"]}
    assert job_ids("all", "--state", "failed") == {failed_job["job_id"]}
    unconfirmed = user.hpcrun("cancel", "net-*")
    assert (unconfirmed.returncode, "--yes" in unconfirmed.stderr, "net-bad" in unconfirmed.stderr) == (2, True, False)
    assert job_ids("--state", "pending,running") == {job["job_id"] for job in (running_job, pending_job, other_job)}
    assert user.hpcrun("cancel", "net-*", "--yes").returncode == 0
    with user.start("hpcrun", "status", "net-*", "--watch", "0.2") as watch_process:
        assert watch_process.wait(60) == 0
    assert {job["name"]: job["state"] for job in user.json("status", "net-*")} == {
        "net-bad": "FAILED",
        "net-runs": "CANCELLED",
        "net-waits": "CANCELLED",
    }
    assert user.json("status", other_job["job_id"])["state"] in {"PENDING", "RUNNING"}


def test_logs_follow_several_ranks_of_a_requeued_job(user):
    script = 'echo "rank $HPCRUN_RANK of start ${SLURM_RESTART_COUNT-0}"; [ -n "$SLURM_RESTART_COUNT" ] || sleep 600'
    submission = user.json(
        "submit", "-N", "2", "--ntasks-per-node", "2", "--sbatch=--requeue", "--", "sh", "-c", script
    )
    first, second = user.cluster.nodelist
    with user.start("hpcrun", "logs", "-f", submission["job_id"], "--rank", "1,3", "--grep", "^rank") as logs_process:

        def next_two():
            return sorted(logs_process.stdout.readline() for _ in range(2))

        assert next_two() == [f"[rank 1 on {first}] rank 1 of start 0\n", f"[rank 3 on {second}] rank 3 of start 0\n"]
        assert user.call("scontrol", "requeue", submission["job_id"]).returncode == 0
        assert next_two() == [f"[rank 1 on {first}] rank 1 of start 1\n", f"[rank 3 on {second}] rank 3 of start 1\n"]
        assert logs_process.wait(120) == 0
    last_line = user.hpcrun("logs", submission["job_id"], "--rank", "3", "-n", "1").stdout
    assert last_line == "rank 3 of start 1\n"


def test_status_prints_the_progress_of_a_training(user):
    line = json.dumps({"epoch": 3, "epochs": 90, "images_per_second": 812.0})
    script = f"""echo '{line}' >>"$HPCRUN_RUN_DIR/metrics.jsonl"; echo written; sleep 600"""
    submission = user.json("submit", "-J", "training", "-t", "1:00:00", "--", "sh", "-c", script)
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        assert any(line == "written\n" for line in iter(logs_process.stdout.readline, ""))
        table = user.hpcrun("status", "training").stdout.splitlines()[2]
        assert "epoch 3/90, 812 images/s" in table
        assert " of 1:00:00 " in table
        assert f" {user.cluster.nodelist[0]} " in table
        assert user.hpcrun("cancel", "training").returncode == 0
        logs_process.wait(60)
