"""Helpers to run a program on real MPI ranks, or in one process, and to read its output."""

import atexit
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
FORK_SERVER = Path(__file__).parent / "fork_server.py"

thorough = pytest.mark.thorough
needs_mpi = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("mpi4py", "keras", "tensorflow")),
    reason="pip install -e '.[train-cpu]'",
)


@cache
def backend_python(backend):
    """Return the Python with one of Keras's backends; skip the test if there is none."""
    if backend == "tensorflow":
        return sys.executable
    python = ROOT / ".venv-backends" / "bin" / "python"
    if not python.exists() or subprocess.run([python, "-c", f"import {backend}"], check=False).returncode:
        pytest.skip(f"no {backend}: bash tools/backends.sh")
    return python


@dataclass(frozen=True)
class ProgramResult:
    code: int
    stdout: list[str]  # one per rank
    stderr: str  # of all ranks
    seconds: float

    def results(self):
        """Return the JSON that each rank printed after RESULT."""
        assert self.code == 0, self.stderr + "\n".join(self.stdout)
        lines = [line for text in self.stdout for line in text.splitlines() if line.startswith("RESULT ")]
        return [json.loads(line.removeprefix("RESULT ")) for line in lines]


def run_keras(ranks, program, *args, backend="tensorflow", **options):
    """Run a program as `run` does, in processes that are forked after the import of Keras."""
    forked = ["-IS", FORK_SERVER, fork_server(backend)]
    return run(ranks, *forked, program, *args, python=backend_python(backend), KERAS_BACKEND=backend, **options)


@cache
def fork_server(backend):
    """Start a process that has imported Keras, and return its socket."""
    folder = tempfile.TemporaryDirectory(prefix="keras")
    path = Path(folder.name, "socket")
    # Threads do not survive a fork, and NumPy's BLAS would start some on import.
    env = {**clean_environ(folder.name), "KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"}
    command = [backend_python(backend), FORK_SERVER, path]
    server = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    atexit.register(server.communicate)  # ends it
    atexit.register(folder.cleanup)
    assert server.stdout.readline() == b"ready\n", server.communicate()
    return path


def clean_environ(home):
    """Return the environment of test programs.

    JAX compiles without optimizations, since compiling takes longer than the small programs run.
    """
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HPCRUN_", "SLURM_", "PMI", "MPI", "KERAS_"))}
    return {**clean, "PYTHONPATH": str(ROOT), "HOME": home, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


STOPPED = (
    "import os, runpy, signal, sys; import hpcrun.run; hpcrun.run.checkpoint_requested(); "
    "os.kill(os.getpid(), signal.SIGTERM); del sys.argv[0]; sys.path[0] = os.path.dirname(sys.argv[0]); "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
"""Program that runs the script of its arguments, which finds that it should write a checkpoint and exit."""


def run(ranks, program, *args, timeout=300, python=sys.executable, **env):
    """Run a program under mpiexec on a number of ranks; with 0 ranks, without mpiexec.

    It may take `timeout` seconds on a quiet machine.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [python, program, *map(str, args)]
        if ranks:
            patterns = [f"-{what}file-pattern={folder}/{what}.%r" for what in ("out", "err")]
            mpiexec = Path(python).with_name("mpiexec")
            command = [mpiexec, *(word for p in patterns for word in p.split("=")), "-n", str(ranks), *command]
        start = time.monotonic()
        done = subprocess.run(
            command,
            env=clean_environ(folder) | env,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=timeout * PATIENCE,
            check=False,
        )
        seconds = time.monotonic() - start
        if not ranks:
            return ProgramResult(done.returncode, [done.stdout], done.stderr, seconds)
        texts = {file.name: file.read_text() for file in Path(folder).iterdir() if file.is_file()}
        stderr = done.stderr + "".join(texts.get(f"err.{r}", "") for r in range(ranks))
        return ProgramResult(done.returncode, [texts.get(f"out.{r}", "") for r in range(ranks)], stderr, seconds)
