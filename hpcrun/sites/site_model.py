"""The model of a site file: the settings of one cluster."""

from __future__ import annotations

import re
from dataclasses import field, fields, replace
from functools import reduce
from typing import TYPE_CHECKING, ClassVar, Literal

from hpcrun.errors import HpcrunError, closest_match
from hpcrun.field_checks import FieldError, check_fields, require_names, require_one_line, require_positive
from hpcrun.frozen import frozen
from hpcrun.launchers import custom
from hpcrun.resources import Resources, require_sbatch_option
from hpcrun.sites.limits import FORBID_UNKNOWN_KEYS, Limits
from hpcrun.sites.partition import LEVELS, Partition, common_settings, matching_tables, unequal_keys
from hpcrun.sites.software_tables import Conda, Container, Spack
from hpcrun.sites.tables import (
    Cuda,
    CustomLauncher,
    Gpu,
    LauncherName,
    Modules,
    Mpi,
    Restart,
    SchedulerName,
    check_variable_name,
)

if TYPE_CHECKING:
    from hpcrun.launchers.base import Launcher


def _check_data_set_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ValueError("the name of a data set has letters, digits, _ and - only")


def _check_path(path: str) -> None:
    require_one_line(path)
    if not path.startswith(("/", "~", "$")):
        raise ValueError("a path begins with /, ~ or a variable")


@frozen(kw_only=True)
class Site:
    """One cluster."""

    __pydantic_config__: ClassVar = FORBID_UNKNOWN_KEYS

    name: str
    """The file's name without .toml."""
    description: str = ""
    """A short description of the cluster, for `hpcrun site list`."""
    scheduler: SchedulerName = "slurm"
    """The scheduler that runs the jobs: slurm, local for this machine, or a scheduler of an installed package."""
    slurm_conf: str | None = None
    """Path of the cluster's slurm.conf, for hosts with access to several Slurm clusters; overrides SLURM_CONF; may
    contain variables."""
    hosts: tuple[str, ...] = ()
    """Host name patterns (*, ? and [1-4]) of the cluster's login and compute nodes, to detect the site."""
    detect: dict[str, str] = field(default_factory=dict)
    """Environment variables of this cluster, with patterns of their values; the site is detected if all match."""
    run_root: str = "~/hpcrun-runs"
    """Folder for run directories, on a file system that all nodes share; may contain variables, as in ${SCRATCH}."""
    share_runs: Literal["no", "read"] = "no"
    """Who may read run directories, besides their owner: no (nobody), or read (everybody whom the umask allows). Nobody
    else may write."""
    python: str | None = None
    """Python interpreter of the jobs, in which hpcrun is installed. Default: the Python of venv, uv, conda or spack,
    else the Python that runs hpcrun."""
    launcher: CustomLauncher | LauncherName = "srun"
    """The launcher that starts the ranks: srun, mpirun (Open MPI), mpiexec (MPICH, Intel MPI), ibrun (TACC), none (one
    process), a launcher of an installed package, or a table with the command line of another launcher."""
    launcher_args: tuple[str, ...] = ()
    """Additional arguments of the launcher."""
    cpu_bind: Literal["cores", "sockets", "none"] = "cores"
    """The CPU binding of each rank: to its part of the job's cores on the node (cores), to the sockets of these cores
    (sockets), or none. It has no effect if Slurm or launcher_args bind the ranks."""
    strict: bool = False
    """Whether jobs fail if their ranks do not communicate; the default of --strict."""
    mpi: Mpi = Mpi()
    """The MPI library."""
    modules: Modules = Modules()
    """Environment modules."""
    spack: Spack = Spack()
    """Spack packages and environments, loaded after the modules."""
    conda: Conda = Conda()
    """The conda environment of the jobs' Python."""
    venv: str | None = None
    """The folder of the jobs' Python virtual environment, with bin/activate."""
    uv: str | None = None
    """The uv project whose virtual environment (.venv, created by `uv sync` beforehand) has the jobs' Python."""
    container: Container = Container()
    """The container that ranks run in."""
    environment: dict[str, str] = field(default_factory=dict)
    """Environment variables of the ranks; values may contain other variables, as in ${HOME}."""
    prepend_path: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Folders to prepend to LD_LIBRARY_PATH, PATH or the like; a folder with an unset variable is skipped."""
    setup: tuple[str, ...] = ()
    """Bash lines run after modules and environment, before the ranks start."""
    teardown: tuple[str, ...] = ()
    """Bash lines run after the ranks have exited."""
    gpu: Gpu = Gpu()
    """How GPUs are requested."""
    sbatch: tuple[str, ...] = ()
    """sbatch options that every job gets, each as --name=value."""
    sbatch_forbidden: tuple[str, ...] = ()
    """sbatch options that this cluster refuses, each as --name. A request for GPUs counts as the sbatch option that
    gpu.request selects."""
    sbatch_omit: tuple[str, ...] = ()
    """sbatch options, each as --name, to omit from the job script, because the cluster's sbatch refuses them."""
    cuda: Cuda = Cuda()
    """Paths of CUDA's files, and XLA flags."""
    snapshot: bool = False
    """Whether jobs run a copy of the user's code, made at submission, unless --no-snapshot is given."""
    poll_seconds: int = 2
    """Minimum time in seconds between two queries that a waiting hpcrun command sends to Slurm."""
    restart: Restart = Restart()
    """How jobs are stopped and restarted."""
    local_scratch: tuple[str, ...] = ()
    """Node-local folders where jobs leave files, besides /tmp, /var/tmp and /dev/shm; may contain variables. --stage-in
    copies data to the first of these folders."""
    data: dict[str, str] = field(default_factory=dict)
    """Data set folders by name; ranks get the folder of `imagenet` as HPCRUN_DATA_IMAGENET."""
    defaults: Resources = Resources()
    """Default resources of jobs."""
    limits: Limits = Limits()
    """Default limits of all partitions."""
    partitions: dict[str, Partition] = field(default_factory=dict)
    """Partitions and their settings; if any partition is listed, hpcrun refuses all other partitions."""
    choose_partition: bool = False
    """Whether a job without --partition gets the first listed partition whose limits allow the job."""
    qos: dict[str, Partition] = field(default_factory=dict)
    """QoS (quality of service) with their own settings, which override the partition's; unlisted QoS are allowed."""
    constraints: dict[str, Partition] = field(default_factory=dict)
    """Node features with settings for jobs whose --constraint names the feature; they override those of the QoS."""
    accounts: dict[str, Partition] = field(default_factory=dict)
    """Accounts, or patterns of account names (* and ?), with settings that override those of constraints."""

    def __post_init__(self) -> None:
        text_keys = ["name", "hosts", "run_root", "python", "launcher_args", "local_scratch", "venv", "uv"]
        line_checks = dict.fromkeys([*text_keys, "qos", "constraints", "accounts"], require_one_line)
        variable_checks = dict.fromkeys(["environment", "prepend_path", "detect"], check_variable_name)
        option_checks = dict.fromkeys(["sbatch", "sbatch_forbidden", "sbatch_omit"], require_sbatch_option)
        other_checks = {"slurm_conf": _check_path, "data": _check_data_set_name, "partitions": require_names}
        check_fields(
            self, {**line_checks, **variable_checks, **other_checks, "poll_seconds": require_positive, **option_checks}
        )
        python_keys = [
            name for name, value in (("conda", self.conda.env), ("venv", self.venv), ("uv", self.uv)) if value
        ]
        if len(python_keys) > 1:
            raise FieldError(
                python_keys[-1],
                getattr(self, python_keys[-1]),
                f"jobs use only one Python: choose {' or '.join(python_keys)}",
            )
        tables = {(table, name): one for table in LEVELS for name, one in getattr(self, table).items()}
        for above, defaults in [((), self.defaults), *((key, one.defaults) for key, one in tables.items())]:
            partition = defaults.partition
            if self.partitions and partition and partition not in self.partitions:
                known_partitions = ", ".join(self.partitions)
                reason = f"no such partition; here: {known_partitions}"
                raise FieldError("partition", partition, reason, (*above, "defaults"))
        for key, one in tables.items():
            try:
                one.apply_to(self)  # raises an error if a value contradicts the site
            except FieldError as error:
                raise FieldError(error.field, error.value, error.reason, key) from None

    @property
    def custom_launcher(self) -> Launcher | None:
        """The launcher that the site file describes by its command line; None if the site file names a launcher."""
        return None if isinstance(self.launcher, str) else custom.build_launcher(self.launcher)

    @property
    def launcher_name(self) -> str:
        """The name of the launcher that starts the ranks."""
        return self.launcher if isinstance(self.launcher, str) else custom.build_launcher(self.launcher).name

    @property
    def activation_keys(self) -> list[str]:
        """The keys of the Python and Spack environments that jobs activate."""
        python = {"venv": self.venv, "uv": self.uv, "conda.env": self.conda.env}
        spack = {"spack.env": self.spack.env, "spack.load": self.spack.load}
        return [key for key, value in {**python, **spack}.items() if value]

    @property
    def python_key(self) -> str:
        """The site key that selects the jobs' Python; ``python`` if no key is set."""
        return "python" if self.python or not self.activation_keys else self.activation_keys[0]

    def matching_tables(self, resources: Resources) -> list[tuple[tuple[str, str], Partition]]:
        """Return the key and content of each table whose settings a job gets; later tables override earlier ones.

        Args:
            resources: The job's resources, with one partition at most.
        """
        keys = matching_tables({table: getattr(self, table) for table in LEVELS}, resources)
        return [((table, name), getattr(self, table)[name]) for table, name in keys]

    def resolve(self, resources: Resources) -> ResolvedSite:
        """Return the site's settings for the jobs of a partition, QoS, constraint and account.

        Each key is taken from the account, else the constraint, the QoS, the partition, or the site. A job with several
        partitions (``--partition=a,b``), of which Slurm chooses one, gets the defaults and limits that are equal in all
        of them.

        Raises:
            HpcrunError: The site lists partitions, but not the requested partition; or several requested partitions
                have different settings.
        """
        sites = [self.apply_tables(one) for one in self.split_partitions(resources)]
        merged_site = sites[0]
        for other in sites[1:]:
            unequal_values = [
                key
                for name in (one.name for one in fields(Site) if one.name not in {"defaults", "limits"})
                for key in unequal_keys(name, getattr(merged_site, name), getattr(other, name))
            ]
            if unequal_values:
                raise HpcrunError(
                    f"--partition={resources.partition}: these partitions of site {self.name} differ in "
                    f"{', '.join(unequal_values)}, but a job script has one value of each",
                    hint="give one partition, or submit the job once for each",
                )
            merged_site = replace(
                merged_site,
                defaults=common_settings(merged_site.defaults, other.defaults),
                limits=common_settings(merged_site.limits, other.limits),
            )
        merged_values = {attribute.name: getattr(merged_site, attribute.name) for attribute in fields(Site)}
        return ResolvedSite(**{**merged_values, **{table: {} for table in LEVELS}}, declared=self)

    def split_partitions(self, resources: Resources) -> list[Resources]:
        """Return one copy of the resources for each requested partition.

        Raises:
            HpcrunError: The site lists partitions, but not the requested partition.
        """
        known_partitions, given = list(self.partitions), resources.partition or ""
        names = [given] if given in known_partitions else list(filter(None, given.split(","))) or [""]
        for name in filter(None, names):
            if known_partitions and name not in known_partitions:
                given_names = [word for one in names for word in one.split()]
                closest_names = [
                    word if word in known_partitions else closest_match(word, known_partitions) for word in given_names
                ]
                suggestion = ",".join(dict.fromkeys(filter(None, closest_names))) if all(closest_names) else ""
                raise HpcrunError(
                    f"site {self.name} has no partition {name!r}; it has {', '.join(known_partitions)}",
                    hint=f"did you mean --partition={suggestion}?" if suggestion else f"hpcrun site show {self.name}",
                )
        return [replace(resources, partition=name or None) for name in names]

    def apply_tables(self, resources: Resources) -> Site:
        """Return the site with the settings of the tables that a job gets; see `matching_tables`."""
        return reduce(lambda site, one: one[1].apply_to(site), self.matching_tables(resources), self)


@frozen(kw_only=True)
class ResolvedSite(Site):
    """A site with the settings of a job's partition, QoS, constraint and account merged in."""

    declared: Site
    """The site before the merge, with its tables of partitions, QoS, constraints and accounts."""
