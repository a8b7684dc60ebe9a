"""Facts about a host: kernel, processors, memory, GPUs, file systems, limits, clock. Standard library only."""

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

RESOURCE_LIMITS = {
    "locked memory": resource.RLIMIT_MEMLOCK,
    "open files": resource.RLIMIT_NOFILE,
    "stack": resource.RLIMIT_STACK,
    "processes": resource.RLIMIT_NPROC,
}
_GIB = 1024**3


def describe_host(gpu_names: list[str], driver_version: str) -> dict[str, Any]:
    """Return static facts about this host, by name.

    Args:
        gpu_names: The name of each GPU.
        driver_version: The version of the GPU driver.
    """
    return {
        "system": _operating_system(),
        "kernel": platform.release(),
        "C library": os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else "",
        "processor": _processor_model(),
        "CPUs": os.cpu_count() or 0,
        "memory": f"{_memory_gib():.0f} GiB",
        "GPUs": ", ".join(f"{gpu_names.count(name)} {name}" for name in dict.fromkeys(gpu_names)) or "none",
        "GPU driver": driver_version,
        "InfiniBand": _infiniband_devices(),
        **{f"limit of {name}": _format_limit(limit) for name, limit in RESOURCE_LIMITS.items()},
        "locale": current_locale() or "not set",
        "time zone": time.strftime("%Z (%z)"),
    }


def current_locale() -> str:
    """Return the locale of text input and output; empty if none is set."""
    return next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")


def _operating_system() -> str:
    with suppress(OSError):
        return str(platform.freedesktop_os_release().get("PRETTY_NAME", ""))
    return ""


def _processor_model() -> str:
    with suppress(OSError):
        if named := re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return f"{named[1]} ({platform.machine()})"
    return platform.machine()


def _infiniband_devices() -> str:
    with suppress(OSError):
        return ", ".join(sorted(device.name for device in Path("/sys/class/infiniband").iterdir()))
    return ""


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB


def _format_limit(limit: int) -> str:
    soft_limit, _ = resource.getrlimit(limit)
    if soft_limit == resource.RLIM_INFINITY:
        return "unlimited"
    return (
        f"{soft_limit / 2**20:.0f} MiB"
        if limit in {resource.RLIMIT_MEMLOCK, resource.RLIMIT_STACK}
        else str(soft_limit)
    )


def list_gpus() -> tuple[list[str], str]:
    """Return the names of the visible GPUs, and the driver version."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    rows = [line.rpartition(", ") for line in run(command, timeout=30).text.splitlines() if ", " in line]
    return [name for name, _, _ in rows], rows[0][2] if rows else ""


def free_gib(path: Path) -> float:
    """Return the free space in GiB of the file system of a path."""
    file_system = os.statvfs(path)
    return file_system.f_bavail * file_system.f_frsize / _GIB


def free_inodes(path: Path) -> int | None:
    """Return the number of free inodes of the file system of a path; None if the file system does not count inodes."""
    file_system = os.statvfs(path)
    return file_system.f_favail if file_system.f_files else None


def measure_clock_skew(folder: Path) -> float:
    """Measure by how many seconds the clock of the file server is ahead of the clock of this host.

    Args:
        folder: A folder on the file server, for a temporary file.
    """
    file = folder / f".clock-{os.uname().nodename}-{os.getpid()}"
    time_before = time.time()
    file.write_bytes(b"x")
    time_after = time.time()
    server_time = file.stat().st_mtime
    file.unlink()
    # the clocks agree if the server's time is between these two times
    return round(server_time - min(max(server_time, time_before), time_after), 2)


def measure_host(folder: Path) -> dict[str, Any]:
    """Measure the clock skew in s, and the free space of folders in GiB.

    Args:
        folder: The run directory.
    """
    measurements: dict[str, Any] = {"skew": measure_clock_skew(folder), "run directory": free_gib(folder)}
    for name in ("/tmp", "/dev/shm"):  # noqa: S108 - only inspected
        with suppress(OSError):
            measurements[name] = free_gib(Path(name))
    return measurements
