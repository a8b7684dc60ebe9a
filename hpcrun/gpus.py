"""How many GPUs there are for a job that runs here and now."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def on_this_host() -> int:
    """Return the number of NVIDIA GPUs that programs started here would see, without starting any."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([device for device in visible.split(",") if device and device != "-1"])
    return sum(bool(re.fullmatch(r"nvidia\d+", device.name)) for device in Path("/dev").iterdir())


def in_allocation(environ: Mapping[str, str]) -> int:
    """Return the GPUs on each node of the Slurm allocation that a process stands in (salloc(1), OUTPUT ENVIRONMENT)."""
    asked = environ.get("SLURM_GPUS_PER_NODE") or environ.get("SLURM_GPUS_ON_NODE") or "0"
    number = asked.rpartition(":")[2]
    return int(number) if number.isdigit() else 0
