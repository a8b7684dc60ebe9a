"""Ranking of the causes that signatures recognise in a job, the most specific first.

Diagnoses have the order of their signatures in the table, in which specific signatures come first. Signatures
that match within the text of the last exception come before all others. If the program continued after all matching
messages, its last exception comes first. Messages that are normally harmless warnings are considered if no other cause
is recognised, or if the last exception has no informative message.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from hpcrun.why.clues import LogText
from hpcrun.why.consequences import LAUNCHER_LINE, is_in_exception, put_consequences_last
from hpcrun.why.signatures import find_patterns, find_signatures, load_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpcrun.why.clues import Match
    from hpcrun.why.evidence import Evidence
    from hpcrun.why.job_facts import JobFacts
    from hpcrun.why.signatures import Diagnosis, Signature

RELATED_LINES = 1
"""Maximum number of ordinary lines between a message and a later exception that it may have caused."""

MIN_PROGRESS_LINES = 3
"""Number of lines of progress after a message that show that the message did not end the program."""

MAX_LINES_WHILE_WAITING = 10
"""Maximum number of lines, with those of the message, after the exception of a rank for which the others wait."""

RELATED_ERRORS = 5
"""Maximum number of lines between a severe error and an exception that it may have caused."""

DECISIVE_STATES = frozenset({"BOOT_FAIL", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"})
"""States that are more decisive than any exception."""

ENDED_BY_LIMIT = frozenset({"DEADLINE", "TIMEOUT"})
"""States that are more decisive than messages, but less than an exception, because the job may have hung after it."""

_TIME_LIMIT = " DUE TO TIME LIMIT"
"""Ends the message of Slurm about a time limit, for a log without a state."""
_EXCEPTION = re.compile(r"\b\w+(?:Error|Exception)\b: ")
_OFTEN_CAUGHT_EXCEPTION = re.compile(
    r"^(?:\S+ )?(?:FileNotFoundError|KeyError|AttributeError|StopIteration|IndexError)\b"
)
_SEVERE_ERROR = re.compile(r"^\S+ \S+: [EF] |^[EF]\d{4} |\[[EF][ \d]")
_ERROR_WORD = re.compile(
    r"(?i)error|fail|terminat|abort|cannot|unable|exception|\bnot?\b|could|denied|unknown|invalid|^\W*$"
)
_SHELL_TOOL_LINE = re.compile(r"(?:cp|mv|rm|cat|tar|ls|ln|mkdir|rmdir|gzip|zip|rsync|head|tail|grep|sed|awk): ")
_ABORTED_PROGRAM = ("terminate called after throwing an instance of ",)
_NO_GPU = re.compile(
    r"(?i)\b(?:cuda|gpus?)\b.{0,40}\b(?:required|requires?|needed|unavailable|not? (?:available|found|detected))\b"
    r"|\b(?:no|needs?|requires?) (?:an? )?(?:cuda |nvidia )?(?:gpus?|cuda)\b|torch\.cuda\.is_available\(\)"
)
_GPU_WARNING = "CUDA initialization: "
"""Begins the warning of PyTorch that says why it found no GPU."""
_PROGRESS = re.compile(
    r"(?i)\b(?:epoch|step|iter(?:ation)?|batch)s?[ =:/#\[(]{1,3}\d.{0,200}?\d\.\d|(?<!\d)\d{1,3}%\|.{0,300}?/s\b"
    r"|\b\d{1,9}/\d{1,9} [\[━=].{0,300}?\d\.\d|\d (?:images|samples|examples|tokens|imgs|steps)/s(?:ec)?\b"
)


def find_diagnoses(name: str, facts: JobFacts, *, is_healthy: bool = False) -> list[Diagnosis]:
    """Return the diagnoses of a job by the signatures of a table, the most specific first.

    Args:
        name: The name of the table.
        facts: The facts about the job.
        is_healthy: Whether the job runs or completed, so that only signatures with ``always`` apply.
    """
    matched_signatures = _find_matches(name, facts, is_healthy=is_healthy, warnings=is_healthy)
    error = facts.python_error
    if not is_healthy and (not matched_signatures or (error and error.is_uninformative)):
        matched_signatures = _find_matches(name, facts, is_healthy=is_healthy, warnings=True)
    if facts.site_key:  # the job script has named the cause
        matched_signatures = [
            (s, matches) for s, matches in matched_signatures if matches[0].evidence is facts.scheduler_report
        ][:1]
    candidates = [(s, matches) for s, matches in matched_signatures if not (s.general or s.hint)]
    specific_candidates = [(s, matches) for s, matches in candidates if not _is_no_cause(matches, facts)]
    survived_candidates = [pair for pair in candidates if pair not in specific_candidates]
    specific_candidates.sort(
        key=lambda pair: not (pair[0].root or _is_decisive(pair[1], facts) or is_in_exception(pair[1], facts))
    )
    has_only_earlier_messages = bool(specific_candidates) and all(
        not (s.root or _is_decisive(matches, facts))
        and (_is_earlier(matches[-1], facts) or _is_handled(matches[-1], facts))
        for s, matches in specific_candidates
    )
    if has_only_earlier_messages or (
        _hung_after_exception(facts) and not any(is_in_exception(matches, facts) for _, matches in candidates)
    ):
        specific_candidates = [*_find_own_exception(name, facts), *specific_candidates]
    hang_candidates = [
        (s, matches) for s, matches in matched_signatures if s.hang and _is_cause_of_limit(matches, facts)
    ]
    general_candidates = [(s, matches) for s, matches in matched_signatures if s.general]
    general_candidates.sort(key=lambda pair: _is_no_cause(pair[1], facts))
    hang_candidates += [] if is_healthy else _find_gpu_warnings(name, facts)
    specific_candidates = [*hang_candidates, *[pair for pair in specific_candidates if pair not in hang_candidates]]
    likely_general_candidates = [pair for pair in general_candidates if not _is_no_cause(pair[1], facts)]
    ranked_candidates = specific_candidates or ([] if is_healthy else likely_general_candidates[:1])
    ranked_candidates = put_consequences_last(ranked_candidates, likely_general_candidates, facts)
    ranked_candidates = ranked_candidates or survived_candidates or general_candidates[:1]
    diagnoses: dict[Evidence, Diagnosis] = {}
    for signature, matches in [*ranked_candidates, *[(s, matches) for s, matches in matched_signatures if s.hint]]:
        # of two diagnoses with the same evidence, keep the more specific diagnosis
        diagnoses.setdefault(matches[-1].evidence, signature.diagnose(facts, matches))
    return list(diagnoses.values())


def _find_matches(
    name: str, facts: JobFacts, *, is_healthy: bool, warnings: bool
) -> list[tuple[Signature, list[Match]]]:
    """Return the matching signatures; after a match that is more than a hint, leave out most general signatures."""
    matched_signatures: list[tuple[Signature, list[Match]]] = []
    texts = [
        LogText(log, log.full_text, find_patterns(name, log.full_condensed))
        if warnings
        else LogText(log, log.text, find_patterns(name, log.condensed_text))
        for log in facts.logs
    ]
    matching_patterns = frozenset[str]().union(*(text.patterns for text in texts))
    is_found = has_consequence = False
    for signature in find_signatures(name, matching_patterns):
        if (is_healthy and not signature.always) or (signature.general and is_found and not signature.hang):
            continue
        found_matches = signature.matches(facts, texts)
        if found_matches and not (
            signature.general and signature.log_patterns and _is_ignored(found_matches[-1], facts)
        ):
            matched_signatures.append((signature, found_matches))
            has_consequence = has_consequence or signature.consequence
            is_cause = not (signature.hint or signature.consequence or (signature.general and has_consequence))
            is_found = is_found or (is_cause and not _is_no_cause(found_matches, facts))
    return matched_signatures


def _is_decisive(matches: Sequence[Match], facts: JobFacts) -> bool:
    """Return whether a match is a job state that names the cause, so that errors of ranks are only consequences."""
    is_scheduler_state = matches[0].evidence is facts.scheduler_report
    decisive_states = DECISIVE_STATES if facts.python_error else ENDED_BY_LIMIT | DECISIVE_STATES
    return is_scheduler_state and facts.state in decisive_states


def _is_no_cause(matches: Sequence[Match], facts: JobFacts) -> bool:
    """Return whether the program went on after each message of a signature, or the job's script after the program."""
    return _has_survived(matches, facts) or all(_is_after_program(match, facts) for match in matches)


def _is_after_program(match: Match, facts: JobFacts) -> bool:
    """Return whether a message is of a program or shell's tool, such as cp, that ran after a program had failed."""
    if not match.line:
        return False
    log = next(log for log in facts.logs if log.name == match.line[0])
    error = facts.python_error
    if error and error.log == log.name and error.aftermath is not None and match.line[1] >= error.aftermath:
        return True
    if not _SHELL_TOOL_LINE.match(match.evidence.line):
        return False
    if error and error.log == log.name and error.kind in {"own", "peer"} and match.line[1] > error.last:
        return True
    return any(line.startswith(_ABORTED_PROGRAM) for line in log.full_text.split("\n")[: match.line[1]])


def _has_survived(matches: Sequence[Match], facts: JobFacts) -> bool:
    """Return whether the program made progress after each message of a signature, so no such message ended it."""
    return all(
        match.line and (_shows_progress_after(match, facts) or _is_before_training(match, facts)) for match in matches
    )


def _is_ignored(match: Match, facts: JobFacts) -> bool:
    """Return whether a message is part of an exception that Python only reported."""
    error = facts.python_error
    if not (error and error.kind == "ignored" and match.line and match.line[0] == error.log):
        return False
    return error.first <= match.line[1] <= error.last


def _is_before_training(match: Match, facts: JobFacts) -> bool:
    """Return whether a message precedes the program's exception in a log, and another log shows progress.

    stderr and stdout are two files, so there may be no line of the training between the message and the exception.
    """
    error = facts.python_error
    if not (error and error.kind == "own" and match.line and match.line[0] == error.log):
        return False
    line_count = error.first - match.line[1]
    if line_count <= 0 or not any(log.name != error.log and _shows_progress(reversed(log.lines)) for log in facts.logs):
        return False
    line = match.evidence.line
    if _EXCEPTION.search(line):
        log = next(log for log in facts.logs if log.name == error.log)
        has_continued = any(
            line[:1].strip() and not _ERROR_WORD.search(line) for line in log.lines[match.line[1] + 1 : error.first]
        )
        return has_continued or bool(_OFTEN_CAUGHT_EXCEPTION.search(line))
    return line_count > RELATED_ERRORS or not _SEVERE_ERROR.search(line)


def _is_cause_of_limit(matches: Sequence[Match], facts: JobFacts) -> bool:
    """Return whether the job reached its time limit, and made no progress after a message."""
    is_ended_by_limit = facts.state in ENDED_BY_LIMIT or any(_TIME_LIMIT in log.full_text for log in facts.logs)
    return is_ended_by_limit and not any(_shows_progress_after(match, facts) for match in matches)


def _hung_after_exception(facts: JobFacts) -> bool:
    """Return whether an exception ended a rank, after which the job waited until its time limit."""
    error = facts.python_error
    if facts.state not in ENDED_BY_LIMIT or error is None or error.kind != "own" or error.late:
        return False
    log = next(log for log in facts.logs if log.name == error.log)
    lines_after = [line for line in log.lines[error.last + 1 :] if line.strip() and not LAUNCHER_LINE.match(line)]
    return len(lines_after) <= MAX_LINES_WHILE_WAITING and not _shows_progress(lines_after)


def _shows_progress_after(match: Match, facts: JobFacts) -> bool:
    """Return whether the program made progress after a message, in the same log."""
    if match.line is None:
        return False
    log = next(log for log in facts.logs if log.name == match.line[0])
    return _shows_progress(log.lines[match.line[1] + 1 :])


def _shows_progress(lines: Iterable[str]) -> bool:
    """Return whether lines of a log show progress of the program."""
    steps = (line for line in lines if _PROGRESS.search(line))
    return len(list(islice(steps, MIN_PROGRESS_LINES))) == MIN_PROGRESS_LINES


def _is_earlier(match: Match, facts: JobFacts) -> bool:
    """Return whether a message is an ordinary line, after which the program ran on until it raised its exception."""
    error = facts.python_error
    if not (error and error.kind == "own" and match.line) or _EXCEPTION.search(match.evidence.line):
        return False
    log = next(log for log in facts.logs if log.name == match.line[0])
    if log.name != error.log:
        return _shows_progress_after(match, facts)
    lines_between = log.lines[match.line[1] + 1 : error.first]
    return sum(1 for line in lines_between if _PROGRESS.search(line) or not _ERROR_WORD.search(line)) > RELATED_LINES


def _is_handled(match: Match, facts: JobFacts) -> bool:
    """Return whether a message belongs to an exception that programs often catch, and a later exception followed."""
    error = facts.python_error
    if not (error and error.kind == "own" and match.line and match.line[0] == error.log):
        return False
    return error.first <= match.line[1] < error.handled and bool(_OFTEN_CAUGHT_EXCEPTION.search(match.evidence.line))


def _find_gpu_warnings(name: str, facts: JobFacts) -> list[tuple[Signature, list[Match]]]:
    """Return the causes that PyTorch gave in a warning, if the last exception is that there is no GPU."""
    error = facts.python_error
    if not (error and _NO_GPU.search(f"{error.error} {error.code}")):
        return []
    if not any(_GPU_WARNING in log.full_text for log in facts.logs):
        return []
    matched_signatures = _find_matches(name, facts, is_healthy=False, warnings=True)
    return [(s, matches) for s, matches in matched_signatures if _GPU_WARNING in matches[0].evidence.line]


def _find_own_exception(name: str, facts: JobFacts) -> list[tuple[Signature, list[Match]]]:
    signatures = [signature for signature in load_table(name) if {"exception": "own"} in signature.clues]
    return [(signature, signature.matches(facts)) for signature in signatures]
