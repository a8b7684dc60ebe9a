"""The settings of partitions, QoS, constraints and accounts, which override those of the site."""

from __future__ import annotations

from dataclasses import field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

from hpcrun.field_checks import check_fields, require_one_line
from hpcrun.frozen import frozen
from hpcrun.resources import FEATURE_PATTERN, Resources, require_sbatch_option
from hpcrun.sites.limits import FORBID_UNKNOWN_KEYS, Limits
from hpcrun.sites.software_tables import Conda, Container
from hpcrun.sites.tables import Cuda, CustomLauncher, Gpu, LauncherName, Modules, Mpi, check_variable_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hpcrun.jobs.job_record import RecordedResources
    from hpcrun.sites.site_model import Site

T = TypeVar("T")
Settings = TypeVar("Settings", Resources, Limits)

LEVELS = {"partitions": "partition", "qos": "QoS", "constraints": "constraint", "accounts": "account"}
"""Tables of a site file with settings for some jobs, and the noun for messages; later tables override earlier ones."""


def matching_tables(
    names: Mapping[str, Iterable[str]], resources: Resources | RecordedResources
) -> list[tuple[str, str]]:
    """Return the keys of the tables whose settings a job gets; later tables override earlier ones.

    Args:
        names: The names in each table of `LEVELS`; the names of accounts are patterns.
        resources: The job's resources, with one partition at most.
    """
    features = FEATURE_PATTERN.findall(resources.constraint or "")
    account = (resources.account or "").lower()
    has_settings: dict[str, Callable[[str], bool]] = {
        "partitions": lambda name: name == resources.partition,
        "qos": lambda name: name == resources.qos,
        "constraints": lambda name: name in features,
        "accounts": lambda name: bool(account) and fnmatchcase(account, name.lower()),
    }
    return [(table, name) for table in LEVELS for name in names.get(table, ()) if has_settings[table](name)]


def _optional_table(table: type) -> type:
    """Return a dataclass with the keys of a table; each key is None by default."""
    names = [each.name for each in fields(table)]
    namespace = {
        "__annotations__": {each.name: f"{each.type} | None" for each in fields(table)},
        "__doc__": table.__doc__,
        "__module__": table.__module__,  # pydantic looks up the names of types in this module
        "__pydantic_config__": FORBID_UNKNOWN_KEYS,
    }
    return frozen(kw_only=True)(type(f"Own{table.__name__}", (), dict.fromkeys(names) | namespace))


if TYPE_CHECKING:  # the type checker sees the classes of the tables in place of their optional variants
    from hpcrun.sites.software_tables import Conda as OwnConda
    from hpcrun.sites.software_tables import Container as OwnContainer
    from hpcrun.sites.tables import Cuda as OwnCuda
    from hpcrun.sites.tables import Gpu as OwnGpu
    from hpcrun.sites.tables import Modules as OwnModules
    from hpcrun.sites.tables import Mpi as OwnMpi
else:
    OwnCuda, OwnGpu, OwnModules, OwnMpi = map(_optional_table, (Cuda, Gpu, Modules, Mpi))
    OwnConda, OwnContainer = map(_optional_table, (Conda, Container))


@frozen(kw_only=True)
class Partition(Limits):
    """A partition, QoS, constraint or account: its limits, and settings that override the settings of the site."""

    defaults: Resources = Resources()
    """Default resources of jobs."""
    launcher: CustomLauncher | LauncherName | None = None
    """The launcher that starts the ranks."""
    launcher_args: tuple[str, ...] | None = None
    """Additional arguments of the launcher; they replace the site's."""
    sbatch: tuple[str, ...] | None = None
    """sbatch options that every job gets; they replace the site's."""
    setup: tuple[str, ...] | None = None
    """Bash lines run before the ranks start; they replace the site's."""
    teardown: tuple[str, ...] | None = None
    """Bash lines run after the ranks have exited; they replace the site's."""
    environment: dict[str, str] = field(default_factory=dict)
    """Environment variables of the ranks, in addition to the site's."""
    prepend_path: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Folders to prepend to LD_LIBRARY_PATH, PATH or the like; each list replaces the site's."""
    python: str | None = None
    """Python interpreter of the jobs. A value of python, venv, uv or conda.env replaces all four of these keys."""
    venv: str | None = None
    """Python virtual environment that jobs activate."""
    uv: str | None = None
    """uv project whose .venv jobs activate."""
    conda: OwnConda = field(default_factory=OwnConda)
    """Keys that override keys of the site's table conda."""
    container: OwnContainer = field(default_factory=OwnContainer)
    """Keys that override keys of the site's table container."""
    modules: OwnModules = field(default_factory=OwnModules)
    """Keys that override keys of the site's table modules."""
    mpi: OwnMpi = field(default_factory=OwnMpi)
    """Keys that override keys of the site's table mpi."""
    gpu: OwnGpu = field(default_factory=OwnGpu)
    """Keys that override keys of the site's table gpu."""
    cuda: OwnCuda = field(default_factory=OwnCuda)
    """Keys that override keys of the site's table cuda."""

    def __post_init__(self) -> None:
        super().__post_init__()
        line_checks = dict.fromkeys(["launcher_args", "python", "venv", "uv"], require_one_line)
        variable_checks = dict.fromkeys(["environment", "prepend_path"], check_variable_name)
        check_fields(self, {**line_checks, **variable_checks, "sbatch": require_sbatch_option})

    def apply_to(self, site: Site) -> Site:
        """Return a copy of a site with the values of this table merged in, and without the tables of `LEVELS`.

        Raises:
            FieldError: A value contradicts a value of the site.
        """
        base = replace(site, **dict[str, Any]({table: {} for table in LEVELS}))
        if self.mpi.library not in {None, site.mpi.library}:  # the site's other mpi keys belong to the site's library
            base = replace(base, mpi=Mpi())
        if any((self.python, self.venv, self.uv, self.conda.env)):  # jobs use only one Python
            site_conda = replace(site.conda, env=self.conda.env) if self.conda.env else Conda()
            base = replace(base, python=None, venv=None, uv=None, conda=site_conda)
        limit_names = [one.name for one in fields(Limits)]
        other_names = [one.name for one in fields(self) if one.name not in {*limit_names, "defaults"}]
        merged_values = {name: _merge_value(getattr(self, name), getattr(base, name)) for name in other_names}
        explicit_limits = {name: getattr(self, name) for name in self.declared_limits}
        defaults = self.defaults.with_defaults(site.defaults)
        return replace(base, **merged_values, defaults=defaults, limits=replace(site.limits, **explicit_limits))


def _merge_value(upper_value: Any, lower_value: T) -> T:
    """Merge two values of a key; tables are merged key by key. None: not set."""
    if upper_value is None:
        return lower_value
    if isinstance(upper_value, dict):
        return {**lower_value, **upper_value}  # type: ignore[dict-item, return-value]
    if isinstance(upper_value, (OwnConda, OwnContainer, OwnCuda, OwnGpu, OwnModules, OwnMpi)):
        explicit_values = {
            one.name: value for one in fields(upper_value) if (value := getattr(upper_value, one.name)) is not None
        }
        return replace(
            lower_value,
            **{name: _merge_value(value, getattr(lower_value, name)) for name, value in explicit_values.items()},
        )  # type: ignore[type-var]
    return upper_value  # type: ignore[no-any-return]


def common_settings(settings: Settings, other_settings: Settings) -> Settings:
    """Return settings with the values that two settings have in common; all other fields have their defaults."""
    return type(settings)(
        **{
            each.name: value
            for each in fields(settings)
            if (value := getattr(settings, each.name)) == getattr(other_settings, each.name)
        }
    )


def unequal_keys(key: str, value: Any, other_value: Any) -> list[str]:
    """Return the key if its two values differ; for a table, the keys in it whose values differ."""
    if value == other_value:
        return []
    if not is_dataclass(value) or type(value) is not type(other_value):
        return [key]
    pairs = [
        (f"{key}.{each.name}", getattr(value, each.name), getattr(other_value, each.name)) for each in fields(value)
    ]
    return [found for pair in pairs for found in unequal_keys(*pair)]
