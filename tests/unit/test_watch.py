"""What `hpcrun watch` shows of jobs, from the files that ranks write, and how it leaves a terminal."""

import fcntl
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from typing import Any

import pytest
from rich.console import Console

from hpcrun.jobs import poll_backoff, record_validation
from hpcrun.jobs.heartbeats import Heartbeat
from hpcrun.jobs.run_files import Epoch
from hpcrun.jobs.runs import Run
from hpcrun.schedulers import slurm
from hpcrun.watch import watcher
from hpcrun.watch.changes import ChangeReporter
from hpcrun.watch.chart import draw_chart
from hpcrun.watch.rank_monitor import RankMonitor, RankStatus, classify_ranks
from hpcrun.watch.training_progress import measure_progress
from hpcrun.watch.view import WatchView
from hpcrun.watch.wait_messages import StartMessages, find_start
from hpcrun.watch.watcher import Watcher
from tests.waiting import DEADLINE, wait_until

pytestmark = pytest.mark.slow

EVERY = 5.0
RUNNING = ("RUNNING", "None", "n[1-2]", "12:31")


def write_beat(run, rank, ago=1.0, **more):
    """Write what a rank says of itself in the middle of a training."""
    said = {"rank": rank, "host": f"n{rank // 4 + 1}", "every": EVERY, "time": time.time() - ago, "ended": False}
    said |= {"phase": "training", "epoch": 3, "epochs": 90, "step": 40, "steps": 390, "first": [1, 0]}
    said |= {"step_seconds": 0.4, "own_seconds": 0.3, "at": "train.py:31 in <module>"}
    if rank == 0:
        said |= {"fit_seconds": 800.0, "logs": {"loss": 0.9123}, "images_per_second": 812.3, "points": []}
    folder = run.directory / "heartbeats"
    folder.mkdir(exist_ok=True)
    (folder / f"rank-{rank}.json").write_text(json.dumps(said | more))


def write_epochs(run, count, **more):
    lines = [
        {"epoch": e + 1, "epochs": 90, "loss": 3 / (e + 1), "images_per_second": 800.0 + e, **more}
        for e in range(count)
    ]
    file = run.directory / "metrics.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    os.utime(file, (1, 1))


@pytest.fixture
def watch_run():
    """Return a function that returns the drawn state of a run; each run has one watcher."""
    watchers = {}

    def observe(run):
        if run not in watchers:
            watchers[run] = Watcher(run)
        wait_until(lambda: watchers[run].update().row)
        return watchers[run].update()

    yield observe
    for each in watchers.values():
        each.poller.close()


@pytest.fixture
def drawn(watch_run):
    def draw(run, width=80, height=24):
        written = io.StringIO()
        console = Console(file=written, width=width, height=height, color_system=None)
        console.print(WatchView(watch_run(run), full_screen=True))
        return written.getvalue()

    return draw


@pytest.fixture
def job(fake_slurm):
    run = fake_slurm.submit("resnet50", nodes=2, ntasks_per_node=4, time="1:00:00")
    fake_slurm.set_queue((1, *RUNNING))
    return run


def test_the_screen_of_a_training(drawn, job):
    write_epochs(job, 2, val_loss=1.5)
    for rank in range(8):
        write_beat(job, rank)
    job.log().write_text("first\nlast line of the log\n")
    text = " ".join(drawn(job).split())
    for words in (
        "job 1 resnet50 on slurm",
        "running on n[1-2], 8 ranks, 12:31 of 1:00:00",
        "2.3 %",
        "epoch 3/90, step 40/390, 812 images/s, 400 ms per step, 9 h",
        "loss 0.9123",
        "val_loss 1.5",
        "loss 3 → 1.5, 1.5 to 3",
        "8 ranks on 2 hosts: all ok",
        "last line of the log",
        "WARNING: at this pace it needs 9 h 18 min more, but its time limit ends in 47 min",
    ):
        assert words in text


def test_the_screen_shows_bytes_and_share_of_communication(drawn, job):
    write_epochs(job, 2)
    write_beat(job, 0, step_seconds=0.4, own_seconds=0.3, sent_bytes=6.62e6, codec="ternary")
    assert "each rank sends 6.62 MB (ternary) per step, communication takes 25 %" in " ".join(drawn(job).split())


@pytest.mark.parametrize("size", [(20, 5), (80, 24), (200, 50)])
@pytest.mark.parametrize("ranks", [0, 1, 8, 300])
def test_the_table_fits_any_terminal(drawn, job, size, ranks):
    write_epochs(job, 2, **{f"metric{number}": 0.5 for number in range(40)})
    for rank in range(ranks):
        write_beat(job, rank, waits="barrier()", waited_seconds=99.0 if rank else 0.0)
    job.log().write_text("x" * 500 + "\n" + "\x1b[31mred\x1b[0m\tand\x07 bells\n" * 99)
    lines = drawn(job, *size).split("\n")
    assert len(lines) <= size[1] + 1
    assert max(map(len, lines)) <= size[0]
    assert "\x1b" not in "".join(lines)


def test_ranks_with_problems_are_shown_first(drawn, job):
    for rank in range(300):
        write_beat(job, rank, own_seconds=0.3 + rank / 10**5)
    write_beat(job, 7, own_seconds=0.4)
    write_beat(job, 255, ago=5 * EVERY)
    for size in ((80, 24), (120, 40)):
        lines = drawn(job, *size).splitlines()
        assert "── 300 ranks on 75 hosts: 1 silent, 1 slow " in "\n".join(lines)
        first, second = (line for line in lines if " ago  " in line)
        assert first.split()[:2] == ["255", "n64"]
        assert first.endswith("silent: dead, stopped or unreachable")
        assert second.split()[:2] == ["7", "n2"]
        assert second.endswith("slow: others take 302 ms")
        assert any(line.startswith("and 2") and "others: 300 ms to 30" in line for line in lines)


def seen(rank, age=1.0, **said):
    return RankStatus(Heartbeat(rank=rank, host="n1", every=EVERY, time=0.0, **{"epoch": 1, **said}), age)


PACE = {"step_seconds": 1.0, "own_seconds": 0.5}
STUCK = {"waits": "the gradients' allreduce of step 41", "waited_seconds": 30.0}


@pytest.mark.parametrize(
    ("ranks", "troubles"),
    [
        ([seen(0, **PACE), seen(1, **PACE)], ["", ""]),
        ([seen(0, **PACE), seen(1, **{**PACE, "own_seconds": 0.65})], ["", ""]),
        ([seen(0, **PACE), seen(1, **{**PACE, "own_seconds": 0.8})], ["", "slow"]),
        ([seen(0, **{**PACE, "own_seconds": 0.05}), *(seen(r, **PACE) for r in (1, 2))], ["", "", ""]),
        ([seen(0), seen(1, age=4 * EVERY + 1)], ["", "silent"]),
        ([seen(0), seen(1, age=4 * EVERY + 1, ended=True)], ["", ""]),
        ([seen(0, **STUCK), seen(1, at="train.py:7 in load"), seen(2, **STUCK)], ["", "awaited", ""]),
        ([seen(0, **STUCK, **PACE), seen(1, **STUCK, **PACE)], ["waiting", "waiting"]),
        ([seen(0, **STUCK), seen(1, waits="barrier()", waited_seconds=1.0)], ["", ""]),  # it has just come
        ([seen(0, **STUCK), seen(1, ended=True), seen(2, **STUCK)], ["waiting", "", "waiting"]),
        ([seen(0, waits="barrier()", waited_seconds=1.0), seen(1)], ["", ""]),
        ([seen(0, **STUCK), seen(1, age=60.0)], ["", "silent"]),
        ([seen(0, **PACE)], [""]),
        ([], []),
    ],
)
def test_the_slowest_rank_is_named(ranks, troubles):
    found = classify_ranks(ranks)
    assert [rank.trouble for rank in found] == troubles
    for rank in found:
        if rank.trouble == "awaited":
            assert rank.description == "awaited: it is at train.py:7 in load"


def test_a_slow_clock_does_not_make_a_rank_silent(job):
    write_beat(job, 0)
    write_beat(job, 1, ago=3600)
    ranks = RankMonitor(job.directory)
    assert [rank.trouble for rank in ranks.update()] == ["", "silent"]
    write_beat(job, 1, ago=3599)
    assert [rank.trouble for rank in ranks.update()] == ["", ""]


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ({"epoch": 3, "step": 0, "fit_seconds": 200.0}, 800),  # 2 of 10 epochs in 200 s, with validation
        ({"epoch": 3, "step": 5, "fit_seconds": 250.0}, 750),
        ({"epoch": 1, "step": 5, "fit_seconds": 60.0}, 95),  # the first step takes long: 1 s for each of 95 left
        ({"epoch": 9, "step": 0, "fit_seconds": 100.0, "first": [8, 0]}, 200),  # from a checkpoint
        ({"epoch": 10, "step": 10, "phase": "trained", "fit_seconds": 900.0}, 0),
        ({"epoch": 1, "step": 0, "step_seconds": 0.0}, None),
        ({"epoch": 3, "step": 0, "epochs": 0}, None),
        ({"epoch": 3, "step": 5, "steps": 0, "fit_seconds": 200.0}, 800),
        ({"epoch": 3, "step": 0, "fit_seconds": 200.0, "first": ["x"]}, 800),
    ],
)
def test_the_remaining_time_is_estimated(said, left):
    known = {"epochs": 10, "steps": 10, "step_seconds": 1.0, "first": [1, 0], "phase": "training"}
    heartbeat = Heartbeat(rank=0, every=EVERY, time=0.0, **known | said)
    found = measure_progress([], heartbeat, is_newer=True, heartbeat_age=0.0).seconds_left
    assert found == (left if left is None else pytest.approx(left))


def test_final_figures_are_those_of_all_ranks():
    last = record_validation.parse_record(Epoch, {"epoch": 10, "epochs": 10, "loss": 0.5, "val_loss": 0.6})
    said: dict[str, Any] = {
        "epoch": 10,
        "epochs": 10,
        "step": 7,
        "steps": 7,
        "logs": {"loss": 0.4},
        "every": EVERY,
        "time": 0.0,
    }
    for phase, place, loss in (("training", "epoch 10/10, step 7/7", 0.4), ("trained", "epoch 10/10", 0.5)):
        found = measure_progress([last], Heartbeat(rank=0, phase=phase, **said), is_newer=True, heartbeat_age=0.0)
        assert (found.position, found.metrics, found.done) == (place, {"loss": loss, "val_loss": 0.6}, 1.0)
    assert measure_progress([last], None, is_newer=False, heartbeat_age=0.0).metrics == {"loss": 0.5, "val_loss": 0.6}


def test_training_that_stopped_early_is_done():
    said: dict[str, Any] = {
        "fit_seconds": 90.0,
        "every": EVERY,
        "time": 0.0,
        "epoch": 4,
        "epochs": 10,
        "step": 7,
        "steps": 7,
    }
    found = measure_progress([], Heartbeat(rank=0, phase="trained", **said), is_newer=True, heartbeat_age=0.0)
    assert (found.position, found.done, found.seconds_left) == ("epoch 4/10, stopped early", 1.0, 0.0)
    found = measure_progress([], Heartbeat(rank=0, phase="training", **said), is_newer=True, heartbeat_age=0.0)
    assert (found.position, found.done) == ("epoch 4/10, step 7/7", 0.4)


@pytest.mark.parametrize(("code", "shown"), [(0, 0), (3, 1)])
def test_the_last_screen_of_a_failed_job_has_its_log(drawn, job, fake_slurm, code, shown):
    job.log().write_text("the end of the log\n")
    fake_slurm.write_exit_record(job, code)
    fake_slurm.set_queue()
    assert drawn(job).count("the end of the log") == shown


def test_metrics_alone_give_progress(drawn, job):
    write_epochs(job, 45, seconds=20.0)
    text = drawn(job)
    assert "epoch 45/90, 844 images/s, 15 min left (until " in text
    assert " 50.0 %" in text
    assert "ranks on" not in text


def test_any_program_has_a_state_and_a_log(drawn, job):
    job.log("err").write_text("from MPI\n")
    job.log().write_text("10 %\r20 %\r30 %\nhello\nno end yet")
    text = drawn(job)
    assert [line.rstrip() for line in text.splitlines()[2:]] == ["── log " + "─" * 73, "from MPI", "30 %", "hello"]


def test_a_nan_loss_is_reported(drawn, job):
    write_beat(job, 0, logs={"loss": None, "accuracy": 0.1})
    assert "WARNING: loss: not a finite number (nan or inf)" in drawn(job)


def test_a_pending_job_shows_reason_and_expected_start(drawn, job, fake_slurm):
    fake_slurm.replace_command(
        "squeue", "case $* in *--me*) echo '1|PENDING|Priority||0:00';; *%S*) echo '2026-06-01T08:00:00|gpu|9|';; esac"
    )
    text = " ".join(drawn(job).split())
    assert "pending, 2 nodes, 8 ranks, limit 1:00:00" in text
    assert "why: jobs of higher priority are ahead of it" in text
    assert "expected to start at 2026-06-01T08:00:00, unless the queue changes" in text
    assert "what to do: nothing: it starts when they have started" in text


def test_the_scheduler_is_polled_seldom(watch_run, job, fake_slurm):
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
        assert watch_run(job).is_running
    assert len(fake_slurm.calls("squeue")) == 1


def start(run):
    """Write what a job's script writes when it starts."""
    with (run.directory / "starts.jsonl").open("a") as file:
        file.write('{"job_id": "1", "host": "n1"}\n')


def test_ends_and_restarts_are_detected_between_polls(watch_run, drawn, job, fake_slurm, monkeypatch):
    monkeypatch.setattr(slurm.SlurmScheduler, "max_poll_seconds", 60.0)
    monkeypatch.setattr(poll_backoff, "BACKOFF_FRACTION", 1e6)  # long enough on a busy machine
    assert watch_run(job).is_running
    begin = time.monotonic()
    start(job)
    write_beat(job, 0)
    record = {"exit_code": 143, "reason": "stopped by SIGTERM", "host": "n1", "started": 10, "ended": 75}
    fake_slurm.set_queue((1, "PENDING", "BeginTime", "", "0:00"))
    (job.directory / "exit.json").write_text(json.dumps(record))
    waiting = wait_until(lambda: (seen := watch_run(job)).explanation and seen)
    assert (waiting.finished, waiting.ranks) == (False, ())
    fake_slurm.set_queue((1, *RUNNING))
    (job.directory / "exit.json").unlink()
    start(job)
    job.log().write_text("it has started\n")
    assert wait_until(lambda: (seen := watch_run(job)).is_running and seen).row.starts == 2
    assert "started again 1 time" in drawn(job)
    assert time.monotonic() - begin < slurm.SlurmScheduler.max_poll_seconds
    fake_slurm.write_exit_record(job)
    assert watch_run(job).finished


def end(run, code, reason, **more):
    record = {
        "exit_code": code,
        "reason": reason,
        "host": "n1",
        "started": int(time.time()) - 65,
        "ended": int(time.time()),
        **more,
    }
    (run.directory / "exit.json").write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("code", "reason", "more"),
    [
        (137, "the ranks ended with exit code 137", {}),  # a node failed
        (143, "stopped by SIGTERM", {}),
        (140, "the ranks ended with exit code 140; requeued, 1 of at most 3 times", {"requeued": True}),
    ],
)
def test_a_requeued_job_is_still_followed(watch_run, job, fake_slurm, code, reason, more):
    assert watch_run(job).is_running
    fake_slurm.set_queue((1, "PENDING", "BeginTime", "", "0:00"))
    end(job, code, reason, **more)
    waiting = wait_until(lambda: (seen := watch_run(job)).explanation and seen)
    assert (waiting.finished, waiting.row.state) == (False, "PENDING")


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_job_that_resubmits_itself_is_still_followed(watch_run, job, fake_slurm, when):
    """Its old id has ended, and Slurm says that it failed."""
    lines = ChangeReporter()
    assert lines.describe_changes(watch_run(job)) == ["job 1 (resnet50) is running on n[1-2]"]
    file = job.directory / "submitted.json"
    again = f'sed -i \'s/"job_id": "1"/"job_id": "2"/\' {file}'
    if when == "before":
        file.write_text(file.read_text().replace('"1"', '"2"'))
    fake_slurm.set_queue((1, "FAILED", "NonZeroExitCode", "n1", "1:05"), (2, *RUNNING))
    fake_slurm.replace_command("squeue", f"{again}\ncat {fake_slurm.folder}/queue")
    end(job, 140, "the ranks ended with exit code 140; job 2 goes on with it", requeued=True)
    seen = wait_until(lambda: (seen := watch_run(job)).row.job_id == "2" and seen)
    assert (seen.finished, seen.is_running, seen.run.job_id) == (False, True, "2")
    assert lines.describe_changes(seen) == ["job 2 (resnet50) is running on n[1-2]"]
    fake_slurm.replace_command("squeue", f"cat {fake_slurm.folder}/queue")
    end(job, 3, "the ranks ended with exit code 3")
    assert watch_run(job).finished


def test_a_resubmitted_job_ends_under_its_new_id(job, fake_slurm):
    argv = [sys.executable, "-m", "hpcrun", "watch", "1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert watching.stdout.readline().endswith("  job 1 (resnet50) is running on n[1-2]\n")
        file = job.directory / "submitted.json"
        file.write_text(file.read_text().replace('"1"', '"2"'))
        fake_slurm.set_queue((2, *RUNNING))
        end(job, 3, "the ranks ended with exit code 3")
        assert watching.wait(60) == 0
        assert "job 2 ended FAILED: the ranks ended with exit code 3" in watching.stderr.read()


def test_waiting_ranks_are_reported_once(watch_run, drawn, job):
    lines = ChangeReporter()
    for rank in range(8):
        write_beat(job, rank, **STUCK)
    write_beat(job, 1, waits="barrier()", waited_seconds=20.0)
    write_beat(job, 7, ended=True)
    warning = (
        f"no rank makes progress: rank 0 waits 30 s in {STUCK['waits']}, rank 1 waits 20 s in barrier(), 1 rank ended"
    )
    assert "8 ranks on 2 hosts: 7 waiting" in drawn(job)
    assert f"WARNING: {warning}" in " ".join(drawn(job, width=200).split())
    assert [line for line in lines.describe_changes(watch_run(job)) if "rank" in line] == [f"WARNING: {warning}"]
    assert lines.describe_changes(watch_run(job)) == []
    for rank in range(8):
        write_beat(job, rank)
    assert lines.describe_changes(watch_run(job)) == []


@pytest.mark.parametrize(("requeue", "phase", "warned"), [
    (0, "training", True), (3, "training", False), (0, "trained", False),
])  # fmt: skip
def test_the_time_limit_warning_appears_only_if_the_job_would_reach_it(watch_run, fake_slurm, requeue, phase, warned):
    run = fake_slurm.submit("net", time="1:00:00", max_requeue=requeue)
    fake_slurm.set_queue((1, *RUNNING))
    write_beat(run, 0, phase=phase)
    assert ("limit" in watch_run(run).warnings) == warned


def test_each_fit_of_a_script_is_distinguished(watch_run, drawn, job):
    first = [{"epoch": e, "epochs": 2, "loss": 8.0 / e} for e in (1, 2)]
    second = [{"fit": 1, "epoch": e, "epochs": 90, "loss": 4.0 / e} for e in (1, 2)]
    file = job.directory / "metrics.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in first + second))
    os.utime(file, (1, 1))
    text = " ".join(drawn(job).split())
    assert "fit 2, epoch 2/90" in text
    assert "loss 4 → 2" in text
    assert "fit 1 " not in text  # as a figure
    assert ChangeReporter().describe_changes(watch_run(job))[-1] == "fit 2, epoch 2/90  loss 2"
    write_beat(job, 0, fit=2, epoch=1)
    assert "fit 3, epoch 1/90, step 40/390" in drawn(job)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "7", '{"rank": 0}', '{"rank": 0, "time": "x", "every": 5}', "\udcff"]
)
@pytest.mark.parametrize("file", ["heartbeats/rank-0.json", "metrics.jsonl"])
def test_invalid_files_are_ignored(drawn, watch_run, job, file, content):
    write_beat(job, 0)
    write_beat(job, 1)
    write_epochs(job, 1)
    (job.directory / file).write_text(content, errors="surrogateescape")
    assert "running" in drawn(job)
    assert ChangeReporter().describe_changes(watch_run(job))


@pytest.mark.parametrize(
    "more",
    [
        {"points": [[None, None], [1], "x", [2, 3]]},
        {"first": []},
        {"first": None},
        {"epochs": None},
        {"steps": None},
        {"steps": -1},
        {"epoch": "x"},
        {"logs": {"loss": "x", "each": [1, 2]}},
        {"images_per_second": "x"},
        {"step_seconds": 0},
        {"fit_seconds": 1e300},
    ],
)
def test_implausible_figures_are_ignored(drawn, job, more):
    write_beat(job, 0, **more)
    assert "1 of 8 ranks on 1 host" in drawn(job)


def test_the_loss_chart_is_drawn():
    assert draw_chart([0, 7], 2, 1) == ["▁█"]
    assert draw_chart([0, 15], 4, 2) == ["  ██", "▁▁██"]
    assert draw_chart([4, 4], 2, 1) == ["▄▄"]
    assert draw_chart([1, None, 2, 2], 2, 1) == ["▁█"]
    assert draw_chart([None, 1.0, None, 2.0], 4, 1) == [" ▁ █"]
    assert draw_chart([8, 9], 2, 1, floor=0) == ["▇█"]
    assert draw_chart([None], 3, 2) == ["   ", "   "]


def start_rank(run, *, ago=20.0, text="[rank 0] host n1, CUDA_VISIBLE_DEVICES=unset\n"):
    """Write the files of a rank 0 that has started its program."""
    (run.directory / "starts.jsonl").write_text('{"job_id": "1"}\n')
    log = run.directory / "logs/rank-0.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text(text)
    for file in (log, run.directory / "starts.jsonl"):
        os.utime(file, (time.time() - ago, time.time() - ago))


IMPORTING = {"phase": "", "epoch": 0, "activity": "imports TensorFlow", "activity_seconds": 19.0}


def test_start_of_rank_0_is_shown(watch_run, drawn, job, fake_slurm):
    lines = ChangeReporter()
    fake_slurm.set_queue((1, *RUNNING))
    start_rank(job)
    write_beat(job, 0, **IMPORTING)
    assert wait_until(lambda: [line for line in lines.describe_changes(watch_run(job)) if "imports" in line]) == [
        "rank 0 imports TensorFlow, 20 s so far"
    ]
    assert "rank 0 imports TensorFlow, 20 s so far" in drawn(job)
    write_beat(job, 0)
    assert "imports" not in drawn(job)


@pytest.mark.parametrize(("argv", "text", "expected"), [
    (("/usr/bin/python3.12", "train.py"), "[rank 0] host n1, CUDA_VISIBLE_DEVICES=unset\n", "rank 0 starts Python"),
    (("python3", "train.py"), "[rank 0] host n1, CUDA_VISIBLE_DEVICES=unset\nloading\n", None),
    (("a.out",), "[rank 0] host n1, CUDA_VISIBLE_DEVICES=unset\n", None),
])  # fmt: skip
def test_silent_start_of_python_is_found_without_heartbeats(job, argv, text, expected):
    record = json.loads((job.directory / "job.json").read_text())
    (job.directory / "job.json").write_text(json.dumps(record | {"argv": argv}))
    assert find_start(Run(job.directory)) is None
    start_rank(job, text=text)
    found = find_start(Run(job.directory))
    assert (found and found[0].startswith(expected) and 19 < found[1] < 60) if expected else found is None


def test_heartbeat_of_an_earlier_start_is_not_this_start(job):
    start_rank(job, ago=5.0, text="epoch 1\n")
    write_beat(job, 0, ago=60.0, **IMPORTING)
    assert find_start(job) is None


def test_start_is_reported_after_2_s_and_then_every_10_s():
    messages = StartMessages()
    said = [(s, text) for s in range(40) if (text := messages.describe(("rank 0 imports JAX", float(s))))]
    assert said == [(s, f"rank 0 imports JAX, {s} s so far") for s in (2, 12, 22, 32)]


def test_each_change_is_a_line(watch_run, job, fake_slurm):
    lines = ChangeReporter()

    def new():
        return lines.describe_changes(watch_run(job))

    fake_slurm.set_queue((1, "PENDING", "Resources", "", "0:00"))
    assert new() == ["job 1 (resnet50) is pending: it is next in line, and the nodes that it needs are busy"]
    assert new() == []
    fake_slurm.set_queue((1, *RUNNING))
    job.log().write_text("it has started\n")
    assert wait_until(new) == ["job 1 (resnet50) is running on n[1-2]"]
    write_beat(job, 0, fit_seconds=10.0, **STUCK)
    write_beat(job, 3, at="train.py:7 in load")
    assert new() == ["WARNING: rank 3 on n1 is awaited: it is at train.py:7 in load"]
    write_beat(job, 0, fit_seconds=10.0)
    write_beat(job, 3, own_seconds=0.39)
    assert new() == ["WARNING: rank 3 on n1 is slow: others take 300 ms per step without waiting, it takes 390 ms"]
    write_beat(job, 3)
    write_epochs(job, 2)
    assert new() == ["epoch 2/90  loss 1.5  801 images/s"]
    write_beat(job, 3, own_seconds=0.39)
    assert new() == []  # it comes and goes
    write_epochs(job, 4)
    assert new() == ["epoch 3/90  loss 1  802 images/s", "epoch 4/90  loss 0.75  803 images/s"]
    (job.directory / "metrics.jsonl").unlink()  # it was started again
    assert new() == []
    write_epochs(job, 1)
    assert new() == ["epoch 1/90  loss 3  800 images/s"]
    write_beat(job, 0, fit_seconds=10000.0)
    assert new() == ["WARNING: at this pace it needs 4 d 20 h more, but its time limit ends in 47 min"]
    assert new() == []


def test_changes_of_many_ranks_are_counted(watch_run, job):
    for rank in range(300):
        write_beat(job, rank, fit_seconds=10.0, ago=100)
    found = ChangeReporter().describe_changes(watch_run(job))
    assert found[1] == "WARNING: rank 0 on n1 is silent: dead, stopped or unreachable; its last heartbeat was 2 min ago"
    assert found[8].startswith("WARNING: rank 7 on n2 is silent")
    assert found[9] == "  and 292 more ranks"


def test_without_a_terminal_watch_prints_lines_until_the_end(job, fake_slurm):
    argv = [sys.executable, "-m", "hpcrun", "watch", "1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert watching.stdout.readline().endswith("  job 1 (resnet50) is running on n[1-2]\n")
        fake_slurm.write_exit_record(job, 3)
        assert watching.wait(60) == 0
        assert "job 1 ended FAILED: the ranks ended with exit code 3" in watching.stderr.read()


def test_a_refused_submission_is_reported(cli, job):
    (job.directory / "submitted.json").unlink()
    code, _, err = cli("watch", str(job.directory))
    assert (code, "was never submitted" in err) == (2, True)


def test_an_ended_job_is_shown_once(cli, job, fake_slurm, monkeypatch):
    (job.directory / "result.json").write_text(json.dumps({"test_accuracy": 0.97}))
    fake_slurm.write_exit_record(job)
    fake_slurm.set_queue((1, "COMPLETED", "None", "n1", "1:05"))
    write_epochs(job, 2)
    code, out, _ = cli("watch")
    assert code == 0
    assert "test accuracy   0.97" in out
    monkeypatch.setattr(watcher, "UNKNOWN_JOB_TIMEOUT_SECONDS", 0.0)
    other = fake_slurm.submit("other")
    fake_slurm.set_queue()
    code, out, err = cli("watch", other.job_id)
    assert (code, "job 2 ended UNKNOWN: Slurm does not know this job" in err) == (0, True)


def size(terminal, lines, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


BREAKS = """
from hpcrun.watch import view
from hpcrun.cli.main import main
import os
drawn = view.render_lines
def lines(*args):
    if os.path.exists({file!r}):
        raise RuntimeError("a bug")
    return drawn(*args)
view.render_lines = lines
main()
"""


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("end", 0, "job 1 ended FAILED: the ranks ended with exit code 3"),
        (
            "SIGINT",
            130,
            "no longer watching; job 1 goes on: hpcrun watch 1 watches it again, hpcrun cancel 1 cancels it",
        ),
        ("SIGTERM", 143, ""),
        ("a bug", 1, "RuntimeError: a bug"),
    ],
)
def test_the_terminal_state_is_restored(job, fake_slurm, tmp_path, how, code, says):
    write_beat(job, 0)
    master, terminal = pty.openpty()
    size(terminal, 24, 80)
    before = termios.tcgetattr(terminal)
    bug = tmp_path / "bug"
    argv = [sys.executable, "-c", BREAKS.format(file=str(bug)), "watch"]
    environment = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "LINES"}} | {"TERM": "xterm"}
    shown = bytearray()

    def shows(words, since=0):
        while words not in shown[since:]:
            ready, _, _ = select.select([master], [], [], DEADLINE)
            assert ready, shown.decode()[-2000:]
            shown.extend(os.read(master, 65536))

    with subprocess.Popen(argv, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as watching:
        shows(b"\xe2\x94\x80" * 60)  # a rule over the whole width
        assert b"\xe2\x94\x80" * 81 not in shown
        size(terminal, 40, 160)
        watching.send_signal(signal.SIGWINCH)
        shows(b"\xe2\x94\x80" * 130, since=len(shown))
        if how == "end":
            fake_slurm.write_exit_record(job, 3)
        elif how == "a bug":
            bug.touch()
        else:
            watching.send_signal(getattr(signal, how))
        shows(b"\x1b[?1049l")
        assert watching.wait(60) == code
    after = termios.tcgetattr(terminal)
    os.close(terminal)
    with suppress(OSError):  # which is the terminal's end
        while True:
            shown.extend(os.read(master, 65536))
    os.close(master)
    assert after == before
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == 1  # the other screen, and back
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")  # the cursor is shown
    assert says in shown.partition(b"\x1b[?1049l")[2].decode()
    assert fake_slurm.calls("scancel") == []
