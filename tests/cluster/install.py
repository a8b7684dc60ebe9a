"""Requirements of a real Slurm on this machine, and their installation."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster import cgroups
from tests.cluster.config import Config
from tests.cluster.errors import ClusterError, call

# Not slurm-wlm-emulator, which replaces slurmd by one that runs nothing.
# libpmix-dev: Slurm's plugin loads libpmix.so without a version, which only this package provides.
PACKAGES = (
    *("slurm-wlm", "slurmdbd", "slurm-wlm-basic-plugins", "slurm-wlm-mysql-plugin", "munge", "mariadb-server"),
    *("openssh-server", "libpmix2", "libpmix-dev", "libpmi2-0", "libpmi0", "iproute2"),
)
REQUIRED_FILES = {
    "/usr/sbin": ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "sshd"),
    "/usr/bin": ("srun", "mariadb-install-db", "mariadb-admin", "ssh", "ssh-keygen", "unshare", "nsenter", "setsid"),
    "/sbin": ("ip", "tc"),
    "/usr/lib": ("*/slurm*/accounting_storage_mysql.so", "*/slurm*/mpi_pmi2.so", "*/pmix2/lib/libpmix.so"),
}
POLICY = Path("/usr/sbin/policy-rc.d")


def unsupported_reason() -> str | None:
    """Return why this machine cannot run a cluster, whatever is installed.

    Returns:
        The reason, or None if it can.
    """
    if sys.platform != "linux":
        return f"the nodes are Linux namespaces, and this system is {sys.platform}"
    if os.getuid() != 0:
        return "the nodes are namespaces, which only root can create"
    return _namespace_error("mount -t tmpfs tmpfs /mnt")


def unavailable_reason(config: Config | None = None) -> str | None:
    """Return why this machine cannot run a cluster now.

    Args:
        config: The cluster's configuration, if it may need optional kernel features.

    Returns:
        The reason, or None if it can.
    """
    if reason := unsupported_reason():
        return reason
    missing = [name for root, names in REQUIRED_FILES.items() for name in names if not any(Path(root).glob(name))]
    if missing:
        return f"not installed: {', '.join(missing)}\nHINT: python -m tests.cluster install"
    if config and config.proctrack == "cgroup" and (reason := cgroups.unavailable_reason()):
        return reason
    return _namespace_error("ip link add type bridge && ip link add type veth")


def _namespace_error(probe: str) -> str | None:
    try:
        call("unshare", "--net", "--uts", "--ipc", "--pid", "--mount", "--fork", "sh", "-c", probe)
    except (ClusterError, OSError) as error:
        return f"this machine cannot create namespaces: {error}"
    return None


def install() -> None:
    """Install missing packages with apt-get, without starting services; print why a real Slurm is unavailable."""
    if unavailable_reason() and not unsupported_reason() and shutil.which("apt-get"):
        policy_is_new = not POLICY.exists()
        if policy_is_new:
            POLICY.write_text("#!/bin/sh\nexit 101\n")
            POLICY.chmod(0o755)
        try:
            _apt_get("update")
            _apt_get("install", "--yes", "--no-install-recommends", *PACKAGES)
        finally:
            if policy_is_new:
                POLICY.unlink()
    reason = unavailable_reason()
    print(f"SKIP real Slurm: {reason.splitlines()[0]}" if reason else "real Slurm: everything is installed")


def _apt_get(*argv: str) -> None:
    print("apt-get", *argv, flush=True)
    # The caller checks afterwards what is still missing; apt-get has printed the reason.
    subprocess.run(["apt-get", *argv], env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, check=False)
