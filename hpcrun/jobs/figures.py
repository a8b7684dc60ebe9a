"""How figures are named and written for people."""

from __future__ import annotations

FIGURES = {
    "test_accuracy": "test accuracy",
    "final_accuracy": "accuracy",
    "images_per_second": "images/s",
    "ranks": "ranks",
    "hosts": "hosts",
}
"""What people look for first: the key in ``result.json``, and its name in the table."""


def shown(value: object) -> str:
    """Return a figure as people read it."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"
    return str(value)
