"""Checks of the site file against the configuration of the Slurm cluster, and of job submission."""

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
    host_text = f" on {cluster.controller}" if cluster.controller else ""
    yield ok("Slurm", f"{cluster.settings.get('SLURM_VERSION', 'unknown version')}; the controller{host_text} is up")


def check_partitions(context: CheckContext) -> Iterator[Finding]:
    """Check that the site's partitions exist and are up."""
    site, partitions = context.site, context.cluster.partitions
    site_partitions = dict.fromkeys([*site.partitions, *([site.defaults.partition] if site.defaults.partition else [])])
    if missing := [name for name in site_partitions if name not in partitions]:
        key = ("partitions", missing[0]) if missing[0] in site.partitions else ("defaults", "partition")
        yield unknown_name_finding(context, "partition", missing, list(partitions), key)
        return
    for name in site_partitions:
        if not partitions[name].up:
            yield warning("partitions", f"partition {name} is down", "see sinfo; jobs wait until it is up again")
    if not site_partitions and not any(one.default for one in partitions.values()):
        fix = f"set defaults.partition to one of {', '.join(partitions)}"
        yield warning("partitions", "neither Slurm nor the site file has a default partition", fix)
    descriptions = [f"{name}{' (default)' * one.default}" for name, one in partitions.items()]
    unlisted_names = [name for name in partitions if site.partitions and name not in site.partitions]
    unlisted_text = f"; not in the site file: {', '.join(unlisted_names)}" if unlisted_names else ""
    yield ok("partitions", f"{', '.join(descriptions)}{unlisted_text}")


def check_limits(context: CheckContext) -> Iterator[Finding]:
    """Check that the limits of the site file are equal to the limits of Slurm's partitions, or stricter."""
    exceeded_count = 0
    for name in context.site.partitions:
        if partition := context.cluster.partitions.get(name):
            for key, value, allowed in _exceeded_limits(context, name, partition):
                exceeded_count += 1
                location = context.location_of("partitions", name, key) or context.location_of("limits", key)
                problem = f"{key} = {value} in partition {name}, but Slurm has {allowed}"
                yield warning("limits", problem, f"set partitions.{name}.{key} = {allowed}", location)
    checked_partitions = [name for name in context.site.partitions if name in context.cluster.partitions]
    if checked_partitions and not exceeded_count:
        yield ok("limits", f"those of {', '.join(checked_partitions)} are equal to Slurm's or stricter")


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
    # too small a number is wrong, too, because by default a job gets all GPUs of its nodes
    if limits.gpus_per_node is not None and limits.gpus_per_node != partition.gpus_per_node:
        yield "gpus_per_node", limits.gpus_per_node, partition.gpus_per_node


def check_gpu_types(context: CheckContext) -> Iterator[Finding]:
    """Check that the Slurm cluster has the GPU types of the site file."""
    partitions = context.cluster.partitions.values()
    known_types = {gpu_type for partition in partitions for gpu_type in partition.gpus if gpu_type}
    if not any(partition.gpus for partition in partitions):
        yield ok("GPUs", "Slurm has none")
        return
    site_types = {
        gpu_type
        for name in context.site.partitions
        if (gpu_type := context.site.resolve(Resources(partition=name)).gpu.type)
    }
    site_types |= {context.site.gpu.type} if context.site.gpu.type else set()
    for gpu_type in sorted(site_types - known_types):
        fix = f"Slurm has {', '.join(sorted(known_types))}" if known_types else "Slurm's GPUs have no type: remove it"
        yield error("GPUs", f"Slurm has no GPUs of type {gpu_type}: jobs that request it are refused", fix)
    if site_types - known_types:
        return
    max_gpus_per_node = {
        gpu_type: max(partition.gpus.get(gpu_type, 0) for partition in partitions)
        for partition in partitions
        for gpu_type in partition.gpus
    }
    yield ok(
        "GPUs",
        ", ".join(
            f"up to {count}{f' {gpu_type}' if gpu_type else ''} a node" for gpu_type, count in max_gpus_per_node.items()
        ),
    )


def unknown_name_finding(
    context: CheckContext, noun: str, unknown_names: Sequence[str], known_names: list[str], key: tuple[str, ...]
) -> Finding:
    """Return a finding about names that Slurm does not have, with the closest name and all valid names."""
    closest_name = closest_match(unknown_names[0], known_names)
    suggestion = f"did you mean {closest_name}? " if closest_name and len(unknown_names) == 1 else ""
    plural_suffix = "" if noun == "QoS" else "s"
    noun_and_names = f"{noun}{plural_suffix if len(unknown_names) > 1 else ''} {', '.join(unknown_names)}"
    return error(
        f"{noun}{plural_suffix}",
        f"Slurm has no {noun_and_names}",
        f"{suggestion}It has {', '.join(known_names)}",
        context.location_of(*key),
    )


def check_mpi_type(context: CheckContext) -> Iterator[Finding]:
    """Check that srun supports the site's mpi.type."""
    if not launchers.site_launcher(context.resolved_site).uses_slurm:
        return
    output = context.cluster.mpi_types
    known_types = discover_slurm.parse_mpi_types(output.combined_output)
    mpi_type, default = context.resolved_site.mpi.type, context.cluster.settings.get("MpiDefault", "none")
    if not known_types:
        problem = output.failure or " ".join(output.combined_output.split()) or "no types listed"
        yield warning("mpi.type", f"srun --mpi=list fails: {problem}", "ask the cluster's administrators")
    elif mpi_type and mpi_type not in known_types:
        fix = f'choose among {", ".join(known_types)}, or set launcher = "mpirun" or "mpiexec"'
        yield error("mpi.type", f"this Slurm has no {mpi_type}", fix, context.origin_in_resolved_site("mpi", "type"))
    elif not mpi_type and default in {"none", "openmpi"}:
        fix = "set mpi.type: pmi2 for MPICH and Intel MPI, pmix for Open MPI"
        problem = f"not set, and Slurm's MpiDefault is {default}: each rank would run in an MPI world of one rank"
        if context.resolved_site.modules.load:
            fix += "" if context.in_job else "; --in-job checks it"
            yield warning("mpi.type", f"{problem}, unless a module sets SLURM_MPI_TYPE", fix)
        else:
            yield error("mpi.type", problem, fix)
    else:
        other_types = [name for name in known_types if name not in {mpi_type, "none"}]
        other_types_text = f" (also here: {', '.join(other_types)})" if other_types else ""
        yield ok("mpi.type", f"{mpi_type or f'not set; MpiDefault is {default}'}{other_types_text}")


def check_submission(context: CheckContext) -> Iterator[Finding]:
    """Check with ``sbatch --test-only`` that Slurm accepts a job in each partition of the site file."""
    if context.refusal and context.lacks_only_user_options:
        yield warning("a job", context.refusal.message, "hpcrun doctor --account NAME --time TIME tests such a job")
    elif context.refusal:
        yield error("a job", f"hpcrun refuses it: {context.refusal.message}", context.refusal.hint or "")
    elif context.plan:
        result = context.slurm.query(["sbatch", "--test-only"], text=context.plan.script)
        yield from _evaluate_submission(
            "a job", result.code, result.error_message, f"sbatch --test-only: {result.error_message}"
        )
    account_options = [f"--account={context.account}"] if context.account else []
    minimal_command = ["sbatch", "--test-only", "--nodes=1", "--ntasks=1", "--time=1", *account_options]
    for name in context.site.partitions:
        if name in context.cluster.partitions:
            result = context.slurm.query([*minimal_command, f"--partition={name}"], text="#!/bin/sh\ntrue\n")
            if result.code != 0:
                problem = f"refused in partition {name}: {_strip_prefixes(result.error_message)}"
                yield warning("a job", problem, "ask administrators whether you may use it, and what jobs must request")


def _evaluate_submission(check: str, exit_code: int | None, error_output: str, test_output: str) -> Iterator[Finding]:
    if exit_code != 0:
        fix = "correct the defaults of the site file, or give --partition, --account and the like"
        yield error(check, f"Slurm would reject it: {_strip_prefixes(error_output)}", fix)
    else:
        yield ok(
            check, _strip_prefixes(test_output.rpartition("sbatch: ")[2]).replace("Job ", "would be accepted; job ", 1)
        )


def _strip_prefixes(error_output: str) -> str:
    return re.sub(r"sbatch: (error: )?|allocation failure: ", "", error_output)
