"""The index of a split: a ``.npy`` file with position and label of each record, written without NumPy."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

FIELDS = [("shard", "<i4"), ("label", "<i4"), ("offset", "<i8"), ("length", "<i8")]
"""NumPy data type of a record: shard number, label from 1, and offset and length in bytes of the record's content,
without the 12 bytes of header before and the 4 bytes of checksum after the content (`hpcrun.data.tfrecord`)."""
_RECORD_STRUCT = struct.Struct("<iiqq")
_ALIGNMENT = 64
_FRAME_BYTES = 16  # size of a record's length and checksums


def index_name(split: str) -> str:
    """Return the file name of the index of a split."""
    return f"index-{split}.npy"  # must not match train-*, the pattern by which programs find shards


def write_index(file: Path, shards: Iterable[Iterable[tuple[int, int, int]]]) -> None:
    """Write the index of a split.

    Args:
        file: The file to write.
        shards: Offset in bytes, length in bytes and label of each record of each shard.
    """
    data = b"".join(
        _RECORD_STRUCT.pack(shard, label, offset, length)
        for shard, records in enumerate(shards)
        for offset, length, label in records
    )
    # NumPy's format, version 1.0: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
    header = repr({"descr": FIELDS, "fortran_order": False, "shape": (len(data) // _RECORD_STRUCT.size,)}).encode()
    header += b" " * (-(len(header) + 11) % _ALIGNMENT) + b"\n"
    temporary_file = file.with_name(f".{file.name}.part")
    temporary_file.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)
    temporary_file.replace(file)


def load_index(files: Sequence[Path], split: str) -> Any:
    """Return the index that ``hpcrun data build`` wrote; None without an index, or if it does not match the shards.

    Args:
        files: The shards of the split.
        split: The name of the split.
    """
    import numpy as np

    try:
        index = np.load(files[0].parent / index_name(split))
    except (OSError, ValueError):
        return None
    if index.dtype != np.dtype(FIELDS) or (
        len(index) and not 0 <= index["shard"].min() <= index["shard"].max() < len(files)
    ):
        return None
    sizes = np.zeros(len(files), np.int64)
    np.maximum.at(sizes, index["shard"], index["offset"] + index["length"] + _FRAME_BYTES)
    return index if sizes.tolist() == [file.stat().st_size for file in files] else None
