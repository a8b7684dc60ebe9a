"""stop_after.py STEPS SCRIPT OPTIONS...: run a workload that gets SIGTERM after some steps of its `fit`."""

import os
import runpy
import signal
import sys
from pathlib import Path

import hpcrun.train

steps, script = int(sys.argv[1]), sys.argv[2]
make_callbacks = hpcrun.train.run_callbacks


def add_stop(*args, **kwargs):
    """Return the callbacks of a run, and one that stops it."""
    import keras

    class Stop(keras.callbacks.Callback):
        taken = 0

        def on_train_batch_end(self, batch, logs=None):
            self.taken += 1
            if self.taken == steps:
                os.kill(os.getpid(), signal.SIGTERM)

    return [*make_callbacks(*args, **kwargs), Stop()]


hpcrun.train.run_callbacks = add_stop
sys.argv[:] = sys.argv[2:]
sys.path[0] = str(Path(script).parent)
runpy.run_path(script, run_name="__main__")
