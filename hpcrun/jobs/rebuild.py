"""Reconstruction of the index of runs from the run directories."""

from __future__ import annotations

import os
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.errors import HpcrunError
from hpcrun.jobs import run_index, state_cache
from hpcrun.jobs.runs import Run
from hpcrun.sites import loader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence


def rebuild_index(find_active: Callable[[Sequence[Run]], Collection[Run]] = lambda _missing: ()) -> tuple[int, int]:
    """Synchronize the index with this user's run directories in the folders of the sites and of the listed runs.

    Args:
        find_active: Function that takes the runs without directories, and returns the runs with active jobs, which stay
            in the index.

    Returns:
        The number of runs added to the index, and the number removed.
    """
    paths.make_state_folder(paths.run_index_folder())
    folders = _list_run_roots()
    known_directories: set[Path] = set()
    missing_runs: dict[run_index.Entry, Run] = {}
    removed_count = added_count = 0
    for entry in run_index.list_entries():
        try:
            directory = entry.directory
        except FileNotFoundError:
            continue
        folders.setdefault(directory.parent.parent if entry.sweep else directory.parent)
        if directory.is_dir():
            known_directories.add(directory.resolve())
            if not entry.job_id and (job_id := Run(directory).job_id):
                run_index.record_job_ids({directory: job_id})
        else:
            missing_runs[entry] = Run.from_index_entry(entry)
    active_runs = find_active(list(missing_runs.values()))
    for entry, run in missing_runs.items():
        if run not in active_runs:
            run_index.remove_entry(entry)
            removed_count += 1
    for run, number in (numbered_run for folder in folders for numbered_run in _find_runs(folder)):
        if run.directory.resolve() not in known_directories:
            known_directories.add(run.directory.resolve())
            creation_time = run.submission.submitted or (run.directory / "job.json").stat().st_mtime
            with suppress(FileExistsError):  # another process has added the run
                run_index.add_entry(run.directory, int(creation_time * 1e9) - number, run.job_ids())
                added_count += 1
    state_cache.clear_cache()
    return added_count, removed_count


def _list_run_roots() -> dict[Path, None]:
    """Return the folders in which `hpcrun submit` creates run directories, in order."""
    if root := os.environ.get("HPCRUN_RUN_ROOT"):
        roots = [root]
    else:
        roots = []
        for site in loader.list_site_files():
            with suppress(HpcrunError):  # `hpcrun site check` reports broken site files
                roots.append(loader.load_site(site).site.run_root)
    roots = [text.replace("${SLURM_JOB_ACCOUNT}", "*") for text in roots]  # match any account
    expanded_roots = [os.path.expandvars(paths.expand_user(text)) for text in roots]
    run_roots = [path for text in expanded_roots if "$" not in text for path in (glob(text) if "*" in text else [text])]  # noqa: PTH207
    return {Path(path).absolute(): None for path in run_roots}


def _find_runs(folder: Path) -> Iterator[tuple[Run, int]]:
    """Yield the runs in a folder, each with its task number in a sweep, or 0 for other runs."""
    try:
        with os.scandir(folder) as entries:
            directories = [
                Path(entry.path) for entry in entries if entry.stat(follow_symlinks=False).st_uid == os.getuid()
            ]
    except OSError:
        return
    for directory in directories:
        if tasks := Run(directory).tasks:
            yield from ((task, number) for number, task in enumerate(tasks) if task.directory.is_dir())
        elif (directory / "job.json").is_file():
            yield Run(directory), 0
