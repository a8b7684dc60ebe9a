"""Parameter sweeps: axes, tasks, and the commands for them."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from select import select as ready

import pytest

import hpcrun
from hpcrun import paths, sweep
from hpcrun.cli.follow_sweep import poll_until_all_ended
from hpcrun.errors import HpcrunError
from hpcrun.jobs import poll_backoff, rebuild, run_selection, sweep_tasks
from hpcrun.schedulers import slurm
from tests.waiting import DEADLINE, wait_until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("lr=0.1,0.01", ["0.1", "0.01"]),
        ("seed=1..5", ["1", "2", "3", "4", "5"]),
        ("n=0..10..5", ["0", "5", "10"]),
        ("n=2..-1", ["2", "1", "0", "-1"]),
        ("n=-2..2..3", ["-2", "1"]),
        ("name=a=b,two words", ["a=b", "two words"]),
        ("folder=..,../a,b/..", ["..", "../a", "b/.."]),
        ("n=1..3,7", ["1", "2", "3", "7"]),
        ("n=5..1..2", ["5", "3", "1"]),
        ("n=08..10", ["08", "09", "10"]),
    ],
)
def test_values_and_ranges_are_parsed(word, values):
    assert sweep.parse_axis(word) == (word.partition("=")[0], tuple(values))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lr"], "not NAME=VALUES"),
        (["0x=1"], "'0x' is not an option name"),
        (["lr="], "a value is empty"),
        (["lr=1,,2"], "a value is empty"),
        (["lr=1,1"], "a value is repeated: 1, 1"),
        (["lr=1", "lr=2"], "--sweep lr is given twice"),
        (["n=1..5..0"], "a step of 0"),
        (["n=1..100000"], "more than 10000 values"),
        (["n=1..99999999999"], "more than 10000 values"),
        (
            ["lr=0.1..0.3"],
            "--sweep lr=0.1..0.3: not a range of whole numbers\nHINT: list the values: --sweep lr=0.1,0.2,0.3\n",
        ),
        (["lr=0.5,0.1..0.2..0.05"], "HINT: list the values: --sweep lr=0.5,0.10,0.15,0.20\n"),
        (["lr=1e-4..1e-1"], "HINT: list the values: --sweep lr=0.0001,0.1\n"),
        (["n=1..5..-2"], "HINT: list the values: --sweep n=1,3,5\n"),
        (["lr=0.1;0.01"], "is one value\nHINT: commas separate values: --sweep lr=0.1,0.01"),
        (["n=1.."], "not a range of whole numbers\nHINT: ranges are FIRST..LAST"),
        (["n=..5"], "not a range of whole numbers"),
        (["n=a..b"], "not a range of whole numbers"),
        (["n=1...5"], "not a range of whole numbers"),
        (["n=1..5..2..1"], "not a range of whole numbers"),
        (["a=1..200", "b=1..200"], "40000 tasks"),
    ],
)
def test_an_invalid_sweep_causes_one_clear_error(cli, words, message):
    options = [option for word in words for option in ("--sweep", word)]
    code, _, err = cli("submit", "--site", "slurm", *options, "--dry-run", "--", "true")
    assert (code, message in err, "HINT: " in err) == (2, True, True), err


def test_max_parallel_without_a_sweep_is_refused(cli):
    code, _, err = cli("submit", "--max-parallel", "2", "--dry-run", "--", "true")
    assert code == 2
    assert "limits the tasks of a sweep, and this job is not a sweep" in err


def test_values_of_a_workload_are_checked_before_submission(cli):
    code, _, err = cli("submit", "lenet5", "--site", "slurm", "--sweep", "epochs=1,many", "--dry-run")
    assert code == 2
    assert "invalid int value: 'many'" in err


def test_a_decimal_range_is_refused_for_a_bundled_workload(cli):
    code, _, err = cli("submit", "lenet5", "--site", "slurm", "--sweep", "lr=0.1..0.3", "--dry-run")
    assert (code, "list the values: --sweep lr=0.1,0.2,0.3" in err) == (2, True), err


def test_spaces_around_values_are_no_part_of_them():
    assert sweep.parse_axis("lr=0.1, 0.01") == ("lr", ("0.1", "0.01"))


def test_values_with_blanks_between_them_are_refused(cli):
    line = ("submit", "lenet5", "--site", "slurm", "--dry-run", "--sweep")
    code, out, err = cli(*line, "lr=0.1 0.01")
    assert (code, out) == (2, "")
    assert "HINT: commas separate values: --sweep lr=0.1,0.01;" in err
    assert sweep.parse_axis("betas=0.9 0.99,0.9 0.999") == ("betas", ("0.9 0.99", "0.9 0.999"))


def test_a_sweep_of_the_python_api_takes_values_as_on_the_command_line(fake_slurm):
    (fake_slurm.folder / "id").write_text("7")
    jobs = hpcrun.submit(None, ["a.out"], site="slurm", sweep={"lr": "12", "seed": "1..3"})
    assert len(jobs) == 3
    with pytest.raises(HpcrunError, match=r"lr=0.1..0.3: not a range"):
        hpcrun.submit(None, ["a.out"], site="slurm", sweep={"lr": "0.1..0.3"})
    with pytest.raises(HpcrunError, match=r"lr=0.1 is not a list"):
        hpcrun.submit(None, ["a.out"], site="slurm", sweep={"lr": 0.1})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("seed=1-5", "a range is --sweep seed=1..5; one value goes after --: --seed=1-5"),
        ("seed=1:9:2", "a range is --sweep seed=1..9..2; one"),
        ("lr=0.1:0.3", "list several: --sweep lr=0.1,0.3; one"),
    ],
)
def test_a_single_value_that_looks_like_a_range_is_refused(word, hint):
    with pytest.raises(HpcrunError, match="is one value") as error:
        sweep.parse_axis(word)
    assert error.value.hint.startswith(hint)
    assert sweep.parse_axis("lr=1-2,2-3") == ("lr", ("1-2", "2-3"))


def test_an_alias_is_recorded_by_the_name_of_its_option(cli):
    line = ["submit", "lenet5", "--site", "slurm", "--dry-run", "--json", "--max-parallel", "4"]
    code, out, err = cli(*line, "--sweep", "lr=0.1,0.01", "--sweep", "seed=1..5")
    spec = json.loads(out)["spec"]
    assert (code, len(spec["tasks"]), spec["max_parallel"]) == (0, 10, 4), err
    assert spec["tasks"][0]["values"] == [["learning-rate", "0.1"], ["seed", "1"]]
    assert spec["tasks"][9]["argv"][-2:] == ["--learning-rate=0.01", "--seed=5"]
    (task,) = json.loads(cli(*line, "--sweep", "learning_rate=0.1", "--", "--lr", "{lr}")[1])["spec"]["tasks"]
    assert (task["values"], task["argv"][-2:]) == ([["learning-rate", "0.1"]], ["--learning-rate", "0.1"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--sweep", "lr=1,2", "--sweep", "learning-rate=3"],
            "--sweep lr and --sweep learning-rate are the same option",
        ),
        (["--sweep", "lr=1,2", "--sweep", "lr=3"], "is given twice"),
        (["--sweep", "lr=1,2", "--", "--learning_rate=3"], "omit --learning_rate=3"),
    ],
)
def test_an_option_with_two_values_is_refused(cli, words, message):
    code, _, err = cli("submit", "lenet5", "--site", "slurm", "--dry-run", *words)
    assert (code, message in err, "HINT: " in err) == (2, True, True), err


def test_a_repeated_option_of_a_program_is_refused(cli):
    line = ["submit", "--site", "slurm", "--dry-run", "--sweep", "n=1,2", "--", "a.out"]
    code, _, err = cli(*line, "--n", "5")
    assert (code, "write --n={n} where its values belong" in err) == (2, True), err
    assert cli(*line, "--n", "{n}")[0] == 0


def test_values_replace_their_placeholder_or_are_appended():
    values = (("lr", "0.1"), ("n", "2"))
    assert sweep.build_arguments(["-l", "{lr}", "--out={lr}.txt"], values, {}) == (
        "-l",
        "0.1",
        "--out=0.1.txt",
        "--n=2",
    )


def test_the_script_has_a_command_line_for_each_task(cli):
    _, script, _ = cli(
        "submit", "--site", "slurm", "--sweep", "a=1,2", "--sweep", "b=x y,z", "--dry-run", "--", "echo", "{b}"
    )
    case = "case $HPCRUN_TASK" + script.partition("case $HPCRUN_TASK")[2].partition("esac")[0] + "esac"
    reported = subprocess.run(
        ["bash", "-c", f'for HPCRUN_TASK in 0 1 2 3; do {case}; printf "%s|" "${{hpcrun_program[@]}}"; echo; done'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert reported.stdout.splitlines() == ["echo|x y|--a=1|", "echo|z|--a=1|", "echo|x y|--a=2|", "echo|z|--a=2|"]
    assert "#SBATCH --array=0-3\n" in script


@pytest.fixture
def array(fake_slurm):
    """A sweep of three tasks, job 7, after a job of the same name, 5."""
    fake_slurm.submit("a.out", 5)
    (fake_slurm.folder / "id").write_text("7")
    return hpcrun.submit(None, ["a.out"], site="slurm", sweep={"lr": [0.1, 0.2, 0.3]})


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
def test_a_selector_matches_a_sweep_or_its_tasks(array, word, expected):
    assert [run.job_id for run in run_selection.select_runs([word])] == expected


def test_the_directory_of_a_sweep_matches_its_tasks(array, monkeypatch):
    directory = array[0].directory.parent
    assert [run.job_id for run in run_selection.select_runs([str(directory)])] == ["7_0", "7_1", "7_2"]
    assert [run.job_id for run in run_selection.select_runs([directory.name])] == ["7_0", "7_1", "7_2"]
    assert [run.job_id for run in run_selection.select_runs([array[1].directory.name])] == ["7_1"]


def test_a_command_for_one_job_refuses_a_sweep(array, cli):
    code, _, err = cli("logs", "7")
    assert (code, "7 is a sweep of 3 tasks" in err, "such as 7_0" in err) == (2, True, True)
    code, _, err = cli("why", "a*")
    assert (code, "a* matches 4 jobs" in err) == (2, True)


def test_status_and_result_show_the_values(array, fake_slurm, cli):
    script = array[0].directory.parent / "job.sh"
    fake_slurm.set_queue(
        ("7_0", "RUNNING", "None", "n1", "0:05", "1:00", script),
        ("7_1", "PENDING", "JobArrayTaskLimit", "", "0:00", "1:00", script),
    )
    rows = {row["job_id"]: row for row in json.loads(cli("status", "7", "--json")[1])}
    assert {job_id: (row["state"], row["values"]) for job_id, row in rows.items()} == {
        "7_0": ("RUNNING", {"lr": "0.1"}),
        "7_1": ("PENDING", {"lr": "0.2"}),
        "7_2": ("CANCELLED", {"lr": "0.3"}),  # Slurm knows the array but not this task, which wrote no log
    }
    assert "a.out lr=0.2" in cli("status", "7")[1]
    for number, task in enumerate(array):
        (task.directory / "result.json").write_text(json.dumps({"test_accuracy": number / 10}))
    table = cli("result", "7")[1].splitlines()
    assert table[0].split() == ["job", "name", "lr", "test", "accuracy"]
    assert table[-1].split() == ["7_2", "a.out", "0.3", "0.2"]


def test_a_started_task_is_not_reported_as_cancelled_while_pending(array, fake_slurm, cli):
    fake_slurm.set_queue(("7_0", "RUNNING", "None", "n1", "0:05", "1:00", array[0].directory.parent / "job.sh"))
    (array[2].directory / "7_2_0_log.out").write_text("")
    assert json.loads(cli("status", "7_2", "--json")[1])["state"] == "UNKNOWN"


@pytest.mark.parametrize(
    ("word", "name", "count"),
    [
        ("7", "7", 3),
        ("last", "7", 3),
        ("a.out", "7", 3),
        ("7_1", "7_1", 1),
        ("7_1-5", "7_1-2", 2),
        ("7_2,7_0", "7_0,7_2", 2),
    ],
)
def test_selected_tasks_have_a_common_name(array, word, name, count):
    selected = sweep_tasks.select_tasks(word)
    assert (sweep_tasks.format_task_ids(selected), len(selected)) == (name, count)
    assert sweep_tasks.select_tasks(name) == selected


@pytest.mark.parametrize("word", ["5-7", "all", "5-6,7_2"])
def test_jobs_of_several_submissions_are_not_a_sweep(array, cli, word):
    code, _, err = cli("why", word)
    assert (code, f"{word} matches" in err, "HINT: " in err) == (2, True, True)


def test_rebuilding_the_index_restores_tasks(array):
    for link in list((paths.run_index_folder()).iterdir()):
        link.unlink()
    rebuild.rebuild_index()
    assert [run.job_id for run in run_selection.select_runs(["all"])] == ["7_0", "7_1", "7_2", "5"]


def test_rebuilding_the_index_restores_the_remaining_tasks(array):
    shutil.rmtree(array[0].directory)
    for link in list((paths.run_index_folder()).iterdir()):
        link.unlink()
    rebuild.rebuild_index()
    assert [run.job_id for run in run_selection.select_runs(["all"])] == ["7_1", "7_2", "5"]


def test_why_queries_slurm_once_for_pending_and_cancelled_tasks(fake_slurm, cli):
    (fake_slurm.folder / "id").write_text("7")
    jobs = hpcrun.submit(None, ["a.out"], site="slurm", sweep={"n": range(40)})
    script = jobs[0].directory.parent / "job.sh"
    start = {"job_id": "7_0", "host": "n1", "nodes": "n1", "time": 1}
    (jobs[0].directory / "starts.jsonl").write_text(json.dumps(start) + "\n")
    states = [("RUNNING", "None"), *[("CANCELLED", "None")] * 19, *[("PENDING", "JobArrayTaskLimit")] * 20]
    reported = (
        (f"7_{number}", state, reason, "n1", "0:05", "1:00", script) for number, (state, reason) in enumerate(states)
    )
    fake_slurm.set_queue(*reported)
    me, root = os.getuid(), os.getuid() + 1
    rows = (f"7_1|CANCELLED by {root}", f"7_[2-9,10-19%4]|CANCELLED by {me}", f"7_[1,3,...]|CANCELLED by {me}")
    fake_slurm.replace_command("sacct", "\n".join(f"echo '{row}'" for row in rows))
    code, out, _ = cli("why", "7")
    assert code == 0
    assert [line for line in out.splitlines() if "a.out" in line and " (7_" in line] == [
        "18 tasks of a.out (7_2-19) ended: you cancelled it (hpcrun cancel, Ctrl+C while waiting for it, or scancel)",
        "20 tasks of a.out (7_20-39) wait: as many tasks of its array run as --array=...%N allows",
    ]
    assert "job 7_1 (a.out n=1) ended: " in out
    assert "job 7_0 (a.out n=0) runs on n1 since 0:05\n" in out
    assert len(fake_slurm.calls("sacct")) == 1
    assert len(fake_slurm.calls("squeue")) == 2  # all states; the expected start of the first pending task


def test_task_specific_details_do_not_split_a_cause(array, fake_slurm, cli):
    script = array[0].directory.parent / "job.sh"
    fake_slurm.set_queue(*((f"7_{n}", "FAILED", "JobLaunchFailure", f"n{n}", "0:00", "1:00", script) for n in range(3)))
    _, out, _ = cli("why", "7")
    headline = out.splitlines()[0]
    assert headline.startswith("3 tasks of a.out (7) failed: it could not write its log: ")
    assert headline.endswith(f"its run directory, {array[0].directory}, does not exist on n0")
    assert "n1" not in out


def test_causes_that_differ_in_a_number_are_one(fake_slurm, cli):
    (fake_slurm.folder / "id").write_text("7")
    errors = ["ValueError: bad sample 3", "ValueError: bad sample 40", "ValueError: bad file 3"] * 2
    for number, task in enumerate(hpcrun.submit(None, ["a.out"], site="slurm", sweep={"n": range(6)})):
        fake_slurm.write_exit_record(task, 1)
        trace = 'Traceback (most recent call last):\n  File "/me/a.py", line 7, in <module>\n    load()'
        (task.directory / f"7_{number}_0_log.err").write_text(f"{trace}\n{errors[number]}\n")
    _, out, _ = cli("why", "7")
    assert [line for line in out.splitlines() if " tasks of " in line] == [
        "4 tasks of a.out (7_0-1,7_3-4) failed: the program raised ValueError: bad sample ...",
        "2 tasks of a.out (7_2,7_5) failed: the program raised ValueError: bad file 3",
    ]


def test_exit_codes_are_causes_of_their_own(fake_slurm, cli):
    (fake_slurm.folder / "id").write_text("7")
    for number, task in enumerate(hpcrun.submit(None, ["a.out"], site="slurm", sweep={"n": range(3)})):
        fake_slurm.write_exit_record(task, 1)
        log = f"run.sh: solver returned non-zero exit status 3{number % 2}\n"
        (task.directory / f"7_{number}_0_log.err").write_text(log)
    _, out, _ = cli("why", "7")
    assert "2 tasks of a.out (7_0,7_2) failed: a rank exited with exit code 30, " in out
    assert "job 7_1 (a.out n=1) failed: a rank exited with exit code 31, " in out


def test_why_names_the_first_tasks_and_resubmits_all(fake_slurm, cli):
    (fake_slurm.folder / "id").write_text("7")
    jobs = hpcrun.submit(None, ["a.out"], site="slurm", sweep={"n": range(60)})
    for number, task in enumerate(jobs):
        fake_slurm.write_exit_record(task, 3 * (number % 2))
    code, out, err = cli("why", "7")
    assert (code, err) == (1, "")
    assert out.startswith("30 tasks of a.out (7_1,7_3,7_5,7_7,7_9,7_11,7_13,7_15,...) failed with exit code 3: ")
    (again,) = (line.split()[-1] for line in out.splitlines() if line.startswith("To submit them again: "))
    assert [task.task_number for task in sweep_tasks.select_tasks(again)] == list(range(1, 60, 2))


def test_an_exit_record_is_detected_between_two_polls_of_slurm(array, fake_slurm, monkeypatch):
    monkeypatch.setattr(poll_backoff, "BACKOFF_FRACTION", 1e6)
    monkeypatch.setattr(slurm.SlurmScheduler, "max_poll_seconds", 1e6)
    script = array[0].directory.parent / "job.sh"
    fake_slurm.set_queue(*((f"7_{n}", "RUNNING", "None", "n1", "0:09", "1:00", script) for n in range(3)))
    following = poll_until_all_ended(sweep_tasks.select_tasks("7"))
    wait_until(lambda: next(following) and len(fake_slurm.calls("squeue")) == 2)  # the next poll would be days later
    for number, task in enumerate(array):
        fake_slurm.write_exit_record(task, number)
    states = {}

    def ended():
        states.update(next(following)[0])
        return all(state.finished for state in states.values())

    wait_until(ended)
    assert [state.name for state in states.values()] == ["COMPLETED", "FAILED", "FAILED"]
    assert len(fake_slurm.calls("squeue")) == 3


def test_a_task_that_submitted_itself_again_is_followed_as_its_new_job(array, fake_slurm):
    rows = [(f"7_{n}", "RUNNING", "None", "n1", "0:09", "1:00") for n in range(3)]
    fake_slurm.set_queue(*rows)
    following = poll_until_all_ended(sweep_tasks.select_tasks("7"))
    next(following)
    file = array[1].directory / "submitted.json"
    file.write_text(file.read_text().replace('"7_1"', '"9_1"'))
    fake_slurm.set_queue(rows[0], ("7_1", "FAILED", "None", "n1", "0:09", "1:00"), rows[2], ("9_1", *rows[1][1:]))
    wait_until(lambda: next(following) and len(fake_slurm.calls("squeue")) == 3)
    for number in (0, 2):
        fake_slurm.write_exit_record(array[number])
    states, _ = wait_until(lambda: (polled := next(following))[1] and polled)
    assert {task.job_id: state.name for task, state in states.items()} == {
        "7_0": "COMPLETED",
        "9_1": "RUNNING",
        "7_2": "COMPLETED",
    }
    assert [run.job_id for run in run_selection.select_runs(["9"])] == ["9_1"]


def hpcrun_process(*argv, **more):
    return subprocess.Popen([sys.executable, "-m", "hpcrun", *argv], **more)


@pytest.fixture
def on_terminal():
    """Start hpcrun on a terminal; return the process, and a function that waits for words on the screen."""
    master, terminal = pty.openpty()
    started = []

    def start(*argv, lines):
        environment = {**os.environ, "COLUMNS": "200", "LINES": str(lines), "TERM": "xterm"}
        process = hpcrun_process(*argv, stdout=terminal, stderr=terminal, stdin=terminal, env=environment)
        started.append(process)
        screen = bytearray()

        def wait_for(*words):
            end = time.monotonic() + DEADLINE
            while not all(word.encode() in screen for word in words):
                assert time.monotonic() < end, screen.decode()[-2000:]  # the screen is redrawn all the time
                assert ready([master], [], [], DEADLINE)[0], screen.decode()[-2000:]
                screen.extend(os.read(master, 65536))
            return screen.decode()

        return process, wait_for

    yield start
    for process in started:
        process.kill()
        process.wait()
    os.close(master)
    os.close(terminal)


def test_watch_shows_a_sweep_as_a_table_on_a_terminal(array, fake_slurm, on_terminal):
    script = array[0].directory.parent / "job.sh"
    fake_slurm.set_queue(
        ("7_0", "COMPLETED", "None", "n2", "0:07", "1:00", script),
        ("7_1", "PENDING", "JobArrayTaskLimit", "", "0:00", "1:00", script),
        ("7_2", "RUNNING", "None", "n1", "0:05", "1:00", script),
    )
    watching, wait_for = on_terminal("watch", lines=30)
    screen = wait_for("3 tasks of a.out: 1 completed, 1 pending, 1 running", "a.out lr=0.3")
    assert screen.index("lr=0.1") < screen.index("lr=0.2") < screen.index("lr=0.3")
    assert "the limit of running tasks is reached" in screen
    for number, task in enumerate(array):
        fake_slurm.write_exit_record(task, 6 if number == 1 else 0)
    fake_slurm.set_queue(*((f"7_{n}", "COMPLETED", "None", "n1", "0:09", "1:00", script) for n in range(3)))
    wait_for("1 of 3 tasks did not complete; hpcrun why 7 explains why")
    assert watching.wait(60) == 6


def test_a_short_terminal_lists_running_and_failed_tasks_first(fake_slurm, on_terminal):
    (fake_slurm.folder / "id").write_text("7")
    jobs = hpcrun.submit(None, ["a.out"], site="slurm", sweep={"n": range(30)})
    script = jobs[0].directory.parent / "job.sh"
    states = [*["COMPLETED"] * 13, "TIMEOUT", *["COMPLETED"] * 6, "RUNNING", *["PENDING"] * 9]
    fake_slurm.set_queue(*((f"7_{n}", state, "None", "n1", "0:05", "1:00", script) for n, state in enumerate(states)))
    watching, wait_for = on_terminal("watch", "7", lines=12)
    summary = "30 tasks of a.out: 19 completed, 1 out of time, 1 running, 9 pending"
    screen = wait_for(summary, "a.out n=13", "a.out n=20", "a.out n=21")
    assert screen.index("a.out n=20") < screen.index("a.out n=13") < screen.index("a.out n=21")
    assert "a.out n=12" not in screen
    watching.send_signal(signal.SIGINT)
    wait_for("no longer watching; the tasks go on: hpcrun watch 7 watches them again, hpcrun cancel 7 cancels them")
    assert watching.wait(60) == 130


def test_watch_refuses_a_sweep_that_was_never_submitted(array, cli):
    for task in array:
        (task.directory / "submitted.json").unlink()
    code, _, err = cli("watch", str(array[0].directory.parent))
    assert (code, "was never submitted" in err) == (2, True)


@pytest.mark.parametrize("more", [["0.01"], ["0.01", "0.001"]])
def test_values_of_a_sweep_after_a_blank_get_commas(cli, more):
    code, _, err = cli("submit", "--site", "slurm", "--dry-run", "--sweep", "lr=0.1", *more, "lenet5")
    assert (code, f"HINT: commas separate values: --sweep lr=0.1,{','.join(more)}\n" in err) == (2, True), err
