"""The submitit executor for Slurm, tested with a fake sbatch that prints real messages."""

import json
import os
import shutil
from pathlib import Path

import pytest
from submitit.slurm.slurm import SlurmExecutor

import hpcrun
from hpcrun import schedulers
from hpcrun.errors import HpcrunError
from hpcrun.jobs import run_selection, runs, submission_records
from hpcrun.schedulers import slurm, slurm_client
from hpcrun.schedulers.executors import ScriptExecutor, SlurmScriptExecutor


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Put fake commands on PATH; each writes its arguments and environment to files next to it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def fake(name, body):
        file = folder / name
        file.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" >{file}.args\nenv >{file}.env\n{body}\n')
        file.chmod(0o755)
        return file

    fake("squeue", "exit 1")
    fake("sacct", "exit 1")
    return fake


def submit():
    return hpcrun.submit(None, ["/bin/true"], site="slurm")


@pytest.mark.parametrize("answer", ["1234", "1234;cluster", "*** Welcome: job 99 was the millionth ***\n1234"])
def test_job_id_is_parsed_with_banners_in_the_output(commands, answer):
    commands("sbatch", f"echo '{answer}'")
    job = submit()
    assert job.job_id == "1234"
    assert run_selection.select_one("1234").directory == job.directory


def test_banner_with_any_bytes_does_not_lose_the_job(commands):
    commands("sbatch", "head -c 200000 /dev/zero; printf 'Gr\\374\\303\\274e\\n1234'")
    assert submit().job_id == "1234"


def test_sbatch_gets_the_rendered_script(commands):
    sbatch = commands("sbatch", "echo 1")
    job = submit()
    args = Path(f"{sbatch}.args").read_text().split()
    assert args == [
        "--parsable",
        "--open-mode=append",
        f"--output={job.directory}/%j_0_log.out",
        f"--error={job.directory}/%j_0_log.err",
        f"{job.directory}/job.sh",
    ]
    assert json.loads((job.directory / "job.json").read_text())["argv"] == ["/bin/true"]


def test_sbatch_does_not_inherit_slurm_variables(commands, monkeypatch):
    for name in ("SBATCH_PARTITION", "SLURM_JOB_ID", "SLURM_GPUS_PER_NODE", "SLURM_CONF", "MINE"):
        monkeypatch.setenv(name, "/etc/hostname")
    sbatch = commands("sbatch", "echo 1")
    submit()
    names = {line.partition("=")[0] for line in Path(f"{sbatch}.env").read_text().splitlines()}
    assert not names & {"SBATCH_PARTITION", "SLURM_JOB_ID", "SLURM_GPUS_PER_NODE"}
    assert {"SLURM_CONF", "MINE"} <= names


def test_error_quotes_the_message_of_sbatch(commands):
    commands("sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1")
    with pytest.raises(
        HpcrunError, match="sbatch refused the job: Batch job submission failed: Invalid account"
    ) as error:
        submit()
    assert error.value.exit_code == 1
    with pytest.raises(HpcrunError, match="none of your runs was submitted"):
        run_selection.select_one("last")


def test_sbatch_output_without_a_job_id_is_an_error(commands):
    commands("sbatch", "echo maintenance")
    with pytest.raises(HpcrunError, match="'maintenance"):
        submit()


def test_missing_slurm_conf_is_reported_at_once(commands, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", "/gone/slurm.conf")
    for name in ("sbatch", "squeue", "scancel"):
        commands(name, "sleep 60")
    with pytest.raises(HpcrunError, match=r"SLURM_CONF=/gone/slurm\.conf does not exist"):
        submit()
    run = next(runs.list_runs())
    submission_records.write_submission({run: "1"})
    assert slurm.SCHEDULER.query_states([run])[run].reason == "Slurm does not answer"
    with pytest.raises(HpcrunError, match=r"SLURM_CONF=/gone/slurm\.conf does not exist"):
        slurm.SCHEDULER.cancel(run)


def test_missing_sbatch_is_an_error(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HpcrunError, match="sbatch is not on PATH"):
        submit()


def test_states_come_from_squeue_then_sacct_then_the_exit_record(commands):
    for number in (1, 2, 3, 4):
        commands("sbatch", f"echo {number}")
        job = submit()
        if number == 3:
            record = {"exit_code": 3, "reason": "the ranks ended with exit code 3", "started": 10, "ended": 75}
            (job.directory / "exit.json").write_text(json.dumps(record))
    commands("squeue", "echo '1|PENDING|Resources||0:00'; echo '77|RUNNING|None|n1|1:00'")
    sacct = commands("sacct", "echo '2|CANCELLED by 1000|None|n[1-2]|1:01'")
    found = {run.job_id: state for run, state in slurm.SCHEDULER.query_states(list(runs.list_runs())).items()}
    assert {job: (state.name, state.reason) for job, state in found.items()} == {
        "1": ("PENDING", "Resources"),
        "2": ("CANCELLED", ""),
        "3": ("FAILED", "the ranks ended with exit code 3"),
        "4": ("UNKNOWN", "Slurm does not know this job (any more)"),
    }
    assert found["3"].elapsed == "1:05"
    assert Path(f"{sacct}.args").read_text().split()[-1] == "2,3,4"


def test_state_reason_when_slurm_does_not_answer(commands):
    commands("sbatch", "echo 1")
    job = submit()
    assert schedulers.query_state(runs.Run(job.directory)).reason == "Slurm does not answer"


@pytest.mark.parametrize(
    ("state", "done"),
    [("RUNNING", False), ("SUSPENDED", False), ("CONFIGURING", False), ("COMPLETING", False), ("TIMEOUT", True)],
)
def test_watcher_treats_suspended_and_configuring_jobs_as_unfinished(commands, state, done):
    commands("sbatch", "echo 1")
    job = submit()
    job.watcher.clear()
    commands("squeue", f"echo '1|{state}|None|n1|0:01'")
    assert job.done(force_check=True) is done
    assert job.state == state


def test_a_new_job_has_a_state_within_the_poll_interval_of_earlier_jobs(commands, tmp_path):
    rows = "echo '1|RUNNING|None|n1|0:01'; echo '2|PENDING|Priority||0:00'"
    commands("squeue", f"echo >>{tmp_path}/queries; {rows}")
    jobs = []
    for number in (1, 2):
        commands("sbatch", f"echo {number}")
        jobs.append(submit())
        jobs[0].watcher.backoff.start_interval()
        assert jobs[-1].state == ("RUNNING", "PENDING")[number - 1]
    assert [job.state for job in jobs] == ["RUNNING", "PENDING"]
    assert len((tmp_path / "queries").read_text()) == 2  # the states of both are known


def test_submitit_waits_for_a_resubmitted_job(commands):
    commands("sbatch", "echo 505")
    job = submit()
    submission = job.directory / "submitted.json"
    submission.write_text(submission.read_text().replace('"job_id": "505"', '"job_id": "509"'))
    (job.directory / "505_0_result.pkl").symlink_to("509_0_result.pkl")
    commands("squeue", "echo '505|FAILED|None|n1|0:01'; echo '509|RUNNING|None|n1|0:01'")
    assert job.done(force_check=True) is False
    commands("squeue", "echo '505|FAILED|None|n1|0:01'; echo '509|COMPLETED|None|n1|0:01'")
    (job.directory / "509_0_result.pkl").write_bytes(b"(S'success'\nI0\nt.")
    (job.directory / "result.json").write_text('{"loss": 1}')
    record = {"exit_code": 0, "reason": "completed", "started": 10, "ended": 75}
    (job.directory / "exit.json").write_text(json.dumps(record))
    assert job.done(force_check=True) is True
    assert job.results() == [{"loss": 1}]


def test_cancel_calls_scancel(commands):
    commands("sbatch", "echo 5")
    scancel = commands("scancel", "")
    commands("squeue", "echo '5|PENDING|None||0:00'")
    submit().cancel()
    assert Path(f"{scancel}.args").read_text() == "5\n"
    commands("scancel", "echo 'scancel: error: Kill job error on job id 5' >&2; exit 1")
    with pytest.raises(HpcrunError, match="Kill job error"):
        slurm.SCHEDULER.cancel(run_selection.select_one("5"))


def test_job_id_of_another_cluster_is_neither_reported_nor_cancelled(commands):
    commands("sbatch", "echo 5")
    scancel = commands("scancel", "")
    run = runs.Run(submit().directory)
    commands("squeue", "echo '5|RUNNING|None|n1|0:01|1:00|/elsewhere/job.sh'")
    assert slurm.SCHEDULER.query_states([run])[run].name == "UNKNOWN"
    with pytest.raises(HpcrunError, match=r"job 5 runs /elsewhere/job.sh, not .*/job.sh"):
        slurm.SCHEDULER.cancel(run)
    assert not Path(f"{scancel}.args").exists()
    commands("squeue", "")
    commands("sacct", "echo '5|FAILED|None|n1|0:01|1:00|sbatch --parsable /elsewhere/job.sh'")
    assert slurm.SCHEDULER.query_states([run])[run].name == "UNKNOWN"
    commands("squeue", f"echo '5|RUNNING|None|n1|0:01|1:00|{run.directory}/job.sh'")
    assert slurm.SCHEDULER.query_states([run])[run].name == "RUNNING"
    slurm.SCHEDULER.cancel(run)
    assert Path(f"{scancel}.args").exists()


def test_sacct_without_submit_line_is_queried_without_it(commands):
    commands("sbatch", "echo 5")
    run = runs.Run(submit().directory)
    commands("squeue", "")
    commands("sacct", "[[ $* != *SubmitLine* ]] || exit 1; echo '5|TIMEOUT|None|n1|0:01'")
    assert slurm.SCHEDULER.query_states([run])[run].name == "TIMEOUT"


@pytest.mark.parametrize("name", ["plain", "größe"])
def test_submission_file_is_a_copy_of_the_script(commands, name, monkeypatch, tmp_path):
    commands("sbatch", "echo 12")
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    monkeypatch.setenv("LC_ALL", "C")
    job = submit()
    executor = runs.Run(job.directory).scheduler.executor(runs.Run(job.directory))
    assert isinstance(executor, SlurmExecutor)
    copy = job.paths.submission_file
    assert copy == job.directory / "12_submission.sh"
    assert copy.read_bytes() == (job.directory / "job.sh").read_bytes()
    assert copy.stat().st_mode & 0o777 == (job.directory / "job.sh").stat().st_mode & 0o777
    assert not [*job.directory.glob("*.pkl"), *job.directory.glob(".submission_file*")]


def test_submission_needs_no_srun(commands, monkeypatch, tmp_path):
    sbatch = commands("sbatch", "echo 12")
    for program in ("bash", "printf"):
        (sbatch.parent / program).symlink_to(shutil.which(program) or "")
    monkeypatch.setenv("PATH", str(sbatch.parent))
    assert submit().job_id == "12"


def test_sbatch_error_is_printed_once_and_leaves_no_submission_file(commands, capfd):
    commands("sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1")
    with pytest.raises(HpcrunError, match="Invalid account"):
        submit()
    assert capfd.readouterr().err == ""
    assert not [*next(runs.list_runs()).directory.glob(".submission_file*")]


def test_functions_are_not_pickled(commands):
    sbatch = commands("sbatch", "echo 12")
    run = runs.Run(submit().directory)
    Path(f"{sbatch}.args").unlink()
    for executor in (SlurmScriptExecutor(run), ScriptExecutor(run)):
        with pytest.raises(NotImplementedError, match="submits scripts, not functions"):
            executor.submit(print, 1)
    assert not [*run.directory.glob("*.pkl"), *sbatch.parent.glob("sbatch.args")]


def test_sbatch_that_does_not_answer_is_killed(commands, monkeypatch):
    commands("sbatch", "sleep 60")
    monkeypatch.setattr(slurm_client, "REQUEST_SECONDS", 0.2)
    with pytest.raises(HpcrunError, match=r"did not confirm .*: sbatch did not answer within 0\.2 s") as error:
        submit()
    run = next(runs.list_runs())
    assert error.value.hint == f"the job may exist in spite of this error: hpcrun status {run.directory}"
    assert (run.refusal, [*run.directory.glob(".submission_file*")]) == (None, [])


def fail(*_args, **_options):
    raise OSError(122, "Disk quota exceeded")


def test_job_is_not_submitted_without_space_for_its_submission_file(commands, monkeypatch):
    sbatch = commands("sbatch", "echo 12")
    monkeypatch.setattr("hpcrun.schedulers.executors.shutil.copy", fail)
    with pytest.raises(OSError, match="quota"):
        submit()
    assert not Path(f"{sbatch}.args").exists()


def test_a_submitted_job_is_returned_even_without_a_submission_file(commands, monkeypatch):
    commands("sbatch", "echo 12")
    monkeypatch.setattr("submitit.core.utils.JobPaths.move_temporary_file", fail)
    job = submit()
    assert (job.job_id, [*job.directory.glob("*submission*")]) == ("12", [])
