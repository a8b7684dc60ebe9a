"""Formatting of times and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def format_duration(seconds: float) -> str:
    """Format a duration in its two largest units: ``42 s``, ``3 min``, ``1 h 12 min``, ``2 d 3 h``.

    Args:
        seconds: The duration in s.
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def format_step_time(seconds: float) -> str:
    """Format the time of a step: ``420 ms``, ``1.25 s``.

    Args:
        seconds: The time in s.
    """
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def format_metric(value: object) -> str:
    """Format a metric with four significant digits.

    Args:
        value: A number; None, which replaces NaN and infinity in JSON, becomes ``nan``; other values become text.
    """
    if value is None:
        return "nan"
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def format_metrics(values: Mapping[str, object]) -> str:
    """Format metrics as names and values.

    Args:
        values: The metrics, by name.
    """
    return "  ".join(f"{name} {format_metric(value)}" for name, value in values.items())
