"""The context of all checks: a site, and the job that they examine."""

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

    from hpcrun.doctor.cluster import Cluster
    from hpcrun.doctor.node_report import NodeReport
    from hpcrun.sites.loader import LoadedSite
    from hpcrun.sites.model import Site
    from hpcrun.sites.software_tables import Container
    from hpcrun.submission import Plan

PROGRAM = Workload(name="doctor", program=(None, "-m", "hpcrun.doctor.node_probe"))
"""The program that the site's Python runs on each node."""

ENVIRONMENT = (("PYTHONSAFEPATH", "1"),)
"""Variables of that program: Python imports no module of the current folder, which may be a cloned repository."""


@dataclass
class CheckContext:
    """A site, and a job with the site's default resources.

    Attributes:
        loaded_site: The site.
        plan: The job; None if its script cannot be rendered.
        refusal: Why hpcrun would not submit the job; None where it would.
        requested: The resources that the user requests, by Slurm's names.
        lacks_only_user_options: Whether only options that users have to set are missing: an account, a time limit.
        in_job: Whether nodes are also checked inside a job.
        host_report: The report of `hpcrun.doctor.node_probe` on this host; None before it has run.
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
        """The site's settings for the job."""
        return self.plan.spec.site if self.plan else self.site

    @property
    def not_allowed(self) -> HpcrunError | None:
        """Why the site's files are not used; None where they are."""
        return self.refusal if isinstance(self.refusal, NotAllowedError) else None

    @property
    def container(self) -> Container | None:
        """The container that ranks run in."""
        return self.plan.spec.container if self.plan else None

    @property
    def account(self) -> str | None:
        """The account that a job is charged to."""
        return str(chosen) if (chosen := self.requested.get("account") or self.site.defaults.account) else None

    @property
    def run_root(self) -> Path | None:
        """The folder of run directories; None if it is unknown, as for the folder of an unset account."""
        said = os.environ.get("HPCRUN_RUN_ROOT") or self.site.run_root
        unknown = not self.account and "SLURM_JOB_ACCOUNT" in said
        return self.plan.spec.run_dir.parent if self.plan and not unknown else None

    @property
    def slurm(self) -> SlurmClient:
        """The commands of the site's Slurm."""
        return SlurmClient(expand_slurm_conf(self.site.slurm_conf))

    @property
    def cluster(self) -> Cluster:
        """The state and configuration of Slurm.

        Raises:
            HpcrunError: Slurm does not respond.
        """
        if isinstance(self._cluster, HpcrunError):
            raise self._cluster
        return self._cluster

    @property
    def slurm_answers(self) -> bool:
        """Whether Slurm responds."""
        return not isinstance(self._cluster, HpcrunError)

    @cached_property
    def _cluster(self) -> Cluster | HpcrunError:
        """Slurm's state, or the error; cached, so that an unresponsive controller is queried once."""
        from hpcrun.doctor.cluster import query_cluster

        if self.site.slurm_conf and self.not_allowed:  # Slurm's commands load plugins that this file names
            return self.not_allowed
        try:
            return query_cluster(self.slurm)
        except HpcrunError as failure:
            return failure

    def at(self, *key: str) -> str:
        """Return ``FILE:LINE`` of a value; empty where no file sets it."""
        return self.loaded_site.find_origin(key) or ""

    def origin_in_resolved_site(self, *key: str) -> str:
        """Return ``FILE:LINE`` of a value of `resolved_site`, which a table for some jobs may set."""
        levels = self.site.matching_levels(self.plan.spec.resources) if self.plan else []
        found = [self.at(*level, *key) for level, _ in reversed(levels)]
        return next(filter(None, [*found, self.at(*key)]), "")


def create_context(name: str | None, requested: dict[str, Any]) -> CheckContext:
    """Create the context of a site.

    Args:
        name: The site's name or file; None to detect it.
        requested: The resources that the user requests, by Slurm's names.

    Raises:
        HpcrunError: The site file is not valid.
    """
    loaded_site = loader.load_selected_site(name)
    try:
        return CheckContext(loaded_site, _plan(loaded_site, requested), None, requested)
    except NotAllowedError as refused:
        return CheckContext(loaded_site, None, refused, requested)
    except HpcrunError as refused:
        account = (loaded_site.site.limits.account_pattern or "x").replace("*", "x").replace("?", "x")
        said = {"account": account, "time": 1, **requested}
        for more in (said, {**said, "nodes": 1, "time": 1}):
            try:  # the rest of the site can still be checked
                return CheckContext(
                    loaded_site, _plan(loaded_site, more), refused, requested, lacks_only_user_options=more is said
                )
            except HpcrunError:
                continue
        return CheckContext(loaded_site, None, refused, requested)


def _plan(loaded_site: LoadedSite, requested: dict[str, Any]) -> Plan:
    args = probe_arguments(loaded_site.site, requested)
    return submission.plan(Request(None, resources=requested, environment=ENVIRONMENT), loaded_site, PROGRAM, args)


def probe_arguments(site: Site, requested: dict[str, Any]) -> tuple[str, ...]:
    """Return the arguments of `PROGRAM`: the launcher of the jobs, unless the site file describes it.

    Args:
        site: The site.
        requested: The resources that the user requests, by Slurm's names.

    Raises:
        HpcrunError: The site has no such partition.
    """
    resolved = job_levels.resolve_site(requested, site)
    return () if resolved.custom_launcher else (resolved.launcher_name,)
