"""The RUNPATH of a shared library, in which the dynamic linker searches for other libraries (elf(5), ld.so(8))."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path

_LOAD, _DYNAMIC = 1, 2  # types of segments
_STRTAB, _RPATH, _RUNPATH = 5, 15, 29  # tags of dynamic entries


def read_runpath(library: Path) -> list[str]:
    """Return the folders in a library's RUNPATH, not expanded, such as ``$ORIGIN/../lib``.

    Args:
        library: A shared library for 64-bit little-endian machines, as all with CUDA are; empty for other machines.

    Raises:
        OSError: It cannot be read.
    """
    with library.open("rb") as file:
        try:
            found = _find_runpath(file)
        except (struct.error, KeyError):  # a truncated file, or no shared library
            return []
    return [folder for folder in found.split(":") if folder]


def _find_runpath(file: BinaryIO) -> str:
    head = file.read(64)
    if head[:6] != b"\x7fELF\x02\x01":
        return ""
    start, size, count = (*struct.unpack_from("<Q", head, 32), *struct.unpack_from("<HH", head, 54))
    segments = []
    for number in range(count):
        file.seek(start + number * size)
        kind, _, offset, address, _, length, _, _ = struct.unpack("<IIQQQQQQ", file.read(56))
        segments.append((kind, offset, address, length))
    _, offset, _, length = next((one for one in segments if one[0] == _DYNAMIC), (0, 0, 0, 0))
    file.seek(offset)
    entries = dict(struct.iter_unpack("<qQ", file.read(length - length % 16)))
    if not {_RUNPATH, _RPATH} & set(entries):
        return ""
    where = entries[_STRTAB] + entries.get(_RUNPATH, entries.get(_RPATH, 0))
    for kind, offset, address, length in segments:
        if kind == _LOAD and address <= where < address + length:
            return _read_string(file, where - address + offset)
    return ""


def _read_string(file: BinaryIO, offset: int) -> str:
    file.seek(offset)
    text = b""
    while b"\0" not in text and (more := file.read(4096)):
        text += more
    return text.partition(b"\0")[0].decode(errors="replace")
