"""What shows why a job waits or failed."""

from __future__ import annotations

from dataclasses import dataclass

from hpcrun.secrets import mask


@dataclass(frozen=True)
class Evidence:
    """What shows it.

    Attributes:
        source: A file in the run directory, or a command.
        line: The line of it, or what it says.
    """

    source: str
    line: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "line", mask(self.line))
