"""Tracebacks whose lines are mixed with lines of other ranks or of stdout in one log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_LINES = 200
"""Maximum number of lines, with those of others, between the first and the last line of a traceback."""

_HEADS = ("Traceback (most recent call last):", "terminate called after throwing an instance of ")
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)+(?:[A-Z_]\w*|error|timeout|gaierror|herror|exception)(?:\(\w+\))?(?::|$)"
    r"|^[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Iteration|Timeout)\w*(?:\(\w+\))?(?::|$)"
)
"""Matches the line with the type and message of a Python exception, which ends its traceback."""
_CONTINUATION = re.compile(r'^(?:$|\s|,? ?line \d+, in |")')
"""Matches a line within a traceback; a frame may be wrapped."""
_WHAT = re.compile(r"^\s+what\(\):")


def find_head(text: str) -> int | None:
    """Return the index of the first line with the head of a traceback that `regroup` can gather; None without one."""
    positions = [position for head in _HEADS if (position := text.find(head)) >= 0]
    return text.count("\n", 0, min(positions)) if positions else None


def regroup(lines: Sequence[str], texts: Sequence[str]) -> list[int]:
    """Return the order of lines in which no line of others is within a traceback; such lines follow it.

    Args:
        lines: The lines of a log.
        texts: The same lines without the labels of ranks.
    """
    order: list[int] = []
    waiting = list(range(len(texts)))[::-1]
    while waiting:
        index = waiting.pop()
        order.append(index)
        if not texts[index].startswith(_HEADS):
            continue
        found = _find_traceback(lines, texts, [index, *waiting[: -MAX_LINES - 1 : -1]])
        if found is None:
            continue
        own, others = found
        del waiting[len(waiting) - len(own) - len(others) :]
        order += own
        waiting += reversed(others)
    return order


def _find_traceback(
    lines: Sequence[str], texts: Sequence[str], indices: Sequence[int]
) -> tuple[list[int], list[int]] | None:
    """Return the lines of the traceback that starts at the first index, and those of others; None without others."""
    head, *following = indices
    label = _label(lines[head], texts[head])
    end = _WHAT if texts[head].startswith(_HEADS[1]) else _EXCEPTION
    own: list[int] = []
    others: list[int] = []
    for position, index in enumerate(following):
        text = texts[index]
        if _label(lines[index], text) != label:
            others.append(index)
        elif text.startswith(_HEADS):
            return None
        elif _CONTINUATION.match(text) and end is not _WHAT:
            own.append(index)
        elif end.match(text):
            own.append(index)
            rest = following[position + 1 :]
            next_line = next((texts[n] for n in rest if _label(lines[n], texts[n]) == label), "")
            if not next_line.startswith('  File "'):  # as after Ray's RayTaskError
                own_rest, others_between = _read_message(lines, texts, rest, label)
                own, others = own + own_rest, others + others_between
                return (own, others) if others else None
        else:
            others.append(index)
    return None


def _read_message(
    lines: Sequence[str], texts: Sequence[str], rest: Sequence[int], label: str
) -> tuple[list[int], list[int]]:
    """Return the further lines of an exception's message, which are indented, and those of others between them."""
    own: list[int] = []
    others: list[int] = []
    between: list[int] = []
    for index in rest:
        if _label(lines[index], texts[index]) != label:
            between.append(index)
        elif texts[index][:1] in {" ", "\t"}:
            own.append(index)
            others += between
            between = []
        else:
            break
    return own, others


def _label(line: str, text: str) -> str:
    """Return what a line has before its text, such as the number of the rank."""
    return line[: len(line) - len(text)].rstrip() if line.endswith(text) else ""
