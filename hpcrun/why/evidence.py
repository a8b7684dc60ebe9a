"""What shows why a job waits or failed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """What shows it.

    Attributes:
        source: A file in the run directory, or a command.
        line: The line of it, or what it says.
    """

    source: str
    line: str
