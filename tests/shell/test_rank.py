"""rank.bash as bash: real pipes, real signals, processes that outlive their parents."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.shell.process import BASH, bash, count_orphans
from tests.waiting import DEADLINE, wait_until

RANK = Path(__file__).parents[2] / "hpcrun" / "shell" / "rank.bash"

COUNTS = """
import signal, sys, time
counts = dict.fromkeys(sys.argv[1:], 0)
def count(number, frame): counts[signal.Signals(number).name] += 1
for name in counts: signal.signal(getattr(signal, name), count)
print("ready", flush=True)
while not all(counts.values()): time.sleep(0.01)
time.sleep(1)
print("heard", *counts.values(), flush=True)
sys.exit(3)
"""


def rank(folder, *argv, number=0, launcher="srun", ntasks=1, **variables):
    """Start a rank in a process group of its own, as launchers do; its files are below a folder."""
    (folder / "logs").mkdir(exist_ok=True)
    environ = {"HPCRUN_RUN_DIR": folder, "HPCRUN_RANK": number, "HPCRUN_LOCAL_RANK": number}
    environ |= {"HPCRUN_LAUNCHER": launcher, "HPCRUN_NTASKS": ntasks, "HPCRUN_SITE_NAME": "dee"}
    environ |= {"hpcrun_visible": "CUDA_VISIBLE_DEVICES", **variables}
    streams = {"stdin": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return bash(RANK, *argv, environ=environ, without=("HPCRUN_", "hpcrun_", "CUDA_", "PMI"), **streams)


def ends(folder, *argv, stdin=None, **how):
    """Run a rank to its end; return its code, what it wrote to the job's log, and its own log."""
    with rank(folder, *argv, **how) as process:
        out, _ = process.communicate(stdin, timeout=DEADLINE)
    return process.returncode, out, (folder / f"logs/rank-{how.get('number', 0)}.log").read_text()


def failed(folder):
    """Return the lines of failed.jsonl."""
    file = folder / "failed.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def signal_name(line):
    return line.split()[-1] if line.startswith("heard") else line


def test_all_output_of_rank_0_is_written_when_it_ends(tmp_path):
    code, out, log = ends(tmp_path, "sh", "-c", "seq 1 100000; echo error >&2; echo END")
    lines = out.splitlines()
    assert (code, lines[0].startswith("[rank 0] host "), lines[-2:]) == (0, True, ["error", "END"])
    assert log.splitlines() == lines[1:]
    assert len(lines) == 100_003


def test_output_of_other_ranks_is_only_in_their_logs(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/rank-2.log").write_text("an earlier start's\n")
    code, out, log = ends(tmp_path, "sh", "-c", "echo here; exit 4", number=2)
    assert (code, log) == (4, "an earlier start's\nhere\n")
    assert out.count("\n") == 1


def test_a_rank_of_several_records_that_it_has_completed(tmp_path):
    for number, code in enumerate((0, 0, 3)):
        ends(tmp_path, "sh", "-c", f"exit {code}", number=number, ntasks=3, hpcrun_ranks=3)
    assert sorted(path.name for path in (tmp_path / "completed").iterdir()) == ["rank-0", "rank-1"]


def test_output_on_all_ranks_prefixes_lines_with_the_rank(tmp_path):
    how = {"number": 3, "hpcrun_output_on_all_ranks": "yes"}
    code, out, log = ends(tmp_path, "sh", "-c", "seq 1 100000; echo END; exit 5", **how)
    assert (code, out.count("\n"), log.count("\n")) == (5, 100_002, 100_001)
    assert out.endswith("[rank 3] 100000\n[rank 3] END\n")


def test_the_program_inherits_stdin_and_the_process_group(tmp_path):
    code, _, log = ends(tmp_path, "sh", "-c", 'read line; echo "got $line"; ps -o pgid= -p $PPID -p $$', stdin="it\n")
    lines = log.split("\n")
    assert (code, lines[0], lines[1]) == (0, "got it", lines[2])


def test_the_program_inherits_file_descriptors(tmp_path):
    reading, writing = os.pipe()
    (tmp_path / "logs").mkdir()
    script = f'exec "{BASH}" "{RANK}" "{BASH}" -c "echo through >&{writing}"'
    environment = {**os.environ, "HPCRUN_RUN_DIR": str(tmp_path), "HPCRUN_RANK": "0", "HPCRUN_LAUNCHER": "srun"}
    environment |= {"hpcrun_visible": "CUDA_VISIBLE_DEVICES", "HPCRUN_LOCAL_RANK": "0"}
    subprocess.run([BASH, "-c", script], env=environment, pass_fds=[writing], check=True, stdout=subprocess.DEVNULL)
    os.close(writing)
    with os.fdopen(reading) as stream:
        assert stream.read() == "through\n"


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "ABRT", "USR2"])
def test_the_rank_dies_by_the_programs_signal(tmp_path, name, number):
    code, out, log = ends(tmp_path, "sh", "-c", f"echo last; kill -s {name} $$", number=number)
    signum = getattr(signal, f"SIG{name}")
    assert (code, log) == (-signum, "last\n")
    assert out.count("\n") == 2 - number  # bash adds nothing of its own
    ((line),) = failed(tmp_path)
    assert (line["rank"], line["exit_code"], line["host"]) == (number, 128 + signum, os.uname().nodename)


@pytest.mark.parametrize("to_all", [False, True])
@pytest.mark.parametrize("name", ["TERM", "USR1", "USR2", "HUP", "INT", "QUIT"])
def test_a_signal_reaches_the_program_once(tmp_path, name, to_all):
    if (name, to_all, "4.2" in BASH) == ("INT", True, True):
        pytest.skip("bash 4.2 cannot undo that its background processes ignore it")
    with rank(tmp_path, sys.executable, "-c", COUNTS, f"SIG{name}") as process:
        process.stdout.readline()
        assert process.stdout.readline() == "ready\n"
        (os.killpg if to_all else os.kill)(process.pid, getattr(signal, f"SIG{name}"))
        assert process.stdout.readline() == "heard 1\n"
        assert process.wait(60) == 3
    assert len(failed(tmp_path)) == (name in {"USR1", "USR2"})  # these need not mean that it is to stop


def test_a_program_that_was_asked_to_stop_has_not_failed(tmp_path):
    with rank(tmp_path, "sleep", "600") as process:
        process.stdout.readline()
        process.terminate()
        assert process.wait(60) == 143
    assert failed(tmp_path) == []


SAVES_LATER = """
import os, signal, sys, time
stopped = []
signal.signal(signal.SIGUSR2, lambda number, frame: stopped.append(number))
print("ready", flush=True)
while not stopped: time.sleep(0.01)
if os.environ["HPCRUN_RANK"] == "0":
    sys.stdin.readline()  # the time that a checkpoint takes
    open(os.path.join(os.environ["HPCRUN_RUN_DIR"], "checkpoint"), "w").close()
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("exit_code", [140, 3])
def test_a_stopped_rank_waits_for_a_rank_that_writes_a_checkpoint(tmp_path, exit_code):
    logs = [tmp_path / f"logs/rank-{n}.log" for n in (0, 1)]
    ranks = [
        rank(tmp_path, sys.executable, "-c", SAVES_LATER, exit_code, number=n, ntasks=2, hpcrun_ranks=2) for n in (0, 1)
    ]
    with ranks[0] as saving, ranks[1] as waiting:
        for log, process in zip(logs, (saving, waiting), strict=True):
            wait_until(lambda log=log: log.exists() and log.read_text())
            process.send_signal(signal.SIGUSR2)
        wait_until((tmp_path / "stopped/rank-1").exists)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1)
        saving.communicate("saved\n", timeout=DEADLINE)
        assert (tmp_path / "checkpoint").exists()
        assert [saving.returncode, waiting.wait(DEADLINE)] == [exit_code, exit_code]


@pytest.mark.parametrize(("line", "seconds"), [('{"rank": 0, "exit_code": 1}', 600), ("", 1)])
def test_a_stopped_rank_does_not_wait_after_a_failure_or_for_ever(tmp_path, line, seconds):
    how = {"number": 1, "ntasks": 2, "hpcrun_ranks": 2, "hpcrun_stop_seconds": seconds}
    with rank(tmp_path, "sh", "-c", "echo ready; exec sleep 600", **how) as process:
        wait_until(lambda: (tmp_path / "logs/rank-1.log").exists() and (tmp_path / "logs/rank-1.log").read_text())
        (tmp_path / "failed.jsonl").write_text(f"{line}\n" if line else "")
        process.terminate()
        assert process.wait(DEADLINE) == 143


def test_a_rank_of_a_cancelled_job_waits_until_it_is_killed(tmp_path):
    program = ("sh", "-c", "echo ready; exec sleep 600")
    with rank(tmp_path, *program, number=1, ntasks=2, hpcrun_ranks=2, hpcrun_stop_seconds=0) as process:
        wait_until(lambda: (tmp_path / "logs/rank-1.log").exists() and (tmp_path / "logs/rank-1.log").read_text())
        record = STOPPED.replace("140", "143").replace("SIGUSR2", "SIGTERM")
        (tmp_path / "exit.json").write_text(f"{record}\n")
        process.terminate()
        wait_until((tmp_path / "stopped/rank-1").exists)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        (tmp_path / "stopped/rank-0").touch()
        assert process.wait(DEADLINE) == 143


def test_a_stopped_rank_whose_run_directory_was_removed_does_not_wait(tmp_path):
    (folder := tmp_path / "run").mkdir()
    with rank(folder, "sh", "-c", "echo ready; exec sleep 600", number=1, ntasks=2, hpcrun_ranks=2) as process:
        wait_until(lambda: (folder / "logs/rank-1.log").exists() and (folder / "logs/rank-1.log").read_text())
        shutil.rmtree(folder)
        process.terminate()
        assert process.wait(30) == 143


def test_a_rank_that_fails_while_it_is_stopped_ends_at_once(tmp_path):
    with rank(
        tmp_path, sys.executable, "-c", COUNTS.replace("exit(3)", "exit(1)"), "SIGUSR2", ntasks=2, hpcrun_ranks=2
    ) as process:
        while process.stdout.readline() != "ready\n":
            pass
        process.send_signal(signal.SIGUSR2)
        assert process.wait(DEADLINE) == 1
    assert [line["exit_code"] for line in failed(tmp_path)] == [1]


STOPPED = '{"exit_code": 140, "reason": "stopped by SIGUSR2", "host": "n1", "job_id": "1", "started": 1, "ended": null}'


@pytest.mark.parametrize("number", [0, 1])
def test_a_rank_of_a_stopping_job_does_not_start_the_program(tmp_path, number):
    (tmp_path / "exit.json").write_text(f"{STOPPED:<1023}\n")
    with rank(tmp_path, "sh", "-c", "echo started; sleep 600", number=number) as process:
        out, _ = process.communicate(timeout=DEADLINE)
    assert (process.returncode, failed(tmp_path)) == (140, [])
    assert "started" not in out
    assert out.endswith(" does not start its program: the job is being stopped\n")


FAILED = '{"rank": 3, "host": "n1", "exit_code": 7, "time": 1}'


@pytest.mark.parametrize(("earlier", "code"), [("0", 7), ("1", 5)])
def test_a_rank_does_not_start_the_program_after_another_has_failed(tmp_path, earlier, code):
    (tmp_path / "failed.jsonl").write_text(f"{FAILED}\n")
    with rank(tmp_path, "sh", "-c", "echo started; exit 5", hpcrun_earlier_failures=earlier) as process:
        out, _ = process.communicate(timeout=DEADLINE)
    assert (process.returncode, "started\n" in out) == (code, earlier == "1")
    assert out.endswith(" does not start its program: rank 3 has failed\n") == (earlier == "0")
    assert len(failed(tmp_path)) == 1 + (earlier == "1")


@pytest.mark.parametrize("record", ["", f"{'':1023}\n", STOPPED.replace("null", "17")])
def test_any_other_record_stops_no_rank(tmp_path, record):
    (tmp_path / "exit.json").write_text(record)
    assert ends(tmp_path, "sh", "-c", "exit 3")[0] == 3


@pytest.mark.parametrize("to_all", [False, True])
@pytest.mark.parametrize("name", ["TERM", "USR2"])
def test_a_signal_before_the_program_starts_is_not_lost(tmp_path, name, to_all):
    slow = tmp_path / "uname"  # of which rank.bash asks the host's name
    slow.write_text(
        f"#!/bin/sh\ntrap '' TERM USR2\n: >{tmp_path}/asked\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.05; done\n"
    )
    slow.chmod(0o755)
    with rank(tmp_path, "sh", "-c", "sleep 600", PATH=f"{tmp_path}:{os.environ['PATH']}") as process:
        assert wait_until((tmp_path / "asked").exists)
        (os.killpg if to_all else os.kill)(process.pid, getattr(signal, f"SIG{name}"))
        (tmp_path / "go").touch()
        assert process.wait(60) == 128 + getattr(signal, f"SIG{name}")
    assert failed(tmp_path) == []


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("code", [0, 3])
def test_no_process_is_left_when_the_rank_ends(tmp_path, code, number):
    """Slurm would wait for a second before it ends the step."""
    (tmp_path / "logs").mkdir()
    environ = {
        "HPCRUN_RUN_DIR": tmp_path,
        "HPCRUN_RANK": number,
        "HPCRUN_LOCAL_RANK": number,
        "HPCRUN_LAUNCHER": "srun",
    }
    environ |= {"hpcrun_visible": "CUDA_VISIBLE_DEVICES"}
    assert count_orphans(RANK, "sh", "-c", f"exit {code}", environ=environ) == (code, 0)


def test_signals_at_the_programs_end_do_not_block(tmp_path):
    for _ in range(10):
        with rank(tmp_path, "sh", "-c", "trap : USR1; echo ready; sleep 0.05; exit 3") as process:
            process.stdout.readline()
            process.stdout.readline()
            while process.poll() is None:
                process.send_signal(signal.SIGUSR1)
                time.sleep(0.02)
            assert process.returncode == 3


def test_the_exit_code_survives_a_signal_at_the_instant_of_the_end(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for number in range(0, 60, 3):
        with rank(tmp_path, "sh", "-c", f"echo >{fifo}; exec sleep 60") as process:
            fifo.read_text()
            time.sleep(number / 10_000)  # bash may be about to wait for the program
            os.killpg(process.pid, signal.SIGTERM)
            assert process.wait(60) == 128 + signal.SIGTERM
    assert failed(tmp_path) == []


@pytest.mark.parametrize("more", [{}, {"hpcrun_output_on_all_ranks": "yes"}])
def test_an_orphan_does_not_keep_the_rank_alive(tmp_path, more):
    pid = tmp_path / "pid"
    begin = time.monotonic()
    code, out, _ = ends(tmp_path, "sh", "-c", f"sleep 600 & echo $! >{pid}; echo END", **more)
    try:
        assert (code, out.endswith("END\n")) == (0, True)
        assert time.monotonic() - begin < 60
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_no_process_is_left_when_the_rank_ends_or_is_killed(tmp_path):
    def remaining_processes():
        found = []
        for file in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"HPCRUN_RUN_DIR={tmp_path}\0".encode() in file.read_bytes():
                    found.append(int(file.parent.name))
            except OSError:
                continue
        return found

    ends(tmp_path, "true")
    assert wait_until(lambda: not remaining_processes())
    with rank(tmp_path, "sleep", "600") as process:
        process.stdout.readline()
        wait_until(lambda: len(remaining_processes()) >= 4)  # bash, witness, tee, sleep
        os.killpg(process.pid, signal.SIGKILL)
        assert wait_until(lambda: not remaining_processes())


def test_a_launcher_that_ignores_exit_codes_gets_a_signal(tmp_path):
    code, _, log = ends(tmp_path, "sh", "-c", "echo last; exit 3", ntasks=2, hpcrun_ignores_failures="yes")
    assert (code, log) == (-signal.SIGTERM, "last\n")
    assert [line["exit_code"] for line in failed(tmp_path)] == [3]
    code, _, _ = ends(tmp_path, "sh", "-c", "exit 3", launcher="mpiexec", ntasks=2)
    assert code == 3


@pytest.mark.parametrize(
    ("number", "node", "environ", "given"),
    [
        (1, None, {"hpcrun_gpus": "0,1,2,3", "hpcrun_gpus_per_rank": 1}, "1"),
        (5, None, {"hpcrun_gpus": "0,1,2,3", "hpcrun_gpus_per_rank": 1}, "1"),
        (1, "4,5,6,7", {"hpcrun_gpus": "0,1,2,3", "hpcrun_gpus_per_rank": 2}, "6,7"),
        (1, "7", {"hpcrun_gpus": "0,1,2,3", "hpcrun_gpus_per_rank": 1}, "7"),
        (1, None, {"hpcrun_gpus": "0,1", "hpcrun_gpus_per_rank": 1, "hpcrun_gpu_order": "1,0"}, "0"),
        (1, "3,2", {}, "3,2"),
        (1, None, {}, "unset"),
    ],
)
def test_a_rank_gets_its_share_of_the_gpus(tmp_path, number, node, environ, given):
    more = {} if node is None else {"CUDA_VISIBLE_DEVICES": node}
    _, out, log = ends(tmp_path, "sh", "-c", "echo ${CUDA_VISIBLE_DEVICES-unset}", number=number, **environ, **more)
    assert log == f"{given}\n"
    assert out == f"[rank {number}] host {os.uname().nodename}, CUDA_VISIBLE_DEVICES={given}\n"


def test_a_rank_that_mpi_cannot_find_gets_a_warning(tmp_path):
    environ = {"hpcrun_wired": "PMI_RANK PMI_FD", "ntasks": 4}
    warning = (
        "hpcrun: WARNING: srun gave the ranks no PMI or PMIx: MPI programs would run as 4 worlds of one rank; "
        "set mpi.type in site dee\n"
    )
    assert warning in ends(tmp_path, "true", **environ)[1]
    assert "WARNING" not in ends(tmp_path, "true", **environ, PMI_FD=7)[1]


def test_large_output_is_complete(tmp_path):
    code, out, log = ends(
        tmp_path, "sh", "-c", "yes 0123456789012345678901234567890123456789 | head -c 20000000; echo END"
    )
    assert (code, len(log)) == (0, 20_000_004)
    assert out.endswith("END\n")
