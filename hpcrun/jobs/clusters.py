"""Which cluster's job an id means: two clusters may have given the same one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hpcrun.jobs.runs import Run


class Cluster(NamedTuple):
    """What gave a job its id.

    Attributes:
        site: The site's name; ``local`` for a process of some host, empty where nobody knows.
        conf: The slurm.conf that was written down, where there is one; of a local job its host.
    """

    site: str
    conf: str


@dataclass(frozen=True)
class Submission:
    """What was submitted under one id: a job, or tasks of a sweep.

    Attributes:
        job_id: The id as somebody would type it.
        runs: The run, or tasks of the sweep.
        gone: Other tasks, whose directories are not there any more.
        made: When it was made, in s since 1970.
    """

    job_id: str
    runs: tuple[Run, ...]
    gone: tuple[Run, ...]
    made: float

    @cached_property
    def cluster(self) -> Cluster:
        """What gave it; only where there is a doubt, files are opened."""
        return of(self.runs[0])


class AmbiguousError(HpcrunError):
    """A job id means jobs of several clusters, and nothing says which one is meant.

    Args:
        found: What it may mean.
    """

    def __init__(self, found: Sequence[Submission]) -> None:
        words = list(candidates(found))
        told = ", ".join(f"{word} ({one.runs[0].name})" for word, one in zip(words, found, strict=True))
        hint = f"name the one that is meant: {words[0]}; HPCRUN_SITE or SLURM_CONF say it, too"
        super().__init__(f"there are {len(found)} jobs {found[0].job_id}: {told}", hint=hint)


def of(run: Run) -> Cluster:
    """Return what gave a run's job its id, as far as it was written down."""
    if not (run.directory / "job.json").exists():
        return Cluster("", str(run.directory))
    if run.scheduler == "local":
        return Cluster("local", run.submission.host)
    site = run.spec.site
    return Cluster(site.name, str(site.slurm_conf or run.submission.slurm_conf or ""))


def candidates(found: Sequence[Submission]) -> Iterable[str]:
    """Yield the word for each of some submissions that means it alone: ``dee:8``, or its run directory."""
    sites = [one.cluster.site for one in found]
    for one in found:
        known = one.cluster.site and sites.count(one.cluster.site) == 1
        yield f"{one.cluster.site}:{one.job_id}" if known else f"{(one.runs[0].sweep or one.runs[0]).directory}/"


def meant(
    found: Sequence[Submission], site: str | None, more: Callable[[], Iterable[Submission]] = tuple
) -> list[Submission]:
    """Return the submissions of the cluster that is meant; of all, where neither the word nor the environment says it.

    Args:
        found: What has the id.
        site: The site that was named with the id.
        more: Returns what had the id before it went on under another one.
    """
    fits = named(site)
    if not found or (fits and not any(fits(one.cluster) for one in found)):
        found = [*found, *more()]
    if site:
        return [one for one in found if one.cluster.site == site]
    if fits and len(found) > 1:
        return [one for one in found if fits(one.cluster)] or list(found)
    return list(found)


def newest(found: Iterable[Submission]) -> list[Submission]:
    """Return each cluster's newest submission, of some that are sorted so: that cluster has given the id again."""
    every = list(found)
    if len(every) < 2:
        return every
    first: dict[Cluster, Submission] = {}
    for one in every:
        first.setdefault(one.cluster, one)
    return list(first.values())


def require_one(found: Sequence[Submission]) -> None:
    """Make sure that no id means jobs of several clusters.

    Raises:
        AmbiguousError: One does.
    """
    for _, same in groupby(sorted(found, key=lambda one: one.job_id), key=lambda one: one.job_id):
        each = newest(same)
        if len(each) > 1:
            raise AmbiguousError(each)


def named(site: str | None) -> Callable[[Cluster], bool] | None:
    """Return what tells the cluster that somebody named: with the word, else in the environment.

    Args:
        site: The site that was named with the word.

    Returns:
        Whether a cluster is the one; None where nobody named any.
    """
    name = site or os.environ.get("HPCRUN_SITE")
    if name:
        stem = Path(name).stem if "/" in name or name.endswith(".toml") else name
        return lambda cluster: cluster.site == stem
    if conf := os.environ.get("SLURM_CONF"):
        return lambda cluster: bool(cluster.conf) and cluster.site != "local" and _same(cluster.conf, conf)
    return None


def _same(one: str, other: str) -> bool:
    return os.path.realpath(os.path.expandvars(one)) == os.path.realpath(other)
