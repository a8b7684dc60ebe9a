"""Checks of launcher and MPI settings: a wrong one gives N MPI worlds of one rank each, and exit code 0."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hpcrun import launchers
from hpcrun.errors import HpcrunError
from hpcrun.scheduler import find_scheduler
from hpcrun.sites.lint.levels import finding_at, iterate_levels
from hpcrun.sites.partition import LEVELS, matching_levels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Finding
    from hpcrun.resources import Resources
    from hpcrun.sites.loader import LoadedSite
    from hpcrun.sites.model import ResolvedSite, Site

MPI_TYPES = {
    "openmpi": ("pmix", "pmix_v5", "pmix_v4", "pmix_v3"),
    "openmpi4": ("pmix", "pmix_v4", "pmix_v3", "pmix_v2"),
    "cray-mpich": ("cray_shasta", "pmi2"),
    "mpich": ("pmi2",),
    "mvapich": ("pmi2",),
    "intel": ("pmi2",),
}
"""The `srun --mpi` types that each library supports, the best first."""


def matching_mpi_type(library: str) -> str | None:
    """Return the srun --mpi= value for an ``mpi.library``, or None where it depends on the cluster."""
    return MPI_TYPES.get(library, (None,))[0]


def mismatched_launcher(site: Site) -> Iterator[Finding]:
    """Warn of a launcher that does not support the MPI library, also those of partitions and other levels."""
    for path, level in iterate_levels(site):
        if not path:
            yield from _check_launcher(site, ("launcher",))
        elif level.launcher or level.mpi.library:
            mpi = replace(site.mpi, library=level.mpi.library or site.mpi.library)
            merged = replace(site, launcher=level.launcher or site.launcher, mpi=mpi)
            yield from _check_launcher(merged, (*path, *(("launcher",) if level.launcher else ("mpi", "library"))))


def _check_launcher(site: Site, key: tuple[str, ...]) -> Iterator[Finding]:
    library, launcher = site.mpi.library, launchers.site_launcher(site)
    if launcher.supports(library):
        return
    built_in = map(launchers.load_launcher, launchers.REGISTRY.built_in)
    fitting = next((each for each in built_in if each.comes_with(library)), None)
    yield finding_at(
        key,
        f'launcher = "{launcher.name}" starts programs of {", ".join(launcher.libraries)}, '
        f'but mpi.library is "{library}"',
        f'set launcher = "{fitting.name if fitting else "srun"}", or mpi.library to what the site\'s Python uses',
    )


def mismatched_mpi_type(site: Site) -> Iterator[Finding]:
    """Warn of an mpi.type that the MPI library does not support."""
    library, kind = site.mpi.library, site.mpi.type
    if not launchers.site_launcher(site).uses_slurm or not find_scheduler(site.scheduler).uses_slurm or not kind:
        return
    fitting = matching_mpi_type(library)
    # an MPI from modules or Spack may support either type; a wheel or Debian's package does not
    own = not (site.modules.load or site.spack.load or site.spack.env or site.container.image)
    wrong = {"mpich": own and kind.startswith("pmix"), "openmpi": kind == "pmi2", "openmpi4": own and kind == "pmi2"}
    if wrong.get(library) or kind in {"none", "openmpi"}:
        yield finding_at(
            ("mpi", "type"),
            f'mpi.type = "{kind}" does not fit mpi.library = "{library}": each rank would believe that it is alone',
            (f'set mpi.type = "{fitting}", or mpi.library to what the site\'s Python uses; ' if fitting else "")
            + "srun --mpi=list prints the available types",
        )


def mpi_type_in_launcher_args(site: Site) -> Iterator[Finding]:
    """Warn of a --mpi= among the launcher's arguments."""
    for word in site.launcher_args:
        if word.startswith("--mpi="):
            yield finding_at(
                ("launcher_args",),
                f"launcher_args has {word}, which hpcrun cannot check",
                f'set mpi.type = "{word.removeprefix("--mpi=")}"',
            )


def require_matching_launcher(
    loaded_site: LoadedSite, resolved_site: ResolvedSite, launcher: str, resources: Resources
) -> None:
    """Refuse a job whose launcher does not fit its MPI library.

    ``mpi.type = "none"`` is for programs whose ranks do not communicate by MPI.

    Args:
        loaded_site: The site.
        resolved_site: The same, resolved for the job.
        launcher: The job's launcher, which may differ from the site's.
        resources: The job's resources.

    Raises:
        HpcrunError: The message names the key, its file and line.
    """
    site = resolved_site if launcher == resolved_site.launcher_name else replace(resolved_site, launcher=launcher)
    findings = [*_check_launcher(site, ("launcher",))]
    if resources.ranks > 1 and site.mpi.type != "none":
        findings += mismatched_mpi_type(site)
    for finding in findings:
        names = {table: tuple(getattr(resolved_site.declared, table)) for table in LEVELS}
        keys = [(*level, *finding.key) for level in reversed(matching_levels(names, resources))]
        key = next((key for key in keys if key in loaded_site.origins), finding.key)
        where = loaded_site.find_origin(key) or f"site {site.name}"
        raise HpcrunError(f"{where}: {finding.what}", hint=finding.fix)
