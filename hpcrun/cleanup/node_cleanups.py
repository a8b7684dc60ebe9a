"""Parallel execution of the cleanup program on nodes: by one command through Slurm, or one ssh command per node."""

from __future__ import annotations

import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hpcrun.cleanup.node import KILL_SECONDS
from hpcrun.cleanup.node_program import build_program
from hpcrun.cleanup.remote_command import run_on_nodes
from hpcrun.frozen import frozen
from hpcrun.schedulers.environment import command_environment
from hpcrun.schedulers.slurm_client import SlurmClient
from hpcrun.secrets import mask_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.cleanup.node_reply import JobReport, NodeReply, UnattributedProcess
    from hpcrun.cleanup.remote_command import Replies
    from hpcrun.cleanup.transports import Transport

MAX_PARALLEL_COMMANDS = 64
START_SECONDS = {"here": 60.0, "ssh": 30.0, "step": 60.0, "job": 180.0}
"""Timeout in s for the start of the program on a node, by kind of transport; Slurm runs its Prolog before a job."""

COMPLETING_SECONDS = 60.0
"""Timeout in s for a node on which a job is completing, Epilog included."""

POLL_SECONDS = 1.0

_COMMAND_NAMES = {"here": "here", "ssh": "ssh", "step": "srun", "job": "srun"}
_JOB_VARIABLES = (
    "HPCRUN_RUN_DIR",
    "HPCRUN_JOB_ID",
)  # these variables would make the cleanup program look like a process of the job
_STATE_FLAGS = re.compile(r"[*~#!%$@^+-]+$")  # sinfo(1), NODE STATE CODES
_FREE_STATES = {"idle", "completing", "planned"}
_USABLE_STATES = {*_FREE_STATES, "mixed"}
_LAUNCH_FAILED = re.compile(r"[Ll]aunch .*failed on node ([\w.-]+)")


@frozen
class NodeCleanup:
    """One run of the cleanup program on one node.

    Attributes:
        node: The node.
        transports: The transports to try in turn until one reaches the node.
        request: The request to the program, see `hpcrun.cleanup.node.main`.
        slurm_conf: The slurm.conf of the node's cluster, see `hpcrun.jobs.runs.Run.slurm_conf`.
    """

    node: str
    transports: tuple[Transport, ...]
    request: dict[str, Any]
    slurm_conf: str | None = None


@frozen
class NodeResult:
    """The result of the cleanup of one node.

    Attributes:
        node: The node.
        jobs: The report on each job, by run directory; empty if the node was not reached.
        error: The reason why the node was not reached; empty if it was reached.
        slurm_conf: The slurm.conf of the node's cluster; another cluster may have a node of the same name.
        unattributed: Processes that may belong to a job, although their environments and cgroups name none.
    """

    node: str
    jobs: dict[str, JobReport]
    error: str = ""
    slurm_conf: str | None = None
    unattributed: tuple[UnattributedProcess, ...] = ()


@dataclass
class _Group:
    """The cleanups of nodes that are reached through the same transport.

    Attributes:
        transport: The transport.
        pending: The cleanups without a reply so far, by node.
        replies: The replies, by node.
        errors: The reasons why nodes have not been reached so far, by node.
    """

    transport: Transport
    pending: dict[str, NodeCleanup]
    replies: dict[str, NodeReply] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def drop_node(self, node: str, reason: str) -> None:
        """Record that a node cannot be reached, and do not try it again."""
        self.errors[node] = reason
        self.pending.pop(node, None)

    def run_command(self, nodes: Sequence[str]) -> Replies:
        """Run one command for some of the nodes, and store their replies."""
        node_cleanups = [self.pending[node] for node in nodes]
        request = node_cleanups[0].request
        environment = {
            name: value
            for name, value in command_environment(node_cleanups[0].slurm_conf).items()
            if name not in _JOB_VARIABLES
        }
        kill_seconds = 0 if request["dry_run"] else request["grace"] + KILL_SECONDS
        command = self.transport.command(nodes, minutes=math.ceil((START_SECONDS["job"] + kill_seconds) / 60))
        timeout = START_SECONDS[self.transport.kind] + kill_seconds
        replies = run_on_nodes(command, build_program(_merge_requests(node_cleanups)), environment, len(nodes), timeout)
        error_text = (
            f"no reply within {timeout:g} s" if replies.timed_out else (replies.stderr_lines or ["no reply"])[-1]
        )
        for node in nodes:
            key = "" if len(nodes) == 1 and node not in {**replies.by_node, **replies.errors} else node
            reply, job_count = replies.by_node.get(key), len(self.pending[node].request["jobs"])
            if reply and len(reply.jobs) == job_count:
                self.replies[node] = reply
                del self.pending[node]
            elif reply:
                self.errors[node] = f"its reply is about {len(reply.jobs)} of {job_count} jobs"
            else:
                self.errors[node] = replies.errors.get(key, error_text.removeprefix("srun: ").removeprefix("error: "))
        for node in set(_LAUNCH_FAILED.findall("\n".join(replies.stderr_lines))) & set(self.pending):
            self.drop_node(node, "Slurm cannot launch a task on it")
        return replies


def _merge_requests(node_cleanups: Sequence[NodeCleanup]) -> dict[str, Any]:
    """Merge the requests of several nodes into one request, which contains each job once."""
    common_request = node_cleanups[0].request
    if len(node_cleanups) == 1:
        return common_request
    jobs = {job["run_dir"]: job for node_cleanup in node_cleanups for job in node_cleanup.request["jobs"]}
    indices = {run_dir: index for index, run_dir in enumerate(jobs)}
    nodes = {
        node_cleanup.node: {
            "jobs": [indices[job["run_dir"]] for job in node_cleanup.request["jobs"]],
            "folders": node_cleanup.request["folders"],
        }
        for node_cleanup in node_cleanups
    }
    return {**common_request, "jobs": list(jobs.values()), "nodes": nodes}


def run_node_cleanups(node_cleanups: Sequence[NodeCleanup]) -> list[NodeResult]:
    """Clean nodes in parallel, and return their results in the same order."""
    replies: dict[tuple[str, str | None], NodeReply] = {}
    errors: dict[tuple[str, str | None], list[str]] = {}
    for attempt in range(max((len(node_cleanup.transports) for node_cleanup in node_cleanups), default=0)):
        groups: dict[tuple[Transport, str | None, str], _Group] = {}
        for node_cleanup in node_cleanups:
            if (node_cleanup.node, node_cleanup.slurm_conf) not in replies and attempt < len(node_cleanup.transports):
                transport = node_cleanup.transports[attempt]
                key = (transport, node_cleanup.slurm_conf, "" if transport.uses_slurm else node_cleanup.node)
                groups.setdefault(key, _Group(transport, {})).pending[node_cleanup.node] = node_cleanup
        with ThreadPoolExecutor(MAX_PARALLEL_COMMANDS) as pool:
            list(pool.map(_clean_group, groups.values()))
        for (transport, slurm_conf, _), group in groups.items():
            replies |= {(node, slurm_conf): reply for node, reply in group.replies.items()}
            for node in set(group.errors) - set(group.replies):
                errors.setdefault((node, slurm_conf), []).append(
                    f"{_COMMAND_NAMES[transport.kind]}: {group.errors[node]}"
                )
    return [
        _node_result(node_cleanup, replies.get((node_cleanup.node, node_cleanup.slurm_conf)), errors)
        for node_cleanup in node_cleanups
    ]


def _node_result(
    node_cleanup: NodeCleanup, reply: NodeReply | None, errors: dict[tuple[str, str | None], list[str]]
) -> NodeResult:
    if reply is None:
        error = "; ".join(errors.get((node_cleanup.node, node_cleanup.slurm_conf), ()))
        return NodeResult(node_cleanup.node, {}, error, node_cleanup.slurm_conf)
    job_reports = zip(node_cleanup.request["jobs"], reply.jobs, strict=True)
    unattributed = tuple(replace(process, command=mask_command(process.command)) for process in reply.unattributed)
    jobs = {job["run_dir"]: report for job, report in job_reports}
    return NodeResult(node_cleanup.node, jobs, "", node_cleanup.slurm_conf, unattributed)


def _clean_group(group: _Group) -> None:
    """Clean all nodes with one command, drop nodes that make it fail, and clean the remaining nodes one by one."""
    idle_nodes = _drop_unavailable_nodes(group) if group.transport.kind == "job" else []
    timed_out = False
    while nodes := list(group.pending):
        timed_out = group.run_command(nodes).timed_out
        if timed_out or len(group.pending) in {0, len(nodes)}:
            break
    if timed_out or not group.transport.uses_slurm:
        return
    if 0 < len(idle_nodes := [node for node in idle_nodes if node in group.pending]) < len(group.pending):
        group.run_command(idle_nodes)  # Slurm allocates all requested nodes or none, and partly used nodes may be full
    if len(nodes) > 1 and group.pending:
        with ThreadPoolExecutor(MAX_PARALLEL_COMMANDS) as pool:
            list(pool.map(lambda node: group.run_command([node]), list(group.pending)))


def _drop_unavailable_nodes(group: _Group) -> list[str]:
    """Drop nodes on which Slurm cannot start a job now, and return the idle nodes.

    Slurm would reject a job that requests a dropped node, or keep the job pending.
    """
    states, deadline = _query_node_states(group), time.monotonic() + COMPLETING_SECONDS
    while "completing" in {state for state, _ in states.values()} and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)  # wait for the end of the job or of its Epilog
        states = _query_node_states(group)
    if states:  # Slurm has answered
        for node in set(group.pending) - set(states):
            group.drop_node(node, "Slurm lists no node of this name")
    for node, (state, reason) in states.items():
        if state == "allocated":
            group.drop_node(node, "other jobs use all of it")
        elif state not in _USABLE_STATES:
            group.drop_node(node, f"Slurm reports it as {state}{f' ({reason})' * (reason not in {'', 'none'})}")
    return [node for node, (state, _) in states.items() if state in _FREE_STATES and node in group.pending]


def _query_node_states(group: _Group) -> dict[str, tuple[str, str]]:
    """Return the state of each node in Slurm, and Slurm's reason; empty if Slurm does not answer."""
    slurm_conf = next(iter(group.pending.values())).slurm_conf
    command = ["sinfo", "--noheader", "--all", "--Node", f"--nodes={','.join(group.pending)}", "--format=%N|%T|%E"]
    states = {}
    for node, state, reason in SlurmClient(slurm_conf).query_table(command, 3, optional_columns=2) or ():
        if node in group.pending:
            prefix = "not responding, " * ("*" in state)
            states[node] = (prefix + _STATE_FLAGS.sub("", state), reason)
    return states
