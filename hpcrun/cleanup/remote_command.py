"""Runs the node program with one command, and parses each node's reply."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REPLY_GAP_SECONDS = 60.0
"""Longest time between the replies of two nodes."""

POLL_SECONDS = 0.05


@dataclass
class Replies:
    """The replies of the nodes that a command reached.

    Attributes:
        by_node: Each node's reply by its name; the key "" is the only node.
        stderr_lines: The lines that the command wrote to stderr.
        timed_out: Whether the command timed out.
    """

    by_node: dict[str, dict[str, Any]] = field(default_factory=dict)
    stderr_lines: list[str] = field(default_factory=list)
    timed_out: bool = False


def run_on_nodes(
    command: Sequence[str], program: str, environment: Mapping[str, str], node_count: int, timeout: float
) -> Replies:
    """Run a command that starts a program on nodes, until all nodes have replied or it times out.

    Args:
        command: The command.
        program: The source of the program, which nodes read from stdin.
        environment: The environment of the command.
        node_count: The number of nodes that reply.
        timeout: Seconds until the first reply.
    """
    replies = Replies()
    with _open_memory("w+") as source, _open_memory("w+b") as out, _open_memory("w+b") as err:
        source.write(program)
        source.seek(0)
        try:
            process = subprocess.Popen(command, env=environment, stdin=source, stdout=out, stderr=err)
        except OSError as error:
            return Replies(stderr_lines=[error.strerror or str(error)])
        with process:
            deadline = time.monotonic() + timeout
            while process.poll() is None and len(replies.by_node) < node_count:
                if time.monotonic() > deadline:
                    replies.timed_out = True
                    break
                time.sleep(POLL_SECONDS)
                before, replies.by_node = len(replies.by_node), _parse_replies(_read_all(out))
                if len(replies.by_node) > before:
                    deadline = max(deadline, time.monotonic() + REPLY_GAP_SECONDS)
            _end_process(process, at_once=replies.timed_out)
        replies.by_node = _parse_replies(_read_all(out))
        replies.stderr_lines = [line for line in _read_all(err).splitlines() if line.strip()]
        if process.returncode and not replies.stderr_lines:
            replies.stderr_lines = [f"exit code {process.returncode} and no reply"]
    return replies


def _open_memory(mode: str) -> IO[Any]:
    """Open a temporary file in memory: disks may be full, which the cleanup may change."""
    return os.fdopen(os.memfd_create("hpcrun"), mode)


def _read_all(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode(errors="replace"))


def _end_process(process: subprocess.Popen[bytes], *, at_once: bool) -> None:
    """End a command; a command whose nodes have all replied exits by itself."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(0 if at_once else REPLY_GAP_SECONDS)
        return
    process.terminate()  # srun then releases its allocation
    with suppress(subprocess.TimeoutExpired):
        process.wait(3)
        return
    process.kill()


def _parse_replies(out: str) -> dict[str, dict[str, Any]]:
    """Return the replies by node; login scripts may have printed other lines, and nodes' lines may interleave."""
    parts: dict[str, dict[int, str]] = {}
    counts: dict[str, int] = {}
    found: dict[str, dict[str, Any]] = {}
    for line in out.splitlines():
        words = line.split(" ")
        with suppress(ValueError):  # an incomplete line
            if line.startswith('{"jobs": '):
                found[""] = json.loads(line)
            elif words[0] == "hpcrun-cleanup" and len(words) == 5:
                parts.setdefault(words[1], {})[int(words[2])] = words[4]
                counts[words[1]] = int(words[3])
    for node, pieces in parts.items():
        if len(pieces) == counts[node]:
            text = "".join(pieces[number] for number in range(counts[node]))
            found[node] = json.loads(base64.b64decode(text))
    return found
