"""Findings of the checks of a site file, a cluster or a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from hpcrun.errors import HpcrunError

Severity = Literal["ok", "warning", "error"]


@frozen
class Finding:
    """The result of a check; its text is ``FILE:LINE: what``.

    Attributes:
        severity: ``ok``; ``warning`` for a problem that does not prevent jobs from running; ``error`` if jobs cannot
            run.
        check: The name of the check.
        what: The state or problem that the check found.
        fix: How to correct the problem; empty if there is none.
        where: ``FILE:LINE`` of the value in the site file; empty if no file sets it.
        key: The key path of the value, such as ``("mpi", "type")``; empty if the finding does not concern a single
            value.
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
        """Return the finding as values for JSON; ``found`` is the text of the finding."""
        key = ".".join(self.key)
        optional_values = {"fix": self.fix or None, "where": self.where or None, "key": key or None}
        return {"check": self.check, "level": self.severity, "found": str(self), **optional_values}


def ok(check: str, state: str) -> Finding:
    """Return a finding without a problem."""
    return Finding("ok", check, state)


def warning(check: str, problem: str, fix: str, location: str = "") -> Finding:
    """Return a warning: jobs may run in spite of the problem."""
    return Finding("warning", check, problem, fix, location)


def error(check: str, problem: str, fix: str, location: str = "") -> Finding:
    """Return an error: the problem prevents jobs from running."""
    return Finding("error", check, problem, fix, location)


def failure(check: str, cause: HpcrunError) -> Finding:
    """Return a finding about an error; the error's hint is the fix."""
    return Finding("error", check, cause.message, cause.hint or "")
