"""Hints on how to start a file that is not a Python script: by its interpreter, or by another program."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

INTERPRETERS = {".R": "Rscript", ".r": "Rscript", ".jl": "julia", ".pl": "perl"}
"""Interpreters by file suffix: without a first line #!, bash would run these scripts itself."""

_COMPILED_SUFFIXES = ".c .cc .cpp .cxx .cu .f .f77 .f90 .f95 .F90 .for .go .rs"
_SETTINGS_SUFFIXES = ".yaml .yml .json .toml .cfg .ini .conf .txt .csv .xml .env"

_ADVICE = {
    ".ipynb": "jupyter nbconvert --to script {file} converts the notebook to a script",
    **dict.fromkeys(_COMPILED_SUFFIXES.split(), "compile it, and name the program: hpcrun submit -- ./a.out"),
    **dict.fromkeys(_SETTINGS_SUFFIXES.split(), "name the script that reads it: hpcrun submit SCRIPT -- {file}"),
    ".nf": "nextflow submits jobs itself: nextflow run {file}",
    ".smk": "snakemake submits jobs itself: snakemake --snakefile {file}",
    ".sif": "it is a container image: hpcrun submit SCRIPT --container {file}",
    ".m": "hpcrun submit -- matlab -batch {stem}",
    ".pyc": "name the script of which Python made it",
}
"""Hints about files that are neither Python scripts nor in `INTERPRETERS`."""

_BATCH_LINE = r"(?m)^#(?:SBATCH|PBS|BSUB|\$)\s+(-.*)$"
_LAUNCH_LINE = r"(?m)^[ \t]*(?:exec +|time +)?((?:srun|mpirun|mpiexec|torchrun|python3?)\b[^\n$`|;&<>\\]*)$"


def advise(target: str, file: Path) -> str:
    """Return the hint for a file that no job can start; empty for other files.

    Args:
        target: The file as the user typed it.
        file: The file.
    """
    if file.name == "workload.toml":
        return f"name its folder: hpcrun submit {shlex.quote(str(file.parent))}"
    return _ADVICE.get(file.suffix, "").format(file=shlex.quote(target), stem=file.stem)


def find_interpreter(file: Path) -> list[str]:
    """Return the command that starts a script which is not executable, as a list; empty for other files."""
    if os.access(file, os.X_OK):
        return []
    if file.suffix in INTERPRETERS:
        return [INTERPRETERS[file.suffix]]
    return ["bash"] if file.suffix in {".sh", ".bash"} or _read(file).startswith(("#!/bin/bash", "#!/bin/sh")) else []


def batch_options(file: Path) -> list[str]:
    """Return the options in the directives of a batch script, such as ``-N 2`` or ``-l nodes=2``."""
    return [line.partition(" #")[0].strip() for line in re.findall(_BATCH_LINE, _read(file))]


def launch_line(file: Path) -> list[str]:
    """Return the words of the last line of a batch script that starts ranks or Python; empty if bash must expand it."""
    try:
        return shlex.split(next(reversed(re.findall(_LAUNCH_LINE, _read(file))), ""))
    except ValueError:  # an unclosed quote
        return []


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(65536).decode(errors="replace")
    except OSError:
        return ""
