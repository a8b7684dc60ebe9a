"""Run directories that are removed, and those that are not."""

import json
import subprocess
import sys
import time

import pytest

import hpcrun
from hpcrun.jobs import runs, select

DAY = 86_400


@pytest.fixture
def four(fake_slurm):
    """Jobs that ended 40 days and 1 day ago, one that runs, and one that nobody knows of."""
    made = [fake_slurm.submit(name) for name in ("old", "new", "runs", "unknown")]
    for run, days in zip(made, (40, 1), strict=False):
        fake_slurm.end(run, at=int(time.time() - days * DAY))
    for run in made:
        (run.directory / "checkpoints").mkdir()
        (run.directory / "checkpoints/fit-0.npz").write_bytes(b"x" * 100_000)
        (run.directory / "result.json").write_text("{}")
    fake_slurm.tells(("3", "RUNNING", "None", "n1", "1:00"))
    return made


def left():
    return sorted(run.job_id for run in runs.every())


def test_what_ended_long_ago_is_removed_and_nothing_else(four, cli):
    code, out, err = cli("prune", "--older-than", "30d", "--yes")
    assert (code, left()) == (0, ["2", "3", "4"]), err
    assert [run.directory.exists() for run in four] == [False, True, True, True]
    assert "old" in out
    assert "kB in 1 run directory are free again" in err
    assert "last" not in out
    assert cli("prune", "--older-than", "30d", "--yes")[2].endswith("there is nothing to remove\n")
    assert "gone" not in cli("status")[2]


def test_without_an_age_all_that_ended_go_and_the_others_are_named(four, cli):
    code, _, err = cli("prune", "all", "--yes")
    assert (code, left()) == (0, ["3", "4"])
    assert "job 3 (runs) is left alone: it is running" in err
    assert "job 4 (unknown) is left alone: nobody knows whether there is a job that runs" in err


def test_a_job_that_runs_is_not_removed_even_if_named_and_an_unknown_one_is(four, cli):
    code, _, err = cli("prune", "3", "--yes")
    assert (code, left()) == (1, ["1", "2", "3", "4"])
    assert "nothing was removed" in err
    assert cli("prune", "unknown", "--yes")[0] == 0
    assert left() == ["1", "2", "3"]


def test_results_may_stay(four, cli):
    run = four[0]
    outside = run.directory.parent / "data"
    outside.mkdir()
    (outside / "precious").write_text("")
    (run.directory / "data").symlink_to(outside)
    assert cli("prune", "old", "--keep-results", "--yes")[0] == 0
    kept = {file.name for file in run.directory.iterdir()}
    assert kept == {"job.json", "job.sh", "submitted.json", "exit.json", "result.json", "provenance"}
    assert (outside / "precious").exists()
    assert select.one("old").result() == {}
    assert cli("prune", "old", "--keep-results", "--yes")[2].endswith("there is nothing to remove\n")


def test_nothing_is_removed_unasked(four, cli):
    code, _, err = cli("prune", "--older-than", "30d")
    assert (code, "nobody is here to ask" in err) == (2, True)
    code, out, _ = cli("prune", "--older-than", "30d", "--dry-run", "--json")
    told = json.loads(out)
    assert (code, told["removed"], [one["job_id"] for one in told["runs"]]) == (0, False, ["1"])
    assert 100_000 <= told["bytes"] <= 400_000
    assert left() == ["1", "2", "3", "4"]
    code, _, err = cli("prune")
    assert (code, "nothing says which runs are meant" in err) == (2, True)


def test_states_narrow_it_down(four, fake_slurm, cli):
    fake_slurm.end(four[1], code=1, at=int(time.time() - 20 * DAY))
    assert cli("prune", "--older-than", "1d", "--state", "failed", "--yes")[0] == 0
    assert left() == ["1", "3", "4"]


def test_what_cannot_be_removed_is_told_and_stays_on_the_list(four, cli, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("shutil.rmtree", refuse)
    code, _, err = cli("prune", "old", "--yes")
    assert (code, "Permission denied" in err, left()) == (1, True, ["1", "2", "3", "4"])


def test_a_sweeps_directory_goes_with_its_last_task(fake_slurm, cli):
    (fake_slurm.folder / "id").write_text("7")
    tasks = hpcrun.submit(None, ["./a.out"], site="slurm", sweep={"n": [1, 2]})
    for task in tasks:
        fake_slurm.end(task)
    assert cli("prune", "7_0", "--yes")[0] == 0
    assert [task.directory.exists() for task in tasks] == [False, True]
    assert cli("prune", "7", "--yes")[0] == 0
    assert not tasks[0].directory.parent.exists()


def test_a_script_gets_one_value_and_no_noise(fake_slurm):
    for _ in range(5):
        fake_slurm.end(fake_slurm.submit())
    done = subprocess.run(
        [sys.executable, "-m", "hpcrun", "prune", "all", "--yes", "--json"], capture_output=True, text=True, check=True
    )
    assert len(json.loads(done.stdout)["runs"]) == 5
    assert done.stderr == ""
    assert left() == []
