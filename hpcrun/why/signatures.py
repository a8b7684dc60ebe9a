"""Signatures: known causes of pending and failed jobs, from ``pending.toml`` and ``failures/*.toml``.

An entry of a table has

- ``name``: a word for scripts;
- ``clues``: any one of them recognises the cause. A clue is a set of conditions that must all hold: ``state``,
  ``reason`` and ``cancelled_by`` are regular expressions that match the whole value of the scheduler (or the exit
  record), ``scheduler`` and ``launcher`` are names, ``exit_code`` is a list, ``started = false`` means that its script
  has not started, ``disk_full = true`` that the run directory's file system is full now, so that the end of a log may
  be missing, ``exception`` is whose exception ended the program (its ``own``, one that a lost ``peer`` causes, or one
  of a ``wrapper`` that started the program: `hpcrun.why.python_error`), and ``log`` is a regular expression that is
  searched for in the ends of the logs;
- ``summary`` and ``fix``: the cause, and what to do. ``{site}``, ``{job_id}`` and the like stand for facts of the job
  (`hpcrun.why.job_facts.JobFacts.template_values`), and for the named groups of the clue;
- ``brief``: a few words for tables, where Slurm's reason alone recognises the cause;
- ``general = true``: ignored if a more specific signature matches; only the first one of a job counts;
- ``root = true``: comes before the last exception, as it causes many others;
- ``hint = true``: comes after all others, as it is often harmless or a consequence;
- ``change``: what of the request to change in a number, ``time``, ``memory`` or ``exclude`` (`hpcrun.why.proposal`);
- ``always = true``: also searched for in jobs that run or completed.

The order of a table is the order of the diagnoses: specific signatures come first. Those that match within the last
exception's text come before the others. If all matches are messages after which the program went on, its last exception
comes first. Lines of a log that are only warnings count if nothing else is recognised.
The files of a table are read in the order of their names.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.why.evidence import Evidence
from hpcrun.why.exception_advice import advise
from hpcrun.why.literals import compile_pattern, may_match

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.why.job_facts import JobFacts
    from hpcrun.why.log_end import Log

RELATED_LINES = 1
"""With no more ordinary lines than these between them, a message may be the cause of an exception."""

_EXCEPTION = re.compile(r"\b\w+(?:Error|Exception)\b: ")
_TROUBLE = re.compile(
    r"(?i)error|fail|terminat|abort|cannot|unable|exception|\bnot?\b|could|denied|unknown|invalid|^\W*$"
)

JOB_SPECIFIC_VALUES = ("job_id", "run_dir", "host")
"""Values that differ between jobs with the same diagnosis."""


@dataclass(frozen=True)
class Diagnosis:
    """A cause that was recognised in a job.

    Attributes:
        name: The signature's name.
        summary: The cause in plain words.
        evidence: The evidence.
        fix: What to do.
        cause: The summary without job-specific values, by which jobs are grouped.
        change: What of the request to change in a number; empty for nothing.
        nodes: The nodes that a log names as the cause; empty without any.
    """

    name: str
    summary: str
    evidence: tuple[Evidence, ...]
    fix: str
    cause: str = ""
    change: str = ""
    nodes: str = ""


@dataclass(frozen=True)
class Match:
    """A clue that holds for a job.

    Attributes:
        groups: The named groups of its regular expressions.
        evidence: What it was found in.
        line: The log and the index of the line in it; None without one.
    """

    groups: dict[str, str]
    evidence: Evidence
    line: tuple[str, int] | None = None


@dataclass(frozen=True)
class LogText:
    """The text of a log to search.

    Attributes:
        log: The log.
        text: Its text, with or without warnings.
        patterns: The regular expressions that may match it.
    """

    log: Log
    text: str
    patterns: frozenset[str]


@dataclass(frozen=True)
class Signature:
    """One entry of a table; see the module docstring."""

    name: str
    clues: tuple[dict[str, Any], ...]
    summary: str
    fix: str
    brief: str = ""
    general: bool = False
    root: bool = False
    hint: bool = False
    always: bool = False
    change: str = ""

    def matches(self, facts: JobFacts, texts: Sequence[LogText] = ()) -> list[Match]:
        """Return the first clue that holds for a job; after one of the state, also the first one of a log."""
        possible = (clue for clue in self.clues if "log" not in clue or _may_match(clue["log"], texts))
        matches = (match for clue in possible if (match := _match_clue(clue, facts, texts)))
        first = next(matches, None)
        if first is None:
            return []
        if first.evidence is not facts.scheduler_report:
            return [first]
        # a line of a log is more specific than a state
        return [first, *[other for other in matches if other.evidence is not facts.scheduler_report][:1]]

    def diagnose(self, facts: JobFacts, matches: Sequence[Match]) -> Diagnosis:
        """Return the diagnosis of a job for which clues hold."""
        values = {**facts.template_values, **matches[0].groups}
        cause = self.summary.format_map({**values, **dict.fromkeys(JOB_SPECIFIC_VALUES, "...")}).replace(
            str(facts.run.directory), "..."
        )
        evidence = tuple(match.evidence for match in matches)
        nodes = next((match.groups["nodes"] for match in matches if "nodes" in match.groups), "")
        summary, fix = self.summary.format_map(values), self.fix.format_map(values)
        return Diagnosis(self.name, summary, evidence, fix, cause, self.change, nodes)


@cache
def load_table(name: str) -> tuple[Signature, ...]:
    """Load the signatures of a table, ``failures`` or ``pending``, in order."""
    folder = Path(__file__).parent
    texts = [
        file.read_text(encoding="utf-8")
        for file in [*folder.glob(f"{name}.toml"), *sorted(folder.glob(f"{name}/*.toml"))]
    ]
    entries = [entry for text in texts for entry in tomllib.loads(text)["signature"]]
    return tuple(Signature(**{**entry, "clues": tuple(entry["clues"])}) for entry in entries)


def reason_code(reason: str) -> str:
    """Return Slurm's reason for a pending job, without details in brackets or after a comma."""
    return re.split(r"[,(]", reason.strip("()"))[0].strip()


@cache
def describe_reason(reason: str) -> str:
    """Return Slurm's reason for a pending job, with a short description if it is known; empty without a reason."""
    known = ((signature.brief, clue) for signature in load_table("pending") for clue in signature.clues)
    words = (brief for brief, clue in known if "reason" in clue and re.fullmatch(clue["reason"], reason_code(reason)))
    first = next(words, "") if reason else ""
    return f"{reason_code(reason)} ({first})" if first else reason


def find_diagnoses(name: str, facts: JobFacts, *, well: bool = False) -> list[Diagnosis]:
    """Return the diagnoses that a table makes of a job, the most specific first.

    Args:
        name: The table.
        facts: The job's facts.
        well: Whether the job runs or completed: then only signatures with ``always`` apply.
    """
    matched = _find_matches(name, facts, well=well, warnings=well)
    if not matched and not well:
        matched = _find_matches(name, facts, well=well, warnings=True)
    if facts.site_key:  # the script itself has named the cause
        matched = [(s, found) for s, found in matched if found[0].evidence is facts.scheduler_report][:1]
    specific = [(s, found) for s, found in matched if not (s.general or s.hint)]
    specific.sort(key=lambda pair: not (pair[0].root or any(_is_in_exception(match, facts) for match in pair[1])))
    if specific and all(not s.root and _is_earlier(found[-1], facts) for s, found in specific):
        specific = [*_find_own_exception(name, facts), *specific]
    first = specific or [(s, found) for s, found in matched if s.general][:1]
    diagnoses: dict[Evidence, Diagnosis] = {}
    for signature, found in [*first, *[(s, found) for s, found in matched if s.hint]]:
        # of two with the same evidence, keep the more specific one
        diagnoses.setdefault(found[-1].evidence, signature.diagnose(facts, found))
    return list(diagnoses.values())


def _find_matches(name: str, facts: JobFacts, *, well: bool, warnings: bool) -> list[tuple[Signature, list[Match]]]:
    """Return the signatures that match, without general ones after the first that is no hint."""
    matched: list[tuple[Signature, list[Match]]] = []
    texts = [
        LogText(log, log.full_text, _find_patterns(name, log.full_condensed))
        if warnings
        else LogText(log, log.text, _find_patterns(name, log.condensed))
        for log in facts.logs
    ]
    is_found = False
    for signature in load_table(name):
        if (well and not signature.always) or (signature.general and is_found):
            continue
        if found := signature.matches(facts, texts):
            matched.append((signature, found))
            is_found = is_found or not signature.hint
    return matched


def _is_in_exception(match: Match, facts: JobFacts) -> bool:
    error = facts.python_error
    return bool(error and match.line and match.line[0] == error.log and error.first <= match.line[1] <= error.end)


def _is_earlier(match: Match, facts: JobFacts) -> bool:
    """Return whether a message is no exception, and the program went on after it until an exception of its own."""
    error = facts.python_error
    if not (error and error.whose == "own" and match.line and match.line[0] == error.log):
        return False
    log = next(log for log in facts.logs if log.name == error.log)
    ordinary = [line for line in log.lines[match.line[1] + 1 : error.first] if not _TROUBLE.search(line)]
    return len(ordinary) > RELATED_LINES and not _EXCEPTION.search(match.evidence.line)


def _find_own_exception(name: str, facts: JobFacts) -> list[tuple[Signature, list[Match]]]:
    own = [signature for signature in load_table(name) if {"exception": "own"} in signature.clues]
    return [(signature, signature.matches(facts)) for signature in own]


def _match_clue(clue: dict[str, Any], facts: JobFacts, texts: Sequence[LogText]) -> Match | None:
    """Return the match of a clue if it holds; None otherwise."""
    groups: dict[str, str] = {}
    for key in ("state", "reason", "cancelled_by", "scheduler", "launcher"):
        if key in clue:
            if not (match := re.fullmatch(clue[key], getattr(facts, key))):
                return None
            groups |= match.groupdict("")
    if "exit_code" in clue and facts.exit_code not in clue["exit_code"]:
        return None
    if any(key in clue and getattr(facts, key) is not clue[key] for key in ("started", "disk_full")):
        return None
    if "exception" in clue:
        return _match_exception(clue["exception"], facts)
    if "log" in clue:
        return _search_logs(clue["log"], texts, groups)
    return Match(groups, facts.disk_full_evidence if "disk_full" in clue else facts.scheduler_report)


def _match_exception(whose: str, facts: JobFacts) -> Match | None:
    error = facts.python_error
    if error is None or error.whose != whose:
        return None
    log = next(log for log in facts.logs if log.name == error.log)
    groups = {"error": error.error, "file": error.file, "number": error.number}
    groups["cause"] = f", caused by {error.cause}" if error.cause else ""
    groups["advice"] = f" ({advice})" if (advice := advise(error.error)) else ""
    return Match(groups, Evidence(log.name, log.line(error.last)), (log.name, error.last))


def _search_logs(pattern: str, texts: Sequence[LogText], groups: dict[str, str]) -> Match | None:
    """Return the last match of a pattern in the first log that has one."""
    for text in texts:
        match = None
        if pattern not in text.patterns:
            continue
        for match in compile_pattern(pattern).finditer(text.text):  # noqa: B007
            pass
        if match:
            number = text.log.line_number(match)
            found = Evidence(text.log.name, text.log.line(number))
            return Match({**groups, **match.groupdict("")}, found, (text.log.name, number))
    return None


def _may_match(pattern: str, texts: Sequence[LogText]) -> bool:
    return any(pattern in text.patterns for text in texts)


@lru_cache(maxsize=256)
def _find_patterns(name: str, condensed: str) -> frozenset[str]:
    """Return the regular expressions of a table's logs that may match a text; tasks of a sweep often have the same."""
    clues = (clue for signature in load_table(name) for clue in signature.clues)
    return frozenset(clue["log"] for clue in clues if "log" in clue and may_match(clue["log"], condensed))
