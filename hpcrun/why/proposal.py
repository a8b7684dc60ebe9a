"""Proposals of changes to a failed job's request, for ``hpcrun resubmit --fix``: more time or memory, other nodes.

A signature with the key ``change`` names the value to change: ``time``, ``memory`` or ``exclude``.
"""

from __future__ import annotations

import re
from math import ceil, inf
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.jobs import safe_reading
from hpcrun.jobs.progress_text import format_elapsed
from hpcrun.jobs.states import describe_state
from hpcrun.nodelist import expand_nodelist, fold_hosts
from hpcrun.provenance.record import FOLDER
from hpcrun.resources import MEMORY_OPTIONS, parse_memory, parse_time
from hpcrun.schedulers import slurm_nodes
from hpcrun.schedulers.slurm_client import SlurmClient
from hpcrun.schedulers.slurm_partitions import NO_PARTITION, find_partition, query_partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.resources import Resources
    from hpcrun.schedulers.slurm_partitions import SlurmPartition
    from hpcrun.why.explanation import Explanation
    from hpcrun.why.signatures import Diagnosis

TIMEOUT_SECONDS = 20.0
RETRY_FACTOR = 1.5
"""Factor by which the requested time or memory is multiplied."""

_MEMORY_OF_JOB = re.compile(r"\b(?:Alloc|Req)?TRES=\S*?\bmem=([\d.]+)([KMGT]?)")
_NODES_OF_JOB = re.compile(r"\bNumNodes=(\d+)")
_FAILED_RANK = re.compile(r"\brank \d+ on (\S+)")


@frozen
class Proposal:
    """Changes of a job's request.

    Attributes:
        changes: New values of fields of `hpcrun.resources.Resources`.
        cause: The cause of the failure, which is the reason for these changes.
    """

    changes: dict[str, str]
    cause: str


def propose(explanations: Sequence[Explanation]) -> Proposal:
    """Return the changes of options that prevent the same failure; for several jobs, the largest values.

    Args:
        explanations: The explanations of one failed job, or of tasks of a sweep.

    Raises:
        HpcrunError: No change of resources prevents the failures.
    """
    if not any(explanation.state.finished for explanation in explanations):
        run, state = explanations[0].run, explanations[0].state
        message = f"--fix: job {run.job_id or '-'} has not ended: {describe_state(state.name)}"
        raise HpcrunError(message, hint="without --fix, hpcrun resubmit submits the job again at once", exit_code=1)
    proposals = [one for explanation in explanations if (one := _propose(explanation))]
    if not proposals:
        first_explanation = explanations[0]
        job = first_explanation.run.job_id or first_explanation.run.directory
        hint = f"hpcrun why {job} says what to do; then give options yourself"
        raise HpcrunError(
            f"--fix: the failure implies no change of an option: {first_explanation.headline}", hint=hint, exit_code=1
        )
    changes: dict[str, str] = {}
    for one in proposals:
        for name, value in one.changes.items():
            changes[name] = _merge(name, changes[name], value) if name in changes else value
    return Proposal(changes, "; ".join(dict.fromkeys(one.cause for one in proposals)))


def _merge(name: str, first_value: str, second_value: str) -> str:
    if name == "exclude":
        return fold_hosts({*expand_nodelist(first_value), *expand_nodelist(second_value)})
    read: Callable[[str], float] = parse_time if name == "time" else parse_memory
    return max(first_value, second_value, key=read)


def _propose(explanation: Explanation) -> Proposal | None:
    """Return the changes for the first diagnosis that a change of resources may correct."""
    run, kinds = explanation.run, {"time": _raise_time_limit, "memory": _raise_memory, "exclude": _exclude_node}
    if explanation.is_healthy or not explanation.state.finished or not run.spec.is_recorded:
        return None
    resources = run.spec.resources.to_resources()
    for diagnosis in (explanation.diagnosis, *explanation.others):
        change = kinds[diagnosis.change](explanation, resources, diagnosis) if diagnosis.change else None
        if change:
            return Proposal(change, diagnosis.summary)
    return None


def _raise_time_limit(explanation: Explanation, resources: Resources, _diagnosis: Diagnosis) -> dict[str, str] | None:
    try:
        limit = max(parse_time(time) for time in (explanation.state.limit, resources.time) if time)
    except ValueError:  # Slurm did not answer, or its answer has an unknown format
        return None
    longest_time = parse_time(_find_partition(explanation.run, resources).max_time or "UNLIMITED")
    time = min(ceil(limit * RETRY_FACTOR / 60) * 60, longest_time) if limit < inf else inf
    return {"time": _format_limit(time)} if limit < time < inf else None


def _format_limit(seconds: float) -> str:
    """Format a time limit with hours, because Slurm reads 2:00 as two minutes, but users may read it as two hours."""
    text = format_elapsed(seconds)
    return text if text.count(":") == 2 else f"0:{text.zfill(5)}"


def _raise_memory(explanation: Explanation, resources: Resources, _diagnosis: Diagnosis) -> dict[str, str] | None:
    """Return `RETRY_FACTOR` times the memory limit or the used memory, whichever is larger."""
    run = explanation.run
    option = next((name for name in MEMORY_OPTIONS if getattr(resources, name)), "mem")
    requested_memory = getattr(resources, option)
    retries = sum(
        start.more_memory for start in run.starts()
    )  # slurm.bash multiplied the memory by RETRY_FACTOR at each retry
    limit = parse_memory(requested_memory) * RETRY_FACTOR**retries if requested_memory else _recorded_memory(run)
    used_memory = _used_memory(run, resources) if option == "mem" else 0
    proposed_memory = float(ceil(max(limit, used_memory) * RETRY_FACTOR))
    if option == "mem":
        proposed_memory = min(proposed_memory, _find_partition(run, resources).memory or inf)
    return {option: f"{proposed_memory:.0f}M"} if proposed_memory > limit else None


def _find_partition(run: Run, resources: Resources) -> SlurmPartition:
    """Return the partition of a job; a partition without limits if it is unknown, or if the job names several."""
    slurm = SlurmClient(run.slurm_conf)
    partitions = query_partitions(slurm, hardware=True, timeout=TIMEOUT_SECONDS) if run.scheduler.uses_slurm else []
    return find_partition(partitions, resources.partition) or NO_PARTITION


def _recorded_memory(run: Run) -> float:
    """Return the memory per node in MiB that Slurm allocated to a job, from the job's record; 0 if unknown."""
    try:
        text = safe_reading.read_text(run.directory / FOLDER / "slurm.txt")
    except (OSError, safe_reading.BadRecordError):
        return 0
    memory, nodes = _MEMORY_OF_JOB.search(text), _NODES_OF_JOB.search(text)
    return _parse_size(memory[1], memory[2]) / (int(nodes[1]) if nodes else 1) if memory else 0


def _used_memory(run: Run, resources: Resources) -> float:
    """Return the memory in MiB that a job used on one node, from Slurm's accounting; 0 if unknown."""
    if not (run.scheduler.uses_slurm and run.job_id):
        return 0
    table = ("sacct", "--noheader", "--parsable2", f"--jobs={run.job_id}", "--format=JobID,MaxRSS")
    rows = SlurmClient(run.slurm_conf).query_table(table, 2) or []
    sizes = (re.fullmatch(r"([\d.]+)([KMGT]?)", size) for _, size in rows)
    largest_size = max((_parse_size(size[1], size[2] or "K") for size in sizes if size), default=0)
    return largest_size * (resources.ntasks_per_node or 1)  # MaxRSS is the memory of one rank


def _parse_size(number: str, unit: str) -> float:
    return float(number) * parse_memory(f"1{unit}")


def _exclude_node(explanation: Explanation, resources: Resources, diagnosis: Diagnosis) -> dict[str, str] | None:
    bad_nodes = _bad_nodes(explanation.run, diagnosis)
    if not bad_nodes:
        return None
    excluded_nodes = expand_nodelist(resources.exclude) if resources.exclude and "/" not in resources.exclude else []
    return {"exclude": fold_hosts({*excluded_nodes, *bad_nodes})}


def _bad_nodes(run: Run, diagnosis: Diagnosis) -> list[str]:
    """Return the failed nodes: nodes named in the log, else the node of the failed rank, else nodes that are down."""
    if diagnosis.nodes:
        return expand_nodelist(diagnosis.nodes)
    start, record = run.last_start(), run.exit_record()
    nodes = expand_nodelist(start.nodes) if start and start.nodes else []
    failed_rank = _FAILED_RANK.search(record.reason) if record else None
    if len(nodes) < 2:
        return nodes
    if failed_rank and failed_rank[1] in nodes:
        return [failed_rank[1]]
    unusable_nodes = (
        slurm_nodes.find_unusable_nodes(SlurmClient(run.slurm_conf), nodes) if run.scheduler.uses_slurm else []
    )
    return unusable_nodes if len(unusable_nodes) < len(nodes) else []
