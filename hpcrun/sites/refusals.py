"""Requests that a site refuses, because of its limits or of forbidden sbatch options, and the alternatives."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.sites.partition import LEVELS

if TYPE_CHECKING:
    from hpcrun.resources import Resources
    from hpcrun.sites.site_model import Site


def require_allowed(site: Site, resources: Resources) -> None:
    """Refuse resources that exceed the limits of the site or of a requested partition.

    Raises:
        HpcrunError: The job exceeds limits or lacks options; the message contains all of these limits and options.
    """
    violations = _find_all_violations(site, resources)
    faults = violations + [(fault, "leave it out") for fault in _forbidden_options(site, resources)]
    if faults:
        alternatives = _find_alternatives(site, resources) if violations else []
        other_hints = [f"or {' or '.join(alternatives)}, which allows this job"] if alternatives else []
        if violations and not alternatives and (options := _find_options_of_account(site, resources)):
            other_hints = [f"or {' or '.join(options)}, for which {resources.account} is an account"]
        hints = "; ".join([*dict.fromkeys(hint for _, hint in faults), *other_hints])
        message = f"site {site.name}: {'; '.join(dict.fromkeys(fault for fault, _ in faults))}"
        raise HpcrunError(message, hint=f"{hints}; see hpcrun site show {site.name}")


def find_violations(site: Site, resources: Resources) -> list[tuple[str, str]]:
    """Return the violated limits of the site, partition, QoS, constraint and account of a job, each with a hint.

    Args:
        site: The site.
        resources: The job's resources, with one partition at most.
    """
    levels = site.matching_tables(resources)
    origins = {limit: f"{LEVELS[table]} {name}" for (table, name), level in levels for limit in level.declared_limits}
    partition_or_site = f"partition {resources.partition}" if resources.partition else "the site"
    return site.apply_tables(resources).limits.find_violations(resources, partition_or_site, origins)


def _find_all_violations(site: Site, resources: Resources) -> list[tuple[str, str]]:
    """Return the violated limits of all partitions of a job, each with a hint."""
    return [fault for one in site.split_partitions(resources) for fault in find_violations(site, one)]


def _find_alternatives(site: Site, resources: Resources) -> list[str]:
    """Return options for up to three QoS and partitions whose limits the job does not exceed."""
    alternatives = {
        **{f"--qos={name}": replace(resources, qos=name) for name in site.qos},
        **{f"--partition={name}": replace(resources, partition=name) for name in site.partitions},
    }
    fitting_options = (option for option, one in alternatives.items() if not _find_all_violations(site, one))
    return list(islice(fitting_options, 3))


def _find_options_of_account(site: Site, resources: Resources) -> list[str]:
    """Return the partitions and constraints for accounts like the requested one, if this job may not use it."""
    sites = [site.apply_tables(one) for one in site.split_partitions(resources)]
    if all(one.limits.allows_account(resources.account) for one in sites):
        return []
    return [
        f"--{option}={name}"
        for option, levels in (("partition", site.partitions), ("constraint", site.constraints))
        for name, level in levels.items()
        if level.account_pattern and level.allows_account(resources.account)
    ]


def _forbidden_options(site: Site, resources: Resources) -> list[str]:
    """Return a message about each sbatch option of the job script that this cluster refuses."""
    forbidden_names = {option.partition("=")[0] for option in site.sbatch_forbidden}
    options = {name: f"--{name.replace('_', '-')}" for name in resources.explicit() if name != "sbatch"}
    if "gpus_per_node" in options:
        options["gpus_per_node"] = site.apply_tables(site.split_partitions(resources)[0]).gpu.option or ""
    return [
        f"sbatch option {option} is not allowed here (sbatch_forbidden)"
        for option in (*options.values(), *resources.sbatch)
        if option.partition("=")[0] in forbidden_names
    ]
