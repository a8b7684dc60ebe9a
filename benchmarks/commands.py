"""Run times of hpcrun's commands, compared with similar programs.

    make bench

The program prints the ratio of the medians of interleaved runs, because single times on a shared machine vary. It
installs torchx into .venv-bench, and starts a Slurm for the real submission (which needs root, like `make cluster`).
"""

from __future__ import annotations

import os
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


def run_time_ms(command: list[str], environment: dict[str, str]) -> float:
    """Return the run time of a command; a failure is an error."""
    begin = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return (time.perf_counter() - begin) * 1000


@dataclass
class Pair:
    """Median run times of two commands that ran alternately.

    Attributes:
        hpcrun: The time of hpcrun, in ms.
        other: The time of the other program, in ms.
    """

    hpcrun: float
    other: float


def measure(hpcrun: list[str], other: list[str], environment: dict[str, str] | None = None) -> Pair:
    """Measure two commands alternately."""
    environment = environment or dict(os.environ)
    for command in (hpcrun, other):
        run_time_ms(command, environment)  # the first run fills the page cache
    times = [(run_time_ms(hpcrun, environment), run_time_ms(other, environment)) for _ in range(RUNS)]
    return Pair(*(statistics.median(column) for column in zip(*times, strict=True)))


def print_row(name: str, pair: Pair, value: str, goal: str) -> None:
    """Print one line of the table."""
    print(f"{name:44} {pair.hpcrun:6.0f} ms  {pair.other:6.0f} ms  {value:>10}  {goal}", flush=True)


def main() -> None:
    """Measure all commands."""
    print(f"{'hpcrun : other program':44} {'hpcrun':>9}  {'other':>9}  {'':>10}  goal")
    pair = measure([str(BIN / "hpcrun"), "--help"], [sys.executable, "-c", "import typer"])
    print_row("--help : python -c 'import typer'", pair, f"{pair.hpcrun / pair.other:.2f} x", "at most 1.5 x")

    if not TORCHX.exists():
        print("installing torchx into .venv-bench ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(ROOT / ".venv-bench")], check=True)
        subprocess.run([str(TORCHX.parent / "pip"), "install", "--quiet", "torchx==0.7.0"], check=True)
    pair = measure([*SUBMIT, "--dry-run"], [str(TORCHX), "run", "--dryrun", "-s", "slurm", "utils.echo"])
    print_row(
        "submit lenet5 --dry-run : torchx run --dryrun", pair, f"{pair.hpcrun / pair.other:.2f} x", "at most 0.8 x"
    )

    if reason := unavailable_reason():
        print(f"submit lenet5 : sbatch                       SKIP: {reason}")
        return
    with Cluster(Config("bench", accounting=False)) as cluster:
        home = {name: str(cluster.shared / name) for name in ("HPCRUN_RUN_ROOT", "XDG_STATE_HOME")}
        environment = {**cluster.environ, **home}
        held = "--sbatch=--hold"  # measure only the submission
        script = cluster.shared / "job.sh"
        script.write_bytes(subprocess.check_output([*SUBMIT, "--dry-run"], env=environment, stderr=subprocess.DEVNULL))
        sbatch = ["sbatch", "--hold", "--parsable", "--output=/dev/null", str(script)]
        pair = measure([*SUBMIT, held], sbatch, environment)
        print_row(
            "submit lenet5 : sbatch, a real job", pair, f"+ {pair.hpcrun - pair.other:.0f} ms", "at most + 220 ms"
        )


if __name__ == "__main__":
    main()
