"""Run directories that are removed, and those that are not."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import hpcrun
from hpcrun.jobs import run_selection, runs
from hpcrun.jobs.run_files import Result

DAY = 86_400


@pytest.fixture
def four_runs(fake_slurm):
    """Jobs that ended 40 days and 1 day ago, one that runs, and one whose state is unknown."""
    made = [fake_slurm.submit(name) for name in ("old", "new", "runs", "unknown")]
    for run, days in zip(made, (40, 1), strict=False):
        fake_slurm.write_exit_record(run, at=int(time.time() - days * DAY))
    for run in made:
        (run.directory / "checkpoints").mkdir()
        (run.directory / "checkpoints/fit-0.npz").write_bytes(b"x" * 100_000)
        (run.directory / "result.json").write_text("{}")
    fake_slurm.set_queue(("3", "RUNNING", "None", "n1", "1:00"))
    return made


def listed_job_ids():
    return sorted(run.job_id for run in runs.list_runs())


def test_only_runs_that_ended_long_ago_are_removed(four_runs, cli):
    code, out, err = cli("prune", "--older-than", "30d", "--yes")
    assert (code, listed_job_ids()) == (0, ["2", "3", "4"]), err
    assert [run.directory.exists() for run in four_runs] == [False, True, True, True]
    assert "old" in out
    assert "kB in 1 run directory were removed" in err
    assert "last" not in out
    assert cli("prune", "--older-than", "30d", "--yes")[2].endswith("there is nothing to remove\n")
    assert "gone" not in cli("status")[2]


def test_without_an_age_all_ended_runs_are_removed_and_the_others_listed(four_runs, cli):
    code, _, err = cli("prune", "all", "--yes")
    assert (code, listed_job_ids()) == (0, ["3", "4"])
    assert "job 3 (runs) is skipped: it is running" in err
    assert "job 4 (unknown) is skipped: its job may still run, its state is unknown" in err


def test_a_running_job_is_kept_and_one_of_unknown_state_is_removed(four_runs, cli):
    code, _, err = cli("prune", "3", "--yes")
    assert (code, listed_job_ids()) == (1, ["1", "2", "3", "4"])
    assert "nothing was removed" in err
    assert cli("prune", "unknown", "--yes")[0] == 0
    assert listed_job_ids() == ["1", "2", "3"]


def test_keep_results_keeps_results(four_runs, cli):
    run = four_runs[0]
    outside = run.directory.parent / "data"
    outside.mkdir()
    (outside / "precious").write_text("")
    (run.directory / "data").symlink_to(outside)
    assert cli("prune", "old", "--keep-results", "--yes")[0] == 0
    kept = {file.name for file in run.directory.iterdir()}
    assert kept == {"job.json", "job.sh", "submitted.json", "exit.json", "result.json", "provenance"}
    assert (outside / "precious").exists()
    assert run_selection.select_one("old").result() == Result()
    assert cli("prune", "old", "--keep-results", "--yes")[2].endswith("there is nothing to remove\n")


def test_nothing_is_removed_without_confirmation(four_runs, cli):
    code, _, err = cli("prune", "--older-than", "30d")
    assert (code, "there is no terminal to ask on" in err) == (2, True)
    code, out, _ = cli("prune", "--older-than", "30d", "--dry-run", "--json")
    output = json.loads(out)
    assert (code, output["removed"], [one["job_id"] for one in output["runs"]]) == (0, False, ["1"])
    assert 100_000 <= output["bytes"] <= 400_000
    assert listed_job_ids() == ["1", "2", "3", "4"]
    code, _, err = cli("prune")
    assert (code, "no run was selected" in err) == (2, True)


def test_states_restrict_the_selection(four_runs, fake_slurm, cli):
    fake_slurm.write_exit_record(four_runs[1], code=1, at=int(time.time() - 20 * DAY))
    assert cli("prune", "--older-than", "1d", "--state", "failed", "--yes")[0] == 0
    assert listed_job_ids() == ["1", "3", "4"]
    assert cli("prune", "--state", "completed", "--yes")[0] == 0
    assert listed_job_ids() == ["3", "4"]


def test_a_run_that_cannot_be_removed_is_reported_and_stays_in_the_index(four_runs, cli, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("hpcrun.removal.clear_folder", refuse)
    code, _, err = cli("prune", "old", "--yes")
    assert (code, "Permission denied" in err, listed_job_ids()) == (1, True, ["1", "2", "3", "4"])


@pytest.mark.parametrize("what", ["a link", "a folder", "a folder with a record"])
@pytest.mark.parametrize("keep", [(), ("--keep-results",)])
def test_a_folder_that_replaced_a_run_is_kept(four_runs, cli, monkeypatch, tmp_path, what, keep):
    directory, precious = four_runs[0].directory, tmp_path / "precious"
    (precious / "inner").mkdir(parents=True)
    (precious / "inner/file").touch()
    if what == "a folder with a record":
        shutil.copy(four_runs[1].directory / "job.json", precious)

    def exchange(run, **_):
        run.directory.rename(tmp_path / "aside")
        if what == "a link":
            directory.symlink_to(precious)
        else:
            precious.rename(directory)
        return 100

    monkeypatch.setattr("hpcrun.jobs.prune.disk_usage", exchange)
    code, _, err = cli("prune", "old", "--yes", *keep)
    assert (code, "ERROR: " in err, (directory / "inner/file").exists()) == (1, True, True), err
    assert (tmp_path / "aside/checkpoints/fit-0.npz").exists()


def test_a_run_behind_links_is_removed_but_not_the_targets_of_its_links(four_runs, cli, tmp_path, monkeypatch):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").touch()
    (four_runs[0].directory / "logs/link").symlink_to(tmp_path / "outside")
    (tmp_path / "scratch").symlink_to(four_runs[0].directory.parent)
    assert cli("prune", f"{tmp_path}/scratch/{four_runs[0].directory.name}/", "--yes")[0] == 0
    assert (four_runs[0].directory.exists(), (tmp_path / "outside/file").exists()) == (False, True)


def test_a_sweeps_directory_is_removed_with_its_last_task(fake_slurm, cli):
    (fake_slurm.folder / "id").write_text("7")
    tasks = hpcrun.submit(None, ["a.out"], site="slurm", sweep={"n": [1, 2]})
    for task in tasks:
        fake_slurm.write_exit_record(task)
    (tasks[0].directory.parent / ".submission_file_0ab1.sh").touch()  # submitit was killed during the submission
    assert cli("prune", "7_0", "--yes")[0] == 0
    assert [task.directory.exists() for task in tasks] == [False, True]
    assert cli("prune", "7", "--yes")[0] == 0
    assert not tasks[0].directory.parent.exists()


def test_the_directory_of_a_local_sweep_is_removed_with_its_last_task(cli):
    tasks = hpcrun.submit(None, ["true"], site="local", sweep={"n": [1, 2]})
    for task in tasks:
        task.wait()
    code, _, err = cli("prune", "all", "--yes")
    assert (code, tasks[0].directory.parent.exists()) == (0, False), err


def test_json_output_is_one_value(fake_slurm):
    for _ in range(5):
        fake_slurm.write_exit_record(fake_slurm.submit())
    done = subprocess.run(
        [sys.executable, "-m", "hpcrun", "prune", "all", "--yes", "--json"], capture_output=True, text=True, check=True
    )
    assert len(json.loads(done.stdout)["runs"]) == 5
    assert done.stderr == ""
    assert listed_job_ids() == []


@pytest.fixture
def sweep(fake_slurm):
    """A sweep of three tasks, of which the last one runs; somebody keeps notes beside them."""
    (fake_slurm.folder / "id").write_text("7")
    tasks = hpcrun.submit(None, ["a.out"], site="slurm", sweep={"n": [1, 2, 3]})
    for task in tasks[:2]:
        fake_slurm.write_exit_record(task)
    fake_slurm.set_queue(("7_2", "RUNNING", "None", "n1", "1:00"))
    (tasks[0].directory.parent / "notes.txt").write_text("mine")
    return tasks


def directories_exist(tasks):
    return [task.directory.exists() for task in tasks]


@pytest.mark.parametrize("broken", ["{", "[]", '{"tasks": []}'])
def test_a_task_of_an_unreadable_sweep_is_removed_alone(sweep, cli, broken):
    parent = sweep[0].directory.parent
    (parent / "job.json").write_text(broken)
    code, _, err = cli("prune", "7_0", "--yes")
    assert (code, directories_exist(sweep), (parent / "notes.txt").read_text()) == (0, [False, True, True], "mine"), err
    assert f"{parent} is left" in err


def test_a_sweep_with_an_unreadable_record_is_kept(sweep, cli):
    parent = sweep[0].directory.parent
    (parent / "job.json").write_text("{")
    code, _, err = cli("prune", f"{parent}/", "--yes")
    assert (code, directories_exist(sweep)) == (1, [True, True, True])
    assert "its job.json cannot be read" in err


def test_foreign_files_in_a_sweeps_directory_are_kept(sweep, fake_slurm, cli):
    fake_slurm.write_exit_record(sweep[2])
    fake_slurm.set_queue()
    code, _, err = cli("prune", "7", "--yes")
    parent = sweep[0].directory.parent
    assert (code, [file.name for file in parent.iterdir()]) == (0, ["notes.txt"])
    assert "it contains files that hpcrun did not write: notes.txt" in err


@pytest.mark.parametrize("keep", [(), ("--keep-results",)])
def test_a_folder_that_only_contains_a_record_is_refused(four_runs, cli, tmp_path, monkeypatch, keep):
    run = four_runs[0]
    project, copy = tmp_path / "project", tmp_path / run.directory.name
    shutil.copytree(run.directory, project)
    shutil.copytree(run.directory, copy)
    inner = shutil.copytree(four_runs[1].directory, four_runs[1].directory / "scratch" / four_runs[2].directory.name)
    words = {
        f"{project}/": "it is not a run directory",
        f"{copy}/": f"it is a copy of {run.directory}",
        "new": f"it contains another run: {inner}",
    }
    for word, why in words.items():
        code, _, err = cli("prune", word, "--yes", *keep)
        assert (code, why in err, "HINT:" in err) == (1, True, True), err
    assert (project / "checkpoints").exists()
    assert (copy / "checkpoints").exists()
    monkeypatch.chdir(run.directory / "checkpoints")
    for word in ("old", "..", f"{run.directory}/"):
        code, _, err = cli("prune", word, "--yes", *keep)
        assert (code, "it contains the current directory" in err) == (1, True), err
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(run.directory))
    assert "it contains your home directory" in cli("prune", "old", "--yes", *keep)[2]
    assert (run.directory / "checkpoints/fit-0.npz").exists()


@pytest.mark.parametrize("record", ["job.json", "exit.json"])
def test_a_record_that_others_can_write_removes_nothing(fake_slurm, cli, monkeypatch, record):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # that everybody may enter
        Path(folder).chmod(0o755)
        monkeypatch.setenv("HPCRUN_RUN_ROOT", folder)
        run = fake_slurm.submit("old")
        fake_slurm.write_exit_record(run)
        run.directory.chmod(0o755)
        (run.directory / record).chmod(0o666)
        code, _, err = cli("prune", "old", "--yes")
        assert (code, run.directory.exists()) == (1, True), err
        assert f"another user may have written its {record}: everybody may write" in err


@pytest.mark.parametrize("text", ['{"submitted": 1e30}', '{"job_id":'])
def test_a_run_with_an_unreadable_submission_is_kept(four_runs, cli, text):
    run = four_runs[0]
    (run.directory / "submitted.json").write_text(text)
    code, _, err = cli("prune", f"{run.directory}/", "--yes")
    assert (code, run.directory.exists()) == (1, True), err
    assert "its submitted.json cannot be read, so its job may still run" in err
