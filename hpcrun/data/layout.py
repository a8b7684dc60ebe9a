"""File names of a data set: its shards and the files that describe the shards."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from pathlib import Path

JOURNAL, DESCRIPTION, LABELS, SKIPPED = ".build.jsonl", "dataset.json", "labels.txt", "skipped.txt"
_SHARD_NAME = re.compile(r"(?P<split>[A-Za-z0-9_]+)-(?P<index>[0-9]{5})-of-(?P<count>[0-9]{5})")


def shard_name(split: str, index: int, count: int) -> str:
    """Return the file name of a shard, such as ``train-00000-of-01024``."""
    return f"{split}-{index:05}-of-{count:05}"


def find_shards(folder: Path) -> dict[str, list[Path]]:
    """Return the shards of a folder in order, by split.

    Raises:
        HpcrunError: The folder has no shards, or shards are missing, or shards are from two builds.
    """
    shards: dict[str, dict[tuple[int, int], Path]] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if match := _SHARD_NAME.fullmatch(file.name):
            shards.setdefault(match["split"], {})[int(match["count"]), int(match["index"])] = file
    if not shards:
        raise HpcrunError(
            f"{folder} has no shards, such as train-00000-of-00008",
            hint="hpcrun data build IMAGES FOLDER writes shards from a folder of images",
        )
    for split, files in shards.items():
        counts = {count for count, _ in files}
        if len(counts) > 1:
            raise HpcrunError(f"{folder} has shards of {split} of {' and of '.join(map(str, sorted(counts)))} in all")
        count = counts.pop()
        if missing := [shard_name(split, k, count) for k in range(count) if (count, k) not in files]:
            is_part = re.fullmatch(r"worker_\d+_of_\d+", folder.name)
            hint = "run the same hpcrun data build again: it resumes the build"
            part_hint = f"hpcrun data split wrote this part for other programs; hpcrun reads {folder.parent}"
            raise HpcrunError(
                f"{folder} lacks {len(missing)} of {count} shards: {', '.join(missing[:3])}",
                hint=part_hint if is_part else hint,
            )
    return {split: list(files.values()) for split, files in shards.items()}


def count_images(folder: Path, split: str) -> int | None:
    """Return the number of images of a split when it was built; None if that is not recorded."""
    try:
        count = json.loads((folder / DESCRIPTION).read_bytes())["splits"][split]["images"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return count if isinstance(count, int) else None


def read_labels(folder: Path) -> list[str]:
    """Return the class names, beginning with label 1; an empty list if the data set has no file of labels."""
    file = folder / LABELS
    return file.read_text(errors="backslashreplace").splitlines() if file.is_file() else []
