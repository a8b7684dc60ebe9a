"""Whether Slurm is as the site file says, and takes this user's jobs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcrun.doctor import discover_slurm
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.finding import error, failure, ok, warning
from hpcrun.resources import mebibytes, seconds
from hpcrun.schedulers.ask import ask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.doctor.context import Case
    from hpcrun.doctor.discover_slurm import Partition
    from hpcrun.finding import Finding


def answers(case: Case) -> Iterator[Finding]:
    """Look whether Slurm answers."""
    try:
        cluster = case.cluster
    except HpcrunError as refusal:
        yield failure("Slurm", refusal)
        return
    at = f" on {cluster.controller}" if cluster.controller else ""
    yield ok("Slurm", f"{cluster.settings.get('SLURM_VERSION', 'of some version')}; the controller{at} is up")


def partitions(case: Case) -> Iterator[Finding]:
    """Look whether the partitions of the site file are there and take jobs."""
    site, there = case.site, case.cluster.partitions
    named = dict.fromkeys([*site.partitions, *([site.defaults.partition] if site.defaults.partition else [])])
    if missing := [name for name in named if name not in there]:
        key = ("partitions", missing[0]) if missing[0] in site.partitions else ("defaults", "partition")
        yield unknown(case, "partition", missing, list(there), key)
        return
    for name in named:
        if not there[name].up:
            yield warning("partitions", f"partition {name} is down", "sinfo tells more; jobs wait until it is up again")
    if not named and not any(one.default for one in there.values()):
        fix = f"set defaults.partition to one of {', '.join(there)}"
        yield warning("partitions", "Slurm has no default partition, and the site file neither", fix)
    words = [f"{name}{' (default)' * one.default}" for name, one in there.items()]
    unnamed = [name for name in there if site.partitions and name not in site.partitions]
    without = f"; not in the site file: {', '.join(unnamed)}" if unnamed else ""
    yield ok("partitions", f"{', '.join(words)}{without}")


def limits(case: Case) -> Iterator[Finding]:
    """Look whether the site file promises more than Slurm allows."""
    wrong = 0
    for name in case.site.partitions:
        if there := case.cluster.partitions.get(name):
            for key, said, allowed in _beyond(case, name, there):
                wrong += 1
                where = case.at("partitions", name, key) or case.at("limits", key)
                found = f"{key} = {said} in partition {name}, and Slurm has {allowed}"
                yield warning("limits", found, f"set partitions.{name}.{key} = {allowed}", where)
    known = [name for name in case.site.partitions if name in case.cluster.partitions]
    if known and not wrong:
        yield ok("limits", f"those of {', '.join(known)} are Slurm's or stricter")


def _beyond(case: Case, name: str, there: Partition) -> Iterator[tuple[str, object, object]]:
    said = case.site.at(name, None).limits
    if said.max_time is not None and seconds(said.max_time) > seconds(there.max_time or "UNLIMITED"):
        yield "max_time", repr(said.max_time), f'"{there.max_time}"'
    if said.max_nodes and said.max_nodes > there.max_nodes:
        yield "max_nodes", said.max_nodes, there.max_nodes
    if said.cpus_per_node and said.cpus_per_node > there.cpus:
        yield "cpus_per_node", said.cpus_per_node, there.cpus
    if said.mem_per_node is not None and mebibytes(said.mem_per_node) > there.memory:
        yield "mem_per_node", repr(said.mem_per_node), f'"{there.memory}M"'
    # fewer are wrong, too: a job that says nothing gets all GPUs of its nodes
    if said.gpus_per_node is not None and said.gpus_per_node != there.gpus_per_node:
        yield "gpus_per_node", said.gpus_per_node, there.gpus_per_node


def gpu_types(case: Case) -> Iterator[Finding]:
    """Look whether Slurm knows the types of GPUs that jobs ask for."""
    there = case.cluster.partitions
    known = {kind for one in there.values() for kind in one.gpus if kind}
    if not any(one.gpus for one in there.values()):
        yield ok("GPUs", "Slurm has none")
        return
    named = {kind for name in case.site.partitions if (kind := case.site.at(name, None).gpu.type)}
    named |= {case.site.gpu.type} if case.site.gpu.type else set()
    for kind in sorted(named - known):
        fix = f"Slurm has {', '.join(sorted(known))}" if known else "Slurm's GPUs have no type: remove it"
        yield error("GPUs", f"Slurm has no GPUs of type {kind}: jobs that ask for it are refused", fix)
    if named - known:
        return
    most = {kind: max(one.gpus.get(kind, 0) for one in there.values()) for one in there.values() for kind in one.gpus}
    yield ok("GPUs", ", ".join(f"up to {count}{f' {kind}' if kind else ''} a node" for kind, count in most.items()))


def unknown(case: Case, what: str, missing: Sequence[str], there: list[str], key: tuple[str, ...]) -> Finding:
    """Return a finding on names that Slurm does not have: one with the nearest name, or all that there are."""
    like = closest_match(missing[0], there)
    meant = f"did you mean {like}? " if like and len(missing) == 1 else ""
    plural = "" if what == "QoS" else "s"
    words = f"{what}{plural if len(missing) > 1 else ''} {', '.join(missing)}"
    return error(f"{what}{plural}", f"Slurm has no {words}", f"{meant}It has {', '.join(there)}", case.at(*key))


def mpi_type(case: Case) -> Iterator[Finding]:
    """Look whether srun has the site's mpi.type."""
    if case.chosen.launcher != "srun":
        return
    told = case.cluster.mpi_types
    known = discover_slurm.mpi_types(told.whole)
    wanted, default = case.chosen.mpi.type, case.cluster.settings.get("MpiDefault", "none")
    if not known:
        fault = told.fault or " ".join(told.whole.split()) or "it lists none"
        yield warning("mpi.type", f"srun --mpi=list fails: {fault}", "ask the cluster's administrators")
    elif wanted and wanted not in known:
        fix = f'choose among {", ".join(known)}, or set launcher = "mpirun" or "mpiexec"'
        yield error("mpi.type", f"this Slurm has no {wanted}", fix, case.at_chosen("mpi", "type"))
    elif not wanted and default in {"none", "openmpi"}:
        fix = "set mpi.type: pmi2 for MPICH and Intel MPI, pmix for Open MPI"
        found = f"not set, and Slurm's MpiDefault is {default}: each rank would believe that it is alone"
        if case.chosen.modules.load:
            fix += "" if case.in_job else "; --in-job tells"
            yield warning("mpi.type", f"{found}, unless a module sets SLURM_MPI_TYPE", fix)
        else:
            yield error("mpi.type", found, fix)
    else:
        others = [name for name in known if name not in {wanted, "none"}]
        also = f" (also here: {', '.join(others)})" if others else ""
        yield ok("mpi.type", f"{wanted or f'not set; MpiDefault is {default}'}{also}")


def takes_jobs(case: Case) -> Iterator[Finding]:
    """Ask Slurm whether it would take a job, in each partition of the site file; none is submitted."""
    if case.refused and case.unsaid:
        yield warning("a job", case.refused.message, "hpcrun doctor --account NAME --time TIME asks Slurm about one")
    elif case.refused:
        yield error("a job", f"hpcrun refuses it: {case.refused.message}", case.refused.hint or "")
    elif case.plan:
        answer = ask(["sbatch", "--test-only"], text=case.plan.script, conf=case.slurm_conf)
        yield from _taken("a job", answer.code, answer.complaint, f"sbatch --test-only: {answer.complaint}")
    paying = [f"--account={case.account}"] if case.account else []
    least = ["sbatch", "--test-only", "--nodes=1", "--ntasks=1", "--time=1", *paying]
    for name in case.site.partitions:
        if name in case.cluster.partitions:
            answer = ask([*least, f"--partition={name}"], text="#!/bin/sh\ntrue\n", conf=case.slurm_conf)
            if answer.code != 0:
                found = f"refused in partition {name}: {_plain(answer.complaint)}"
                yield warning("a job", found, "ask whether you may use it, or what jobs must ask for there")


def _taken(check: str, code: int | None, complaint: str, said: str) -> Iterator[Finding]:
    if code != 0:
        fix = "defaults of the site file, or --partition, --account and the like, must be what Slurm takes"
        yield error(check, f"Slurm would refuse it: {_plain(complaint)}", fix)
    else:
        yield ok(check, _plain(said.rpartition("sbatch: ")[2]).replace("Job ", "would be taken; job ", 1))


def _plain(complaint: str) -> str:
    return re.sub(r"sbatch: (error: )?|allocation failure: ", "", complaint)
