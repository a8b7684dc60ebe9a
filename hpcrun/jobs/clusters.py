"""The cluster that a job id belongs to: two clusters may assign the same id."""

from __future__ import annotations

import os
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.jobs.progress_text import format_time
from hpcrun.jobs.states import describe_state, state_from_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hpcrun.jobs.runs import Run


Purpose = Literal["list", "read", "modify"]
"""Purpose of a command: list runs, read a run, or modify runs (cancel, clean up, remove)."""


class Cluster(NamedTuple):
    """The cluster that assigned a job id.

    Attributes:
        site: The site's name; ``local`` for a process on a host, empty if unknown.
        slurm_conf: Path of the recorded slurm.conf, empty if unknown; for a local job, the host name.
    """

    site: str
    slurm_conf: str


@frozen
class IdMatch:
    """The runs of one submission that match a job id: a single run, or tasks of a sweep.

    Attributes:
        job_id: The id as the user types it.
        runs: The run, or the tasks of the sweep.
        missing_runs: Tasks of the same sweep whose directories were removed.
        assigned: The time at which the run got the id, in s since 1970.
        submitted: The time of the run's last submission, in s since 1970.
    """

    job_id: str
    runs: tuple[Run, ...]
    missing_runs: tuple[Run, ...]
    assigned: float
    submitted: float

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster that assigned the id, read from the run's files; needed only for ambiguous ids."""
        return recorded_cluster(self.runs[0])


class AmbiguousError(HpcrunError):
    """A job id that matches jobs of several clusters.

    Args:
        matches: The matching submissions.
    """

    def __init__(self, matches: Sequence[IdMatch]) -> None:
        names = list(format_unambiguous_ids(matches))
        descriptions = "; ".join(f"{name} ({_describe(match)})" for name, match in zip(names, matches, strict=True))
        has_equal_sites = len({match.cluster.site for match in matches}) == 1
        hint = (
            f"name one of them: {names[0]}; or set {'SLURM_CONF' if has_equal_sites else 'HPCRUN_SITE or SLURM_CONF'}"
        )
        super().__init__(f"there are {len(matches)} jobs {matches[0].job_id}: {descriptions}", hint=hint)


def _describe(match: IdMatch) -> str:
    """Return what distinguishes a submission from another with the same id: name, cluster, time and recorded end."""
    run, cluster = match.runs[0], match.cluster
    parts = [run.name, f"site {cluster.site}" if cluster.site else "", cluster.slurm_conf]
    parts.append(f"submitted {format_time(run.submission.submitted or match.submitted)}")
    if len(match.runs) > 1:
        parts.append(f"{len(match.runs)} tasks")
    elif record := run.end_record():
        parts.append(describe_state(state_from_record(record).name))
    return ", ".join(filter(None, parts))


def recorded_cluster(run: Run) -> Cluster:
    """Return the cluster that a run's records name."""
    if not (run.directory / "job.json").exists():
        return Cluster("", str(run.directory))
    if not run.scheduler.has_queue:
        return Cluster("local", run.submission.host)
    site = run.spec.site
    return Cluster(site.name, str(site.slurm_conf or run.submission.slurm_conf or ""))


def format_unambiguous_ids(matches: Sequence[IdMatch]) -> Iterable[str]:
    """Yield an unambiguous name for each submission: ``dee:8``, or its run directory."""
    sites = [match.cluster.site for match in matches]
    for match in matches:
        is_unique = match.cluster.site and sites.count(match.cluster.site) == 1
        yield (
            f"{match.cluster.site}:{match.job_id}"
            if is_unique
            else f"{(match.runs[0].sweep or match.runs[0]).directory}/"
        )


def filter_by_cluster(
    matches: Sequence[IdMatch], site: str | None, find_resubmitted: Callable[[], Iterable[IdMatch]] = tuple
) -> list[IdMatch]:
    """Return the submissions to the cluster that the site or the environment selects; all if neither selects one.

    Args:
        matches: The submissions with the id.
        site: The site that the user typed in front of the id, if any.
        find_resubmitted: Function that returns submissions that had this id before they were resubmitted under another
            id.
    """
    is_selected = cluster_filter(site)
    if not matches or (is_selected and not any(is_selected(match.cluster) for match in matches)):
        matches = [*matches, *find_resubmitted()]
    if site:
        return _prefer_slurm_conf([match for match in matches if match.cluster.site == site])
    if is_selected and len(matches) > 1:
        return _prefer_slurm_conf([match for match in matches if is_selected(match.cluster)] or matches)
    return list(matches)


def _prefer_slurm_conf(matches: Sequence[IdMatch]) -> list[IdMatch]:
    """Return the submissions to the cluster of SLURM_CONF, or all submissions if none went to this cluster."""
    conf = os.environ.get("SLURM_CONF")
    return [match for match in matches if conf and _has_slurm_conf(match.cluster, conf)] or list(matches)


def newest_per_cluster(matches: Iterable[IdMatch]) -> list[IdMatch]:
    """Return the newest submission of each cluster, in the order of `matches`, because clusters reuse job ids.

    Args:
        matches: Submissions with the same job id, the newest first.
    """
    all_matches = list(matches)
    if len(all_matches) < 2:
        return all_matches
    newest: dict[Cluster, IdMatch] = {}
    for match in all_matches:
        newest.setdefault(match.cluster, match)
    return list(newest.values())


def require_unambiguous(matches: Sequence[IdMatch]) -> None:
    """Require that no id matches jobs of several clusters.

    Raises:
        AmbiguousError: An id is ambiguous.
    """
    for _, group in groupby(sorted(matches, key=lambda match: match.job_id), key=lambda match: match.job_id):
        newest = newest_per_cluster(group)
        if len(newest) > 1:
            raise AmbiguousError(newest)


def require_selected_cluster(matches: Iterable[IdMatch]) -> None:
    """Require that jobs belong to the cluster that the environment selects, if the environment selects one.

    Raises:
        HpcrunError: HPCRUN_SITE or SLURM_CONF names a different cluster, which may have a different job with this id.
    """
    site, conf = os.environ.get("HPCRUN_SITE"), os.environ.get("SLURM_CONF")
    is_selected = cluster_filter(None)
    if not is_selected or (
        not site and "SLURM_JOB_ID" in os.environ
    ):  # on a compute node, SLURM_CONF may name slurmd's copy of the file
        return
    for match in matches:
        is_known = match.cluster.site if site else match.cluster.slurm_conf and match.cluster.site != "local"
        if is_known and not is_selected(match.cluster):
            (name,) = format_unambiguous_ids([match])
            raise HpcrunError(
                f"job {match.job_id} ({match.runs[0].name}) is of site {match.cluster.site}, but "
                + (f"HPCRUN_SITE is {site}" if site else f"SLURM_CONF is {conf}"),
                hint=f"if you mean that job, name it {name}",
            )


def cluster_filter(site: str | None) -> Callable[[Cluster], bool] | None:
    """Return a filter for the jobs of the cluster that a site before a job id, or else the environment, selects.

    Args:
        site: The site that the user typed in front of the id, if any.

    Returns:
        A function that accepts the selected cluster; None if no cluster is selected.
    """
    name = site or os.environ.get("HPCRUN_SITE")
    if name:
        site_name = Path(name).stem if "/" in name or name.endswith(".toml") else name
        return lambda cluster: cluster.site == site_name
    if conf := os.environ.get("SLURM_CONF"):
        return lambda cluster: _has_slurm_conf(cluster, conf)
    return None


def _has_slurm_conf(cluster: Cluster, conf: str) -> bool:
    if cluster.site == "local" or not cluster.slurm_conf:
        return False
    return os.path.realpath(os.path.expandvars(cluster.slurm_conf)) == os.path.realpath(conf)
