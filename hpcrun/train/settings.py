"""Environment variables by which training is tuned (docs/training.md lists them), and Keras's backend."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from hpcrun.errors import HpcrunError


def read_switch(name: str, *, default: bool) -> bool:
    """Return whether an environment variable is 1, and not 0.

    Args:
        name: The variable.
        default: What holds where it is not set.

    Raises:
        HpcrunError: It is neither.
    """
    text = os.environ.get(name) or str(int(default))
    if text not in {"0", "1"}:
        raise HpcrunError(f"{name}={text} is neither 1 nor 0", hint=f"{name}=1 switches it on, {name}=0 off")
    return text == "1"


def read_number(name: str, default: float, unit: str, hint: str) -> float:
    """Return the number that an environment variable is.

    Args:
        name: The variable.
        default: What holds where it is not set.
        unit: What it counts, for the error.
        hint: What to do, likewise.

    Raises:
        HpcrunError: It is none, negative or infinite.
    """
    text = os.environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < float("inf"):
        raise HpcrunError(f"{name}={text} is no number of {unit}", hint=hint)
    return value


def is_overlap_enabled() -> bool:
    """Return whether to reduce gradients in groups, as ``$HPCRUN_OVERLAP`` says.

    Off unless it is 1: a job does not know how fast its network is, and only over a slow one was there a gain.

    Raises:
        HpcrunError: The variable is neither 1 nor 0.
    """
    return read_switch("HPCRUN_OVERLAP", default=False) and keras_backend() == "tensorflow"


def keras_backend() -> str:
    """Return Keras's backend as Keras finds it, without importing Keras, which would already start that library."""
    if keras := sys.modules.get("keras"):
        return str(keras.backend.backend())
    if backend := os.environ.get("KERAS_BACKEND"):
        return backend
    config = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras", "keras.json")
    try:
        return str(json.loads(config.read_text(encoding="utf-8")).get("backend", "tensorflow"))
    except (OSError, ValueError):
        return "tensorflow"
