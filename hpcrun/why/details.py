"""Details of a diagnosis from the lines around its evidence: the message before it, the place in a backtrace."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from hpcrun.why.backtraces import find_libraries, find_place
from hpcrun.why.message_advice import advise, advise_on_system_error

if TYPE_CHECKING:
    from hpcrun.why.evidence import Evidence
    from hpcrun.why.job_facts import JobFacts
    from hpcrun.why.signatures import Diagnosis

CRASHES = frozenset({"rank-segfault", "segmentation-fault", "bus-error", "process-segfault"})
"""Diagnoses of programs that leave no message, but perhaps a backtrace."""
ENDED_WITHOUT_MESSAGE = frozenset({"aborted", "exit-reported", "rank-sigkill", "task-killed"})
"""Diagnoses from what a launcher says in stderr, while the program wrote its messages to stdout."""
OF_ANY_PROGRAM = frozenset({
    "aborted", "cpp-exception", "cpp-exception-silent", "data-missing", "exception-without-traceback", "fatal-check",
    "fortran-error", "fortran-floating", "heap-corruption", "language-error", "last-message", "system-error",
})  # fmt: skip
"""Diagnoses that quote a message of any program, and do not know where it comes from."""
_REDIRECTED = re.compile(
    r"line \d{1,6}: {1,4}\d+ (?:Aborted|Killed|Segmentation fault|Bus error|Illegal instruction|Floating point)"
    r"\b[^>]{1,1000}[^>2-9]&?>{1,2} ?(?P<file>(?!/dev/null)[\w./~+:=$%{}-]{1,300})(?: 2>&1)?\s*&?\s*$"
)
"""Matches what a shell reports of a crashed command whose output it wrote to a file."""


def add_details(diagnosis: Diagnosis, facts: JobFacts) -> Diagnosis:
    """Return the most specific diagnosis of a job with the details that its logs have around the evidence."""
    if diagnosis.name == "rank-exited":
        diagnosis = replace(diagnosis, evidence=(*diagnosis.evidence, *facts.failed_rank_lines))
    if diagnosis.name == "rank-exit-code":
        diagnosis = _quote_last_lines(diagnosis, facts.last_program_lines)
    if diagnosis.name in {"mpi-abort", "cpp-exception-silent"}:
        diagnosis = _quote_message_before(diagnosis, facts)
    if diagnosis.name in CRASHES:
        diagnosis = _name_crashed_library(diagnosis, facts)
    if diagnosis.name in CRASHES | ENDED_WITHOUT_MESSAGE:
        diagnosis = _name_output_file(diagnosis)
        diagnosis = _quote_last_lines(diagnosis, facts.last_output_lines)
    return _name_place(diagnosis, facts) if diagnosis.name in OF_ANY_PROGRAM else diagnosis


def _name_output_file(diagnosis: Diagnosis) -> Diagnosis:
    """Name the file into which a shell wrote the output of a program that it reports as crashed or killed."""
    match = next((found for seen in diagnosis.evidence if (found := _REDIRECTED.search(seen.line))), None)
    if match is None:
        return diagnosis
    return replace(diagnosis, fix=f"its own output went to {match['file']}: read the end of it; {diagnosis.fix}")


def _quote_last_lines(diagnosis: Diagnosis, lines: tuple[Evidence, ...]) -> Diagnosis:
    """Add the last lines of the program, and the meaning of an error in them, to a diagnosis without a known error."""
    meaning = next((advice for line in reversed(lines) if (advice := advise_on_system_error(line.line))), "")
    fix = f"{meaning}; {diagnosis.fix}" if meaning else diagnosis.fix
    return replace(diagnosis, evidence=(*lines, *diagnosis.evidence), fix=fix)


def _quote_message_before(diagnosis: Diagnosis, facts: JobFacts) -> Diagnosis:
    """Add the program's own message to the diagnosis of a program that aborted after it."""
    message = facts.message_before(diagnosis.evidence[0])
    if message is None:
        return _quote_last_lines(diagnosis, facts.last_output_lines)
    meaning = advise(message.line)
    fix = f"{meaning}; {diagnosis.fix}" if meaning else diagnosis.fix
    summary = f"{diagnosis.summary} after this message: {message.line}"
    return replace(diagnosis, summary=summary, evidence=(message, *diagnosis.evidence), fix=fix)


def _name_crashed_library(diagnosis: Diagnosis, facts: JobFacts) -> Diagnosis:
    """Add the libraries in which the backtrace of a crash begins."""
    libraries = find_libraries(line for log in facts.logs for line in log.lines)
    if not libraries:
        return diagnosis
    summary = f"{diagnosis.summary}; its backtrace begins in {', called by '.join(libraries)}"
    package = next((name.partition("/")[0] for name in libraries if "/" in name), "")
    if not package:
        return replace(diagnosis, summary=summary)
    advice = f"another release of {package}, or one built with the MPI and CUDA of the job, may not crash"
    return replace(diagnosis, summary=summary, fix=f"{advice}; {diagnosis.fix}")


def _name_place(diagnosis: Diagnosis, facts: JobFacts) -> Diagnosis:
    """Add the user's file and line from a backtrace of Java, JavaScript, Fortran, ... that follows the message."""
    following = () if "raised at" in diagnosis.fix else facts.lines_after(diagnosis.evidence[-1])
    place = find_place(following)
    if not place:
        return diagnosis
    fix = diagnosis.fix.replace("the log has no traceback of it: the lines above", "the lines below")
    return replace(diagnosis, fix=f"{fix}; it was raised at {place}")
