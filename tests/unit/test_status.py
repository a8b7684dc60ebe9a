"""``hpcrun status`` and ``cancel``, also with many runs and with corrupt ones."""

import json
import os
import pty
import shutil
import subprocess
import sys
import time

import pytest

import hpcrun
from hpcrun.cli.status import COLUMNS
from hpcrun.jobs import run_selection, state_cache
from hpcrun.jobs.runs import Run
from hpcrun.jobs.states import State
from hpcrun.watch.wait_messages import WaitMessages

pytestmark = pytest.mark.slow


@pytest.fixture
def status(cli):
    def call(*argv):
        code, out, err = cli("status", "--json", *argv)
        assert code == 0, err
        return json.loads(out)

    return call


def lines(text):
    """Return the lines of a table by their first word."""
    return {line.split()[0]: line for line in text.splitlines()}


def metrics(run, *written):
    (run.directory / "metrics.jsonl").write_text("\n".join(written))


def test_table_shows_state_nodes_time_progress_and_reason(cli, fake_slurm):
    running = fake_slurm.submit("resnet50", nodes=2, ntasks_per_node=4, time="60")
    fake_slurm.submit("lenet5", nodes=3, time="1-0")
    failed = fake_slurm.submit("other")
    fake_slurm.write_exit_record(failed, 3)
    metrics(running, json.dumps({"epoch": 3, "epochs": 90, "loss": 1.5, "images_per_second": 812.4}), "")
    fake_slurm.set_queue((1, "RUNNING", "None", "n[1-2]", "3:12"), (2, "PENDING", "Resources", "", "0:00"))
    table = lines(cli("status")[1])
    assert table["job"].split() == list(COLUMNS)
    for part in ("resnet50", "slurm", "running", "n[1-2]", "8", "3:12 of 1:00:00", "epoch 3/90, 812 images/s"):
        assert f" {part} " in f"{table['1']} "
    for part in ("pending", "3", "0:00 of 1-00:00:00", "Resources (next in line, waits for free nodes)"):
        assert f" {part} " in f"{table['2']} "
    for part in ("failed", "n1", "1:05", "3", "the ranks ended with exit code 3"):
        assert f" {part} " in f"{table['3']} "


def test_pending_reason_of_cancelled_jobs_is_hidden(cli, fake_slurm):
    fake_slurm.submit("lenet5")
    fake_slurm.set_queue((1, "CANCELLED", "JobHeldUser", "", "0:00"))
    assert "cancelled" in cli("status")[1]
    assert "Held" not in cli("status")[1]


def test_json_has_stable_keys_and_one_value_for_a_single_job(status, fake_slurm):
    fake_slurm.submit("one", time="90")
    fake_slurm.submit("two")
    fake_slurm.set_queue((1, "RUNNING", "None", "n1", "0:01"), (2, "PENDING", "Priority", "", "0:00"))
    one = status("1")
    assert list(one)[:10] == [
        "job_id", "name", "site", "state", "nodes", "elapsed", "progress", "exit_code", "reason", "run_dir",
    ]  # fmt: skip
    assert (one["limit"], one["ranks"], one["nodes_asked"], one["as_of"]) == ("1:30:00", 1, 1, None)
    assert status("last")["job_id"] == "2"
    assert [row["job_id"] for row in status("1-2")] == ["2", "1"]
    assert [row["job_id"] for row in status("1", "2")] == ["2", "1"]
    assert [row["job_id"] for row in status("o*")] == ["1"]
    assert [row["job_id"] for row in status("--state", "r")] == ["1"]
    assert [row["job_id"] for row in status("1", "--state", "PENDING")] == []
    assert [row["job_id"] for row in status("--since", "1h")] == ["2", "1"]
    assert status("--since", "2020-01-01", "--state", "failed") == []


def test_one_squeue_call_for_all_jobs(status, fake_slurm):
    for _ in range(30):
        fake_slurm.submit()
    fake_slurm.set_queue(*((number, "RUNNING", "None", "n1", "0:01") for number in range(1, 31)))
    assert len(status()) == 30  # all running jobs are shown, however old
    assert len(fake_slurm.calls("squeue")) == 1
    assert len(fake_slurm.calls("sacct")) == 0


COUNT_OPENED_FILES = """
import os, sys
opened = []
root = os.environ["HPCRUN_RUN_ROOT"]
def hook(event, args):
    if event == "open" and str(args[0]).startswith(root):
        opened.append(args[0])
sys.addaudithook(hook)
sys.argv = ["hpcrun", *sys.argv[1:]]
from hpcrun.cli.main import main
try:
    main()
except SystemExit as done:
    assert not done.code
print(len(opened), file=sys.stderr)
"""


def count_opened_files(*argv):
    """Return how many files in run directories a command opens, and its output."""
    done = subprocess.run([sys.executable, "-c", COUNT_OPENED_FILES, *argv], capture_output=True, text=True, check=True)
    return int(done.stderr.splitlines()[-1]), done.stdout


def test_runs_that_ended_long_ago_need_no_files_and_no_queries(fake_slurm):
    for number in range(40):
        fake_slurm.write_exit_record(fake_slurm.submit(f"net{number % 2}"))
    first, table = count_opened_files("status")
    assert 40 <= first < 40 * 6  # of the 20 that are not shown, only exit.json
    assert len(table.splitlines()) == 22
    assert count_opened_files("status") == (0, table)
    assert count_opened_files("status", "all")[0] >= 20
    queries = len(fake_slurm.calls("squeue"))
    for argv in (["all"], ["7"], ["net1"], ["net*"], ["3-35"], ["--state", "CD"], ["--since", "1d", "--json"]):
        assert count_opened_files("status", *argv)[0] == 0, argv
    assert len(fake_slurm.calls("squeue")) == queries
    new = fake_slurm.submit("new")
    fake_slurm.set_queue((new.job_id, "PENDING", "None", "", "0:00"))
    few, table = count_opened_files("status")
    assert 0 < few < 10
    assert table.splitlines()[2].split()[:2] == [new.job_id, "new"]


def test_old_job_that_slurm_restarted_is_shown_behind_newer_ones(status, fake_slurm):
    killed, finished = fake_slurm.submit(), fake_slurm.submit()
    fake_slurm.write_exit_record(killed, 137)
    for run in (finished, *(fake_slurm.submit() for _ in range(20))):
        fake_slurm.write_exit_record(run)
    fake_slurm.set_queue((1, "PENDING", "BeginTime", "", "0:00"), (2, "PENDING", "BeginTime", "", "0:00"))
    assert [row["job_id"] for row in status()][20:] == ["1"]


def test_state_that_slurm_reported_is_kept_when_the_job_is_no_longer_shown(status, fake_slurm):
    run = fake_slurm.submit()
    fake_slurm.write_exit_record(run, 1, at=int(time.time()) - 60)
    fake_slurm.set_queue((1, "NODE_FAIL", "None", "n1", "3:12"))
    assert status()[0]["state"] == "NODE_FAIL"
    fake_slurm.set_queue()
    fake_slurm.write_exit_record(run, 1)
    for _ in range(20):
        fake_slurm.write_exit_record(fake_slurm.submit())
    assert len(status()) == 20
    assert run.directory.name not in state_cache.read_cache("last")  # so it stays small
    assert status("1")["state"] == "NODE_FAIL"


def test_recently_ended_job_may_run_again(status, fake_slurm):
    run = fake_slurm.submit()
    fake_slurm.write_exit_record(run, at=int(time.time()) - 60)
    fake_slurm.set_queue((1, "COMPLETED", "None", "n1", "1:00"))
    assert status("1")["state"] == "COMPLETED"
    (run.directory / "exit.json").unlink()
    fake_slurm.set_queue((1, "RUNNING", "None", "n1", "0:01"))
    assert status("1")["state"] == "RUNNING"


def test_last_known_state_is_shown_with_its_time_while_slurm_does_not_answer(cli, status, fake_slurm):
    fake_slurm.submit("known")
    fake_slurm.submit("unknown")
    fake_slurm.set_queue((1, "RUNNING", "None", "n[1-2]", "3:12"))
    assert [row["as_of"] for row in status()] == [None, None]
    before = time.time()
    fake_slurm.stop_responding()
    unknown, known = status()
    assert (known["state"], known["nodes"], known["elapsed"]) == ("RUNNING", "n[1-2]", "3:12")
    assert known["reason"] == "Slurm does not answer"
    assert run_selection.parse_time(known["as_of"]) == pytest.approx(before, abs=10)
    assert (unknown["state"], unknown["as_of"]) == ("UNKNOWN", None)
    assert "running (as of " in lines(cli("status")[1])["1"]
    fake_slurm.set_queue()
    forgotten = status("1")
    assert (forgotten["state"], forgotten["as_of"]) == ("UNKNOWN", None)
    assert forgotten["reason"].startswith("Slurm does not know this job (any more); it was RUNNING at 2")


def test_final_state_is_kept_after_slurm_forgets_the_job(status, fake_slurm):
    fake_slurm.submit()
    fake_slurm.set_queue((1, "NODE_FAIL", "None", "n1", "3:12"))
    assert status("1")["state"] == "NODE_FAIL"
    fake_slurm.set_queue()
    assert (status("1")["state"], status("1")["elapsed"]) == ("NODE_FAIL", "3:12")


def test_unreadable_or_unwritable_ledger_is_ignored(status, fake_slurm, isolated_home):
    fake_slurm.write_exit_record(fake_slurm.submit())
    folder = isolated_home / "state/hpcrun"
    for broken in ("", "{", "[]", '{"format": 1}', '{"format": 1, "runs": {"x": 1}}', '{"format": 9, "runs": {}}'):
        for name in ("ended.json", "last.json"):
            (folder / name).write_text(broken)
        assert status("1")["state"] == "COMPLETED"
    for name in ("ended.json", "last.json"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()
    assert status("1")["state"] == "COMPLETED"


def test_concurrent_writers_of_the_ledger(fake_slurm, isolated_home):
    (isolated_home / "state/hpcrun/runs").mkdir(parents=True)
    script = "import sys\nfrom hpcrun.jobs.state_cache import update_cache\n"
    script += "for n in range(50): update_cache('last', {f'{sys.argv[1]}-{n}': {}})"
    writers = [subprocess.Popen([sys.executable, "-c", script, str(number)]) for number in range(3)]
    while any(writer.poll() is None for writer in writers):
        state_cache.read_cache("last")  # raises if a file is incomplete
        content = isolated_home / "state/hpcrun/last.json"
        assert not content.exists() or json.loads(content.read_text())["format"] == 1
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert {f"{number}-49" for number in range(3)} & set(state_cache.read_cache("last"))  # the last write is kept
    assert sorted(path.name for path in (isolated_home / "state/hpcrun").iterdir()) == ["last.json", "runs"]


def test_two_jobs_with_the_same_id_are_distinguished(status, fake_slurm):
    here, elsewhere = fake_slurm.submit("here", 77), fake_slurm.submit("elsewhere", 77)
    fake_slurm.set_queue((77, "RUNNING", "None", "n1", "0:01", "1:00", f"{here.directory}/job.sh"))
    states = {row["run_dir"]: row["state"] for row in status()}
    assert states == {str(here.directory): "RUNNING", str(elsewhere.directory): "UNKNOWN"}
    assert len(fake_slurm.calls("squeue")) == 1


@pytest.mark.parametrize(
    ("written", "progress"),
    [
        ([], ""),
        (['{"epoch": 1, "epochs": 2, "images_per_second": 10432.1}', ""], "epoch 1/2, 10,432 images/s"),
        (['{"epoch": 1, "epochs": 2}', '{"epoch": 2, "epo'], "epoch 1/2"),
        (['{"epoch": 1, "epochs": 2}', '{"epoch": 2{"epoch": 2}', "}", "7", "null", "\udcff}"], "epoch 1/2"),
        (['{"epoch": 4, "epochs": null, "images_per_second": null}'], "epoch 4"),
        (['{"epoch": 4, "epochs": 9, "images_per_second": 0.731}'], "epoch 4/9, 0.73 images/s"),
        (['{"loss": 1}'], ""),
    ],
)
def test_progress_is_the_last_complete_line_of_the_metrics(status, fake_slurm, written, progress):
    run = fake_slurm.submit()
    (run.directory / "metrics.jsonl").write_text("\n".join(written), errors="surrogateescape")
    assert status("1")["progress"] == progress


@pytest.mark.parametrize(
    ("ago", "progress"),
    [(0, "epoch 3/90, step 40/390, 812 images/s"), (60, "epoch 2/90, 700 images/s")],
)
def test_progress_within_an_epoch_comes_from_rank_0_unless_the_epoch_line_is_newer(status, fake_slurm, ago, progress):
    run = fake_slurm.submit()
    fake_slurm.set_queue((1, "RUNNING", "None", "n1", "0:01"))
    metrics(run, json.dumps({"epoch": 2, "epochs": 90, "images_per_second": 700}))
    heartbeat = {"rank": 0, "every": 5.0, "time": time.time() + 1 - ago, "images_per_second": 812.4}
    heartbeat |= {"epoch": 3, "epochs": 90, "step": 40, "steps": 390}
    (run.directory / "heartbeats").mkdir()
    (run.directory / "heartbeats/rank-0.json").write_text(json.dumps(heartbeat))
    assert status("1")["progress"] == progress
    fake_slurm.write_exit_record(run)
    assert status("1")["progress"] == "epoch 2/90, stopped early, 700 images/s"


@pytest.mark.parametrize("file", ["job.json", "submitted.json", "exit.json", "result.json", "metrics.jsonl"])
def test_corrupt_files_do_not_break_commands(cli, status, fake_slurm, file):
    run = fake_slurm.submit("broken")
    fake_slurm.submit("whole")
    fake_slurm.write_exit_record(run)
    (run.directory / "1_0_log.out").write_text("done\n")
    for content in ("", '{"name": "a', "[]", "null", "7", "{}", "\udcff"):
        (run.directory / file).write_text(content, errors="surrogateescape")
        rows = {row["job_id"]: row for row in status("all")}
        assert rows["2"]["name"] == "whole"
        if file == "job.json":
            assert rows["1"]["reason"].startswith("job.json cannot be read")
            assert rows["1"]["state"] == "COMPLETED"
        assert cli("status")[0] == 0
        assert cli("logs", "1")[0] == 0
        assert cli("result", str(run.directory))[0] in {0, 1}


def test_removed_run_directory_is_reported_and_dropped_from_the_index(cli, fake_slurm):
    removed = fake_slurm.submit("removed")
    fake_slurm.submit("kept")
    shutil.rmtree(removed.directory)
    code, out, err = cli("status")
    assert (code, "kept" in out, "removed" in out) == (0, True, False)
    assert f"the run directory {removed.directory} is gone" in err
    assert "gone" in cli("status", "1")[2]
    assert "0 added, 1 removed" in cli("status", "--rebuild")[2]
    assert "gone" not in cli("status")[2]


def test_running_job_of_a_removed_run_directory_is_reported_and_can_be_cancelled(cli, fake_slurm):
    removed = fake_slurm.submit("removed")
    queued = ("1", "RUNNING", "None", "n1", "0:10", "1:00:00", f"{removed.directory}/job.sh")
    fake_slurm.set_queue(queued)
    shutil.rmtree(removed.directory)
    message = f"the run directory {removed.directory} is gone, but its job 1 is running: hpcrun cancel 1 ends it\n"
    assert message in cli("status")[2]
    code, _, err = cli("status", "removed")
    assert (code, message in err) == (2, True)
    assert "0 added, 0 removed" in cli("status", "--rebuild")[2]
    assert cli("cancel", "1")[0] == 0
    assert fake_slurm.calls("scancel") == ["1"]
    fake_slurm.set_queue((*queued[:-1], "/elsewhere/job.sh"))  # a job of another cluster
    assert (cli("cancel", "1")[0], fake_slurm.calls("scancel")) == (2, ["1"])
    assert "0 added, 1 removed" in cli("status", "--rebuild")[2]


def test_without_runs_status_explains_how_to_submit_one(cli):
    for argv in ([], ["--state", "running"], ["--since", "1h"]):
        code, out, err = cli("status", *argv)
        assert (code, out) == (0, "")
        assert "no " in err
    assert cli("status", "all")[0] == 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--state", "runing"], ["'runing' is not a job state", "did you mean RUNNING?"]),
        (["--since", "soon"], ["'soon' is not a time", "2h"]),
        (["--watch", "--json"], ["exclude each other"]),
        (["--watch", "1234"], ["--watch 1234", "hpcrun status 1234 --watch"]),
        (["--watch=0"], ["--watch 0"]),
    ],
)
def test_invalid_options_give_one_clear_error(cli, argv, words):
    code, out, err = cli("status", *argv)
    assert (code, out) == (2, "")
    assert err.startswith("ERROR: ")
    assert "HINT: " in err
    for word in words:
        assert word in err


@pytest.mark.parametrize("watch", [["--watch"], ["--watch", "0.1"], ["--watch=0.1"]])
def test_watch_prints_tables_until_the_named_jobs_have_ended(fake_slurm, watch):
    run = fake_slurm.submit()
    fake_slurm.set_queue((1, "RUNNING", "None", "n1", "0:01"))
    argv = [sys.executable, "-m", "hpcrun", "status", *watch, "1"] if "=" in watch[-1] else None
    argv = argv or [sys.executable, "-m", "hpcrun", "status", "1", *watch]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        output_lines = iter(watching.stdout.readline, "")
        assert any("running" in line for line in output_lines)
        fake_slurm.write_exit_record(run)
        assert any("completed" in line for line in output_lines)
        assert watching.wait(60) == 0


def test_watch_redraws_the_table_on_a_terminal(fake_slurm):
    run = fake_slurm.submit()
    fake_slurm.set_queue((1, "RUNNING", "None", "n1", "0:01"))
    master, terminal = pty.openpty()
    argv = [sys.executable, "-m", "hpcrun", "status", "1", "--watch", "0.1"]
    environment = {**os.environ, "COLUMNS": "160", "LINES": "30", "TERM": "xterm"}
    with subprocess.Popen(argv, stdout=terminal, env=environment) as watching:
        os.close(terminal)
        screen = b""
        while b"running" not in screen:
            screen += os.read(master, 4096)
        fake_slurm.write_exit_record(run)
        assert watching.wait(60) == 0
    while b"completed" not in screen:
        screen += os.read(master, 4096)
    os.close(master)
    assert screen.startswith(b"\x1b[")
    assert screen.count(b"\x1b[H") >= 2
    assert b"every 0.1 s" in screen


def test_cancelling_several_jobs_needs_confirmation(cli, fake_slurm):
    for name in ("net1", "net2", "other", "old"):
        fake_slurm.submit(name)
    queue = [(n, "PENDING", "Priority", "", "0:00") for n in (1, 2, 3)]
    queue += [(4, "COMPLETED", "None", "n1", "0:01")]
    fake_slurm.set_queue(*queue)
    for argv in (["all"], ["net*"], ["--state", "pd"], ["--since", "1h"]):
        code, _, err = cli("cancel", *argv)
        assert code == 2
        assert "1  net1  pending  0:00" in err
        assert "old" not in err
        assert "--yes" in err
        assert fake_slurm.calls("scancel") == []
    code, _, err = cli("cancel", "net*", "--yes")
    assert (code, err.count("is cancelled")) == (0, 2)
    assert fake_slurm.calls("scancel") == ["2 1"]  # one call for all pending jobs
    assert cli("cancel", "o*")[0] == 0  # only one of these has not ended
    assert fake_slurm.calls("scancel")[1:] == ["3"]
    assert cli("cancel", "1-2")[0] == cli("cancel", "1", "2")[0] == 0  # named one by one
    code, _, err = cli("cancel", "1", "4", "--state", "completed")
    assert (code, "has ended already: COMPLETED" in err) == (1, True)
    code, _, err = cli("cancel", "1", "4")
    assert (code, "job 4 (old) has ended already: COMPLETED\n" in err) == (0, True), err
    assert cli("cancel")[0] == 2


def test_the_user_confirms_once_on_a_terminal(fake_slurm):
    for _ in range(3):
        fake_slurm.submit("net")
    fake_slurm.set_queue(*((number, "PENDING", "Priority", "", "0:00") for number in (1, 2, 3)))
    for answer, code, cancelled in ((b"n\n", 1, []), (b"y\n", 0, ["3 2 1"])):
        master, terminal = pty.openpty()
        argv = [sys.executable, "-m", "hpcrun", "cancel", "all"]
        with subprocess.Popen(argv, stdin=terminal, stderr=terminal, stdout=terminal) as asking:
            os.close(terminal)
            screen = b""
            while b"Cancel these 3 jobs?" not in screen:
                screen += os.read(master, 4096)
            os.write(master, answer)
            assert asking.wait(60) == code
        os.close(master)
        assert fake_slurm.calls("scancel") == cancelled


def test_other_jobs_are_cancelled_when_one_fails(cli, fake_slurm):
    for _ in range(3):
        fake_slurm.submit()
    fake_slurm.set_queue(*((number, "PENDING", "Priority", "", "0:00") for number in (1, 2, 3)))
    fake_slurm.replace_command("scancel", 'case " $* " in *" 2 "*) echo "Kill job error" >&2; exit 1 ;; esac')
    code, _, err = cli("cancel", "1", "2", "3")
    assert code == 1
    assert "scancel 2 failed: Kill job error" in err
    assert err.count("is cancelled") == 2


def test_running_job_gets_a_signal_before_scancel(cli, fake_slurm):
    run = fake_slurm.submit()
    fake_slurm.start(run)
    fake_slurm.set_queue((1, "RUNNING", "None", "n1", "0:01"))
    record = {"exit_code": 143, "reason": "stopped by SIGTERM", "host": "n1", "started": 10, "ended": 75}
    handler = f"""case $* in --batch*) echo '{json.dumps(record)}' >{run.directory}/exit.json ;; esac"""
    fake_slurm.replace_command("scancel", handler)
    code, _, err = cli("cancel", "last")
    assert (code, err) == (0, "job 1 (a.out) is cancelled: its ranks ended after 0 s\n")
    assert fake_slurm.calls("scancel") == ["--batch --signal=USR1 1", "1"]


def test_running_job_without_signal_handlers_is_cancelled_at_once(cli, fake_slurm):
    fake_slurm.submit()
    fake_slurm.set_queue((1, "RUNNING", "None", "n1", "0:01"))
    code, _, err = cli("cancel", "last")
    assert (code, err) == (0, "job 1 (a.out) is cancelled: its ranks had not started\n")
    assert fake_slurm.calls("scancel") == ["1"]


def test_unresponsive_slurm_does_not_shorten_the_time_for_a_checkpoint(cli, fake_slurm, monkeypatch):
    monkeypatch.setattr(Run, "poll_seconds", 0.0)
    run = fake_slurm.submit()
    fake_slurm.start(run)
    fake_slurm.set_queue((1, "RUNNING", "None", "n1", "0:01"))
    checkpoints = run.directory / "checkpoints"
    checkpoints.mkdir()
    record = {"exit_code": 143, "reason": "stopped by SIGTERM", "host": "n1", "started": 10, "ended": 75}
    # after the signal, squeue fails; a second later the checkpoint is written, and the job ends
    script = f"touch {checkpoints}/.fit-0.npz; sleep 1; mv {checkpoints}/.fit-0.npz {checkpoints}/fit-0.npz"
    handler = f"""case $* in --batch*) echo 'exit 1' >{fake_slurm.folder}/squeue
      {{ {script}; echo '{json.dumps(record)}' >{run.directory}/exit.json; }} >&- 2>&- & ;; esac"""
    fake_slurm.replace_command("scancel", handler)
    code, _, err = cli("cancel", "last")
    assert (code, err) == (0, "job 1 (a.out) is cancelled: its ranks wrote a checkpoint and ended after 1 s\n")
    assert fake_slurm.calls("scancel") == ["--batch --signal=USR1 1", "1"]


def test_cancel_distinguishes_new_jobs_from_requeued_ones(cli, fake_slurm):
    for name in ("new", "again"):
        run = fake_slurm.submit(name)
    (run.directory / "starts.jsonl").write_text('{"job_id": "2"}\n')
    fake_slurm.set_queue(*((number, "PENDING", "BeginTime", "", "0:00") for number in (1, 2)))
    _, _, err = cli("cancel", "1", "2")
    assert "job 1 (new) is cancelled: it did not run\n" in err
    assert "job 2 (again) is cancelled: it was pending after a requeue; its checkpoint, if any, is kept" in err


def test_scripts_of_older_versions_get_no_signal_that_kills_them(cli, fake_slurm):
    run = fake_slurm.submit()
    spec = json.loads((run.directory / "job.json").read_text())
    del spec["site"]["restart"]
    (run.directory / "job.json").write_text(json.dumps(spec))
    fake_slurm.set_queue((1, "RUNNING", "None", "n1", "0:01"))
    assert cli("cancel", "last")[0] == 0
    assert fake_slurm.calls("scancel") == ["1"]


def test_jobs_without_run_directories_are_cancelled_with_the_others(cli, fake_slurm):
    runs = [fake_slurm.submit(name) for name in ("gone", "kept")]
    states = [
        (n, "PENDING", "Priority", "", "0:00", "1:00", f"{run.directory}/job.sh") for n, run in enumerate(runs, 1)
    ]
    fake_slurm.set_queue(*states)
    shutil.rmtree(runs[0].directory)
    code, _, err = cli("cancel", "all")
    assert (code, "cancelling 2 jobs" in err, fake_slurm.calls("scancel")) == (2, True, [])
    assert cli("cancel", "1", "2")[0] == 0
    assert fake_slurm.calls("scancel") == ["1", "2"]


def test_requeued_job_is_pending_and_has_not_ended(cli, fake_slurm):
    run = fake_slurm.submit()
    start = {"job_id": "1", "host": "n1", "started": 10, "requeued": False}
    (run.directory / "starts.jsonl").write_text(f"{json.dumps(start)}\n")
    record = {"exit_code": 140, "reason": "stopped by SIGUSR2", "started": 10, "ended": 75, "requeued": True}
    (run.directory / "exit.json").write_text(json.dumps(record))
    fake_slurm.set_queue((1, "PENDING", "BeginTime", "", "0:00"))
    assert "BeginTime (its start time has not come); started once" in cli("status")[1]
    row = json.loads(cli("status", "last", "--json")[1])
    assert (row["state"], row["exit_code"], row["starts"]) == ("PENDING", None, 1)
    fake_slurm.set_queue((1, "CANCELLED", "None", "", "0:00"))  # its exit record was of an earlier start
    assert json.loads(cli("status", "last", "--json")[1])["state"] == "CANCELLED"
    assert "stopped by" not in cli("status")[1]
    fake_slurm.set_queue()
    assert json.loads(cli("status", "last", "--json")[1])["state"] == "CANCELLED"


def test_resubmitted_run_is_found_by_all_its_job_ids(cli, fake_slurm):
    fake_slurm.submit()
    run = fake_slurm.submit()
    (run.directory / "starts.jsonl").write_text('{"job_id": "2"}\n{"job_id": "7"}\n')
    submission = run.directory / "submitted.json"
    submission.write_text(submission.read_text().replace('"job_id": "2"', '"job_id": "9"'))  # job 9 is pending
    fake_slurm.set_queue((2, "FAILED", "None", "n1", "0:01"), (9, "PENDING", "Dependency", "", "0:00"))
    for word in ("2", "7", "9"):
        row = json.loads(cli("status", word, "--json")[1])
        assert (row["job_id"], row["state"], row["starts"]) == ("9", "PENDING", 2)
    assert cli("status", "8")[0] == 2


def test_jobs_with_equal_ids_are_described_by_cluster_and_time(cli, fake_slurm, tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).touch()
        monkeypatch.setenv("SLURM_CONF", str(tmp_path / name))
        run = fake_slurm.submit(job_id=2)
    monkeypatch.delenv("SLURM_CONF")
    fake_slurm.write_exit_record(run, code=1)
    code, _, err = cli("logs", "2")
    assert (code, f"HINT: name one of them: {run.directory}/; or set SLURM_CONF\n" in err) == (2, True), err
    assert f"{run.directory}/ (a.out, site slurm, {tmp_path}/two, submitted {time.strftime('%Y-')}" in err
    assert err.count(", failed)") == 1
    assert len(json.loads(cli("status", "2", "--json")[1])) == 2
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "two"))
    assert json.loads(cli("status", "2", "--json")[1])["run_dir"] == str(run.directory)


def test_results_of_several_jobs_are_a_table(cli, fake_slurm):
    for number, accuracy in enumerate((0.91, 0.92, None)):
        run = fake_slurm.submit(f"net{number}")
        if accuracy:
            (run.directory / "result.json").write_text(json.dumps({"test_accuracy": accuracy, "ranks": 4}))
    table = lines(cli("result", "net*")[1])
    assert "test accuracy" in table["job"]
    assert table["1"].split() == ["1", "net0", "0.91", "4"]
    assert table["3"].split() == ["3", "net2"]
    values = json.loads(cli("result", "1-3", "--json")[1])
    assert [value["result"] and value["result"]["test_accuracy"] for value in values] == [None, 0.92, 0.91]
    code, _, err = cli("result", "net2", "3-3")
    assert (code, "has a result" in err) == (1, True)


def test_shell_completion_of_jobs_and_states(fake_slurm):
    fake_slurm.submit("resnet50", 1234)
    for words, completions in (
        ("hpcrun status 12", "1234"),
        ("hpcrun logs res", "resnet50"),
        ("hpcrun status --state pending,runn", "pending,running"),
        ("hpcrun cancel --state PREEM", "PREEMPTED"),
    ):
        environment = {**os.environ, "_HPCRUN_COMPLETE": "complete_bash", "COMP_WORDS": words}
        environment["COMP_CWORD"] = str(words.count(" "))
        done = subprocess.run(
            [sys.executable, "-m", "hpcrun"], env=environment, capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == [completions]


def test_a_job_that_was_cancelled_while_pending_has_no_nodes(status, fake_slurm):
    run = fake_slurm.submit("early")
    fake_slurm.set_queue()
    line = f"1|CANCELLED by 0|None|None assigned|0:00|1:00:00|sbatch {run.directory}/job.sh"
    fake_slurm.replace_command("sacct", f"echo '{line}'")
    row = status("1")
    assert (row["state"], row["nodes"], row["reason"]) == ("CANCELLED", "", "cancelled while pending")


def test_job_that_runs_only_in_accounting_is_unknown(status, fake_slurm):
    run = fake_slurm.submit("lost")
    fake_slurm.set_queue((1, "RUNNING", "None", "n1", "0:10", "1:00:00", f"{run.directory}/job.sh"))
    status("1")
    fake_slurm.set_queue()
    fake_slurm.replace_command("sacct", f"echo '1|RUNNING|None|n1|0:20|1:00:00|sbatch {run.directory}/job.sh'")
    row = status("1")
    assert (row["state"], row["nodes"]) == ("UNKNOWN", "n1")
    assert row["reason"].startswith("Slurm does not know this job (any more), though accounting lists it as RUNNING; ")
    assert "it was RUNNING at 20" in row["reason"]
    fake_slurm.write_exit_record(run, code=3)
    assert (status("1")["state"], status("1")["exit_code"]) == ("FAILED", 3)


def test_default_time_limit_comes_from_slurm(status, fake_slurm):
    fake_slurm.submit("given", time="10:00")
    fake_slurm.submit("default")
    fake_slurm.submit("none")
    limits = ("1:00:00", "1-00:00:00", "UNLIMITED")
    fake_slurm.set_queue(*((number, "RUNNING", "None", "n1", "0:10", limit) for number, limit in enumerate(limits, 1)))
    limit_by_name = {row["name"]: row["limit"] for row in status()}
    assert limit_by_name == {"given": "1:00:00", "default": "1-00:00:00", "none": None}


def test_followed_job_repeats_that_it_is_pending(cli, fake_slurm, monkeypatch):
    monkeypatch.setattr("hpcrun.watch.wait_messages.REMINDER_SECONDS", 0.0)
    monkeypatch.setattr(Run, "poll_seconds", 0.0)
    (fake_slurm.folder / "id").write_text("1")
    calls = fake_slurm.folder / "squeue.calls"
    fake_slurm.replace_command(
        "squeue", f"[ $(wc -l <{calls}) -gt 3 ] && echo '1|FAILED|None||0:00' || echo '1|PENDING|Held||0:00'"
    )
    code, _, err = cli("submit", "--site", "slurm", "--wait", "--", "true")
    assert (code, err.count("job 1 is pending: Held\n")) == (1, 1)
    assert "job 1 is still pending: Held; hpcrun why 1 explains it\n" in err


def test_completed_training_that_stopped_early_is_marked(status, fake_slurm):
    for name in ("early", "full", "failed"):
        run = fake_slurm.submit(name)
        epoch = {"epoch": 10 if name == "full" else 4, "epochs": 10, "images_per_second": 800.0}
        (run.directory / "metrics.jsonl").write_text(f"{json.dumps(epoch)}\n")
        fake_slurm.write_exit_record(run, code=int(name == "failed"))
    assert {row["name"]: row["progress"] for row in status()} == {
        "early": "epoch 4/10, stopped early, 800 images/s",
        "full": "epoch 10/10, 800 images/s",
        "failed": "epoch 4/10, 800 images/s",
    }


def test_run_without_a_result_shows_its_last_epoch(cli, fake_slurm):
    run = fake_slurm.submit("train")
    (run.directory / "metrics.jsonl").write_text('{"epoch": 4, "epochs": 10, "loss": 0.25, "seconds": 3.0}\n')
    _, _, err = cli("result", "1")
    assert "has no result; it has not ended. Its last epoch: epoch 4/10  loss 0.25\n" in err
    assert "HINT: hpcrun logs 1\n" in err
    fake_slurm.write_exit_record(run)
    code, out, err = cli("result", "1")
    assert (code, out) == (1, "")
    assert "HINT: hpcrun.run.write_result(accuracy=...)" in err


@pytest.mark.parametrize(("exit_code", "hint"), [(0, "hpcrun.run.write_result("), (3, "hpcrun why 1\n")])
def test_hint_about_a_missing_result_depends_on_the_exit_code(cli, fake_slurm, exit_code, hint):
    fake_slurm.write_exit_record(fake_slurm.submit("train"), exit_code)
    assert f"HINT: {hint}" in cli("result", "1")[2]


def test_nothing_runs_during_a_prolog(cli, fake_slurm, monkeypatch):
    monkeypatch.setattr(Run, "poll_seconds", 0.0)
    monkeypatch.setattr("hpcrun.watch.wait_messages.FIRST_MESSAGE_SECONDS", 0.0)
    fake_slurm.set_queue((1, "RUNNING", "None", "n[1-2]", "0:12", "1:00:00", ""))
    run = fake_slurm.submit("waits")
    row = cli("status")[1].splitlines()[-1]
    assert " starting " in row
    assert " Slurm prepares its nodes (Prolog)" in row
    assert "running" not in row
    messages = WaitMessages(run)
    running = State("RUNNING", "", "n[1-2]", "0:12")
    assert messages.describe_state(running) == "job 1 is starting: Slurm prepares its nodes (Prolog)"
    assert messages.describe_progress() == ""
    (run.directory / "starts.jsonl").touch()
    assert messages.describe_state(running) == ""
    assert " running " in cli("status")[1].splitlines()[-1]


def test_followed_log_says_why_the_job_is_pending(cli, fake_slurm, monkeypatch):
    monkeypatch.setattr(Run, "poll_seconds", 0.0)
    run = fake_slurm.submit("waits")
    calls = fake_slurm.folder / "squeue.calls"
    fake_slurm.replace_command(
        "squeue",
        f"case $(wc -l <{calls}) in 1 | 2) echo '1|PENDING|Priority||0:00';; 3) echo '1|PENDING|Resources||0:00';; "
        "*) echo '1|FAILED|None||0:00';; esac",
    )
    run.log().write_text("the log\n")
    code, out, err = cli("logs", "-f", "1")
    assert (code, out) == (0, "the log\n")
    lines = err.splitlines()
    assert [line.partition(" (")[0].partition(": ")[2] for line in lines[:2]] == ["Priority", "Resources"]
    assert len(lines) == 3


@pytest.mark.parametrize("quiet", [True, False])  # the second job has the id of the first
def test_python_api_says_what_it_waits_for(fake_slurm, monkeypatch, capsys, quiet):
    monkeypatch.setattr(Run, "poll_seconds", 0.0)
    monkeypatch.setattr("hpcrun.schedulers.executors.time.sleep", lambda _: None)
    (fake_slurm.folder / "id").write_text("1")
    job = hpcrun.submit(None, ["a.out"], site="slurm", quiet=quiet)
    calls = fake_slurm.folder / "squeue.calls"
    fake_slurm.replace_command(
        "squeue", f"[ $(wc -l <{calls}) -gt 2 ] && echo '1|COMPLETED|None||0:00' || echo '1|PENDING|Resources||0:00'"
    )
    job.wait()
    said = capsys.readouterr().err
    assert ("job 1 is pending: Resources" in said) is not quiet
    assert said.count("\n") == (not quiet)


CANCELLED = "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT {when} DUE TO {why} ***\n"


def write_records_of_ended_job(run, *, code=143, seconds=60, why="", when="2026-11-22T10:00:30", starts=1):
    """Write the records of a job on two nodes that Slurm ended."""
    begun = 1795341600  # 2026-11-22T10:00 in UTC
    start = {"job_id": "1", "slurm_job": "1", "host": "n1", "nodes": "n[1-2]", "started": begun, "requeued": False}
    (run.directory / "starts.jsonl").write_text(f"{json.dumps(start)}\n" * starts)
    reason = "stopped by SIGTERM" if code == 143 else f"the ranks ended with exit code {code}"
    record = {"exit_code": code, "reason": reason, "host": "n1", "started": begun, "ended": begun + seconds}
    (run.directory / "exit.json").write_text(json.dumps(record))
    (run.directory / "1_0_log.err").write_text(CANCELLED.format(when=when, why=why) if why else "")


@pytest.fixture
def forgotten_run(fake_slurm, monkeypatch):
    """Return the run of a job (two nodes, 10 minutes) that a Slurm without accounting has forgotten."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    run = fake_slurm.submit(nodes=2, time="10")
    fake_slurm.set_queue()
    yield run
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("left", "state"),
    [
        ({"seconds": 601}, "TIMEOUT"),
        ({"seconds": 60}, "CANCELLED"),
        ({"seconds": 60, "why": "TIME LIMIT"}, "TIMEOUT"),
        ({"seconds": 60, "why": "TIME LIMIT", "when": "2026-11-22T09:00:30"}, "CANCELLED"),  # of an earlier start
        ({"seconds": 60, "why": "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"}, "NODE_FAIL"),
        ({"seconds": 601, "code": 0}, "COMPLETED"),
        ({"seconds": 601, "code": 1}, "FAILED"),
    ],
)
def test_state_of_a_forgotten_job_comes_from_its_run_directory(status, forgotten_run, left, state):
    write_records_of_ended_job(forgotten_run, **left)
    row = status("1")
    assert (row["state"], row["nodes"], row["limit"]) == (state, "n[1-2]", "10:00")
    assert row["elapsed"] == ("10:01" if left["seconds"] == 601 else "1:00")


def test_a_job_cancelled_while_pending_stays_so_after_slurm_forgot_it(cli, status, fake_slurm):
    fake_slurm.submit()
    fake_slurm.set_queue((1, "PENDING", "Resources", "", "0:00"))
    assert status("1")["state"] == "PENDING"
    assert cli("cancel", "1")[0] == 0
    fake_slurm.set_queue()
    row = status("1")
    assert (row["state"], row["reason"]) == ("CANCELLED", "cancelled while pending")
    assert "has no known state" not in cli("why", "1")[1]


def test_out_of_memory_is_known_after_slurm_forgot_the_job(status, forgotten_run):
    write_records_of_ended_job(forgotten_run, code=137)
    oom = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0. Some of your processes may have been killed\n"
    (forgotten_run.directory / "1_0_log.err").write_text(oom)
    assert status("1")["state"] == "OUT_OF_MEMORY"


def test_state_of_a_job_without_exit_record_comes_from_its_log(status, forgotten_run):
    write_records_of_ended_job(forgotten_run, why="NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")
    (forgotten_run.directory / "exit.json").unlink()
    assert (status("1")["state"], status("1")["nodes"]) == ("NODE_FAIL", "n[1-2]")


def test_final_state_of_slurm_does_not_change_later(status, fake_slurm, forgotten_run):
    write_records_of_ended_job(forgotten_run, code=1)
    fake_slurm.set_queue((1, "OUT_OF_MEMORY", "OutOfMemory", "n[1-2]", "2:00", "20:00"))
    before = status("1")
    fake_slurm.set_queue()
    assert status("1") == before


def test_time_limit_recorded_from_slurm_is_used(status, fake_slurm):
    run = fake_slurm.submit(nodes=2)
    fake_slurm.set_queue()
    write_records_of_ended_job(run, seconds=901)
    (run.directory / "provenance").mkdir(exist_ok=True)
    (run.directory / "provenance/slurm.txt").write_text("   RunTime=00:00:01 TimeLimit=00:15:00 TimeMin=N/A\n")
    assert (status("1")["state"], status("1")["limit"]) == ("TIMEOUT", "15:00")
