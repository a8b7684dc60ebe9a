"""Sentences of answers: templates whose values may be empty, and messages that a program broke over several lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MIN_WRAPPED_LENGTH = 50
"""Minimum number of characters of a line that a program breaks before the sentence ends."""

MAX_MESSAGE_LENGTH = 300
"""Maximum number of characters that are read after a line that ends within a sentence."""

MAX_LINES = 4
"""Maximum number of lines of a completed sentence."""

MAX_HEADLINE = 320
"""Maximum number of characters of a headline, four lines of a terminal; the evidence quotes a long message."""

MAX_ONE_LINE = 160
"""Maximum number of characters of instructions that are one line, two lines of a terminal."""

SAME_START = 12
"""Number of characters that two lines of the same logger begin with, which are then two messages."""

_OPENING, _CLOSING = "([{", ")]}"
_EMPTY = "\0"
_EMPTY_BRACKETS = re.compile(r" ?\(\0(?: \0)*\)")
_EMPTY_WORD = re.compile(r" \0(?=[ ,;:.)\0]|\Z)")
_SENTENCE_END = re.compile(r"(?<=[a-z)][.!?])(?: |$)")
_TEXT = re.compile(r"(?!File \"|Traceback )[A-Za-z'\"`].{4}")
_END = re.compile(r"[.!?:;)}\]\"'`]$")
_NO_CONTINUATION = re.compile(
    r"[^A-Za-z`'\"(]|(?:srun|slurmstepd|mpi\w+|prterun|Traceback|File|at|in|from)\b|\w*(?:Error|Exception)\b"
    r"|(?:ERROR|WARN\w*|INFO|DEBUG|FATAL|Warning)\b|(?=[^a-z]).{0,30}:|\S+[:=]"
)


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Replace the names in braces, without the space or brackets around a value that is empty."""
    text = template.format_map({name: _EMPTY if value == "" else value for name, value in values.items()})
    return _EMPTY_WORD.sub("", _EMPTY_BRACKETS.sub("", text)).replace(_EMPTY, "")


def complete(text: str, start: int, end: int) -> str:
    """Return a message with the following lines, if the program broke its sentence over several lines.

    Args:
        text: The text of a log.
        start: The position of the message in the text.
        end: The position after its last character.
    """
    message = text[start:end]
    line = text[text.rfind("\n", 0, start) + 1 : end]
    indent = len(line) - len(line.lstrip())
    if text[end : end + 1] != "\n" or len(line) - len(message) > indent or "\n" in message:
        return message
    for following in text[end + 1 : end + 1 + MAX_MESSAGE_LENGTH].split("\n")[: MAX_LINES - 1]:
        word = following.lstrip()
        if len(line) < MIN_WRAPPED_LENGTH or _END.search(line.rstrip()) or _NO_CONTINUATION.match(word or " "):
            break
        if following.startswith(line[:SAME_START]):
            break
        if len(following) - len(word) != indent or not (word[0].islower() or len(line) > len(following)):
            break
        if sentence_end := _SENTENCE_END.search(word):
            return f"{message.rstrip()} {word[: sentence_end.start()]}"
        message, line = f"{message.rstrip()} {word.rstrip()}", following
    return message


def read_on(text: str, end: int) -> str:
    """Return the line after a message that ends with a colon; empty if it is no text.

    Args:
        text: The text of a log.
        end: The position after the message.
    """
    following = text[end + 1 :].partition("\n")[0].strip() if text[end : end + 1] == "\n" else ""
    return f" {following}" if _TEXT.match(following) else ""


def shorten(text: str) -> str:
    """Return a headline, of which a long message is cut after a sentence or a word."""
    if len(text) <= MAX_HEADLINE:
        return text
    start = text[:MAX_HEADLINE]
    sentence_end = max((match.start() for match in _SENTENCE_END.finditer(start)), default=0)
    return f"{start[:sentence_end] if sentence_end > MAX_HEADLINE // 2 else start.rpartition(' ')[0]} ..."


def split_steps(fix: str) -> list[str]:
    """Return the instructions of a long text one by one; a short text is one instruction."""
    if len(fix) <= MAX_ONE_LINE:
        return [fix]
    steps, start, depth, quote = [], 0, 0, ""
    for position, character in enumerate(fix):
        if quote:
            quote = "" if character == quote else quote
        elif character in '`"':
            quote = character
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif depth == 0 and fix.startswith("; ", position):
            steps.append(fix[start:position])
            start = position + 2
    return [*steps, fix[start:]]
