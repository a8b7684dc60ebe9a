"""Logs: the end of long ones, lines with a pattern, several ranks, and files that grow while they are read."""

import json
import os
import pty
import subprocess
import sys

import pytest

from hpcrun.errors import HpcrunError
from hpcrun.jobs import logs
from hpcrun.jobs.logs import LogReader, Tail
from hpcrun.jobs.runs import Run
from tests.waiting import DEADLINE


@pytest.fixture
def job(fake_slurm):
    """A job of three ranks on two hosts, with a log."""
    run = fake_slurm.submit("job", ntasks=3)
    run.log("out").write_text(
        "".join(f"[rank {rank}] host n{rank // 2 + 1}, CUDA_VISIBLE_DEVICES=unset\n" for rank in range(3))
        + "epoch 1\nloss nan\nepoch 2\n"
    )
    run.log("err").write_text("WARNING: slow\n")
    for rank in range(3):
        (run.directory / f"logs/rank-{rank}.log").write_text(f"first of {rank}\nsecond of {rank}\nno end {rank}")
    return run


@pytest.mark.parametrize("block", [1, 3, 1 << 16])
@pytest.mark.parametrize(
    "text", ["", "\n", "\n\n\n", "a", "a\n", "a\nb", "a\nb\n\n", "one\ntwo\rstill\nthree\u00e9\nfour\n"]
)
def test_last_shows_the_last_lines(tmp_path, monkeypatch, text, block):
    monkeypatch.setattr(logs, "BLOCK_BYTES", block)
    file = tmp_path / "log"
    file.write_bytes(text.encode())
    whole = text.split("\n")
    ends = [f"{line}\n" for line in whole[:-1]] + whole[-1:] * bool(whole[-1])
    for number in range(7):
        tail = Tail(file)
        tail.skip_to_last(number)
        assert tail.read_new() == "".join(ends[len(ends) - min(number, len(ends)) :]), number


def test_only_the_end_of_a_long_log_is_read(tmp_path):
    file = tmp_path / "log"
    with file.open("wb") as stream:
        stream.truncate(1 << 40)  # no disk has that; nor has the memory
        stream.seek(1 << 40)
        stream.write(b"\none\ntwo\n")
    tail = Tail(file)
    tail.skip_to_last(2)
    assert tail.read_new() == "one\ntwo\n"


def test_a_log_that_appears_later_or_is_truncated_is_followed(tmp_path):
    file = tmp_path / "log"
    log = LogReader(file, line_count=5)
    assert log.read_new() == ""
    file.write_text("one\ntwo\n")
    assert log.read_new() == "one\ntwo\n"
    file.write_text("new\n")
    assert log.read_new() == "new\n"


def test_only_complete_lines_are_matched(tmp_path):
    file = tmp_path / "log"
    log = LogReader(file, line_prefix=lambda _last: "> ", pattern=logs.compile_pattern("^ab+$"))
    shown = ""
    with file.open("a") as stream:
        for part in ("a", "b\nx", "ab\nab", "b"):
            stream.write(part)
            stream.flush()
            shown += log.read_new()
    assert shown == "> ab\n"
    assert log.read_new(ended=True) == "> abb\n"
    assert log.read_new(ended=True) == ""


@pytest.mark.parametrize(("text", "expected"), [("0", [0]), ("0,3-5", [0, 3, 4, 5]), ("5,3-5,3", [5, 3, 4])])
def test_lists_of_ranks_are_parsed(text, expected):
    assert logs.parse_ranks(text) == expected


@pytest.mark.parametrize("text", ["", "a", "-1", "3-1", "1-", "1,,2", "0-999999999", "1.5"])
def test_invalid_lists_of_ranks_are_errors(text):
    with pytest.raises(HpcrunError, match="invalid list of ranks"):
        logs.parse_ranks(text)


def test_grep_and_lines_can_be_combined(cli, job):
    assert cli("logs", "-n", "1")[1:] == ("epoch 2\n", "WARNING: slow\n")
    assert cli("logs", "--grep", "epoch [0-9]")[1:] == ("epoch 1\nepoch 2\n", "")
    assert cli("logs", "--grep", "epoch|nan", "-n", "2")[1] == "loss nan\nepoch 2\n"
    assert cli("logs", "-n", "0")[1] == ""
    assert cli("logs", "--rank", "1", "-n", "1")[1] == "no end 1"
    code, _, err = cli("logs", "--grep", "loss [nan")
    assert code == 2
    assert "--grep 'loss [nan' is not a valid regular expression: unterminated character set at character 6" in err
    assert "HINT: " in err


def test_the_warning_about_ranks_that_worked_alone_comes_first(cli, job, fake_slurm):
    (job.directory / "alone").touch()
    assert cli("logs")[2] == "WARNING: slow\n"  # a running job may still join a world
    fake_slurm.write_exit_record(job)
    assert cli("logs")[2] == "WARNING: each of the 3 ranks worked alone\nWARNING: slow\n"
    assert cli("logs", "--rank", "1")[2] == "WARNING: each of the 3 ranks worked alone\n"


def test_lines_of_several_ranks_begin_with_rank_and_host(cli, job):
    _, out, _ = cli("logs", "--rank", "0,2", "-n", "2")
    assert out == (
        "[rank 0 on n1] second of 0\n[rank 0 on n1] no end 0\n[rank 2 on n2] second of 2\n[rank 2 on n2] no end 2\n"
    )
    assert cli("logs", "--rank", "0-2", "--grep", "^second of [12]")[1] == (
        "[rank 1 on n1] second of 1\n[rank 2 on n2] second of 2\n"
    )
    assert cli("logs", "--rank", "1")[1] == "first of 1\nsecond of 1\nno end 1"
    code, _, err = cli("logs", "--rank", "1-4")
    assert (code, "no log of ranks 3, 4; it has those of ranks 0 to 2" in err) == (2, True)


def test_several_ranks_are_followed_until_the_job_ends(fake_slurm, job):
    fake_slurm.set_queue((1, "RUNNING", "None", "n1", "0:01"))
    argv = [sys.executable, "-m", "hpcrun", "logs", "-f", "--rank", "0,2-3"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        first = [following.stdout.readline() for _ in range(4)]
        assert first == [
            f"[rank {rank} on n{rank // 2 + 1}] {word} of {rank}\n" for rank in (0, 2) for word in ("first", "second")
        ]
        (job.directory / "logs/rank-3.log").write_text("late\n")
        assert following.stdout.readline() == "[rank 3] late\n"
        with job.log().open("a") as stream:  # the job was started again, elsewhere
            stream.write("[rank 0] host n9, CUDA_VISIBLE_DEVICES=unset\n")
        with (job.directory / "logs/rank-0.log").open("a") as stream:
            stream.write(" again\nand on\n")
        lines = [following.stdout.readline() for _ in range(2)]
        assert lines == ["[rank 0 on n9] no end 0 again\n", "[rank 0 on n9] and on\n"]
        fake_slurm.write_exit_record(job)
        assert following.stdout.read() == "[rank 2 on n2] no end 2\n"
        assert following.wait(60) == 0


def test_following_a_job_that_slurm_lost_ends(cli, fake_slurm, monkeypatch):
    monkeypatch.setattr(logs, "UNKNOWN_JOB_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(Run, "poll_seconds", 0.1)
    fake_slurm.submit("lost")
    fake_slurm.replace_command(
        "squeue", f"[ $(wc -l <{fake_slurm.folder}/squeue.calls) -gt 2 ]"
    )  # it does not answer, then does
    code, _, err = cli("logs", "-f", "lost")
    assert (code, "job 1 ended UNKNOWN: Slurm does not know this job (any more)" in err) == (0, True), err
    assert len(fake_slurm.calls("squeue")) > 4


def test_a_job_without_output_has_no_log_yet(cli, job, fake_slurm):
    assert "no log" not in cli("logs", "job")[2]
    for end in ("out", "err"):
        job.log(end).unlink()
    assert cli("logs", "job") == (0, "", "job 1 has no log yet\n")
    fake_slurm.set_queue(("1", "PENDING", "Priority", "", "0:00", "1:00", f"{job.directory}/job.sh"))
    assert cli("logs", "job") == (0, "", "job 1 has no log yet\n")


@pytest.mark.parametrize("more", [(), ("-f",), ("--grep", "x")])
def test_a_job_without_a_log_is_reported_with_a_failure_code(cli, job, fake_slurm, more):
    for end in ("out", "err"):
        job.log(end).unlink()
    command = f"{job.directory}/job.sh"
    fake_slurm.set_queue(("1", "FAILED", "JobLaunchFailure", "n1", "0:00", "1:00", command))
    code, out, err = cli("logs", "job", *more)
    assert (code, out) == (1, "")
    assert err == "ERROR: job 1 ended FAILED without a log\nHINT: hpcrun why 1 explains why it ended\n"
    fake_slurm.stop_responding()
    fake_slurm.write_exit_record(job)
    assert cli("logs", "job")[2].startswith("ERROR: job 1 ended COMPLETED without a log")


HOSTILE = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J\x9b2J \u202etxt.exe\r1/2\r2/2\b\n"


def test_a_terminal_gets_only_colours_and_progress_bars_of_a_log(fake_slurm, monkeypatch, cli):
    run = fake_slurm.submit()
    fake_slurm.write_exit_record(run)
    (run.directory / "1_0_log.out").write_bytes(HOSTILE.encode() + b"\xff\n")
    done = subprocess.run([sys.executable, "-m", "hpcrun", "logs"], capture_output=True, check=True)
    assert done.stdout == HOSTILE.encode() + b"\xff\n"  # in a pipe its bytes are kept
    reader, writer = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "hpcrun", "logs"], stdout=writer, stderr=writer) as process:
        process.wait(timeout=DEADLINE)
    shown = os.read(reader, 10_000).decode().replace("\r\n", "\n")
    os.close(writer)
    os.close(reader)
    assert shown == ("\x1b[31mred\x1b[0m \\x1b]0;title\\x07 \\x1b[2J\\x9b2J \\u202etxt.exe\r1/2\r2/2\b\n\ufffd\n")


@pytest.mark.parametrize("command", [("why", "1"), ("watch", "1"), ("compare", "1", "2", "--all", "--script")])
def test_control_sequences_in_a_log_are_escaped(fake_slurm, cli, command):
    for _ in range(2):
        run = fake_slurm.submit()
        spec = run.directory / "job.json"
        spec.write_text(json.dumps({**json.loads(spec.read_text()), "name": "a\x1b[2Jb"}))
        fake_slurm.write_exit_record(run, code=3)
        for end in ("out", "err"):
            (run.directory / f"{run.job_id}_0_log.{end}").write_text(HOSTILE)
        (run.directory / "metrics.jsonl").write_text('{"epoch": 1, "l\\u001b[2Jss": "\\u009b2J"}\n')
        (run.directory / "result.json").write_text('{"a\\u001b[2J": "\\u202e"}')
        with (run.directory / "job.sh").open("a") as script:
            script.write(f"# {run.job_id} \x1b[2J\n")
    _, out, err = cli(*command)
    assert not set("\x1b\x9b\u202e\x07\b") & set(out + err), out + err
    assert "2J" in out + err
