"""Functions for training scripts of any framework, without dependencies; see docs/run.md.

    hpcrun.run.heartbeat(epoch=1, epochs=90, step=10, steps=5004, batch_size=256, loss=loss)  # after a step
    hpcrun.run.log_metrics(1, 90, loss=0.3, val_accuracy=0.71)  # at the end of an epoch
    hpcrun.run.write_result(test_accuracy=0.76)  # at the end of the script
    hpcrun.run.checkpoint_requested()  # whether the job is about to be stopped

`hpcrun status`, `watch`, `compare`, `report` and `result` show these values; `hpcrun.train` writes the same files.
Importing this package starts neither threads nor MPI.
"""

from hpcrun.run.job import run_dir
from hpcrun.run.metrics import log_metrics
from hpcrun.run.progress import heartbeat
from hpcrun.run.result import write_result
from hpcrun.run.schedules import decay
from hpcrun.run.stop import checkpoint_requested
from hpcrun.run.workload_options import options

__all__ = ["checkpoint_requested", "decay", "heartbeat", "log_metrics", "options", "run_dir", "write_result"]
