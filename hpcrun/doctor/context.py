"""The context of the doctor's checks: a site and a job."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hpcrun import job_levels, submission
from hpcrun.errors import HpcrunError
from hpcrun.request import Request
from hpcrun.schedulers.environment import expand_slurm_conf
from hpcrun.schedulers.slurm_client import SlurmClient
from hpcrun.sites import loader
from hpcrun.sites.trust import NotAllowedError
from hpcrun.workload import Workload

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.doctor.cluster import DiscoveredCluster
    from hpcrun.doctor.node_report import NodeReport
    from hpcrun.sites.loader import LoadedSite
    from hpcrun.sites.site_model import Site
    from hpcrun.sites.software_tables import Container
    from hpcrun.submission import Plan

PROBE_PROGRAM = Workload(name="doctor", program=(None, "-m", "hpcrun.doctor.node_probe"))
"""The program that the doctor runs on each node with the site's Python."""

PROBE_ENVIRONMENT = (("PYTHONSAFEPATH", "1"),)
"""Variables of `PROBE_PROGRAM`: Python must not import from the working directory, which others may have written."""


@dataclass
class CheckContext:
    """A site, and the plan of a job with the site's default resources.

    Attributes:
        loaded_site: The site.
        plan: The plan of the job; None if its script cannot be rendered.
        refusal: The error with which hpcrun would refuse the job; None if hpcrun would submit it.
        requested: The resources that the user requests, by Slurm's option names.
        lacks_only_user_options: Whether the job lacks only options that users have to give, such as an account or a
            time limit.
        in_job: Whether the doctor also checks nodes inside a job (``--in-job``).
        host_report: The report of `hpcrun.doctor.node_probe` about this host; None before the probe has run.
    """

    loaded_site: LoadedSite
    plan: Plan | None
    refusal: HpcrunError | None
    requested: dict[str, Any] = field(default_factory=dict)
    lacks_only_user_options: bool = False
    in_job: bool = False
    host_report: NodeReport | None = None

    @property
    def site(self) -> Site:
        """The site."""
        return self.loaded_site.site

    @property
    def resolved_site(self) -> Site:
        """The site with the settings for the job's partition, QoS, constraint and account."""
        return self.plan.spec.site if self.plan else self.site

    @property
    def not_allowed(self) -> HpcrunError | None:
        """The error about site files that the user has not allowed; None if there are none."""
        return self.refusal if isinstance(self.refusal, NotAllowedError) else None

    @property
    def container(self) -> Container | None:
        """The container in which the ranks run; None without a container."""
        return self.plan.spec.container if self.plan else None

    @property
    def account(self) -> str | None:
        """The account of the job: the requested account, else the site's default."""
        return str(chosen) if (chosen := self.requested.get("account") or self.site.defaults.account) else None

    @property
    def run_root(self) -> Path | None:
        """The folder of run directories; None if unknown, because it depends on an account that is not set."""
        configured_root = os.environ.get("HPCRUN_RUN_ROOT") or self.site.run_root
        is_unknown = not self.account and "SLURM_JOB_ACCOUNT" in configured_root
        return self.plan.spec.run_dir.parent if self.plan and not is_unknown else None

    @property
    def slurm(self) -> SlurmClient:
        """The client of the site's Slurm cluster."""
        return SlurmClient(expand_slurm_conf(self.site.slurm_conf))

    @property
    def cluster(self) -> DiscoveredCluster:
        """The state and configuration of the site's Slurm cluster.

        Raises:
            HpcrunError: Slurm does not respond.
        """
        if isinstance(self._cluster, HpcrunError):
            raise self._cluster
        return self._cluster

    @property
    def slurm_responds(self) -> bool:
        """Whether Slurm responds."""
        return not isinstance(self._cluster, HpcrunError)

    @cached_property
    def _cluster(self) -> DiscoveredCluster | HpcrunError:
        """The state of the Slurm cluster, or the error; cached, so that a hanging controller costs only one timeout."""
        from hpcrun.doctor.cluster import query_cluster

        if self.site.slurm_conf and self.not_allowed:  # Slurm commands load the plugins that slurm.conf names
            return self.not_allowed
        try:
            return query_cluster(self.slurm)
        except HpcrunError as failure:
            return failure

    def location_of(self, *key: str) -> str:
        """Return ``FILE:LINE`` of the value of a site key; empty if no file sets the key."""
        return self.loaded_site.find_origin(key) or ""

    def origin_in_resolved_site(self, *key: str) -> str:
        """Return ``FILE:LINE`` of a value of `resolved_site`, which a partition or other level may set."""
        levels = self.site.matching_tables(self.plan.spec.resources) if self.plan else []
        locations = [self.location_of(*level, *key) for level, _ in reversed(levels)]
        return next(filter(None, [*locations, self.location_of(*key)]), "")


def create_context(name: str | None, requested_resources: dict[str, Any]) -> CheckContext:
    """Create the context of the checks of a site.

    Args:
        name: The site's name or file; None to detect it.
        requested_resources: The resources that the user requests, by Slurm's option names.

    Raises:
        HpcrunError: The site file is not valid.
    """
    loaded_site = loader.load_selected_site(name)
    try:
        return CheckContext(loaded_site, _plan(loaded_site, requested_resources), None, requested_resources)
    except NotAllowedError as refused:
        return CheckContext(loaded_site, None, refused, requested_resources)
    except HpcrunError as refused:
        account = (loaded_site.site.limits.account_pattern or "x").replace("*", "x").replace("?", "x")
        added_options = {"account": account, "time": 1, **requested_resources}
        for options in (added_options, {**added_options, "nodes": 1, "time": 1}):
            try:  # the other settings of the site can still be checked
                return CheckContext(
                    loaded_site,
                    _plan(loaded_site, options),
                    refused,
                    requested_resources,
                    lacks_only_user_options=options is added_options,
                )
            except HpcrunError:
                continue
        return CheckContext(loaded_site, None, refused, requested_resources)


def _plan(loaded_site: LoadedSite, requested_resources: dict[str, Any]) -> Plan:
    args = probe_arguments(loaded_site.site, requested_resources)
    return submission.plan(
        Request(None, resources=requested_resources, environment=PROBE_ENVIRONMENT), loaded_site, PROBE_PROGRAM, args
    )


def probe_arguments(site: Site, requested_resources: dict[str, Any]) -> tuple[str, ...]:
    """Return the arguments of `PROBE_PROGRAM`: the launcher's name; empty if the site file describes the launcher.

    Args:
        site: The site.
        requested_resources: The resources that the user requests, by Slurm's option names.

    Raises:
        HpcrunError: The site does not have the requested partition.
    """
    resolved_site = job_levels.resolve_site(requested_resources, site)
    return () if resolved_site.custom_launcher else (resolved_site.launcher_name,)
