"""How long hpcrun's commands take, beside what they are measured against, in one run.

    make bench

Prints the ratio of the medians of interleaved runs; single times on a shared machine say little. torchx is installed
into .venv-bench; the real submission goes to a Slurm that this program starts (it needs root, as `make cluster` does).
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


def milliseconds(command: list[str], environment: dict[str, str]) -> float:
    """Return how long a command takes; it must succeed."""
    begin = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return (time.perf_counter() - begin) * 1000


@dataclass
class Pair:
    """Medians of two commands that took turns.

    Attributes:
        ours: Of hpcrun, in ms.
        theirs: Of what it is measured against, in ms.
    """

    ours: float
    theirs: float


def measure(ours: list[str], theirs: list[str], environment: dict[str, str] | None = None) -> Pair:
    """Run two commands in turn."""
    environment = environment or dict(os.environ)
    for command in (ours, theirs):
        milliseconds(command, environment)  # a first run reads files that later ones find in memory
    times = [(milliseconds(ours, environment), milliseconds(theirs, environment)) for _ in range(RUNS)]
    return Pair(*(statistics.median(column) for column in zip(*times, strict=True)))


def report(what: str, pair: Pair, value: str, goal: str) -> None:
    """Print one line of the table."""
    print(f"{what:44} {pair.ours:6.0f} ms  {pair.theirs:6.0f} ms  {value:>10}  {goal}", flush=True)


def main() -> None:
    """Measure all."""
    print(f"{'hpcrun beside ...':44} {'hpcrun':>9}  {'other':>9}  {'':>10}  goal")
    pair = measure([str(BIN / "hpcrun"), "--help"], [sys.executable, "-c", "import typer"])
    report("--help : python -c 'import typer'", pair, f"{pair.ours / pair.theirs:.2f} x", "at most 1.6 x")

    if not TORCHX.exists():
        print("installing torchx into .venv-bench ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(ROOT / ".venv-bench")], check=True)
        subprocess.run([str(TORCHX.parent / "pip"), "install", "--quiet", "torchx==0.7.0"], check=True)
    pair = measure([*SUBMIT, "--dry-run"], [str(TORCHX), "run", "--dryrun", "-s", "slurm", "utils.echo"])
    report("submit lenet5 --dry-run : torchx run --dryrun", pair, f"{pair.ours / pair.theirs:.2f} x", "at most 0.8 x")

    if reason := unavailable_reason():
        print(f"submit lenet5 : sbatch                       SKIP: {reason}")
        return
    with Cluster(Config("bench", accounting=False)) as cluster:
        home = {name: str(cluster.shared / name) for name in ("HPCRUN_RUN_ROOT", "XDG_STATE_HOME")}
        environment = {**cluster.environ, **home}
        held = "--sbatch=--hold"  # the jobs are not to run: only their submission is measured
        script = cluster.shared / "job.sh"
        script.write_bytes(subprocess.check_output([*SUBMIT, "--dry-run"], env=environment, stderr=subprocess.DEVNULL))
        sbatch = ["sbatch", "--hold", "--parsable", "--output=/dev/null", str(script)]
        pair = measure([*SUBMIT, held], sbatch, environment)
        report("submit lenet5 : sbatch, a real job", pair, f"+ {pair.ours - pair.theirs:.0f} ms", "at most + 150 ms")


if __name__ == "__main__":
    main()
