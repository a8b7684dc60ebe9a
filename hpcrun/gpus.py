"""Numbers of GPUs on this host, in an allocation, in Slurm's generic resources (GRES) and in sbatch options."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_GRES = re.compile(r"(?:gres[/:])?gpu(?:[:=]([^:=]+))??(?:[:=](\d+))?")
_SOCKET_LIST = re.compile(r"\([^)]*\)")
_GPU_OPTIONS = ("--gpus", "--gpus-per-node", "--gpus-per-socket", "--gpus-per-task")


def count_local_gpus() -> int:
    """Return the number of NVIDIA GPUs that are visible to programs on this host."""
    visible_devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible_devices is not None:
        return len([device for device in visible_devices.split(",") if device and device != "-1"])
    return sum(bool(re.fullmatch(r"nvidia\d+", device.name)) for device in Path("/dev").iterdir())


def gpus_per_allocated_node(environ: Mapping[str, str]) -> int | None:
    """Return the number of GPUs per node in the current Slurm allocation (salloc(1), OUTPUT ENVIRONMENT).

    The result is None if Slurm sets no variable with this number, as with ``salloc --gres``.
    """
    slurm_value = environ.get("SLURM_GPUS_PER_NODE") or environ.get("SLURM_GPUS_ON_NODE") or ""
    count = slurm_value.rpartition(":")[2]
    return int(count) if count.isdigit() else None


def parse_gres(text: str) -> dict[str, int]:
    """Return the number of GPUs by type in a GRES string, such as ``gpu:a100:4(S:0-1),nvme:1``.

    The string has the format of sinfo(1) and sbatch(1). GPUs without a type in Slurm have an empty type.
    """
    counts: dict[str, int] = {}
    for one in _SOCKET_LIST.sub("", text).split(","):
        if (match := _GRES.fullmatch(one)) and (count := int(match[2] or 1)):
            gpu_type = match[1] or ""
            counts[gpu_type] = counts.get(gpu_type, 0) + count
    return counts


def requests_gpus(options: Iterable[str]) -> bool:
    """Return whether sbatch options request GPUs; of a repeated option, the last value applies (sbatch(1)).

    Args:
        options: The sbatch options, each as ``--name=value``.
    """
    last_values = dict(option.partition("=")[::2] for option in options)
    gres_texts = [last_values.get("--gres", ""), last_values.get("--tres-per-task", "")]
    gres_texts += [re.sub(r"(^|,)", r"\1gpu:", last_values[name]) for name in _GPU_OPTIONS if name in last_values]
    return any(parse_gres(text) for text in gres_texts)
