"""What a running job was granted: its hosts and the tasks on each, whichever scheduler says so."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, closest_match
from hpcrun.nodelist import expand_counts, expand_nodelist

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LINE = re.compile(r"((?!-)[\w.-]+)(?::([0-9]{1,6})|((?:\s+(?:max[_-])?slots\s*=\s*[0-9]{1,6})*))", re.ASCII)
_SLOTS = re.compile(r"\sslots\s*=\s*([0-9]+)")


@dataclass(frozen=True)
class Host:
    """One host of an allocation.

    Args:
        name: As the scheduler spells it.
        tasks: MPI ranks to start there, at least 1.
    """

    name: str
    tasks: int = 1


@dataclass(frozen=True)
class Allocation:
    """The hosts that a running job was granted.

    Args:
        source: Who said so: ``slurm``, ``carme``, ``pbs``, ``lsf``, ``oar``, ``hostfile`` or ``host`` (nobody
            did: this host, one task).
        hosts: In the scheduler's order, each name once.
    """

    source: str
    hosts: tuple[Host, ...]

    @property
    def ntasks(self) -> int:
        """Ranks over all hosts."""
        return sum(host.tasks for host in self.hosts)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Allocation:
        """Read what the scheduler granted to the job that this process is part of.

        The first of ``NODELIST_VARIABLES`` that is set decides; no scheduler command is run. In a job step of Slurm it
        is the step's share. In a batch script it is what ``srun`` without options would start, or where no
        number of tasks was asked for, ``SLURM_TASKS_PER_NODE``, as ``mpirun`` does.

        Args:
            environ: Usually ``os.environ``.

        Raises:
            HpcrunError: The variables contradict each other, or a file that they name cannot be read.
        """
        for variable, (source, read) in NODELIST_VARIABLES.items():
            if environ.get(variable, "").strip():
                return cls._of(source, read(environ, variable))
        return cls("host", (Host(os.uname().nodename),))

    @classmethod
    def from_hostfile(cls, path: str | os.PathLike[str]) -> Allocation:
        """Read a hostfile in any dialect of ``HOSTFILE_FORMATS``, even mixed.

        Tasks of a name that comes again add up, and a host with ``slots=0`` is left out. Open MPI's
        ``max_slots`` is read over; ``#`` starts a comment.

        Args:
            path: A text file with lines like ``n1``, ``n1:2`` or ``n1 slots=2``.

        Raises:
            HpcrunError: The file is missing, names no host, or has a line that is none of these.
        """
        return cls._of("hostfile", _read_hostfile(path))

    @classmethod
    def _of(cls, source: str, tasks: Mapping[str, int]) -> Allocation:
        return cls(source, tuple(Host(name, count) for name, count in tasks.items() if count))

    def with_nodes(self, nodes: int | None) -> Allocation:
        """Return the allocation's first hosts only.

        Args:
            nodes: How many; None for all.

        Raises:
            HpcrunError: There are fewer.
        """
        if nodes is None or nodes == len(self.hosts):
            return self
        if nodes > len(self.hosts):
            raise HpcrunError(
                f"--nodes={nodes} is more than the {len(self.hosts)} of {self.source}", hint="ask for fewer"
            )
        return Allocation(self.source, self.hosts[:nodes])

    def with_tasks(self, ntasks: int | None = None, ntasks_per_node: int | None = None) -> Allocation:
        """Return the same hosts with other tasks, spread as ``srun`` spreads them by default.

        ``ntasks`` alone fills the hosts evenly up to what each was granted, and beyond that (oversubscribed)
        the emptiest first. ``ntasks_per_node`` alone puts as many on every host; with ``ntasks`` it is a
        maximum, as in sbatch(1). Hosts left without a task are dropped.

        Args:
            ntasks: Ranks over all hosts; None keeps them.
            ntasks_per_node: Ranks on each host; None sets no such limit.

        Raises:
            HpcrunError: A number below 1, or too few hosts for ``ntasks`` at ``ntasks_per_node`` each.
        """
        for option, value in (("--ntasks", ntasks), ("--ntasks-per-node", ntasks_per_node)):
            if value is not None and value < 1:
                raise HpcrunError(f"{option}={value}: a job has at least 1 task")
        room = [ntasks_per_node or host.tasks for host in self.hosts]
        if ntasks and ntasks_per_node and ntasks > sum(room):
            needed = -(-ntasks // ntasks_per_node)
            raise HpcrunError(
                f"{ntasks} tasks at {ntasks_per_node} a node need {needed} hosts; here are {len(room)}",
                hint=f"ask for {needed} nodes, or for --ntasks-per-node={-(-ntasks // len(room))}",
            )
        counts = _deal(ntasks, room) if ntasks else room
        names = (host.name for host in self.hosts)
        return self._of(self.source, dict(zip(names, counts, strict=True)))

    def hostfile(self, dialect: str = "plain") -> str:
        """Return the hostfile for one kind of launcher.

        Args:
            dialect: A name in ``HOSTFILE_FORMATS``.

        Returns:
            One or more lines per host, in order; the last one ends with a newline too.

        Raises:
            HpcrunError: No such dialect.
        """
        if dialect not in HOSTFILE_FORMATS:
            like = closest_match(dialect, [*HOSTFILE_FORMATS])
            raise HpcrunError(
                f"no hostfile format {dialect!r}; there are {', '.join(HOSTFILE_FORMATS)}",
                hint=f"did you mean {like}?" if like else None,
            )
        return "".join(HOSTFILE_FORMATS[dialect](host) for host in self.hosts)


HOSTFILE_FORMATS: dict[str, Callable[[Host], str]] = {
    "openmpi": lambda host: f"{host.name} slots={host.tasks}\n",
    "hydra": lambda host: f"{host.name}:{host.tasks}\n",
    "ranks": lambda host: f"{host.name}\n" * host.tasks,
    "plain": lambda host: f"{host.name}\n",
}
"""Hostfile dialect -> one host's lines: Open MPI's; MPICH's and Intel MPI's; one per rank; one per host."""


def _slurm(environ: Mapping[str, str], variable: str) -> dict[str, int]:
    hosts, tasks_per_node = expand_nodelist(environ[variable]), environ.get("SLURM_TASKS_PER_NODE")
    # srun writes a step's tasks to both variables. Where they differ, SLURM_STEP_* belong to something else:
    # to the interactive shell that salloc opens on the first node, or to the job in which sbatch was typed.
    if tasks_per_node and tasks_per_node == environ.get("SLURM_STEP_TASKS_PER_NODE"):
        step = expand_nodelist(environ.get("SLURM_STEP_NODELIST") or environ[variable])
        hosts = step if set(step) <= set(hosts) else hosts
    counts = expand_counts(tasks_per_node) if tasks_per_node else [1] * len(hosts)
    if len(counts) != len(hosts):
        raise HpcrunError(
            f"SLURM_TASKS_PER_NODE={tasks_per_node} counts {len(counts)} nodes, but "
            f"{variable}={environ[variable]} names {len(hosts)}",
            hint="unset the SLURM_* variables that an enclosing job left behind",
        )
    # With --ntasks-per-node a batch script is told the maximum for each node, not the tasks that srun starts.
    ntasks = environ.get("SLURM_NTASKS")
    return dict(zip(hosts, _deal(_number("SLURM_NTASKS", ntasks), counts) if ntasks else counts, strict=True))


def _carme(environ: Mapping[str, str], variable: str) -> dict[str, int]:
    return dict.fromkeys(expand_nodelist(environ[variable]), 1)


def _nodefile(environ: Mapping[str, str], variable: str) -> dict[str, int]:
    return _read_hostfile(environ[variable], f"${variable}")


def _lsf_pairs(environ: Mapping[str, str], variable: str) -> dict[str, int]:
    words = environ[variable].split()
    if len(words) % 2:
        raise HpcrunError(f"{variable}={environ[variable]!r} is no list of hosts and their slots")
    tasks: Counter[str] = Counter()
    for name, slots in zip(words[::2], words[1::2], strict=True):
        tasks.update(dict.fromkeys(expand_nodelist(name), _number(variable, slots)))
    return tasks


def _lsf_words(environ: Mapping[str, str], variable: str) -> dict[str, int]:
    return Counter(expand_nodelist(environ[variable]))


NODELIST_VARIABLES: dict[str, tuple[str, Callable[[Mapping[str, str], str], dict[str, int]]]] = {
    "SLURM_JOB_NODELIST": ("slurm", _slurm),
    "CARME_NODES": ("carme", _carme),
    "PBS_NODEFILE": ("pbs", _nodefile),
    "LSB_DJOB_HOSTFILE": ("lsf", _nodefile),
    "LSB_MCPU_HOSTS": ("lsf", _lsf_pairs),
    "LSB_HOSTS": ("lsf", _lsf_words),
    "OAR_NODEFILE": ("oar", _nodefile),
    "OAR_NODE_FILE": ("oar", _nodefile),
}
"""Environment variable -> (source, reader of host name -> tasks), in the order in which they are looked for.

Carme runs on Slurm, so Slurm's own word comes first. LSF lists a launch node like any other, so it stays in
(https://github.com/openpmix/prrte/pull/800).

Source: sbatch(1); pbs_job_attributes(7B); "Environment variables set for job execution" in IBM Spectrum LSF's
configuration reference; oarsub(1).
"""


def _number(variable: str, text: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise HpcrunError(f"{variable}: {text!r} is no number of tasks")
    return int(text)


def _deal(ntasks: int, room: list[int]) -> list[int]:
    """Return how many tasks each host gets: one each, round after round, as long as it has room.

    Without room for all, the emptiest host is next. Ranks are numbered host by host all the same ("block").

    Source: ``_task_layout_block`` in Slurm's src/common/slurm_step_layout.c.
    """
    clip = min if ntasks <= sum(room) else max

    def dealt(rounds: int) -> int:
        return sum(clip(space, rounds) for space in room)

    most = max(*room, ntasks // len(room))
    rounds = bisect_right(range(most + 1), ntasks, key=dealt) - 1
    counts = [clip(space, rounds) for space in room]
    left = ntasks - sum(counts)
    for index, space in enumerate(room):
        if left and clip(space, rounds + 1) > counts[index]:
            counts[index] += 1
            left -= 1
    return counts


def _read_hostfile(path: str | os.PathLike[str], what: str = "the hostfile") -> dict[str, int]:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise HpcrunError(f"cannot read {what} {path}: {error.strerror}") from error
    tasks: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        entry = line.partition("#")[0].strip()
        match = _LINE.fullmatch(entry)
        if match:
            slots = [match[2]] if match[2] else _SLOTS.findall(match[3]) or ["1"]
            tasks[match[1]] = tasks.get(match[1], 0) + int(slots[0])
        elif entry:
            raise HpcrunError(f"{path}:{number}: {entry!r} is no host", hint="write n1, n1:2 or n1 slots=2")
    if not any(tasks.values()):
        raise HpcrunError(f"{what} {path} names no host", hint="write one host a line: n1, n1:2 or n1 slots=2")
    return tasks
