"""Execution of the node program with one command, whose output contains each node's reply."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from hpcrun.cleanup.node_reply import parse_replies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcrun.cleanup.node_reply import NodeReply

REPLY_GAP_SECONDS = 60.0
"""Timeout in s between the replies of two nodes."""

POLL_SECONDS = 0.05


@dataclass
class Replies:
    """The replies of the nodes that a command reached.

    Attributes:
        by_node: The replies by node name; by "" if the command runs on a single node.
        errors: The reasons why replies are invalid, by node name as in `by_node`.
        stderr_lines: The lines that the command wrote to stderr.
        timed_out: Whether the command timed out.
    """

    by_node: dict[str, NodeReply] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    stderr_lines: list[str] = field(default_factory=list)
    timed_out: bool = False


def run_on_nodes(
    command: Sequence[str], program: str, environment: Mapping[str, str], node_count: int, timeout: float
) -> Replies:
    """Run a command that starts a program on nodes, until all nodes have replied or the command times out.

    Args:
        command: The command line.
        program: The Python source of the program, which nodes read from stdin.
        environment: The environment variables of the command.
        node_count: The number of nodes that reply.
        timeout: Seconds until the first reply.
    """
    replies = Replies()
    with _open_memory("w+") as source, _open_memory("w+b") as stdout_file, _open_memory("w+b") as stderr_file:
        source.write(program)
        source.seek(0)
        try:
            process = subprocess.Popen(command, env=environment, stdin=source, stdout=stdout_file, stderr=stderr_file)
        except OSError as error:
            return Replies(stderr_lines=[error.strerror or str(error)])
        with process:
            deadline = time.monotonic() + timeout
            while process.poll() is None and len(replies.by_node) < node_count:
                if time.monotonic() > deadline:
                    replies.timed_out = True
                    break
                time.sleep(POLL_SECONDS)
                reply_count, (replies.by_node, _) = len(replies.by_node), parse_replies(_read_all(stdout_file))
                if len(replies.by_node) > reply_count:
                    deadline = max(deadline, time.monotonic() + REPLY_GAP_SECONDS)
            _end_process(process, without_grace=replies.timed_out)
        replies.by_node, replies.errors = parse_replies(_read_all(stdout_file))
        replies.stderr_lines = [line for line in _read_all(stderr_file).splitlines() if line.strip()]
        if process.returncode and not replies.stderr_lines:
            replies.stderr_lines = [f"exit code {process.returncode} and no reply"]
    return replies


def _open_memory(mode: str) -> IO[Any]:
    """Open a temporary file in memory, because disks may be full before the cleanup."""
    return os.fdopen(os.memfd_create("hpcrun"), mode)


def _read_all(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode(errors="replace"))


def _end_process(process: subprocess.Popen[bytes], *, without_grace: bool) -> None:
    """End a command; give it time to exit by itself unless it timed out."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(0 if without_grace else REPLY_GAP_SECONDS)
        return
    process.terminate()  # srun then releases its allocation
    with suppress(subprocess.TimeoutExpired):
        process.wait(3)
        return
    process.kill()
