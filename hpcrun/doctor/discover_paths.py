"""Discovery of shared file systems and host names of a cluster."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.doctor import mounts
from hpcrun.doctor.discover_partitions import DiscoveredValue
from hpcrun.nodelist import expand_nodelist

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLES = ("SCRATCH", "PSCRATCH", "HPCWORK", "WORK", "WORKDIR", "HOME")
"""Variables that clusters set to file systems for jobs, the fastest first."""

_MAX_PATTERNS = 12
_CLUSTER = ("NERSC_HOST", "SYSTEMNAME", "LMOD_SYSTEM_NAME", "CLUSTER_NAME", "CLUSTERNAME")


def discover_run_root(environ: Mapping[str, str]) -> DiscoveredValue:
    """Return the run root: in the first variable's folder on a network file system, else in the first one."""
    there = [name for name in VARIABLES if environ.get(name) and os.access(environ[name], os.W_OK)]
    kinds = {name: mounts.find_mount(Path(environ[name]))[0] for name in there}
    for name in [*(name for name in there if kinds[name] in mounts.NETWORK_TYPES), *there[:1]]:
        folder = "~/hpcrun-runs" if name == "HOME" else f"${{{name}}}/hpcrun-runs"
        source = f"${name} is {environ[name]}, on {kinds[name] or 'an unknown file system'}"
        if kinds[name] in mounts.NETWORK_TYPES:
            return DiscoveredValue(folder, source)
        return DiscoveredValue(folder, f"TODO: {source}: all nodes must see it, which could not be checked")
    return DiscoveredValue("~/hpcrun-runs", "TODO: all nodes must see it, which could not be checked")


def discover_hosts(host: str, nodes: list[str]) -> list[str]:
    """Return host patterns of this host and of the nodes; of this host only if there are too many.

    Args:
        host: This host's name.
        nodes: Slurm's node lists, such as ``gpu[01-16]``.
    """
    patterns = sorted({_host_pattern(one) for names in nodes if names for one in expand_nodelist(names)})
    return list(dict.fromkeys([_host_pattern(host), *(patterns if len(patterns) <= _MAX_PATTERNS else [])]))


def _host_pattern(host: str) -> str:
    """Return a host pattern with any number; with [0-9], n[0-9]* does not match notebook."""
    parts = re.match(r"([^0-9.]+)[0-9][^.]*(\..*)?$", host)
    return f"{parts[1]}[0-9]*{parts[2] or ''}" if parts else host


def discover_cluster_variable(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variable with the cluster's name, and its value."""
    return next(({name: environ[name]} for name in _CLUSTER if environ.get(name)), {})


def discover_slurm_conf(environ: Mapping[str, str]) -> DiscoveredValue | None:
    """Return SLURM_CONF of this shell, except inside a job, where it is the node's."""
    named = "" if "SLURM_JOB_ID" in environ else environ.get("SLURM_CONF")
    return DiscoveredValue(str(Path(named).absolute()), "$SLURM_CONF, used to query Slurm") if named else None


def discover_local_scratch(tmp_fs: str) -> list[str]:
    """Return Slurm's TmpFS of the nodes, unless hpcrun searches it by default."""
    usual = {"", "/tmp", "/var/tmp", "/dev/shm", "(null)"}  # noqa: S108 - names, in which nothing is made
    return [] if tmp_fs in usual or "%" in tmp_fs else [tmp_fs]
