"""Properties of the job, from environment variables: run directory, rank, number of ranks, settings."""

from __future__ import annotations

import os
import platform
import re
from contextlib import suppress
from pathlib import Path

from hpcrun.errors import HpcrunError


def run_dir() -> Path | None:
    """Return the run directory, or None outside a job."""
    folder = os.environ.get("HPCRUN_RUN_DIR")
    return Path(folder) if folder else None


def find_rank() -> int:
    """Return the rank of this process: torchrun's rank if torchrun started the process, otherwise hpcrun's rank."""
    return _read_integer("RANK", "HPCRUN_RANK", 0)


def count_ranks() -> int:
    """Return the number of processes of the job."""
    return _read_integer("WORLD_SIZE", "HPCRUN_NTASKS", 1)


def _read_integer(name: str, hpcrun_name: str, default: int) -> int:
    """Return the integer in the variable `hpcrun_name`; outside of jobs and under torchrun, the integer in `name`."""
    names = (name, hpcrun_name) if "TORCHELASTIC_RUN_ID" in os.environ else (hpcrun_name, name)
    text = next((os.environ[each] for each in names if os.environ.get(each)), "")
    return int(text) if text.isdigit() else default


def list_hosts() -> list[str]:
    """Return the hosts of the job, in order; outside of a job, only this host."""
    hosts: list[str] = []
    with suppress(OSError):  # a job with one rank may have no hostfile
        for line in ((run_dir() or Path("/nowhere")) / "hostfile").read_text(encoding="utf-8").splitlines():
            hosts += re.findall(r"^[^\s:#]+", line)[:1]  # a line is n1, n1:2 or n1 slots=2
    return list(dict.fromkeys(hosts)) or [platform.node()]


def print_line(line: str) -> None:
    """Print a line in one write, so that lines of different ranks do not mix."""
    print(line + "\n", end="", flush=True)


def read_number(name: str, default: float, unit: str, hint: str) -> float:
    """Read an environment variable that is a number.

    Args:
        name: The variable.
        default: The value if the variable is not set.
        unit: The unit, for the error message; empty for a number without one.
        hint: The hint of the error message.

    Raises:
        HpcrunError: The value is negative or not a finite number.
    """
    text = os.environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < float("inf"):
        raise HpcrunError(f"{name}={text} is not a number{_of(unit)}", hint=hint)
    return value


def read_whole_number(name: str, default: int, unit: str, hint: str, *, minimum: int = 0) -> int:
    """Read an environment variable that is a whole number; the arguments are those of `read_number`.

    Args:
        name: The variable.
        default: The value if the variable is not set.
        unit: The unit, for the error message; empty for a number without one.
        hint: The hint of the error message.
        minimum: The smallest number that is allowed.

    Raises:
        HpcrunError: The value is not a whole number from the minimum.
    """
    value = read_number(name, default, unit, hint)
    if value < minimum or value != int(value):
        raise HpcrunError(f"{name}={os.environ[name]} is not a whole number{_of(unit)} from {minimum}", hint=hint)
    return int(value)


def _of(unit: str) -> str:
    return f" of {unit}" if unit else ""
