"""Write the results of one process to a file: python pipeline_reference.py FILE CASE..."""

import json
import sys
from typing import Any

import numpy as np
from pipeline_cases import make, run

import hpcrun.train

hpcrun.train.init()
results: dict[str, Any] = {}
for case in sys.argv[2:]:
    keras_model, optimizer, compiled, data = make(case, lambda build: build())
    model = hpcrun.train.Model(keras_model)
    model.compile(optimizer, **compiled)
    arrays, logs = run(model, data)
    results |= {f"{case}/{number}": array for number, array in enumerate(arrays)}
    results[f"{case}/logs"] = np.array(json.dumps(logs))
np.savez(sys.argv[1], **results)
