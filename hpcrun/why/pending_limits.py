"""Explanation of why Slurm does not start a pending job: exceeded limits, or nodes that do not run jobs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from hpcrun.frozen import frozen
from hpcrun.gpus import parse_gres
from hpcrun.schedulers import slurm_limits, slurm_nodes, slurm_policies
from hpcrun.schedulers.slurm_client import SlurmClient
from hpcrun.schedulers.slurm_partitions import query_partitions
from hpcrun.why.evidence import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.resources import Resources
    from hpcrun.schedulers.slurm_partitions import SlurmPartition
    from hpcrun.why.job_facts import JobFacts
    from hpcrun.why.slurm_details import PendingJob

TIMEOUT_SECONDS = 10.0
MAX_SENTENCES = 4
"""Maximum number of sentences about unavailable nodes."""

_PARTITION_REASONS = re.compile(
    r"Partition(?:Config|NodeLimit|TimeLimit|Down|Inactive)|BadConstraints|Resources|Priority|None|"
    r"(?:Account|QOS)NotAllowed|Job's (?:account|QOS) not permitted.*|ReqNodeNotAvail|Nodes required.*|"
)
_NODE_REASONS = re.compile(r"ReqNodeNotAvail|Nodes required.*|Reservation|NodeDown|BadConstraints")
_UNAVAILABLE_NODES = re.compile(r"UnavailableNodes:(\S+)")
_LIMIT = re.compile(r"\b(cpu|node|gres/gpu)=(\d+)\b")


@frozen
class PendingLimits:
    """Exceeded limits and unavailable nodes that keep a job pending: more details than in Slurm's reason code.

    Attributes:
        evidence: The limits that the job exceeds, and the nodes that are unavailable.
        hint: A request within the limits; empty if no limit is exceeded.
        is_impossible: Whether no node of the job's partition can ever run the job.
    """

    evidence: tuple[Evidence, ...] = ()
    hint: str = ""
    is_impossible: bool = False


def find_pending_limits(facts: JobFacts, job: PendingJob) -> PendingLimits:
    """Return the limits and nodes that keep a job pending; empty if the job only waits in the queue, or Slurm fails.

    Args:
        facts: The facts about the job.
        job: The job's columns in the output of squeue.
    """
    slurm = SlurmClient(facts.run.slurm_conf)
    if slurm_policies.names_policy_limit(facts.reason):
        return _find_policies(facts, slurm, job)
    if not facts.run.spec.is_recorded:
        return PendingLimits()
    evidence: list[Evidence] = []
    obstacles: list[slurm_limits.Obstacle] = []
    if _PARTITION_REASONS.fullmatch(facts.reason):
        resources = replace(facts.run.spec.resources.to_resources(), partition=job.partition, time=_limit(job.limit))
        partitions = query_partitions(slurm, hardware=True, timeout=TIMEOUT_SECONDS)
        obstacles = slurm_limits.find_obstacles(resources, partitions)
        evidence += [Evidence("scontrol show partition", one.fault) for one in obstacles]
        if not obstacles:
            evidence += _describe_nodes(facts, slurm, resources, partitions)
    elif _NODE_REASONS.fullmatch(facts.reason):
        reservations = (one for one in slurm_nodes.query_reservations(slurm) if one.name == job.reservation)
        evidence += [Evidence("scontrol show reservation", one.sentence) for one in reservations]
    hint = "; ".join(dict.fromkeys(one.hint for one in obstacles if one.hint))
    return PendingLimits(tuple(evidence), hint, any(one.is_certain for one in obstacles))


def _find_policies(facts: JobFacts, slurm: SlurmClient, job: PendingJob) -> PendingLimits:
    partitions = query_partitions(slurm, hardware=False, timeout=TIMEOUT_SECONDS)
    partition_qos = next((one.properties.get("QoS", "") for one in partitions if one.name == job.partition), "")
    limits = slurm_policies.query_limits(slurm, facts.reason, qos=[job.qos, partition_qos], account=job.account)
    gpus = sum(parse_gres(job.gres.replace("gres:", "").replace("gres/", "")).values())
    total = gpus * int(job.nodes) if job.nodes.isdecimal() else gpus
    requested_amounts = {
        "node": job.nodes,
        "cpu": job.cores,
        "gres/gpu": str(total),
        "mem": job.memory,
        "time": job.limit,
    }
    request = " ".join(f"{name}={value}" for name, value in requested_amounts.items())
    evidence = tuple(Evidence("sacctmgr", f"{limit}; this job requests {request}") for limit in limits)
    exceeded_limits = [most for limit in limits for most in _LIMIT.findall(limit) if _exceeds(requested_amounts, *most)]
    hint = "request at most " + ", ".join(f"{name}={most}" for name, most in exceeded_limits) if exceeded_limits else ""
    return PendingLimits(evidence, hint, bool(exceeded_limits))


def _exceeds(requested_amounts: dict[str, str], name: str, maximum: str) -> bool:
    """Return whether a single job requests more of a resource than its limit."""
    return requested_amounts.get(name, "").isdecimal() and int(requested_amounts[name]) > int(maximum)


def _describe_nodes(
    facts: JobFacts, slurm: SlurmClient, resources: Resources, partitions: list[SlurmPartition]
) -> Iterator[Evidence]:
    """Yield evidence of unavailable nodes: nodes that the job or Slurm's reason names, else nodes of the partition."""
    if not _NODE_REASONS.fullmatch(facts.reason):
        return
    named_nodes = _UNAVAILABLE_NODES.search(facts.job_state.reason)
    nodes = resources.nodelist or (named_nodes[1].strip(")") if named_nodes else "")
    if not nodes:
        job_partitions = [one for one in partitions if one.name in (resources.partition or "").split(",")]
        nodes = ",".join(group.names for one in job_partitions for group in one.nodes)
    sentences = slurm_nodes.find_unavailable_nodes(slurm, nodes)
    for sentence in sentences[:MAX_SENTENCES]:
        yield Evidence("scontrol show reservation" if " reserved: " in sentence else "sinfo -R", sentence)
    if len(sentences) > MAX_SENTENCES:
        yield Evidence("sinfo -R", f"and {len(sentences) - MAX_SENTENCES} more")


def _limit(text: str) -> str | None:
    return None if text in {"", "INVALID", "NOT_SET", "UNLIMITED"} else text
