"""Numbers of GPUs: on this host, in an allocation, in Slurm's generic resources (GRES) and in sbatch options."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_GRES = re.compile(r"(?:gres[/:])?gpu(?:[:=]([^:=]+))??(?:[:=](\d+))?")
_SOCKETS = re.compile(r"\([^)]*\)")
_GPU_OPTIONS = ("--gpus", "--gpus-per-node", "--gpus-per-socket", "--gpus-per-task")


def count_local_gpus() -> int:
    """Return the number of NVIDIA GPUs that are visible to programs on this host."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([device for device in visible.split(",") if device and device != "-1"])
    return sum(bool(re.fullmatch(r"nvidia\d+", device.name)) for device in Path("/dev").iterdir())


def gpus_per_allocated_node(environ: Mapping[str, str]) -> int | None:
    """Return the number of GPUs per node of the current Slurm allocation (salloc(1), OUTPUT ENVIRONMENT).

    None if Slurm does not report it, as with ``salloc --gres``.
    """
    requested = environ.get("SLURM_GPUS_PER_NODE") or environ.get("SLURM_GPUS_ON_NODE") or ""
    number = requested.rpartition(":")[2]
    return int(number) if number.isdigit() else None


def parse_gres(text: str) -> dict[str, int]:
    """Return the numbers of GPUs by type in generic resources, such as ``gpu:a100:4(S:0-1),nvme:1``.

    The format is that of sinfo(1) and sbatch(1). The type is empty if Slurm has none.
    """
    found: dict[str, int] = {}
    for one in _SOCKETS.sub("", text).split(","):
        if (match := _GRES.fullmatch(one)) and (count := int(match[2] or 1)):
            kind = match[1] or ""
            found[kind] = found.get(kind, 0) + count
    return found


def requests_gpus(options: Iterable[str]) -> bool:
    """Return whether sbatch options request GPUs; of repeated options, the last one applies (sbatch(1)).

    Args:
        options: Each as ``--name=value``.
    """
    last = dict(option.partition("=")[::2] for option in options)
    requested = [last.get("--gres", ""), last.get("--tres-per-task", "")]
    requested += [re.sub(r"(^|,)", r"\1gpu:", last[name]) for name in _GPU_OPTIONS if name in last]
    return any(parse_gres(text) for text in requested)
