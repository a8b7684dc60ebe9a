"""What a check of a site file, a cluster or a job finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hpcrun.errors import HpcrunError

Severity = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """What a check found; as text it is ``FILE:LINE: what``.

    Attributes:
        severity: ok; warning, where jobs may run all the same; error, where they will not.
        check: What was checked.
        what: What is there, and what comes of it.
        fix: What to do about it; empty where all is well.
        where: ``FILE:LINE`` of the value in the site file; empty where no file sets it.
        key: That value's key path, such as ``("mpi", "type")``; empty where it is about no single value.
    """

    severity: Severity
    check: str
    what: str
    fix: str = ""
    where: str = ""
    key: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what

    def as_json(self) -> dict[str, str | None]:
        """Return the finding as JSON; ``found`` is its text."""
        key = ".".join(self.key)
        optional = {"fix": self.fix or None, "where": self.where or None, "key": key or None}
        return {"check": self.check, "level": self.severity, "found": str(self), **optional}


def ok(check: str, what: str) -> Finding:
    """Return a finding that all is well."""
    return Finding("ok", check, what)


def warning(check: str, what: str, fix: str, where: str = "") -> Finding:
    """Return a finding of what may do harm."""
    return Finding("warning", check, what, fix, where)


def error(check: str, what: str, fix: str, where: str = "") -> Finding:
    """Return a finding of what keeps jobs from running."""
    return Finding("error", check, what, fix, where)


def failure(check: str, reason: HpcrunError) -> Finding:
    """Return a finding that something failed, with the reason's hint as what to do."""
    return Finding("error", check, reason.message, reason.hint or "")
