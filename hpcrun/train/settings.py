"""Settings of training, from environment variables (docs/training.md), and the backend of Keras."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from hpcrun.errors import HpcrunError


def read_switch(name: str, *, default: bool) -> bool:
    """Read a switch from an environment variable: 1 (on) or 0 (off).

    Args:
        name: Name of the variable.
        default: Value if the variable is not set.

    Raises:
        HpcrunError: The value is neither 1 nor 0.
    """
    text = os.environ.get(name) or str(int(default))
    if text not in {"0", "1"}:
        raise HpcrunError(f"{name}={text} is neither 1 nor 0", hint=f"{name}=1 switches it on, {name}=0 off")
    return text == "1"


def is_overlap_enabled() -> bool:
    """Return whether to allreduce gradients in groups during the backward pass (``$HPCRUN_OVERLAP``).

    The default is off, because only slow networks benefit, and a job does not know the speed of its network.

    Raises:
        HpcrunError: The value of the variable is neither 1 nor 0.
    """
    return read_switch("HPCRUN_OVERLAP", default=False) and keras_backend() == "tensorflow"


def keras_library() -> str:
    """Return the name of Keras's backend library, without importing the library."""
    backend = keras_backend()
    return {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}.get(backend, backend)


def keras_backend() -> str:
    """Return Keras's backend, without importing Keras, because that would import the backend library."""
    # None if Keras is not imported, or is being imported
    if module := getattr(sys.modules.get("keras"), "backend", None):
        return str(module.backend())
    if backend := os.environ.get("KERAS_BACKEND"):
        return backend
    config = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras", "keras.json")
    try:
        return str(json.loads(config.read_text(encoding="utf-8")).get("backend", "tensorflow"))
    except (OSError, ValueError):
        return "tensorflow"
