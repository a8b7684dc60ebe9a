"""Ranks write heartbeats, from which `hpcrun watch` finds the slow rank."""

import json
import os
import platform
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.mpi.ranks import PROGRAMS, ROOT, backend_python, needs_mpi, run, thorough
from tests.waiting import DEADLINE

pytestmark = [pytest.mark.mpi, needs_mpi]

HOST = platform.node()
FAILING = PROGRAMS / "failing.py"


@contextmanager
def hpcrun(folder, *argv, python=sys.executable):
    """Start hpcrun with its runs and index in a folder."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HPCRUN_", "SLURM_", "PMI", "MPI", "KERAS_"))}
    clean |= {"PYTHONPATH": str(ROOT), "HPCRUN_RUN_ROOT": str(folder / "runs"), "XDG_STATE_HOME": str(folder / "state")}
    command = [python, "-m", "hpcrun", *map(str, argv)]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=clean, **streams) as process:
        yield process


def run_hpcrun(folder, *argv, **options):
    with hpcrun(folder, *argv, **options) as process:
        out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, err
    return out


def read_heartbeat(run_dir, rank):
    return json.loads((run_dir / f"heartbeats/rank-{rank}.json").read_text())


@thorough
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_watch_names_the_slow_rank(tmp_path, backend):
    options = ["-n", 2, "-t", "1:30", "-x", "HPCRUN_HEARTBEAT_SECONDS=0.5", "-x", f"KERAS_BACKEND={backend}"]
    argv = ["submit", "--json", "--site", "local", *options, PROGRAMS / "slow_rank.py"]
    run_dir = Path(json.loads(run_hpcrun(tmp_path, *argv, python=backend_python(backend)))["run_dir"])
    line = next(
        n for n, text in enumerate((PROGRAMS / "slow_rank.py").read_text().split("\n"), 1) if "sleep(0.05)" in text
    )
    try:
        with hpcrun(tmp_path, "watch") as watching:
            lines = iter(watching.stdout.readline, "")

            def wait_for_line(words):
                return next((line for line in lines if words in line), None)

            warning = wait_for_line(f"WARNING: rank 1 on {HOST} is slow: others take ")
            rates = re.search(r"take ([\d.]+) ms per step without waiting, it takes ([\d.]+) ms", warning)
            assert rates is not None
            others, own = rates.groups()
            # On JAX, this rank waits in collectives while its Python sleeps for 50 ms, and the wait is subtracted.
            assert (25 if backend == "jax" else 40) <= float(own) > 2 * float(others)
            assert wait_for_line("  epoch ")  # on JAX the rate is unknown before
            assert re.fullmatch(
                r"epoch \d+/1000, .*", json.loads(run_hpcrun(tmp_path, "status", "last", "--json"))["progress"]
            )
            (run_dir / "hang").touch()
            assert re.search(
                rf"is awaited: it is at slow_rank.py:{line}", wait_for_line(f"rank 1 on {HOST} is awaited")
            )
            assert read_heartbeat(run_dir, 0)["waits"].startswith("the gradients' allreduce of step ")
            progress = json.loads(run_hpcrun(tmp_path, "status", "last", "--json"))["progress"]
            assert re.fullmatch(r"epoch \d+/1000, step \d+/16, [\d,]+ images/s", progress)
            (run_dir / "hang").unlink()
            pid = read_heartbeat(run_dir, 1)["pid"]
            os.kill(pid, signal.SIGSTOP)
            assert wait_for_line(
                f"WARNING: rank 1 on {HOST} is silent: dead, stopped or unreachable; its last heartbeat was "
            )
            os.kill(pid, signal.SIGCONT)
            (run_dir / "end").touch()
            out, _ = watching.communicate(timeout=DEADLINE)
            assert watching.returncode == 0
            assert "test accuracy   1" in out
    finally:
        with hpcrun(tmp_path, "cancel", "last") as cancelling:
            cancelling.wait(60)
    last = read_heartbeat(run_dir, 0)
    assert (last["ended"], last["phase"], last["epochs"], last["steps"]) == (True, "trained", 1000, 16)
    assert last["epoch"] > 1
    assert 0 < last["logs"]["loss"] < 10
    assert last["images_per_second"] == pytest.approx(4 / last["step_seconds"], rel=0.01)
    assert all(0 < loss < 10 for loss, _ in last["points"])
    assert len(last["points"]) >= 2


@pytest.mark.parametrize("ranks", [0, 2])
def test_every_rank_writes_heartbeats(tmp_path, ranks):
    outcome = run(ranks, FAILING, "none", -1, HPCRUN_RUN_DIR=str(tmp_path))
    assert outcome.code == 0, outcome.stderr
    for rank in range(max(ranks, 1)):
        record = read_heartbeat(tmp_path, rank)
        assert (record["rank"], record["host"], record["ended"], record["every"]) == (rank, HOST, True, 5.0)
    assert len(list((tmp_path / "heartbeats").iterdir())) == max(ranks, 1)


def test_heartbeats_can_be_switched_off(tmp_path):
    assert run(2, FAILING, "none", -1, HPCRUN_RUN_DIR=str(tmp_path), HPCRUN_HEARTBEAT_SECONDS="0").code == 0
    assert not (tmp_path / "heartbeats").exists()
    outcome = run(2, FAILING, "none", -1, HPCRUN_RUN_DIR=str(tmp_path), HPCRUN_HEARTBEAT_SECONDS="often")
    assert outcome.code == 2
    assert "error: HPCRUN_HEARTBEAT_SECONDS=often is not a number of seconds\nHINT: 5, or 0" in outcome.stderr


def test_an_unwritable_heartbeat_folder_does_not_end_the_run(tmp_path):
    (tmp_path / "heartbeats").write_text("a file where the folder should be")
    assert run(2, FAILING, "none", -1, HPCRUN_RUN_DIR=str(tmp_path)).code == 0
