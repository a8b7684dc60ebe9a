"""The index of a split: a ``.npy`` file with position and label of each record, written without NumPy."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from hpcrun.errors import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

FIELDS = [("shard", "<i4"), ("label", "<i4"), ("offset", "<i8"), ("length", "<i8")]
"""NumPy data type of a record: shard number, label from 1, and offset and length in bytes of the record's content,
without the 12 bytes of header before and the 4 bytes of checksum after the content (`hpcrun.data.tfrecord`)."""
_RECORD_STRUCT = struct.Struct("<iiqq")
_MAGIC = b"\x93NUMPY\x01\x00"
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
    temporary_file.write_bytes(_MAGIC + struct.pack("<H", len(header)) + header + data)
    temporary_file.replace(file)


def read_rows(file: Path) -> dict[int, bytes]:
    """Return the rows of an index that `write_index` wrote, by shard, for `find_difference`.

    Args:
        file: The index of a split. If it is missing or not an index, there are no rows.
    """
    try:
        data = file.read_bytes()
    except OSError:
        return {}
    header_end = 10 + int.from_bytes(data[8:10], "little")
    header, rows = data[:header_end], data[header_end:]
    if not header.startswith(_MAGIC) or repr(FIELDS).encode() not in header or len(rows) % _RECORD_STRUCT.size:
        return {}
    shards: defaultdict[int, bytearray] = defaultdict(bytearray)
    for position in range(0, len(rows), _RECORD_STRUCT.size):
        row = rows[position : position + _RECORD_STRUCT.size]
        shards[int.from_bytes(row[:4], "little")] += row
    return {shard: bytes(shard_rows) for shard, shard_rows in shards.items()}


def find_difference(rows: bytes, records: Sequence[tuple[int, int]], size: int) -> str | None:
    """Return how a shard differs from the rows of its index; None if it does not.

    Args:
        rows: The shard's part of `read_rows`.
        records: Offset in bytes and label of each record in the shard.
        size: The size of the shard in bytes.
    """
    indexed = [(offset, length, label) for _, label, offset, length in _RECORD_STRUCT.iter_unpack(rows)]
    ends = [offset for offset, _ in records[1:]] + [size]
    found = [(offset, end - offset - _FRAME_BYTES, label) for (offset, label), end in zip(records, ends, strict=False)]
    if found == indexed:
        return None
    if len(found) == len(indexed):
        return "it has other records than when it was built"
    return f"it has {pluralize(len(found), 'record')}, and had {len(indexed)} when it was built"


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
