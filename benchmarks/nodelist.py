"""Benchmark of the expansion of nodelists of 100,000 hosts against ClusterShell.

    python benchmarks/nodelist.py

The program installs ClusterShell into .venv-bench, runs both in turn, and prints the shortest time of each and their
ratio.
"""

from __future__ import annotations

import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from hpcrun.nodelist import expand_nodelist  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

RUNS = 7
NODELISTS = {
    "a range": "node[000001-100000]",
    "two names in brackets": "a[1-50000],b[1-50000]",
    "two brackets": "rack[1-100]n[0001-1000]",
    "three brackets": "r[1-10]c[1-100]n[1-100]",
    "many ranges": f"n[{','.join(f'{number}0-{number}4' for number in range(1, 20_001))}]",
    "names": ",".join(f"node{number}" for number in range(100_000)),
    "a suffix": "n[1-100000]-ib",
}


def run_time_ms(expand: Callable[[str], Collection[str]], nodelist: str) -> float:
    """Return the run time of one expansion."""
    begin = time.perf_counter()
    hosts = expand(nodelist)
    elapsed = (time.perf_counter() - begin) * 1000
    assert len(hosts) == 100_000
    return elapsed


def main() -> None:
    """Measure each form of nodelist, and print the ratio."""
    target = ROOT / ".venv-bench" / "clustershell"
    if not target.is_dir():
        install = [sys.executable, "-m", "pip", "install", "--quiet", f"--target={target}", "ClusterShell==1.10.1"]
        subprocess.run(install, check=True)
    sys.path.append(str(target))
    node_set = import_module("ClusterShell.NodeSet").NodeSet
    print(f"{'100,000 hosts':24}{'hpcrun':>10}{'ClusterShell':>16}{'':11}goal: at least 1.50 x as fast")
    for name, nodelist in NODELISTS.items():
        times = [
            (run_time_ms(expand_nodelist, nodelist), run_time_ms(lambda text: list(node_set(text)), nodelist))
            for _ in range(RUNS)
        ]
        ours, other = map(min, zip(*times, strict=True))
        print(f"{name:24}{ours:7.0f} ms{other:13.0f} ms{other / ours:8.2f} x")


if __name__ == "__main__":
    main()
