"""Control groups for proctrack/cgroup: each cluster has a directory in the freezer of cgroup v1.

Slurm 22.05 needs only a cgroup.conf and a writable freezer at the usual path. Each node mounts its cluster's directory
there, because Slurm names control groups after node and job only, and other clusters may use the same names. Slurm
refuses cgroup v2 where v1 hierarchies are mounted too, as on many machines that run these tests.
"""

from pathlib import Path

from tests.cluster.config import Config
from tests.cluster.errors import ClusterError, wait_for

FREEZER = Path("/sys/fs/cgroup/freezer")
LINK = "cgroup"


def unavailable_reason() -> str | None:
    """Return why clusters on this machine cannot use proctrack/cgroup.

    Returns:
        The reason, or None if they can.
    """
    if not (FREEZER / "cgroup.procs").exists():
        return f"proctrack/cgroup needs the freezer of cgroup v1, which is not mounted at {FREEZER}"
    probe = FREEZER / "hpcrun-probe"
    try:
        probe.mkdir(exist_ok=True)
        _remove(probe)
    except OSError as error:
        return f"proctrack/cgroup needs a writable freezer: {error}"
    return None


def _cluster_group(config: Config) -> Path:
    # The name includes this pid namespace, because another one may have a cluster of the same name.
    return FREEZER / f"hpcrun-{config.name}-{Path('/proc/self/ns/pid').stat().st_ino}"


def create_group(config: Config) -> None:
    """Create a cluster's control group, and a link to it that its nodes mount.

    Args:
        config: The cluster.

    Raises:
        ClusterError: This machine does not support proctrack/cgroup.
    """
    if reason := unavailable_reason():
        raise ClusterError(reason)
    group = _cluster_group(config)
    group.mkdir(exist_ok=True)
    (config.state / LINK).symlink_to(group)


def remove_group(config: Config) -> None:
    """Remove a cluster's control group, if it exists, when its processes have ended."""
    cluster_group = _cluster_group(config)

    def is_removed() -> bool:
        try:
            for group in sorted(cluster_group.rglob("*/"), reverse=True):
                _remove(group)
            _remove(cluster_group)
        except OSError:
            return False
        return True

    if cluster_group.exists():
        wait_for(f"the removal of {cluster_group}", is_removed, 10, cluster_group / "cgroup.procs")


def _remove(group: Path) -> None:
    if group.is_dir():
        group.rmdir()
