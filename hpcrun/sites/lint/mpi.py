"""Checks of launcher and MPI settings. With a wrong setting, N ranks run as N MPI worlds of one rank each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hpcrun import launchers
from hpcrun.errors import HpcrunError
from hpcrun.scheduler import find_scheduler
from hpcrun.sites.lint.levels import finding_at, iterate_levels
from hpcrun.sites.partition import LEVELS, matching_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Finding
    from hpcrun.resources import Resources
    from hpcrun.sites.loader import LoadedSite
    from hpcrun.sites.site_model import ResolvedSite, Site

MPI_TYPES = {
    "openmpi": ("pmix", "pmix_v5", "pmix_v4", "pmix_v3"),
    "openmpi4": ("pmix", "pmix_v4", "pmix_v3", "pmix_v2"),
    "cray-mpich": ("cray_shasta", "pmi2"),
    "mpich": ("pmi2",),
    "mvapich": ("pmi2",),
    "intel": ("pmi2",),
}
"""The `srun --mpi` types that each MPI library supports, the best type first."""


def matching_mpi_type(library: str) -> str | None:
    """Return the value of srun --mpi= for an ``mpi.library``; None if it depends on the cluster."""
    return MPI_TYPES.get(library, (None,))[0]


def mismatched_launcher(site: Site) -> Iterator[Finding]:
    """Warn about a launcher, at any level of the site file, that does not support the MPI library."""
    for path, level in iterate_levels(site):
        if not path:
            yield from _check_launcher(site, ("launcher",))
        elif level.launcher or level.mpi.library:
            merged_mpi = replace(site.mpi, library=level.mpi.library or site.mpi.library)
            merged_site = replace(site, launcher=level.launcher or site.launcher, mpi=merged_mpi)
            yield from _check_launcher(merged_site, (*path, *(("launcher",) if level.launcher else ("mpi", "library"))))


def _check_launcher(site: Site, key: tuple[str, ...]) -> Iterator[Finding]:
    library, launcher = site.mpi.library, launchers.site_launcher(site)
    if launcher.supports(library):
        return
    built_in_launchers = map(launchers.load_launcher, launchers.REGISTRY.built_in)
    matching_launcher = next((each for each in built_in_launchers if each.belongs_to(library)), None)
    yield finding_at(
        key,
        f'launcher = "{launcher.name}" starts programs of {", ".join(launcher.libraries)}, '
        f'but mpi.library is "{library}"',
        f'set launcher = "{matching_launcher.name if matching_launcher else "srun"}", '
        "or mpi.library to the library of the site's Python",
    )


def mismatched_mpi_type(site: Site) -> Iterator[Finding]:
    """Warn of an ``mpi.type`` that the MPI library does not support."""
    library, mpi_type = site.mpi.library, site.mpi.type
    if not launchers.site_launcher(site).uses_slurm or not find_scheduler(site.scheduler).uses_slurm or not mpi_type:
        return
    matching_type = matching_mpi_type(library)
    # an MPI from modules or Spack may support either type; a wheel or Debian's package does not
    is_local_mpi = not (site.modules.load or site.spack.load or site.spack.env or site.container.image)
    unsupported_types = {
        "mpich": is_local_mpi and mpi_type.startswith("pmix"),
        "openmpi": mpi_type == "pmi2",
        "openmpi4": is_local_mpi and mpi_type == "pmi2",
    }
    if unsupported_types.get(library) or mpi_type in {"none", "openmpi"}:
        yield finding_at(
            ("mpi", "type"),
            f'mpi.type = "{mpi_type}" does not fit mpi.library = "{library}": each rank would run in its own MPI world',
            (
                f'set mpi.type = "{matching_type}", or mpi.library to what the site\'s Python uses; '
                if matching_type
                else ""
            )
            + "srun --mpi=list prints the available types",
        )


def mpi_type_in_launcher_args(site: Site) -> Iterator[Finding]:
    """Warn of ``--mpi=`` in ``launcher_args``."""
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
    """Refuse a job whose launcher does not support its MPI library.

    ``mpi.type = "none"`` is accepted, for programs whose ranks do not communicate by MPI.

    Args:
        loaded_site: The site.
        resolved_site: The site, resolved for the job.
        launcher: The job's launcher, which may differ from the site's.
        resources: The job's resources.

    Raises:
        HpcrunError: The launcher does not support the MPI library; the message contains the key, and its file and line.
    """
    site = resolved_site if launcher == resolved_site.launcher_name else replace(resolved_site, launcher=launcher)
    findings = [*_check_launcher(site, ("launcher",))]
    if resources.ranks > 1 and site.mpi.type != "none":
        findings += mismatched_mpi_type(site)
    for finding in findings:
        names = {table: tuple(getattr(resolved_site.declared, table)) for table in LEVELS}
        keys = [(*level, *finding.key) for level in reversed(matching_tables(names, resources))]
        key = next((key for key in keys if key in loaded_site.origins), finding.key)
        location = loaded_site.find_origin(key) or f"site {site.name}"
        raise HpcrunError(f"{location}: {finding.what}", hint=finding.fix)
