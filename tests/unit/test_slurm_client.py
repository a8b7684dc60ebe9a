"""Slurm's commands: wrappers that print banners, commands that do not answer or are missing, and Ctrl+C."""

import os
import signal

import pytest

from hpcrun.errors import HpcrunError
from hpcrun.jobs import runs
from hpcrun.schedulers import command
from hpcrun.schedulers.slurm_client import SlurmClient

BANNER = "echo '##### Welcome to n! Jobs so far: 4711 | news: none #####'"


def test_banners_are_not_jobs(fake_slurm):
    row = "12_1|RUNNING|None|n[1-2]|0:05|1:00|/runs/a/job.sh --pattern a|b"
    fake_slurm.replace_command("squeue", f"{BANNER}; echo '{row}'")
    fake_slurm.replace_command("sacct", f"{BANNER}; echo '7|CANCELLED by 0|None|n1|0:01|1:00|sbatch /runs/b/job.sh'")
    jobs = SlurmClient().query_jobs(["12_1", "7"])
    assert jobs is not None
    assert {job_id: (state.name, state.nodes, script) for job_id, (state, script) in jobs.items()} == {
        "12_1": ("RUNNING", "n[1-2]", "/runs/a/job.sh --pattern a|b"),
        "7": ("CANCELLED", "n1", "sbatch /runs/b/job.sh"),
    }


def test_a_table_needs_all_columns_but_the_optional_ones(fake_slurm):
    fake_slurm.replace_command("sinfo", f"{BANNER}; echo; echo 'n1|idle'; echo 'n2|down|its disk|failed'")
    assert SlurmClient().query_table(["sinfo"], 3) == [["n2", "down", "its disk|failed"]]
    rows = SlurmClient().query_table(["sinfo"], 3, optional_columns=1) or []
    assert rows[1:] == [["n1", "idle", ""], ["n2", "down", "its disk|failed"]]


@pytest.mark.parametrize("body", ["exit 1", "exec sleep 100"])
def test_a_command_without_an_answer_has_no_table(fake_slurm, body):
    fake_slurm.replace_command("squeue", body)
    assert SlurmClient().query_table(["squeue"], 7, timeout=0.3) is None


def test_a_missing_command_or_slurm_conf_is_reported(fake_slurm, tmp_path, monkeypatch):
    client = SlurmClient(str(tmp_path / "slurm.conf"))
    assert client.query(["squeue"]).failure == f"SLURM_CONF={client.conf} does not exist"
    with pytest.raises(HpcrunError, match="does not exist"):
        client.request(["scancel", "7"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert SlurmClient().query(["sinfo"]).failure == "sinfo is not installed"
    with pytest.raises(HpcrunError, match="scancel is not on PATH"):
        SlurmClient().request(["scancel", "7"])


def test_the_job_of_an_sbatch_that_does_not_answer_may_exist(fake_slurm, monkeypatch):
    monkeypatch.setattr("hpcrun.schedulers.slurm_client.REQUEST_SECONDS", 0.3)
    fake_slurm.replace_command("sbatch", "exec sleep 100")
    with pytest.raises(HpcrunError, match=r"did not confirm the submission: sbatch did not answer within 0.3 s"):
        fake_slurm.submit()
    (run,) = runs.list_runs()
    assert not (run.directory / "refused.json").exists()


def test_ctrl_c_ends_the_command(tmp_path):
    file = tmp_path / "pid"

    def interrupt(_number, _frame):
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(KeyboardInterrupt):
            command.run(["bash", "-c", f"echo $$ >{file}; exec sleep 100"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)
