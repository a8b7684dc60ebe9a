"""Benchmark of commands that run on all nodes, on a Slurm cluster of this machine (which needs root).

    python benchmarks/nodes.py [NODES]

All nodes share the cores of this machine. So a command takes at least its CPU time, including the CPU time on the
nodes, divided by the number of cores. On a busy machine, only the CPU time is meaningful; the program reads it from its
control group.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.cluster import Cluster, Config, unavailable_reason  # noqa: E402

NODES = int(sys.argv[1]) if len(sys.argv) > 1 else 64
RUNS = 3
HPCRUN = str(Path(sys.executable).parent / "hpcrun")
GROUP = Path(f"/sys/fs/cgroup/cpuacct/hpcrun-bench-{os.getpid()}")
JOB = ["--site", "slurm", "--nodes", str(NODES), "--ntasks-per-node", "1"]
COMMANDS = {
    "srun true": (["srun", "--nodes", str(NODES), "true"], None),
    "hpcrun submit --wait -- true": ([HPCRUN, "submit", *JOB, "--wait", "--", "true"], 1.6),
    "hpcrun cleanup last --yes": ([HPCRUN, "cleanup", "last", "--yes"], 3),
    "hpcrun doctor --in-job": ([HPCRUN, "doctor", "slurm", "--in-job", "--nodes", str(NODES)], 10),
}
"""The commands, and the goal for the run time of each, in seconds."""


def cpu_seconds() -> float:
    """Return the CPU time of all processes of this program and of the nodes."""
    return int((GROUP / "cpuacct.usage").read_text()) / 1e9


def measure(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return a command's run time, and its CPU time with that of the nodes; raise an error if the command fails."""
    used, begin = cpu_seconds(), time.perf_counter()
    result = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    if result.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    time.sleep(1)  # wait until Slurm has ended the job
    return seconds, cpu_seconds() - used


def main() -> None:
    """Measure all commands."""
    if reason := unavailable_reason() or ("" if GROUP.parent.exists() else f"{GROUP.parent} does not exist"):
        sys.exit(f"SKIP: {reason}")
    GROUP.mkdir()
    (GROUP / "cgroup.procs").write_text(str(os.getpid()))
    try:
        with Cluster(Config("bench", nodes=NODES, gpus=0, accounting=False)) as cluster:
            home = {name: str(cluster.shared / name) for name in ("HPCRUN_RUN_ROOT", "XDG_STATE_HOME")}
            print(f"{NODES} nodes, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}")
            print(f"{'':30} {'run time':>9} {'CPU time':>9} {'by cores':>9}  goal")
            for name, (command, goal) in COMMANDS.items():
                times = [measure(command, {**cluster.environ, **home}) for _ in range(RUNS)]
                seconds, used = map(min, zip(*times, strict=True))
                row = f"{seconds:7.1f} s {used:7.1f} s {used / (os.cpu_count() or 1):7.1f} s"
                print(f"{name:30} {row}  {f'{goal:g} s' if goal else ''}", flush=True)
    finally:
        (GROUP.parent / "cgroup.procs").write_text(str(os.getpid()))
        GROUP.rmdir()


if __name__ == "__main__":
    main()
