"""Reading of the RUNPATH of a shared library, where the dynamic linker searches for libraries (elf(5), ld.so(8))."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path

_LOAD, _DYNAMIC = 1, 2  # types of segments
_STRTAB, _RPATH, _RUNPATH = 5, 15, 29  # tags of dynamic entries


def read_runpath(library: Path) -> list[str]:
    """Return the folders in a library's RUNPATH, such as ``$ORIGIN/../lib``; variables are not expanded.

    Args:
        library: A shared library. The result is empty unless the library is for a 64-bit little-endian machine, as
            CUDA's libraries are.

    Raises:
        OSError: The library cannot be read.
    """
    with library.open("rb") as file:
        try:
            runpath = _find_runpath(file)
        except (struct.error, KeyError):  # a truncated file, or not a shared library
            return []
    return [folder for folder in runpath.split(":") if folder]


def _find_runpath(file: BinaryIO) -> str:
    header = file.read(64)
    if header[:6] != b"\x7fELF\x02\x01":
        return ""
    table_offset, entry_size, segment_count = (
        *struct.unpack_from("<Q", header, 32),
        *struct.unpack_from("<HH", header, 54),
    )
    segments = []
    for index in range(segment_count):
        file.seek(table_offset + index * entry_size)
        segment_type, _, offset, address, _, length, _, _ = struct.unpack("<IIQQQQQQ", file.read(56))
        segments.append((segment_type, offset, address, length))
    _, offset, _, length = next((one for one in segments if one[0] == _DYNAMIC), (0, 0, 0, 0))
    file.seek(offset)
    dynamic_entries = dict(struct.iter_unpack("<qQ", file.read(length - length % 16)))
    if not {_RUNPATH, _RPATH} & set(dynamic_entries):
        return ""
    string_address = dynamic_entries[_STRTAB] + dynamic_entries.get(_RUNPATH, dynamic_entries.get(_RPATH, 0))
    for segment_type, offset, address, length in segments:
        if segment_type == _LOAD and address <= string_address < address + length:
            return _read_string(file, string_address - address + offset)
    return ""


def _read_string(file: BinaryIO, offset: int) -> str:
    file.seek(offset)
    content = b""
    while b"\0" not in content and (chunk := file.read(4096)):
        content += chunk
    return content.partition(b"\0")[0].decode(errors="replace")
