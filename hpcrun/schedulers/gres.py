"""Slurm's generic resources of a node, as sinfo(1) tells them."""

from __future__ import annotations

import re

_GPUS = re.compile(r"gpu(?::([^:=]+))??[:=](\d+)")
_WHERE = re.compile(r"\([^)]*\)")


def gpus(resources: str) -> dict[str, int]:
    """Return the numbers of a node's GPUs by type, from its generic resources such as ``gpu:a100:4(S:0-1),nvme:1``.

    The type is empty where Slurm has none.
    """
    found: dict[str, int] = {}
    for one in _WHERE.sub("", resources).split(","):
        if (match := _GPUS.fullmatch(one)) and int(match[2]):
            kind = match[1] or ""
            found[kind] = found.get(kind, 0) + int(match[2])
    return found
