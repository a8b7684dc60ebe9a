"""Names and formats of result values in tables."""

from __future__ import annotations

RESULT_LABELS = {
    "test_accuracy": "test accuracy",
    "final_accuracy": "accuracy",
    "precision_at_1": "precision @ 1",
    "recall_at_5": "recall @ 5",
    "bits_per_byte": "bits per byte",
    "images_per_second": "images/s",
    "tokens_per_second": "tokens/s",
    "ranks": "ranks",
    "hosts": "hosts",
}
"""Titles of the most important keys of ``result.json``."""


def format_value(value: object) -> str:
    """Format a value for a table."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"
    return str(value)
