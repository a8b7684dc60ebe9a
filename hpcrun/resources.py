"""The resources that a job requests, in Slurm's terms and formats."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar

from hpcrun.errors import HpcrunError
from hpcrun.field_checks import check_fields, require_names, require_one_line, require_positive
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

_TIME = re.compile(r"(?:(?P<days>[0-9]+)-)?(?P<fields>[0-9]+(?::[0-9]+){0,2})")
_MEMORY = re.compile(r"(?P<number>[0-9]+)(?P<unit>[KMGT]?)", re.IGNORECASE | re.ASCII)
_MEBIBYTES_PER_UNIT = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}

MEMORY_OPTIONS = "mem", "mem_per_cpu", "mem_per_gpu"
"""The memory options of sbatch; a job may have only one of them."""


def parse_time(time: str | int) -> float:
    """Parse a Slurm time limit and return it in seconds.

    Args:
        time: ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``, ``days-hours``, ``days-hours:minutes``,
            ``days-hours:minutes:seconds``, ``UNLIMITED`` or ``INFINITE`` (sbatch(1), ``--time``).

    Raises:
        ValueError: The text does not have this format.
    """
    if str(time).upper() in {"UNLIMITED", "INFINITE"}:
        return float("inf")
    match = _TIME.fullmatch(str(time))
    if not match:
        raise ValueError("a time is minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS or UNLIMITED")
    fields = [int(field) for field in match["fields"].split(":")]
    if match["days"] is not None:
        hours, minutes, seconds = [*fields, 0, 0][:3]
        return int(match["days"]) * 86400 + hours * 3600 + minutes * 60 + seconds
    if len(fields) == 3:
        return fields[0] * 3600 + fields[1] * 60 + fields[2]
    return fields[0] * 60 + (fields[1] if len(fields) == 2 else 0)


FEATURE_PATTERN = re.compile(r"[\w.:-]+")
"""Pattern for a feature or a node count in a ``--constraint`` such as ``a100&nvme`` or ``[rack1*2|rack2*4]``."""


def parse_memory(memory: str | int) -> float:
    """Parse a Slurm memory size and return it in MiB.

    Args:
        memory: A number with an optional suffix K, M (the default), G or T (sbatch(1), ``--mem``).

    Raises:
        ValueError: The text does not have this format.
    """
    match = _MEMORY.fullmatch(str(memory))
    if not match:
        raise ValueError("a memory size is a whole number with an optional K, M, G or T, such as 4000 or 16G")
    return float(match["number"]) * _MEBIBYTES_PER_UNIT[match["unit"].upper()]


def _require_gpus(text: str | int) -> None:
    if not re.fullmatch(r"([A-Za-z0-9_.-]+:)?[0-9]+", str(text)):
        raise ValueError("GPUs are a number, or type:number such as a100:4")


MAIL_TYPES = (
    "NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT", "ARRAY_TASKS",
    "TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50",
)  # fmt: skip
"""The valid events for ``--mail-type`` of sbatch(1)."""


def _require_mail_types(text: str) -> None:
    require_one_line(text)
    if wrong := [word for word in text.split(",") if word.upper() not in MAIL_TYPES]:
        raise ValueError(f"there is no event {wrong[0]!r}, but {', '.join(MAIL_TYPES)}")


def require_sbatch_option(option: str) -> None:
    """Check that a text is an sbatch option in long form, such as ``--name=value``."""
    if not isinstance(option, str) or not re.fullmatch(r"--[a-z][a-z-]*(=[^\x00-\x1f\x7f]*)?", option):
        raise ValueError("an sbatch option is written --name or --name=value")


def _require_extra_sbatch_option(option: str) -> None:
    name = re.split("[= ]", option.removeprefix("--"), maxsplit=1)[0] if isinstance(option, str) else ""
    if name.replace("-", "_") in Resources.__dataclass_fields__:
        raise ValueError(f"--{name} is an option of hpcrun: give it without --sbatch")
    if name in {"array", "output", "error", "chdir", "wrap", "wait"}:
        raise ValueError(f"hpcrun sets sbatch's --{name} itself; a run directory holds one job")
    require_sbatch_option(option)


_CHECKS: dict[str, Callable[[Any], object]] = {
    **dict.fromkeys(["nodes", "ntasks", "ntasks_per_node", "cpus_per_task"], require_positive),
    **dict.fromkeys(["account", "qos", "constraint", "nodelist", "exclude", "dependency"], require_one_line),
    **dict.fromkeys(["job_name", "mail_user"], require_one_line),
    "partition": require_names,
    "mail_type": _require_mail_types,
    "sbatch": _require_extra_sbatch_option,
    "gpus_per_node": _require_gpus,
    "mem": parse_memory,
    "mem_per_cpu": parse_memory,
    "mem_per_gpu": parse_memory,
    "time": parse_time,
}


def is_valid(field: str, value: object) -> bool:
    """Return whether a value is valid for a field of `Resources`."""
    try:
        _CHECKS[field](value)
    except ValueError:
        return False
    return True


@frozen(kw_only=True)
class Resources:
    """The resources that a job requests, with sbatch's names and formats; None means that the option is not given.

    Raises:
        FieldError: sbatch would not accept a value.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    nodes: int | None = None
    """Number of nodes."""
    ntasks: int | None = None
    """Total number of MPI ranks."""
    ntasks_per_node: int | None = None
    """Number of MPI ranks on each node."""
    cpus_per_task: int | None = None
    """Number of CPU cores of each rank."""
    gpus_per_node: str | int | None = None
    """Number of GPUs on each node, or TYPE:NUMBER."""
    mem: str | int | None = None
    """Memory on each node, in MiB or with a suffix K, M, G or T."""
    mem_per_cpu: str | int | None = None
    """Memory for each CPU core, in MiB or with a suffix K, M, G or T."""
    mem_per_gpu: str | int | None = None
    """Memory for each GPU, in MiB or with a suffix K, M, G or T."""
    time: str | int | None = None
    """Time limit, in any of Slurm's formats."""
    partition: str | None = None
    """Partition (queue)."""
    account: str | None = None
    """Account (project) that is charged for the job."""
    qos: str | None = None
    """Quality of service."""
    constraint: str | None = None
    """Node features that the job needs."""
    nodelist: str | None = None
    """Nodes that the job must get."""
    exclude: str | None = None
    """Nodes that the job must not get."""
    dependency: str | None = None
    """Jobs to wait for, such as afterok:1234."""
    job_name: str | None = None
    """Name of the job."""
    exclusive: bool | None = None
    """Whether the job must not share its nodes with other jobs."""
    mail_type: str | None = None
    """Events of the job for which Slurm sends mail: BEGIN, END, FAIL, ALL, ..."""
    mail_user: str | None = None
    """Recipient of the mail."""
    sbatch: tuple[str, ...] = ()
    """Other sbatch options, each as --name=value."""

    def __post_init__(self) -> None:
        options = (self.sbatch,) if isinstance(self.sbatch, str) else self.sbatch
        object.__setattr__(self, "sbatch", tuple(options))
        check_fields(self, _CHECKS)

    def explicit(self) -> dict[str, Any]:
        """Return the fields that are set, by name."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}

    @property
    def gpus(self) -> int:
        """The number of GPUs on each node."""
        return int(str(self.gpus_per_node).split(":")[-1]) if self.gpus_per_node else 0

    @property
    def gpu_type(self) -> str | None:
        """The GPU type in ``gpus_per_node``; None if it contains only a number."""
        return str(self.gpus_per_node or "").rpartition(":")[0] or None

    @property
    def memory(self) -> tuple[float, str] | None:
        """The requested memory on each node in MiB, and the option that requests it; None if no option does."""
        cores = (self.ntasks_per_node or 1) * (self.cpus_per_task or 1)
        for name, factor in {"mem": 1, "mem_per_cpu": cores, "mem_per_gpu": self.gpus}.items():
            if size := getattr(self, name):
                return parse_memory(size) * factor, f"--{name.replace('_', '-')}={size}"
        return None

    @property
    def ranks(self) -> int:
        """The total number of MPI ranks: ``ntasks``, or the ranks per node times the number of nodes."""
        return self.ntasks or (self.nodes or 1) * (self.ntasks_per_node or self.gpus or 1)

    def with_defaults(self, defaults: Resources) -> Resources:
        """Return these resources with defaults for the fields that are not set."""
        explicit_values = self.explicit()
        if explicit_values.keys() & set(
            MEMORY_OPTIONS
        ):  # only one memory option may be set: an explicit option replaces all defaults
            explicit_values = {**dict.fromkeys(MEMORY_OPTIONS), **explicit_values}
        return replace(defaults, **{**explicit_values, "sbatch": (*defaults.sbatch, *self.sbatch)})

    def with_layout(self, gpus_on_node: int | None) -> tuple[Resources, str | None]:
        """Set missing numbers of nodes, ranks and GPUs: one rank per GPU, or one rank per node without GPUs.

        Args:
            gpus_on_node: The number of GPUs of each node; None if unknown.

        Returns:
            The complete resources, and a warning if the ranks cannot use the GPUs of the nodes.

        Raises:
            HpcrunError: The numbers contradict each other.
        """
        self._require_consistent()
        warning = None
        gpus_per_node = self.gpus_per_node
        requested_ranks_per_node = self.ntasks_per_node or (
            -(-self.ntasks // self.nodes) if self.ntasks and self.nodes else None
        )
        if gpus_per_node is None and gpus_on_node:
            if requested_ranks_per_node and requested_ranks_per_node > gpus_on_node:
                warning = (
                    f"{requested_ranks_per_node} ranks on a node with {gpus_on_node} GPUs: all ranks use the CPU "
                    f"(--ntasks-per-node={gpus_on_node} gives each rank a GPU)"
                )
            else:
                gpus_per_node = str(min(requested_ranks_per_node or self.ntasks or gpus_on_node, gpus_on_node))
        resources = replace(self, gpus_per_node=gpus_per_node)
        ranks_per_node, nodes = self.ntasks_per_node, self.nodes
        if self.ntasks is None:
            nodes, ranks_per_node = nodes or 1, ranks_per_node or max(resources.gpus, 1)
        elif resources.gpus:  # spread ranks evenly, because otherwise ranks may share a GPU while another GPU is idle
            nodes = nodes or -(-self.ntasks // (ranks_per_node or resources.gpus))
            ranks_per_node = ranks_per_node or -(-self.ntasks // nodes)
        elif nodes is None and ranks_per_node:
            nodes = -(-self.ntasks // ranks_per_node)
        return replace(resources, nodes=nodes, ntasks_per_node=ranks_per_node), warning

    def one_process_per_node(self) -> Resources:
        """Return the resources of one process per node, which gets the cores of all ranks on the node.

        Raises:
            HpcrunError: The nodes have different numbers of ranks.
        """
        per_node = self.ntasks_per_node or self.ntasks or 1
        nodes = self.nodes or -(-self.ranks // per_node)
        if self.ranks % nodes:
            raise HpcrunError(
                f"{self.ranks} ranks on {nodes} nodes: --launch needs the same number on each node",
                hint="-N 2 --ntasks-per-node 4 asks for four on each of two nodes",
            )
        ranks = self.ranks // nodes
        cores = (self.cpus_per_task or 1) * ranks if ranks > 1 else self.cpus_per_task
        return replace(self, nodes=nodes, ntasks=None, ntasks_per_node=1, cpus_per_task=cores)

    def _require_consistent(self) -> None:
        def raise_error(message: str, hint: str) -> None:
            raise HpcrunError(message, hint=hint)

        memory_options = [
            f"--{name.replace('_', '-')}={size}" for name in MEMORY_OPTIONS if (size := getattr(self, name))
        ]
        if len(memory_options) > 1:
            raise_error(
                f"{' and '.join(memory_options)} exclude each other",
                "give the memory of a node (--mem), of a core (--mem-per-cpu) or of a GPU (--mem-per-gpu)",
            )
        if self.ntasks and self.nodes and self.ntasks < self.nodes:
            raise_error(
                f"--ntasks={self.ntasks} leaves some of --nodes={self.nodes} without a rank",
                f"give --nodes={self.ntasks}, or --ntasks={self.nodes} or more",
            )
        if self.ntasks and self.nodes and self.ntasks_per_node and self.ntasks > self.nodes * self.ntasks_per_node:
            raise_error(
                f"--ntasks={self.ntasks} ranks do not fit on --nodes={self.nodes} with "
                f"--ntasks-per-node={self.ntasks_per_node}",
                f"omit --ntasks, or request at most {self.nodes * self.ntasks_per_node}",
            )
