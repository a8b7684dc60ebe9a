"""Evidence for the explanation of a job."""

from __future__ import annotations

from hpcrun.frozen import frozen
from hpcrun.secrets import mask


@frozen
class Evidence:
    """A line of a log, or of a command's output, that supports a diagnosis.

    Attributes:
        source: The file in the run directory, or the command, that contains the line.
        line: The line, or a statement that summarizes it.
    """

    source: str
    line: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "line", mask(self.line))
