"""Which runs somebody means."""

import shutil
import time
from datetime import datetime
from typing import Any

import pytest

from hpcrun import paths
from hpcrun.errors import HpcrunError
from hpcrun.jobs import rebuild, run_index, run_selection, states, status_rows
from hpcrun.jobs.states import State


@pytest.fixture
def five_jobs(fake_slurm):
    """Five jobs: their ids and names."""
    for job_id, name in ((5, "a"), (12, "resnet50"), (13, "res net"), (14, "a/b c"), (17, "a")):
        fake_slurm.submit(name, job_id)


def ids(*words, **more):
    return [int(run.job_id or "") for run in run_selection.select_runs(words, **more)]


SELECTIONS = [
    (["12"], [12]),
    (["12-17"], [17, 14, 13, 12]),
    (["5,13-14"], [14, 13, 5]),
    (["last"], [17]),
    (["a"], [17]),
    (["res*"], [13, 12]),
    (["res?net"], [13]),
    (["res net"], [13]),
    (["a/b c"], [14]),
    (["a/*"], [14]),
    (["?"], [17, 5]),
    (["[ar]*[t0]"], [13, 12]),
    (["all"], [17, 14, 13, 12, 5]),
    (["12", "last", "12-13", "a"], [17, 13, 12]),
]


def test_words_select_jobs(five_jobs):
    for words, expected in SELECTIONS:
        assert ids(*words) == expected, words


def test_a_run_directory_is_selected_by_any_spelling_of_its_path(five_jobs, monkeypatch):
    run = run_selection.select_one("13")
    assert ids(str(run.directory)) == [13]
    monkeypatch.chdir(run.directory.parent)
    assert ids(f"./{run.directory.name}") == [13]
    assert ids(run.directory.name) == [13]
    monkeypatch.chdir(run.directory)
    assert ids(".") == [13]


UNMATCHED = [
    ("99", "no job '99' among your runs", "give a job id"),
    ("running", "no run 'running' among your runs", "hpcrun status --state running lists"),
    ("20-30", "no job 20-30 among your runs", "give a job id"),
    ("5,99", "no job 99 among your runs", "give 5; hpcrun status"),
    ("5,12-13,99", "no job 99 among your runs", "give 5,12-13; hpcrun status"),
    ("17-12", "no job 17-12 among your runs", "give a job id"),
    ("zz*", "no run's name matches 'zz*'", "'name*'"),
    ("resnet5", "no run 'resnet5'", "did you mean resnet50?"),
    ("./nowhere", "no run './nowhere'", "a run directory"),
    ("9" * 5000, "no job", "give a job id"),
]


def test_a_word_that_matches_nothing_is_one_clear_error(five_jobs):
    for word, message, hint in UNMATCHED:
        with pytest.raises(HpcrunError) as error:
            ids("last", word)
        assert message in error.value.message
        assert error.value.hint is not None
        assert hint in error.value.hint


def test_without_words_another_filter_is_required(five_jobs):
    with pytest.raises(HpcrunError, match="no job was named"):
        run_selection.select_runs([])
    assert ids(since=0) == [17, 14, 13, 12, 5]


def test_jobs_are_selected_by_state_and_submission_time(five_jobs):
    def query_states(runs_to_query):
        return {run: State("RUNNING" if run.job_id in {"5", "13"} else "PENDING") for run in runs_to_query}

    def in_states(*words, **more):
        return [int(row.job_id or "") for row in status_rows.select_rows(words, query_states, missing_runs=[], **more)]

    assert in_states("all", states={"RUNNING"}) == [13, 5]
    assert in_states(states={"PENDING"}, since=time.time() - 60) == [17, 14, 12]
    assert ids("all", since=time.time() + 60) == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1.5d", 129600), ("1w", 604800)]
)
def test_a_time_may_be_an_age(text, seconds):
    assert run_selection.parse_time(text) == pytest.approx(time.time() - seconds, abs=5)


def test_a_time_may_be_a_date():
    assert run_selection.parse_time("2026-05-31") == datetime(2026, 5, 31).astimezone().timestamp()
    assert run_selection.parse_time("2026-05-31T14:00") == datetime(2026, 5, 31, 14).astimezone().timestamp()
    for wrong in ("soon", "2x", "-2h", "2026-13-01", ""):
        with pytest.raises(HpcrunError, match="is not a time"):
            run_selection.parse_time(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RUNNING", {"RUNNING"}),
        ("pd, r", {"PENDING", "RUNNING"}),
        ("out_of_memory", {"OUT_OF_MEMORY"}),
        ("out of time", {"TIMEOUT"}),
        ("held", {"REQUEUE_HOLD", "SPECIAL_EXIT"}),
        ("not submitted", {"NOT SUBMITTED"}),
    ],
)
def test_states_have_slurms_names_abbreviations_and_those_of_status(text, expected):
    assert states.parse_states(text) == expected
    for name in expected:
        assert name in states.parse_states(states.describe_state(name))


def test_an_unknown_state_is_an_error():
    with pytest.raises(HpcrunError, match="'runing' is not a job state") as error:
        states.parse_states("PENDING,runing")
    assert error.value.hint == "did you mean RUNNING?"
    with pytest.raises(HpcrunError, match="--state is empty"):
        states.parse_states(",")


def test_a_directory_removed_by_hand_is_reported(five_jobs):
    removed = run_selection.select_one("12").directory
    shutil.rmtree(removed)
    with pytest.raises(HpcrunError, match=f"the run directory of 12 is gone: {removed}"):
        run_selection.select_one("12")
    gone: list[Any] = []
    assert ids("all", missing_runs=gone) == [17, 14, 13, 5]
    assert [run.directory for run in gone] == [removed]
    shutil.rmtree(run_selection.select_one("last").directory)
    assert run_selection.select_one("last").job_id == "14"
    assert run_selection.select_one("a").job_id == "5"


def test_without_a_submitted_run_there_is_no_last_job(fake_slurm):
    fake_slurm.replace_command("sbatch", "exit 1")
    with pytest.raises(HpcrunError, match="sbatch refused"):
        fake_slurm.submit("refused")
    with pytest.raises(HpcrunError, match="none of your runs was submitted"):
        run_selection.select_one("last")


def test_a_refused_submission_is_not_the_last_job(fake_slurm, five_jobs):
    fake_slurm.replace_command("sbatch", "exit 1")
    with pytest.raises(HpcrunError, match="sbatch refused"):
        fake_slurm.submit("refused")
    assert run_selection.select_one("last").job_id == "17"
    assert run_selection.select_one("refused").job_id is None


def test_the_index_is_rebuilt_from_the_run_directories(fake_slurm, five_jobs, isolated_home):
    before = [(entry.job_id, entry.directory) for entry in run_index.list_entries()]
    for entry in run_index.list_entries():
        if entry.job_id != "13":
            run_index.remove_entry(entry)
    shutil.rmtree(run_selection.select_one("13").directory)
    assert rebuild.rebuild_index() == (4, 1)
    assert [(entry.job_id, entry.directory) for entry in run_index.list_entries()] == [
        one for one in before if one[0] != "13"
    ]
    assert rebuild.rebuild_index() == (0, 0)


def test_rebuilding_searches_the_run_roots_of_all_sites(five_jobs, isolated_home, monkeypatch):
    shutil.rmtree(paths.run_index_folder())
    (isolated_home / "config/hpcrun").mkdir(parents=True)
    (isolated_home / "config/hpcrun/mine.toml").write_text(
        f'run_root = "{isolated_home}/${{SLURM_JOB_ACCOUNT}}/runs"\n'
    )
    (isolated_home / "project").mkdir()
    (isolated_home / "runs").rename(isolated_home / "project/runs")
    (isolated_home / "config/hpcrun/broken.toml").write_text("run_root = 7\n")
    (isolated_home / "config/hpcrun/unset.toml").write_text('run_root = "$NOT_SET_HERE/runs"\n')
    monkeypatch.setenv("HOME", str(isolated_home))
    monkeypatch.delenv("HPCRUN_RUN_ROOT")
    assert rebuild.rebuild_index() == (5, 0)
    assert ids("all") == [17, 14, 13, 12, 5]


def test_index_links_without_a_job_id_are_read(five_jobs):
    for entry in run_index.list_entries():
        link = paths.run_index_folder() / entry.link
        link.rename(link.with_name(f"{entry.submitted_ns}-{entry.directory_name}"))
    assert {entry.job_id for entry in run_index.list_entries()} == {None}
    assert ids("12-14") == [14, 13, 12]
    rebuild.rebuild_index()
    assert {entry.job_id for entry in run_index.list_entries()} == {"5", "12", "13", "14", "17"}


def test_an_index_link_renamed_while_it_is_read_is_followed(five_jobs):
    entry = next(entry for entry in run_index.list_entries() if entry.job_id == "12")
    directory = entry.directory
    run_index.record_job_ids({directory: "99"})
    assert entry.directory == directory
