"""Creation of run directories, and their removal if the job was not submitted."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from hpcrun import paths, permissions, secrets
from hpcrun.errors import HpcrunError
from hpcrun.jobs import disk_space, run_index

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.jobs.runs import Run
    from hpcrun.spec import JobSpec


MAX_NAME_CHARACTERS = 100
"""Number of characters of a job's name in that of its run directory: most file systems have names of up to 255."""


def new_run_directory(root: Path, name: str) -> Path:
    """Return the path for a new run directory: the job's name, local time and a random suffix."""
    prefix = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:MAX_NAME_CHARACTERS]
    return root / f"{prefix}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(4).hex()}"


def create_run(spec: JobSpec, script: str) -> Run:
    """Create a run directory with ``job.json``, ``job.sh`` and the bash library, and add it to the index.

    For a sweep, create its tasks' directories, too.

    Raises:
        HpcrunError: The directory cannot be created or added to the index; a partly created directory is removed.
    """
    from hpcrun.jobs.runs import Run
    from hpcrun.script.bash_options import list_library

    folder = paths.run_index_folder()
    try:
        paths.make_state_folder(folder)
    except OSError as error:
        raise _index_error(error) from None
    tasks = [spec.task_spec(number) for number in range(len(spec.tasks))]
    try:
        accessible_to = permissions.make_run_directory(spec.run_dir, is_shared=spec.site.share_runs == "read")
    except OSError as error:
        raise _directory_error(spec.run_dir, error) from None
    if accessible_to:
        spec.run_dir.rmdir()
        message = f"the run directory {spec.run_dir} cannot be made private: {accessible_to}, and chmod has no effect"
        hint = "run_root in the site file (or HPCRUN_RUN_ROOT) must be on a file system that supports chmod"
        raise HpcrunError(message, hint=hint)
    try:
        for job in (spec, *tasks):
            permissions.make_folder(job.run_dir / "logs")
            paths.write_atomically(job.run_dir / "job.json", json.dumps(job.as_json(), indent=1, default=str).encode())
        secrets.write_secrets(spec.run_dir, spec.secrets)
        permissions.make_folder(spec.run_dir / "shell")
        for file in list_library(spec):  # copied, so that an upgrade of hpcrun does not change pending jobs
            paths.write_atomically(spec.run_dir / "shell" / file.name, file.read_bytes())
        paths.write_atomically(spec.run_dir / "job.sh", script.encode(errors="surrogateescape"))
        for task in tasks:
            (task.run_dir / "job.sh").symlink_to("../job.sh")
        disk_space.require_disk_space(spec.run_dir, len(tasks or [spec]))
    except OSError as error:
        shutil.rmtree(spec.run_dir, ignore_errors=True)
        raise _directory_error(spec.run_dir, error) from None
    created_ns = time.time_ns()
    try:
        for number, job in enumerate(tasks or [spec]):
            run_index.add_entry(
                job.run_dir, created_ns - number
            )  # lists begin with the newest run: the first task must be the newest
    except OSError as error:
        shutil.rmtree(spec.run_dir, ignore_errors=True)
        raise _index_error(error) from None
    return Run(spec.run_dir)


def discard_run(run: Run) -> None:
    """Remove the directory and the index entry of a run that has no job."""
    shutil.rmtree(run.directory, ignore_errors=True)
    names = {task.directory.name for task in (run, *run.tasks)}
    for entry in run_index.list_entries():
        if entry.directory_name in names:
            with suppress(FileNotFoundError):
                run_index.remove_entry(entry)


def _index_error(error: OSError) -> HpcrunError:
    hint = "hpcrun keeps the index of your runs there; XDG_STATE_HOME changes the location"
    return HpcrunError(f"cannot write to the folder {paths.run_index_folder()}: {error.strerror}", hint=hint)


def _directory_error(directory: Path, error: OSError) -> HpcrunError:
    hint = "run_root in the site file (or HPCRUN_RUN_ROOT) must be writable for you and shared by all nodes"
    if error.errno in disk_space.DISK_FULL_ERRORS:
        hint = "df -h and quota -s show what is full; run_root (or HPCRUN_RUN_ROOT) sets another place"
    return HpcrunError(f"cannot create the run directory {directory}: {error.strerror}", hint=hint)
