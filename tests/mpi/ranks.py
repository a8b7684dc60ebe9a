"""Helpers to run a program on real MPI ranks, or in one process, and to read its output."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"

thorough = pytest.mark.thorough
needs_mpi = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("mpi4py", "keras", "tensorflow")),
    reason="pip install -e '.[train-cpu]'",
)


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


def run(ranks, program, *args, timeout=300, python=sys.executable, **env):
    """Run a program under mpiexec on a number of ranks; with 0 ranks, without mpiexec.

    JAX compiles without optimizations, since compiling takes longer than the small programs run.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [python, program, *map(str, args)]
        if ranks:
            patterns = [f"-{what}file-pattern={folder}/{what}.%r" for what in ("out", "err")]
            mpiexec = Path(python).with_name("mpiexec")
            command = [mpiexec, *(word for p in patterns for word in p.split("=")), "-n", str(ranks), *command]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HPCRUN_", "SLURM_", "PMI", "MPI", "KERAS_"))}
        clean |= {"PYTHONPATH": str(ROOT), "HOME": folder, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", **env}
        start = time.monotonic()
        done = subprocess.run(
            command, env=clean, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False
        )
        seconds = time.monotonic() - start
        if not ranks:
            return ProgramResult(done.returncode, [done.stdout], done.stderr, seconds)
        texts = {file.name: file.read_text() for file in Path(folder).iterdir() if file.is_file()}
        stderr = done.stderr + "".join(texts.get(f"err.{r}", "") for r in range(ranks))
        return ProgramResult(done.returncode, [texts.get(f"out.{r}", "") for r in range(ranks)], stderr, seconds)
