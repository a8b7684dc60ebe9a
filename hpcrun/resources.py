"""The resources that a job requests, in Slurm's terms and formats."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from hpcrun.errors import HpcrunError
from hpcrun.field_checks import check_fields, require_names, require_one_line, require_positive

if TYPE_CHECKING:
    from collections.abc import Callable

_TIME = re.compile(r"(?:(?P<days>[0-9]+)-)?(?P<fields>[0-9]+(?::[0-9]+){0,2})")
_MEMORY = re.compile(r"(?P<number>[0-9]+)(?P<unit>[KMGT]?)", re.IGNORECASE | re.ASCII)
_MEBIBYTES = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}

MEMORY_OPTIONS = "mem", "mem_per_cpu", "mem_per_gpu"
"""The memory options, of which a job has at most one."""


def parse_time(time: str | int) -> float:
    """Parse a Slurm time limit and return it in seconds.

    Args:
        time: ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``, ``days-hours``, ``days-hours:minutes``,
            ``days-hours:minutes:seconds``, ``UNLIMITED`` or ``INFINITE`` (sbatch(1), ``--time``).

    Raises:
        ValueError: The text has none of these forms.
    """
    if str(time).upper() in {"UNLIMITED", "INFINITE"}:
        return float("inf")
    match = _TIME.fullmatch(str(time))
    if not match:
        raise ValueError("a time is minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS or UNLIMITED")
    fields = [int(field) for field in match["fields"].split(":")]
    if match["days"] is not None:
        hours, minutes, rest = [*fields, 0, 0][:3]
        return int(match["days"]) * 86400 + hours * 3600 + minutes * 60 + rest
    if len(fields) == 3:
        return fields[0] * 3600 + fields[1] * 60 + fields[2]
    return fields[0] * 60 + (fields[1] if len(fields) == 2 else 0)


FEATURE = re.compile(r"[\w.:-]+")
"""A feature, or the number of nodes with it, in a ``--constraint`` such as ``a100&nvme`` or ``[rack1*2|rack2*4]``."""


def parse_memory(memory: str | int) -> float:
    """Parse a Slurm memory size and return it in MiB.

    Args:
        memory: A number with an optional K, M (the default), G or T (sbatch(1), ``--mem``).

    Raises:
        ValueError: The text is not a number with such a unit.
    """
    match = _MEMORY.fullmatch(str(memory))
    if not match:
        raise ValueError("a memory size is a whole number with an optional K, M, G or T, such as 4000 or 16G")
    return float(match["number"]) * _MEBIBYTES[match["unit"].upper()]


def _require_gpus(text: str | int) -> None:
    if not re.fullmatch(r"([A-Za-z0-9_.-]+:)?[0-9]+", str(text)):
        raise ValueError("GPUs are a number, or type:number such as a100:4")


MAIL_TYPES = (
    "NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT", "ARRAY_TASKS",
    "TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50",
)  # fmt: skip
"""The events of sbatch(1), ``--mail-type``."""


def _require_mail_types(text: str) -> None:
    require_one_line(text)
    if wrong := [word for word in text.split(",") if word.upper() not in MAIL_TYPES]:
        raise ValueError(f"there is no event {wrong[0]!r}, but {', '.join(MAIL_TYPES)}")


def require_sbatch_option(option: str) -> None:
    """Check that a text is an sbatch option in its long form."""
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
    """Return whether a field of `Resources` may have a value."""
    try:
        _CHECKS[field](value)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources that a job requests, by sbatch's names and formats; None leaves an option to Slurm.

    Raises:
        FieldError: A value that sbatch would not accept.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    nodes: int | None = None
    """Nodes."""
    ntasks: int | None = None
    """MPI ranks in all."""
    ntasks_per_node: int | None = None
    """MPI ranks on each node."""
    cpus_per_task: int | None = None
    """CPU cores of each rank."""
    gpus_per_node: str | int | None = None
    """GPUs on each node: a number, or type:number."""
    mem: str | int | None = None
    """Memory on each node, in MiB or with K, M, G, T."""
    mem_per_cpu: str | int | None = None
    """Memory for each CPU core, in MiB or with K, M, G, T."""
    mem_per_gpu: str | int | None = None
    """Memory for each GPU, in MiB or with K, M, G, T."""
    time: str | int | None = None
    """Time limit, in any of Slurm's formats."""
    partition: str | None = None
    """Partition (queue)."""
    account: str | None = None
    """Account (project) that pays."""
    qos: str | None = None
    """Quality of service."""
    constraint: str | None = None
    """Node features that are required."""
    nodelist: str | None = None
    """Nodes that the job must have."""
    exclude: str | None = None
    """Nodes that the job must not have."""
    dependency: str | None = None
    """Jobs to wait for, such as afterok:1234."""
    job_name: str | None = None
    """Name of the job."""
    exclusive: bool | None = None
    """Share the nodes with no other job."""
    mail_type: str | None = None
    """When to send mail: BEGIN, END, FAIL, ALL, ..."""
    mail_user: str | None = None
    """Where to send mail."""
    sbatch: tuple[str, ...] = ()
    """Any other sbatch options, each as --name=value."""

    def __post_init__(self) -> None:
        options = (self.sbatch,) if isinstance(self.sbatch, str) else self.sbatch
        object.__setattr__(self, "sbatch", tuple(options))
        check_fields(self, _CHECKS)

    def explicit(self) -> dict[str, Any]:
        """Return the fields that are set, by name."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}

    @property
    def gpus(self) -> int:
        """GPUs on each node, as a number."""
        return int(str(self.gpus_per_node).split(":")[-1]) if self.gpus_per_node else 0

    @property
    def gpu_type(self) -> str | None:
        """The GPU type in ``gpus_per_node``, if it names one."""
        return str(self.gpus_per_node or "").rpartition(":")[0] or None

    @property
    def memory(self) -> tuple[float, str] | None:
        """MiB on each node, and the option that requests them; None without such an option."""
        cores = (self.ntasks_per_node or 1) * (self.cpus_per_task or 1)
        for name, factor in {"mem": 1, "mem_per_cpu": cores, "mem_per_gpu": self.gpus}.items():
            if size := getattr(self, name):
                return parse_memory(size) * factor, f"--{name.replace('_', '-')}={size}"
        return None

    @property
    def ranks(self) -> int:
        """The number of MPI ranks: ``ntasks``, or the ranks of a node times the nodes."""
        return self.ntasks or (self.nodes or 1) * (self.ntasks_per_node or self.gpus or 1)

    def with_defaults(self, defaults: Resources) -> Resources:
        """Return these resources with defaults for the fields that are not set."""
        explicit = self.explicit()
        if explicit.keys() & set(MEMORY_OPTIONS):  # only one may be set: an explicit one replaces any default
            explicit = {**dict.fromkeys(MEMORY_OPTIONS), **explicit}
        return replace(defaults, **{**explicit, "sbatch": (*defaults.sbatch, *self.sbatch)})

    def with_layout(self, gpus_on_node: int | None) -> tuple[Resources, str | None]:
        """Set missing numbers of nodes, ranks and GPUs: one rank per GPU, or one per node without GPUs.

        Args:
            gpus_on_node: GPUs of each node; None if unknown.

        Returns:
            The complete resources, and a warning if the ranks cannot use the GPUs of the nodes.

        Raises:
            HpcrunError: The numbers contradict each other.
        """
        self._require_consistent()
        warning = None
        gpus = self.gpus_per_node
        requested_per_node = self.ntasks_per_node or (
            -(-self.ntasks // self.nodes) if self.ntasks and self.nodes else None
        )
        if gpus is None and gpus_on_node:
            if requested_per_node and requested_per_node > gpus_on_node:
                warning = (
                    f"{requested_per_node} ranks on a node with {gpus_on_node} GPUs: all ranks use the CPU "
                    f"(--ntasks-per-node={gpus_on_node} gives each rank a GPU)"
                )
            else:
                gpus = str(min(requested_per_node or self.ntasks or gpus_on_node, gpus_on_node))
        resources = replace(self, gpus_per_node=gpus)
        per_node, nodes = self.ntasks_per_node, self.nodes
        if self.ntasks is None:
            nodes, per_node = nodes or 1, per_node or max(resources.gpus, 1)
        elif resources.gpus:  # spread ranks evenly: else some would share a GPU while another is idle
            nodes = nodes or -(-self.ntasks // (per_node or resources.gpus))
            per_node = per_node or -(-self.ntasks // nodes)
        elif nodes is None and per_node:
            nodes = -(-self.ntasks // per_node)
        return replace(resources, nodes=nodes, ntasks_per_node=per_node), warning

    def _require_consistent(self) -> None:
        def fail(message: str, hint: str) -> None:
            raise HpcrunError(message, hint=hint)

        memory = [f"--{name.replace('_', '-')}={size}" for name in MEMORY_OPTIONS if (size := getattr(self, name))]
        if len(memory) > 1:
            fail(
                f"{' and '.join(memory)} exclude each other",
                "give the memory of a node (--mem), of a core (--mem-per-cpu) or of a GPU (--mem-per-gpu)",
            )
        if self.ntasks and self.nodes and self.ntasks < self.nodes:
            fail(
                f"--ntasks={self.ntasks} leaves some of --nodes={self.nodes} without a rank",
                f"give --nodes={self.ntasks}, or --ntasks={self.nodes} or more",
            )
        if self.ntasks and self.nodes and self.ntasks_per_node and self.ntasks > self.nodes * self.ntasks_per_node:
            fail(
                f"--ntasks={self.ntasks} ranks do not fit on --nodes={self.nodes} with "
                f"--ntasks-per-node={self.ntasks_per_node}",
                f"omit --ntasks, or request at most {self.nodes * self.ntasks_per_node}",
            )
