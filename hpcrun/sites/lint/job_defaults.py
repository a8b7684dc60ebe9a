"""Checks of the default resources of jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hpcrun.resources import Resources
from hpcrun.sites.lint.levels import finding_at, iterate_levels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Finding
    from hpcrun.sites.site_model import Site

_EQUIVALENT_KEYS = {
    "gres": 'gpu.request = "gres", with gpu.type and partitions.NAME.gpus_per_node, requests GPUs',
    "gpus": "partitions.NAME.gpus_per_node sets the GPUs of a node, and gpu.request how to request them",
    "signal": "restart.signal_seconds sets when jobs get a signal before their time limit",
    "requeue": "restart.requeue sets whether jobs may be requeued",
    "no-requeue": "restart.requeue = false prevents jobs from being requeued",
}
"""sbatch options that are not fields of `Resources`, but have an equivalent key in site files."""

_SET_BY_HPCRUN = {"array", "output", "error", "chdir", "wrap", "wait", "job-name", "parsable", "open-mode"}
"""sbatch options that hpcrun sets for each job."""


def defaults_beyond_limits(site: Site) -> Iterator[Finding]:
    """Warn of default resources that exceed the limits of the same site."""
    default_partition = site.defaults.partition
    resources_by_key: list[tuple[tuple[str, ...], Resources]] = [(("defaults",), site.defaults)]
    if site.partitions and (
        not default_partition
        or (default_partition in site.partitions and site.partitions[default_partition].defaults.explicit())
    ):
        resources_by_key = []  # the limits depend on the job's --partition, or the partition's defaults take precedence
    for name, partition in site.partitions.items():
        if partition.defaults.explicit():
            defaults = replace(partition.defaults.with_defaults(site.defaults), partition=name)
            resources_by_key.append((("partitions", name, "defaults"), defaults))
    for key, defaults in resources_by_key:
        limits = site.resolve(defaults).limits
        limits = replace(
            limits, account_required=None, account_pattern=None, time_required=None
        )  # users set account and time
        partition_or_site = f"partition {defaults.partition}" if defaults.partition else "the site"
        if faults := limits.find_violations(defaults, partition_or_site):
            problems = "; ".join(fault for fault, _ in faults)
            message = f"jobs with the default resources are refused: {problems}"
            yield finding_at(key, message, "set a default within these limits")


def defaults_for_another_partition(site: Site) -> Iterator[Finding]:
    """Warn of a partition whose defaults select a different partition."""
    for name, partition in site.partitions.items():
        if partition.defaults.partition not in {None, name}:
            yield finding_at(
                ("partitions", name, "defaults", "partition"),
                f"the defaults of partition {name} name partition {partition.defaults.partition}",
                f"remove it: these defaults apply to jobs in {name} only",
            )


def sbatch_option_with_key(site: Site) -> Iterator[Finding]:
    """Warn of sbatch options with an equivalent site key, because options of hpcrun cannot override them."""
    options: list[tuple[tuple[str, ...], str]] = []
    for level_key, level in iterate_levels(site):
        options += [((*level_key, "sbatch"), option) for option in level.sbatch or ()]
        options += [((*level_key, "defaults", "sbatch"), option) for option in level.defaults.sbatch]
    for key, option in options:
        name = option.removeprefix("--").partition("=")[0]
        fix = _EQUIVALENT_KEYS.get(name)
        # no option undoes --exclusive
        if name.replace("-", "_") in Resources.__dataclass_fields__ and name not in {"job-name", "exclusive"}:
            fix = f"set defaults.{name.replace('-', '_')}: users can then override it with --{name}"
        elif name in _SET_BY_HPCRUN:
            fix = "remove it: hpcrun sets it for each job"
        if fix and not (name == "gres" and "gpu" not in option):  # --gres may also request resources other than GPUs
            yield finding_at(key, f"sbatch option {option} is set by hpcrun", fix)


def forbidden_site_option(site: Site) -> Iterator[Finding]:
    """Warn of options that the site both sets and forbids."""
    forbidden_names = {option.partition("=")[0] for option in site.sbatch_forbidden}
    for option in site.sbatch:
        if option.partition("=")[0] in forbidden_names:
            yield finding_at(
                ("sbatch",), f"sbatch option {option} is also in sbatch_forbidden", "remove it from one of them"
            )
    if (gpu_option := site.gpu.option) in forbidden_names:
        allowed_requests = [name for name in ("gpus-per-node", "gres", "gpus") if f"--{name}" not in forbidden_names]
        yield finding_at(
            ("gpu", "request"),
            f"GPUs are requested with {gpu_option}, which sbatch_forbidden contains",
            f'set gpu.request = "{(*allowed_requests, "none")[0]}"'
            + ', or "none" where jobs get all GPUs of their nodes' * bool(allowed_requests),
        )
