"""The reply of a node to a cleanup request, checked and typed; `hpcrun.cleanup.node` writes it."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from hpcrun.frozen import frozen
from hpcrun.jobs.record_validation import parse_record

if TYPE_CHECKING:
    from collections.abc import Sequence


@frozen
class FoundProcess:
    """A process of a job."""

    pid: int
    name: str


@frozen
class UnattributedProcess:
    """A process that may belong to a job, with its command line and its age in seconds."""

    pid: int
    name: str
    command: str
    seconds: int


@frozen
class LeftFile:
    """A file that was not removed, the reason, and whether it is doubtful that it belongs to the job."""

    path: str
    why: str
    doubtful: bool


@frozen
class JobReport:
    """The processes and files that a job left on a node; see `hpcrun.cleanup.node.clean_node`."""

    processes: Sequence[FoundProcess]
    survivors: Sequence[FoundProcess]
    spared: Sequence[FoundProcess]
    files: Sequence[str]
    removed: Sequence[str]
    left: Sequence[LeftFile]


@frozen
class NodeReply:
    """A node's reply: the reports on the requested jobs, in the order of the request, and unattributed processes."""

    jobs: Sequence[JobReport]
    unattributed: Sequence[UnattributedProcess]


def parse_replies(stdout: str) -> tuple[dict[str, NodeReply], dict[str, str]]:
    """Return the replies and the errors of invalid replies, by node; by "" if the command runs on a single node.

    Other lines are ignored, such as the output of login scripts. The output lines of several nodes may be interleaved.
    """
    texts: dict[str, str | bytes] = {}
    pieces_by_node: dict[str, dict[int, str]] = {}
    counts: dict[str, int] = {}
    for line in stdout.splitlines():
        match line.split(" "):
            case ["hpcrun-cleanup", node, index, count, piece] if index.isdecimal() and count.isdecimal():
                pieces_by_node.setdefault(node, {})[int(index)] = piece
                counts[node] = int(count)
            case ['{"jobs":', *_]:
                texts[""] = line
    for node, pieces in pieces_by_node.items():
        if len(pieces) >= counts[node]:
            texts[node] = "".join(pieces[index] for index in sorted(pieces))
    replies, errors = {}, {}
    for node, text in texts.items():
        try:
            replies[node] = parse_record(NodeReply, json.loads(base64.b64decode(text) if node else text))
        except ValueError as error:  # raised also for invalid base64 or JSON
            errors[node] = f"its reply is invalid: {error}"
    return replies, errors
