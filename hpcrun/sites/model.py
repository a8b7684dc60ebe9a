"""What is known about one cluster: the model behind every site file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from hpcrun.errors import HpcrunError, nearest
from hpcrun.resources import (
    FieldError,
    Resources,
    check_fields,
    mebibytes,
    not_negative,
    one_line,
    positive,
    sbatch_option,
    seconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable

LauncherName = Literal["srun", "mpirun", "mpiexec", "none"]
FORBID = {"extra": "forbid"}  # pydantic's word for: an unknown key is an error


def _variable(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("an environment variable's name has letters, digits and _ only")


def _data_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ValueError("a data set's name has letters, digits, _ and - only")


def _number(read: Callable[[str | int], float], text: str | int | None) -> float | None:
    return None if text is None else read(text)


@dataclass(frozen=True, kw_only=True)
class Mpi:
    """Which MPI the site's Python uses, and how srun starts it."""

    __pydantic_config__: ClassVar = FORBID

    library: Literal["mpich", "openmpi", "openmpi4", "intel"] = "mpich"
    """MPI library: mpich (also the wheel), openmpi (5 and later), openmpi4, intel."""
    type: str | None = None
    """srun's --mpi= value: pmi2 for mpich and intel, pmix for openmpi; `srun --mpi=list` shows what a Slurm has."""

    def __post_init__(self) -> None:
        check_fields(self, {"type": one_line})


@dataclass(frozen=True, kw_only=True)
class Modules:
    """Environment modules (Lmod or Tcl) that a job loads first."""

    __pydantic_config__: ClassVar = FORBID

    purge: bool = False
    """Whether to `module purge` before loading."""
    use: tuple[str, ...] = ()
    """Directories to `module use`."""
    load: tuple[str, ...] = ()
    """Modules to load, in order."""

    def __post_init__(self) -> None:
        check_fields(self, {"use": one_line, "load": one_line})


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """How GPUs are asked for."""

    __pydantic_config__: ClassVar = FORBID

    request: Literal["gpus-per-node", "gres", "none"] = "gpus-per-node"
    """The sbatch option: --gpus-per-node=N, --gres=gpu:N, or none where whole nodes come with their GPUs."""
    type: str | None = None
    """GPU type to name in the request, such as a100."""

    def __post_init__(self) -> None:
        check_fields(self, {"type": one_line})


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """Where XLA and CUDA find their files. Values may name variables, as in ${CONDA_PREFIX}."""

    __pydantic_config__: ClassVar = FORBID

    data_dir: str | None = None
    """Root with nvvm/libdevice/libdevice.10.bc, for XLA_FLAGS=--xla_gpu_cuda_data_dir."""
    libdevice: tuple[str, ...] = ()
    """Candidates for libdevice.10.bc; the first that exists is linked where XLA looks, in the run directory."""
    xla_flags: tuple[str, ...] = ()
    """Flags appended to XLA_FLAGS."""

    def __post_init__(self) -> None:
        check_fields(self, {"data_dir": one_line, "libdevice": one_line, "xla_flags": one_line})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a partition (or the whole site) allows."""

    __pydantic_config__: ClassVar = FORBID

    max_nodes: int | None = None
    """Most nodes of one job."""
    max_time: str | int | None = None
    """Longest time limit, in any of Slurm's formats."""
    gpus_per_node: int | None = None
    """GPUs that each node has."""
    cpus_per_node: int | None = None
    """CPU cores that each node has."""
    mem_per_node: str | int | None = None
    """Memory that each node has, in MiB or with K, M, G, T."""
    account_required: bool | None = None
    """Whether every job must name an account."""

    def __post_init__(self) -> None:
        counts = dict.fromkeys(["max_nodes", "cpus_per_node"], positive)
        check_fields(self, {**counts, "gpus_per_node": not_negative, "max_time": seconds, "mem_per_node": mebibytes})


@dataclass(frozen=True, kw_only=True)
class Partition(Limits):
    """One partition: its limits, and defaults of jobs that go there."""

    defaults: Resources = Resources()
    """Resources of jobs that do not say otherwise."""
    gpu_type: str | None = None
    """GPU type to name in requests to this partition."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """One cluster."""

    __pydantic_config__: ClassVar = FORBID

    name: str
    """The file's name without .toml."""
    description: str = ""
    """What cluster this is, for `hpcrun site list`."""
    scheduler: Literal["slurm", "local"] = "slurm"
    """What runs the jobs: slurm, or local for this machine."""
    hosts: tuple[str, ...] = ()
    """Host name patterns (* and ?) by which a cluster's login and compute nodes are recognised."""
    run_root: str = "~/hpcrun-runs"
    """Folder for run directories, on a file system that all nodes share; may name variables, as in ${SCRATCH}."""
    python: str | None = None
    """Python interpreter of the jobs (with hpcrun installed); the one that runs hpcrun where not given."""
    launcher: LauncherName = "srun"
    """What starts the ranks: srun, mpirun (Open MPI), mpiexec (MPICH, Intel MPI), none (one process)."""
    launcher_args: tuple[str, ...] = ()
    """Further arguments of the launcher."""
    mpi: Mpi = Mpi()
    """The MPI library."""
    modules: Modules = Modules()
    """Environment modules."""
    environment: dict[str, str] = field(default_factory=dict)
    """Environment variables of the ranks; values may name other variables, as in ${HOME}."""
    prepend_path: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Folders put in front of LD_LIBRARY_PATH, PATH or the like; one that names an unset variable is left out."""
    setup: tuple[str, ...] = ()
    """Bash lines run after modules and environment, before the ranks start."""
    teardown: tuple[str, ...] = ()
    """Bash lines run after the ranks ended."""
    gpu: Gpu = Gpu()
    """How GPUs are requested."""
    sbatch: tuple[str, ...] = ()
    """sbatch options that every job gets, each as --name=value."""
    sbatch_forbidden: tuple[str, ...] = ()
    """sbatch options that this cluster refuses, each as --name."""
    cuda: Cuda = Cuda()
    """XLA and CUDA layout."""
    data: dict[str, str] = field(default_factory=dict)
    """Data sets by name; ranks find `imagenet` as HPCRUN_DATA_IMAGENET."""
    defaults: Resources = Resources()
    """Resources of jobs that do not say otherwise."""
    limits: Limits = Limits()
    """Limits of every partition that does not say otherwise."""
    partitions: dict[str, Partition] = field(default_factory=dict)
    """Partitions; where any is listed, others are refused."""

    def __post_init__(self) -> None:
        lines = dict.fromkeys(["hosts", "run_root", "python", "launcher_args"], one_line)
        variables = dict.fromkeys(["environment", "prepend_path"], _variable)
        check_fields(
            self, {**lines, **variables, "data": _data_name, "sbatch": sbatch_option, "sbatch_forbidden": sbatch_option}
        )
        if self.partitions and self.defaults.partition and self.defaults.partition not in self.partitions:
            known = ", ".join(self.partitions)
            raise FieldError("defaults", self.defaults.partition, f"no such partition; here: {known}")

    def partition(self, name: str | None) -> Partition:
        """Return a partition's facts, the site's own where the partition says nothing.

        Raises:
            HpcrunError: The site lists partitions, and not this one.
        """
        if name and self.partitions and name not in self.partitions:
            known = list(self.partitions)
            like = nearest(name, known)
            raise HpcrunError(
                f"site {self.name} has no partition {name!r}; it has {', '.join(known)}",
                hint=f"did you mean --partition={like}?" if like else f"hpcrun site show {self.name}",
            )
        found = self.partitions.get(name or "", Partition())
        unsaid = {one.name for one in fields(Limits) if getattr(found, one.name) is None}
        return replace(found, **{name: getattr(self.limits, name) for name in unsaid})

    def check(self, resources: Resources) -> None:
        """Refuse what this site cannot run, before its queue does.

        Raises:
            HpcrunError: One message for everything that is too much or missing.
        """
        limits = self.partition(resources.partition)
        where = f"partition {resources.partition}" if resources.partition else "the site"
        faults = [
            f"{option} is more than {where} allows: {allowed}"
            for option, given, limit, allowed in _asked(resources, limits)
            if given is not None and limit is not None and given > limit
        ]
        if limits.account_required and not resources.account:
            faults.append(f"{where} wants an account, and none was given")
        forbidden = {option.partition("=")[0] for option in self.sbatch_forbidden}
        emitted = [f"--{name.replace('_', '-')}" for name in resources.said() if name != "sbatch"] + list(
            resources.sbatch
        )
        faults += [
            f"sbatch option {option} is not allowed here (sbatch_forbidden)"
            for option in emitted
            if option.partition("=")[0] in forbidden
        ]
        if faults:
            hint = "give --account=NAME" if faults[-1].startswith(f"{where} wants") else "ask for less"
            raise HpcrunError(
                f"site {self.name}: {'; '.join(faults)}", hint=f"{hint}; see hpcrun site show {self.name}"
            )


def _asked(resources: Resources, limits: Limits) -> list[tuple[str, float | None, float | None, str]]:
    """Return what is asked for beside what is allowed: the option, both numbers, and the limit in words."""
    ranks = resources.ntasks_per_node or 1
    cores = ranks * (resources.cpus_per_task or 1)
    nodes = resources.nodes
    if nodes is None and limits.cpus_per_node:
        nodes = -(-resources.ranks * (resources.cpus_per_task or 1) // limits.cpus_per_node)
    memory = _number(mebibytes, resources.mem)
    if resources.mem_per_cpu:
        memory = mebibytes(resources.mem_per_cpu) * cores
    return [
        (f"--nodes={nodes}", nodes, limits.max_nodes, f"{limits.max_nodes} nodes"),
        (
            f"--time={resources.time}",
            _number(seconds, resources.time),
            _number(seconds, limits.max_time),
            f"a time limit of {limits.max_time}",
        ),
        (
            f"--gpus-per-node={resources.gpus_per_node}",
            resources.gpus,
            limits.gpus_per_node,
            f"{limits.gpus_per_node} GPUs a node",
        ),
        (
            f"{ranks} ranks a node with {resources.cpus_per_task or 1} cores each",
            cores,
            limits.cpus_per_node,
            f"{limits.cpus_per_node} cores a node",
        ),
        (
            f"--mem-per-cpu={resources.mem_per_cpu}" if resources.mem_per_cpu else f"--mem={resources.mem}",
            memory,
            _number(mebibytes, limits.mem_per_node),
            f"{limits.mem_per_node} a node",
        ),
    ]
