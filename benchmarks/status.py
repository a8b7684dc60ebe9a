"""Benchmark of ``hpcrun status`` with ten thousand old runs; no scheduler is needed.

    python benchmarks/status.py [RUNS]

The first call reads one file of each old run, and the first ``status all`` reads all files that the rows need; later
calls read old runs from hpcrun's cache.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from hpcrun.jobs import run_index, runs  # noqa: E402
from hpcrun.paths import run_index_folder  # noqa: E402

CALLS = 7
SPEC = {
    "scheduler": "slurm",
    "site": {"name": "slurm"},
    "resources": {"nodes": 2, "ntasks_per_node": 4, "time": "1:00:00"},
}


def create_runs(root: Path, count: int) -> None:
    """Create run directories of jobs that ended in 1970, and add them to the index."""
    run_index_folder().mkdir(parents=True)
    for number in range(count):
        name = ("resnet50", "lenet5")[number % 2]
        directory = root / f"{name}-20260101-000000-{number:04x}"
        directory.mkdir(parents=True)
        (directory / "job.json").write_text(json.dumps({"name": name, **SPEC}))
        (directory / "metrics.jsonl").write_text('{"epoch": 90, "epochs": 90, "images_per_second": 812.0}\n' * 90)
        record = {"exit_code": 0, "reason": "completed", "host": "n1", "started": 10, "ended": 75}
        (directory / "exit.json").write_text(json.dumps(record))
        submission = {"job_id": str(number), "submitted": float(number), "host": "login"}
        (directory / "submitted.json").write_text(json.dumps(submission))
        run_index.add_entry(directory, 10**18 + number, str(number))


def run_time(*argv: str) -> float:
    """Return the run time of an hpcrun command; raise an error if the command fails."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "hpcrun", *argv], check=True, capture_output=True)
    return time.perf_counter() - begin


def main() -> None:
    """Measure several calls of status."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"XDG_STATE_HOME": f"{folder}/state", "HPCRUN_RUN_ROOT": f"{folder}/runs"}
        create_runs(Path(folder, "runs"), count)
        assert next(runs.list_runs()).job_id == str(count - 1)
        print(f"{count:,} old runs")
        for argv in ([], ["all"]):
            print(f"{' '.join(['status', *argv, '(first call)']):28} {run_time('status', *argv):6.2f} s")
        job_id = str(count // 3)
        for argv in ([], [job_id], ["resnet*", "--state", "failed"], ["--since", "1d"], ["all"], ["all", "--json"]):
            times = [run_time("status", *argv) for _ in range(CALLS)]
            print(f"{' '.join(['status', *argv]):28} {statistics.median(times):6.2f} s  (at most {max(times):.2f} s)")


if __name__ == "__main__":
    main()
