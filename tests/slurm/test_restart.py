"""Jobs on a real Slurm that are stopped before their time limit, preempted or cancelled, and resume."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.errors import wait_for
from tests.slurm.cluster_user import LONG_TRAINING, MPI_TRAINING, SITES, ClusterUser

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]
EPOCHS = 30
TRAPS_SIGNALS = "trap 'echo signalled; exit 3' TERM USR2; echo started; while :; do sleep 0.1; done"
IGNORES_SIGNALS = "trap 'echo signalled' TERM USR2; echo started; while :; do sleep 0.1; done"


def write_site(user: ClusterUser, name: str, base: str, keys: str) -> str:
    """Write a site file, and return the site's name."""
    (user.home / f"config/hpcrun/{name}.toml").write_text(f"{SITES[base].split('[')[0]}{keys}\n")
    return name


def submit(user: ClusterUser, *options: str, program: Path = MPI_TRAINING, epochs: int = EPOCHS) -> Any:
    return user.json("submit", program, "-N", "2", *options, "--", str(epochs))


def wait_for_line(logs_process, prefix: str) -> None:
    """Wait until a followed log has a line with this beginning."""
    for line in iter(logs_process.stdout.readline, ""):
        if line.startswith(prefix):
            return
    raise AssertionError(f"the log ended without {prefix!r}: {logs_process.stderr.read()}")


def status(user: ClusterUser, submission: dict[str, str]) -> Any:
    return user.json("status", submission["run_dir"])


def recorded_epochs(submission: dict[str, str]) -> list[int]:
    return [line["epoch"] for line in recorded_metrics(submission)]


def recorded_metrics(submission: dict[str, str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(submission["run_dir"], "metrics.jsonl").read_text().splitlines()]


def require_resumed(user: ClusterUser, submission: dict[str, str], starts: int) -> str:
    """Require that a training ran each epoch once in the given number of starts, and return its log."""
    output = status(user, submission)
    log = user.log(submission)
    assert (output["state"], output["exit_code"], output["starts"]) == ("COMPLETED", 0, starts), f"{output}\n{log}"
    assert recorded_epochs(submission) == list(range(1, EPOCHS + 1))
    assert log.count("epoch 1/30  loss ") == 1
    assert log.count(f"\nfrom {submission['run_dir']}/checkpoints/") == starts - 1
    result = json.loads(Path(submission["run_dir"], "result.json").read_text())
    # the sum over all starts
    assert result["training_seconds"] >= 0.9 * sum(line["seconds"] for line in recorded_metrics(submission))
    return log


def signal_time_limit(user: ClusterUser, submission: dict[str, str]) -> None:
    """Send the signal of an approaching time limit; Slurm checks time limits only every 30 s."""
    assert user.call("scancel", "--batch", "--signal=USR2", status(user, submission)["job_id"]).returncode == 0


@pytest.mark.parametrize(
    ("site", "program"), [("srun-mpich", LONG_TRAINING), ("mpiexec", MPI_TRAINING), ("mpirun", MPI_TRAINING)]
)
def test_a_requeued_training_resumes(user, site, program):
    submission = submit(user, "--site", site, "-t", "10:00", "--max-requeue", "2", program=program)
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        wait_for_line(logs_process, f"epoch 3/{EPOCHS}")
        signal_time_limit(user, submission)
        wait_for_line(logs_process, "from /")
        output = status(user, submission)
        assert (output["state"], output["starts"], output["exit_code"]) == ("RUNNING", 2, None)
        assert "started 2 times" in user.hpcrun("status", submission["job_id"]).stdout
        assert logs_process.wait(120) == 0
    assert "stopped by SIG" in require_resumed(user, submission, 2)


def test_a_program_is_requeued_before_a_real_time_limit(user):
    script = 'echo "start ${SLURM_RESTART_COUNT-0}"; [ -n "$SLURM_RESTART_COUNT" ] || ' + f"{{ {TRAPS_SIGNALS}; }}"
    submission = user.json("submit", "-N", "2", "-t", "10:00", "--max-requeue", "1", "--", "sh", "-c", script)
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        wait_for_line(logs_process, "started")
        assert user.call("scontrol", "update", f"JobId={submission['job_id']}", "TimeLimit=2").returncode == 0
        wait_for_line(logs_process, "signalled")
        wait_for_line(logs_process, "start 1")
        assert logs_process.wait(60) == 0
    assert (status(user, submission)["state"], status(user, submission)["starts"]) == ("COMPLETED", 2)


def test_a_run_resubmits_itself_where_requeue_is_disabled(user):
    chained_site = write_site(user, "chained", "srun-mpich", "restart.requeue = false")
    submission = submit(user, "--site", chained_site, "-t", "10:00", "--max-requeue", "2", program=LONG_TRAINING)
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        wait_for_line(logs_process, f"epoch 3/{EPOCHS}")
        signal_time_limit(user, submission)
        wait_for_line(logs_process, "from /")
        wait_for_line(logs_process, "epoch ")
        signal_time_limit(user, submission)
        assert logs_process.wait(120) == 0
    newest_job_id = status(user, submission)["job_id"]
    assert int(newest_job_id) > int(submission["job_id"])
    assert (
        user.json("status", newest_job_id)["run_dir"]
        == user.json("status", submission["job_id"])["run_dir"]
        == submission["run_dir"]
    )
    require_resumed(user, submission, 3)
    assert user.hpcrun("logs", newest_job_id).stdout == user.hpcrun("logs", submission["job_id"]).stdout
    assert user.json("result", newest_job_id)["test_accuracy"] > 0.9


def test_max_requeue_limits_the_requeues(user):
    submission = user.json("submit", "--max-requeue", "1", "--", "sh", "-c", TRAPS_SIGNALS)
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        wait_for_line(logs_process, "started")
        signal_time_limit(user, submission)
        wait_for_line(logs_process, "started")
        signal_time_limit(user, submission)
        logs_process.wait(60)
    output = status(user, submission)
    assert (output["state"], output["starts"]) == ("FAILED", 2)
    assert "as often as --max-requeue=1 allows" in output["reason"]


def test_a_preempted_training_completes(user):
    submission = submit(user, "-p", "low", "--exclusive")
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        wait_for_line(logs_process, f"epoch 3/{EPOCHS}")
        preempting_job = user.json(
            "submit", "-p", "high", "-N", "2", "--exclusive", "--", "sh", "-c", "echo started; sleep 600"
        )
        with user.start("hpcrun", "logs", "-f", preempting_job["job_id"]) as other:
            wait_for_line(other, "started")
            output = status(user, submission)
            assert (output["state"], output["starts"]) == ("PENDING", 1), output
            assert "started once" in user.hpcrun("status", submission["job_id"]).stdout
            assert user.hpcrun("cancel", preempting_job["job_id"]).returncode == 0
        assert logs_process.wait(120) == 0
    output = status(user, submission)
    assert (output["state"], output["starts"]) == ("COMPLETED", 2), user.log(submission)
    assert recorded_epochs(submission) == list(range(1, EPOCHS + 1))  # with or without a checkpoint


@pytest.mark.parametrize(
    ("site", "program"), [("srun-mpich", LONG_TRAINING), ("mpiexec", MPI_TRAINING), ("mpirun", MPI_TRAINING)]
)
def test_cancel_gives_ranks_time_for_a_checkpoint(user, site, program):
    submission = submit(user, "--site", site, "--max-requeue", "2", program=program)
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        wait_for_line(logs_process, f"epoch 3/{EPOCHS}")
        completed = user.hpcrun("cancel", submission["job_id"])
        assert completed.returncode == 0, completed.stderr
        job = f"job {submission['job_id']} ({program.stem})"
        assert f"{job} is cancelled: its ranks wrote a checkpoint and ended after" in completed.stderr
        logs_process.wait(60)
    assert list(Path(submission["run_dir"], "checkpoints").iterdir())
    user.wait_for_end(submission["job_id"])
    assert status(user, submission)["state"] == "CANCELLED"
    assert status(user, submission)["starts"] == 1


def test_cancel_kills_stubborn_ranks_and_cancels_pending_jobs_at_once(user):
    short_site = write_site(user, "short", "srun-mpich", "restart.cancel_seconds = 3")
    stubborn_job = user.json(
        "submit", "-N", "2", "--site", short_site, "--exclusive", "--", "sh", "-c", IGNORES_SIGNALS
    )
    pending_job = user.json("submit", "-N", "2", "--exclusive", "--", "true")
    with user.start("hpcrun", "logs", "-f", stubborn_job["job_id"]) as logs_process:
        wait_for_line(logs_process, "started")
        completed = user.hpcrun("cancel", stubborn_job["job_id"], pending_job["job_id"])
        wait_for_line(logs_process, "signalled")
        logs_process.wait(60)
    assert f"job {pending_job['job_id']} (true) is cancelled: it did not run" in completed.stderr
    assert "its ranks did not exit within 3 s and were killed" in completed.stderr
    user.wait_for_end(stubborn_job["job_id"])
    assert status(user, stubborn_job)["state"] == status(user, pending_job)["state"] == "CANCELLED"


def test_a_second_ctrl_c_kills_the_ranks_at_once(user):
    with user.start("hpcrun", "submit", "-N", "2", "--wait", "--", "sh", "-c", IGNORES_SIGNALS) as submit_process:
        wait_for_line(submit_process, "started")
        submit_process.send_signal(signal.SIGINT)
        wait_for_line(submit_process, "signalled")
        submit_process.send_signal(signal.SIGINT)
        assert submit_process.wait(60) == 130
        assert "were killed" in submit_process.stderr.read()


def test_a_job_without_signal_handlers_yet_is_cancelled_at_once(user):
    submission = user.json("submit", "--sbatch=--hold", "--", "sleep", "300")
    os.mkfifo(Path(submission["run_dir"], ".room"))  # the script writes to it early, and waits for a reader
    user.call("scontrol", "release", submission["job_id"])
    job_log = Path(submission["run_dir"], f"{submission['job_id']}_0_log.out")
    wait_for("the start of the script", job_log.exists, 60, user.cluster.config.log / "slurmctld.log")
    assert "is cancelled: its ranks had not started" in user.hpcrun("cancel", submission["job_id"]).stderr
    user.wait_for_end(submission["job_id"])
    assert user.json("status", submission["job_id"])["state"] == "CANCELLED"


def test_a_requeued_pending_job_is_cancelled_permanently(user):
    submission = user.json("submit", "--max-requeue", "1", "--", "sh", "-c", TRAPS_SIGNALS)
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        wait_for_line(logs_process, "started")
        assert user.call("scontrol", "update", "PartitionName=main", "State=DOWN").returncode == 0
        try:
            signal_time_limit(user, submission)
            wait_for_line(logs_process, "signalled")
            log = user.cluster.config.log / "slurmctld.log"
            wait_for("the requeue of the job", lambda: status(user, submission)["state"] == "PENDING", 30, log)
            assert user.hpcrun("cancel", submission["job_id"]).returncode == 0
        finally:
            assert user.call("scontrol", "update", "PartitionName=main", "State=UP").returncode == 0
        logs_process.wait(60)
    assert (status(user, submission)["state"], status(user, submission)["starts"]) == ("CANCELLED", 1)


@pytest.fixture
def grace_time(user):
    """Give preempted jobs half a minute to end."""
    assert user.call("scontrol", "update", "PartitionName=low", "GraceTime=30").returncode == 0
    yield
    assert user.call("scontrol", "update", "PartitionName=low", "GraceTime=0").returncode == 0


def test_a_training_preempted_with_grace_time_resumes(user, grace_time):
    submission = submit(user, "-p", "low", "--exclusive", program=LONG_TRAINING, epochs=60)
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        wait_for_line(logs_process, "epoch 3/60")
        preempting_job = user.json("submit", "-p", "high", "-N", "2", "--exclusive", "--", "sh", "-c", "echo started")
        wait_for_line(logs_process, "from /")
        assert logs_process.wait(120) == 0
    assert status(user, preempting_job)["state"] == "COMPLETED"
    assert (status(user, submission)["state"], status(user, submission)["starts"]) == ("COMPLETED", 2)
    assert recorded_epochs(submission) == list(range(1, 61))


def test_a_training_is_requeued_after_a_node_failure(user):
    second = user.cluster.nodelist[1]
    submission = submit(user, "--max-requeue", "1", "--exclusive")
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        wait_for_line(logs_process, f"epoch 3/{EPOCHS}")
        user.cluster.crash(second)
        try:
            log = user.cluster.config.log / "slurmctld.log"
            wait_for("the requeue of the job", lambda: status(user, submission)["state"] == "PENDING", 120, log)
        finally:
            user.cluster.boot(second)
        assert logs_process.wait(180) == 0
    output = status(user, submission)
    assert (output["state"], output["starts"]) == ("COMPLETED", 2), user.log(submission)
    assert recorded_epochs(submission) == list(range(1, EPOCHS + 1))


def test_a_job_whose_ranks_abort_after_a_node_failure_is_requeued(user):
    flag, second = user.home / "flag", user.cluster.nodelist[1]
    program = f"""if 1:
        import os, time
        from mpi4py import MPI
        MPI.COMM_WORLD.barrier()
        print("started", flush=True)
        while not os.path.exists("{flag}"):
            time.sleep(0.1)
        if "SLURM_RESTART_COUNT" not in os.environ:
            MPI.COMM_WORLD.Abort(1)  # srun receives the abort
    """
    options = ("--site", "srun-mpich", "-N", "2", "--max-requeue", "1", "--exclusive")
    submission = user.json("submit", *options, "--", sys.executable, "-c", program)
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        wait_for_line(logs_process, "started")
        user.cluster.crash(second)
        try:
            flag.touch()  # the ranks end before Slurm notices the failure
            log = user.cluster.config.log / "slurmctld.log"
            wait_for("the requeue of the job", lambda: status(user, submission)["state"] == "PENDING", 120, log)
        finally:
            user.cluster.boot(second)
        assert logs_process.wait(180) == 0
    output = status(user, submission)
    assert (output["state"], output["starts"]) == ("COMPLETED", 2), user.log(submission)


def test_resubmit_uses_the_recorded_site(user):
    site_name = write_site(user, "then", "srun-mpich", "setup = ['export WHEN=then']")
    old_job = user.json("submit", "--site", site_name, "--wait", "--", "sh", "-c", "echo $WHEN on $SLURM_NTASKS")
    write_site(user, "then", "srun-mpich", "setup = ['export WHEN=now']")
    new_job = user.json("resubmit", old_job["job_id"], "-N", "2", "--wait")
    assert (new_job["state"], new_job["run_dir"] != old_job["run_dir"]) == ("COMPLETED", True)
    assert "then on 2\n" in user.log(new_job)


def test_sbatch_of_a_runs_script_resumes_the_run(user):
    submission = submit(user, "--site", "srun-mpich", epochs=200)
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        wait_for_line(logs_process, "epoch 2/200")
        completed = user.hpcrun("cancel", submission["job_id"])
        logs_process.wait(60)
    assert "wrote a checkpoint" in completed.stderr
    assert f"hpcrun resume {submission['job_id']} continues" in user.json("why", submission["job_id"])["fix"]
    new_job = user.call("sbatch", "--parsable", f"{submission['run_dir']}/job.sh").stdout.strip()
    log = user.cluster.config.log / "slurmctld.log"
    wait_for("the restart of the run", lambda: user.json("status", submission["run_dir"])["job_id"] == new_job, 60, log)
    with user.start("hpcrun", "logs", "-f", new_job) as logs_process:
        wait_for_line(logs_process, "from /")
        assert user.hpcrun("cleanup", "--all", "--force", "--yes").returncode == 0
        assert user.hpcrun("prune", "all", "--yes").stderr.startswith(
            f"job {new_job} ({MPI_TRAINING.stem}) is skipped: it is running"
        )
        assert [status(user, {"run_dir": word})["state"] for word in (new_job, submission["job_id"])] == [
            "RUNNING",
            "RUNNING",
        ]
        assert (
            f"job {new_job} ({MPI_TRAINING.stem}) is cancelled: its ranks wrote a checkpoint"
            in user.hpcrun("cancel", new_job).stderr
        )
        logs_process.wait(60)
    # both starts write to one log
    assert user.log({**submission, "job_id": new_job}).count("stopped by SIGTERM in epoch") == 2
