"""What a node does when it boots: file systems of its own, then sshd and slurmd.

Run by path inside the node's namespaces, whose network is there already.
"""

import subprocess
import sys
from pathlib import Path


def mount(*argv: str | Path) -> None:
    """Mount something in this node only."""
    subprocess.run(["mount", *argv], check=True)


def make_tmp_private(staging: Path, shared_paths: list[Path]) -> None:
    """Give the node an empty /tmp, save for the directories that all hosts share.

    Args:
        staging: A directory to mount it on until it is complete.
        shared_paths: Those directories; one outside /tmp is shared anyway.
    """
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", staging)
    for path in shared_paths:
        if path.is_relative_to("/tmp") and path.is_dir():
            target = staging / path.relative_to("/tmp")
            target.mkdir(parents=True, exist_ok=True)
            mount("--bind", path, target)
    mount("--move", staging, "/tmp")


def main() -> None:
    """Boot the node."""
    name, *paths = sys.argv[1:]
    state, *shared_paths = map(Path, paths)
    mount("-t", "proc", "proc", "/proc")
    # Outer directories first: an inner one's mount would be hidden below theirs.
    make_tmp_private(state / "mnt", sorted({state, *(path.resolve() for path in shared_paths)}))
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    mount("--bind", state / "etc/hosts", "/etc/hosts")
    if (state / "cgroup").exists():
        mount("--bind", (state / "cgroup").resolve(), "/sys/fs/cgroup/freezer")
    Path("/run/sshd").mkdir()
    sshd = ["/usr/sbin/sshd", "-f", f"{state}/etc/sshd_config", "-E", f"{state}/log/{name}.sshd.log"]
    subprocess.run(sshd, check=True)
    subprocess.run(["slurmd", "-N", name], check=True)


if __name__ == "__main__":
    main()
