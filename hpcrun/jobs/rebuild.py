"""The index of runs, made again from the run directories that are there."""

from __future__ import annotations

import os
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.errors import HpcrunError
from hpcrun.jobs import index, ledger
from hpcrun.jobs.runs import Run
from hpcrun.sites import loader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence


def rebuild(living: Callable[[Sequence[Run]], Collection[Run]] = lambda _gone: ()) -> tuple[int, int]:
    """Make the index agree with this user's run directories, in the folders where the sites and listed runs have them.

    Args:
        living: Returns the runs, of those whose directories are gone, that stay on the list, for their jobs still run.

    Returns:
        How many runs were added to the list, and how many were taken off.
    """
    paths.make_state_folder(paths.run_index_folder())
    folders = _roots()
    known: set[Path] = set()
    gone: dict[index.Entry, Run] = {}
    off = added = 0
    for entry in index.entries():
        try:
            directory = entry.directory
        except FileNotFoundError:
            continue
        folders.setdefault(directory.parent.parent if entry.sweep else directory.parent)
        if directory.is_dir():
            known.add(directory.resolve())
            if not entry.job_id and (job_id := Run(directory).job_id):
                index.identify({directory: job_id})
        else:
            gone[entry] = Run.gone(entry)
    stay = living(list(gone.values()))
    for entry, run in gone.items():
        if run not in stay:
            index.forget(entry)
            off += 1
    for run, number in (found for folder in folders for found in _runs(folder)):
        if run.directory.resolve() not in known:
            known.add(run.directory.resolve())
            made = run.submission.submitted or (run.directory / "job.json").stat().st_mtime
            with suppress(FileExistsError):  # another process does the same
                index.add(run.directory, int(made * 1e9) - number, run.job_id)
                added += 1
    ledger.clear()
    return added, off


def _roots() -> dict[Path, None]:
    """Return the folders in which `submit` makes run directories, in order."""
    if root := os.environ.get("HPCRUN_RUN_ROOT"):
        texts = [root]
    else:
        texts = []
        for site in loader.list_site_files():
            with suppress(HpcrunError):  # a broken site file is `hpcrun site check`'s to tell
                texts.append(loader.load_site(site).site.run_root)
    texts = [text.replace("${SLURM_JOB_ACCOUNT}", "*") for text in texts]  # of whatever account
    expanded = [os.path.expandvars(paths.expand_user(text)) for text in texts]
    known = [path for text in expanded if "$" not in text for path in (glob(text) if "*" in text else [text])]  # noqa: PTH207
    return {Path(path).absolute(): None for path in known}


def _runs(folder: Path) -> Iterator[tuple[Run, int]]:
    """Yield the runs in a folder, each with its number in its sweep, or 0."""
    try:
        with os.scandir(folder) as found:
            own = [Path(entry.path) for entry in found if entry.stat(follow_symlinks=False).st_uid == os.getuid()]
    except OSError:
        return
    for directory in own:
        if tasks := Run(directory).tasks:
            yield from ((task, number) for number, task in enumerate(tasks) if task.directory.is_dir())
        elif (directory / "job.json").is_file():
            yield Run(directory), 0
