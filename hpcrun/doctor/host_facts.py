"""Facts of a host: kernel, processors, memory, GPUs, file systems, limits, clock. Uses only the standard library."""

from __future__ import annotations

import os
import platform
import re
import resource
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpcrun.schedulers.command import run

LIMITS = {
    "locked memory": resource.RLIMIT_MEMLOCK,
    "open files": resource.RLIMIT_NOFILE,
    "stack": resource.RLIMIT_STACK,
    "processes": resource.RLIMIT_NPROC,
}
_GIB = 1024**3


def describe_host(names: list[str], driver: str) -> dict[str, Any]:
    """Return static facts of the host, by their names in the output.

    Args:
        names: The names of the GPUs.
        driver: The version of the GPU driver.
    """
    return {
        "system": _system(),
        "kernel": platform.release(),
        "C library": os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else "",
        "processor": _processor(),
        "CPUs": os.cpu_count() or 0,
        "memory": f"{_memory():.0f} GiB",
        "GPUs": ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names)) or "none",
        "GPU driver": driver,
        "InfiniBand": _infiniband(),
        **{f"limit of {name}": _format_limit(which) for name, which in LIMITS.items()},
        "locale": current_locale() or "not set",
        "time zone": time.strftime("%Z (%z)"),
    }


def current_locale() -> str:
    """Return the locale of text input and output; empty where none is set."""
    return next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")


def _system() -> str:
    with suppress(OSError):
        return str(platform.freedesktop_os_release().get("PRETTY_NAME", ""))
    return ""


def _processor() -> str:
    with suppress(OSError):
        if named := re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return f"{named[1]} ({platform.machine()})"
    return platform.machine()


def _infiniband() -> str:
    with suppress(OSError):
        return ", ".join(sorted(device.name for device in Path("/sys/class/infiniband").iterdir()))
    return ""


def _memory() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB


def _format_limit(which: int) -> str:
    soft, _ = resource.getrlimit(which)
    if soft == resource.RLIM_INFINITY:
        return "unlimited"
    return f"{soft / 2**20:.0f} MiB" if which in {resource.RLIMIT_MEMLOCK, resource.RLIMIT_STACK} else str(soft)


def list_gpus() -> tuple[list[str], str]:
    """Return the names of the visible GPUs, and the driver version."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    rows = [line.rpartition(", ") for line in run(command, timeout=30).text.splitlines() if ", " in line]
    return [name for name, _, _ in rows], rows[0][2] if rows else ""


def free_gib(path: Path) -> float:
    """Return the free disk space of a path in GiB."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize / _GIB


def free_inodes(path: Path) -> int | None:
    """Return the number of free inodes of a path, or None where the file system does not count them."""
    status = os.statvfs(path)
    return status.f_favail if status.f_files else None


def measure_clock_skew(folder: Path) -> float:
    """Measure by how many seconds the file server's clock is ahead of this host's.

    Args:
        folder: A folder on that server, for a temporary file.
    """
    file = folder / f".clock-{os.uname().nodename}-{os.getpid()}"
    before = time.time()
    file.write_bytes(b"x")
    after = time.time()
    status = file.stat().st_mtime
    file.unlink()
    # a time in between is not a difference
    return round(status - min(max(status, before), after), 2)


def measure_host(folder: Path) -> dict[str, Any]:
    """Measure the clock skew and the free disk space.

    Args:
        folder: The run directory.
    """
    found: dict[str, Any] = {"skew": measure_clock_skew(folder), "run directory": free_gib(folder)}
    for name in ("/tmp", "/dev/shm"):  # noqa: S108 - only inspected
        with suppress(OSError):
            found[name] = free_gib(Path(name))
    return found
