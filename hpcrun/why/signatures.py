"""Signatures: known causes of pending and failed jobs, from the tables ``pending.toml`` and ``failures.toml``.

An entry of a table has

- ``name``: a word for scripts;
- ``clues``: any one of them recognises the cause. A clue is a set of conditions that must all hold: ``state``,
  ``reason`` and ``cancelled_by`` are regular expressions that match the whole value of the scheduler (or the exit
  record), ``scheduler`` and ``launcher`` are names, ``exit_code`` is a list, ``started = false`` means that its script
  has not started, ``disk_full = true`` that the run directory's file system is full now, so that the end of a log may
  be missing, and ``log`` is a regular expression that is searched for in the ends of the logs;
- ``summary`` and ``fix``: the cause, and what to do. ``{site}``, ``{job_id}`` and the like stand for facts of the job
  (`hpcrun.why.job_facts.JobFacts.template_values`), and for the named groups of the clue;
- ``brief``: a few words for tables, where Slurm's reason alone recognises the cause;
- ``general = true``: ignored if a more specific signature matches;
- ``always = true``: also searched for in jobs that run or completed.

The order of a table is the order of the diagnoses: specific signatures come first.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.why.evidence import Evidence
from hpcrun.why.literals import compile_pattern, may_match

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.why.job_facts import JobFacts, Log

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
    """

    name: str
    summary: str
    evidence: tuple[Evidence, ...]
    fix: str
    cause: str = ""


@dataclass(frozen=True)
class Signature:
    """One entry of a table; see the module docstring."""

    name: str
    clues: tuple[dict[str, Any], ...]
    summary: str
    fix: str
    brief: str = ""
    general: bool = False
    always: bool = False

    def diagnose(self, facts: JobFacts) -> Diagnosis | None:
        """Return the diagnosis of the first matching clue; None without a match."""
        matches = (match for clue in self.clues if (match := _match_clue(clue, facts)))
        if (first := next(matches, None)) is None:
            return None
        groups, evidence = first
        all_evidence = [evidence]
        if evidence is facts.scheduler_report:  # a line of a log is more specific than a state
            all_evidence += [other for _, other in matches if other is not facts.scheduler_report][:1]
        values = {**facts.template_values, **groups}
        cause = self.summary.format_map({**values, **dict.fromkeys(JOB_SPECIFIC_VALUES, "...")}).replace(
            str(facts.run.directory), "..."
        )
        return Diagnosis(
            self.name, self.summary.format_map(values), tuple(all_evidence), self.fix.format_map(values), cause
        )


@cache
def load_table(name: str) -> tuple[Signature, ...]:
    """Load the signatures of a table, ``failures`` or ``pending``, in order."""
    text = Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8")
    return tuple(Signature(**{**entry, "clues": tuple(entry["clues"])}) for entry in tomllib.loads(text)["signature"])


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
    matched = [(s, f) for s in load_table(name) if (s.always or not well) and (f := s.diagnose(facts))]
    if facts.site_key:  # the script itself has named the cause
        matched = [(s, f) for s, f in matched if f.evidence[0] is facts.scheduler_report][:1]
    specific = [(s, f) for s, f in matched if not s.general] or matched[:1]
    found: dict[Evidence, Diagnosis] = {}
    for _, finding in specific:  # of two with the same evidence, keep the more specific one
        found.setdefault(finding.evidence[-1], finding)
    return list(found.values())


def _match_clue(clue: dict[str, Any], facts: JobFacts) -> tuple[dict[str, str], Evidence] | None:
    """Return a clue's named groups and the evidence if it matches; None otherwise."""
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
    if "log" not in clue:
        return groups, facts.disk_full_evidence if "disk_full" in clue else facts.scheduler_report
    if found := _search_logs(clue["log"], facts.logs):
        log, match = found
        return {**groups, **match.groupdict("")}, Evidence(log.name, log.line(match))
    return None


def _search_logs(pattern: str, logs: Sequence[Log]) -> tuple[Log, re.Match[str]] | None:
    """Return the last match of a pattern in the first log that has one."""
    for log in logs:
        match = None
        for match in compile_pattern(pattern).finditer(log.text) if may_match(pattern, log.condensed) else ():  # noqa: B007
            pass
        if match:
            return log, match
    return None
