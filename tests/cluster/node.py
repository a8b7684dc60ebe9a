"""The boot program of a node: mount its private file systems, then start sshd and slurmd.

It runs by path inside the node's namespaces, after its network has been set up.
"""

import subprocess
import sys
from pathlib import Path


def mount(*argv: str | Path) -> None:
    """Run mount(8) in this node's mount namespace."""
    subprocess.run(["mount", *argv], check=True)


def make_tmp_private(staging: Path, shared_paths: list[Path]) -> None:
    """Mount an empty /tmp that contains only the directories that all hosts share.

    Args:
        staging: The mount point until the new /tmp is complete.
        shared_paths: The shared directories; those outside /tmp are shared anyway.
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
    # Mount outer directories first, because their mounts would hide the inner ones.
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
