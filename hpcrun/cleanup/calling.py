"""Run the program on nodes with one command, and read each node's reply."""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LATE_SECONDS = 60.0
"""How much later than the node before it a node may answer."""

POLL_SECONDS = 0.05


@dataclass
class Replies:
    """The replies of the nodes that a command reached.

    Attributes:
        answers: What each node said, by its name; "" stands for the only node.
        complaints: The lines that the command wrote to stderr.
        late: Whether the command timed out.
    """

    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    late: bool = False


def run(command: Sequence[str], text: str, environment: Mapping[str, str], nodes: int, seconds: float) -> Replies:
    """Run a command that has nodes run a program, until all have answered or it takes too long.

    Args:
        command: Its words.
        text: The program, which nodes read from stdin.
        environment: Its environment.
        nodes: How many nodes answer.
        seconds: For the first answer.
    """
    replies = Replies()
    with tempfile.TemporaryFile("w+") as program, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        program.write(text)
        program.seek(0)
        try:
            process = subprocess.Popen(command, env=environment, stdin=program, stdout=out, stderr=err)
        except OSError as error:
            return Replies(complaints=[error.strerror or str(error)])
        with process:
            deadline = time.monotonic() + seconds
            while process.poll() is None and len(replies.answers) < nodes:
                if time.monotonic() > deadline:
                    replies.late = True
                    break
                time.sleep(POLL_SECONDS)
                before, replies.answers = len(replies.answers), _answers(_all(out))
                if len(replies.answers) > before:
                    deadline = max(deadline, time.monotonic() + LATE_SECONDS)
            _end(process, at_once=replies.late)
        replies.answers = _answers(_all(out))
        replies.complaints = [line for line in _all(err).splitlines() if line.strip()]
        if process.returncode and not replies.complaints:
            replies.complaints = [f"exit code {process.returncode} and no answer"]
    return replies


def _all(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode(errors="replace"))


def _end(process: subprocess.Popen[bytes], *, at_once: bool) -> None:
    """End a command; one whose nodes have all answered ends by itself."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(0 if at_once else LATE_SECONDS)
        return
    process.terminate()  # srun then gives back what it has asked for
    with suppress(subprocess.TimeoutExpired):
        process.wait(3)
        return
    process.kill()


def _answers(out: str) -> dict[str, dict[str, Any]]:
    """Return the nodes' replies by name; a login script may have said something before, and lines may mix."""
    parts: dict[str, dict[int, str]] = {}
    counts: dict[str, int] = {}
    found: dict[str, dict[str, Any]] = {}
    for line in out.splitlines():
        words = line.split(" ")
        with suppress(ValueError):  # half written
            if line.startswith('{"swept": '):
                found[""] = json.loads(line)
            elif words[0] == "hpcrun-cleanup" and len(words) == 5:
                parts.setdefault(words[1], {})[int(words[2])] = words[4]
                counts[words[1]] = int(words[3])
    for node, pieces in parts.items():
        if len(pieces) == counts[node]:
            text = "".join(pieces[number] for number in range(counts[node]))
            found[node] = json.loads(base64.b64decode(text))
    return found
