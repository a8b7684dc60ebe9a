"""Benchmark of ``hpcrun why`` for a sweep of failed tasks with long logs; no scheduler is needed.

    python benchmarks/why.py [TASKS]

The program compares the run time with that of reading the ends of the same logs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from hpcrun import submission  # noqa: E402
from hpcrun.jobs import runs, submission_records  # noqa: E402
from hpcrun.request import Request  # noqa: E402
from hpcrun.why.log_end import TAIL_BYTES  # noqa: E402

CALLS = 3
LINE = "epoch {0}/2000  loss 2.{0}  accuracy 0.2{0}  val_loss 1.{0}  val_accuracy 0.4{0}  1,{0} images/s\n"
ERROR = """Traceback (most recent call last):
  File "/home/me/train.py", line 7, in <module>
    load()
ValueError: bad sample {}
"""
LOG = "".join(map(LINE.format, range(2000)))


def create_sweep(count: int) -> runs.Run:
    """Create a sweep of tasks that failed with a traceback at the end of their logs."""
    request = Request(None, args=("true",), site="slurm", sweep=(("seed", tuple(map(str, range(count)))),))
    sweep = submission.create(submission.prepare(request))
    submission_records.write_submission({sweep: "1", **{task: f"1_{task.task_number}" for task in sweep.tasks}})
    record = {"exit_code": 1, "reason": "the ranks ended with exit code 1", "host": "n1", "started": 10, "ended": 75}
    for task in sweep.tasks:
        (task.directory / "exit.json").write_text(json.dumps(record))
        error = ERROR.format(task.task_number)
        (task.directory / f"1_{task.task_number}_0_log.out").write_text(LOG)
        (task.directory / f"1_{task.task_number}_0_log.err").write_text(LOG + error)
    return sweep


def read_logs(sweep: runs.Run) -> None:
    """Read the end of each log."""
    for task in sweep.tasks:
        for log in task.directory.glob("*_log.*"):
            with log.open("rb") as file:
                file.seek(-TAIL_BYTES, os.SEEK_END)
                file.read()


def main() -> None:
    """Measure several calls of why."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"XDG_STATE_HOME": f"{folder}/state", "HPCRUN_RUN_ROOT": f"{folder}/runs"}
        sweep = create_sweep(count)
        times = []
        for _ in range(CALLS):
            begin = time.perf_counter()
            read_logs(sweep)
            read = time.perf_counter()
            subprocess.run([sys.executable, "-m", "hpcrun", "why", "1"], check=False, stdout=subprocess.DEVNULL)
            times.append((time.perf_counter() - read, read - begin))
        why, reading = min(times)
        print(f"hpcrun why, {count:,} failed tasks with logs of {len(LOG) // 1000} KB: {why:.2f} s")
        print(f"reading the ends of these logs: {reading:.2f} s; ratio {why / reading:.1f}")


if __name__ == "__main__":
    main()
