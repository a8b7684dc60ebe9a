"""Ranks the causes that signatures recognise in a job, the most specific first.

The order of a table is the order of the diagnoses: specific signatures come first. Signatures
that match within the text of the last exception come before all others. If the program continued after all messages
that match, its last exception comes first. Harmless warnings in a log count if no other cause is recognised, or if the
message of the last exception is only a heading.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from hpcrun.why.signatures import LogText, find_patterns, load_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpcrun.why.evidence import Evidence
    from hpcrun.why.job_facts import JobFacts
    from hpcrun.why.signatures import Diagnosis, Match, Signature

RELATED_LINES = 1
"""Maximum number of ordinary lines between an exception and an earlier message that may be its cause."""

STEPS_AFTER = 3
"""Number of lines of progress after a message that show that the message did not end the program."""

RELATED_ERRORS = 5
"""So many lines before an exception, a line of a severe error may be its cause."""

DECISIVE_STATES = frozenset({"BOOT_FAIL", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"})
"""States that are more decisive than any exception."""

ENDED_BY_LIMIT = frozenset({"DEADLINE", "TIMEOUT"})
"""States that are more decisive than messages, but less than an exception, after which the job may have hung."""

_EXCEPTION = re.compile(r"\b\w+(?:Error|Exception)\b: ")
_OFTEN_CAUGHT = re.compile(r"^(?:\S+ )?(?:FileNotFoundError|KeyError|AttributeError|StopIteration|IndexError)\b")
_SEVERE = re.compile(r"^\S+ \S+: [EF] |^[EF]\d{4} |\[[EF][ \d]")
_TROUBLE = re.compile(
    r"(?i)error|fail|terminat|abort|cannot|unable|exception|\bnot?\b|could|denied|unknown|invalid|^\W*$"
)
_PROGRESS = re.compile(
    r"(?i)\b(?:epoch|step|iter(?:ation)?|batch)s?[ =:/#\[(]{1,3}\d.{0,200}?\d\.\d|(?<!\d)\d{1,3}%\|.{0,300}?/s\b"
    r"|\b\d{1,9}/\d{1,9} [\[━=].{0,300}?\d\.\d|\d (?:images|samples|examples|tokens|imgs|steps)/s(?:ec)?\b"
)


def find_diagnoses(name: str, facts: JobFacts, *, well: bool = False) -> list[Diagnosis]:
    """Return the diagnoses of a job by the signatures of a table, the most specific first.

    Args:
        name: The name of the table.
        facts: The facts about the job.
        well: Whether the job runs or completed: then only signatures with ``always`` apply.
    """
    matched = _find_matches(name, facts, well=well, warnings=well)
    error = facts.python_error
    if not well and (not matched or (error and error.says_nothing)):
        matched = _find_matches(name, facts, well=well, warnings=True)
    if facts.site_key:  # the script itself has named the cause
        matched = [(s, matches) for s, matches in matched if matches[0].evidence is facts.scheduler_report][:1]
    found = [(s, matches) for s, matches in matched if not (s.general or s.hint)]
    specific = [(s, matches) for s, matches in found if not _is_survived(matches, facts)]
    survived = [pair for pair in found if pair not in specific]
    specific.sort(key=lambda pair: not (pair[0].root or _is_decisive(pair[1], facts) or _is_in_any(pair[1], facts)))
    if specific and all(
        not (s.root or _is_decisive(matches, facts))
        and (_is_earlier(matches[-1], facts) or _is_handled(matches[-1], facts))
        for s, matches in specific
    ):
        specific = [*_find_own_exception(name, facts), *specific]
    hangs = [(s, matches) for s, matches in matched if s.hang and _is_cause_of_limit(matches, facts)]
    general = [(s, matches) for s, matches in matched if s.general]
    general.sort(key=lambda pair: _is_survived(pair[1], facts))
    specific = [*hangs, *[pair for pair in specific if pair not in hangs]]
    first = specific or ([] if well else [pair for pair in general if not _is_survived(pair[1], facts)][:1])
    first = first or survived or general[:1]
    diagnoses: dict[Evidence, Diagnosis] = {}
    for signature, matches in [*first, *[(s, matches) for s, matches in matched if s.hint]]:
        # of two diagnoses with the same evidence, keep the more specific diagnosis
        diagnoses.setdefault(matches[-1].evidence, signature.diagnose(facts, matches))
    return list(diagnoses.values())


def _find_matches(name: str, facts: JobFacts, *, well: bool, warnings: bool) -> list[tuple[Signature, list[Match]]]:
    """Return the signatures that match, without general signatures after the first match that is more than a hint."""
    matched: list[tuple[Signature, list[Match]]] = []
    texts = [
        LogText(log, log.full_text, find_patterns(name, log.full_condensed))
        if warnings
        else LogText(log, log.text, find_patterns(name, log.condensed))
        for log in facts.logs
    ]
    possible = frozenset[str]().union(*(text.patterns for text in texts))
    is_found = False
    for signature in load_table(name):
        if signature.log_patterns and signature.log_patterns.isdisjoint(possible):
            continue
        if (well and not signature.always) or (signature.general and is_found and not signature.hang):
            continue
        found = signature.matches(facts, texts)
        if found and not (signature.general and signature.log_patterns and _is_ignored(found[-1], facts)):
            matched.append((signature, found))
            is_found = is_found or not (signature.hint or _is_survived(found, facts))
    return matched


def _is_decisive(matches: Sequence[Match], facts: JobFacts) -> bool:
    """Return whether the job's state names the cause, so that errors of ranks are only consequences."""
    by_state = matches[0].evidence is facts.scheduler_report
    decisive = DECISIVE_STATES if facts.python_error else ENDED_BY_LIMIT | DECISIVE_STATES
    return by_state and facts.state in decisive


def _is_survived(matches: Sequence[Match], facts: JobFacts) -> bool:
    """Return whether the program made progress after all messages of a signature, which so did not end it."""
    return all(
        match.line and (_has_steps_after(match, facts) or _is_before_training(match, facts)) for match in matches
    )


def _is_ignored(match: Match, facts: JobFacts) -> bool:
    """Return whether a message is part of an exception that Python only reported."""
    error = facts.python_error
    if not (error and error.whose == "ignored" and match.line and match.line[0] == error.log):
        return False
    return error.first <= match.line[1] <= error.last


def _is_before_training(match: Match, facts: JobFacts) -> bool:
    """Return whether a message precedes the program's own exception in a log, while another log has its progress.

    Slurm writes stderr and stdout to two files, so that nothing of the training may be between the two.
    """
    error = facts.python_error
    if not (error and error.whose == "own" and match.line and match.line[0] == error.log):
        return False
    between = error.first - match.line[1]
    if between <= 0 or not any(log.name != error.log and _has_steps(reversed(log.lines)) for log in facts.logs):
        return False
    line = match.evidence.line
    if _EXCEPTION.search(line):
        log = next(log for log in facts.logs if log.name == error.log)
        went_on = any(
            line[:1].strip() and not _TROUBLE.search(line) for line in log.lines[match.line[1] + 1 : error.first]
        )
        return went_on or bool(_OFTEN_CAUGHT.search(line))
    return between > RELATED_ERRORS or not _SEVERE.search(line)


def _is_cause_of_limit(matches: Sequence[Match], facts: JobFacts) -> bool:
    """Return whether the job reached its time limit, and made no progress after a message."""
    return facts.state in ENDED_BY_LIMIT and not any(_has_steps_after(match, facts) for match in matches)


def _has_steps_after(match: Match, facts: JobFacts) -> bool:
    """Return whether the program made progress after a message, in the same log."""
    if match.line is None:
        return False
    log = next(log for log in facts.logs if log.name == match.line[0])
    return _has_steps(log.lines[match.line[1] + 1 :])


def _has_steps(lines: Iterable[str]) -> bool:
    """Return whether lines of a log show progress of the program."""
    steps = (line for line in lines if _PROGRESS.search(line))
    return len(list(islice(steps, STEPS_AFTER))) == STEPS_AFTER


def _is_in_any(matches: Sequence[Match], facts: JobFacts) -> bool:
    """Return whether any of the matches is within the text of the last exception."""
    error = facts.python_error
    lines = [match.line for match in matches if match.line]
    return error is not None and any(log == error.log and error.first <= n <= error.end for log, n in lines)


def _is_earlier(match: Match, facts: JobFacts) -> bool:
    """Return whether a message is not an exception, and the program went on until it raised an exception of its own."""
    error = facts.python_error
    if not (error and error.whose == "own" and match.line) or _EXCEPTION.search(match.evidence.line):
        return False
    log = next(log for log in facts.logs if log.name == match.line[0])
    if log.name != error.log:
        return _has_steps_after(match, facts)
    between = log.lines[match.line[1] + 1 : error.first]
    return sum(1 for line in between if _PROGRESS.search(line) or not _TROUBLE.search(line)) > RELATED_LINES


def _is_handled(match: Match, facts: JobFacts) -> bool:
    """Return whether a message is of an exception that programs often catch, and another exception followed."""
    error = facts.python_error
    if not (error and error.whose == "own" and match.line and match.line[0] == error.log):
        return False
    return error.first <= match.line[1] < error.handled and bool(_OFTEN_CAUGHT.search(match.evidence.line))


def _find_own_exception(name: str, facts: JobFacts) -> list[tuple[Signature, list[Match]]]:
    own = [signature for signature in load_table(name) if {"exception": "own"} in signature.clues]
    return [(signature, signature.matches(facts)) for signature in own]
