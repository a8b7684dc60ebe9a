"""All checks of a site that is valid."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hpcrun.sites.lint import bash, contradictions, environments, folders, job_defaults, mpi, variables

if TYPE_CHECKING:
    from hpcrun.finding import Finding
    from hpcrun.sites.loader import Found

CHECKS = (
    mpi.launcher_and_library,
    mpi.type_and_library,
    mpi.type_among_arguments,
    job_defaults.defaults_beyond_limits,
    contradictions.contradictory,
    job_defaults.partition_elsewhere,
    job_defaults.sbatch_has_a_key,
    job_defaults.gpu_option_forbidden,
    folders.everywhere,
    folders.run_root,
    folders.scratch,
    environments.python_beside,
    environments.nothing_brings,
    environments.pyxis_without_srun,
    environments.fetched_by_each_rank,
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


def findings(found: Found) -> list[Finding]:
    """Return what is probably a mistake in a site, in the order of `CHECKS`, each with its file and line."""
    return [_located(finding, found) for check in CHECKS for finding in check(found.site)]


def _located(finding: Finding, found: Found) -> Finding:
    known = (finding.key[:length] for length in range(len(finding.key), 0, -1))
    return replace(finding, where=next((origin for key in known if (origin := found.origin(key))), ""))


def as_json(finding: Finding) -> dict[str, str | None]:
    """Return a finding about a site file as JSON has it."""
    key, where = ".".join(finding.key), finding.where or None
    return {"level": finding.severity, "key": key, "where": where, "says": finding.what, "fix": finding.fix}


def line(finding: Finding, site: str) -> str:
    """Return a finding about a site's file as people are shown it."""
    return f"{finding.where or f'site {site}'}: {finding.what}\nHINT: {finding.fix}"
