"""How many GPUs this host has."""

from __future__ import annotations

import os
import re
from pathlib import Path


def on_this_host() -> int:
    """Return the number of NVIDIA GPUs that programs started here would see, without starting any."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([device for device in visible.split(",") if device and device != "-1"])
    return sum(bool(re.fullmatch(r"nvidia\d+", device.name)) for device in Path("/dev").iterdir())
