"""``hpcrun resume`` of Slurm jobs, with a fake sbatch."""

import json

import pytest
from submitit.core.core import PicklingExecutor

import hpcrun
from hpcrun.jobs.runs import Run

PENDING = ("PENDING", "Priority", "", "0:00", "1:00")
TIMED_OUT = "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1"


@pytest.fixture
def failed_run(fake_slurm):
    """Return a run whose job 9 has failed."""
    run = fake_slurm.submit(job_id=9)
    (run.directory / "9_0_log.out").write_text("start\n")
    fake_slurm.write_exit_record(run, code=1)
    fake_slurm.set_queue()
    (fake_slurm.folder / "id").write_text("*** Welcome ***\n12;cluster")
    return Run(run.directory)


def test_every_submission_goes_through_submitit(fake_slurm, cli, monkeypatch, failed_run):
    folders = []
    submit_command = PicklingExecutor._submit_command

    def record_folder(executor, command):
        folders.append(executor.folder)
        return submit_command(executor, command)

    monkeypatch.setattr(PicklingExecutor, "_submit_command", record_folder)
    assert cli("resume", "9")[0] == 0
    assert cli("resubmit", str(failed_run.directory))[0] == 0
    assert cli("submit", "--site", "slurm", "--", "a.out")[0] == 0
    assert cli("submit", "--site", "slurm", "--sweep", "n=1,2", "--", "a.out")[0] == 0
    assert hpcrun.submit(None, ["a.out"], site="slurm").job_id == "12"
    assert (len(folders), folders[0]) == (len(fake_slurm.calls("sbatch")) - 1, failed_run.directory)
    assert len(set(folders)) == len(folders) == 5
    assert all((folder / "12_submission.sh").exists() for folder in folders)


def test_a_resumed_run_keeps_its_directory_and_log(fake_slurm, cli, failed_run):
    code, out, err = cli("resume", "9", "--json")
    assert (code, json.loads(out)["job_id"], json.loads(out)["run_dir"]) == (0, "12", str(failed_run.directory))
    assert "job 9 (a.out) is resumed as job 12, which has no checkpoint: it starts again" in err
    log = f"{failed_run.directory}/9_0_log"
    command = f"--parsable --open-mode=append --output={log}.out --error={log}.err {failed_run.directory}/job.sh"
    assert fake_slurm.calls("sbatch")[-1] == command
    run = Run(failed_run.directory)
    assert (run.job_id, " ".join(run.submission.command)) == ("12", f"sbatch {command}")
    assert (run.directory / "12_0_log.out").read_text() == "start\n"
    script = (run.directory / "job.sh").read_bytes()
    assert [(run.directory / f"{job_id}_submission.sh").read_bytes() for job_id in (9, 12)] == [script] * 2


def test_a_task_of_a_sweep_resumes_alone(fake_slurm, cli):
    (fake_slurm.folder / "id").write_text("7")
    tasks = hpcrun.submit(None, ["a.out"], site="slurm", sweep={"n": [1, 2]})
    for number, task in enumerate(tasks):
        fake_slurm.write_exit_record(task, code=number)
    fake_slurm.set_queue()
    (fake_slurm.folder / "id").write_text("12")
    assert json.loads(cli("resume", "7", "--json")[1])["job_id"] == "12_1"
    sweep = tasks[1].directory.parent
    assert fake_slurm.calls("sbatch")[-1].endswith(f"/7_1_0_log.err --array=1 {sweep}/job.sh")
    assert [Run(task.directory).job_id for task in tasks] == ["7_0", "12_1"]
    assert (tasks[1].directory / "12_submission.sh").read_bytes() == (sweep / "job.sh").read_bytes()


@pytest.mark.parametrize("task", ["", "_1"])
def test_a_resumed_job_without_an_answer_is_not_submitted_twice(fake_slurm, cli, task):
    (fake_slurm.folder / "id").write_text("7")
    jobs = hpcrun.submit(None, ["a.out"], site="slurm", sweep={"n": [1, 2]} if task else None)
    job = jobs[1] if task else jobs
    fake_slurm.write_exit_record(job, code=1)
    fake_slurm.set_queue()
    fake_slurm.replace_command("sbatch", TIMED_OUT)
    code, _, err = cli("resume", f"7{task}")
    assert (code, "hpcrun resume does not submit it twice" in err) == (1, True), err
    assert (Run(job.directory).job_id, Run(job.directory).refusal) == (f"7{task}", None)
    count = len(fake_slurm.calls("sbatch"))
    script = f"{job.directory.parent if task else job.directory}/job.sh"
    ended = ("7" + task, "COMPLETING", "None", "n1", "1:00", "1:00", script)
    others = [("11_0", *PENDING, script), ("13" + task, "FAILED", "None", "n1", "1:00", "1:00", script)]
    fake_slurm.set_queue(ended, *others, (f"12{task}", *PENDING, script))
    assert json.loads(cli("resume", str(job.directory), "--json")[1])["job_id"] == f"12{task}"
    assert (Run(job.directory).job_id, len(fake_slurm.calls("sbatch"))) == (f"12{task}", count)
    assert (job.directory / f"12{task}_0_log.out").is_symlink()


def test_nothing_is_resumed_while_the_queue_is_unknown(fake_slurm, cli, failed_run):
    fake_slurm.stop_responding()
    code, _, err = cli("resume", "9")
    assert (code, "Slurm does not answer: another job may continue" in err) == (1, True), err
    assert (len(fake_slurm.calls("sbatch")), Run(failed_run.directory).job_id) == (1, "9")


def test_a_refused_run_keeps_its_job(fake_slurm, cli, failed_run):
    fake_slurm.replace_command("sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1")
    code, _, err = cli("resume", "9")
    assert (code, "sbatch refused the job: Invalid account" in err) == (1, True), err
    assert (Run(failed_run.directory).job_id, (failed_run.directory / "refused.json").exists()) == ("9", False)
    assert not [*failed_run.directory.glob(".submission_file*")]
