"""Times and figures as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def span(seconds: float) -> str:
    """Return a time as people say it, in its two largest units: ``42 s``, ``3 min``, ``1 h 12 min``, ``2 d 3 h``.

    Args:
        seconds: The time.
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


def step(seconds: float) -> str:
    """Return the time of a step: ``420 ms``, ``1.25 s``.

    Args:
        seconds: The time.
    """
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def figure(value: object) -> str:
    """Return a figure of a training: four digits that count.

    Args:
        value: A number; what is none is written as it is, and null, which stands for no finite number, as ``nan``.
    """
    if value is None:
        return "nan"
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def figures(values: Mapping[str, object]) -> str:
    """Return the figures of a training, a name and a value each.

    Args:
        values: Names and values.
    """
    return "  ".join(f"{name} {figure(value)}" for name, value in values.items())
