"""``hpcrun resume`` of Slurm jobs, with a fake sbatch."""

import json
import shutil
import time

import pytest
from submitit.core.core import PicklingExecutor

import hpcrun
from hpcrun import paths
from hpcrun.jobs import inferred_state, rebuild, run_selection, state_cache, sweep_tasks
from hpcrun.jobs.runs import Run
from hpcrun.schedulers import resuming

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


def resume_as(fake_slurm, cli, word, job_id):
    (fake_slurm.folder / "id").write_text(str(job_id))
    code, _, err = cli("resume", str(word))
    assert code == 0, err


def selected_ids(*words):
    return [run.job_id for run in run_selection.select_runs(words)]


def test_a_resumed_run_is_the_last_and_is_found_by_its_earlier_ids(fake_slurm, cli):
    earlier = fake_slurm.submit(job_id=9)  # the cluster was set up again since then
    run = fake_slurm.submit(job_id=9)
    fake_slurm.submit("newer", job_id=10)
    fake_slurm.set_queue((9, "PENDING", "Priority", "", "0:00"))
    assert cli("cancel", "9")[0] == 0
    fake_slurm.set_queue()
    resume_as(fake_slurm, cli, 9, 12)
    fake_slurm.set_queue(("12", *PENDING))
    assert cli("cancel", "12")[0] == 0  # it has not started either
    fake_slurm.set_queue()
    resume_as(fake_slurm, cli, 9, 13)
    assert Run(run.directory).job_ids() == ["9", "12", "13"]
    for word in ("last", "9", "12", "13", "9,12", "10-13"):
        assert run_selection.select_runs([word])[0].directory == run.directory, word
    shutil.rmtree(paths.run_index_folder())
    rebuild.rebuild_index()
    for word in ("last", "9", "12", "13"):
        assert run_selection.select_one(word).directory == run.directory, word
    assert run_selection.select_one("newer").job_id == "10"
    fake_slurm.write_exit_record(earlier, code=1)
    resume_as(fake_slurm, cli, f"{earlier.directory}/", 14)
    assert (selected_ids("last"), selected_ids("9")) == (["14"], ["13"])  # job 9 of the resumed run is the older one


def test_a_sweep_is_found_by_the_ids_of_its_array_and_of_its_resumed_tasks(fake_slurm, cli):
    (fake_slurm.folder / "id").write_text("4")
    tasks = hpcrun.submit(None, ["a.out"], site="slurm", sweep={"n": [1, 2, 3]})
    fake_slurm.submit("newer", job_id=5)
    for task in tasks:
        fake_slurm.write_exit_record(task, code=1)
    fake_slurm.set_queue()
    resume_as(fake_slurm, cli, "4_1", 7)
    every_task = ["4_0", "7_1", "4_2"]
    for word in ("4", "4_0-2", "last", "a.out", "4,7"):
        assert selected_ids(word) == every_task, word
    for word in ("7", "4_1", "7_1"):
        assert selected_ids(word) == ["7_1"], word
    assert selected_ids("all") == selected_ids("5", "4") == [*every_task, "5"]
    assert sweep_tasks.format_task_ids(sweep_tasks.select_tasks("4_1-2")) == "7_1,4_2"
    resume_as(fake_slurm, cli, "4_0", 8)
    resume_as(fake_slurm, cli, "4_2", 9)
    assert selected_ids("4") == selected_ids("last") == ["8_0", "7_1", "9_2"]
    fake_slurm.set_queue(*((job_id, *PENDING) for job_id in ("8_0", "7_1", "9_2")))
    rows = json.loads(cli("status", "4", "--json")[1])
    assert [row["job_id"] for row in rows] == ["8_0", "7_1", "9_2"]
    code, _, err = cli("cancel", "4")
    assert code == 0, err
    assert fake_slurm.calls("scancel") == ["8_0 7_1 9_2"]


def test_a_run_that_ended_long_ago_and_was_resumed_is_queried_again(fake_slurm, cli, failed_run):
    assert json.loads(cli("status", "9", "--json")[1])["state"] == "FAILED"
    assert failed_run.directory.name in state_cache.read_cache("ended")
    assert cli("resume", "9")[0] == 0
    fake_slurm.set_queue(("12", *PENDING))
    row = json.loads(cli("status", "9", "--json")[1])
    assert (row["job_id"], row["state"]) == ("12", "PENDING")


def test_a_job_whose_epilog_runs_has_ended_but_cannot_be_resumed_yet(fake_slurm, cli, failed_run, monkeypatch):
    record = {"exit_code": 143, "reason": "stopped by SIGTERM", "started": 10, "ended": 75}
    (failed_run.directory / "exit.json").write_text(json.dumps(record))
    fake_slurm.set_queue((9, "COMPLETING", "None", "n1", "0:09", "1:00"))
    row = json.loads(cli("status", "9", "--json")[1])
    assert (row["state"], row["reason"]) == ("COMPLETING", inferred_state.EPILOG_REASON)
    code, _, err = cli("cancel", "9")
    assert (code, f"is cancelled: {inferred_state.EPILOG_REASON}" in err) == (0, True), err
    assert fake_slurm.calls("scancel") == ["9"]
    monkeypatch.setattr(resuming, "EPILOG_SECONDS", 0)
    code, _, err = cli("resume", "9")
    assert (code, "cannot be resumed yet: its ranks have ended" in err, "try again in some" in err) == (2, True, True)
    monkeypatch.setattr(resuming, "EPILOG_SECONDS", 100)
    monkeypatch.setattr(time, "sleep", lambda _: fake_slurm.set_queue())
    code, _, err = cli("resume", "9")
    assert (code, err.count("waiting up to 100 s until Slurm has cleaned up the nodes (Epilog)\n")) == (0, 1), err
