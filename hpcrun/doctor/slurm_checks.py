"""Checks of the site file against Slurm's configuration, and of job submission."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcrun import launchers
from hpcrun.doctor import discover_slurm
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.finding import error, failure, ok, warning
from hpcrun.resources import Resources, parse_memory, parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.doctor.context import CheckContext
    from hpcrun.finding import Finding
    from hpcrun.schedulers.slurm_partitions import SlurmPartition


def check_controller(context: CheckContext) -> Iterator[Finding]:
    """Check that Slurm's controller responds."""
    try:
        cluster = context.cluster
    except HpcrunError as refusal:
        yield failure("Slurm", refusal)
        return
    at = f" on {cluster.controller}" if cluster.controller else ""
    yield ok("Slurm", f"{cluster.settings.get('SLURM_VERSION', 'unknown version')}; the controller{at} is up")


def check_partitions(context: CheckContext) -> Iterator[Finding]:
    """Check that the site's partitions exist and are up."""
    site, known = context.site, context.cluster.partitions
    named = dict.fromkeys([*site.partitions, *([site.defaults.partition] if site.defaults.partition else [])])
    if missing := [name for name in named if name not in known]:
        key = ("partitions", missing[0]) if missing[0] in site.partitions else ("defaults", "partition")
        yield unknown_name_finding(context, "partition", missing, list(known), key)
        return
    for name in named:
        if not known[name].up:
            yield warning("partitions", f"partition {name} is down", "see sinfo; jobs wait until it is up again")
    if not named and not any(one.default for one in known.values()):
        fix = f"set defaults.partition to one of {', '.join(known)}"
        yield warning("partitions", "neither Slurm nor the site file has a default partition", fix)
    words = [f"{name}{' (default)' * one.default}" for name, one in known.items()]
    unnamed = [name for name in known if site.partitions and name not in site.partitions]
    without = f"; not in the site file: {', '.join(unnamed)}" if unnamed else ""
    yield ok("partitions", f"{', '.join(words)}{without}")


def check_limits(context: CheckContext) -> Iterator[Finding]:
    """Check that the limits of the site file are within Slurm's."""
    wrong = 0
    for name in context.site.partitions:
        if partition := context.cluster.partitions.get(name):
            for key, value, allowed in _exceeded_limits(context, name, partition):
                wrong += 1
                where = context.at("partitions", name, key) or context.at("limits", key)
                found = f"{key} = {value} in partition {name}, but Slurm has {allowed}"
                yield warning("limits", found, f"set partitions.{name}.{key} = {allowed}", where)
    known = [name for name in context.site.partitions if name in context.cluster.partitions]
    if known and not wrong:
        yield ok("limits", f"those of {', '.join(known)} are equal to Slurm's or stricter")


def _exceeded_limits(
    context: CheckContext, name: str, partition: SlurmPartition
) -> Iterator[tuple[str, object, object]]:
    limits = context.site.resolve(Resources(partition=name)).limits
    if limits.max_time is not None and parse_time(limits.max_time) > parse_time(partition.max_time or "UNLIMITED"):
        yield "max_time", repr(limits.max_time), f'"{partition.max_time}"'
    if limits.max_nodes and limits.max_nodes > partition.max_nodes:
        yield "max_nodes", limits.max_nodes, partition.max_nodes
    if limits.cpus_per_node and limits.cpus_per_node > partition.cpus:
        yield "cpus_per_node", limits.cpus_per_node, partition.cpus
    if limits.mem_per_node is not None and parse_memory(limits.mem_per_node) > partition.memory:
        yield "mem_per_node", repr(limits.mem_per_node), f'"{partition.memory}M"'
    # fewer are wrong, too: by default a job gets all GPUs of its nodes
    if limits.gpus_per_node is not None and limits.gpus_per_node != partition.gpus_per_node:
        yield "gpus_per_node", limits.gpus_per_node, partition.gpus_per_node


def check_gpu_types(context: CheckContext) -> Iterator[Finding]:
    """Check that Slurm has the site's types of GPUs."""
    partitions = context.cluster.partitions.values()
    known = {kind for partition in partitions for kind in partition.gpus if kind}
    if not any(partition.gpus for partition in partitions):
        yield ok("GPUs", "Slurm has none")
        return
    named = {
        kind for name in context.site.partitions if (kind := context.site.resolve(Resources(partition=name)).gpu.type)
    }
    named |= {context.site.gpu.type} if context.site.gpu.type else set()
    for kind in sorted(named - known):
        fix = f"Slurm has {', '.join(sorted(known))}" if known else "Slurm's GPUs have no type: remove it"
        yield error("GPUs", f"Slurm has no GPUs of type {kind}: jobs that request it are refused", fix)
    if named - known:
        return
    most = {
        kind: max(partition.gpus.get(kind, 0) for partition in partitions)
        for partition in partitions
        for kind in partition.gpus
    }
    yield ok("GPUs", ", ".join(f"up to {count}{f' {kind}' if kind else ''} a node" for kind, count in most.items()))


def unknown_name_finding(
    context: CheckContext, what: str, missing: Sequence[str], known: list[str], key: tuple[str, ...]
) -> Finding:
    """Return a finding about names that Slurm does not have, with the closest or all valid names."""
    like = closest_match(missing[0], known)
    meant = f"did you mean {like}? " if like and len(missing) == 1 else ""
    plural = "" if what == "QoS" else "s"
    words = f"{what}{plural if len(missing) > 1 else ''} {', '.join(missing)}"
    return error(f"{what}{plural}", f"Slurm has no {words}", f"{meant}It has {', '.join(known)}", context.at(*key))


def check_mpi_type(context: CheckContext) -> Iterator[Finding]:
    """Check that srun supports the site's mpi.type."""
    if not launchers.site_launcher(context.resolved_site).uses_slurm:
        return
    output = context.cluster.mpi_types
    known = discover_slurm.parse_mpi_types(output.combined)
    wanted, default = context.resolved_site.mpi.type, context.cluster.settings.get("MpiDefault", "none")
    if not known:
        fault = output.failure or " ".join(output.combined.split()) or "no types listed"
        yield warning("mpi.type", f"srun --mpi=list fails: {fault}", "ask the cluster's administrators")
    elif wanted and wanted not in known:
        fix = f'choose among {", ".join(known)}, or set launcher = "mpirun" or "mpiexec"'
        yield error("mpi.type", f"this Slurm has no {wanted}", fix, context.origin_in_resolved_site("mpi", "type"))
    elif not wanted and default in {"none", "openmpi"}:
        fix = "set mpi.type: pmi2 for MPICH and Intel MPI, pmix for Open MPI"
        found = f"not set, and Slurm's MpiDefault is {default}: each rank would run in an MPI world of one rank"
        if context.resolved_site.modules.load:
            fix += "" if context.in_job else "; --in-job checks it"
            yield warning("mpi.type", f"{found}, unless a module sets SLURM_MPI_TYPE", fix)
        else:
            yield error("mpi.type", found, fix)
    else:
        others = [name for name in known if name not in {wanted, "none"}]
        also = f" (also here: {', '.join(others)})" if others else ""
        yield ok("mpi.type", f"{wanted or f'not set; MpiDefault is {default}'}{also}")


def check_submission(context: CheckContext) -> Iterator[Finding]:
    """Check with sbatch --test-only that Slurm accepts a job in each partition of the site file."""
    if context.refusal and context.lacks_only_user_options:
        yield warning("a job", context.refusal.message, "hpcrun doctor --account NAME --time TIME tests one")
    elif context.refusal:
        yield error("a job", f"hpcrun refuses it: {context.refusal.message}", context.refusal.hint or "")
    elif context.plan:
        answer = context.slurm.query(["sbatch", "--test-only"], text=context.plan.script)
        yield from _judge_submission(
            "a job", answer.code, answer.error_message, f"sbatch --test-only: {answer.error_message}"
        )
    paying = [f"--account={context.account}"] if context.account else []
    least = ["sbatch", "--test-only", "--nodes=1", "--ntasks=1", "--time=1", *paying]
    for name in context.site.partitions:
        if name in context.cluster.partitions:
            answer = context.slurm.query([*least, f"--partition={name}"], text="#!/bin/sh\ntrue\n")
            if answer.code != 0:
                found = f"refused in partition {name}: {_strip_prefixes(answer.error_message)}"
                yield warning("a job", found, "ask whether you may use it, or what jobs must request there")


def _judge_submission(check: str, code: int | None, complaint: str, limits_set: str) -> Iterator[Finding]:
    if code != 0:
        fix = "correct the defaults of the site file, or give --partition, --account and the like"
        yield error(check, f"Slurm would reject it: {_strip_prefixes(complaint)}", fix)
    else:
        yield ok(
            check, _strip_prefixes(limits_set.rpartition("sbatch: ")[2]).replace("Job ", "would be accepted; job ", 1)
        )


def _strip_prefixes(complaint: str) -> str:
    return re.sub(r"sbatch: (error: )?|allocation failure: ", "", complaint)
