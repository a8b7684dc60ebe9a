"""How many GPUs there are for a job that runs here and now, and GPUs in the words of Slurm's commands."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_GRES = re.compile(r"(?:gres[/:])?gpu(?:[:=]([^:=]+))??(?:[:=](\d+))?")
_WHERE = re.compile(r"\([^)]*\)")
_COUNTED = ("--gpus", "--gpus-per-node", "--gpus-per-socket", "--gpus-per-task")


def on_this_host() -> int:
    """Return the number of NVIDIA GPUs that programs started here would see, without starting any."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([device for device in visible.split(",") if device and device != "-1"])
    return sum(bool(re.fullmatch(r"nvidia\d+", device.name)) for device in Path("/dev").iterdir())


def in_allocation(environ: Mapping[str, str]) -> int | None:
    """Return the GPUs on each node of the Slurm allocation that a process stands in (salloc(1), OUTPUT ENVIRONMENT).

    None where nobody knows: those of ``salloc --gres`` are not told.
    """
    asked = environ.get("SLURM_GPUS_PER_NODE") or environ.get("SLURM_GPUS_ON_NODE") or ""
    number = asked.rpartition(":")[2]
    return int(number) if number.isdigit() else None


def in_resources(text: str) -> dict[str, int]:
    """Return the numbers of GPUs by type in generic resources, such as ``gpu:a100:4(S:0-1),nvme:1``.

    They are as sinfo(1) tells those of a node, or as sbatch(1) takes them. The type is empty where Slurm has none.
    """
    found: dict[str, int] = {}
    for one in _WHERE.sub("", text).split(","):
        if (match := _GRES.fullmatch(one)) and (count := int(match[2] or 1)):
            kind = match[1] or ""
            found[kind] = found.get(kind, 0) + count
    return found


def asked_by(options: Iterable[str]) -> bool:
    """Return whether sbatch options ask for GPUs; of one that is given twice, the last counts (sbatch(1)).

    Args:
        options: Each as ``--name=value``.
    """
    last = dict(option.partition("=")[::2] for option in options)
    asked = [last.get("--gres", ""), last.get("--tres-per-task", "")]
    asked += [re.sub(r"(^|,)", r"\1gpu:", last[name]) for name in _COUNTED if name in last]
    return any(in_resources(text) for text in asked)
