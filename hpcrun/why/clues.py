"""Clues: the conditions in an entry of a table of causes, matched against the state and the logs of a job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hpcrun.frozen import frozen
from hpcrun.why.changed_names import describe_change
from hpcrun.why.code_details import describe, describe_argument, describe_library
from hpcrun.why.evidence import Evidence
from hpcrun.why.exception_advice import advise
from hpcrun.why.last_calls import describe_place
from hpcrun.why.literals import compile_pattern
from hpcrun.why.message_advice import advise_on_exception
from hpcrun.why.sentences import complete, read_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.why.job_facts import JobFacts
    from hpcrun.why.log_end import Log
    from hpcrun.why.python_error import PythonError

_TASK = re.compile(r"/task:(\d+)")


@frozen
class Match:
    """A match of a clue of a signature in a job.

    Attributes:
        groups: The named groups of the clue's regular expressions.
        evidence: The line that matches.
        line: The log, and the index of the matching line; None for a match outside logs.
        first: The index of the first matching line of that log, or of the exception's first line; -1 outside logs.
    """

    groups: dict[str, str]
    evidence: Evidence
    line: tuple[str, int] | None = None
    first: int = -1


@frozen
class LogText:
    """The text of a log to search.

    Attributes:
        log: The log.
        text: The text of the log, with or without harmless warnings.
        patterns: The regular expressions that may match this text.
    """

    log: Log
    text: str
    patterns: frozenset[str]


def match_clue(clue: dict[str, Any], facts: JobFacts, texts: Sequence[LogText]) -> Match | None:
    """Return the match of a clue if all its conditions hold; else None."""
    groups: dict[str, str] = {}
    for key in ("state", "reason", "cancelled_by", "scheduler", "launcher"):
        if key in clue:
            if not (match := re.fullmatch(clue[key], getattr(facts, key))):
                return None
            groups |= match.groupdict("")
    if "exit_code" in clue and facts.exit_code not in clue["exit_code"]:
        return None
    if any(key in clue and getattr(facts, key) is not clue[key] for key in ("started", "disk_full", "gpus")):
        return None
    if "exception" in clue:
        return _match_exception(clue["exception"], facts)
    if "log" in clue:
        found = _search_logs(clue, texts, groups)
        return _add_change(found, facts) if found and "change" in found.groups else found
    evidence = facts.disk_full_evidence if "disk_full" in clue else facts.scheduler_report
    return Match(groups, evidence) if _has_context(clue, texts) else None


def _add_change(match: Match, facts: JobFacts) -> Match | None:
    """Add what a library's release changed to the match of a message about a missing name; None if it is unknown."""
    error = facts.python_error
    is_within = error and match.line and match.line[0] == error.log and error.first <= match.line[1] <= error.end
    groups = describe_change(match.groups["error"], error if is_within else None)
    return Match({**match.groups, **groups}, match.evidence, match.line, match.first) if groups else None


def _match_exception(kind: str, facts: JobFacts) -> Match | None:
    error = facts.python_error
    if error is None or error.kind != kind:
        return None
    log = next(log for log in facts.logs if log.name == error.log)
    groups = {"error": error.error, "file": error.file, "number": error.number}
    groups["cause"] = f", caused by {error.cause}" if error.cause else ""
    advice = advise(error.error, error.cause, error.raised_in, error.code, error.hint)
    advice = advice or advise_on_exception(error.error)
    operation = f"the operation {error.operation} failed" if error.operation else ""
    groups["advice"] = "".join(f"{part}; " for part in (_describe_code(error), advice, operation) if part)
    groups["place"] = describe_place(error, log.lines, advice)
    return Match(groups, Evidence(log.name, log.line(error.last)), (log.name, error.last), error.first)


def _describe_code(error: PythonError) -> str:
    """Return the part of a line of code that an exception is about; empty if it is unknown."""
    details = describe(error.error, error.code, error.raised_in, error.file)
    if details or not error.library:
        return details
    in_library = describe_library(error.error, error.raised_code, error.library)
    return in_library or describe_argument(error.error, error.code)


def _describe_advice(error: str) -> str:
    return f" ({advice})" if (advice := advise(error)) else ""


def _search_logs(clue: dict[str, Any], texts: Sequence[LogText], groups: dict[str, str]) -> Match | None:
    """Return the last match of a clue's pattern in the first log that contains a match, if its context is right."""
    pattern = clue["log"]
    for text in texts:
        if pattern not in text.patterns:
            continue
        first_match = match = None
        for match in compile_pattern(pattern).finditer(text.text):
            first_match = first_match or match
        if first_match and match and _has_context(clue, texts):
            index = text.log.line_number(match)
            evidence = Evidence(text.log.name, text.log.line(index))
            named_groups = {name: re.sub(r"\s*\n\s*", " ", value) for name, value in match.groupdict("").items()}
            if named_groups.get("what"):
                named_groups["what"] = re.sub(r"\s*\n\s*", " ", complete(text.text, *match.span("what")))
            if named_groups.get("error", "").endswith(":"):
                named_groups["error"] += read_on(text.text, match.end("error"))
            if "task_list" in named_groups:
                numbers = sorted({int(number) for number in _TASK.findall(named_groups["task_list"])})
                named_groups["task_list"] = ", ".join(map(str, numbers))
            if "advice" in named_groups:
                named_groups["advice"] = _describe_advice(named_groups["error"])
            if "remedy" in named_groups:
                named_groups["remedy"] = f"{remedy}; " if (remedy := advise(named_groups["error"])) else ""
            first = text.log.line_number(first_match)
            return Match({**groups, **named_groups}, evidence, (text.log.name, index), first)
    return None


def _has_context(clue: dict[str, Any], texts: Sequence[LogText]) -> bool:
    """Return whether the logs contain what a clue requires beside its message, and nothing that excludes it."""
    if "with" in clue and not _is_in_logs(clue["with"], texts):
        return False
    return "without" not in clue or not _is_in_logs(clue["without"], texts)


def _is_in_logs(pattern: str, texts: Sequence[LogText]) -> bool:
    return any(compile_pattern(pattern).search(text.log.full_text) for text in texts)
