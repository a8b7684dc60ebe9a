"""Checks of host patterns and folders."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from hpcrun.scheduler import find_scheduler
from hpcrun.sites.lint.levels import finding_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Finding
    from hpcrun.sites.site_model import Site

# the names of these hosts belong to two different clusters
_SAMPLE_HOSTS = ("q", "z"), ("q7-x.example.org", "z7-x.example.org")
_NODE_LOCAL = re.compile(r"/(tmp|var/tmp|dev/shm|run)(/|$)")
# SLURM_JOB_ACCOUNT is known before the job starts, from --account
_JOB_VARIABLE = re.compile(r"\$\{(?!SLURM_JOB_ACCOUNT\})(SLURM_[A-Z_]+|TMPDIR)\}")


def too_wide_host_pattern(site: Site) -> Iterator[Finding]:
    """Warn of host patterns that match any host."""
    for pattern in site.hosts:
        if any(all(fnmatchcase(host, pattern) for host in hosts) for hosts in _SAMPLE_HOSTS):
            yield finding_at(
                ("hosts",),
                f'hosts has "{pattern}", which matches any host, so no other site is detected',
                "name this cluster's hosts, as in login*.mycluster.org",
            )


def unshared_run_root(site: Site) -> Iterator[Finding]:
    """Warn of a run root that other nodes, or processes outside the job, cannot see."""
    root, key = site.run_root, ("run_root",)
    fix = 'name a folder on a file system that all nodes share, such as "${HOME}/hpcrun-runs"'
    if find_scheduler(site.scheduler).has_queue and _NODE_LOCAL.match(root):
        yield finding_at(key, f'run_root = "{root}" is in a folder that is local to each node', fix)
    elif variable := _JOB_VARIABLE.search(root):
        problem = f'run_root = "{root}": hpcrun creates it before the job starts, when {variable[1]} has another value'
        yield finding_at(key, problem, fix)
    elif not root.startswith(("/", "~", "$")):
        yield finding_at(key, f'run_root = "{root}" is relative to the current directory', fix)


def doubtful_local_scratch(site: Site) -> Iterator[Finding]:
    """Warn of shared or relative folders in ``local_scratch``, and of folders that cleanup searches by default."""
    for number, folder in enumerate(site.local_scratch):
        if number and _NODE_LOCAL.match(folder) and not folder.startswith("/run"):
            yield finding_at(
                ("local_scratch",),
                f'local_scratch has "{folder}", which hpcrun cleanup searches by default',
                "remove it",
            )
        elif folder.rstrip("/") == site.run_root.rstrip("/"):
            problem = f'local_scratch has "{folder}", which is run_root: all nodes share it'
            yield finding_at(("local_scratch",), problem, "list folders that are local to each node, or none")
        elif not folder.startswith(("/", "~", "$")):
            problem = f'local_scratch has "{folder}", which is relative: a job that stages data there would fail'
            yield finding_at(("local_scratch",), problem, "name the folder from the root, as in /local/${USER}")
