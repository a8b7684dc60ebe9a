"""File systems that nodes probably share, and names that a cluster's hosts have."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.doctor import mounts
from hpcrun.doctor.discover_partitions import DiscoveredValue
from hpcrun.nodelist import expand

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLES = ("SCRATCH", "PSCRATCH", "HPCWORK", "WORK", "WORKDIR", "HOME")
"""By which clusters name file systems for their users' jobs, the fastest first."""

_MAX_PATTERNS = 12
_CLUSTER = ("NERSC_HOST", "SYSTEMNAME", "LMOD_SYSTEM_NAME", "CLUSTER_NAME", "CLUSTERNAME")


def discover_run_root(environ: Mapping[str, str]) -> DiscoveredValue:
    """Return where run directories go: on the network's first file system that a variable names, else on the first."""
    there = [name for name in VARIABLES if environ.get(name) and os.access(environ[name], os.W_OK)]
    kinds = {name: mounts.find_mount(Path(environ[name]))[0] for name in there}
    for name in [*(name for name in there if kinds[name] in mounts.NETWORK_TYPES), *there[:1]]:
        folder = "~/hpcrun-runs" if name == "HOME" else f"${{{name}}}/hpcrun-runs"
        source = f"${name} is {environ[name]}, on {kinds[name] or 'an unknown file system'}"
        if kinds[name] in mounts.NETWORK_TYPES:
            return DiscoveredValue(folder, source)
        return DiscoveredValue(folder, f"TODO: {source}: all nodes must see it, and nobody here knows")
    return DiscoveredValue("~/hpcrun-runs", "TODO: all nodes must see it, and nobody here knows whether they do")


def discover_hosts(host: str, nodes: list[str]) -> list[str]:
    """Return patterns of this host's name, and of nodes' names; of too many kinds of them, this host's alone.

    Args:
        host: This host's name.
        nodes: Slurm's node lists, such as ``gpu[01-16]``.
    """
    patterns = sorted({_host_pattern(one) for names in nodes if names for one in expand(names)})
    return list(dict.fromkeys([_host_pattern(host), *(patterns if len(patterns) <= _MAX_PATTERNS else [])]))


def _host_pattern(host: str) -> str:
    """Return a pattern for hosts of all numbers; [0-9] keeps n[0-9]* from a host of the name notebook."""
    parts = re.match(r"([^0-9.]+)[0-9][^.]*(\..*)?$", host)
    return f"{parts[1]}[0-9]*{parts[2] or ''}" if parts else host


def discover_cluster_variable(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a variable by which the cluster tells its name, and the name."""
    return next(({name: environ[name]} for name in _CLUSTER if environ.get(name)), {})


def discover_slurm_conf(environ: Mapping[str, str]) -> DiscoveredValue | None:
    """Return which Slurm was asked, where this user's shell says so: in a job, it is the node."""
    named = "" if "SLURM_JOB_ID" in environ else environ.get("SLURM_CONF")
    return DiscoveredValue(str(Path(named).absolute()), "$SLURM_CONF, with which Slurm was asked") if named else None


def discover_local_scratch(tmp_fs: str) -> list[str]:
    """Return the folder for temporary files that Slurm knows of each node, where hpcrun would not look anyway."""
    usual = {"", "/tmp", "/var/tmp", "/dev/shm", "(null)"}  # noqa: S108 - names, in which nothing is made
    return [] if tmp_fs in usual or "%" in tmp_fs else [tmp_fs]
