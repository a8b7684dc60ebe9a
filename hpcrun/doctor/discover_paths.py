"""Discovery of a cluster's shared file systems, host names and slurm.conf."""

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

SCRATCH_VARIABLES = ("SCRATCH", "PSCRATCH", "HPCWORK", "WORK", "WORKDIR", "HOME")
"""Environment variables in which clusters name file systems for jobs, the fastest file system first."""

_MAX_HOST_PATTERNS = 12
_CLUSTER_VARIABLES = ("NERSC_HOST", "SYSTEMNAME", "LMOD_SYSTEM_NAME", "CLUSTER_NAME", "CLUSTERNAME")


def discover_run_root(environ: Mapping[str, str]) -> DiscoveredValue:
    """Return the run root.

    The run root is in the first folder that a variable of `SCRATCH_VARIABLES` names on a network file system; else it
    is in the first writable folder.
    """
    writable_names = [name for name in SCRATCH_VARIABLES if environ.get(name) and os.access(environ[name], os.W_OK)]
    types_by_name = {name: mounts.find_mount(Path(environ[name]))[0] for name in writable_names}
    for name in [
        *(name for name in writable_names if types_by_name[name] in mounts.NETWORK_TYPES),
        *writable_names[:1],
    ]:
        folder = "~/hpcrun-runs" if name == "HOME" else f"${{{name}}}/hpcrun-runs"
        source = f"${name} is {environ[name]}, on {types_by_name[name] or 'an unknown file system'}"
        if types_by_name[name] in mounts.NETWORK_TYPES:
            return DiscoveredValue(folder, source)
        return DiscoveredValue(folder, f"TODO: {source}: all nodes must see it, which could not be checked")
    return DiscoveredValue("~/hpcrun-runs", "TODO: all nodes must see it, which could not be checked")


def discover_hosts(host: str, nodes: list[str]) -> list[str]:
    """Return the host patterns of this host and of the nodes; if there are too many, only the pattern of this host.

    Args:
        host: This host's name.
        nodes: Slurm's node lists, such as ``gpu[01-16]``.
    """
    patterns = sorted({_host_pattern(one) for names in nodes if names for one in expand_nodelist(names)})
    return list(dict.fromkeys([_host_pattern(host), *(patterns if len(patterns) <= _MAX_HOST_PATTERNS else [])]))


def _host_pattern(host: str) -> str:
    """Return a host pattern with any number: ``n[0-9]*`` for n12, which does not match ``notebook``."""
    parts = re.match(r"([^0-9.]+)[0-9][^.]*(\..*)?$", host)
    return f"{parts[1]}[0-9]*{parts[2] or ''}" if parts else host


def discover_cluster_variable(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variable that contains the cluster's name, and its value; empty if none is set."""
    return next(({name: environ[name]} for name in _CLUSTER_VARIABLES if environ.get(name)), {})


def discover_slurm_conf(environ: Mapping[str, str]) -> DiscoveredValue | None:
    """Return SLURM_CONF of this shell; None inside a job, in which SLURM_CONF is a path on the node."""
    slurm_conf = "" if "SLURM_JOB_ID" in environ else environ.get("SLURM_CONF")
    return DiscoveredValue(str(Path(slurm_conf).absolute()), "$SLURM_CONF, used to query Slurm") if slurm_conf else None


def discover_local_scratch(tmp_fs: str) -> list[str]:
    """Return Slurm's TmpFS, the temporary folder of nodes, unless hpcrun searches it by default."""
    default_folders = {"", "/tmp", "/var/tmp", "/dev/shm", "(null)"}  # noqa: S108 - only compared
    return [] if tmp_fs in default_folders or "%" in tmp_fs else [tmp_fs]
