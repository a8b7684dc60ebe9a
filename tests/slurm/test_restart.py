"""Jobs that are stopped before their time limit, preempted or cancelled, and go on where they were, on a real Slurm."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.errors import wait_for
from tests.slurm.lab import SITES, Lab

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]
EPOCHS = 30
PATIENT = "trap 'echo asked; exit 3' TERM USR2; echo started; while :; do sleep 0.1; done"
STUBBORN = "trap 'echo asked' TERM USR2; echo started; while :; do sleep 0.1; done"


def site(lab: Lab, name: str, base: str, keys: str) -> str:
    """Write a site file; return the site's name."""
    (lab.home / f"config/hpcrun/{name}.toml").write_text(f"{SITES[base].split('[')[0]}{keys}\n")
    return name


def submit(lab: Lab, *options: str, epochs: int = EPOCHS) -> Any:
    return lab.json("submit", "lenet5", "-N", "2", *options, "--", "--epochs", str(epochs))


def seen(following, beginning: str) -> None:
    """Wait until a log that is followed has a line that begins so."""
    for line in iter(following.stdout.readline, ""):
        if line.startswith(beginning):
            return
    raise AssertionError(f"the log ended without {beginning!r}: {following.stderr.read()}")


def status(lab: Lab, facts: dict[str, str]) -> Any:
    return lab.json("status", facts["run_dir"])


def epochs(facts: dict[str, str]) -> list[int]:
    return [line["epoch"] for line in metrics(facts)]


def metrics(facts: dict[str, str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(facts["run_dir"], "metrics.jsonl").read_text().splitlines()]


def went_on(lab: Lab, facts: dict[str, str], starts: int) -> str:
    """Look at a training that has ended: it did every epoch once, in so many starts; return its log."""
    told = status(lab, facts)
    log = lab.log(facts)
    assert (told["state"], told["exit_code"], told["starts"]) == ("COMPLETED", 0, starts), f"{told}\n{log}"
    assert epochs(facts) == list(range(1, EPOCHS + 1))
    assert log.count("epoch 1/30  loss ") == 1
    assert log.count("/checkpoints/fit-0.npz: ") == starts - 1
    result = json.loads(Path(facts["run_dir"], "result.json").read_text())
    # of all starts, not the last one's alone
    assert result["training_seconds"] >= 0.9 * sum(line["seconds"] for line in metrics(facts))
    return log


def told_of_its_limit(lab: Lab, facts: dict[str, str]) -> None:
    """Do as Slurm does near a time limit; it would take its time, since it looks every 30 s only."""
    assert lab.call("scancel", "--batch", "--signal=USR2", status(lab, facts)["job_id"]).returncode == 0


@pytest.mark.parametrize("site", ["srun-mpich", "mpiexec", "mpirun"])
def test_a_training_that_is_requeued_goes_on_where_it_was(lab, site):
    facts = submit(lab, "--site", site, "-t", "10:00", "--max-requeue", "2")
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        seen(following, f"epoch 3/{EPOCHS}")
        told_of_its_limit(lab, facts)
        seen(following, "from /")
        told = status(lab, facts)
        assert (told["state"], told["starts"], told["exit_code"]) == ("RUNNING", 2, None)
        assert "started 2 times" in lab.hpcrun("status", facts["job_id"]).stdout
        assert following.wait(120) == 0
    assert "stopped by SIG" in went_on(lab, facts, 2)


def test_a_real_time_limit_and_a_program_that_does_not_train(lab):
    script = 'echo "start ${SLURM_RESTART_COUNT-0}"; [ -n "$SLURM_RESTART_COUNT" ] || ' + f"{{ {PATIENT}; }}"
    facts = lab.json("submit", "-N", "2", "-t", "10:00", "--max-requeue", "1", "--", "sh", "-c", script)
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        seen(following, "started")
        assert lab.call("scontrol", "update", f"JobId={facts['job_id']}", "TimeLimit=2").returncode == 0
        seen(following, "asked")
        seen(following, "start 1")
        assert following.wait(60) == 0
    assert (status(lab, facts)["state"], status(lab, facts)["starts"]) == ("COMPLETED", 2)


def test_where_requeue_is_forbidden_the_run_is_a_chain_of_jobs(lab):
    chained = site(lab, "chained", "srun-mpich", "restart.requeue = false")
    facts = submit(lab, "--site", chained, "-t", "10:00", "--max-requeue", "2")
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        seen(following, f"epoch 3/{EPOCHS}")
        told_of_its_limit(lab, facts)
        seen(following, "from /")
        seen(following, "epoch ")
        told_of_its_limit(lab, facts)
        assert following.wait(120) == 0
    newest = status(lab, facts)["job_id"]
    assert int(newest) > int(facts["job_id"])
    assert lab.json("status", newest)["run_dir"] == lab.json("status", facts["job_id"])["run_dir"] == facts["run_dir"]
    went_on(lab, facts, 3)
    assert lab.hpcrun("logs", newest).stdout == lab.hpcrun("logs", facts["job_id"]).stdout
    assert lab.json("result", newest)["test_accuracy"] > 0.5


def test_it_is_requeued_no_more_often_than_asked_for(lab):
    facts = lab.json("submit", "--max-requeue", "1", "--", "sh", "-c", PATIENT)
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        seen(following, "started")
        told_of_its_limit(lab, facts)
        seen(following, "started")
        told_of_its_limit(lab, facts)
        following.wait(60)
    told = status(lab, facts)
    assert (told["state"], told["starts"]) == ("FAILED", 2)
    assert "as often as --max-requeue=1 allows" in told["reason"]


def test_a_preempted_training_goes_on(lab):
    facts = submit(lab, "-p", "low", "--exclusive")
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        seen(following, f"epoch 3/{EPOCHS}")
        above = lab.json("submit", "-p", "high", "-N", "2", "--exclusive", "--", "sh", "-c", "echo started; sleep 600")
        with lab.start("hpcrun", "logs", "-f", above["job_id"]) as other:
            seen(other, "started")
            told = status(lab, facts)
            assert (told["state"], told["starts"]) == ("PENDING", 1), told
            assert "started once" in lab.hpcrun("status", facts["job_id"]).stdout
            assert lab.hpcrun("cancel", above["job_id"]).returncode == 0
        assert following.wait(120) == 0
    told = status(lab, facts)
    assert (told["state"], told["starts"]) == ("COMPLETED", 2), lab.log(facts)
    assert epochs(facts) == list(range(1, EPOCHS + 1))  # whether or not there was time for a checkpoint


@pytest.mark.parametrize("launcher", ["srun-mpich", "mpiexec", "mpirun"])
def test_cancel_leaves_time_for_a_checkpoint(lab, launcher):
    facts = submit(lab, "--site", launcher, "--max-requeue", "2")
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        seen(following, f"epoch 3/{EPOCHS}")
        done = lab.hpcrun("cancel", facts["job_id"])
        assert done.returncode == 0, done.stderr
        assert (
            f"job {facts['job_id']} (lenet5) is cancelled: its ranks wrote a checkpoint and ended after" in done.stderr
        )
        following.wait(60)
    assert Path(facts["run_dir"], "checkpoints/fit-0.npz").exists()
    lab.wait_over(facts["job_id"])
    assert status(lab, facts)["state"] == "CANCELLED"
    assert status(lab, facts)["starts"] == 1


def test_cancel_kills_what_does_not_end_and_cancels_what_waits_at_once(lab):
    short = site(lab, "short", "srun-mpich", "restart.cancel_seconds = 3")
    stubborn = lab.json("submit", "-N", "2", "--site", short, "--exclusive", "--", "sh", "-c", STUBBORN)
    waiting = lab.json("submit", "-N", "2", "--exclusive", "--", "true")
    with lab.start("hpcrun", "logs", "-f", stubborn["job_id"]) as following:
        seen(following, "started")
        done = lab.hpcrun("cancel", stubborn["job_id"], waiting["job_id"])
        seen(following, "asked")
        following.wait(60)
    assert f"job {waiting['job_id']} (true) is cancelled: it did not run" in done.stderr
    assert "its ranks had not ended after 3 s, and were killed" in done.stderr
    lab.wait_over(stubborn["job_id"])
    assert status(lab, stubborn)["state"] == status(lab, waiting)["state"] == "CANCELLED"


def test_a_second_ctrl_c_leaves_the_ranks_no_more_time(lab):
    with lab.start("hpcrun", "submit", "-N", "2", "--wait", "--", "sh", "-c", STUBBORN) as waiting:
        seen(waiting, "started")
        waiting.send_signal(signal.SIGINT)
        seen(waiting, "asked")
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(20) == 130
        assert "were killed" in waiting.stderr.read()


def test_a_job_that_waits_to_be_started_again_is_cancelled_for_good(lab):
    facts = lab.json("submit", "--max-requeue", "1", "--", "sh", "-c", PATIENT)
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        seen(following, "started")
        assert lab.call("scontrol", "update", "PartitionName=main", "State=DOWN").returncode == 0
        try:
            told_of_its_limit(lab, facts)
            seen(following, "asked")
            log = lab.cluster.config.log / "slurmctld.log"
            wait_for("it is pending", lambda: status(lab, facts)["state"] == "PENDING", 30, log)
            assert lab.hpcrun("cancel", facts["job_id"]).returncode == 0
        finally:
            assert lab.call("scontrol", "update", "PartitionName=main", "State=UP").returncode == 0
        following.wait(60)
    assert (status(lab, facts)["state"], status(lab, facts)["starts"]) == ("CANCELLED", 1)


@pytest.fixture
def grace(lab):
    """Give jobs that are preempted half a minute to end."""
    assert lab.call("scontrol", "update", "PartitionName=low", "GraceTime=30").returncode == 0
    yield
    assert lab.call("scontrol", "update", "PartitionName=low", "GraceTime=0").returncode == 0


def test_a_training_that_ends_within_the_grace_time_of_preemption_goes_on(lab, grace):
    facts = submit(lab, "-p", "low", "--exclusive", epochs=60)
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        seen(following, "epoch 3/60")
        above = lab.json("submit", "-p", "high", "-N", "2", "--exclusive", "--", "sh", "-c", "echo started")
        seen(following, "from /")
        assert following.wait(120) == 0
    assert status(lab, above)["state"] == "COMPLETED"
    assert (status(lab, facts)["state"], status(lab, facts)["starts"]) == ("COMPLETED", 2)
    assert epochs(facts) == list(range(1, 61))


def test_a_training_whose_node_fails_is_started_again(lab):
    second = lab.cluster.nodelist[1]
    facts = submit(lab, "--max-requeue", "1", "--exclusive")
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        seen(following, f"epoch 3/{EPOCHS}")
        lab.cluster.crash(second)
        try:
            log = lab.cluster.config.log / "slurmctld.log"
            wait_for("it is pending", lambda: status(lab, facts)["state"] == "PENDING", 120, log)
        finally:
            lab.cluster.boot(second)
        assert following.wait(180) == 0
    told = status(lab, facts)
    assert (told["state"], told["starts"]) == ("COMPLETED", 2), lab.log(facts)
    assert epochs(facts) == list(range(1, EPOCHS + 1))


def test_ranks_that_fail_because_a_node_did_are_started_again(lab):
    flag, second = lab.home / "flag", lab.cluster.nodelist[1]
    program = f"""if 1:
        import os, time
        from mpi4py import MPI
        MPI.COMM_WORLD.barrier()
        print("started", flush=True)
        while not os.path.exists("{flag}"):
            time.sleep(0.1)
        if "SLURM_RESTART_COUNT" not in os.environ:
            MPI.COMM_WORLD.Abort(1)  # of which srun hears
    """
    options = ("--site", "srun-mpich", "-N", "2", "--max-requeue", "1", "--exclusive")
    facts = lab.json("submit", *options, "--", sys.executable, "-c", program)
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        seen(following, "started")
        lab.cluster.crash(second)
        try:
            flag.touch()  # so the ranks end before Slurm knows
            log = lab.cluster.config.log / "slurmctld.log"
            wait_for("it is pending", lambda: status(lab, facts)["state"] == "PENDING", 120, log)
        finally:
            lab.cluster.boot(second)
        assert following.wait(180) == 0
    told = status(lab, facts)
    assert (told["state"], told["starts"]) == ("COMPLETED", 2), lab.log(facts)


def test_an_old_run_once_more(lab):
    then = site(lab, "then", "srun-mpich", "setup = ['export WHEN=then']")
    old = lab.json("submit", "--site", then, "--wait", "--", "sh", "-c", "echo $WHEN on $SLURM_NTASKS")
    site(lab, "then", "srun-mpich", "setup = ['export WHEN=now']")
    new = lab.json("resubmit", old["job_id"], "-N", "2", "--wait")
    assert (new["state"], new["run_dir"] != old["run_dir"]) == ("COMPLETED", True)
    assert "then on 2\n" in lab.log(new)


def test_a_script_that_is_given_to_sbatch_again_is_the_runs_job_and_goes_on(lab):
    facts = submit(lab, "--site", "srun-mpich", epochs=200)
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        seen(following, "epoch 2/200")
        done = lab.hpcrun("cancel", facts["job_id"])
        following.wait(60)
    assert "wrote a checkpoint" in done.stderr
    assert f"sbatch {facts['run_dir']}/job.sh" in lab.json("why", facts["job_id"])["fix"]
    new = lab.call("sbatch", "--parsable", f"{facts['run_dir']}/job.sh").stdout.strip()
    log = lab.cluster.config.log / "slurmctld.log"
    wait_for("it runs again", lambda: lab.json("status", facts["run_dir"])["job_id"] == new, 60, log)
    with lab.start("hpcrun", "logs", "-f", new) as following:
        seen(following, "from /")
        assert lab.hpcrun("cleanup", "--all", "--force", "--yes").returncode == 0
        assert lab.hpcrun("prune", "all", "--yes").stderr.startswith(f"job {new} (lenet5) is left alone: it is running")
        assert [status(lab, {"run_dir": word})["state"] for word in (new, facts["job_id"])] == ["RUNNING", "RUNNING"]
        assert f"job {new} (lenet5) is cancelled: its ranks wrote a checkpoint" in lab.hpcrun("cancel", new).stderr
        following.wait(60)
    assert lab.log({**facts, "job_id": new}).count("stopped by SIGTERM in epoch") == 2  # one log
