"""Images in TFRecord shards, with an index of the positions of the records."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.data.index import FIELDS
from hpcrun.data.shard_files import decode_features
from hpcrun.data.tfrecord import RecordError, read_record, read_records
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.train.images.damage import check_image, gather_problems
from hpcrun.train.ranks.collectives import checked_allgather
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    Array = np.ndarray[Any, Any]

_MAX_OPEN_FILES = 256


@frozen
class Records:
    """The records of a split.

    Attributes:
        files: The shards of the split.
        index: One row per record, with the fields of `hpcrun.data.index.FIELDS`.
    """

    files: Sequence[Path]
    index: Array

    def read(self, record_index: int) -> bytes:
        """Return a record, a serialized ``tf.train.Example``.

        Raises:
            RecordError: The record is damaged.
            OSError: The shard cannot be read.
        """
        row = self.index[record_index]
        file = self.files[row["shard"]]
        # keep a reference: if several threads open the same file, the cache keeps only one of the objects
        open_file = _open_cached(str(file))
        return read_record(open_file.descriptor, file, int(row["offset"]), int(row["length"]))

    def check(self, record_index: int) -> str | None:
        """Return an error message if an image cannot be decoded; else None."""
        features = decode_features(self.read(record_index))
        encoded_image = features["image/encoded"][0]
        if features.get("image/format") != [b"RAW"]:
            return check_image(encoded_image)
        height, width, channels = (features.get(f"image/{name}", [0])[0] for name in ("height", "width", "channels"))
        has_right_size = channels in {1, 3} and len(encoded_image) == height * width * channels
        return (
            None if has_right_size else f"{len(encoded_image)} bytes are not {height} x {width} x {channels} raw pixels"
        )

    def describe(self, record_index: int) -> str:
        """Return the shard and the offset of a record, as text."""
        row = self.index[record_index]
        return f"{self.files[row['shard']]}: record at byte {row['offset']}"

    def select(self, record_indices: Array) -> Records:
        """Return a subset of the records, given their indices."""
        return replace(self, index=self.index[record_indices])


class _OpenFile:
    """An open file that is closed with its last reference: the cache may drop it while a thread reads."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


@lru_cache(_MAX_OPEN_FILES)
def _open_cached(path: str) -> _OpenFile:
    return _OpenFile(path)


def scan_shards(files: Sequence[Path], classes: int, *, skip_bad: bool) -> Array:
    """Build the index of shards by reading all records; the shards are divided among the ranks. Collective.

    Args:
        files: The shards.
        classes: The number of classes; 0 if unknown.
        skip_bad: Whether to leave out damaged records and labels without a class; if not, they are an error.

    Returns:
        The index of the records.

    Raises:
        HpcrunError: A record is damaged or has a label without a class, and `skip_bad` is false.
    """
    this_rank = world()
    rows: list[tuple[int, int, int, int]] = []
    problems: list[str] = []
    broken_shards: list[str] = []
    for shard in range(this_rank.rank, len(files), this_rank.size):
        try:
            for row in _scan_shard(files[shard], classes):
                if isinstance(row, str):
                    problems.append(row)
                else:
                    rows.append((shard, *row))
        except HpcrunError as error:
            broken_shards.append(error.message)
        if (problems or broken_shards) and not skip_bad:
            break
    gather_problems(problems, broken_shards, skip_bad=skip_bad)
    index = np.concatenate(checked_allgather("the records of shards", np.array(rows, FIELDS)))
    return index[np.argsort(index["shard"], kind="stable")]


def _scan_shard(file: Path, classes: int) -> Iterator[tuple[int, int, int] | str]:
    """Yield label, offset and length of each record; an error message for a damaged record.

    Raises:
        HpcrunError: The rest of the shard cannot be read.
    """
    scan_offset: int | None = 0
    if file.exists() and not file.stat().st_size:
        raise HpcrunError(f"{file}: the shard is empty")
    while scan_offset is not None:
        try:
            for offset, data in read_records(file, scan_offset):
                yield _scan_record(data, classes, file, offset)
            scan_offset = None
        except RecordError as error:
            if error.next_offset is None:
                raise
            yield error.message
            scan_offset = error.next_offset
        except OSError as error:
            raise HpcrunError(f"{file}: {error.strerror}") from None


def _scan_record(data: bytes, classes: int, file: Path, offset: int) -> tuple[int, int, int] | str:
    try:
        label = decode_features(data)["image/class/label"][0]
    except ValueError as error:
        return f"{file}: record at byte {offset}: {error}"
    if not has_class(label, classes):
        return f"{file}: record at byte {offset}: {_explain_label(label, classes)}"
    return label, offset, len(data)


def require_all_records(folder: Path, split: str, found: int, expected: int | None, *, skip_bad: bool) -> None:
    """Refuse shards with fewer records than their data set had when it was built; all ranks must call this.

    Args:
        folder: The folder of the data set.
        split: The split of the shards.
        found: The number of undamaged records in the shards.
        expected: The number of records when the data set was built; None if unknown.
        skip_bad: Whether to print a warning on rank 0 instead.

    Raises:
        HpcrunError: Records are missing, and `skip_bad` is false.
    """
    if expected is None or found >= expected:
        return
    message = f"{folder}: the shards of {split} have {found} undamaged records of {expected}"
    if not skip_bad:
        raise HpcrunError(message, hint="copy or build them again; hpcrun data info DIR shows which shards are shorter")
    if world().rank == 0:
        print(f"WARNING: {message}", file=sys.stderr)


def find_wrong_labels(files: Sequence[Path], index: Array, classes: int) -> Iterator[str]:
    """Yield an error message for each record of an index whose label has no class.

    Args:
        files: The shards.
        index: The index of the shards.
        classes: The number of classes; 0 if unknown.
    """
    for row in index[~has_class(index["label"], classes)]:
        yield f"{files[row['shard']]}: record at byte {row['offset']}: {_explain_label(row['label'], classes)}"


def has_class(labels: Any, classes: int) -> Any:
    """Return whether labels are from 1 to the number of classes; 0 classes: no upper limit."""
    return (labels >= 1) & ((labels <= classes) | (not classes))


def _explain_label(label: int, classes: int) -> str:
    return f"label {label} is not one of 1 to {classes or 'the number of classes'}, the lines of labels.txt"
