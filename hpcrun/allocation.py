"""The hosts and tasks of a running job, read from the scheduler's environment variables, and hostfile formats."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, closest_match
from hpcrun.frozen import frozen
from hpcrun.nodelist import expand_counts, expand_nodelist
from hpcrun.scheduler import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hpcrun.scheduler import NodelistReader

_HOSTFILE_LINE = re.compile(r"((?!-)[\w.-]+)(?::([0-9]{1,6})|((?:\s+(?:max[_-])?slots\s*=\s*[0-9]{1,6})*))", re.ASCII)
_SLOTS = re.compile(r"\sslots\s*=\s*([0-9]+)")


@frozen
class Host:
    """One host of an allocation.

    Args:
        name: The host name, as the scheduler spells it.
        tasks: Number of MPI ranks to start on the host, at least 1.
    """

    name: str
    tasks: int = 1


@frozen
class Allocation:
    """The hosts that a running job was granted.

    Args:
        source: The source of the host list: ``slurm``, ``carme``, ``pbs``, ``lsf``, ``oar``, ``hostfile`` or ``host``
            (outside a job: this host with one task).
        hosts: The hosts in the scheduler's order, without duplicates.
    """

    source: str
    hosts: tuple[Host, ...]

    @property
    def ntasks(self) -> int:
        """The number of ranks on all hosts."""
        return sum(host.tasks for host in self.hosts)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Allocation:
        """Read the allocation of the job to which this process belongs.

        The hosts come from the first of ``NODELIST_VARIABLES``, or of the variables of installed schedulers, that is
        set; no scheduler command is run. In a Slurm step, the hosts and tasks are those of the step. In a batch script,
        they are the same as for ``srun`` without options. If the job does not set the number of tasks,
        ``SLURM_TASKS_PER_NODE`` gives the tasks, as for ``mpirun``.

        Args:
            environ: The environment variables, usually ``os.environ``.

        Raises:
            HpcrunError: The variables contradict each other, or a file that they name cannot be read.
        """
        for variable, (source, read) in _list_nodelist_variables():
            if environ.get(variable, "").strip():
                return cls._from_task_counts(source, read(environ, variable))
        return cls("host", (Host(os.uname().nodename),))

    @classmethod
    def from_hostfile(cls, path: str | os.PathLike[str]) -> Allocation:
        """Read a hostfile, whose lines may have any of the ``HOSTFILE_FORMATS``.

        The tasks of a repeated host are added up, and a host with ``slots=0`` is dropped. Open MPI's ``max_slots`` is
        ignored; ``#`` starts a comment.

        Args:
            path: A text file with lines like ``n1``, ``n1:2`` or ``n1 slots=2``.

        Raises:
            HpcrunError: The file is missing, names no host, or has an invalid line.
        """
        return cls._from_task_counts("hostfile", _read_hostfile(path))

    @classmethod
    def _from_task_counts(cls, source: str, tasks: Mapping[str, int]) -> Allocation:
        return cls(source, tuple(Host(name, count) for name, count in tasks.items() if count))

    def with_nodes(self, nodes: int | None) -> Allocation:
        """Return an allocation with the first hosts of this allocation.

        Args:
            nodes: The number of hosts; None for all.

        Raises:
            HpcrunError: The allocation has fewer hosts.
        """
        if nodes is None or nodes == len(self.hosts):
            return self
        if nodes > len(self.hosts):
            raise HpcrunError(
                f"--nodes={nodes} is more than the {len(self.hosts)} of {self.source}", hint="request fewer nodes"
            )
        return Allocation(self.source, self.hosts[:nodes])

    def with_tasks(self, ntasks: int | None = None, ntasks_per_node: int | None = None) -> Allocation:
        """Return the same hosts with new numbers of tasks, distributed as ``srun`` does by default.

        With ``ntasks`` alone, the hosts are filled evenly up to their slots; further tasks go to the hosts with the
        fewest tasks. With ``ntasks_per_node`` alone, each host gets that number of tasks. With both,
        ``ntasks_per_node`` is a maximum, as in sbatch(1). Hosts without a task are dropped.

        Args:
            ntasks: The number of ranks on all hosts; None: unchanged.
            ntasks_per_node: The number of ranks on each host; None: no limit.

        Raises:
            HpcrunError: A number is below 1, or there are too few hosts for ``ntasks``.
        """
        for option, value in (("--ntasks", ntasks), ("--ntasks-per-node", ntasks_per_node)):
            if value is not None and value < 1:
                raise HpcrunError(f"{option}={value}: a job has at least 1 task")
        host_slots = [ntasks_per_node or host.tasks for host in self.hosts]
        if ntasks and ntasks_per_node and ntasks > sum(host_slots):
            needed_hosts = -(-ntasks // ntasks_per_node)
            raise HpcrunError(
                f"{ntasks} tasks at {ntasks_per_node} per node need {needed_hosts} hosts; there are {len(host_slots)}",
                hint=f"request {needed_hosts} nodes, or --ntasks-per-node={-(-ntasks // len(host_slots))}",
            )
        task_counts = _distribute_tasks(ntasks, host_slots) if ntasks else host_slots
        host_names = (host.name for host in self.hosts)
        return self._from_task_counts(self.source, dict(zip(host_names, task_counts, strict=True)))

    def hostfile(self, format_name: str = "plain") -> str:
        """Format the allocation as a hostfile for a launcher.

        Args:
            format_name: A key of ``HOSTFILE_FORMATS``.

        Returns:
            One or more lines per host, in order; each ends with a newline.

        Raises:
            HpcrunError: The format is unknown.
        """
        if format_name not in HOSTFILE_FORMATS:
            closest_name = closest_match(format_name, [*HOSTFILE_FORMATS]) or _FORMAT_ALIASES.get(format_name.lower())
            raise HpcrunError(
                f"unknown hostfile format {format_name!r}; known: {', '.join(HOSTFILE_FORMATS)}",
                hint=f"did you mean {closest_name}?" if closest_name else None,
            )
        return "".join(HOSTFILE_FORMATS[format_name](host) for host in self.hosts)


_FORMAT_ALIASES = {
    **dict.fromkeys(["ompi", "mpirun", "slots", "horovod", "prrte"], "openmpi"),
    **dict.fromkeys(["mpich", "intel", "intelmpi", "impi", "mvapich", "mvapich2", "mpiexec"], "hydra"),
    **dict.fromkeys(["pbs", "nodefile", "machinefile", "lsf"], "ranks"),
    **dict.fromkeys(["hosts", "nodes", "list", "pdsh", "ssh", "txt", "text"], "plain"),
}
"""Aliases of the hostfile formats."""

HOSTFILE_FORMATS: dict[str, Callable[[Host], str]] = {
    "openmpi": lambda host: f"{host.name} slots={host.tasks}\n",
    "hydra": lambda host: f"{host.name}:{host.tasks}\n",
    "ranks": lambda host: f"{host.name}\n" * host.tasks,
    "plain": lambda host: f"{host.name}\n",
}
"""Functions that format a host, by format: for Open MPI; for MPICH and Intel MPI; a line per rank; a line per host."""


def _read_slurm_variables(environ: Mapping[str, str], variable: str) -> dict[str, int]:
    hosts, tasks_per_node = expand_nodelist(environ[variable]), environ.get("SLURM_TASKS_PER_NODE")
    # In a step, srun sets both variables to the step's tasks. If they differ, SLURM_STEP_* describes the interactive
    # shell that salloc starts on the first node, or the job in which the user ran sbatch.
    if tasks_per_node and tasks_per_node == environ.get("SLURM_STEP_TASKS_PER_NODE"):
        step_hosts = expand_nodelist(environ.get("SLURM_STEP_NODELIST") or environ[variable])
        hosts = step_hosts if set(step_hosts) <= set(hosts) else hosts
    task_counts = expand_counts(tasks_per_node) if tasks_per_node else [1] * len(hosts)
    if len(task_counts) != len(hosts):
        raise HpcrunError(
            f"SLURM_TASKS_PER_NODE={tasks_per_node} counts {len(task_counts)} nodes, but "
            f"{variable}={environ[variable]} names {len(hosts)}",
            hint="unset the SLURM_* variables that an enclosing job left behind",
        )
    # With --ntasks-per-node, SLURM_TASKS_PER_NODE contains the maximum per node, not the tasks that srun starts.
    ntasks = environ.get("SLURM_NTASKS")
    return dict(
        zip(
            hosts,
            _distribute_tasks(_parse_task_count("SLURM_NTASKS", ntasks), task_counts) if ntasks else task_counts,
            strict=True,
        )
    )


def _read_carme_nodes(environ: Mapping[str, str], variable: str) -> dict[str, int]:
    return dict.fromkeys(expand_nodelist(environ[variable]), 1)


def _read_nodefile(environ: Mapping[str, str], variable: str) -> dict[str, int]:
    return _read_hostfile(environ[variable], f"${variable}")


def _read_lsf_host_slots(environ: Mapping[str, str], variable: str) -> dict[str, int]:
    entries = environ[variable].split()
    if len(entries) % 2:
        raise HpcrunError(f"{variable}={environ[variable]!r} is not a list of hosts and slots")
    tasks: Counter[str] = Counter()
    for name, slots in zip(entries[::2], entries[1::2], strict=True):
        tasks.update(dict.fromkeys(expand_nodelist(name), _parse_task_count(variable, slots)))
    return tasks


def _read_lsf_hosts(environ: Mapping[str, str], variable: str) -> dict[str, int]:
    return Counter(expand_nodelist(environ[variable]))


NODELIST_VARIABLES: dict[str, tuple[str, NodelistReader]] = {
    "SLURM_JOB_NODELIST": ("slurm", _read_slurm_variables),
    "CARME_NODES": ("carme", _read_carme_nodes),
    "PBS_NODEFILE": ("pbs", _read_nodefile),
    "LSB_DJOB_HOSTFILE": ("lsf", _read_nodefile),
    "LSB_MCPU_HOSTS": ("lsf", _read_lsf_host_slots),
    "LSB_HOSTS": ("lsf", _read_lsf_hosts),
    "OAR_NODEFILE": ("oar", _read_nodefile),
    "OAR_NODE_FILE": ("oar", _read_nodefile),
}
"""The source and the reader for each environment variable with a list of nodes, in order of precedence.

A reader returns the number of tasks by host name. Carme runs on Slurm, so Slurm's variable comes first. LSF lists the
launch node like any other, so the node is used (https://github.com/openpmix/prrte/pull/800).

Source: sbatch(1); pbs_job_attributes(7B); "Environment variables set for job execution" in IBM Spectrum LSF's
configuration reference; oarsub(1).
"""


def _list_nodelist_variables() -> Iterator[tuple[str, tuple[str, NodelistReader]]]:
    """Yield `NODELIST_VARIABLES`, then the nodelist variables of the schedulers that other packages add."""
    yield from NODELIST_VARIABLES.items()
    for name in REGISTRY.list_names()[len(REGISTRY.built_in) :]:
        with suppress(HpcrunError):  # a package that cannot be imported is an error only for its own jobs
            for variable, read in REGISTRY.load(name).nodelist_variables.items():
                yield variable, (name, read)


def _parse_task_count(variable: str, text: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise HpcrunError(f"{variable}: {text!r} is not a number of tasks")
    return int(text)


def _distribute_tasks(ntasks: int, slots: list[int]) -> list[int]:
    """Return the number of tasks on each host; the tasks go one by one to the next host with a free slot.

    Without free slots, each task goes to the host with the fewest tasks. Ranks are numbered host by host ("block").

    Source: ``_task_layout_block`` in Slurm's src/common/slurm_step_layout.c.
    """
    min_or_max = min if ntasks <= sum(slots) else max

    def count_tasks(rounds: int) -> int:
        return sum(min_or_max(count, rounds) for count in slots)

    max_rounds = max(*slots, ntasks // len(slots))
    rounds = bisect_right(range(max_rounds + 1), ntasks, key=count_tasks) - 1
    counts = [min_or_max(count, rounds) for count in slots]
    remaining_tasks = ntasks - sum(counts)
    for index, count in enumerate(slots):
        if remaining_tasks and min_or_max(count, rounds + 1) > counts[index]:
            counts[index] += 1
            remaining_tasks -= 1
    return counts


def _read_hostfile(path: str | os.PathLike[str], description: str = "the hostfile") -> dict[str, int]:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        message = f"cannot read {description} {path}: {error.strerror}"
        raise HpcrunError(message, hint="a hostfile has one host per line, as n1 or n1 slots=2") from error
    tasks: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        entry = line.partition("#")[0].strip()
        match = _HOSTFILE_LINE.fullmatch(entry)
        if match:
            slot_counts = [match[2]] if match[2] else _SLOTS.findall(match[3]) or ["1"]
            tasks[match[1]] = tasks.get(match[1], 0) + int(slot_counts[0])
        elif entry:
            raise HpcrunError(f"{path}:{number}: {entry!r} is not a host", hint="write n1, n1:2 or n1 slots=2")
    if not any(tasks.values()):
        raise HpcrunError(f"{description} {path} names no host", hint="write one host per line: n1, n1:2 or n1 slots=2")
    return tasks
