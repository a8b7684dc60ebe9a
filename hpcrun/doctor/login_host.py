"""Checks of the login host: the run root, and this user's environment."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.doctor import host_facts, mounts
from hpcrun.finding import error, ok, warning
from hpcrun.scheduler import find_scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.doctor.context import CheckContext
    from hpcrun.finding import Finding

MIN_FREE_GIB = 2.0
MIN_FREE_INODES = 10_000
MAX_SKEW_SECONDS = 2.0


@contextmanager
def temporarily_created(folder: Path) -> Iterator[None]:
    """Create a folder and its parents; at the end, remove the created folders that are empty.

    Args:
        folder: The folder.

    Raises:
        OSError: The folder cannot be created.
    """
    new_folders = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for one in new_folders:
            with suppress(OSError):
                one.rmdir()


def check_run_root(context: CheckContext) -> Iterator[Finding]:
    """Check the run root with a temporary file: permission, file system, free space and clock."""
    root, location = context.run_root, "" if os.environ.get("HPCRUN_RUN_ROOT") else context.location_of("run_root")
    if not root:
        yield warning("run root", "skipped: it depends on the account", "give --account", location)
        return
    fix = "run_root in the site file (or HPCRUN_RUN_ROOT) must be writable by you, and shared by all nodes"
    try:
        with temporarily_created(root), tempfile.TemporaryDirectory(prefix=".doctor-", dir=root) as folder:
            with Path(folder, "x").open("wb") as file:  # fsync reports an exceeded quota
                file.write(bytes(1 << 20))
                os.fsync(file.fileno())
            skew = host_facts.measure_clock_skew(Path(folder))
            file_system, mount_source = mounts.find_mount(root)
            space_finding = _check_free_space(root)
    except OSError as failure:
        yield error("run root", f"{root}: {failure.strerror}", fix, location)
        return
    if find_scheduler(context.site.scheduler).has_queue and mounts.LOCAL_TYPES.fullmatch(file_system):
        problem = f"{root} is on {file_system} ({mount_source}), which may be local to this host"
        fix = "hpcrun doctor --in-job checks whether nodes see it"
        if context.in_job:
            fix = "if the job below cannot write there, set run_root to a folder on a file system that all nodes share"
        yield warning("run root", problem, fix, location)
    else:
        yield ok("run root", f"{root} on {file_system} ({mount_source})")
    yield space_finding
    yield clock_finding(skew)


def _check_free_space(root: Path) -> Finding:
    free_gib, free_inodes = host_facts.free_gib(root), host_facts.free_inodes(root)
    description = f"{free_gib:.0f} GiB free" + (f", room for {free_inodes:,} files" if free_inodes is not None else "")
    if free_gib < MIN_FREE_GIB or (free_inodes is not None and free_inodes < MIN_FREE_INODES):
        fix = "hpcrun prune removes old run directories; df -h, df -i and quota -s show what is full"
        return warning("room", f"{root}: {description}", fix)
    return ok("room", description)


def clock_finding(skew: float, host: str = "this host") -> Finding:
    """Return a finding about the skew between the clocks of a host and of the file server."""
    if abs(skew) <= MAX_SKEW_SECONDS:
        return ok("clock", f"the file server's and {host}'s agree")
    direction = "ahead of" if skew > 0 else "behind"
    problem = f"the file server's is {abs(skew):.0f} s {direction} {host}'s"
    return warning("clock", problem, "ask the administrators to synchronise clocks (NTP): ages of files are wrong")


def check_run_index(_context: CheckContext) -> Iterator[Finding]:
    """Check that hpcrun can write the list of runs."""
    folder = paths.run_index_folder()
    try:
        with temporarily_created(folder), tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as failure:
        fix = "free space there, or set XDG_STATE_HOME to your own folder"
        yield error("list of runs", f"{folder}: {failure.strerror}", fix)


def check_command(_context: CheckContext) -> Iterator[Finding]:
    """Check that the command ``hpcrun`` on PATH is this program, not HPCToolkit's profiler."""
    path = shutil.which("hpcrun")
    if not path:
        yield ok("command", "hpcrun is not on PATH; python -m hpcrun starts it")
        return
    try:
        with Path(path).open("rb") as file:
            # pip, pipx and uv install a script that imports from hpcrun.__main__, or from hpcrun.cli in older versions
            is_hpcrun_script = b"from hpcrun." in file.read(4096)
    except OSError:
        is_hpcrun_script = False
    if is_hpcrun_script:
        yield ok("command", path)
        return
    fix = f"alias hpcrun='{sys.executable} -m hpcrun', or put its folder on PATH before {Path(path).parent}"
    yield warning("command", f"{path} is another program (HPCToolkit's profiler, perhaps)", fix)


def check_variables(_context: CheckContext) -> Iterator[Finding]:
    """Check for environment variables that silently change jobs."""
    from hpcrun.schedulers.environment import inherited_slurm_variables

    variables = [name for name in inherited_slurm_variables() if name.startswith("SBATCH_")]
    if variables:
        fix = f"unset {' '.join(variables)}: hpcrun removes them for its jobs, but a manual sbatch uses them"
        yield warning("environment", f"{', '.join(variables)}: set, and would override job scripts", fix)
    if "SLURM_JOB_ID" in os.environ:
        problem = f"this shell runs in job {os.environ['SLURM_JOB_ID']}: this is a node, not a login host"
        yield warning("environment", problem, "run hpcrun doctor on a login node too")
    if os.environ.get("LD_PRELOAD"):
        problem = f"LD_PRELOAD={os.environ['LD_PRELOAD']} is loaded into every program of every job"
        yield warning("environment", problem, "unset LD_PRELOAD, unless it is intended")


def check_locale(_context: CheckContext) -> Iterator[Finding]:
    """Check that the locale is installed: text that is not ASCII needs it."""
    import locale as system

    name = host_facts.current_locale()
    try:
        system.setlocale(system.LC_CTYPE, name)
    except system.Error:
        fix = "locale -a lists installed locales; C.UTF-8 always exists: export LC_ALL=C.UTF-8"
        yield warning("locale", f"{name} is not installed here", fix)
    else:
        yield ok("locale", name or "not set")
