"""The advice in the message, and the user's line of code, from a Python traceback."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_HINT_CHARACTERS = 300
MAX_CODE_CHARACTERS = 100
MAX_FOLLOWING_LINES = 12
"""Maximum number of lines that are read after a message's first paragraph."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`'\"(])|(?<=;)\s+(?=please )")
_INSTRUCTION = re.compile(
    r"""^(?:\W{0,4}|Hint:\ |Note:\ |HINT:\ )
        (?:[Pp]lease|[Tt]ry|[Uu]se|[Ss]et|[Ii]nstall|[Uu]pgrade|[Uu]pdate|Downgrade|Consider|Make\ sure|Ensure|Pass|Call
        |Add|Specify|Instantiate|Define|Create|Override|Convert|Move|Wrap|Save|Restart|Reinstall|Initialize|Implement
        |Switch|Select|Avoid|Export|Verify|Modify|Delete
        |Do\ not|Don't|Increase|Reduce|Check(?!\ failed)|Run|Rename|Replace|Remove
        |Provide|Enable|Disable|Load|Change|Choose|Perhaps
        |Did\ you|Maybe|You\ (?:can|could|should|must|need|may|might|have\ to)|If\ you|Either|It\ is\ recommended
        |To\ (?:fix|avoid|solve|resolve|use|enable|disable|install|load|run|do|support|suppress|silence|allow))\b
    |\b(?:[Pp]lease|(?:pip3?|conda)\ install|[Dd]id\ you\ (?:mean|forget)|make\ sure|(?:try|consider)\ (?:to\ )?\w+ing
        |try\ to\ \w+|use\ \S+(?:\ \S+)?\ instead|instead\ use
        |you\ (?:can|should|must|need\ to|may\ need|have\ to))\b""",
    re.VERBOSE,
)
"""Matches a sentence that gives advice, such as "Please install ..."."""
_REQUIREMENT = re.compile(
    r"""^(?:Expected\ one|Available|Valid|Supported|Possible|Instead)\b
    |\b(?:(?:should|must)\ (?:be|have|use|call|set|contain|match)|requires?|needs?\ to\ be|expected\ one\ of
        |(?:is|are)\ (?:only\ )?(?:supported|available|allowed)\ (?:with|for|in|on|from|if|when)
        |(?:available|valid|allowed|supported|possible)\ (?:options|choices|values|keys|names|types)
        |(?:has\ been|have\ been|was)\ (?:removed|renamed|replaced|moved|deprecated))\b""",
    re.VERBOSE,
)
"""Matches a sentence that states a requirement, such as "x must be ..."."""
_NO_ADVICE = re.compile(
    r"(?i)\b(?:report (?:this|it|the)|(?:open|file|create|submit) an? (?:issue|bug)|bug report|contact "
    r"|more (?:information|details|info)|for details|copy the|print statements above"
    r"|TF_CPP_MIN|stack trace|TORCH_SHOW_CPP|JAX_TRACEBACK)"
)
_START = re.compile(
    r"^(?:Please|Try|You (?:can|should|must|need|may|might)|To (?:fix|avoid|solve|resolve)|Make sure|If you|Hint)\b"
)
_CODE_MARKS = re.compile(r"^[\s~^]*$")
_BOXED_CODE = re.compile(r"^│ +❱ +(?P<number>\d+) +(?P<code>.*?)\s*│?$")
_RAISE = re.compile(r"raise\b(?!.*\bif\b)")
_NOTEBOOK_CODE = re.compile(r"^-+> ?(?P<number>\d+) (?P<code>.*)$")


def find_code(lines: Sequence[str], index: int, line_number: str, indent: str = "") -> str:
    """Return the line of code that a traceback quotes for a frame; empty if it quotes none.

    Args:
        lines: The log's lines.
        index: The index of the log line that describes the frame.
        line_number: The line number of the code in its file.
        indent: The indentation of each line of the traceback.
    """
    head = lines[index].removeprefix(indent)
    if head.startswith("│"):
        matches = (_BOXED_CODE.match(line) for line in lines[index + 1 : index + 12])
        code = next(
            (match["code"].replace("│", "").strip() for match in matches if match and match["number"] == line_number),
            "",
        )
    elif 'File "' in head[:12] and index + 1 < len(lines):
        next_line = lines[index + 1].removeprefix(indent)
        depth = len(head) - len(head.lstrip())
        is_code = next_line[: depth + 1].isspace() and not next_line.lstrip().startswith(('File "', "[Previous"))
        code = next_line.strip() if is_code and not _CODE_MARKS.match(next_line) else ""
    else:
        matches = (_NOTEBOOK_CODE.match(line) for line in lines[index + 1 : index + 12])
        code = next((match["code"].strip() for match in matches if match and match["number"] == line_number), "")
    return code if len(code) <= MAX_CODE_CHARACTERS else f"{code[:MAX_CODE_CHARACTERS]} ..."


def find_marked_code(lines: Sequence[str], index: int) -> tuple[str, str]:
    """Return the number and text of the line of code that IPython marks with an arrow below a frame's heading.

    Args:
        lines: The log's lines.
        index: The index of the log line that describes the frame.
    """
    matches = (_NOTEBOOK_CODE.match(line) for line in lines[index + 1 : index + 12])
    match = next(filter(None, matches), None)
    return (match["number"], match["code"].strip()[:MAX_CODE_CHARACTERS]) if match else ("", "")


def find_condition(kind: str, lines: Sequence[str], frames: Sequence[tuple[str, str, str]]) -> str:
    """Return the line of code that explains an exception without a message; empty if there is none.

    Args:
        kind: The exception's type.
        lines: The lines of the exception's traceback.
        frames: The file, line number and line of code of each frame.
    """
    if kind == "AssertionError":
        return next((text for text in map(str.strip, reversed(lines)) if text.strip("~^ ")), "")
    if kind not in {"ValueError", "RuntimeError", "TypeError", "Exception"}:
        return ""
    return next((code for _, _, code in reversed(frames) if code and not _RAISE.match(code)), "")


def is_instruction(hint: str) -> bool:
    """Return whether a sentence gives an instruction, rather than only stating a requirement."""
    return bool(_INSTRUCTION.search(hint))


def find_hint(lines: Sequence[str], index: int, end: int) -> str:
    """Return the sentences of a message that give advice; empty if there are none.

    Args:
        lines: The log's lines.
        index: The index of the line that names the exception's type.
        end: The index of the last line of the message's first paragraph.
    """
    paragraph = [line.strip() for line in lines[index : end + 1] if not line.lstrip().startswith(("File ", "[[", "│"))]
    paragraph[0] = re.sub(r"^[\w.]+(?:\(\w+\))?: ?", "", paragraph[0])
    following_lines = [line.strip() for line in lines[end + 1 : end + MAX_FOLLOWING_LINES]]
    while following_lines and not following_lines[0]:
        following_lines.pop(0)
    if following_lines and _START.match(following_lines[0]):
        paragraph += following_lines[: following_lines.index("")] if "" in following_lines else following_lines[:3]
    sentences = [sentence for line in _join_lines(paragraph) for sentence in _SENTENCE_END.split(line)]
    sentences = [text for text in sentences if len(text) > 8 and not _NO_ADVICE.search(text)]
    hints = [text for text in sentences if _INSTRUCTION.search(text)] or [
        text for text in sentences if _REQUIREMENT.search(text)
    ]
    hint = " ".join(dict.fromkeys(hints))
    return hint if len(hint) <= MAX_HINT_CHARACTERS else f"{hint[:MAX_HINT_CHARACTERS].rsplit(' ', 1)[0]} ..."


def _join_lines(lines: Sequence[str]) -> list[str]:
    """Join lines of a message to paragraphs: a line that does not end a sentence continues in the next line."""
    joined: list[str] = []
    for line in lines:
        if joined and line[:1].islower() and not joined[-1].endswith((".", ":", "!", "?")):
            joined[-1] = f"{joined[-1]} {line}"
        elif line:
            joined.append(line)
    return joined
