"""TFRecord files: records of bytes, each with its length and checksums.

A record (tensorflow/core/lib/io/record_writer.h) is its length as a little-endian uint64, the masked CRC-32C of the
length, the bytes, and the masked CRC-32C of the bytes.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, BinaryIO

import google_crc32c

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEADER, _CHECKSUM = struct.Struct("<QI"), struct.Struct("<I")
_CRC_MASK_DELTA = 0xA282EAD8
_BUFFER_BYTES = 1 << 20
_MAX_RECORD_BYTES = 1 << 31
"""Maximum length of a record: TensorFlow's ``Example`` cannot be larger."""


class RecordError(HpcrunError):
    """A TFRecord file is damaged.

    Args:
        file: The damaged file.
        offset: Offset of the damaged record in bytes.
        reason: Description of the damage.
        next_offset: Offset of the next record in bytes; None if it is unknown.
    """

    def __init__(self, file: Path, offset: int, reason: str, next_offset: int | None = None) -> None:
        super().__init__(
            f"{file}: record at byte {offset}: {reason}",
            hint="copy or build this file again; hpcrun data info DIR lists all damaged files",
        )
        self.next_offset = next_offset


def masked_checksum(data: bytes) -> int:
    """Return TensorFlow's checksum of bytes: the CRC-32C, rotated by 15 bits, plus a constant."""
    checksum: int = google_crc32c.value(data)
    return ((checksum >> 15 | checksum << 17) + _CRC_MASK_DELTA) & 0xFFFFFFFF


def write_record(stream: BinaryIO, data: bytes) -> None:
    """Write a record with its length and checksums to a stream."""
    length = struct.pack("<Q", len(data))
    stream.write(length + _CHECKSUM.pack(masked_checksum(length)))
    stream.write(data)
    stream.write(_CHECKSUM.pack(masked_checksum(data)))


def read_records(file: Path, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Read the records of a file, and verify their checksums.

    Args:
        file: An uncompressed TFRecord file.
        offset: Offset of the first record to read, in bytes.

    Yields:
        The offset of each record in bytes, and the record's content.

    Raises:
        RecordError: A record is truncated, or a checksum is wrong.
        OSError: The file cannot be read.
    """
    with file.open("rb", buffering=_BUFFER_BYTES) as stream:
        stream.seek(offset)
        while header := stream.read(_HEADER.size):
            if len(header) < _HEADER.size:
                raise RecordError(file, offset, "the file ends within the record's length")
            length, checksum = _HEADER.unpack(header)
            if masked_checksum(header[:8]) != checksum or length > _MAX_RECORD_BYTES:
                cause = "it is compressed with gzip" if header[:2] == b"\x1f\x8b" else "no TFRecord begins here"
                raise RecordError(file, offset, f"the checksum of its length is wrong: {cause}, nor after it")
            content, checksum_bytes = stream.read(length), stream.read(_CHECKSUM.size)
            if len(checksum_bytes) < _CHECKSUM.size:
                raise RecordError(file, offset, f"the file ends after {len(content)} of its {length} bytes")
            if masked_checksum(content) != _CHECKSUM.unpack(checksum_bytes)[0]:
                raise RecordError(file, offset, "its checksum is wrong", stream.tell())
            yield offset, content
            offset = stream.tell()


def read_record(descriptor: int, file: Path, offset: int, length: int) -> bytes:
    """Read one record, and verify its checksums.

    Args:
        descriptor: File descriptor of the open file.
        file: Path of the file, for error messages.
        offset: Offset of the record in bytes.
        length: Length of the record's content in bytes.

    Raises:
        RecordError: The record is truncated or has a different length, or a checksum is wrong.
        OSError: The file cannot be read.
    """
    data = os.pread(descriptor, _HEADER.size + length + _CHECKSUM.size, offset)
    if len(data) < _HEADER.size + length + _CHECKSUM.size:
        raise RecordError(file, offset, f"the file ends after {max(0, len(data) - _HEADER.size)} of its {length} bytes")
    if _HEADER.unpack_from(data) != (length, masked_checksum(data[:8])):
        raise RecordError(file, offset, f"no record of {length} bytes begins here")
    content = data[_HEADER.size : -_CHECKSUM.size]
    if masked_checksum(content) != _CHECKSUM.unpack(data[-_CHECKSUM.size :])[0]:
        raise RecordError(file, offset, "its checksum is wrong")
    return content
