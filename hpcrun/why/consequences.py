"""Consequences: what remains of another failure, such as connections to a rank that ended, or a launcher's report."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.why.clues import Match
    from hpcrun.why.job_facts import JobFacts
    from hpcrun.why.signatures import Signature

LAUNCHER_LINE = re.compile(r"(?:\[\S+\]<\w+>:)?(?:slurmstepd|srun|\[mpiexec@|mpi(?:run|exec)\b|=>> PBS)")
_EXCEPTION = re.compile(r"\b\w+(?:Error|Exception)\b: ")
_NETWORK_EXCEPTION = re.compile(
    r"MPI|mpi4py|N[Cc]CL|nccl|R[Cc]CL|[Gg]loo|UC[XP]|ucp|\bOFI\b|DistBackend|DistNetwork|[Hh]orovod|[Cc]onnect|[Ss]ocket"
    r"|[Tt]imed? ?out|UNAVAILABLE"
)
_MPI_EXCEPTION = re.compile(r"MPI|error stack")
_MPI_STACK_LINE = re.compile(r"(?:Abort|\w+)\(\d+\)")


def put_consequences_last(
    candidates: list[tuple[Signature, list[Match]]],
    general_candidates: list[tuple[Signature, list[Match]]],
    facts: JobFacts,
) -> list[tuple[Signature, list[Match]]]:
    """Return candidates in which broken connections follow what an earlier line, or any other candidate, explains."""
    consequences = [
        (s, matches) for s, matches in candidates if s.consequence and not (s.hang or _is_raised(matches, facts))
    ]
    others = [pair for pair in candidates if pair not in consequences]
    consequences.sort(key=lambda pair: pair[1][-1].first)
    if not consequences or others:
        return [*others, *consequences]
    is_general = consequences[0][0].general
    earlier_candidates = [
        (s, matches)
        for s, matches in general_candidates
        if not (s.consequence or (s.quotes and is_general) or _is_network_exception(matches[-1]))
        and _precedes(matches[-1], consequences[0][1][-1])
        and not _continues(consequences[0][1][-1], matches[-1], facts)
    ]
    return [*earlier_candidates[:1], *consequences]


def _is_raised(matches: Sequence[Match], facts: JobFacts) -> bool:
    """Return whether the last exception tells of a broken connection, rather than that its lines end the exception."""
    error = facts.python_error
    match = matches[-1]
    if error is None or match.line is None or not is_in_exception(matches, facts):
        return False
    if match.line[1] <= error.last:
        return True
    pattern = _MPI_EXCEPTION if _MPI_STACK_LINE.match(match.evidence.line) else _NETWORK_EXCEPTION
    return not match.evidence.line.startswith("[") and bool(pattern.search(error.error))


def _is_network_exception(match: Match) -> bool:
    line = match.evidence.line
    return bool(_EXCEPTION.search(line) and _NETWORK_EXCEPTION.search(line))


def _precedes(match: Match, other: Match) -> bool:
    """Return whether the first line of a match is before that of another match in the same log."""
    return bool(match.line and other.line and match.line[0] == other.line[0] and match.first < other.first)


def _continues(match: Match, other: Match, facts: JobFacts) -> bool:
    """Return whether the line of a match continues the line of another match, which ends with a colon."""
    if not (match.line and other.line and match.line == (other.line[0], other.line[1] + 1)):
        return False
    return any(log.lines[other.line[1]].rstrip().endswith(":") for log in facts.logs if log.name == other.line[0])


def is_in_exception(matches: Sequence[Match], facts: JobFacts) -> bool:
    """Return whether any of the matches is within the text of the last exception."""
    error = facts.python_error
    lines = [match.line for match in matches if match.line and not LAUNCHER_LINE.match(match.evidence.line)]
    return error is not None and any(log == error.log and error.first <= n <= error.end for log, n in lines)
