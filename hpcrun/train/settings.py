"""Settings of training from environment variables (docs/training.md), and Keras's backend."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from hpcrun.errors import HpcrunError


def read_switch(name: str, *, default: bool) -> bool:
    """Read an environment variable that is 1 (on) or 0 (off).

    Args:
        name: The variable.
        default: The value if it is not set.

    Raises:
        HpcrunError: The value is neither 1 nor 0.
    """
    text = os.environ.get(name) or str(int(default))
    if text not in {"0", "1"}:
        raise HpcrunError(f"{name}={text} is neither 1 nor 0", hint=f"{name}=1 switches it on, {name}=0 off")
    return text == "1"


def read_number(name: str, default: float, unit: str, hint: str) -> float:
    """Read an environment variable that is a number.

    Args:
        name: The variable.
        default: The value if it is not set.
        unit: The unit, for the error.
        hint: The hint of the error.

    Raises:
        HpcrunError: The value is not a number, negative or infinite.
    """
    text = os.environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < float("inf"):
        raise HpcrunError(f"{name}={text} is not a number of {unit}", hint=hint)
    return value


def is_overlap_enabled() -> bool:
    """Return whether to allreduce gradients in groups during the backward pass (``$HPCRUN_OVERLAP``).

    Off by default: a job does not know the speed of its network, and only slow networks gained.

    Raises:
        HpcrunError: The variable is neither 1 nor 0.
    """
    return read_switch("HPCRUN_OVERLAP", default=False) and keras_backend() == "tensorflow"


def keras_library() -> str:
    """Return the name of the library behind Keras, without importing it."""
    backend = keras_backend()
    return {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}.get(backend, backend)


def keras_backend() -> str:
    """Return Keras's backend without importing Keras, which would already start that library."""
    if module := getattr(sys.modules.get("keras"), "backend", None):  # else it is not imported, or not completely
        return str(module.backend())
    if backend := os.environ.get("KERAS_BACKEND"):
        return backend
    config = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras", "keras.json")
    try:
        return str(json.loads(config.read_text(encoding="utf-8")).get("backend", "tensorflow"))
    except (OSError, ValueError):
        return "tensorflow"
