"""Division of the training shards among workers: one folder per worker, with links to consecutive shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.data.layout import find_shards
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from pathlib import Path


def split(folder: Path, workers: int) -> list[Path]:
    """Create the folders ``worker_0_of_N`` and so on, each with links to an equal number of training shards.

    Args:
        folder: Folder of the data set.
        workers: Number of workers, N.

    Returns:
        The folders. A folder that already has the same links is not changed.

    Raises:
        HpcrunError: The shards cannot be divided evenly, or a worker's folder contains unrelated files.
    """
    shards = find_shards(folder).get("train", [])
    if not shards or workers < 1 or len(shards) % workers:
        divisors = [n for n in range(1, len(shards) + 1) if len(shards) % n == 0]
        raise HpcrunError(
            f"{len(shards)} shards of train in {folder} cannot be divided evenly among {workers} workers",
            hint=f"numbers of workers that divide them: {', '.join(map(str, divisors))}; or build with other --shards",
        )
    shards_per_worker = len(shards) // workers
    folders = [folder / f"worker_{k}_of_{workers}" for k in range(workers)]
    for k, worker_folder in enumerate(folders):
        links = {file.name: f"../{file.name}" for file in shards[k * shards_per_worker : (k + 1) * shards_per_worker]}
        worker_folder.mkdir(exist_ok=True)
        existing_links = {
            entry.name: str(entry.readlink()) if entry.is_symlink() else "" for entry in worker_folder.iterdir()
        }
        if foreign_files := sorted(name for name, target in existing_links.items() if links.get(name) != target):
            raise HpcrunError(
                f"{worker_folder} has {foreign_files[0]}, which is not one of its links", hint=f"remove {worker_folder}"
            )
        for name in links.keys() - existing_links.keys():
            (worker_folder / name).symlink_to(links[name])
    return folders
