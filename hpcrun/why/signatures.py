"""Signatures: known causes of pending and failed jobs, from ``pending.toml`` and ``failures/*.toml``.

An entry of a table has

- ``name``: an identifier for scripts;
- ``clues``: each clue alone identifies the cause. A clue is a set of conditions that must all hold: ``state``,
  ``reason`` and ``cancelled_by`` are regular expressions that match the whole value of the scheduler (or the exit
  record), ``scheduler`` and ``launcher`` are names, ``exit_code`` is a list, ``started = false`` means that the job
  script has not started, ``gpus = true`` that the job requested GPUs, ``disk_full = true`` that the file system of the
  run directory is full, so that the end of a log may be missing, ``exception`` is the kind of exception that ended the
  program (``own``, ``peer``, ``wrapper`` or ``ignored``: `hpcrun.why.python_error.PythonError.kind`), and ``log`` is a
  regular expression that is searched for in the ends of the logs. ``with`` and ``without`` are the context of ``log``:
  regular expressions that these logs must, or must not, contain elsewhere, if a message has several causes; they
  are also checked in a clue that has no ``log``;
- ``summary`` and ``fix``: the cause, and the solution. Names in braces, such as ``{job_id}``, are replaced by facts of
  the job (`hpcrun.why.job_facts.JobFacts.template_values`), and by the named groups of the clue. ``{advice}`` (in
  brackets) and ``{remedy}`` (at the beginning of a sentence) are the advice on the exception in the group ``error``;
  ``{meaning}`` is the meaning of the message in the group ``what`` (`hpcrun.why.message_advice`); a clue with a group
  ``change`` matches only if the name in the group ``error`` is in the tables of `hpcrun.why.changed_names`;
- ``brief``: a few words for tables, if Slurm's reason alone identifies the cause;
- ``general = true``: ignored if a more specific signature matches; only the first general match counts;
- ``root = true``: listed before the last exception, because this cause leads to many exceptions;
- ``hang = true``: listed first if the job reached its time limit, as the cause of the timeout, unless the program made
  progress after the message;
- ``consequence = true``: what remains of another failure, such as a connection to a rank that ended, or a launcher's
  report: listed after all other causes, and after a general one that an earlier line of the log names;
- ``hint = true``: listed after all other causes, because it is often harmless or a consequence;
- ``change``: the value of the request to change: ``time``, ``memory`` or ``exclude`` (`hpcrun.why.proposal`);
- ``always = true``: also searched for in jobs that run or completed.

The files of a table are read in the order of their names; `hpcrun.why.ranking` orders the causes that it finds.
"""

from __future__ import annotations

import re
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from hpcrun.frozen import frozen
from hpcrun.secrets import mask
from hpcrun.why.clues import match_clue
from hpcrun.why.exception_text import is_instruction
from hpcrun.why.literals import may_match
from hpcrun.why.message_advice import advise as advise_on_message
from hpcrun.why.sentences import fill
from hpcrun.why.tables import read_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.why.clues import LogText, Match
    from hpcrun.why.evidence import Evidence
    from hpcrun.why.job_facts import JobFacts

_NAMES_PLACE = re.compile(r"\{(?:file|place)\}")
JOB_SPECIFIC_VALUES = ("job_id", "run_dir", "host")
"""Values that differ between jobs with the same diagnosis."""


@frozen
class Diagnosis:
    """A cause that a signature recognised in a job.

    Attributes:
        name: The name of the signature.
        summary: The cause in plain words.
        evidence: The lines that support the diagnosis.
        fix: Instructions that solve the problem.
        cause: The summary without job-specific values, by which jobs are grouped.
        change: The kind of value to change in the request, such as ``time`` or ``memory``; empty if no change helps.
        nodes: The nodes that a log names as the cause; empty if it names none.
    """

    name: str
    summary: str
    evidence: tuple[Evidence, ...]
    fix: str
    cause: str = ""
    change: str = ""
    nodes: str = ""

    def __post_init__(self) -> None:
        for name in ("summary", "fix", "cause"):  # these texts quote logs and code, which may contain secrets
            object.__setattr__(self, name, mask(getattr(self, name)))


@frozen
class Signature:
    """An entry of a table; see the module docstring."""

    name: str
    clues: tuple[dict[str, Any], ...]
    summary: str
    fix: str
    brief: str = ""
    general: bool = False
    root: bool = False
    consequence: bool = False
    hint: bool = False
    hang: bool = False
    always: bool = False
    change: str = ""

    @cached_property
    def log_patterns(self) -> frozenset[str]:
        """The regular expressions for logs in the signature's clues; empty if one of the clues needs no log."""
        patterns = frozenset(clue["log"] for clue in self.clues if "log" in clue)
        return patterns if all("log" in clue for clue in self.clues) else frozenset()

    @property
    def quotes(self) -> bool:
        """Whether the signature matches any message of a kind, and only tells what that message means."""
        return "{meaning}" in self.fix

    def matches(self, facts: JobFacts, texts: Sequence[LogText] = ()) -> list[Match]:
        """Return the match of the first clue that holds; if it is a job state, also the first match in a log."""
        candidates = (clue for clue in self.clues if "log" not in clue or _may_match(clue["log"], texts))
        matches = (match for clue in candidates if (match := match_clue(clue, facts, texts)))
        first_match = next(matches, None)
        if first_match is None:
            return []
        if first_match.evidence is not facts.scheduler_report:
            return [first_match]
        # a line of a log is more specific than a state
        return [first_match, *[other for other in matches if other.evidence is not facts.scheduler_report][:1]]

    def diagnose(self, facts: JobFacts, matches: Sequence[Match]) -> Diagnosis:
        """Return the diagnosis of a job, with the matches as evidence."""
        values = {**facts.template_values, **matches[0].groups}
        if "{meaning}" in self.fix:
            meaning = advise_on_message(values["what"]) or advise_on_message(matches[-1].evidence.line)
            meaning = meaning or _find_instruction(facts, matches[-1])
            values["meaning"] = f"{meaning}; " if meaning else ""
        cause = fill(self.summary, {**values, **dict.fromkeys(JOB_SPECIFIC_VALUES, "...")})
        cause = cause.replace(str(facts.run.directory), "...")
        evidence = tuple(match.evidence for match in matches)
        nodes = next((match.groups["nodes"] for match in matches if "nodes" in match.groups), "")
        summary, fix = fill(self.summary, values), fill(self.fix, values)
        if not _NAMES_PLACE.search(self.fix) and (place := _find_place(facts, matches[-1])):
            fix += f"; it was raised at {place}"
        return Diagnosis(self.name, summary, evidence, fix, cause, self.change, nodes)


@cache
def load_table(name: str) -> tuple[Signature, ...]:
    """Load the signatures of a table, ``failures`` or ``pending``, in order."""
    tables = [*read_tables(f"{name}.toml"), *read_tables(f"{name}/*.toml")]
    entries = [entry for table in tables for entry in table["signature"]]
    return tuple(Signature(**{**entry, "clues": tuple(entry["clues"])}) for entry in entries)


def reason_code(reason: str) -> str:
    """Return Slurm's reason for a pending job, without details in brackets or after a comma."""
    return re.split(r"[,(]", reason.strip("()"))[0].strip()


@cache
def describe_reason(reason: str) -> str:
    """Return Slurm's reason for a pending job, with a short description if it is known; empty without a reason."""
    reason_clues = ((signature.brief, clue) for signature in load_table("pending") for clue in signature.clues)
    descriptions = (
        brief for brief, clue in reason_clues if "reason" in clue and re.fullmatch(clue["reason"], reason_code(reason))
    )
    description = next(descriptions, "") if reason else ""
    return f"{reason_code(reason)} ({description})" if description else reason


def _find_place(facts: JobFacts, match: Match) -> str:
    """Return the user's line of code of the exception that a line of a log belongs to; empty if there is none."""
    error = facts.python_error
    if match.line is None or error is None or error.is_of_library or error.kind != "own":
        return ""
    log, index = match.line
    is_within = log == error.log and error.first <= index <= error.end
    is_within = is_within or error.error in match.evidence.line  # another rank raised the same exception
    place = f"{error.place}; its cause at {error.cause_place}" if error.cause_place else error.place
    return place if is_within and error.code else ""


def _find_instruction(facts: JobFacts, match: Match) -> str:
    """Return the instruction in the line after a message; empty if the line contains no instruction."""
    if match.line is None:
        return ""
    log = next(log for log in facts.logs if log.name == match.line[0])
    following_line = log.line(match.line[1] + 1) if match.line[1] + 1 < len(log.lines) else ""
    is_text = not following_line.lstrip().startswith(("***", "Call Stack"))
    return f"its next line says: {following_line}" if is_text and is_instruction(following_line) else ""


def _may_match(pattern: str, texts: Sequence[LogText]) -> bool:
    return any(pattern in text.patterns for text in texts)


@lru_cache(maxsize=256)
def find_patterns(name: str, condensed_text: str) -> frozenset[str]:
    """Return the log patterns of a table that may match a text; cached, as tasks of a sweep often have equal texts."""
    clues = (clue for signature in load_table(name) for clue in signature.clues)
    return frozenset(clue["log"] for clue in clues if "log" in clue and may_match(clue["log"], condensed_text))


@lru_cache(maxsize=256)
def find_signatures(name: str, patterns: frozenset[str]) -> tuple[Signature, ...]:
    """Return the signatures of a table with one of these log patterns, or without log patterns; cached."""
    return tuple(s for s in load_table(name) if not (s.log_patterns and s.log_patterns.isdisjoint(patterns)))
