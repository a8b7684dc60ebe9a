"""What a job asks for, in Slurm's words and formats, and its own arithmetic."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from hpcrun.errors import HpcrunError

_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<fields>\d+(?::\d+){0,2})")
_MEMORY = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[KMGT]?)B?", re.IGNORECASE)
_MEBIBYTES = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}


def seconds(time: str) -> float:
    """Return the seconds of a Slurm time limit.

    Args:
        time: ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``, ``days-hours``, ``days-hours:minutes``,
            ``days-hours:minutes:seconds``, ``UNLIMITED`` or ``INFINITE`` (sbatch(1), ``--time``).

    Raises:
        ValueError: Not one of these forms.
    """
    if time.upper() in {"UNLIMITED", "INFINITE"}:
        return float("inf")
    match = _TIME.fullmatch(time)
    if not match:
        raise ValueError("a time is minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS or UNLIMITED")
    fields = [int(field) for field in match["fields"].split(":")]
    if match["days"] is not None:
        hours, minutes, rest = [*fields, 0, 0][:3]
        return int(match["days"]) * 86400 + hours * 3600 + minutes * 60 + rest
    if len(fields) == 3:
        return fields[0] * 3600 + fields[1] * 60 + fields[2]
    return fields[0] * 60 + (fields[1] if len(fields) == 2 else 0)


def mebibytes(memory: str) -> float:
    """Return the MiB of a Slurm memory size.

    Args:
        memory: A number with an optional K, M (the default), G or T (sbatch(1), ``--mem``).

    Raises:
        ValueError: Not a number with such a unit.
    """
    match = _MEMORY.fullmatch(memory)
    if not match:
        raise ValueError("a memory size is a number with an optional K, M, G or T, such as 4000 or 16G")
    return float(match["number"]) * _MEBIBYTES[match["unit"].upper()]


def _checked(check: Any) -> AfterValidator:
    def validate(text: str) -> str:
        check(text)
        return text

    return AfterValidator(validate)


def _one_line(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("must be one line of printable text")
    return text


def _text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Count = Annotated[int, Field(ge=1)]
Line = Annotated[str, AfterValidator(_one_line)]
Time = Annotated[str, BeforeValidator(_text), _checked(seconds)]
Memory = Annotated[str, BeforeValidator(_text), _checked(mebibytes)]
GpusPerNode = Annotated[str, BeforeValidator(_text), Field(pattern=r"^([A-Za-z0-9_.-]+:)?[0-9]+$")]


class Resources(BaseModel):
    """What a job asks for; None is "nobody said", and is not emitted. Names and formats are sbatch's."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    nodes: Count | None = None
    """Nodes."""
    ntasks: Count | None = None
    """MPI ranks in all."""
    ntasks_per_node: Count | None = None
    """MPI ranks on each node."""
    cpus_per_task: Count | None = None
    """CPU cores of each rank."""
    gpus_per_node: GpusPerNode | None = None
    """GPUs on each node: a number, or type:number."""
    mem: Memory | None = None
    """Memory on each node, in MiB or with K, M, G, T."""
    mem_per_cpu: Memory | None = None
    """Memory for each CPU core, in MiB or with K, M, G, T."""
    time: Time | None = None
    """Time limit, in any of Slurm's formats."""
    partition: Line | None = None
    """Partition (queue)."""
    account: Line | None = None
    """Account (project) that pays."""
    qos: Line | None = None
    """Quality of service."""
    constraint: Line | None = None
    """Node features that are required."""
    nodelist: Line | None = None
    """Nodes that the job must have."""
    exclude: Line | None = None
    """Nodes that the job must not have."""
    dependency: Line | None = None
    """Jobs to wait for, such as afterok:1234."""
    job_name: Line | None = None
    """Name of the job."""
    exclusive: bool | None = None
    """Share the nodes with no other job."""
    mail_type: Line | None = None
    """When to send mail: BEGIN, END, FAIL, ALL, ..."""
    mail_user: Line | None = None
    """Where to send mail."""
    sbatch: tuple[Line, ...] = ()
    """Any other sbatch options, each as --name=value."""

    @property
    def gpus(self) -> int:
        """GPUs on each node, as a number."""
        return int(self.gpus_per_node.split(":")[-1]) if self.gpus_per_node else 0

    @property
    def gpu_type(self) -> str | None:
        """The GPU type in ``gpus_per_node``, if it names one."""
        return self.gpus_per_node.rpartition(":")[0] or None if self.gpus_per_node else None

    @property
    def ranks(self) -> int:
        """MPI ranks in all: ``ntasks``, else those of each node times the nodes."""
        return self.ntasks or (self.nodes or 1) * (self.ntasks_per_node or self.gpus or 1)

    def over(self, lower: Resources) -> Resources:
        """Return these resources where somebody set them, else the lower layer's."""
        said = {name: getattr(self, name) for name in self.model_fields_set if getattr(self, name) is not None}
        if "mem" in said or "mem_per_cpu" in said:  # the two exclude each other: the upper layer's choice replaces both
            lower = lower.model_copy(update={"mem": None, "mem_per_cpu": None})
        said["sbatch"] = (*lower.sbatch, *self.sbatch)
        return lower.model_copy(update=said)

    def laid_out(self, gpus_on_node: int | None) -> tuple[Resources, str | None]:
        """Decide nodes, ranks and GPUs where nobody did: one rank per GPU, one per node where there is none.

        Args:
            gpus_on_node: GPUs that each node has; None where nobody knows.

        Returns:
            The complete resources, and a warning where ranks must do without the GPUs that the nodes have.

        Raises:
            HpcrunError: Numbers that contradict each other.
        """
        self._check()
        warning = None
        gpus = self.gpus_per_node
        asked = self.ntasks_per_node or (-(-self.ntasks // self.nodes) if self.ntasks and self.nodes else None)
        if gpus is None and gpus_on_node:
            if asked and asked > gpus_on_node:
                warning = (
                    f"{asked} ranks on a node with {gpus_on_node} GPUs: all ranks use the CPU "
                    f"(--ntasks-per-node={gpus_on_node} gives each rank a GPU)"
                )
            else:
                gpus = str(min(asked or self.ntasks or gpus_on_node, gpus_on_node))
        laid = self.model_copy(update={"gpus_per_node": gpus})
        per_node, nodes = self.ntasks_per_node, self.nodes
        if self.ntasks is None:
            nodes, per_node = nodes or 1, per_node or max(laid.gpus, 1)
        elif nodes is None and (per_node or laid.gpus):
            nodes = -(-self.ntasks // (per_node or laid.gpus))
        return laid.model_copy(update={"nodes": nodes, "ntasks_per_node": per_node}), warning

    def _check(self) -> None:
        def refuse(message: str, hint: str) -> None:
            raise HpcrunError(message, hint=hint)

        if self.mem and self.mem_per_cpu:
            refuse(
                f"--mem={self.mem} and --mem-per-cpu={self.mem_per_cpu} exclude each other",
                "give the memory of a node (--mem) or of a core (--mem-per-cpu)",
            )
        if self.ntasks and self.nodes and self.ntasks < self.nodes:
            refuse(f"--ntasks={self.ntasks} leaves some of --nodes={self.nodes} without a rank", "ask for fewer nodes")
        if self.ntasks and self.nodes and self.ntasks_per_node and self.ntasks > self.nodes * self.ntasks_per_node:
            refuse(
                f"--ntasks={self.ntasks} ranks do not fit on --nodes={self.nodes} with "
                f"--ntasks-per-node={self.ntasks_per_node}",
                f"leave --ntasks out, or ask for at most {self.nodes * self.ntasks_per_node}",
            )
