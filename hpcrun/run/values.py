"""Conversion of metrics of any framework to JSON and to text, without importing the framework."""

from __future__ import annotations

import math
from typing import Any


def to_json(value: Any) -> Any:
    """Convert to JSON values; NaN and infinity become null.

    Args:
        value: Numbers, texts, and lists and dictionaries of them; arrays and tensors of NumPy, PyTorch, JAX,
            TensorFlow.

    Raises:
        TypeError: A value has a different type.
    """
    if isinstance(value, dict):
        return {str(name): to_json(each) for name, each in value.items()}
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    if hasattr(value, "tolist"):  # arrays of NumPy and JAX, tensors of PyTorch
        return to_json(value.tolist())
    if hasattr(value, "numpy"):  # tensors of TensorFlow
        return to_json(value.numpy())
    value = float(value)
    return value if math.isfinite(value) else None


def format_metrics(metrics: dict[str, Any]) -> list[str]:
    """Return each metric as text: its name and value."""
    return [f"{name} {_format(value)}" for name, value in metrics.items()]


def _format(value: Any) -> str:
    if isinstance(value, str | int):
        return str(value)
    if hasattr(value, "tolist") or hasattr(value, "numpy"):
        return _format(value.tolist() if hasattr(value, "tolist") else value.numpy())
    if isinstance(value, list | tuple):  # a metric with one value per class
        return "[" + " ".join(_format(each) for each in value) + "]"
    value = float(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.3e}"
