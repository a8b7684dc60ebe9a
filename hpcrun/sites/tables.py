"""The tables of a site file for launchers, MPI, modules, GPUs, CUDA and restarts."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from hpcrun import launchers, scheduler
from hpcrun.field_checks import FieldError, check_fields, require_not_negative, require_one_line, require_positive
from hpcrun.frozen import frozen
from hpcrun.launchers import custom
from hpcrun.sites.limits import FORBID_UNKNOWN_KEYS

if TYPE_CHECKING:
    from hpcrun.plugins import Registry


def check_variable_name(name: str) -> None:
    """Check that a text is a valid name of an environment variable."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("the name of an environment variable has letters, digits and _ only")


@frozen
class KnownPlugin:
    """Annotation for pydantic: the text must be the name of a built-in object or plugin in a registry."""

    registry: Registry[Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.registry.require, handler(source))

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> dict[str, Any]:
        return {"type": "string", "enum": self.registry.list_names()}


LauncherName = Annotated[str, KnownPlugin(launchers.REGISTRY)]
SchedulerName = Annotated[str, KnownPlugin(scheduler.REGISTRY)]


@frozen(kw_only=True)
class CustomLauncher:
    """A launcher that is not built in, described by its command line."""

    __pydantic_config__: ClassVar = FORBID_UNKNOWN_KEYS

    command: str
    """The launcher's command line up to the program, such as "mylaunch -n {ranks} -N {nodes}"; other placeholders are
    {ntasks_per_node}, {cpus_per_task}, {gpus_per_node} and {hostfile}."""
    rank: str | None = None
    """The environment variable with the rank number; default: the variables that MPI launchers commonly set."""
    local_rank: str | None = None
    """The environment variable with the local rank number on the node; default: those that MPI launchers set."""
    local_ranks: str | None = None
    """The environment variable with the number of ranks on the node; default: those that MPI launchers set."""
    hostfile: Literal["plain", "openmpi", "hydra"] = "plain"
    """The format of the file {hostfile}: host names only (plain), or host names with slots as Open MPI (openmpi) or
    Hydra, the launcher of MPICH (hydra), reads them."""
    stop_signal: Literal["TERM", "INT", "HUP", "USR1", "USR2"] = "TERM"
    """The signal that the launcher forwards to the ranks, and after which it waits for them to exit."""

    def __post_init__(self) -> None:
        check_fields(
            self,
            {
                "command": custom.split_command,
                **dict.fromkeys(["rank", "local_rank", "local_ranks"], check_variable_name),
            },
        )


@frozen(kw_only=True)
class Mpi:
    """The MPI library of the site's Python, and how srun starts it."""

    __pydantic_config__: ClassVar = FORBID_UNKNOWN_KEYS

    library: Literal["mpich", "openmpi", "openmpi4", "intel", "cray-mpich", "parastation", "mvapich"] = "mpich"
    """MPI library: mpich (also as a Python wheel), openmpi (Open MPI 5 and later), openmpi4, intel, cray-mpich,
    parastation, mvapich."""
    type: str | None = None
    """srun's --mpi= value: pmi2 for mpich and intel, pmix for openmpi; `srun --mpi=list` prints the available types."""
    environment: dict[str, str] = field(default_factory=dict)
    """Environment variables of the ranks for this library. A file or table that sets another library inherits neither
    these variables nor the type."""

    def __post_init__(self) -> None:
        check_fields(self, {"type": require_one_line, "environment": check_variable_name})


@frozen(kw_only=True)
class Modules:
    """Environment modules (Lmod or Tcl) that jobs load."""

    __pydantic_config__: ClassVar = FORBID_UNKNOWN_KEYS

    purge: bool = False
    """Whether to run `module purge` before loading."""
    force_purge: bool = False
    """Whether to run `module --force purge` before loading, which also unloads sticky modules."""
    reset: bool = False
    """Whether to run `module reset` before loading, which restores the default modules."""
    use: tuple[str, ...] = ()
    """Folders to add with `module use`."""
    load: tuple[str, ...] = ()
    """Modules to load, in order."""

    def __post_init__(self) -> None:
        check_fields(self, {"use": require_one_line, "load": require_one_line})


def _check_gpu_type(text: str) -> None:
    require_one_line(text)
    if re.fullmatch(r"[\w.-]+:\d+", text):
        raise ValueError("a type has no number, such as a100; defaults.gpus_per_node is the number of GPUs")


def _check_mask(text: str) -> None:
    if not re.fullmatch(r"0x[0-9a-fA-F]+", text):
        raise ValueError("a mask is a hexadecimal number such as 0xfe00")


@frozen(kw_only=True)
class Gpu:
    """The request of GPUs for jobs, and the assignment of GPUs to ranks."""

    __pydantic_config__: ClassVar = FORBID_UNKNOWN_KEYS

    request: Literal["gpus-per-node", "gres", "gpus", "gpus-per-task", "none"] | None = None
    """The sbatch option that requests GPUs: --gpus-per-node=N (default), --gres=gpu:N, --gpus=N for the whole job, or
    --gpus-per-task=N; none if jobs get whole nodes with all GPUs."""
    type: str | None = None
    """GPU type to request, such as a100."""
    vendor: Literal["nvidia", "amd", "intel"] | None = None
    """GPU vendor, which decides the variable that assigns GPUs to ranks: CUDA_VISIBLE_DEVICES (nvidia, default),
    ROCR_VISIBLE_DEVICES (amd) or ZE_AFFINITY_MASK (intel)."""
    visible: Literal["rank", "node"] | None = None
    """The GPUs that a rank sees, the default of --gpus-visible: its own (rank), or all GPUs of its node (node). If not
    set, scripts of torch and Horovod see all GPUs, because they select one by the local rank."""
    order: tuple[int, ...] = ()
    """The GPU index of each local rank, for nodes on which GPU N is not the closest to the cores of local rank N."""
    cpus: int | None = None
    """CPU cores per GPU, the default of --cpus-per-task for ranks with a GPU."""
    cpu_masks: tuple[str, ...] = ()
    """The cores close to the GPU of each local rank, as masks for srun --cpu-bind=mask_cpu; for jobs with one rank per
    GPU on whole nodes."""

    def __post_init__(self) -> None:
        check_fields(
            self,
            {
                "type": _check_gpu_type,
                "order": require_not_negative,
                "cpus": require_positive,
                "cpu_masks": _check_mask,
            },
        )
        if sorted(self.order) != list(range(len(self.order))):
            raise FieldError("order", self.order, f"must name each GPU from 0 to {len(self.order) - 1} once")

    @property
    def option(self) -> str | None:
        """The sbatch option that requests GPUs, such as --gres; None if jobs get whole nodes."""
        return None if self.request == "none" else f"--{self.request or 'gpus-per-node'}"

    @property
    def visibility_variable(self) -> str:
        """The environment variable that selects the GPUs that a rank sees."""
        variables_by_vendor = {"amd": "ROCR_VISIBLE_DEVICES", "intel": "ZE_AFFINITY_MASK"}
        return variables_by_vendor.get(self.vendor or "", "CUDA_VISIBLE_DEVICES")


@frozen(kw_only=True)
class Cuda:
    """Locations of the CUDA files that XLA and TensorFlow need. Values may contain variables, as in ${CONDA_PREFIX}."""

    __pydantic_config__: ClassVar = FORBID_UNKNOWN_KEYS

    data_dir: str | None = None
    """CUDA root with nvvm/libdevice/libdevice.10.bc, for XLA_FLAGS=--xla_gpu_cuda_data_dir of jobs with NVIDIA GPUs."""
    libdevice: tuple[str, ...] = ()
    """Candidate paths of libdevice.10.bc; the first that exists is linked into the run directory for XLA."""
    ptxas: tuple[str, ...] = ()
    """Candidate paths of ptxas; the first that exists is linked into the run directory for XLA."""
    search: bool = True
    """Whether jobs with NVIDIA GPUs search the usual locations for files that no key names: docs/cuda.md."""
    xla_flags: tuple[str, ...] = ()
    """Flags to prepend to XLA_FLAGS, also in jobs without GPUs; XLA uses the last of two contradicting flags."""

    def __post_init__(self) -> None:
        check_fields(self, dict.fromkeys(["data_dir", "libdevice", "ptxas", "xla_flags"], require_one_line))


@frozen(kw_only=True)
class Restart:
    """How jobs are stopped and restarted."""

    __pydantic_config__: ClassVar = FORBID_UNKNOWN_KEYS

    signal_seconds: int = 120
    """Seconds before the time limit at which a requeueable job gets a stop signal; at most a quarter of the limit."""
    cancel_seconds: int = 30
    """Time in seconds that `hpcrun cancel` gives the ranks to write a checkpoint."""
    requeue: bool = True
    """Whether this cluster allows jobs to requeue themselves; otherwise they submit a new job."""
    max_requeue: int = 0
    """Maximum number of times that a job continues after its time limit; the default of --max-requeue."""
    memory_retries: int = 0
    """Maximum number of resubmissions of a job with 1.5 times its memory; the default of --memory-retries."""

    def __post_init__(self) -> None:
        count_checks = dict.fromkeys(["cancel_seconds", "max_requeue", "memory_retries"], require_not_negative)
        check_fields(self, {"signal_seconds": require_positive, **count_checks})
