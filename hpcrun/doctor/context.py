"""What is looked at: a site, here and for this user."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hpcrun import submission
from hpcrun.errors import HpcrunError
from hpcrun.request import Request
from hpcrun.schedulers.environment import expanded
from hpcrun.sites import loader
from hpcrun.sites.trust import NotAllowedError
from hpcrun.workload import Workload

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.doctor.cluster import Cluster
    from hpcrun.sites.loader import LoadedSite
    from hpcrun.sites.model import Site
    from hpcrun.sites.software_tables import Container
    from hpcrun.submission import Plan

PROGRAM = Workload(name="doctor", program=(None, "-m", "hpcrun.doctor.node_probe"))
"""What the site's Python runs on each node."""


@dataclass
class CheckContext:
    """A site, and the job that asks for nothing but its defaults.

    Attributes:
        found: The site.
        plan: The job; None where not even its script can be made.
        refused: Why hpcrun would not submit it; None where it would.
        requested: What the user asks for, by Slurm's names.
        unsaid: Whether all that it lacks is what users have to say: an account, a time limit.
        in_job: Whether nodes are looked at from inside a job, too.
        host_report: What `hpcrun.doctor.node_probe` told of this host, once it has been asked.
    """

    found: LoadedSite
    plan: Plan | None
    refusal: HpcrunError | None
    requested: dict[str, Any] = field(default_factory=dict)
    lacks_only_user_options: bool = False
    in_job: bool = False
    host_report: dict[str, Any] = field(default_factory=dict)

    @property
    def site(self) -> Site:
        """The site."""
        return self.found.site

    @property
    def resolved_site(self) -> Site:
        """The site as the job's partition and QoS find it."""
        return self.plan.spec.site if self.plan else self.site

    @property
    def not_allowed(self) -> HpcrunError | None:
        """Why the site's files are not used, nor looked at further; None where they are."""
        return self.refusal if isinstance(self.refusal, NotAllowedError) else None

    @property
    def container(self) -> Container | None:
        """The container that ranks run in."""
        return self.plan.spec.container if self.plan else None

    @property
    def account(self) -> str | None:
        """The account that pays for a job."""
        return str(chosen) if (chosen := self.requested.get("account") or self.site.defaults.account) else None

    @property
    def run_root(self) -> Path | None:
        """Where run directories go; None where nobody knows, as in a folder of an account that was not named."""
        said = os.environ.get("HPCRUN_RUN_ROOT") or self.site.run_root
        unknown = not self.account and "SLURM_JOB_ACCOUNT" in said
        return self.plan.spec.run_dir.parent if self.plan and not unknown else None

    @property
    def slurm_conf(self) -> str | None:
        """The slurm.conf of the site's Slurm; None where the site does not say."""
        return expanded(self.site.slurm_conf)

    @property
    def cluster(self) -> Cluster:
        """What Slurm says of itself.

        Raises:
            HpcrunError: It does not answer.
        """
        if isinstance(self._cluster, HpcrunError):
            raise self._cluster
        return self._cluster

    @property
    def slurm_answers(self) -> bool:
        """Whether Slurm does."""
        return not isinstance(self._cluster, HpcrunError)

    @cached_property
    def _cluster(self) -> Cluster | HpcrunError:
        """What it says, or that it does not answer: a controller that hangs is asked once."""
        from hpcrun.doctor.cluster import query_cluster

        if self.site.slurm_conf and self.not_allowed:  # Slurm's commands load what that file names
            return self.not_allowed
        try:
            return query_cluster(self.slurm_conf)
        except HpcrunError as failure:
            return failure

    def at(self, *key: str) -> str:
        """Return ``FILE:LINE`` of a value; empty where no file sets it."""
        return self.found.find_origin(key) or ""

    def origin_in_resolved_site(self, *key: str) -> str:
        """Return the same of a value of `chosen`, which the QoS or the partition may set."""
        requested = self.plan.spec.resources if self.plan else None
        tables = [("qos", requested.qos), ("partitions", requested.partition)] if requested else []
        found = [self.at(table, name, *key) for table, name in tables if name]
        return next(filter(None, [*found, self.at(*key)]), "")


def create_context(name: str | None, requested: dict[str, Any]) -> CheckContext:
    """Return what is to be looked at.

    Args:
        name: The site's name or file; None to detect it.
        requested: What the user asks for, by Slurm's names.

    Raises:
        HpcrunError: The site file is not valid.
    """
    found = loader.load_selected_site(name)
    try:
        return CheckContext(found, _plan(found, requested), None, requested)
    except NotAllowedError as refused:
        return CheckContext(found, None, refused, requested)
    except HpcrunError as refused:
        account = (found.site.limits.account_pattern or "x").replace("*", "x").replace("?", "x")
        said = {"account": account, "time": 1, **requested}
        for more in (said, {**said, "nodes": 1, "time": 1}):
            try:  # the rest of the site can be looked at all the same
                return CheckContext(found, _plan(found, more), refused, requested, lacks_only_user_options=more is said)
            except HpcrunError:
                continue
        return CheckContext(found, None, refused, requested)


def _plan(found: LoadedSite, requested: dict[str, Any]) -> Plan:
    return submission.plan(Request(None, resources=requested), found, PROGRAM, ())
