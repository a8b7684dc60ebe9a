"""Sweeps: what is swept, the tasks that come of it, and what the commands make of them."""

import json
import shutil
import subprocess

import pytest

import hpcrun
from hpcrun import sweep
from hpcrun.jobs import rebuild, runs, select
from tests.waiting import until


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("lr=0.1,0.01", ["0.1", "0.01"]),
        ("seed=1..5", ["1", "2", "3", "4", "5"]),
        ("n=0..10..5", ["0", "5", "10"]),
        ("n=2..-1", ["2", "1", "0", "-1"]),
        ("n=-2..2..3", ["-2", "1"]),
        ("name=a=b,two words", ["a=b", "two words"]),
        ("path=a..b", ["a..b"]),
    ],
)
def test_values_are_listed_or_counted(word, values):
    assert sweep.axis(word) == (word.partition("=")[0], tuple(values))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lr"], "not NAME=VALUES"),
        (["0x=1"], "'0x' is no option's name"),
        (["lr="], "empty value"),
        (["lr=1,,2"], "empty value"),
        (["lr=1,1"], "comes twice: 1, 1"),
        (["lr=1", "lr=2"], "--sweep lr is given twice"),
        (["n=1..5..0"], "a step of 0"),
        (["n=1..100000"], "more than 10000 values"),
        (["a=1..200", "b=1..200"], "40000 tasks"),
    ],
)
def test_a_mistake_in_a_sweep_is_one_clear_error(cli, words, message):
    options = [option for word in words for option in ("--sweep", word)]
    code, _, err = cli("submit", "--site", "slurm", *options, "--dry-run", "--", "true")
    assert (code, message in err, "HINT: " in err) == (2, True, True), err


def test_a_limit_without_a_sweep_is_refused(cli):
    code, _, err = cli("submit", "--max-parallel", "2", "--dry-run", "--", "true")
    assert code == 2
    assert "no sweep whose tasks it could limit" in err


def test_values_of_a_workload_are_checked_before_submitting(cli):
    code, _, err = cli("submit", "lenet5", "--site", "slurm", "--sweep", "epochs=1,many", "--dry-run")
    assert code == 2
    assert "invalid int value: 'many'" in err


def test_a_value_stands_where_its_name_does_or_comes_last():
    values = (("lr", "0.1"), ("n", "2"))
    assert sweep.arguments(["-l", "{lr}", "--out={lr}.txt"], values) == ("-l", "0.1", "--out=0.1.txt", "--n=2")


def test_each_task_has_its_own_program_and_directory(cli):
    _, script, _ = cli(
        "submit", "--site", "slurm", "--sweep", "a=1,2", "--sweep", "b=x y,z", "--dry-run", "--", "echo", "{b}"
    )
    case = "case $HPCRUN_TASK" + script.partition("case $HPCRUN_TASK")[2].partition("esac")[0] + "esac"
    told = subprocess.run(
        ["bash", "-c", f'for HPCRUN_TASK in 0 1 2 3; do {case}; printf "%s|" "${{hpcrun_program[@]}}"; echo; done'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines() == ["echo|x y|--a=1|", "echo|z|--a=1|", "echo|x y|--a=2|", "echo|z|--a=2|"]
    assert "#SBATCH --array=0-3\n" in script


@pytest.fixture
def array(fake_slurm):
    """A sweep of three tasks, job 7, after a job of the same name, 5."""
    fake_slurm.submit("a.out", 5)
    (fake_slurm.folder / "id").write_text("7")
    return hpcrun.submit(None, ["./a.out"], site="slurm", sweep={"lr": [0.1, 0.2, 0.3]})


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("7", ["7_0", "7_1", "7_2"]),
        ("last", ["7_0", "7_1", "7_2"]),
        ("a.out", ["7_0", "7_1", "7_2"]),
        ("7_1", ["7_1"]),
        ("7_1-5", ["7_1", "7_2"]),
        ("5-6,7_2", ["7_2", "5"]),
        ("5-7", ["7_0", "7_1", "7_2", "5"]),
        ("all", ["7_0", "7_1", "7_2", "5"]),
    ],
)
def test_a_word_means_a_sweep_or_some_of_its_tasks(array, word, expected):
    assert [run.job_id for run in select.select([word])] == expected


def test_a_sweeps_directory_means_its_tasks(array, monkeypatch):
    directory = array[0].directory.parent
    assert [run.job_id for run in select.select([str(directory)])] == ["7_0", "7_1", "7_2"]
    assert [run.job_id for run in select.select([directory.name])] == ["7_0", "7_1", "7_2"]
    assert [run.job_id for run in select.select([array[1].directory.name])] == ["7_1"]


def test_a_command_for_one_job_asks_which_task(array, cli):
    code, _, err = cli("logs", "7")
    assert (code, "7 is a sweep of 3 tasks" in err, "such as 7_0" in err) == (2, True, True)
    code, _, err = cli("why", "a*")
    assert (code, "a* means 4 jobs" in err) == (2, True)


def test_status_and_result_tell_the_values(array, fake_slurm, cli):
    script = array[0].directory.parent / "job.sh"
    fake_slurm.tells(
        ("7_0", "RUNNING", "None", "n1", "0:05", "1:00", script),
        ("7_1", "PENDING", "JobArrayTaskLimit", "", "0:00", "1:00", script),
    )
    rows = {row["job_id"]: row for row in json.loads(cli("status", "7", "--json")[1])}
    assert {job_id: (row["state"], row["values"]) for job_id, row in rows.items()} == {
        "7_0": ("RUNNING", {"lr": "0.1"}),
        "7_1": ("PENDING", {"lr": "0.2"}),
        "7_2": ("CANCELLED", {"lr": "0.3"}),  # Slurm knows the array, and no longer this task, which wrote no log
    }
    assert "a.out lr=0.2" in cli("status", "7")[1]
    for number, task in enumerate(array):
        (task.directory / "result.json").write_text(json.dumps({"test_accuracy": number / 10}))
    table = cli("result", "7")[1].splitlines()
    assert table[0].split() == ["job", "name", "lr", "test", "accuracy"]
    assert table[-1].split() == ["7_2", "a.out", "0.3", "0.2"]


def test_a_task_that_began_is_not_said_to_have_been_cancelled_while_it_waited(array, fake_slurm, cli):
    fake_slurm.tells(("7_0", "RUNNING", "None", "n1", "0:05", "1:00", array[0].directory.parent / "job.sh"))
    (array[2].directory / "7_2_0_log.out").write_text("")
    assert json.loads(cli("status", "7_2", "--json")[1])["state"] == "UNKNOWN"


def test_a_lost_index_has_tasks_again(array):
    for link in list((runs.paths.index()).iterdir()):
        link.unlink()
    rebuild.rebuild()
    assert [run.job_id for run in select.select(["all"])] == ["7_0", "7_1", "7_2", "5"]


def test_a_lost_index_has_the_tasks_that_are_left(array):
    shutil.rmtree(array[0].directory)
    for link in list((runs.paths.index()).iterdir()):
        link.unlink()
    rebuild.rebuild()
    assert [run.job_id for run in select.select(["all"])] == ["7_1", "7_2", "5"]


def test_tasks_run_here_as_many_at_a_time_as_there_may(tmp_path):
    """Each task notes how many there are when it begins; the second place is taken while the first is."""
    program = f"echo >{tmp_path}/{{n}}; ls {tmp_path} | wc -l; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    jobs = hpcrun.submit(None, ["sh", "-c", program], site="local", sweep={"n": range(4)}, max_parallel=2)
    try:
        until(lambda: len(list(tmp_path.iterdir())) == 2)
        told = [job.state for job in jobs]
        assert sorted(told) == ["PENDING", "PENDING", "RUNNING", "RUNNING"]
        jobs[told.index("PENDING")].cancel()
    finally:
        (tmp_path / "go").touch()
    until(lambda: all(job.done(force_check=True) for job in jobs))
    assert sorted(job.state for job in jobs) == ["CANCELLED", "COMPLETED", "COMPLETED", "COMPLETED"]
    assert len(list(tmp_path.iterdir())) == 4  # three tasks, and go


def test_following_a_sweep_ends_with_its_first_failure(cli):
    code, out, err = cli(
        "submit", "--site", "local", "--wait", "--json", "--sweep", "n=0,3,2", "--", "sh", "-c", "exit {n}"
    )
    told = json.loads(out)
    assert code == 3
    assert [(task["values"]["n"], task["exit_code"]) for task in told["tasks"]] == [("0", 0), ("3", 3), ("2", 2)]
    assert "(n=3): failed: the ranks ended with exit code 3; hpcrun why" in err
