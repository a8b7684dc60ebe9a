"""Findings about what starts the ranks: a wrong word here gives N worlds of one rank each, and exit code 0."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hpcrun import launchers
from hpcrun.errors import HpcrunError
from hpcrun.sites.lint.levels import finding_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Finding
    from hpcrun.sites.loader import LoadedSite
    from hpcrun.sites.model import Site

MPI_TYPES = {
    "openmpi": ("pmix", "pmix_v5", "pmix_v4", "pmix_v3"),
    "openmpi4": ("pmix", "pmix_v4", "pmix_v3", "pmix_v2"),
    "cray-mpich": ("cray_shasta", "pmi2"),
    "mpich": ("pmi2",),
    "mvapich": ("pmi2",),
    "intel": ("pmi2",),
}
"""The types of `srun --mpi` by which each library's ranks find each other, the best first."""


def matching_mpi_type(library: str) -> str | None:
    """Return srun's --mpi= value for an ``mpi.library``; None where each cluster has its own."""
    return MPI_TYPES.get(library, (None,))[0]


def mismatched_launcher(site: Site) -> Iterator[Finding]:
    """Warn of a launcher that is another MPI library's: hpcrun gives it words that only its own understands."""
    library = site.mpi.library
    if site.custom_launcher or not launchers.named(site.launcher_name).mismatches(library):
        return
    launcher = launchers.named(site.launcher_name)
    fitting = next((one for one in map(launchers.named, launchers.BUILT_IN) if one.comes_with(library)), None)
    yield finding_at(
        ("launcher",),
        f'launcher = "{launcher.name}" gets {launcher.vendor} options, and mpi.library = "{library}" has others',
        f'set launcher = "{fitting.name if fitting else "srun"}", or mpi.library to what the site\'s Python uses',
    )


def mismatched_mpi_type(site: Site) -> Iterator[Finding]:
    """Warn of an mpi.type that the library cannot find its other ranks by."""
    library, kind = site.mpi.library, site.mpi.type
    if site.launcher_name != "srun" or site.scheduler != "slurm" or not kind:
        return
    fitting = matching_mpi_type(library)
    # an MPI that modules or Spack bring may have been built for either; a wheel's or Debian's was not
    own = not (site.modules.load or site.spack.load or site.spack.env or site.container.image)
    wrong = {"mpich": own and kind.startswith("pmix"), "openmpi": kind == "pmi2", "openmpi4": own and kind == "pmi2"}
    if wrong.get(library) or kind in {"none", "openmpi"}:
        yield finding_at(
            ("mpi", "type"),
            f'mpi.type = "{kind}" does not fit mpi.library = "{library}": each rank would believe that it is alone',
            (f'set mpi.type = "{fitting}", or mpi.library to what the site\'s Python uses; ' if fitting else "")
            + "srun --mpi=list shows what a Slurm has",
        )


def mpi_type_in_launcher_args(site: Site) -> Iterator[Finding]:
    """Warn of a --mpi= that is hidden among the launcher's arguments."""
    for word in site.launcher_args:
        if word.startswith("--mpi="):
            yield finding_at(
                ("launcher_args",),
                f"launcher_args has {word}, which hpcrun knows nothing of",
                f'set mpi.type = "{word.removeprefix("--mpi=")}"',
            )


def require_matching_launcher(found: LoadedSite, here: Site, launcher: str, ranks: int) -> None:
    """Refuse a job whose launcher does not fit its MPI library.

    ``mpi.type = "none"`` is for programs without MPI, whose ranks meet in another way.

    Args:
        found: The site.
        here: The same as the job's partition and QoS find it.
        launcher: The job's, which the site's own need not be.
        ranks: How many ranks it starts.

    Raises:
        HpcrunError: Names the key, its file and line.
    """
    site = here if launcher == here.launcher_name else replace(here, launcher=launcher)
    findings = [*mismatched_launcher(site)]
    if ranks > 1 and site.mpi.type != "none":
        findings += mismatched_mpi_type(site)
    for finding in findings:
        where = found.find_origin(finding.key) or f"site {site.name}"
        raise HpcrunError(f"{where}: {finding.what}", hint=finding.fix)
