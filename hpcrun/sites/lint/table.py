"""All checks of a site that is valid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.sites.lint import bash, jobs, limits, mpi, places, software, variables

if TYPE_CHECKING:
    from hpcrun.sites.find import Found
    from hpcrun.sites.lint.finding import Finding
    from hpcrun.sites.model import Site

CHECKS = (
    mpi.launcher_and_library,
    mpi.type_and_library,
    mpi.type_among_arguments,
    jobs.defaults_beyond_limits,
    limits.contradictory,
    jobs.partition_elsewhere,
    jobs.sbatch_has_a_key,
    jobs.gpu_option_forbidden,
    places.everywhere,
    places.run_root,
    places.scratch,
    software.python_beside,
    software.nothing_brings,
    software.pyxis_without_srun,
    software.fetched_by_each_rank,
    variables.path_overwritten,
    variables.has_a_key,
    variables.somebody_elses,
    variables.literal_dollar,
    variables.secret,
    bash.several_modules_in_one,
    bash.overwritten_in_bash,
    bash.ends_at_any_failure,
    bash.unparsable,
)
"""Each looks at a site that is valid, and yields what is wrong with it all the same."""


def findings(site: Site) -> list[Finding]:
    """Return what is probably a mistake in a site, in the order of `CHECKS`."""
    return [finding for check in CHECKS for finding in check(site)]


def told(found: Found) -> list[dict[str, str | None]]:
    """Return the findings about a site, each with the file and line that it is about.

    Args:
        found: The site.

    Returns:
        For each its ``level``, ``key``, ``where`` (``file:line``), ``says`` and ``fix``.
    """
    rows: list[dict[str, str | None]] = []
    for finding in findings(found.site):
        known = (finding.key[:length] for length in range(len(finding.key), 0, -1))
        where = next((origin for key in known if (origin := found.origin(key))), None)
        key = ".".join(finding.key)
        rows.append({"level": finding.level, "key": key, "where": where, "says": finding.says, "fix": finding.fix})
    return rows


def line(row: dict[str, str | None], site: str) -> str:
    """Return what `told` tells of a site as people are shown it."""
    return f"{row['where'] or f'site {site}'}: {row['says']}\nHINT: {row['fix']}"
