"""The table of all lint rules for site files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hpcrun.sites.line_numbers import format_location
from hpcrun.sites.lint import bash, contradictions, environments, folders, job_defaults, mpi, units, variables
from hpcrun.sites.lint.levels import finding_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Finding
    from hpcrun.sites.loader import LoadedSite

RULES = (
    mpi.mismatched_launcher,
    mpi.mismatched_mpi_type,
    mpi.mpi_type_in_launcher_args,
    job_defaults.defaults_beyond_limits,
    contradictions.contradictory_limits,
    job_defaults.defaults_for_another_partition,
    job_defaults.sbatch_option_with_key,
    job_defaults.forbidden_site_option,
    units.size_in_mib,
    units.time_in_minutes,
    folders.too_wide_host_pattern,
    folders.unshared_run_root,
    folders.doubtful_local_scratch,
    environments.unused_python_environment,
    environments.missing_activation_command,
    environments.pyxis_without_srun,
    environments.image_fetched_by_each_rank,
    variables.overwritten_path,
    variables.variable_with_key,
    variables.reserved_variable,
    variables.unexpanded_dollar,
    variables.secret_value,
    bash.joined_module_names,
    bash.variable_overwritten_in_setup,
    bash.set_e_in_setup,
    bash.syntax_errors,
)
"""All lint rules. A rule is a function that yields findings about a valid site."""


def lint_site(loaded_site: LoadedSite) -> list[Finding]:
    """Return the findings of all `RULES` for a site, each with file and line."""
    findings = [_add_location(finding, loaded_site) for check in RULES for finding in check(loaded_site.site)]
    return [*findings, *_ineffective_unsets(loaded_site)]


def _ineffective_unsets(loaded_site: LoadedSite) -> Iterator[Finding]:
    """Warn of keys in ``unset`` that no file of a lower layer sets."""
    for file, key in loaded_site.ineffective_unsets:
        finding = finding_at(("unset",), f"unset names {key}, which no lower file sets", "correct or remove it")
        yield replace(finding, where=format_location(file, ("unset",)))


def _add_location(finding: Finding, loaded_site: LoadedSite) -> Finding:
    key_prefixes = (finding.key[:length] for length in range(len(finding.key), 0, -1))
    return replace(
        finding, where=next((origin for key in key_prefixes if (origin := loaded_site.find_origin(key))), "")
    )


def format_finding(finding: Finding, site: str) -> str:
    """Format a finding about a site file as a message."""
    return f"{finding.where or f'site {site}'}: {finding.what}\nHINT: {finding.fix}"
