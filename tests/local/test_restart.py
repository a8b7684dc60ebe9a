"""What a Slurm job's script does when it is told to stop, with Slurm's commands pretended, and bash real."""

import os
import signal
import subprocess
import sys

import pytest

from hpcrun import submission
from hpcrun.jobs import run_selection
from hpcrun.jobs.runs import Run
from hpcrun.jobs.submission_records import write_submission
from hpcrun.request import Request
from tests.waiting import wait_until

LEAVES = "trap 'exit 9' TERM USR2; echo ready; while :; do sleep 0.02; done"
STAYS = "trap 'echo asked' USR2; trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done"
DONE = "trap 'exit 0' USR2; echo ready; while :; do sleep 0.02; done"


class Job:
    """A job script that runs as Slurm would run it."""

    def __init__(self, run, path):
        self.run = run
        environment = {"SLURM_JOB_ID": run.job_id, "SLURM_JOB_NODELIST": "localhost", "SLURM_TASKS_PER_NODE": "1"}
        environment |= {"SLURM_GRES": "gpu:1", "SLURM_CONF": "", "PATH": f"{path}:{os.environ['PATH']}"}
        self.log = run.log()
        with self.log.open("a") as log:
            command = ["bash", str(run.directory / "job.sh")]
            self.process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)

    def tell(self, number, *, after):
        """Send a signal to the script alone, once its log has a text; return its exit record when it has ended."""
        wait_until(lambda: after in self.log.read_text())
        self.process.send_signal(number)

    def end(self):
        self.process.wait(100)  # listing the packages, at the lowest priority, may take 60 s
        return self.run.end_record()


@pytest.fixture
def start(isolated_home, fake_slurm):
    """Make a run of a shell script, and start it, as often as the test calls the function that this returns."""

    def make(program, keys="", **more):
        (isolated_home / "s.toml").write_text(f'extends = "slurm"\nlauncher = "none"\n{keys}\n')
        request = Request(None, ("sh", "-c", program), site=str(isolated_home / "s.toml"), **more)
        run = submission.create(submission.prepare(request))
        write_submission({run: "7"})
        for command in ("scontrol", "scancel", "sbatch"):
            fake_slurm.replace_command(command, "echo 9")
        return lambda: Job(Run(run.directory), fake_slurm.folder)

    return make


def test_a_job_is_requeued_up_to_max_requeue_times(start, fake_slurm):
    again = start(LEAVES, max_requeue=1)
    job = again()
    job.tell(signal.SIGUSR2, after="ready")
    record = job.end()
    assert (record.requeued, record.exit_code) == (True, 9)
    assert record.reason == "stopped by SIGUSR2 before its time limit; requeued, 1 of at most 1 times"
    assert "requeue 7" in fake_slurm.calls("scontrol")
    job.log.write_text("")
    job = again()
    wait_until(lambda: "ready" in job.log.read_text())
    assert job.run.end_record() is None
    job.tell(signal.SIGUSR2, after="ready")
    record = job.end()
    assert (record.requeued, "as often as --max-requeue=1 allows" in record.reason) == (False, True)
    assert len([call for call in fake_slurm.calls("scontrol") if "requeue" in call]) == 1
    assert job.run.start_count() == 2


def test_a_refused_requeue_is_reported(start, fake_slurm):
    again = start(LEAVES, max_requeue=3)
    fake_slurm.replace_command("scontrol", "echo \"Requested 'operation'\" >&2; echo 'is disabled'; exit 1")
    job = again()
    job.tell(signal.SIGUSR2, after="ready")
    record = job.end()
    assert record.requeued is False
    assert record.reason.endswith("time limit; scontrol requeue fails: Requested operation is disabled")


def test_a_stopping_job_does_not_wait_for_the_package_list(start, fake_slurm, tmp_path):
    slow = tmp_path / "python"
    listing = f"echo >{tmp_path}/asked; sleep 60"
    slow.write_text(f'#!/bin/bash\ncase $* in *provenance*) {listing} ;; *) exec {sys.executable} "$@" ;; esac\n')
    slow.chmod(0o755)
    job = start(LEAVES, f'python = "{slow}"', max_requeue=3)()
    wait_until((tmp_path / "asked").exists)
    job.tell(signal.SIGUSR2, after="ready")
    assert job.end().requeued is True


def test_a_job_resubmits_itself_where_requeue_is_disabled(start, fake_slurm):
    again = start(LEAVES, "restart.requeue = false", max_requeue=3)
    fake_slurm.replace_command("sbatch", f"env >{fake_slurm.folder}/given; echo banner; echo '9;cluster'")
    job = again()
    job.tell(signal.SIGUSR2, after="ready")
    record = job.end()
    assert record.requeued is True
    assert "job 9 goes on with it, 1 of at most 3 times" in record.reason
    (call,) = fake_slurm.calls("sbatch")
    assert "--dependency=afterany:7" in call
    assert call.endswith(f"--error={job.run.directory}/7_0_log.err {job.run.directory}/job.sh")
    given = (fake_slurm.folder / "given").read_text()
    assert [line for line in given.splitlines() if line.startswith(("SLURM_", "SBATCH_"))] == ["SLURM_CONF="]
    now = Run(job.run.directory)
    assert now.job_id == "9"
    log = now.log()
    assert log is not None
    assert log.resolve() == job.log
    assert not [call for call in fake_slurm.calls("scontrol") if "requeue" in call]


def test_a_failed_resubmission_is_reported(start, fake_slurm):
    again = start(LEAVES, "restart.requeue = false", max_requeue=3)
    fake_slurm.replace_command("sbatch", "echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1")
    job = again()
    job.tell(signal.SIGUSR2, after="ready")
    record = job.end()
    assert (record.requeued, "QOSMaxSubmitJobPerUserLimit" in record.reason) == (False, True)
    assert Run(job.run.directory).job_id == "7"


OOM_KILL = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0."
OUT_OF_MEMORY = f"echo '{OOM_KILL}' >>$HPCRUN_RUN_DIR/7_0_log.err; exit 1"  # as srun does it


@pytest.mark.parametrize(("variable", "option"), [
    ("NODE", "--mem=1202M"), ("CPU", "--mem-per-cpu=1202M"), ("GPU", "--mem-per-gpu=1202M"),
])  # fmt: skip
def test_a_job_that_ran_out_of_memory_resubmits_itself_with_more(start, fake_slurm, monkeypatch, variable, option):
    monkeypatch.setenv(f"SLURM_MEM_PER_{variable}", "801")
    job = start(OUT_OF_MEMORY, memory_retries=2)()
    record = job.end()
    assert record.requeued is True
    assert record.reason == f"stopped by the lack of memory; job 9 goes on with {option}, 1 of at most 2 times"
    (call,) = fake_slurm.calls("sbatch")
    assert call.endswith(f"{option} {job.run.directory}/job.sh")
    assert Run(job.run.directory).job_id == "9"


@pytest.mark.parametrize(("program", "retries"), [("exit 139", 2), (OUT_OF_MEMORY, 0)])
def test_other_failures_are_not_retried(start, fake_slurm, monkeypatch, program, retries):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "800")
    record = start(program, memory_retries=retries)().end()
    assert (record.requeued, record.reason) == (False, f"the ranks ended with exit code {program.split()[-1]}")
    assert not fake_slurm.calls("sbatch")


def test_a_job_with_all_memory_of_its_node_is_not_retried(start, fake_slurm):
    record = start(OUT_OF_MEMORY, memory_retries=2)().end()
    assert record.reason == "the ranks ended with exit code 1; it ran out of memory, and has all of the node"
    assert not fake_slurm.calls("sbatch")


def test_a_refused_retry_is_reported(start, fake_slurm, monkeypatch):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "800")
    again = start(OUT_OF_MEMORY, memory_retries=2)
    fake_slurm.replace_command("sbatch", "echo 'error: Memory specification can not be satisfied' >&2; exit 1")
    record = again().end()
    assert record.reason.startswith("the ranks ended with exit code 1; sbatch fails: error: Memory specification")


def test_a_signal_after_its_ranks_have_ended_changes_nothing(start, fake_slurm):
    again = start("exit 0", 'teardown = ["kill -s USR2 $$; kill -s TERM $$"]', max_requeue=3)
    record = again().end()
    assert (record.exit_code, record.reason, record.requeued) == (0, "completed", False)
    assert not [call for call in fake_slurm.calls("scontrol") if "requeue" in call]


def test_a_script_submitted_again_by_hand_becomes_the_runs_job(start, fake_slurm):
    again = start("echo ready", "")
    first = again()
    assert first.end().job_id == "7"
    fake_slurm.set_queue(("7", "COMPLETED", "None", "n1", "0:01"), ("8", "RUNNING", "None", "n1", "0:01"))
    directory = first.run.directory
    environment = {
        "SLURM_JOB_ID": "8",
        "SLURM_JOB_NODELIST": "localhost",
        "SLURM_TASKS_PER_NODE": "1",
        "SLURM_CONF": "",
    }
    path = {"PATH": f"{fake_slurm.folder}:{os.environ['PATH']}"}
    script = ["bash", str(directory / "job.sh")]
    done = subprocess.run(script, env={**os.environ, **environment, **path}, capture_output=True, text=True, check=True)
    assert done.stdout == f"hpcrun: the log continues in {directory}/8_0_log.out\n"
    run = Run(directory)
    assert (run.job_id, run.job_ids()) == ("8", ["7", "8"])
    log = run.log()
    assert log is not None
    assert log.read_text().count("ready\n") == 2
    assert [one.directory for one in (run_selection.select_one("7"), run_selection.select_one("8"))] == [directory] * 2


def test_a_program_that_completes_is_not_requeued(start, fake_slurm):
    job = start(DONE, max_requeue=3)()
    job.tell(signal.SIGUSR2, after="ready")
    record = job.end()
    assert (record.exit_code, record.reason, record.requeued) == (0, "completed", False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_job_that_is_cancelled_is_not_requeued(start, fake_slurm, number):
    job = start(STAYS, max_requeue=3)()
    job.tell(signal.SIGUSR2, after="ready")
    job.tell(number, after="asked")
    record = job.end()
    assert (record.reason, record.requeued) == ("stopped by SIGTERM", False)
    assert fake_slurm.calls("scancel") == (["7"] if number == signal.SIGUSR1 else [])
    assert not [call for call in fake_slurm.calls("scontrol") if "requeue" in call]


def test_a_time_limit_signal_during_cancel_has_no_effect(start, fake_slurm):
    job = start("trap 'echo asked; sleep 0.3; exit 9' TERM; echo ready; while :; do sleep 0.02; done", max_requeue=3)()
    job.tell(signal.SIGUSR1, after="ready")
    job.tell(signal.SIGUSR2, after="asked")
    record = job.end()
    assert (record.reason, record.requeued) == ("stopped by SIGTERM", False)


@pytest.mark.parametrize(("output", "back"), [
    ("Requeue=1 Restarts=0 PreemptEligibleTime=2026-05-31T14:00:00 PreemptTime=2026-05-31T14:00:00", True),
    ("Requeue=1 Restarts=0 PreemptEligibleTime=2026-05-31T14:00:00 PreemptTime=None", False),
    ("Requeue=0 Restarts=0 PreemptEligibleTime=2026-05-31T14:00:00 PreemptTime=2026-05-31T14:00:00", False),
])  # fmt: skip
def test_a_job_that_ends_during_preemption_is_requeued(start, fake_slurm, output, back):
    again = start("exit 143")
    fake_slurm.replace_command("scontrol", f"echo '   {output}'")
    record = again().end()
    assert record.requeued is back
    assert ("requeue 7" in fake_slurm.calls("scontrol")) is back
    assert record.reason == ("stopped by preemption; requeued" if back else "the ranks ended with exit code 143")
