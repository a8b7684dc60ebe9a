"""Control groups, by which proctrack/cgroup knows a job's processes: each cluster has a part of v1's freezer.

Slurm 22.05 needs no more than a cgroup.conf, and a freezer that it may write to where it expects one. Each node sees
its cluster's part there, because Slurm names its groups by node and job alone, and other clusters may have equal ones.
cgroup v2 is refused by Slurm wherever v1 hierarchies are mounted too, as on many machines where tests run.
"""

from pathlib import Path

from tests.cluster.config import Config
from tests.cluster.errors import ClusterError, wait_for

FREEZER = Path("/sys/fs/cgroup/freezer")
LINK = "cgroup"


def refusal() -> str | None:
    """Say why no cluster here can have proctrack/cgroup.

    Returns:
        The reason, None where one can.
    """
    if not (FREEZER / "cgroup.procs").exists():
        return f"proctrack/cgroup needs the freezer of cgroup v1, which is not mounted at {FREEZER}"
    probe = FREEZER / "hpcrun-probe"
    try:
        probe.mkdir(exist_ok=True)
        _remove(probe)
    except OSError as error:
        return f"proctrack/cgroup needs a freezer that may be written to: {error}"
    return None


def _part(config: Config) -> Path:
    # Named after this pid namespace too: in another one may be a cluster of the same name.
    return FREEZER / f"hpcrun-{config.name}-{Path('/proc/self/ns/pid').stat().st_ino}"


def make(config: Config) -> None:
    """Make a cluster's part, and a link to it that its nodes mount.

    Args:
        config: The cluster.

    Raises:
        ClusterError: It cannot be had here.
    """
    if reason := refusal():
        raise ClusterError(reason)
    part = _part(config)
    part.mkdir(exist_ok=True)
    (config.state / LINK).symlink_to(part)


def remove(config: Config) -> None:
    """Remove a cluster's part, if there is one, once its processes have ended."""
    part = _part(config)

    def gone() -> bool:
        try:
            for group in sorted(part.rglob("*/"), reverse=True):
                _remove(group)
            _remove(part)
        except OSError:
            return False
        return True

    if part.exists():
        wait_for(f"the end of {part} is", gone, 10, part / "cgroup.procs")


def _remove(group: Path) -> None:
    if group.is_dir():
        group.rmdir()
