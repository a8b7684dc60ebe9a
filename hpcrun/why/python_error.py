"""Python's exceptions in logs: the message that says something, and the user's line of code that raised it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.why.log_end import Log

MAX_MESSAGE = 400

_START = re.compile(r"^.{0,80}?Traceback \(most recent call last\)(?::\s*$| ─+╮$|$)")
_FRAME = re.compile(
    r"""^\s*(?:\|\ )?\s*File\ "(?P<file>[^"]+)",\ line\ (?P<number>\d+)
    |^│\ (?P<boxed>/\S+?):(?P<boxed_number>\d+)\ in\  # rich
    |^(?:File\ (?P<notebook>[^\s":]+):|(?P<cell>Cell\ In\ ?\[\d+\]),\ line\ )(?P<line>\d+)  # IPython
    """,
    re.VERBOSE,
)
_BOX = ("│", "╭", "╰")
_IGNORED = re.compile(
    r"^(?:Exception (?:ignored|in thread) |Error in atexit|Error in sys\.excepthook|--- Logging error ---)"
)
_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?$")
_SYNTAX = re.compile(r"^(?:SyntaxError|IndentationError|TabError)\b")
_GROUP_MARK = re.compile(r"^\s*[|+][-+| ]{0,60}")
_LINK = re.compile(r"^(?:During handling of the above exception|The above exception was the direct cause)")
_FOREIGN = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python[\d.]+/|^<|/hpcrun/train/|/hpcrun/\w+\.py$|^[^/].*\.pyx$|/bin/[^/]+$|/jobs?/_?entry"
)
_WRAPPERS = re.compile(
    r"\b(?:ChildFailedError|CalledProcessError|SystemExit|RayTaskError\S*|ProcessRaisedException|ProcessExitedException"
    r"|KeyboardInterrupt|ApplicationError|JobException|CancelledError|SignalException)$"
)
_EXIT_MESSAGE = re.compile(r"^SystemExit: .*[A-Za-z]{3}")
_LOST_PEER = re.compile(
    r"DistBackendError|NCCL (?:error|communicator)|Connection closed by peer|HorovodInternalError"
    r"|Horovod has been shut down|Connection reset by peer|Broken pipe|Gloo .*(?:timed out|reset)"
    r"|WorkerLostError|recvValue failed|Socket closed|Barrier timed out|ncclRemoteError|ncclInternalError"
    r"|Connection(?:Reset|Aborted)Error|BrokenPipeError|remote process exited or there was a network error"
    r"|DistNetworkError: .*(?:recv|reset|Broken)|failed to recv, got 0 bytes|collective operation timeout|peer hung up"
    r"|^EOFError$"
)
_DETAILS = re.compile(
    r"^(?:Graph execution error:|\d+ root error\(s\) found\.|From /job:\S+:|Exception encountered when calling .*"
    r"|.*in user code:|.* Original error:"
    r"|Caught \w+ in .*|Traceback \(most recent call last\):|HDF5 error back trace|)$"
)
_RANK_LABEL = re.compile(r"^(?:\S+: )?\[rank\d+\]:")
_NO_MESSAGE = re.compile(
    r"^(?:$|Detected at node .*|Node: .*|\[\[\{\{.*|File \".*|Stack trace for op definition:.*|=+$"
    r"|Original [Tt]raceback.*|Traceback .*|(?:in|at) .*\):$|[-]+$|During handling.*|The above exception.*)"
)


@dataclass(frozen=True)
class PythonError:
    """An exception that ended a program.

    Attributes:
        log: The name of its log.
        error: Its type and message.
        file: The user's file that raised it.
        number: The line in that file.
        first: The index of the first line of its traceback.
        last: The index of the line with its message.
        end: The index of the last line of the message's paragraph.
        cause: The exception that caused it; empty without one.
        ignored: Whether Python only reported it, as it exited or in an object's finalizer, and went on.
    """

    log: str
    error: str
    file: str
    number: str
    first: int
    last: int
    end: int
    cause: str = ""
    ignored: bool = False

    @property
    def whose(self) -> str:
        """``own``, ``peer`` (it only reports that another rank has failed) or ``wrapper`` (another process)."""
        if _EXIT_MESSAGE.match(self.error):
            return "own"
        if _WRAPPERS.search(self.error.partition(":")[0]):
            return "wrapper"
        return "peer" if _LOST_PEER.search(self.error) else "own"


def find_python_error(logs: Sequence[Log]) -> PythonError | None:
    """Return the exception that explains most: the last one that does not only report another process's failure.

    Of the ranks that PyTorch labels, it is the first one's: these exceptions ended their ranks, and the first one ended
    the others.
    """
    found = [error for log in logs if "Traceback (" in log.text or '  File "' in log.text for error in _parse(log)]
    found = [error for error in found if not error.ignored] or found
    for whose in ("own", "peer", "wrapper"):
        if errors := [error for error in found if error.whose == whose]:
            log = next(log for log in logs if log.name == errors[0].log)
            errors = [error for error in errors if error.log == log.name]
            labelled = [error for error in errors if _RANK_LABEL.match(log.lines[error.last])]
            return labelled[0] if errors[-1] in labelled else errors[-1]
    return None


def _parse(log: Log) -> list[PythonError]:
    """Return the exceptions of a log in order, each chain as its last one."""
    lines, found, index, linked = log.text.split("\n"), list[PythonError](), 0, False
    while index < len(lines):
        line = lines[index]
        if 'File "' not in line and "Traceback (" not in line and "exception" not in line:
            index += 1
            continue
        if _LINK.match(_GROUP_MARK.sub("", line)):
            linked = bool(found)
        if not (_START.match(line) or _FRAME.match(line)):
            index += 1
            continue
        error = _parse_one(log.name, lines, index)
        if error is None:
            index += 1
            continue
        index = error.last + 1
        if linked:
            error = _join(found.pop(), error)
        found.append(error)
        linked = False
    return found


def _join(first: PythonError, error: PythonError) -> PythonError:
    """Return the exception of a chain that says most: the last one, with the one that caused it."""
    if first.whose == "own" and error.whose != "own":
        return replace(first, end=error.end)  # such as the interrupt of a handler that waited
    root = first.cause or first.error
    # a pool raises the exception of its worker again, far from the line that raised it
    where = first if root == error.error or _FOREIGN.search(error.file) else error
    cause = "" if root == error.error else root
    return replace(error, file=where.file, number=where.number, first=first.first, cause=cause)


def _parse_one(name: str, lines: list[str], start: int) -> PythonError | None:
    """Return the exception whose traceback starts at a line."""
    has_head = bool(_START.match(lines[start]))
    indent = lines[start][: len(lines[start]) - len(lines[start].lstrip())] if has_head else ""  # in torchrun's table
    frames: list[tuple[str, str]] = []
    limit = min(start + 600, len(lines))
    for index in range(start + has_head, limit):
        line = _GROUP_MARK.sub("", lines[index].removeprefix(indent))
        if frame := _FRAME.match(line):
            file, boxed, cell = frame["file"], frame["boxed"], frame["notebook"] or frame["cell"]
            frames.append((file or boxed or cell, frame["number"] or frame["boxed_number"] or frame["line"]))
            continue
        if not line.strip() or line[:1].isspace() or line.startswith(_BOX):
            continue
        if _START.match(line):
            return None
        match = _ERROR.match(line)
        if not match or not frames or not (has_head or _SYNTAX.match(line)):
            if has_head and frames and not match:
                continue  # output of other ranks between the lines
            return None
        message, last = _message(lines, index, match["message"] or "")
        if match["type"] == "AssertionError" and not message:
            message = next((text for text in map(str.strip, lines[index - 1 : start : -1]) if text.strip("~^ ")), "")
        end = last
        while end + 1 < len(lines) and lines[end + 1].strip() and not _START.match(lines[end + 1]) and end < last + 12:
            end += 1
        own = [frame for frame in frames if not _FOREIGN.search(frame[0])]
        is_syntax = bool(_SYNTAX.match(line))
        file, number = frames[-1] if is_syntax or not own else own[-1]
        text = f"{match['type']}: {message}" if message else match["type"]
        ignored = start > 0 and bool(_IGNORED.match(lines[start - 1]))
        return PythonError(name, text[:MAX_MESSAGE], file, number, start, last, end, ignored=ignored)
    return None


def _message(lines: list[str], index: int, message: str) -> tuple[str, int]:
    """Return the sentence of a message that says most, and the index of its line."""
    if not _DETAILS.match(message.strip()):
        follows = lines[index + 1].strip() if message.rstrip().endswith(":") and index + 1 < len(lines) else ""
        is_text = follows[:1].isalnum() and not _START.match(follows)
        return f"{message.strip()} {follows}" if is_text else message.strip(), index
    for number in range(index + 1, min(index + 80, len(lines))):
        line = _GROUP_MARK.sub("", lines[number]).strip()
        if "[[{{" in line and number > index + 1:
            break
        if _START.match(line) or _LINK.match(line):
            break
    else:
        number = min(index + 80, len(lines))
    after_node = [n for n in range(index, number) if lines[n].startswith("Node: ")]
    first = after_node[0] + 1 if after_node else index + 1
    for position in range(first, number):
        line = lines[position].strip()
        indented = lines[position][:1].isspace() and "File " in lines[max(position - 1, 0)]
        if _NO_MESSAGE.match(line) or indented or line.startswith("File "):
            continue
        return re.sub(r"^\(\d+\)\s+", "", line), position
    return message.strip(), index
