"""A job that cannot succeed ends at once, on all ranks, with an error message."""

import os
import platform
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run

pytestmark = [pytest.mark.mpi, needs_mpi]

FAILING = PROGRAMS / "failing.py"
SRUN = {"HPCRUN_SITE_NAME": "styx", "HPCRUN_LAUNCHER": "srun", "HPCRUN_MPI_TYPE": "none"}


def test_import_starts_nothing():
    code = "import sys, hpcrun.train; print(*{'mpi4py', 'tensorflow', 'keras', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_mpi_singletons_are_an_error():
    outcome = run(4, FAILING, "singletons", HPCRUN_NTASKS="4", **SRUN)
    assert outcome.code != 0
    assert outcome.stderr.count("MPI started 1 rank where the job has 4: site styx, launcher srun --mpi=none") == 4
    assert "HINT: set `mpi.type` in the site file" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_too_few_ranks_are_an_error():
    outcome = run(2, FAILING, "singletons ", HPCRUN_NTASKS="3", HPCRUN_LAUNCHER="mpiexec")
    assert outcome.code != 0
    assert (
        "MPI started 2 ranks where the job has 3: site unknown, launcher mpiexec, MPI library MPICH" in outcome.stderr
    )


HOST = platform.node()
TRACEBACK = "Traceback (most recent call last):\n"


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        ("raise", 1, f"[rank 1/2 on {HOST}] {TRACEBACK}"),
        ("exit", 3, f"[rank 1/2 on {HOST}] error: sys.exit(3) at failing.py:"),
        ("refuse", 2, f"[rank 1/2 on {HOST}] error: this cannot be\nHINT: do that\n"),
        ("interrupt", 130, f"[rank 1/2 on {HOST}] interrupted\n"),
    ],
)
def test_an_error_on_one_rank_ends_all_ranks(failure, code, message):
    outcome = run_to_failure(2, failure)
    assert outcome.code == code
    assert outcome.stderr.startswith(message) or f"\n{message}" in outcome.stderr
    assert ("Traceback" in outcome.stderr) == (failure == "raise")
    assert outcome.stderr.count("ValueError: a bug in the script\n") == (failure == "raise")


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        ("raise", 1, "ValueError: a bug in the script\n"),
        ("exit", 3, "error: sys.exit(3) at failing.py:"),
        ("refuse", 2, "error: this cannot be\nHINT: do that\n"),
        ("interrupt", 130, "] interrupted\n"),
    ],
)
def test_an_error_on_all_ranks_is_printed_once(failure, code, message):
    outcome = run_to_failure(4, failure, "all")
    assert outcome.code == code
    assert outcome.stderr.count(message) == 1
    assert outcome.stderr.count("[rank ") == 1
    assert outcome.stderr.count("Traceback") == (failure == "raise")


def test_a_second_error_is_printed_as_one_line():
    outcome = run_to_failure(2, "second")
    assert outcome.code == 1
    first, second = (
        f"[rank 1/2 on {HOST}] {TRACEBACK}",
        f"[rank 0/2 on {HOST}] KeyError: 'late' (after rank 1's error: ",
    )
    assert first in outcome.stderr
    assert f"{second}ValueError: a bug in the script)\n" in outcome.stderr
    assert outcome.stderr.count("Traceback") == 1


def test_errors_in_a_ranks_own_log_appear_in_the_job_log(tmp_path):
    (tmp_path / "logs").mkdir()
    outcome = run_to_failure(2, "raise", "1", HPCRUN_RUN_DIR=str(tmp_path))
    assert f"[rank 1/2 on {HOST}] {TRACEBACK}" in outcome.stderr
    assert outcome.stderr.count("Traceback") == 1
    assert TRACEBACK in (tmp_path / "logs" / "rank-1.log").read_text()


def test_a_killed_rank_ends_all_ranks():
    assert run_to_failure(3, "kill").code != 0


@pytest.mark.parametrize("failure", ["os._exit", "raise SystemExit", "end"])
def test_a_rank_that_exits_silently_is_detected(failure):
    outcome = run_to_failure(3, failure, "1", HPCRUN_STALL_SECONDS="20")
    assert outcome.code == 1
    assert "] error: rank 1 has ended, and others wait for it\n" in outcome.stderr
    assert re.search(
        r"^  ranks 0, 2: waiting in barrier\(\), at failing.py:\d+ in <module>$", outcome.stderr, re.MULTILINE
    )
    assert outcome.stderr.count("HINT") == 1


def test_all_ranks_may_call_os_exit():
    assert run_to_failure(3, "os._exit", "all").code == 0


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stalled_rank_is_named(rank):
    outcome = run_to_failure(3, "hang", rank, HPCRUN_STALL_SECONDS="5")
    line = next(n for n, text in enumerate(FAILING.read_text().splitlines(), 1) if "time.sleep(0.1)" in text)
    assert outcome.code == 1
    assert outcome.stderr.count("error: no progress for 5 s\n") == 1
    status = f"did not arrive, is at failing.py:{line} in hang\n"
    assert re.search(rf"^  rank {rank} \(host {HOST}, pid \d+\): {status}", outcome.stderr, re.MULTILINE)
    others = "ranks 1-2" if rank == 0 else "ranks 0, 2"
    assert f"\n  {others}: waiting in barrier(), at failing.py:" in outcome.stderr
    assert "\nHINT: every rank must make the same calls" in outcome.stderr
    assert "HPCRUN_STALL_SECONDS" in outcome.stderr


@pytest.mark.parametrize(("rank", "ranks"), [(0, 3), (1, 3), (0, 2)])
def test_a_stopped_process_is_named(rank, ranks):
    outcome = run_to_failure(ranks, "stop", rank, HPCRUN_STALL_SECONDS="5")
    assert outcome.code == 1
    assert outcome.stderr.count("error: no progress for 5 s\n") == 1
    status = r"does not answer: its process is stopped or busy outside of Python, or its host is out of reach\n"
    assert re.search(rf"^  rank {rank} \(host {HOST}, pid \d+\): {status}", outcome.stderr, re.MULTILINE)


def test_different_calls_are_an_error_at_once():
    outcome = run_to_failure(3, "crossed")
    assert outcome.code == 2
    assert re.search(
        r"error: the ranks made different calls: rank 0: allreduce\(\) of int64\[\] at failing.py:\d+ in <module>"
        r"; ranks 1-2: barrier\(\) at failing.py:\d+ in <module>\nHINT: ",
        outcome.stderr,
    )
    assert outcome.stderr.count("error:") == 1


def test_different_shapes_are_an_error_at_once():
    outcome = run_to_failure(3, "shapes")
    assert outcome.code == 2
    assert "ranks 0-1: allreduce() of float64[3] at failing.py:" in outcome.stderr
    assert "; rank 2: allreduce() of float64[4] at failing.py:" in outcome.stderr


def test_different_collectives_are_an_error_before_the_timeout():
    outcome = run_to_failure(3, "crossed kinds", HPCRUN_STALL_SECONDS="10")
    assert outcome.code == 1
    assert outcome.stderr.count("error: the ranks wait in different collectives\n") == 1
    assert f"\n  rank 0 (host {HOST}, pid " in outcome.stderr
    assert "): waiting in barrier(), at failing.py:" in outcome.stderr
    assert "\n  ranks 1-2: waiting in MPI's allgather, at failing.py:" in outcome.stderr


def test_a_rank_that_fails_before_mpi_init_ends_all_ranks():
    outcome = run_to_failure(3, "early")
    assert outcome.code != 0
    assert "error: too early\n" in outcome.stderr


def test_a_rank_that_never_calls_mpi_init_ends_all_ranks():
    outcome = run_to_failure(2, "never", HPCRUN_STALL_SECONDS="3")
    assert outcome.code != 0
    assert "Timeout (0:00:03)!" in outcome.stderr
    assert "_start_mpi" in outcome.stderr


def test_different_arguments_are_listed_with_their_ranks():
    outcome = run_to_failure(4, "disagree")
    assert outcome.code == 2
    assert outcome.stderr.count("error: the ranks disagree about the batch size: 64 on ranks 0, 2-3; 32 on rank 1") == 1
    long = "'" + "x" * 39 + " ... " + "x" * 39 + "'"
    assert f", and about the text: {long} on ranks 0-1; nothing on ranks 2-3\nHINT: " in outcome.stderr
    assert "epochs" not in outcome.stderr


def test_an_invalid_stall_timeout_is_refused():
    outcome = run_to_failure(2, "-", HPCRUN_STALL_SECONDS="ten")
    assert outcome.code == 2
    assert "error: HPCRUN_STALL_SECONDS=ten is not a number of seconds\nHINT: 600, or 0 for no limit" in outcome.stderr


def run_to_failure(ranks, *args, **env):
    """Run ranks that must all exit within seconds."""
    outcome = run(ranks, FAILING, *args, timeout=30, **env)
    pids = re.findall(r"^PID (\d+)$", "".join(outcome.stdout), re.MULTILINE)
    deadline = time.monotonic() + 5
    while (left := [p for p in pids if FAILING.name in command_line(p)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    assert not left
    return outcome


def command_line(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def test_ranks_print_their_device_and_warn_without_a_gpu():
    outcome = run(2, FAILING, "-", HPCRUN_NTASKS="2", HPCRUN_GPUS_PER_NODE="2", CUDA_VISIBLE_DEVICES="1")
    assert outcome.code == 0
    assert outcome.stderr.count("the job has 2 GPUs a node, but TensorFlow sees none: training on the CPU") == 1
    cores = os.cpu_count() or 1
    for rank, line in enumerate(outcome.stdout):
        assert line.startswith(f"[rank {rank}/2] host ")
        assert line.endswith(f", local rank {rank}, CUDA_VISIBLE_DEVICES=1: CPU (1 thread)\n") or cores > 3
