"""Whether a real Slurm can run here, and installing it where it may be."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster import cgroups
from tests.cluster.config import Config
from tests.cluster.errors import ClusterError, call

# Not slurm-wlm-emulator: it puts a slurmd that runs nothing in the place of slurmd.
# libpmix-dev: Slurm's plugin loads libpmix.so without a version, a link that only this package has.
PACKAGES = (
    *("slurm-wlm", "slurmdbd", "slurm-wlm-basic-plugins", "slurm-wlm-mysql-plugin", "munge", "mariadb-server"),
    *("openssh-server", "libpmix2", "libpmix-dev", "libpmi2-0", "libpmi0", "iproute2"),
)
NEEDED = {
    "/usr/sbin": ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "sshd"),
    "/usr/bin": ("srun", "mariadb-install-db", "mariadb-admin", "ssh", "ssh-keygen", "unshare", "nsenter", "setsid"),
    "/sbin": ("ip", "tc"),
    "/usr/lib": ("*/slurm*/accounting_storage_mysql.so", "*/slurm*/mpi_pmi2.so", "*/pmix2/lib/libpmix.so"),
}
POLICY = Path("/usr/sbin/policy-rc.d")


def forbidden() -> str | None:
    """Say why no cluster can run here, whatever is installed.

    Returns:
        The reason, None where there is none.
    """
    if sys.platform != "linux":
        return f"its nodes are namespaces of Linux, and this is {sys.platform}"
    if os.getuid() != 0:
        return "its nodes are namespaces that only root may make"
    return _refusal("mount -t tmpfs tmpfs /mnt")


def unavailable_reason(config: Config | None = None) -> str | None:
    """Say why no cluster can run here now.

    Args:
        config: Which one, where it asks for what cannot be had everywhere.

    Returns:
        The reason, None where one can.
    """
    if reason := forbidden():
        return reason
    lacking = [name for root, names in NEEDED.items() for name in names if not any(Path(root).glob(name))]
    if lacking:
        return f"not installed: {', '.join(lacking)}\nHINT: python -m tests.cluster install"
    if config and config.proctrack == "cgroup" and (reason := cgroups.refusal()):
        return reason
    return _refusal("ip link add type bridge && ip link add type veth")


def _refusal(probe: str) -> str | None:
    try:
        call("unshare", "--net", "--uts", "--ipc", "--pid", "--mount", "--fork", "sh", "-c", probe)
    except (ClusterError, OSError) as error:
        return f"namespaces do not work here: {error}"
    return None


def install() -> None:
    """Install what is missing with apt-get, without starting a service; where that may not be, say why."""
    if unavailable_reason() and not forbidden() and shutil.which("apt-get"):
        ours = not POLICY.exists()
        if ours:
            POLICY.write_text("#!/bin/sh\nexit 101\n")
            POLICY.chmod(0o755)
        try:
            _apt_get("update")
            _apt_get("install", "--yes", "--no-install-recommends", *PACKAGES)
        finally:
            if ours:
                POLICY.unlink()
    reason = unavailable_reason()
    print(f"SKIP real Slurm: {reason.splitlines()[0]}" if reason else "real Slurm: everything is installed")


def _apt_get(*argv: str) -> None:
    print("apt-get", *argv, flush=True)
    # A failure shows by what is missing afterwards, and apt-get has said why.
    subprocess.run(["apt-get", *argv], env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, check=False)
