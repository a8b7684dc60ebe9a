"""One rank leaves early, in the way that the first argument names, while the others wait for it."""

import os
import sys

import hpcrun.train

if sys.argv[1] == "singletons":  # what a wrong srun --mpi= does: every rank believes that it is alone
    for name in [name for name in os.environ if name.startswith("PMI")]:
        del os.environ[name]

hpcrun.train.init()
if hpcrun.train.rank() == hpcrun.train.size() - 1:
    if sys.argv[1] == "raise":
        raise ValueError("a bug in the script")
    if sys.argv[1] == "exit":
        sys.exit(3)
    if sys.argv[1] == "refuse":
        raise hpcrun.train.HpcrunError("this cannot be", hint="do that")
hpcrun.train.barrier()
