"""Compare pipeline stages with one process.

pipeline_exact.py FILE STAGES MICRO_BATCHES SCHEDULE RECOMPUTE LAZY CASE...
"""

import json
import sys
from contextlib import nullcontext

import numpy as np
from pipeline_cases import make, run

import hpcrun.train
from hpcrun.train.pipeline.absent import present

file, stages, micro_batches, schedule, recompute, lazy, *cases = sys.argv[1:]
expected = np.load(file)
hpcrun.train.init()


def build(function):
    with hpcrun.train.lazy_weights() if lazy == "1" else nullcontext():
        return function()


distances, logs_distances, kept = {}, {}, {}
for case in cases:
    keras_model, optimizer, compiled, data = make(case, build)
    model = hpcrun.train.Model(
        keras_model,
        stages=int(stages),
        micro_batches=int(micro_batches),
        schedule=schedule,
        recompute=recompute == "1",
    )
    kept[case] = [len(present(model.variables)), len(model.variables)]
    model.compile(optimizer, **compiled)
    arrays, logs = run(model, data)
    distances[case] = float(max(np.abs(a - expected[f"{case}/{k}"]).max() for k, a in enumerate(arrays)))
    expected_logs = json.loads(str(expected[f"{case}/logs"]))
    if logs.keys() != expected_logs.keys():
        sys.exit(f"{case}: logs {sorted(logs)}, expected {sorted(expected_logs)}")
    logs_distances[case] = max(abs(logs[name] - expected_logs[name]) for name in logs)
print("RESULT", json.dumps({"distances": distances, "logs": logs_distances, "kept": kept}), flush=True)
