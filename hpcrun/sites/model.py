"""What is known about one cluster: the model behind every site file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from functools import reduce
from typing import TYPE_CHECKING, ClassVar, Literal

from hpcrun.errors import HpcrunError, closest_match
from hpcrun.launchers import custom
from hpcrun.resources import FieldError, Resources, check_fields, one_line, positive, sbatch_option
from hpcrun.sites.limits import FORBID, Limits
from hpcrun.sites.partition import Partition  # noqa: TC001 - pydantic reads the annotations
from hpcrun.sites.software_tables import Conda, Container, Spack
from hpcrun.sites.tables import Cuda, CustomLauncher, Gpu, LauncherName, Modules, Mpi, Restart, check_variable_name

if TYPE_CHECKING:
    from hpcrun.launchers.base import Launcher


def _check_data_set_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ValueError("a data set's name has letters, digits, _ and - only")


def _check_path(path: str) -> None:
    one_line(path)
    if not path.startswith(("/", "~", "$")):
        raise ValueError("a path begins with /, ~ or a variable")


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
    slurm_conf: str | None = None
    """The slurm.conf of this cluster's Slurm, where hosts reach several; wins over SLURM_CONF; may name variables."""
    hosts: tuple[str, ...] = ()
    """Host name patterns (* and ?) by which a cluster's login and compute nodes are recognised."""
    detect: dict[str, str] = field(default_factory=dict)
    """Environment variables that this cluster sets, with patterns of their values; where all match, it is this one."""
    run_root: str = "~/hpcrun-runs"
    """Folder for run directories, on a file system that all nodes share; may name variables, as in ${SCRATCH}."""
    share_runs: Literal["no", "read"] = "no"
    """Who may look at runs, besides their owner: no for nobody, read for those whom the umask lets; never write."""
    python: str | None = None
    """Python interpreter of the jobs, with hpcrun installed; where not given, that of venv, uv, conda or spack, else
    the one that runs hpcrun."""
    launcher: CustomLauncher | LauncherName = "srun"
    """What starts the ranks: srun, mpirun (Open MPI), mpiexec (MPICH, Intel MPI), ibrun (TACC), none (one process), one
    that an installed package adds, or as a table the command line of another."""
    launcher_args: tuple[str, ...] = ()
    """Further arguments of the launcher."""
    cpu_bind: Literal["cores", "sockets", "none"] = "cores"
    """What each rank is bound to: its share of the cores that the job has on the node, the sockets that this share lies
    on, or nothing; without effect where Slurm or launcher_args bind the ranks."""
    mpi: Mpi = Mpi()
    """The MPI library."""
    modules: Modules = Modules()
    """Environment modules."""
    spack: Spack = Spack()
    """What Spack loads, after the modules."""
    conda: Conda = Conda()
    """The conda environment of the jobs' Python."""
    venv: str | None = None
    """The virtual environment of the jobs' Python: its folder, with bin/activate."""
    uv: str | None = None
    """The uv project whose virtual environment (.venv, made by `uv sync` before) is the jobs' Python."""
    container: Container = Container()
    """The container that ranks run in."""
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
    sbatch_omit: tuple[str, ...] = ()
    """sbatch options, each as --name, that the job script leaves out: only the launch line may have them here."""
    cuda: Cuda = Cuda()
    """XLA and CUDA layout."""
    snapshot: bool = False
    """Whether jobs run a copy of the user's code, made when they are submitted, unless somebody says --no-snapshot."""
    poll_seconds: int = 2
    """So many seconds at least lie between two questions to Slurm of a command that waits for jobs."""
    restart: Restart = Restart()
    """How jobs are stopped, and started again."""
    local_scratch: tuple[str, ...] = ()
    """Folders of each node, besides /tmp, /var/tmp and /dev/shm, where jobs leave files; may name variables."""
    data: dict[str, str] = field(default_factory=dict)
    """Data sets by name; ranks find `imagenet` as HPCRUN_DATA_IMAGENET."""
    defaults: Resources = Resources()
    """Resources of jobs that do not say otherwise."""
    limits: Limits = Limits()
    """Limits of every partition that does not say otherwise."""
    partitions: dict[str, Partition] = field(default_factory=dict)
    """Partitions; where any is listed, others are refused."""
    qos: dict[str, Partition] = field(default_factory=dict)
    """QoS (quality of service): what is different for their jobs wins over the partition's; others are not refused."""

    def __post_init__(self) -> None:
        texts = ["name", "hosts", "run_root", "python", "launcher_args", "local_scratch", "venv", "uv"]
        lines = dict.fromkeys(texts, one_line)
        variables = dict.fromkeys(["environment", "prepend_path", "detect"], check_variable_name)
        options = dict.fromkeys(["sbatch", "sbatch_forbidden", "sbatch_omit"], sbatch_option)
        own = {"slurm_conf": _check_path, "data": _check_data_set_name}
        check_fields(self, {**lines, **variables, **own, "poll_seconds": positive, **options})
        chosen = [name for name, value in (("conda", self.conda.env), ("venv", self.venv), ("uv", self.uv)) if value]
        if len(chosen) > 1:
            raise FieldError(
                chosen[-1], getattr(self, chosen[-1]), f"jobs have one Python: choose {' or '.join(chosen)}"
            )
        below = {("partitions", name): one for name, one in self.partitions.items()}
        below |= {("qos", name): one for name, one in self.qos.items()}
        for above, defaults in [((), self.defaults), *((key, one.defaults) for key, one in below.items())]:
            partition = defaults.partition
            if self.partitions and partition and partition not in self.partitions:
                known = ", ".join(self.partitions)
                why = f"no such partition; here: {known}"
                raise FieldError("partition", partition, why, (*above, "defaults"))
        for key, one in below.items():
            try:
                one.apply_to(self)  # whether it goes with the rest
            except FieldError as error:
                raise FieldError(error.field, error.value, error.reason, key) from None

    @property
    def custom_launcher(self) -> Launcher | None:
        """The launcher that the site file describes; None where it names one."""
        return None if isinstance(self.launcher, str) else custom.as_launcher(self.launcher)

    @property
    def launcher_name(self) -> str:
        """The name of what starts the ranks."""
        return self.launcher if isinstance(self.launcher, str) else custom.as_launcher(self.launcher).name

    @property
    def activation_keys(self) -> list[str]:
        """The keys of what jobs activate, after which they have another PATH."""
        python = {"venv": self.venv, "uv": self.uv, "conda.env": self.conda.env}
        spack = {"spack.env": self.spack.env, "spack.load": self.spack.load}
        return [key for key, value in {**python, **spack}.items() if value]

    @property
    def python_key(self) -> str:
        """The key that says which Python the jobs have; ``python`` also where none does."""
        return "python" if self.python or not self.activation_keys else self.activation_keys[0]

    def resolve(self, partition: str | None, qos: str | None) -> ResolvedSite:
        """Return the site as the jobs of a partition and a QoS find it.

        The QoS wins over the partition, and the partition over the site's own values, key by key.

        Raises:
            HpcrunError: The site lists partitions, and not this one.
        """
        if partition and self.partitions and partition not in self.partitions:
            known = list(self.partitions)
            like = closest_match(partition, known)
            raise HpcrunError(
                f"site {self.name} has no partition {partition!r}; it has {', '.join(known)}",
                hint=f"did you mean --partition={like}?" if like else f"hpcrun site show {self.name}",
            )
        overrides = [self.partitions.get(partition or ""), self.qos.get(qos or "")]
        merged = reduce(lambda site, one: one.apply_to(site), (one for one in overrides if one), self)
        values = {one.name: getattr(merged, one.name) for one in fields(Site)}
        return ResolvedSite(**{**values, "partitions": {}, "qos": {}}, declared=self)

    def check(self, resources: Resources) -> None:
        """Refuse what this site cannot run, before its queue does.

        Raises:
            HpcrunError: One message for everything that is too much or missing.
        """
        where = f"partition {resources.partition}" if resources.partition else "the site"
        where = f"QoS {resources.qos}" if resources.qos in self.qos else where
        faults = self.resolve(resources.partition, resources.qos).limits.find_violations(resources, where)
        faults += [(fault, "leave it out") for fault in self._forbidden_options(resources)]
        if faults:
            hints = "; ".join(dict.fromkeys(hint for _, hint in faults))
            what = f"site {self.name}: {'; '.join(fault for fault, _ in faults)}"
            raise HpcrunError(what, hint=f"{hints}; see hpcrun site show {self.name}")

    def _forbidden_options(self, resources: Resources) -> list[str]:
        forbidden = {option.partition("=")[0] for option in self.sbatch_forbidden}
        options = [f"--{name.replace('_', '-')}" for name in resources.explicit() if name != "sbatch"]
        return [
            f"sbatch option {option} is not allowed here (sbatch_forbidden)"
            for option in (*options, *resources.sbatch)
            if option.partition("=")[0] in forbidden
        ]


@dataclass(frozen=True, kw_only=True)
class ResolvedSite(Site):
    """A site as the jobs of one partition and one QoS find it: their values are merged in, and no others are left."""

    declared: Site
    """The site as its files declare it."""
