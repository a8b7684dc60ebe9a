"""Benchmark of hpcrun's commands against similar programs.

    make bench

The program prints the ratio of the medians of interleaved runs, because single run times vary on a shared machine, and
the ratio or difference of the minimum CPU times, which vary less. The program installs torchx into .venv-bench, and
starts a Slurm cluster for the real submission (which needs root, as `make cluster` does).
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.cluster import Cluster, Config, unavailable_reason  # noqa: E402

RUNS = 25
BIN = Path(sys.executable).parent
TORCHX = ROOT / ".venv-bench/bin/torchx"
SUBMIT = [str(BIN / "hpcrun"), "submit", "lenet5", "--site", "slurm"]


def measure_run(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the run time and CPU time of a command in ms; raise an error if the command fails."""
    begin, used = time.perf_counter(), _cpu_seconds()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return (time.perf_counter() - begin) * 1000, (_cpu_seconds() - used) * 1000


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclass
class Pair:
    """Median run times and minimum CPU times of two commands that ran alternately.

    Attributes:
        hpcrun: The time of hpcrun, in ms.
        other: The time of the other program, in ms.
        hpcrun_cpu: The CPU time of hpcrun, in ms.
        other_cpu: The CPU time of the other program, in ms.
    """

    hpcrun: float
    other: float
    hpcrun_cpu: float
    other_cpu: float

    @property
    def ratio(self) -> str:
        """The ratios of the run times and of the CPU times."""
        return f"{self.hpcrun / self.other:.2f} x (CPU {self.hpcrun_cpu / self.other_cpu:.2f} x)"

    @property
    def difference(self) -> str:
        """The differences of the run times and of the CPU times."""
        return f"+ {self.hpcrun - self.other:.0f} ms (CPU + {self.hpcrun_cpu - self.other_cpu:.0f} ms)"


def measure(hpcrun: list[str], other: list[str], environment: dict[str, str] | None = None) -> Pair:
    """Measure two commands alternately."""
    environment = {**(environment or os.environ), "PYTHONDONTWRITEBYTECODE": ""}  # installed programs have bytecode
    for command in (hpcrun, other):
        measure_run(command, environment)  # the first run fills the page cache
    runs = [[measure_run(command, environment) for command in (hpcrun, other)] for _ in range(RUNS)]
    times, cpu_times = ([[run[index] for run in pair] for pair in runs] for index in (0, 1))
    return Pair(*map(statistics.median, zip(*times, strict=True)), *map(min, zip(*cpu_times, strict=True)))


def print_row(name: str, pair: Pair, value: str, goal: str) -> None:
    """Print one line of the table."""
    print(f"{name:44} {pair.hpcrun:6.0f} ms  {pair.other:6.0f} ms  {value:>24}  {goal}", flush=True)


def main() -> None:
    """Measure all commands."""
    print(f"{'hpcrun : other program':44} {'hpcrun':>9}  {'other':>9}  {'':>24}  goal")
    pair = measure([str(BIN / "hpcrun"), "--help"], [sys.executable, "-c", "import typer"])
    print_row("--help : python -c 'import typer'", pair, pair.ratio, "at most 1.5 x")

    if not TORCHX.exists():
        print("installing torchx into .venv-bench ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(ROOT / ".venv-bench")], check=True)
        subprocess.run([str(TORCHX.parent / "pip"), "install", "--quiet", "torchx==0.7.0"], check=True)
    pair = measure([*SUBMIT, "--dry-run"], [str(TORCHX), "run", "--dryrun", "-s", "slurm", "utils.echo"])
    print_row("submit lenet5 --dry-run : torchx run --dryrun", pair, pair.ratio, "at most 0.5 x")

    if reason := unavailable_reason():
        print(f"submit lenet5 : sbatch                       SKIP: {reason}")
        return
    with Cluster(Config("bench", accounting=False)) as cluster:
        home = {name: str(cluster.shared / name) for name in ("HPCRUN_RUN_ROOT", "XDG_STATE_HOME")}
        environment = {**cluster.environ, **home}
        held = "--sbatch=--hold"  # hold the job, to measure only the submission
        script = cluster.shared / "job.sh"
        script.write_bytes(subprocess.check_output([*SUBMIT, "--dry-run"], env=environment, stderr=subprocess.DEVNULL))
        sbatch = ["sbatch", "--hold", "--parsable", "--output=/dev/null", str(script)]
        pair = measure([*SUBMIT, held], sbatch, environment)
        print_row("submit lenet5 : sbatch, a real job", pair, pair.difference, "at most + 220 ms")


if __name__ == "__main__":
    main()
