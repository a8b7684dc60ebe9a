"""Search for Python exceptions in logs: the most informative message, and the user's line of code that raised it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from hpcrun.why.exception_text import find_condition, find_hint
from hpcrun.why.frames import FRAME, read_frame
from hpcrun.why.python_error import PythonError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.why.log_end import Log

MAX_MESSAGE_CHARACTERS = 400

_TRACEBACK_START = re.compile(r"^.{0,500}?Traceback \(most recent call last\)(?::(?: \(RANK \d+\))?\s*$| ─+╮$|$)")
_GRAPH_FRAME = re.compile(
    r"""^\s+(?:File\ "(?P<file>[^"]+)",\ line\ (?P<number>\d+),\ in\ \S+
    |(?P<old_file>/\S+|\w\S*\.py):(?P<old_number>\d+)\ \S+  # before TensorFlow 2.7
    )(?:\ \ \*+)?\s*$""",
    re.VERBOSE,
)
"""Matches a frame of code in a TensorFlow graph, within the message of the exception."""
_OPERATION = re.compile(r"\{\{node (?!(?:Stateful)?PartitionedCall|IteratorGetNext)(?P<name>[^{}\s]+)\}\}")
"""Matches the operation of a TensorFlow graph that failed, within the message of the exception."""
_BOX_CHARACTERS = ("│", "╭", "╰")
_IGNORED_EXCEPTION = re.compile(
    r"^(?:Exception (?:ignored|in thread) |Error in atexit|Error in sys\.excepthook|--- Logging error ---)"
)
_ERROR = re.compile(
    r"^(?P<type>(?:[A-Za-z_]\w*\.)*(?:(?!(?:ERROR|WARNING|INFO|DEBUG|CRITICAL|NOTE|WARN)\b)[A-Z_]\w*"
    r"|error|timeout|gaierror|herror|exception)(?:\(\w+\)(?=: <no detail))?)(?:: ?(?P<message>.*))?$"
)
_HANDLER = re.compile(r"\bin (?:reconciliate_processes|_?teardown|_?on_exception|_cleanup|_?clean_?up)$")
"""Matches a frame of a function that a library calls after an exception."""
_RAISE_FROM = re.compile(r"^raise .* from \w+$")
_SYNTAX = re.compile(r"^(?:SyntaxError|IndentationError|TabError)\b")
_NAMED = re.compile(r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|OutOfMemory|Found|Exit): \S")
"""Matches an exception that may end a traceback whose heading a log no longer has."""
_NAMED_ONLY = re.compile(r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception)$")
_GROUP_MARK = re.compile(r"^\s*[|+][-+| ]{0,60}")
_CHAIN_SEPARATOR = re.compile(r"^(?:During handling of the above exception|The above exception was the direct cause)")
_LIBRARY_FILE = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python[\d.]+/|^<|/hpcrun/train/|/hpcrun/\w+\.py$|^[^/].*\.p(?:yx|xi)$|/bin/[^/]+$|/jobs?/_?entry"
    r"|^[A-Z]:/.*/[Ll]ib/"
)
_THREAD_FAILED = re.compile(r"^StopIteration|Found: None$|\b(?:threads?|workers?|[Qq]ueue)\b")
"""Matches an exception of the main thread whose cause is a thread that failed."""
_CANCELLED_LINE = re.compile(r"^(?:slurmstepd\S*:|\[[\d:T.-]+\]) error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT ")
_DETAIL_LINE = re.compile(
    r"^(?:Graph execution error:|\d+ root error\(s\) found\.|From /job:\S+:|Exception encountered when calling .*"
    r"|.*in user code:|.* Original error:"
    r"|Caught \w+ in .*|Traceback \(most recent call last\):|HDF5 error back trace|)$"
)
_MESSAGE_CONTINUATION = re.compile(r"^(?:Exception encountered: |Layer '.*' expected|Original error was: )")
"""Matches the beginning of another paragraph of an exception's message."""
_TEXT_START = re.compile(r"\w|\[[./]{1,3}\w")
"""Matches the beginning of a line that continues a message, such as the source file of Gloo in brackets."""
_VALIDATION_ERROR = re.compile(r"\b\d+ validation errors? for \S+\s*$")
# a line without a marker neither begins a traceback nor joins two
_TRACEBACK_MARKERS = ('File "', "Traceback (", "exception")
_RANK_LABEL = re.compile(r"^(?:\S+: )?\[rank\d+\]:")
_UNINFORMATIVE_LINE = re.compile(
    r"^(?:$|Detected at node .*|Node: .*|\[\[\{\{.*|File \".*|Stack trace for op definition:.*|=+$"
    r"|<stack traces unavailable>|Original [Tt]raceback.*|Traceback .*|(?:in|at) .*\):$|[-]+$|During handling.*"
    r"|The above exception.*)"
)


def find_python_error(logs: Sequence[Log]) -> PythonError | None:
    """Return the most informative exception: the last that does not only report the failure of another process.

    If PyTorch labels lines with ranks, return the first exception: it ended its rank, and made the other ranks fail.
    """
    exceptions = [error for log in logs if "Traceback (" in log.text or 'File "' in log.text for error in _parse(log)]
    thread_exceptions = [error for error in exceptions if error.in_thread and error.kind == "own"]
    exceptions = [error for error in exceptions if not error.ignored] or exceptions
    if thread_exceptions and all(error.kind == "wrapper" or _THREAD_FAILED.search(error.error) for error in exceptions):
        exceptions = thread_exceptions  # the exception of the main thread then only reports that a thread has failed
    exceptions = [error for error in exceptions if not error.late] or exceptions
    for kind in ("own", "peer", "wrapper", "ignored"):
        if errors := [error for error in exceptions if error.kind == kind]:
            log = next(log for log in logs if log.name == errors[0].log)
            errors = [error for error in errors if error.log == log.name]
            errors_with_rank_label = [error for error in errors if _RANK_LABEL.match(log.lines[error.last])]
            return errors_with_rank_label[0] if errors[-1] in errors_with_rank_label else _find_origin(errors)
    return None


def _find_origin(errors: Sequence[PythonError]) -> PythonError:
    """Return the last exception, or the one that it points to, or that of an earlier program whose file it misses."""
    index = len(errors) - 1
    while index and errors[index].points_above:
        index -= 1
    if index < len(errors) - 1:
        return errors[index]
    while (
        index
        and errors[index].is_missing_file
        and errors[index].program
        and errors[index - 1].program not in {"", errors[index].program}
    ):
        index -= 1
    aftermath = errors[index + 1].first if errors[index + 1 :] else None
    return replace(errors[index], aftermath=aftermath)


def _parse(log: Log) -> list[PythonError]:
    """Return the exceptions of a log in order; of a chain of exceptions, only the last."""
    lines, errors, chain_separator = log.text.split("\n"), list[PythonError](), ""
    cancellation_index = len(lines)
    if "CANCELLED" in log.text:
        cancellation_index = next((n for n, line in enumerate(lines) if _CANCELLED_LINE.match(line)), len(lines))
    starts = [start for mark in _TRACEBACK_MARKERS if (start := log.text.find(mark)) >= 0]
    index = log.text.count("\n", 0, min(starts)) if starts else len(lines)
    while index < len(lines):
        line = lines[index]
        if not any(mark in line for mark in _TRACEBACK_MARKERS):
            index += 1
            continue
        if link := _CHAIN_SEPARATOR.match(_GROUP_MARK.sub("", line)):
            chain_separator = link[0] if errors else ""
        if not (_starts_traceback(line) or FRAME.match(line)):
            index += 1
            continue
        error = _parse_one(log.name, lines, index)
        if error is None:
            index += 1
            continue
        index = error.last + 1
        if chain_separator:
            start = error.first if chain_separator.startswith("During") else errors[-1].handled
            error = replace(_join(errors.pop(), error), handled=start)
        errors.append(replace(error, late=error.first > cancellation_index))
        chain_separator = ""
    return errors


def _join(first_error: PythonError, error: PythonError) -> PythonError:
    """Merge an exception of a chain with the exception that it caused."""
    if first_error.kind == "own" and (error.kind != "own" or error.in_handler):
        # such as a KeyboardInterrupt while a handler of the first exception waited
        return replace(first_error, end=error.end)
    root = first_error.cause or first_error.error
    # a pool raises its worker's exception again, at a line that did not cause it
    is_first = root == error.error or _LIBRARY_FILE.search(error.file)
    raised_error = first_error if is_first and not _LIBRARY_FILE.search(first_error.file) else error
    message = error.error.partition(": ")[2]
    is_repeated = message == root.partition(": ")[2] or (len(message) > 15 and message in root)
    cause = "" if root == error.error or (message and is_repeated) else root
    hint = error.hint or first_error.hint
    has_other_place = _RAISE_FROM.search(error.code) and first_error.code and raised_error is error
    return replace(
        error,
        file=raised_error.file,
        number=raised_error.number,
        code=raised_error.code,
        first=first_error.first,
        cause=cause,
        cause_place=first_error.place if has_other_place else "",
        hint=hint,
    )


def _parse_one(name: str, lines: list[str], start: int) -> PythonError | None:
    """Return the exception whose traceback starts at a line."""
    has_heading = _starts_traceback(lines[start])
    indent = (
        lines[start][: len(lines[start]) - len(lines[start].lstrip())] if has_heading else ""
    )  # in torchrun's table
    frames: list[tuple[str, str, str]] = []
    limit = min(start + 600, len(lines))
    for index in range(start + has_heading, limit):
        line = _GROUP_MARK.sub("", lines[index].removeprefix(indent))
        if frame := FRAME.match(line):
            frames.append(read_frame(frame, lines, index, indent))
            continue
        if not line.strip() or line[:1].isspace() or line.startswith(_BOX_CHARACTERS):
            continue
        if _starts_traceback(line):
            return None
        match = _ERROR.match(line)
        if not match or not frames or not (has_heading or _ends_cut_traceback(line, frames[-1][2])):
            if has_heading and frames and not match:
                continue  # output of other ranks between the lines
            return None
        if match["message"] is None:
            message, last = find_condition(match["type"], lines[start + 1 : index], frames), index
        else:
            message, last = _message(lines, index, match["message"])
        end_index = last
        while end_index + 1 < len(lines) and end_index < last + 12 and not _starts_traceback(lines[end_index + 1]):
            if not lines[end_index + 1].strip() and not any(
                map(_MESSAGE_CONTINUATION.match, lines[end_index + 2 : end_index + 3])
            ):
                break
            end_index += 1
        raised_in, _, raised_code = frames[-1]
        graph_frames = filter(None, map(_GRAPH_FRAME.match, lines[index + 1 : last]))
        frames += [
            (found["file"] or found["old_file"], found["number"] or found["old_number"], "") for found in graph_frames
        ]
        user_frames = [frame for frame in frames if not _LIBRARY_FILE.search(frame[0])]
        is_syntax = bool(_SYNTAX.match(line))
        file_frames = [
            frame for frame in frames if not frame[0].startswith("<")
        ]  # without <string>, <frozen importlib> and the like
        file, number, code = frames[-1] if is_syntax else (user_frames or file_frames or frames)[-1]
        has_type = message.startswith(f"{match['type']}: ")
        text = message if has_type else f"{match['type']}: {message}" if message else match["type"]
        previous_line = lines[start - 1] if start else ""
        ignored, in_thread = (
            bool(_IGNORED_EXCEPTION.match(previous_line)) or _is_reported_as_ignored(lines, last),
            previous_line.startswith("Exception in thread "),
        )
        operation, hint = _find_operation("\n".join(lines[index : end_index + 1])), find_hint(lines, index, end_index)
        return PythonError(
            name, text[:MAX_MESSAGE_CHARACTERS], file, number, start, last, end_index,
            hint=hint, code=code, operation=operation, ignored=ignored, in_thread=in_thread,
            raised_in=raised_in, raised_code=raised_code, program=_find_program(lines[start:index]),
            in_handler=any(map(_HANDLER.search, lines[start:index])),
        )  # fmt: skip
    return None


def _find_program(lines: Sequence[str]) -> str:
    """Return the file of the first frame of a traceback that is the user's script; empty if there is none."""
    frames = (FRAME.match(_GROUP_MARK.sub("", line)) for line in lines if line.endswith("in <module>"))
    files = (frame["file"] for frame in frames if frame and frame["file"])
    return next((file for file in files if not _LIBRARY_FILE.search(file)), "")


def _starts_traceback(line: str) -> bool:
    return "Traceback (" in line and bool(_TRACEBACK_START.match(line))


def _ends_cut_traceback(line: str, code: str) -> bool:
    """Return whether a line names the exception of a traceback without a heading, which quotes code at its end."""
    return bool(_SYNTAX.match(line) or (code and (_NAMED.match(line) or _NAMED_ONLY.match(line))))


def _is_reported_as_ignored(lines: list[str], last: int) -> bool:
    """Return whether the line after a message says that the exception was ignored, as Cython's code prints it."""
    return last + 1 < len(lines) and lines[last + 1].startswith("Exception ignored in: '")


def _find_operation(text: str) -> str:
    match = _OPERATION.search(text)
    graph = "the input pipeline (tf.data)" if "IteratorGetNext" in text else "the graph"
    return f"{match['name']} in {graph}" if match else ""


def _find_invalid_value(lines: list[str], index: int) -> str:
    """Return the name of the first invalid value, and the reason why it is invalid, from a pydantic error message."""
    following_lines = [line.split(" [type=")[0] for line in lines[index + 1 : index + 3]]
    reason_index = next((n for n, line in enumerate(following_lines) if line[:1].isspace()), len(following_lines) - 1)
    return ": ".join(line.strip() for line in following_lines[: reason_index + 1])


def _message(lines: list[str], index: int, message: str) -> tuple[str, int]:
    """Return the most informative sentence of a message, and the index of its line."""
    if not _DETAIL_LINE.match(message.strip()):
        if _VALIDATION_ERROR.search(message):
            return f"{message.strip()}: {_find_invalid_value(lines, index)}", index
        is_unfinished = message.rstrip().endswith((":", ",", " got")) and index + 1 < len(lines)
        next_line = lines[index + 1].strip() if is_unfinished else ""
        is_text = _TEXT_START.match(next_line) and not _starts_traceback(next_line)
        if is_text and len(message) + len(next_line) > MAX_MESSAGE_CHARACTERS:  # keep the end of the sentence
            return f"{message[: MAX_MESSAGE_CHARACTERS // 2].strip()} ... {next_line}", index
        return f"{message.strip()} {next_line}" if is_text else message.strip(), index
    for end_index in range(index + 1, min(index + 80, len(lines))):
        line = _GROUP_MARK.sub("", lines[end_index]).strip()
        if "[[{{" in line and end_index > index + 1:
            break
        if _starts_traceback(line) or _CHAIN_SEPARATOR.match(line):
            break
    else:
        end_index = min(index + 80, len(lines))
    node_line_numbers = [n for n in range(index, end_index) if lines[n].startswith("Node: ")]
    start_index = node_line_numbers[0] + 1 if node_line_numbers else index + 1
    for position in range(start_index, end_index):
        line = lines[position].strip()
        previous_line = lines[max(position - 1, 0)]
        is_code = lines[position][:1].isspace() and ("File " in previous_line or _GRAPH_FRAME.match(previous_line))
        if (
            _UNINFORMATIVE_LINE.match(line)
            or is_code
            or line.startswith("File ")
            or _GRAPH_FRAME.match(lines[position])
        ):
            continue
        return re.sub(r"^\(\d+\)\s+", "", line), position
    return message.strip(), index
