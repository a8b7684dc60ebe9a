"""Whether a real Slurm can run here, and installing it where it may be."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster.errors import ClusterError, call

# Not slurm-wlm-emulator: it replaces slurmd by one that runs nothing.
PACKAGES = (
    "slurm-wlm slurmdbd munge slurm-wlm-mysql-plugin slurm-wlm-basic-plugins mariadb-server openssh-server"
    " libpmix2 libpmix-dev libpmi2-0 libpmi0 iproute2"
).split()
COMMANDS = (
    "slurmctld slurmd slurmdbd srun sbatch munged mariadbd mariadb-install-db mariadb-admin sshd ssh ssh-keygen"
    " ip tc unshare nsenter setsid mount"
).split()
PLUGINS = ("slurm*/accounting_storage_mysql.so", "slurm*/mpi_pmix.so", "slurm*/mpi_pmi2.so", "pmix2/lib/libpmix.so")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
POLICY = Path("/usr/sbin/policy-rc.d")


def forbidden() -> str | None:
    """Say why no cluster could run here, whatever were installed.

    Returns:
        The reason, None where there is none.
    """
    if sys.platform != "linux":
        return f"the nodes are namespaces of Linux, and this is {sys.platform}"
    if os.getuid() != 0:
        return "only root may make the nodes' namespaces"
    probe = ("unshare", "--net", "--uts", "--ipc", "--pid", "--mount", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt")
    try:
        call(*probe)
    except (ClusterError, OSError) as error:
        return f"namespaces are not to be had here: {error}"
    return None


def missing() -> str | None:
    """Say why no cluster can run here now.

    Returns:
        The reason, None where one can.
    """
    if reason := forbidden():
        return reason
    lacking = [name for name in COMMANDS if not shutil.which(name, path=SYSTEM_PATH)]
    lacking += [plugin for plugin in PLUGINS if not any(Path("/usr/lib").glob(f"*/{plugin}"))]
    if lacking:
        return f"not installed: {', '.join(lacking)}\nHINT: python -m tests.cluster install"
    return None


def install() -> None:
    """Install what is missing with apt-get, and start no service; say so in one line where that may not be."""
    if missing() is None:
        print("real Slurm: everything is installed")
        return
    reason = forbidden()
    if not reason and not shutil.which("apt-get"):
        reason = "there is no apt-get"
    if reason:
        print(f"SKIP real Slurm: {reason}")
        return
    ours = not POLICY.exists()
    if ours:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    try:
        for step in ("update", "--quiet"), ("install", "--yes", "--no-install-recommends", *PACKAGES):
            print(f"apt-get {' '.join(step)}", flush=True)
            subprocess.run(["apt-get", *step], env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, check=True)
    except subprocess.CalledProcessError as error:
        print(f"SKIP real Slurm: `{' '.join(error.cmd)}` exited {error.returncode}")
    finally:
        if ours:
            POLICY.unlink()
    if reason := missing():
        print(f"SKIP real Slurm: {reason}")
