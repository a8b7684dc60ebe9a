"""File systems that nodes probably share, and names that a cluster's hosts have."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.survey.slurm import Fact

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLES = ("SCRATCH", "PSCRATCH", "HPCWORK", "WORK", "WORKDIR", "HOME")
"""By which clusters name file systems for their users' jobs, the fastest first."""

_SHARED = {
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "panfs", "wekafs", "afs", "glusterfs",
    "orangefs", "pvfs2", "quobyte", "fuse.ceph", "fuse.glusterfs", "fuse.quobyte", "fuse.juicefs", "cifs", "dvs",
    "virtiofs", "9p",
}  # fmt: skip
_MOST_PATTERNS = 12
_CLUSTER = ("NERSC_HOST", "SYSTEMNAME", "LMOD_SYSTEM_NAME", "CLUSTER_NAME", "CLUSTERNAME")


def run_root(environ: Mapping[str, str], mounts: str) -> Fact:
    """Return where run directories go: on the network's first file system that a variable names, else on the first.

    Args:
        environ: The environment.
        mounts: The text of /proc/self/mountinfo.
    """
    types = _types(mounts)
    there = [name for name in VARIABLES if environ.get(name) and os.access(environ[name], os.W_OK)]
    kinds = {name: _type(Path(environ[name]).resolve(), types) for name in there}
    for name in [*(name for name in there if kinds[name] in _SHARED), *there[:1]]:
        folder = "~/hpcrun-runs" if name == "HOME" else f"${{{name}}}/hpcrun-runs"
        if kinds[name] in _SHARED:
            return Fact(folder, f"${name} is {environ[name]}, on {kinds[name]}")
        source = f"${name} is {environ[name]}, on {kinds[name]}: all nodes must see it, and nobody here knows"
        return Fact(folder, f"TODO: {source}")
    return Fact("~/hpcrun-runs", "TODO: all nodes must see it, and nobody here knows whether they do")


def _types(mounts: str) -> dict[str, str]:
    """Return file systems' types by where they are mounted (proc_pid_mountinfo(5))."""
    types = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if len(before.split()) > 4 and after:
            types[re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4])] = after.split()[0]
    return types


def _type(folder: Path, types: dict[str, str]) -> str:
    return next((types[str(one)] for one in (folder, *folder.parents) if str(one) in types), "an unknown file system")


def hosts(host: str, nodes: list[str]) -> list[str]:
    """Return patterns of this host's name, and of nodes' names; of too many kinds of them, this host's alone.

    Args:
        host: This host's name.
        nodes: Slurm's node lists, such as ``gpu[01-16]``.
    """
    names = {one for names in nodes for one in re.split(r",(?![^\[]*\])", names) if one}
    patterns = sorted({_pattern(one) for one in names})
    return list(dict.fromkeys([_pattern(host), *(patterns if len(patterns) <= _MOST_PATTERNS else [])]))


def _pattern(host: str) -> str:
    """Return a pattern for hosts of all numbers; [0-9] keeps n[0-9]* from a host of the name notebook."""
    parts = re.match(r"([^0-9.\[]+)[0-9\[][^.]*(\..*)?$", host)
    return f"{parts[1]}[0-9]*{parts[2] or ''}" if parts else host


def detect(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a variable by which the cluster tells its name, and the name."""
    return next(({name: environ[name]} for name in _CLUSTER if environ.get(name)), {})


def local_scratch(tmp_fs: str) -> list[str]:
    """Return the folder for temporary files that Slurm knows of each node, where hpcrun would not look anyway."""
    usual = {"", "/tmp", "/var/tmp", "/dev/shm", "(null)"}  # noqa: S108 - names, in which nothing is made
    return [] if tmp_fs in usual or "%" in tmp_fs else [tmp_fs]
