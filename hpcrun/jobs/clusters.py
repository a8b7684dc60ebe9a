"""The cluster that a job id belongs to: two clusters may assign the same id."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hpcrun.jobs.runs import Run


Purpose = Literal["list", "read", "modify"]
"""Why runs are selected: to list them, to read one of them, or to cancel, clean up or remove them."""


class Cluster(NamedTuple):
    """The cluster that assigned a job id.

    Attributes:
        site: The site's name; ``local`` for a process on a host, empty if unknown.
        slurm_conf: The recorded slurm.conf, if any; for a local job its host.
    """

    site: str
    slurm_conf: str


@dataclass(frozen=True)
class IdMatch:
    """The runs with one job id: a job, or tasks of a sweep.

    Attributes:
        job_id: The id as the user types it.
        runs: The run, or the tasks of the sweep.
        missing: Other tasks, whose directories were removed.
        created: When the run was created, in s since 1970.
    """

    job_id: str
    runs: tuple[Run, ...]
    missing: tuple[Run, ...]
    created: float

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster that assigned the id; reads files, so call it only for ambiguous ids."""
        return cluster_of(self.runs[0])


class AmbiguousError(HpcrunError):
    """A job id that matches jobs of several clusters.

    Args:
        found: The matching submissions.
    """

    def __init__(self, found: Sequence[IdMatch]) -> None:
        names = list(distinguish(found))
        listed = ", ".join(f"{name} ({one.runs[0].name})" for name, one in zip(names, found, strict=True))
        hint = f"name one of them: {names[0]}; or set HPCRUN_SITE or SLURM_CONF"
        super().__init__(f"there are {len(found)} jobs {found[0].job_id}: {listed}", hint=hint)


def cluster_of(run: Run) -> Cluster:
    """Return the cluster of a run's job, as far as it is recorded."""
    if not (run.directory / "job.json").exists():
        return Cluster("", str(run.directory))
    if not run.scheduler.has_queue:
        return Cluster("local", run.submission.host)
    site = run.spec.site
    return Cluster(site.name, str(site.slurm_conf or run.submission.slurm_conf or ""))


def distinguish(found: Sequence[IdMatch]) -> Iterable[str]:
    """Yield an unambiguous name for each submission: ``dee:8``, or its run directory."""
    sites = [one.cluster.site for one in found]
    for one in found:
        known = one.cluster.site and sites.count(one.cluster.site) == 1
        yield f"{one.cluster.site}:{one.job_id}" if known else f"{(one.runs[0].sweep or one.runs[0]).directory}/"


def filter_by_cluster(
    matches: Sequence[IdMatch], site: str | None, more: Callable[[], Iterable[IdMatch]] = tuple
) -> list[IdMatch]:
    """Return the submissions of the selected cluster; all of them if neither the site nor the environment selects one.

    Args:
        matches: The submissions with the id.
        site: The site in front of the id.
        more: Returns submissions that had the id before they were resubmitted under another one.
    """
    fits = cluster_filter(site)
    if not matches or (fits and not any(fits(match.cluster) for match in matches)):
        matches = [*matches, *more()]
    if site:
        return _prefer_slurm_conf([match for match in matches if match.cluster.site == site])
    if fits and len(matches) > 1:
        return _prefer_slurm_conf([match for match in matches if fits(match.cluster)] or matches)
    return list(matches)


def _prefer_slurm_conf(matches: Sequence[IdMatch]) -> list[IdMatch]:
    """Return the submissions to the cluster of SLURM_CONF, if any: sites of two clusters may have the same name."""
    conf = os.environ.get("SLURM_CONF")
    return [match for match in matches if conf and _has_slurm_conf(match.cluster, conf)] or list(matches)


def newest_per_cluster(matches: Iterable[IdMatch]) -> list[IdMatch]:
    """Return each cluster's newest submission, in the given order; clusters reuse ids.

    Args:
        matches: Submissions, the newest first.
    """
    every = list(matches)
    if len(every) < 2:
        return every
    first: dict[Cluster, IdMatch] = {}
    for match in every:
        first.setdefault(match.cluster, match)
    return list(first.values())


def require_unambiguous(matches: Sequence[IdMatch]) -> None:
    """Require that no id matches jobs of several clusters.

    Raises:
        AmbiguousError: An id is ambiguous.
    """
    for _, same in groupby(sorted(matches, key=lambda match: match.job_id), key=lambda match: match.job_id):
        newest = newest_per_cluster(same)
        if len(newest) > 1:
            raise AmbiguousError(newest)


def require_selected_cluster(matches: Iterable[IdMatch]) -> None:
    """Require that the environment does not select another cluster than that of the jobs with an id.

    Raises:
        HpcrunError: HPCRUN_SITE or SLURM_CONF names another cluster, which may have its own job with the id.
    """
    site, conf = os.environ.get("HPCRUN_SITE"), os.environ.get("SLURM_CONF")
    fits = cluster_filter(None)
    if not fits or (not site and "SLURM_JOB_ID" in os.environ):  # on a compute node SLURM_CONF is Slurm's own copy
        return
    for match in matches:
        known = match.cluster.site if site else match.cluster.slurm_conf and match.cluster.site != "local"
        if known and not fits(match.cluster):
            (name,) = distinguish([match])
            raise HpcrunError(
                f"job {match.job_id} ({match.runs[0].name}) is of site {match.cluster.site}, but "
                + (f"HPCRUN_SITE is {site}" if site else f"SLURM_CONF is {conf}"),
                hint=f"if you mean that job, name it {name}",
            )


def cluster_filter(site: str | None) -> Callable[[Cluster], bool] | None:
    """Return a filter for the cluster selected by the site in front of an id, or else by the environment.

    Args:
        site: The site in front of the id.

    Returns:
        A function that accepts the selected cluster; None if no cluster is selected.
    """
    name = site or os.environ.get("HPCRUN_SITE")
    if name:
        stem = Path(name).stem if "/" in name or name.endswith(".toml") else name
        return lambda cluster: cluster.site == stem
    if conf := os.environ.get("SLURM_CONF"):
        return lambda cluster: _has_slurm_conf(cluster, conf)
    return None


def _has_slurm_conf(cluster: Cluster, conf: str) -> bool:
    if cluster.site == "local" or not cluster.slurm_conf:
        return False
    return os.path.realpath(os.path.expandvars(cluster.slurm_conf)) == os.path.realpath(conf)
