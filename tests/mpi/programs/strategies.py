"""Run the workload `strategies` several times in one process: each argument is a run directory and its options."""

import os
import runpy
import sys
from pathlib import Path

TRAIN = Path(__file__).parents[3] / "workloads/strategies/train.py"
sys.path.insert(0, str(TRAIN.parent))

for text in sys.argv[1:]:
    os.environ["HPCRUN_RUN_DIR"], *sys.argv[1:] = text.split()
    runpy.run_path(str(TRAIN), run_name="__main__")
